"""Fixes as diffs: of a whole file, for `patch`, and of the few rows around a finding."""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher, unified_diff
from typing import TYPE_CHECKING

from amplint.finding import Edit, Finding, Fix, Span
from amplint.fix import apply_edits
from amplint.report.frame import Look, Window, shown, window_at
from amplint.source import Source

if TYPE_CHECKING:
    from amplint.runner import FileChange

#: Rows of an excerpt; a fix that rewrites a whole loop need not be repeated in full.
_EXCERPT_ROWS = 16
#: Edits with at most so many rows between them are shown together.
_GAP = 2

_NO_NEWLINE = "\\ No newline at end of file\n"


def file_diff(change: FileChange) -> bytes:
    """Unified diff of one file, in the file's own encoding: `git apply` and `patch -p1` take it.

    That of a notebook is one of its JSON.
    """
    source, new_text = change.source, change.new_text
    encoding = source.encoding
    if source.cells is not None:
        bom = len(source.bom)
        old_text, new_text = (data[bom:].decode(encoding) for data in (source.data, source.encode(new_text)))
    else:
        old_text = source.text
    header, body = [], []
    names = _name("a", change), _name("b", change)
    for index, line in enumerate(_diff_rows(source.bom.decode("utf-8"), old_text, new_text, names)):
        if index < 2:
            header.append(line.encode("utf-8", "surrogateescape"))
        else:
            body.append(line.encode(encoding, "backslashreplace"))
    return b"".join(header + body)


def colored_file_diff(change: FileChange, look: Look) -> str:
    """The same for a terminal; of a notebook, a diff for each of its cells."""
    source = change.source
    if source.cells is None:
        names = _name("a", change), _name("b", change)
        return _colored(_diff_rows(source.bom.decode("utf-8"), source.text, change.new_text, names), look)
    parts = []
    for number, new in source.cells.split(change.new_text).items():
        old = source.cells.sources[number - 1] or ""
        name = f"{source.filename}:cell {number}"
        parts.append(_colored(_diff_rows("", old, new, (name, name)), look))
    return "".join(parts)


def _colored(rows: Iterable[str], look: Look) -> str:
    colors = {"-": "red", "+": "green", "@": "cyan"}
    lines = []
    for index, row in enumerate(rows):
        text = look.plain(row.rstrip("\r\n").replace("\t", "    "))
        lines.append(look.style(text, "bold" if index < 2 else colors.get(row[0], "dim")) + "\n")
    return "".join(lines)


def _diff_rows(bom: str, old_text: str, new_text: str, names: tuple[str, str]) -> Iterator[str]:
    # Only at line feeds, as git and patch do: a lone carriage return is part of a line to them.
    old, new = ((bom + text).split("\n") for text in (old_text, new_text))
    before, after = (_ended(lines) for lines in (old, new))
    for row in unified_diff(before, after, *names):
        if row.endswith("\n"):
            yield row
        else:
            yield row + "\n"
            yield _NO_NEWLINE


def _ended(lines: Sequence[str]) -> list[str]:
    """Lines with their newline; the last one has none, and is no line when it is empty."""
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _name(side: str, change: FileChange) -> str:
    """A file's name in a diff's header; git quotes those with odd characters, and ends others at a tab."""
    name = change.source.filename
    if not os.path.isabs(name):
        name = f"{side}/{name}"
    if any(character < " " or character in '"\\' for character in name):
        return json.dumps(name, ensure_ascii=False)
    return name + "\t" if " " in name else name


