"""The JSON of a notebook: the sources of its cells, and the same bytes with other sources.

Formats 3 and 4 are read, and older ones that look like them. Only the literals of rows that change are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from amplint.finding import Position
from amplint.notebook.cells import Cells, NotebookError, joined
from amplint.notebook.magics import split_rows

_BLANK = re.compile(r"[ \t\n\r]*")
#: What one character of a string is in JSON.
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_DECODER = json.JSONDecoder()
_TOO_DEEP = "not a notebook: nested too deeply"


@dataclass(frozen=True, slots=True)
class _Value:
    """Where a value stands in the JSON."""

    start: int
    end: int


def read_notebook(raw: str) -> Cells:
    """The cells of a notebook in the text of its file. NotebookError when it is none."""
    try:
        content = json.loads(raw)
    except json.JSONDecodeError as error:
        raise NotebookError(
            f"not a notebook: {_reason(error, raw)}", Position(error.lineno, error.colno)
        ) from error
    except RecursionError as error:
        raise NotebookError(_TOO_DEEP) from error
    except ValueError as error:  # a number with too many digits
        raise NotebookError(f"not a notebook: {error}") from error
    language = _language(content) if isinstance(content, dict) else ""
    cells = _cells(content)
    return joined([_source(cell, number, language) for number, cell in enumerate(cells, 1)], raw=raw)


def _reason(error: json.JSONDecodeError, raw: str) -> str:
    if not raw.strip():
        return "the file is empty"
    hint = "; it has the marks of a merge conflict in it" if "<<<<<<<" in raw else ""
    return f"invalid JSON ({error.msg}){hint}"


def _cells(content: object) -> list[Any]:
    """The cells, of all worksheets where there are such."""
    if isinstance(content, dict):
        if isinstance(cells := content.get("cells"), list):
            return cells
        sheets = content.get("worksheets")
        if isinstance(sheets, list):
            found = [sheet.get("cells", []) if isinstance(sheet, dict) else None for sheet in sheets]
            if all(isinstance(cells, list) for cells in found):
                return [cell for cells in found if cells for cell in cells]
    raise NotebookError("not a notebook: it has no list of cells")


def _source(cell: object, number: int, language: str) -> str | None:
    """The source of a cell of Python, else None."""
    if (
        not isinstance(cell, dict)
        or cell.get("cell_type") != "code"
        or not _is_python(_own_language(cell, language))
    ):
        return None
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list) and all(isinstance(row, str) for row in source):
        return "".join(source)
    if not isinstance(source, str):
        raise NotebookError(
            f"not a notebook: the source of cell {number} is neither a string nor a list of them"
        )
    return source


def _language(content: Mapping[str, Any]) -> str:
    """The language of a notebook, "" where it does not say."""
    metadata = content.get("metadata")
    for part, key in (("language_info", "name"), ("kernelspec", "language"), ("kernel_info", "language")):
        described = metadata.get(part) if isinstance(metadata, dict) else None
        if isinstance(described, dict) and isinstance(name := described.get(key), str) and name:
            return name
    return ""


def _own_language(cell: Mapping[str, Any], language: str) -> str:
    """The language of a cell: that of the notebook unless it says another one."""
    metadata = cell.get("metadata")
    editor = metadata.get("vscode") if isinstance(metadata, dict) else None
    own = editor.get("languageId") if isinstance(editor, dict) else cell.get("language")
    return own if isinstance(own, str) and own else language


def _is_python(language: str) -> bool:
    return not language or language.lower().startswith(("python", "ipython"))


# -- places in the JSON ------------------------------------------------------------------------------------------


def spliced(raw: str, changed: Mapping[int, str]) -> str:
    """The JSON with other sources for some cells, by number; everything else stays as it is."""
    if not changed:
        return raw
    places = _source_places(raw)
    parts = []
    end = len(raw)
    for number in sorted(changed, reverse=True):
        place = places[number - 1]
        if place is None:
            raise NotebookError(f"cell {number} has no source")
        parts.append(raw[place.end : end])
        parts.append(_rewritten(raw, place, changed[number]))
        end = place.start
    return raw[:end] + "".join(reversed(parts))


@lru_cache(8)
def rows_in_file(raw: str, number: int) -> list[tuple[int, int]]:
    """First and last row of the file for each row of a cell."""
    place = _source_places(raw)[number - 1]
    if place is None:
        return []
    rows: list[tuple[int, int]] = []
    open_row: int | None = None
    row, counted = 1, 0
    for element in [place] if raw[place.start] == '"' else list(_elements(raw, place.start)):
        row += raw.count("\n", counted, element.start)
        counted = element.start
        texts = split_rows(_string(raw, element))
        for text, newline in texts:
            if not (text or newline) and texts[-1] == (text, newline) and len(texts) > 1:
                break
            first = row if open_row is None else open_row
            if newline:
                rows.append((first, row))
                open_row = None
            else:
                open_row = first
    if open_row is not None:
        rows.append((open_row, open_row))
    return rows


@lru_cache(1)
def _source_places(raw: str) -> tuple[_Value | None, ...]:
    """Where the source of each cell stands."""
    try:
        top = _members(raw, _skip(raw, 0))
        if "cells" in top and raw[top["cells"].start] == "[":
            lists = [top["cells"]]
        else:
            sheets = [_members(raw, sheet.start) for sheet in _elements(raw, top["worksheets"].start)]
            lists = [sheet["cells"] for sheet in sheets if "cells" in sheet]
        found: list[_Value | None] = []
        for value in lists:
            for cell in _elements(raw, value.start):
                members = _members(raw, cell.start) if raw[cell.start] == "{" else {}
                found.append(members.get("source", members.get("input")))
    except RecursionError as error:
        raise NotebookError(_TOO_DEEP) from error
    return tuple(found)


def _members(raw: str, start: int) -> dict[str, _Value]:
    """Where the values of an object stand; of equal keys the last one counts, as it does for `json`."""
    found = {}
    place = _skip(raw, start + 1)
    while raw[place] != "}":
        key, place = _DECODER.raw_decode(raw, place)
        place = _skip(raw, _skip(raw, place) + 1)
        end = _DECODER.raw_decode(raw, place)[1]
        found[key] = _Value(place, end)
        place = _skip(raw, end)
        if raw[place] == ",":
            place = _skip(raw, place + 1)
    return found


def _elements(raw: str, start: int) -> Iterator[_Value]:
    """Where the elements of a list stand."""
    place = _skip(raw, start + 1)
    while raw[place] != "]":
        end = _DECODER.raw_decode(raw, place)[1]
        yield _Value(place, end)
        place = _skip(raw, end)
        if raw[place] == ",":
            place = _skip(raw, place + 1)


def _skip(raw: str, place: int) -> int:
    match = _BLANK.match(raw, place)
    assert match is not None
    return match.end()


# -- writing -----------------------------------------------------------------------------------------------------


def _rewritten(raw: str, place: _Value, source: str) -> str:
    """What stands for a source in place of another one, in the same form."""
    if raw[place.start] == '"':
        return _rewritten_string(raw, place, source)
    return _rewritten_list(raw, place, source)


def _rewritten_string(raw: str, place: _Value, source: str) -> str:
    """A string in which only what lies between the first and the last difference is written anew."""
    literals = _CHARACTER.findall(raw, place.start + 1, place.end - 1)
    old = _string(raw, place)
    if len(literals) != len(old):
        return _literal(raw, source)
    begin = _common(old, source)
    end = min(_common(old[::-1], source[::-1]), len(old) - begin, len(source) - begin)
    middle = _literal(raw, source[begin : len(source) - end])[1:-1]
    return '"' + "".join(literals[:begin]) + middle + "".join(literals[len(old) - end :]) + '"'


def _rewritten_list(raw: str, place: _Value, source: str) -> str:
    """A list of rows; those that were there keep their literals, and the blanks between them are alike."""
    elements = list(_elements(raw, place.start))
    texts = [_string(raw, element) for element in elements]
    begin = end = 0
    rest = source
    while begin < len(texts) and texts[begin].endswith("\n") and rest.startswith(texts[begin]):
        rest = rest[len(texts[begin]) :]
        begin += 1
    while end < len(texts) - begin and texts[-1 - end] and rest.endswith(texts[-1 - end]):
        if rest == texts[-1 - end] or rest.removesuffix(texts[-1 - end]).endswith("\n"):
            rest = rest.removesuffix(texts[-1 - end])
            end += 1
        else:
            break
    known = dict(zip(texts, (raw[element.start : element.end] for element in elements), strict=True))
    new = [text for text in re.split(r"(?<=\n)", rest) if text]
    literals = [
        *(raw[element.start : element.end] for element in elements[:begin]),
        *(known.get(text) or _literal(raw, text) for text in new),
        *(raw[element.start : element.end] for element in elements[len(elements) - end :]),
    ]
    opening, between, closing = _blanks(raw, place, elements)
    return f"[{opening}{between.join(literals)}{closing}]" if literals else "[]"


def _blanks(raw: str, place: _Value, elements: Sequence[_Value]) -> tuple[str, str, str]:
    """What stands before, between and behind the elements of a list."""
    if not elements:
        line = raw[raw.rfind("\n", 0, place.start) + 1 : place.start]
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        if "\n" not in raw.strip() or not line.lstrip().startswith('"'):
            return "", ", " if raw[place.start - 1] == " " else ",", ""
        unit = "\t" if indent.startswith("\t") else " " * max(1, len(indent) // 3)
        newline = "\r\n" if "\r\n" in raw else "\n"
        return f"{newline}{indent}{unit}", f",{newline}{indent}{unit}", f"{newline}{indent}"
    opening = raw[place.start + 1 : elements[0].start]
    closing = raw[elements[-1].end : place.end - 1]
    if len(elements) > 1:
        return opening, raw[elements[0].end : elements[1].start], closing
    return opening, f",{opening}" if opening else ", " if raw[place.start - 1] == " " else ",", closing


def _literal(raw: str, text: str) -> str:
    """A string as the file writes its strings: with its own characters, or with escapes where all of it is ASCII."""
    return json.dumps(text, ensure_ascii=raw.isascii() or bool(_SURROGATE.search(text)))


def _string(raw: str, place: _Value) -> str:
    return str(_DECODER.raw_decode(raw, place.start)[0])


def _common(one: str, two: str) -> int:
    """How many characters two texts begin with alike."""
    low = 0
    for a, b in zip(one, two, strict=False):
        if a != b:
            break
        low += 1
    return low
