"""A first look at an edited document: only the functions that the edit is in, and what these have to do with.

The rest of the file is left out, row by row, so that everything stays where it is; what was found in it before stays,
too. That takes a fraction of a whole check, which follows at once and decides: what a function does may depend on more
than what was looked at. Rules that are about a whole file have no say in a first look.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from amplint.finding import Finding, Position, Span
from amplint.lsp.moves import Change
from amplint.lsp.outline import Outline, Unit, cuts
from amplint.source import Source
from amplint.syntax.syntax_error import parsed_only

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
#: Comments that silence findings have one of these in them.
_SILENCING = re.compile("amplint|noqa", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d]\w*")
#: Methods that say what an object holds.
_MAKERS = frozenset({"__init__", "setup", "configure_optimizers", "__post_init__"})


@dataclass(frozen=True, slots=True)
class Glance:
    """What to look at."""

    #: The text with everything else left out.
    text: str
    #: Offsets at which functions and classes that stay begin, and at which what is behind them does.
    starts: tuple[int, ...]
    #: Rows that the edit is in; findings that begin there are the ones looked for.
    first: int
    last: int


def means_the_same(outline: Outline, change: Change) -> bool:
    """Whether only blanks changed and comments that silence nothing, inside of one function."""
    first, last = change.rows
    unit = next((unit for unit in outline.units if unit.first <= first and last <= unit.last), None)
    if unit is None:
        return False
    shift = len(change.old) - len(change.new)
    start, end, row, behind = (
        _row_start(change.new, change.new_rows, row) for row in (unit.first, unit.last + 1, first, last + 1)
    )
    if end < len(change.new) - change.tail or end + shift not in (*change.old_rows, len(change.old)):
        return False
    touched = change.new[row:behind] + change.old[row : behind + shift]
    if _SILENCING.search(touched) or not (touched.isspace() or "#" in touched):
        return False
    before, after = change.old[start : end + shift], change.new[start:end]
    return _meaning(before, unit) == _meaning(after, unit) is not None


def _row_start(text: str, rows: Sequence[int], row: int) -> int:
    """The offset at which a row, from 1, begins; the end of the text behind the last one."""
    return rows[row - 1] if row <= len(rows) else len(text)


def _meaning(text: str, unit: Unit) -> str | None:
    tree = parsed_only("class _:\n" + text if unit.column else text)[1]
    return ast.dump(tree) if tree is not None else None


def reduced(source: Source, outline: Outline, change: Change) -> Glance | None:
    """What is to be looked at after a change; None where that is most of the file, or the edit is in no function."""
    first, last = change.rows
    units = outline.units
    edited = [unit for unit in units if unit.first <= last and first <= unit.last]
    if len(edited) != 1 or not (edited[0].first <= first and last <= edited[0].last):
        return None
    if source.newline != "\n" or "\r" in source.text:
        return None  # rows that end in other ways are rare
    ends = (*source.line_starts, len(source.text))
    lines = [source.text[start:end] for start, end in pairwise(ends)]
    kept = _needed(edited[0], units, lines)
    if kept is None:
        return None
    named = _named(outline, kept, lines)
    gone: list[tuple[int, int]] = []
    dropped: set[int] = set()
    for group in outline.classes:  # classes that nothing of interest names, and that hold nothing of interest
        if group.name not in named and not any(group.first <= unit.first <= group.last for unit in kept):
            gone.append((group.first, group.last))
            dropped.update(range(group.first, group.last + 1))
    for unit in units:
        if unit in kept or (unit.owner and unit.first in dropped):
            continue
        if not unit.owner and unit.name not in named:
            gone.append((unit.first, unit.last))
        elif unit.body:
            _leave_out(lines, unit.body, unit.last, " " * unit.indent, "...")
    for first, last in _joined(gone, lines):
        _leave_out(lines, first, last)
    stay = [(unit.first, unit.last) for unit in kept if not unit.owner]
    stay += [(group.first, group.last) for group in outline.classes if group.first not in dropped]
    row_starts = list(accumulate(map(len, lines[:-1]), initial=0))
    return Glance("".join(lines), tuple(cuts(stay, row_starts)), edited[0].first, edited[0].last)


def _joined(gone: list[tuple[int, int]], lines: Sequence[str]) -> list[tuple[int, int]]:
    """Spans of rows, those together that have only blank ones between them."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(gone):
        if found and not "".join(lines[found[-1][1] : first - 1]).strip():
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


