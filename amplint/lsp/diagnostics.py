"""Findings as the diagnostics of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lsprotocol import types as t

from amplint.finding import Finding, Severity, Span
from amplint.lsp.positions import Text

SOURCE = "amplint"
_SEVERITIES = {
    Severity.ERROR: t.DiagnosticSeverity.Error,
    Severity.WARNING: t.DiagnosticSeverity.Warning,
    Severity.INFO: t.DiagnosticSeverity.Information,
}
#: Rules about API that torch has deprecated: editors strike it through.
_DEPRECATED = frozenset({"AMP101", "AMP102", "AMP103", "AMP107"})
#: Rules about comments that do nothing any more: editors grey them out.
_UNNECESSARY = frozenset({"AMP901", "AMP903"})

#: Name of a file in findings -> its URI and its text, for positions in it.
Elsewhere = Callable[[str], tuple[str, Text | None]]


def diagnostic(finding: Finding, text: Text, version: int | None, elsewhere: Elsewhere) -> t.Diagnostic:
    """One finding about a text; `version` is that of the document that it is about."""
    return t.Diagnostic(
        range=_visible(text, finding.span),
        message=finding.message,
        severity=_SEVERITIES[finding.severity],
        code=finding.code,
        code_description=t.CodeDescription(href=finding.url) if finding.url else None,
        source=SOURCE,
        tags=_tags(finding.code),
        related_information=list(_related(finding, elsewhere)) or None,
        data=_data(finding, version),
    )


def _data(finding: Finding, version: int | None) -> dict[str, Any]:
    """What clients may want to know of a finding. Edits are made when they are asked for: they are many."""
    fix = finding.fix
    return {
        "version": version,
        "name": finding.name,
        "fingerprint": finding.fingerprint,
        "fix": {"kind": fix.kind.value, "applicability": fix.applicability.value, "message": fix.message}
        if fix is not None
        else None,
        "noFixReason": finding.no_fix_reason,
    }


def _visible(text: Text, span: Span) -> t.Range:
    """The range of a span; of one that is empty, the character at it, for editors show nothing else."""
    if span.end > span.start:
        return text.range(span)
    place = text.range(span)
    line = text.line(place.start.line)
    column = span.start + text.bom - text.starts[place.start.line]
    if column < len(line):
        return text.range(Span(span.start, span.start + 1))
    if column > 0:
        return text.range(Span(span.start - 1, span.start))
    return place


def _tags(code: str) -> list[t.DiagnosticTag] | None:
    if code in _DEPRECATED:
        return [t.DiagnosticTag.Deprecated]
    if code in _UNNECESSARY:
        return [t.DiagnosticTag.Unnecessary]
    return None


def _related(finding: Finding, elsewhere: Elsewhere) -> Iterable[t.DiagnosticRelatedInformation]:
    """A place for each step of the trace."""
    for note in finding.trace:
        uri, text = elsewhere(note.filename)
        if text is None:
            start = t.Position(note.start.row - 1, note.start.column - 1)
            end = start
        else:
            start = text.row_column(note.start)
            end = text.row_end(start.line)
        yield t.DiagnosticRelatedInformation(t.Location(uri, t.Range(start, end)), note.message)
