"""Findings as JUnit's XML, which every CI server reads: each file with findings is a suite, each finding a failure.

The output is valid under the schemas of Ant's and of Jenkins' JUnit reports. What they demand and a linter does not
have is constant, so that equal runs give equal reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from amplint.finding import Finding, InternalError
from amplint.report.frame import Look
from amplint.report.places import note_place, place
from amplint.source import Source, SourceError

if TYPE_CHECKING:
    from amplint.runner import RunResult

_TIMESTAMP = "1970-01-01T00:00:00"
#: Spells as escapes what XML has no characters for.
_LOOK = Look()


def render(result: RunResult, version: str) -> str:
    """What is left to report, by file; ASCII only, a final newline. Without findings there is one test that passed."""
    suites: dict[str, list[ElementTree.Element]] = {}
    for finding in result.findings:
        suites.setdefault(finding.filename, []).append(_failure(finding, result.sources))
    for problem in result.problems:
        suites.setdefault(problem.filename, []).append(_problem(problem))
    for error in result.internal_errors:
        suites.setdefault(error.filename, []).append(_internal_error(error))
    if not suites:
        suites["amplint"] = [_case("amplint", "no findings")]
    root = ElementTree.Element("testsuites")
    for number, (name, cases) in enumerate(sorted(suites.items())):
        root.append(_suite(name, cases, number, version))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="us-ascii", xml_declaration=False).decode("ascii")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _suite(name: str, cases: list[ElementTree.Element], number: int, version: str) -> ElementTree.Element:
    suite = ElementTree.Element(
        "testsuite",
        {
            "name": _LOOK.plain(name),
            "package": "amplint",
            "id": str(number),
            "timestamp": _TIMESTAMP,
            "hostname": "localhost",
            "tests": str(len(cases)),
            "failures": str(sum(case.find("failure") is not None for case in cases)),
            "errors": str(sum(case.find("error") is not None for case in cases)),
            "time": "0",
        },
    )
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", {"name": "amplint", "value": version})
    suite.extend(cases)
    ElementTree.SubElement(suite, "system-out")
    ElementTree.SubElement(suite, "system-err")
    return suite


def _case(filename: str, name: str) -> ElementTree.Element:
    path = PurePosixPath(filename)
    module = ".".join(part for part in (*path.parent.parts, path.stem) if part not in ("/", ".."))
    return ElementTree.Element(
        "testcase", {"name": _LOOK.plain(name), "classname": _LOOK.plain(module or filename), "time": "0"}
    )


def _failure(finding: Finding, sources: Mapping[str, Source]) -> ElementTree.Element:
    """A failed test. Its name has the fingerprint, not the row, so that it is the same when lines move."""
    case = _case(finding.filename, f"{finding.code} {finding.name} {finding.fingerprint[:8]}".rstrip())
    where = f"{finding.filename}:{place(finding, sources)}"
    lines = [f"{where}: {finding.severity.value}, {finding.confidence.value} confidence: {finding.message}"]
    for number, note in enumerate(finding.trace, 1):
        lines.append(f"  {number}. {note.filename}:{note_place(note, sources).line}: {note.message}")
    if finding.fix is not None:
        lines.append(
            f"  fix ({finding.fix.kind.value}, {finding.fix.applicability.value}): {finding.fix.message}"
        )
    elif finding.no_fix_reason:
        lines.append(f"  no fix: {finding.no_fix_reason}")
    if finding.url:
        lines.append(f"  {finding.url}")
    message = f"{where}: {finding.message}"
    _outcome(case, "failure", finding.code, message, "\n".join(map(_LOOK.plain, lines)))
    return case


def _problem(problem: SourceError) -> ElementTree.Element:
    case = _case(problem.filename, "could not be read or written")
    _outcome(case, "error", "unreadable", problem.message, _LOOK.plain(str(problem)))
    return case


def _internal_error(error: InternalError) -> ElementTree.Element:
    case = _case(error.filename, f"internal error {error.code or ''}".rstrip())
    _outcome(
        case,
        "error",
        "internal error",
        error.message,
        "\n".join(map(_LOOK.plain, error.traceback.splitlines())),
    )
    return case


def _outcome(case: ElementTree.Element, tag: str, kind: str, message: str, text: str) -> None:
    ElementTree.SubElement(case, tag, {"type": kind, "message": _LOOK.plain(message)}).text = text