def _named(outline: Outline, kept: set[Unit], lines: Sequence[str]) -> frozenset[str]:
    """Every word of what stays: of the functions that are kept, and of what is in no function."""
    inside = {row for unit in outline.units for row in range(unit.first, unit.last + 1)}
    classes = {group.head for group in outline.classes}
    outside = {
        word
        for row, line in enumerate(lines, 1)
        if row not in inside
        for word in _WORD.findall(line.partition("(")[2] if row in classes else line)
    }
    return frozenset(outside.union(*(_words(lines, unit) for unit in kept)))


def _leave_out(lines: list[str], first: int, last: int, indent: str = "", instead: str = "") -> None:
    """Leave out rows (counted from 1): a string over as many of them, which costs a parser less than empty rows."""
    if last - first < 2:
        lines[first - 1 : last] = [f"{indent}{instead}\n", *["\n"] * (last - first)]
    else:
        lines[first - 1 : last] = [f'{indent}"""\n', *["\n"] * (last - first - 1), '"""\n']


def _needed(edited: Unit, units: Sequence[Unit], lines: Sequence[str]) -> set[Unit] | None:
    """The edited function, and as far as there is room what it calls, and then who calls it; None if it is too long."""
    found = {edited}
    rows = edited.rows
    if rows > _LONGEST:
        return None
    by_name: dict[str, list[Unit]] = {}
    for unit in units:
        by_name.setdefault(f".{unit.name}" if unit.owner else unit.name, []).append(unit)
        if unit.owner and unit.name in _MAKERS:
            by_name.setdefault(unit.owner, []).append(unit)
    makers = [unit for unit in units if unit.owner == edited.owner != "" and unit.name in _MAKERS]
    todo = [edited, *makers]
    found.update(makers)
    #: Words so far: a method is one of a class that something names.
    named = {edited.owner}
    for unit in todo:  # grows: those called directly come first
        used = _used(lines, unit)
        named.update(used)
        for word in used:
            for called in by_name.get(word, ()):
                if called.owner not in named or (word == ".__init__" != edited.name):
                    continue
                if called not in found and rows + called.rows <= _MOST_ROWS:
                    rows += called.rows
                    found.add(called)
                    todo.append(called)
    own = f".{edited.name}" if edited.owner else edited.name
    for unit in units:
        if unit in found or rows + unit.rows > _ROOM_FOR_CALLERS or own not in _used(lines, unit):
            continue
        if edited.owner and unit.owner != edited.owner:  # is its object one of this class?
            makers = [each for each in units if each.owner == unit.owner != "" and each.name in _MAKERS]
            if not any(edited.owner in _used(lines, each) for each in (unit, *makers)):
                continue
        rows += unit.rows
        found.add(unit)
    return found


def _used(lines: Sequence[str], unit: Unit) -> dict[str, None]:
    """Names in a function, attributes with the dot before them, in the order of the text."""
    return dict.fromkeys(_USED.findall("".join(lines[unit.first - 1 : unit.last])))


def _words(lines: Sequence[str], unit: Unit) -> frozenset[str]:
    return frozenset(_WORD.findall("".join(lines[unit.first - 1 : unit.last])))


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
        for finding in moved(change, before)
        if not glance.first <= finding.start.row <= glance.last or finding.code in WHOLE_FILE
    ]
    return tuple(sorted((*found, *stay), key=lambda finding: finding.sort_key))


def moved(change: Change, before: Sequence[Finding]) -> list[Finding]:
    """What was found before, at its places in the new text."""
    return change.moved(before, _LATER)


def _placed(finding: Finding, source: Source) -> Finding | None:
    """A finding of the reduced text in the whole one: rows and columns are the same, offsets are not."""
    try:
        span = Span(source.offset(finding.start), source.offset(_inside(finding.end, source)))
    except IndexError:
        return None
    return replace(finding, span=span, fix=None, no_fix_reason=_LATER)


def _inside(place: Position, source: Source) -> Position:
    return Position(place.row, min(place.column, len(source.line_text(place.row)) + 1))
