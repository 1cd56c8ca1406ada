"""What is known of an open document: its findings as diagnostics, also while it cannot be parsed."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from lsprotocol import types as t

from amplint.finding import Finding, Note, Position, Span
from amplint.lsp.diagnostics import diagnostic
from amplint.lsp.messages import Checked, Unsaved
from amplint.lsp.positions import Text

_BROKEN = "not while the file cannot be parsed"


@dataclass(frozen=True)
class Result:
    """The findings of one version of a document."""

    #: Which state of the document and of all that its findings depend on this is about.
    stamp: int
    version: int | None
    text: Text
    document: Unsaved
    findings: tuple[Finding, ...]
    broken: bool
    #: Name of another file -> its URI and text.
    elsewhere: Callable[[str], tuple[str, Text | None]]
    #: Where this text cannot be parsed: the last result for one that could be.
    earlier: Result | None = None

    @property
    def good(self) -> Result | None:
        """The last result for a text that could be parsed."""
        return self.earlier if self.broken else self

    @cached_property
    def diagnostics(self) -> list[t.Diagnostic]:
        """The findings as diagnostics."""
        return [diagnostic(finding, self.text, self.version, self._elsewhere) for finding in self.findings]

    @cached_property
    def identity(self) -> str:
        """The same for equal diagnostics of equal texts; a client that has them need not get them again."""
        parts = [
            str(self.version),
            *(repr((f.fingerprint, f.span, f.message, f.trace)) for f in self.findings),
        ]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def at(self, offset: int) -> list[Finding]:
        """The findings whose span holds an offset."""
        place = offset - self.text.bom
        return [f for f in self.findings if f.span.start <= place <= max(f.span.end, f.span.start)]

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
    made = Result(stamp, version, text, document, checked.findings, checked.broken, elsewhere)
    good = before.good if before is not None else None
    if not checked.broken or good is None:
        return made
    kept = moved(good.findings, good.text, text, document.filename)
    found = tuple(sorted((*checked.findings, *kept), key=lambda finding: finding.sort_key))
    return replace(made, findings=found, earlier=good)


def moved(findings: tuple[Finding, ...], old: Text, new: Text, filename: str) -> list[Finding]:
    """Findings of an old text in a new one, without those in what changed, and without their fixes."""
    if old.text == new.text:
        return list(findings)
    head = _common(old.text, new.text)
    most = min(len(old.text), len(new.text)) - head
    tail = min(_common(old.text[::-1], new.text[::-1]), most)
    shift = len(new.text) - len(old.text)

    def place(offset: int) -> int | None:
        offset += old.bom
        if offset <= head:
            return offset - new.bom
        return offset + shift - new.bom if offset >= len(old.text) - tail else None

    def position(row_column: Position) -> Position | None:
        row = row_column.row
        if not 0 < row <= len(old.starts):
            return None
        offset = place(old.starts[row - 1] + row_column.column - 1 - (old.bom if row > 1 else 0))
        return None if offset is None else _position(new, offset)

    kept = []
    for finding in findings:
        start, end = place(finding.span.start), place(finding.span.end)
        if start is None or end is None or end - start != finding.span.end - finding.span.start:
            continue
        notes = []
        for note in finding.trace:
            where = position(note.start) if note.filename == filename else note.start
            if where is not None:
                notes.append(Note(note.filename, where, note.message))
        kept.append(
            replace(
                finding,
                span=Span(start, end),
                start=_position(new, start),
                end=_position(new, end),
                trace=tuple(notes),
                fix=None,
                no_fix_reason=_BROKEN,
            )
        )
    return kept


def _position(text: Text, offset: int) -> Position:
    """Row and column, both from 1, of an offset into the source."""
    row = bisect_right(text.starts, offset + text.bom)
    column = offset + text.bom - text.starts[row - 1] - (text.bom if row == 1 else 0)
    return Position(row, column + 1)


def _common(one: str, two: str) -> int:
    """How many characters two texts begin with in common."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
