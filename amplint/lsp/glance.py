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
#: A function of more rows is left to the whole check.
_LONGEST = 400
#: As long as there are no more rows than these, functions that the edited one calls are looked at as well.
_MOST_ROWS = 100
#: As long as there are no more than these, functions that call the edited one are looked at as well.
_ROOM_FOR_CALLERS = 70
#: What stands for a fix that a first look does not make.
_LATER = "not before the whole file has been checked"
_USED = re.compile(r"\.?[^\W\d]\w*")
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
    named = _named(tree, units, kept, lines)
    for unit in units:
        if unit in kept:
            continue
        if not unit.owner and unit.name not in named:
            _leave_out(lines, unit.first, unit.last)
        elif unit.body:
            _leave_out(lines, unit.body, unit.last, " " * unit.indent + "...")
    for node in tree.body:  # classes that nothing of interest names, and that hold nothing of interest
        if isinstance(node, ast.ClassDef) and node.name not in named:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if not any(first <= unit.first <= (node.end_lineno or first) for unit in kept):
                _leave_out(lines, first, node.end_lineno or first)
    return Glance("".join(lines), edited[0].first, edited[0].last)


def _named(
    tree: ast.Module, units: Sequence[_Unit], kept: set[_Unit], lines: Sequence[str]
) -> frozenset[str]:
    """Every word of what stays: of the functions that are kept, and of what is in no function."""
    inside = {row for unit in units for row in range(unit.first, unit.last + 1)}
    classes = {node.lineno for node in tree.body if isinstance(node, ast.ClassDef)}
    outside = {
        word
        for row, line in enumerate(lines, 1)
        if row not in inside
        for word in _WORD.findall(line.partition("(")[2] if row in classes else line)
    }
    return frozenset(outside.union(*(_words(lines, unit) for unit in kept)))


def _leave_out(lines: list[str], first: int, last: int, instead: str = "") -> None:
    """Empty rows (counted from 1), with something else on the first one."""
    lines[first - 1] = instead + "\n"
    for row in range(first, last):
        lines[row] = "\n"


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
    """The edited function, and as far as there is room what it calls, and then who calls it; None if it is too long."""
    found = {edited}
    rows = _rows(edited)
    if rows > _LONGEST:
        return None
    by_name: dict[str, list[_Unit]] = {}
    for unit in units:
        by_name.setdefault(f".{unit.name}" if unit.owner else unit.name, []).append(unit)
        if unit.owner and unit.name in _MAKERS:
            by_name.setdefault(unit.owner, []).append(unit)
    makers = [unit for unit in units if unit.owner == edited.owner != "" and unit.name in _MAKERS]
    todo = [edited, *makers]
    found.update(makers)
    for unit in todo:  # grows: those called directly come first
        for word in _used(lines, unit):
            for called in by_name.get(word, ()):
                if called not in found and rows + _rows(called) <= _MOST_ROWS:
                    rows += _rows(called)
                    found.add(called)
                    todo.append(called)
    own = f".{edited.name}" if edited.owner else edited.name
    for unit in units:
        if unit not in found and rows + _rows(unit) <= _ROOM_FOR_CALLERS and own in _used(lines, unit):
            rows += _rows(unit)
            found.add(unit)
    return found


def _used(lines: Sequence[str], unit: _Unit) -> dict[str, None]:
    """Names in a function, attributes with the dot before them, in the order of the text."""
    return dict.fromkeys(_USED.findall("".join(lines[unit.first - 1 : unit.last])))


def _words(lines: Sequence[str], unit: _Unit) -> frozenset[str]:
    return frozenset(_WORD.findall("".join(lines[unit.first - 1 : unit.last])))


def _rows(unit: _Unit) -> int:
    return unit.last - unit.first + 1


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
    return replace(finding, span=span, fix=None, no_fix_reason=_LATER)


def _inside(place: Position, source: Source) -> Position:
    return Position(place.row, min(place.column, len(source.line_text(place.row)) + 1))
