"""Where findings are, for readers: in notebooks by cell, and by line of the file for those who see nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from amplint.finding import Edit, Finding, Note, Position, Span
from amplint.source import Place, Source, SourceError, read_source


class Sources:
    """The sources of a run, and those of files that only traces name, which are read when they are asked for."""

    def __init__(self, sources: Mapping[str, Source], cwd: Path) -> None:
        self._sources: dict[str, Source | None] = dict(sources)
        self._cwd = cwd

    def get(self, filename: str) -> Source | None:
        """The source of a file; None where it cannot be read."""
        if filename not in self._sources:
            try:
                self._sources[filename] = read_source(self._cwd / filename, filename)
            except SourceError:
                self._sources[filename] = None
        return self._sources[filename]


def place(finding: Finding, sources: Mapping[str, Source]) -> Place:
    """Where a finding begins."""
    return _place(finding.filename, finding.start, sources)


def note_place(note: Note, sources: Mapping[str, Source]) -> Place:
    """Where a step of a trace is."""
    return _place(note.filename, note.start, sources)


def _place(filename: str, position: Position, sources: Mapping[str, Source]) -> Place:
    source = sources.get(filename)
    return Place(None, position.row, position.column) if source is None else source.place(position)


def file_rows(finding: Finding, sources: Mapping[str, Source]) -> tuple[int, int]:
    """First and last row of a finding in its file, which for notebooks are rows of JSON."""
    source = sources.get(finding.filename)
    if source is None or source.cells is None:
        return finding.start.row, finding.end.row
    is_whole_rows = finding.end.column == 1 and finding.end.row > finding.start.row
    return source.file_rows(finding.start.row, finding.end.row - is_whole_rows)


def beside_cell(finding: Finding, sources: Mapping[str, Source]) -> str:
    """` (cell 3, line 4)` for a finding in a notebook, else ""; for readers that know lines of files only."""
    found = place(finding, sources)
    return "" if found.cell is None else f" (cell {found.cell}, line {found.row})"


def alone(finding: Finding, source: Source) -> tuple[Finding, Source, int]:
    """A finding in the source of its cell alone, that source, and how many edits of its fix are in other cells.

    What is in no notebook comes back as it is.
    """
    cells = source.cells
    cell = None if cells is None else cells.at(finding.start.row)
    if cells is None or cell is None:
        return finding, source, 0
    view = Source(source.filename, None, b"", cell.source)
    start, end = (source.place(each, finding.start) for each in (finding.start, finding.end))
    moved = replace(
        finding,
        start=Position(start.row, start.column),
        end=Position(end.row, end.column),
        span=Span(*(_offset(view, Position(each.row, each.column)) for each in (start, end))),
    )
    if finding.fix is None:
        return moved, view, 0
    edits = []
    others = 0
    for edit in dict.fromkeys(finding.fix.edits):
        span = edit.span
        made = cells.edit(source.position(span.start), source.position(span.end), edit.content)
        if made is None or made.cell != cell.number:
            others += 1
            continue
        edits.append(Edit(Span(_offset(view, made.start), _offset(view, made.end)), made.content, edit.lines))
    return replace(moved, fix=replace(finding.fix, edits=tuple(edits), imports=())), view, others


def _offset(source: Source, position: Position) -> int:
    """The offset of a position, or the nearest one that there is: a magic is not as long as what stands for it."""
    row = min(position.row, len(source.line_starts))
    return source.line_starts[row - 1] + min(position.column - 1, len(source.line_text(row)))
