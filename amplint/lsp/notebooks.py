"""Notebooks: all cells are checked as one module, and what is found is shown in each cell as in a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from lsprotocol import types as t

from amplint.finding import Finding, Fix, Note, Position, Span
from amplint.lsp.documents import OpenCell
from amplint.lsp.positions import Text
from amplint.notebook.cells import Cell, Cells
from amplint.source import Source


@dataclass(frozen=True)
class Module:
    """The module that the cells of an open notebook make."""

    source: Source
    cells: Cells
    #: The cells as the client has them, by number.
    pages: Mapping[int, OpenCell]

    def page(self, row: int) -> tuple[Cell, OpenCell] | None:
        """The cell that a row of the module is in."""
        cell = self.cells.at(row)
        page = self.pages.get(cell.number) if cell is not None else None
        return (cell, page) if cell is not None and page is not None else None

    @cached_property
    def names(self) -> dict[str, tuple[str, Text]]:
        """What cells are called in traces -> their URI and text."""
        return {self.name(number): (page.uri, page.text) for number, page in self.pages.items()}

    def name(self, number: int) -> str:
        """What a cell is called in traces of findings in other cells."""
        return f"{self.source.filename}, cell {number}"


@dataclass(frozen=True)
class InCell:
    """One cell of a module: from places in it to places in the module, and back."""

    module: Module
    cell: Cell
    page: OpenCell

    def inward(self, offset: int) -> int:
        """The offset in the module of one in the cell; in what stands for a magic it may be a near one."""
        place = self.page.text
        row = place.row_of(offset)
        column = offset - place.starts[row]
        source = self.module.source
        row = min(self.cell.offset + row + 1, self.cell.offset + self.cell.rows)
        return source.line_starts[row - 1] + min(column, len(source.line_text(row)))

    def outward(self, span: Span) -> Span | None:
        """The span in the cell of one in the module; None where it begins in another cell."""
        start, end = (self.module.source.position(offset) for offset in (span.start, span.end))
        if self.module.cells.at(start.row) != self.cell:
            return None
        first = self._offset(start)
        return Span(first, max(first, self._offset(end)))

    def finding(self, finding: Finding) -> Finding | None:
        """A finding of the module with places in this cell; None where it is in another one.

        The places of its fix stay those of the module.
        """
        span = self.outward(finding.span)
        if span is None:
            return None
        start, end = (self._position(offset) for offset in (span.start, span.end))
        trace = tuple(self._note(note, finding) for note in finding.trace)
        return replace(finding, span=span, start=start, end=end, trace=trace)

    def edits(self, fix: Fix) -> Iterator[tuple[OpenCell, t.TextEdit]]:
        """What a fix does to the cells."""
        source = self.module.source
        for edit in sorted(dict.fromkeys(fix.edits), key=lambda edit: edit.sort_key):
            start, end = source.position(edit.span.start), source.position(edit.span.end)
            made = self.module.cells.edit(start, end, edit.content)
            page = self.module.pages.get(made.cell) if made is not None else None
            if made is not None and page is not None:
                text = page.text
                place = t.Range(text.row_column(made.start), text.row_column(made.end))
                yield page, t.TextEdit(place, made.content)

    def elsewhere(
        self, others: Callable[[str], tuple[str, Text | None]]
    ) -> Callable[[str], tuple[str, Text | None]]:
        """URIs and texts of what traces name: this cell, other cells, other files."""

        def find(name: str) -> tuple[str, Text | None]:
            if name == self.module.source.filename:
                return self.page.uri, self.page.text
            return self.module.names.get(name) or others(name)

        return find

    def _note(self, note: Note, finding: Finding) -> Note:
        """A step of a trace, with its place in the cell that it is in."""
        if note.filename != finding.filename:
            return note
        found = self.module.page(note.start.row)
        if found is None:
            return note
        cell, _ = found
        name = note.filename if cell == self.cell else self.module.name(cell.number)
        return Note(name, Position(max(1, note.start.row - cell.offset), note.start.column), note.message)

    def _offset(self, place: Position) -> int:
        """The offset in the cell of a place in the module, or the nearest one that there is."""
        text = self.page.text
        row = place.row - self.cell.offset - 1
        if row < 0:
            return 0
        if row >= min(self.cell.rows, len(text.starts)):
            return len(text.text)
        return text.starts[row] + min(place.column - 1, len(text.line(row)))

    def _position(self, offset: int) -> Position:
        text = self.page.text
        row = text.row_of(offset)
        return Position(row + 1, offset - text.starts[row] + 1)


def module_of(filename: str, cells: Cells, pages: Mapping[int, OpenCell]) -> Module:
    """The module of a notebook whose cells were open like this when it was made."""
    return Module(Source(filename, None, b"", cells.text, cells=cells), cells, pages)
