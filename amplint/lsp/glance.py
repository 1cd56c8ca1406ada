"""A first look at an edited document: only the functions that the edit is in, and what these have to do with.

The rest of the file is left out, row by row, so that everything stays where it is; what was found in it before stays,
too. That takes a fraction of a whole check, which follows at once and decides: what a function does may depend on more
than what was looked at. Rules that are about a whole file have no say in a first look.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from amplint.finding import Finding, Position, Span
from amplint.lsp.moves import Change
from amplint.source import Source

#: Whether these find something depends on what else is in the file, or is not.
WHOLE_FILE = frozenset(
    {"AMP204", "AMP212", "AMP213", "AMP217", "AMP218", "AMP219", "AMP221", "AMP312", "AMP316", "AMP324"}
    | {"AMP900", "AMP901", "AMP902", "AMP903"}
)
#: Rows that are looked at, at most; with more a whole check is hardly slower.
_MOST_ROWS = 260
#: What stands for a fix that a first look does not make.
_LATER = "not before the whole file has been checked"
_WORD = re.compile(r"[^\W\d]\w*")
#: Methods that say what an object holds.
_MAKERS = frozenset({"__init__", "setup", "configure_optimizers", "__post_init__"})


@dataclass(frozen=True, slots=True)
class _Unit:
    """A function of the module, or a method of one of its classes; nested functions are part of it."""

    name: str
    #: The class, "" for a function.
    owner: str
    #: First and last row, decorators included.
    first: int
    last: int
    #: First row of the body, and the column at which that begins; 0 where it is on the row of the `def`.
    body: int
    indent: int


@dataclass(frozen=True, slots=True)
class Glance:
    """What to look at."""

    #: The text with everything else left out.
    text: str
    #: Rows that the edit is in; findings that begin there are the ones looked for.
    first: int
    last: int


def reduced(source: Source, tree: ast.Module, change: Change) -> Glance | None:
    """What is to be looked at after a change; None where that is most of the file, or the edit is in no function."""
    first, last = change.rows
    units = list(_units(tree))
    edited = [unit for unit in units if unit.first <= last and first <= unit.last]
    if len(edited) != 1 or not (edited[0].first <= first and last <= edited[0].last):
        return None
    lines = source.text.splitlines(keepends=True) if source.newline == "\n" else None
    if lines is None or len(lines) not in (len(source.line_starts), len(source.line_starts) - 1):
        return None  # rows that end in other ways are rare
    kept = _needed(edited[0], units, lines)
    if kept is None:
        return None
    for unit in units:
        if unit in kept or not unit.body:
            continue
        rows = range(unit.body - 1, unit.last)
        lines[rows[0]] = " " * unit.indent + "...\n"
        for row in rows[1:]:
            lines[row] = "\n"
    return Glance("".join(lines), edited[0].first, edited[0].last)


def _units(tree: ast.Module) -> Iterator[_Unit]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield _unit(node, "")
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield _unit(inner, node.name)


def _unit(node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str) -> _Unit:
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    start = node.body[0]
    begins = min([start.lineno, *(each.lineno for each in getattr(start, "decorator_list", []))])
    own_row = begins > node.lineno and isinstance(start, ast.stmt)
    return _Unit(
        node.name, owner, first, node.end_lineno or first, begins if own_row else 0, start.col_offset
    )


def _needed(edited: _Unit, units: Sequence[_Unit], lines: Sequence[str]) -> set[_Unit] | None:
    """The edited function, what it may call, and as far as there is room who may call it; None if that is too much."""
    words = {unit: _words(lines, unit) for unit in units}
    by_name: dict[str, list[_Unit]] = {}
    for unit in units:
        by_name.setdefault(unit.name, []).append(unit)
        if unit.owner and unit.name in _MAKERS:
            by_name.setdefault(unit.owner, []).append(unit)
    found = {edited}
    found |= {unit for unit in units if unit.owner == edited.owner != "" and unit.name in _MAKERS}
    todo = list(found)
    while todo:
        unit = todo.pop()
        for word in words[unit]:
            for called in by_name.get(word, ()):
                if called not in found:
                    found.add(called)
                    todo.append(called)
        if _rows(found) > _MOST_ROWS:
            return None
    for unit in units:
        if edited.name in words[unit] and unit not in found and _rows({*found, unit}) <= _MOST_ROWS:
            found.add(unit)
    return found


def _words(lines: Sequence[str], unit: _Unit) -> frozenset[str]:
    return frozenset(_WORD.findall("".join(lines[unit.first - 1 : unit.last])))


def _rows(units: set[_Unit]) -> int:
    return sum(unit.last - unit.first + 1 for unit in units)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was looked at, and found there."""

    glance: Glance
    findings: tuple[Finding, ...]


def merged(source: Source, seen: Seen, change: Change, before: Sequence[Finding]) -> tuple[Finding, ...]:
    """What was found at first sight, and what was found before elsewhere."""
    glance = seen.glance
    found = [
        placed
        for finding in seen.findings
        if glance.first <= finding.start.row <= glance.last and finding.code not in WHOLE_FILE
        if (placed := _placed(finding, source)) is not None
    ]
    stay = [
        finding
        for finding in change.moved(before, _LATER)
        if not glance.first <= finding.start.row <= glance.last or finding.code in WHOLE_FILE
    ]
    return tuple(sorted((*found, *stay), key=lambda finding: finding.sort_key))


def _placed(finding: Finding, source: Source) -> Finding | None:
    """A finding of the reduced text in the whole one: rows and columns are the same, offsets are not."""
    try:
        span = Span(source.offset(finding.start), source.offset(_inside(finding.end, source)))
    except IndexError:
        return None
    reason = _LATER if finding.fix is not None else finding.no_fix_reason
    return replace(finding, span=span, fix=None, no_fix_reason=reason)


def _inside(place: Position, source: Source) -> Position:
    return Position(place.row, min(place.column, len(source.line_text(place.row)) + 1))
