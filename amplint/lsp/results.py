"""What is known of an open document: its findings as diagnostics, also while it cannot be parsed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from lsprotocol import types as t

from amplint.finding import Finding
from amplint.lsp.diagnostics import diagnostic
from amplint.lsp.messages import Checked, Unsaved
from amplint.lsp.moves import Change
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
    #: A first look only; the whole check is under way.
    provisional: bool
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
    made = Result(
        stamp, version, text, document, checked.findings, checked.broken, checked.provisional, elsewhere
    )
    good = before.good if before is not None else None
    if not checked.broken or good is None:
        return made
    kept = Change(good.text.source, text.source).moved(good.findings, _BROKEN)
    found = tuple(sorted((*checked.findings, *kept), key=lambda finding: finding.sort_key))
    return replace(made, findings=found, earlier=good)
