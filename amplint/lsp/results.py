"""What is known of an open document: its findings as diagnostics, also while it cannot be parsed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from lsprotocol import types as t

from amplint.finding import Finding, Fix, Span
from amplint.lsp.diagnostics import diagnostic
from amplint.lsp.documents import OpenCell, Opened
from amplint.lsp.messages import Checked, Unsaved
from amplint.lsp.moves import Change
from amplint.lsp.notebooks import InCell, module_of
from amplint.lsp.positions import Text
from amplint.lsp.texts import shown_parts

#: (URI, version) -> edits of that document.
Changes = dict[tuple[str, "int | None"], list["t.TextEdit | t.AnnotatedTextEdit | t.SnippetTextEdit"]]

_BROKEN = "not while the file cannot be parsed"


@dataclass(frozen=True)
class Result:
    """The findings of one version of a document, or of a notebook, or of a cell of one."""

    #: Which state of the document and of all that its findings depend on this is about.
    stamp: int
    version: int | None
    text: Text
    document: Unsaved
    findings: tuple[Finding, ...]
    broken: bool
    #: A first look only; the whole check is under way.
    provisional: bool
    #: Name of another file -> its URI and text.
    elsewhere: Callable[[str], tuple[str, Text | None]]
    #: Where this text cannot be parsed: the last result for one that could be.
    earlier: Result | None = None
    #: Of a notebook and of its cells: the result for each cell of Python, by its URI.
    cells: Mapping[str, Result] = field(default_factory=dict)
    #: The same: the cells as the client has them, by number.
    pages: Mapping[int, OpenCell] = field(default_factory=dict)
    #: Of a cell: where it is in its notebook.
    in_cell: InCell | None = None

    @property
    def good(self) -> Result | None:
        """The last result for a text that could be parsed."""
        return self.earlier if self.broken else self

    @cached_property
    def diagnostics(self) -> list[t.Diagnostic]:
        """The findings as diagnostics."""
        return [diagnostic(finding, self.text, self.version, self._elsewhere) for finding in self.findings]

    @property
    def everything(self) -> list[Finding]:
        """The findings of the document, or of all cells of the notebook."""
        views = self.cells.values() if self.cells else (self,)
        return [each for view in views for each in view.findings]

    def within(self, start: int, end: int) -> list[tuple[Finding, t.Diagnostic]]:
        """The findings that what is between two offsets touches."""
        first, last = start - self.text.bom, end - self.text.bom
        return [
            (finding, each)
            for finding, each in zip(self.findings, self.diagnostics, strict=True)
            if finding.span.start <= last
            and (finding.span.end >= first or self.text.offset(each.range.end) >= start)
        ]

    def edits(self, uri: str, fix: Fix) -> Changes:
        """What a fix does to this document, whose URI is given, or to the cells of the notebook."""
        if self.in_cell is None:
            edits = sorted(fix.edits, key=lambda edit: edit.sort_key)
            return {
                (uri, self.version): [t.TextEdit(self.text.range(each.span), each.content) for each in edits]
            }
        found: Changes = {}
        for page, edit in self.in_cell.edits(fix):
            found.setdefault((page.uri, page.version), []).append(edit)
        return found

    @cached_property
    def identity(self) -> str:
        """The same for equal diagnostics of equal texts; a client that has them need not get them again."""
        parts = [
            str(self.version),
            *(repr(shown_parts(finding)) for finding in self.findings),
        ]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def at(self, offset: int) -> list[Finding]:
        """The findings whose span holds an offset."""
        place = offset - self.text.bom
        return [f for f in self.findings if f.span.start <= place <= max(f.span.end, f.span.start)]

    def inward(self, offset: int) -> int:
        """The place in what is analysed of an offset in the text."""
        return self.in_cell.inward(offset) if self.in_cell is not None else max(0, offset - self.text.bom)

    def outward(self, span: Span) -> t.Range | None:
        """The client's range of a span in what is analysed; None where that is in another cell."""
        own = self.in_cell.outward(span) if self.in_cell is not None else span
        return self.text.range(own) if own is not None else None

    def _elsewhere(self, filename: str) -> tuple[str, Text | None]:
        uri, text = self.elsewhere(filename)
        return uri, self.text if filename == self.document.filename else text


def result_of(
    checked: Checked,
    before: Result | None,
    stamp: int,
    version: int | None,
    text: Text,
    document: Unsaved,
    elsewhere: Callable[[str], tuple[str, Text | None]],
) -> Result:
    """The result of a check; while the text cannot be parsed, earlier findings stay where the text is the same."""
    made = Result(
        stamp, version, text, document, checked.findings, checked.broken, checked.provisional, elsewhere
    )
    good = before.good if before is not None else None
    if not checked.broken or good is None:
        return made
    kept = Change(good.text.source, text.source).moved(good.findings, _BROKEN)
    found = tuple(sorted((*checked.findings, *kept), key=lambda finding: finding.sort_key))
    return replace(made, findings=found, earlier=good)


def notebook_result(
    checked: Checked,
    before: Result | None,
    stamp: int,
    opened: Opened,
    document: Unsaved,
    elsewhere: Callable[[str], tuple[str, Text | None]],
) -> Result:
    """The result of a check of a notebook.

    In a cell that cannot be parsed earlier findings stay as in a document; the other cells were checked without it.
    """
    pages = {number: page for number, page in enumerate(opened.cells or (), 1) if page is not None}
    views: dict[str, Result] = {}
    whole = Result(
        stamp,
        opened.version,
        opened.text,
        document,
        checked.findings,
        checked.broken,
        False,
        elsewhere,
        cells=views,
        pages=pages,
    )
    if checked.cells is None:
        return whole
    module = module_of(document.filename, checked.cells, pages)
    for cell in checked.cells.cells:
        page = pages.get(cell.number)
        if page is None:
            continue
        own = InCell(module, cell, page)
        found = _in_cell(own, checked.findings)
        seen = Checked(found, broken=cell.is_broken)
        earlier = before.cells.get(page.uri) if before is not None else None
        others = own.elsewhere(elsewhere)
        made = result_of(seen, earlier, stamp, page.version, page.text, document, others)
        views[page.uri] = replace(made, cells=views, pages=pages, in_cell=own)
    return whole


def _in_cell(own: InCell, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(moved for finding in findings if (moved := own.finding(finding)) is not None)
