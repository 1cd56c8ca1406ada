"""Findings as annotations of a GitHub workflow: commands that the runner reads off a step's output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from amplint.finding import Finding, Severity
from amplint.report.places import file_rows, note_place, place
from amplint.source import Source

if TYPE_CHECKING:
    from amplint.report.frame import Look
    from amplint.runner import RunResult

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}

_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = _DATA | str.maketrans({":": "%3A", ",": "%2C"})


def render(result: RunResult, look: Look) -> str:
    """A command for each finding that is left, and for each file that could not be checked.

    The place is in the message as well: GitHub shows few annotations of a step, and the messages of all in its log.
    """
    return "".join(f"{line}\n" for line in _lines(result, look))


def _lines(result: RunResult, look: Look) -> Iterator[str]:
    for finding in result.findings:
        title = f"{finding.code} {finding.name}"
        properties = {**_place(finding, result.sources), "title": title}
        yield _command(_COMMANDS[finding.severity], properties, _message(finding, result.sources, look))
    for problem in result.problems:
        place = {"file": problem.filename, "line": problem.position.row}
        yield _command("error", {**place, "title": "amplint"}, look.plain(str(problem)))
    for error in result.internal_errors:
        where = f"{error.code} in {error.filename}" if error.code else error.filename
        file = {"file": error.filename, "title": "amplint: internal error"}
        yield _command("error", file, look.plain(f"{where}: {error.message}"))


def _place(finding: Finding, sources: Mapping[str, Source]) -> dict[str, object]:
    """Where a finding is. The runner refuses columns over several rows."""
    first, last = file_rows(finding, sources)
    found: dict[str, object] = {"file": finding.filename, "line": first, "endLine": last}
    if place(finding, sources).cell is not None:  # columns of JSON say nothing
        return found
    if finding.start.row == finding.end.row:
        found |= {"col": finding.start.column, "endColumn": finding.end.column}
    return found


def _message(finding: Finding, sources: Mapping[str, Source], look: Look) -> str:
    lines = [f"{finding.filename}:{place(finding, sources)}: {finding.code} {finding.message}"]
    for number, note in enumerate(finding.trace, 1):
        lines.append(f"{number}. {note.filename}:{note_place(note, sources).line}: {note.message}")
    return "\n".join(map(look.plain, lines))


def _command(name: str, properties: Mapping[str, object], message: str) -> str:
    listed = ",".join(f"{key}={str(value).translate(_PROPERTY)}" for key, value in properties.items())
    return f"::{name} {listed}::{message.translate(_DATA)}"
