"""Findings as JSON. The shape is a promise: keys are not renamed, and come in this order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from amplint.finding import Edit, Finding, Fix, Note, Position
from amplint.source import Place, Source

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
    source = sources.get(finding.filename)
    return {
        "code": finding.code,
        "name": finding.name,
        "message": finding.message,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "fingerprint": finding.fingerprint,
        "filename": finding.filename,
        **_located(source, finding.start, finding.end),
        "url": finding.url,
        "trace": [_note(note, sources) for note in finding.trace],
        "fix": None if fix is None else _fix(fix, sources[finding.filename]),
        "no_fix_reason": finding.no_fix_reason,
    }


def _note(note: Note, sources: Mapping[str, Source]) -> dict[str, object]:
    return {
        "filename": note.filename,
        **_located(sources.get(note.filename), note.start),
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
    start, end = source.position(edit.span.start), source.position(edit.span.end)
    made = None if source.cells is None else source.cells.edit(start, end, edit.content)
    return {
        "filename": source.filename,
        "cell": None if made is None else made.cell,
        "location": _location(start if made is None else made.start),
        "end_location": _location(end if made is None else made.end),
        "content": edit.content if made is None else made.content,
    }


def _located(source: Source | None, start: Position, end: Position | None = None) -> dict[str, object]:
    """The cell, for notebooks, and the places in it or in the file."""
    places = [
        each if source is None else source.place(each, start) for each in (start, end) if each is not None
    ]
    cell = None if isinstance(places[0], Position) else places[0].cell
    keys = ("location", "end_location")
    located = {key: _location(place) for key, place in zip(keys, places, strict=False)}
    return {"cell": cell, **located}


def _location(position: Position | Place) -> dict[str, int]:
    return {"row": position.row, "column": position.column}
