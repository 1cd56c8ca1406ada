"""Findings as JSON. The shape is a promise: keys are not renamed, and come in this order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from amplint.finding import Edit, Finding, Fix, Note, Position
from amplint.source import Source

if TYPE_CHECKING:
    from amplint.runner import RunResult


#: Keys that a finding has besides those of all.
More = Callable[[Finding], dict[str, object]]


def render(result: RunResult, more: More | None = None) -> str:
    """A list of what is left to report, by file, line, column and code; ASCII only, a final newline.

    `more` gives the keys at the end of a finding.
    """
    return json.dumps(list(_findings(result, more)), indent=2) + "\n"


def render_lines(result: RunResult, more: More | None = None) -> str:
    """The elements of the list of `render`, in the same order, a line each; empty when nothing is left."""
    return "".join(json.dumps(finding) + "\n" for finding in _findings(result, more))


def _findings(result: RunResult, more: More | None) -> Iterator[dict[str, object]]:
    for finding in result.findings:
        yield {**_finding(finding, result.sources), **(more(finding) if more is not None else {})}


def _finding(finding: Finding, sources: Mapping[str, Source]) -> dict[str, object]:
    fix = finding.fix
    return {
        "code": finding.code,
        "name": finding.name,
        "message": finding.message,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "fingerprint": finding.fingerprint,
        "filename": finding.filename,
        "cell": None,
        "location": _location(finding.start),
        "end_location": _location(finding.end),
        "url": finding.url,
        "trace": [_note(note) for note in finding.trace],
        "fix": None if fix is None else _fix(fix, sources[finding.filename]),
        "no_fix_reason": finding.no_fix_reason,
    }


def _note(note: Note) -> dict[str, object]:
    return {
        "filename": note.filename,
        "cell": None,
        "location": _location(note.start),
        "message": note.message,
    }


def _fix(fix: Fix, source: Source) -> dict[str, object]:
    return {
        "kind": fix.kind.value,
        "applicability": fix.applicability.value,
        "message": fix.message,
        "edits": [_edit(edit, source) for edit in fix.edits],
    }


def _edit(edit: Edit, source: Source) -> dict[str, object]:
    return {
        "filename": source.filename,
        "cell": None,
        "location": _location(source.position(edit.span.start)),
        "end_location": _location(source.position(edit.span.end)),
        "content": edit.content,
    }


def _location(position: Position) -> dict[str, int]:
    return {"row": position.row, "column": position.column}