def excerpt(source: Source, finding: Finding, fix: Fix, look: Look, elsewhere: int = 0) -> list[str]:
    """What a fix changes next to its finding, with a row of context, and how much more it changes.

    `elsewhere` is how many edits there are besides, in other cells of a notebook.
    """
    edits = sorted(set(fix.edits), key=lambda edit: edit.sort_key)
    if not edits:
        return [look.style(_more(elsewhere), "dim")] if elsewhere else []
    spans = [_rows_of(edit, source) for edit in edits]
    low, high = _cluster(spans, _nearest(edits, finding.span.start))
    first = max(1, spans[low][0] - 1)
    last = min(_last_row(source), max(bottom for _, bottom in spans[low:high]) + 1)
    first = min(first, last)
    lines = _changed_rows(source, edits[low:high], first, last, look)
    if len(lines) > _EXCERPT_ROWS:
        left_out = len(lines) - _EXCERPT_ROWS
        lines[_EXCERPT_ROWS:] = [look.style(f"... and {left_out} more lines", "dim")]
    others = len(edits) - (high - low) + elsewhere
    if others:
        lines.append(look.style(_more(others), "dim"))
    return lines


def _more(others: int) -> str:
    return f"... and {'1 other edit' if others == 1 else f'{others} other edits'} in this file"


def _nearest(edits: Sequence[Edit], offset: int) -> int:
    """Index of the edit that is nearest to an offset, in a sorted list."""
    after = bisect_left([edit.span.start for edit in edits], offset)
    candidates = [index for index in (after - 1, after) if 0 <= index < len(edits)]

    def distance(index: int) -> int:
        span = edits[index].span
        return max(span.start - offset, offset - span.end, 0)

    return min(candidates, key=distance)


def _rows_of(edit: Edit, source: Source) -> tuple[int, int]:
    """First and last row that an edit changes."""
    start, end = source.position(edit.span.start), source.position(edit.span.end)
    whole_rows = end.column == 1 and end.row > start.row
    if whole_rows and (start.column == 1 if not edit.content else edit.content.endswith(("\n", "\r"))):
        return start.row, end.row - 1
    return start.row, end.row


def _cluster(spans: Sequence[tuple[int, int]], index: int) -> tuple[int, int]:
    """Range of the indices of edits that are shown together with the one at `index`."""
    low, high = index, index + 1
    while low > 0 and spans[low][0] - spans[low - 1][1] <= _GAP:
        low -= 1
    while high < len(spans) and spans[high][0] - spans[high - 1][1] <= _GAP:
        high += 1
    return low, high


def _last_row(source: Source) -> int:
    """Number of the last row; the empty one after a final newline does not count."""
    starts = source.line_starts
    return len(starts) - (len(starts) > 1 and starts[-1] == len(source.text))


def _changed_rows(source: Source, edits: Sequence[Edit], first: int, last: int, look: Look) -> list[str]:
    """Diff of some rows of a file, without their newlines."""
    starts = source.line_starts
    begin = starts[first - 1]
    end = starts[last] if last < len(starts) else len(source.text)
    old_text = source.text[begin:end]
    moved = [replace(edit, span=Span(edit.span.start - begin, edit.span.end - begin)) for edit in edits]
    old, new = _split(old_text), _split(apply_edits(old_text, moved))
    start = source.position(edits[0].span.start)
    window = window_at(source.line_text(start.row), start.column, look)
    return _signed(old, new, first, last, window, look)


def _split(text: str) -> list[str]:
    rows = re.split(r"\r\n?|\n", text)
    return rows[:-1] if rows[-1] == "" else rows


def _signed(
    old: Sequence[str], new: Sequence[str], first: int, last: int, window: Window, look: Look
) -> list[str]:
    """Rows of a diff with one row of context; those of the old text have their number."""
    gutter = len(str(last))
    lines: list[str] = []

    def add(number: int | None, sign: str, text: str, color: str | None) -> None:
        row = f"{number if number else '':>{gutter}} {sign} {shown(text, window, look)}".rstrip()
        lines.append(look.style(row, color) if color else row)

    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for index, group in enumerate(matcher.get_grouped_opcodes(1)):
        if index:
            lines.append(look.style(f"{'':>{gutter}} ...", "dim"))
        for tag, low, high, new_low, new_high in group:
            if tag == "equal":
                for row in range(low, high):
                    add(first + row, " ", old[row], None)
                continue
            for row in range(low, high):
                add(first + row, "-", old[row], "red")
            for row in range(new_low, new_high):
                add(None, "+", new[row], "green")
    return lines
