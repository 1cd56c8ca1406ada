"""Findings as SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html), for code scanning.

SARIF's rows and columns are amplint's, but columns count UTF-16 code units; ends are exclusive in both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote

from amplint.finding import Applicability, Edit, Finding, Fix, InternalError, Position, Severity
from amplint.report.places import Sources, beside_cell, place
from amplint.source import Source, SourceError

if TYPE_CHECKING:
    from amplint.rule import Rule
    from amplint.runner import RunResult

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

_INFORMATION = "https://amplint.readthedocs.io"
#: What relative paths are relative to; GitHub takes it for the root of the repository.
_ROOT = "%SRCROOT%"
#: Under which name the fingerprint of a finding stands; another way to compute it gets another number.
_FINGERPRINT = "amplintFinding/v1"

#: Why a finding that the baseline has is not to be shown.
_KNOWN = "In the baseline of the project."

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
#: GitHub's names for a severity.
_PROBLEMS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "recommendation"}

#: `[text](target)` in a message would be a link.
_LINK = re.compile(r"\[(?=[^\[\]]*\]\()")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Driver:
    """What a report says of amplint itself."""

    version: str
    #: The rules of the run.
    rules: Sequence[Rule]
    #: The page of a rule; FileNotFoundError for a rule without one.
    page: Callable[[Rule], str]


def render(result: RunResult, driver: Driver, cwd: Path) -> str:
    """One run with what is left to report; ASCII only, a final newline.

    Names of files are relative to `cwd`, from where files that only a trace names are read for their columns.
    """
    return json.dumps(_Log(result, driver, cwd).log(), indent=2) + "\n"


class _Log:
    """One log while it is made."""

    def __init__(self, result: RunResult, driver: Driver, cwd: Path) -> None:
        self._result = result
        self._driver = driver
        self._places = _Places(result.sources, cwd)
        self._rules = {rule.code: index for index, rule in enumerate(driver.rules)}

    def log(self) -> dict[str, object]:
        """The whole log."""
        results = self._results()
        invocation = self._invocation()
        run = {
            "tool": {"driver": self._tool()},
            "invocations": [invocation],
            "originalUriBaseIds": {
                _ROOT: {"description": {"text": "The folder that amplint was run in."}},
            },
            "artifacts": self._places.artifacts(),
            "columnKind": "utf16CodeUnits",
            "newlineSequences": ["\r\n", "\n", "\r"],
            "results": results,
        }
        return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}

    # -- the tool ----------------------------------------------------------------------------------------------

    def _tool(self) -> dict[str, object]:
        return {
            "name": "amplint",
            "version": self._driver.version,
            "semanticVersion": self._driver.version,
            "informationUri": _INFORMATION,
            "rules": [self._rule(rule) for rule in self._driver.rules],
        }

    def _rule(self, rule: Rule) -> dict[str, object]:
        try:
            page = self._driver.page(rule)
        except FileNotFoundError:
            page = f"# {rule.name} ({rule.code})\n\n{rule.summary}.\n"
        paragraph = _first_paragraph(page) or f"{rule.summary}."
        configuration: dict[str, object] = {"level": _LEVELS[rule.severity]}
        if rule.off_by_default or rule.preview:
            configuration["enabled"] = False
        return {
            "id": rule.code,
            "name": rule.name,
            "shortDescription": {"text": _text(f"{rule.summary}.")},
            "fullDescription": {"text": _text(paragraph)},
            "help": {"text": _text(f"{paragraph}\n\nSee {rule.url}"), "markdown": page},
            "helpUri": rule.url,
            "defaultConfiguration": configuration,
            "properties": {
                "tags": _tags(rule),
                "precision": rule.confidence.value,
                "problem.severity": _PROBLEMS[rule.severity],
                "confidence": rule.confidence.value,
                "fixable": rule.fixable,
            },
        }

    def _invocation(self) -> dict[str, object]:
        result = self._result
        notifications = [self._internal_error(error) for error in result.internal_errors]
        notifications += [self._problem(problem) for problem in result.problems]
        return {"executionSuccessful": not notifications, "toolExecutionNotifications": notifications}

    def _internal_error(self, error: InternalError) -> dict[str, object]:
        rule = f"{error.code}: " if error.code else ""
        notification: dict[str, object] = {
            "level": "error",
            "message": {"text": _text(f"internal error in amplint: {rule}{error.message}")},
            "locations": [{"physicalLocation": {"artifactLocation": self._places.artifact(error.filename)}}],
        }
        if error.code in self._rules:
            notification["associatedRule"] = {"id": error.code, "index": self._rules[error.code]}
        return notification

    def _problem(self, problem: SourceError) -> dict[str, object]:
        location = self._places.location(problem.filename, problem.position)
        return {"level": "error", "message": {"text": _text(problem.message)}, "locations": [location]}

    # -- findings ----------------------------------------------------------------------------------------------

    def _results(self) -> list[dict[str, object]]:
        """What is left to report; beside a baseline also what that has, marked as known and not to be shown."""
        result = self._result
        if result.fixed_beyond_baseline is None:
            return [self._finding(finding) for finding in result.findings]
        new: dict[str, object] = {"baselineState": "new", "suppressions": []}
        known: dict[str, object] = {
            "baselineState": "unchanged",
            "suppressions": [{"kind": "external", "status": "accepted", "justification": _KNOWN}],
        }
        marked = [(finding, new) for finding in result.findings]
        marked += [(finding, known) for finding in result.in_baseline]
        marked.sort(key=lambda pair: pair[0].sort_key)
        return [self._finding(finding) | marks for finding, marks in marked]

    def _finding(self, finding: Finding) -> dict[str, object]:
        result: dict[str, object] = {"ruleId": finding.code}
        if finding.code in self._rules:
            result["ruleIndex"] = self._rules[finding.code]
        result["level"] = _LEVELS[finding.severity]
        where = place(finding, self._result.sources)
        beside = beside_cell(finding, self._result.sources)
        result["message"] = {"text": _text(f"{finding.message}{beside}")}
        result["locations"] = [self._places.location(finding.filename, finding.start, finding.end)]
        if finding.fingerprint:
            result["partialFingerprints"] = {_FINGERPRINT: finding.fingerprint}
        if finding.trace:
            steps = [
                self._places.location(note.filename, note.start) | {"message": {"text": _text(note.message)}}
                for note in finding.trace
            ]
            flow = {"locations": [{"location": step} for step in steps]}
            result["codeFlows"] = [{"threadFlows": [flow]}]
            result["relatedLocations"] = [{"id": number} | step for number, step in enumerate(steps, 1)]
        fix = finding.fix
        if fix is not None and where.cell is None and fix.applicability is not Applicability.DISPLAY:
            result["fixes"] = [self._fix(fix, finding.filename)]
        properties: dict[str, object] = {"confidence": finding.confidence.value}
        if where.cell is not None:
            properties |= {"cell": where.cell, "line": where.row, "column": where.column}
        if finding.no_fix_reason:
            properties["noFixReason"] = _text(finding.no_fix_reason)
        result["properties"] = properties
        return result

    def _fix(self, fix: Fix, filename: str) -> dict[str, object]:
        edits = sorted(set(fix.edits), key=lambda edit: edit.sort_key)
        unsafe = (
            " (look at the result: it takes a judgement)" if fix.applicability is Applicability.UNSAFE else ""
        )
        return {
            "description": {"text": _text(f"{fix.message}{unsafe}")},
            "artifactChanges": [
                {
                    "artifactLocation": self._places.artifact(filename),
                    "replacements": [self._replacement(edit, filename) for edit in edits],
                }
            ],
            "properties": {"kind": fix.kind.value, "applicability": fix.applicability.value},
        }

    def _replacement(self, edit: Edit, filename: str) -> dict[str, object]:
        source = self._result.sources[filename]
        start, end = source.position(edit.span.start), source.position(edit.span.end)
        return {
            "deletedRegion": self._places.region(filename, start, end),
            "insertedContent": {"text": _without_surrogates(edit.content)},
        }


class _Places:
    """Names and positions as SARIF writes them, and the list of files that are named."""

    def __init__(self, sources: Mapping[str, Source], cwd: Path) -> None:
        self._sources = Sources(sources, cwd)
        self._indices: dict[str, int] = {}

    def artifacts(self) -> list[dict[str, object]]:
        """The files that were named so far."""
        return [{"location": _uri(name), "sourceLanguage": "python"} for name in self._indices]

    def artifact(self, filename: str) -> dict[str, object]:
        """A file."""
        index = self._indices.setdefault(filename, len(self._indices))
        return {**_uri(filename), "index": index}

    def location(self, filename: str, start: Position, end: Position | None = None) -> dict[str, object]:
        """A place in a file."""
        return {
            "physicalLocation": {
                "artifactLocation": self.artifact(filename),
                "region": self.region(filename, start, end),
            }
        }

    def region(self, filename: str, start: Position, end: Position | None = None) -> dict[str, int]:
        """Rows and columns; the whole row where the text to count columns in is not at hand, and in notebooks."""
        source = self._sources.get(filename)
        if source is not None and source.cells is not None:
            end = start if end is None else end
            first_row, last_row = source.file_rows(
                start.row, end.row - (end.column == 1 and end.row > start.row)
            )
            return {"startLine": first_row, "endLine": last_row}
        first = self._column(filename, start)
        region = {"startLine": start.row}
        if first is not None:
            region["startColumn"] = first
        if end is not None:
            region["endLine"] = end.row
            last = self._column(filename, end)
            if first is not None and last is not None:
                region["endColumn"] = last
        return region

    def _column(self, filename: str, position: Position) -> int | None:
        """The column of a position in UTF-16 code units, from 1."""
        source = self._sources.get(filename)
        if source is None or not 1 <= position.row <= len(source.line_starts):
            return None
        before = source.line_text(position.row)[: position.column - 1]
        beyond = position.column - 1 - len(before)  # between the characters of a CRLF
        return len(before) + sum(character > "\uffff" for character in before) + beyond + 1


def _uri(filename: str) -> dict[str, str]:
    """A file as SARIF names it: percent-encoded, and relative to the root unless it is absolute."""
    if PurePath(filename).is_absolute():
        return {"uri": PurePath(filename).as_uri()}
    return {"uri": quote(filename.encode("utf-8", "surrogateescape")), "uriBaseId": _ROOT}


def _tags(rule: Rule) -> list[str]:
    """What one can filter by: the part of the rules, and what its fixes need."""
    family = rule.module.split(".")[-2:-1]
    tags = ["pytorch", "mixed-precision", *(name.replace("_", "-") for name in family)]
    return [*tags, "preview"] if rule.preview else tags


def _first_paragraph(page: str) -> str:
    """What a page says under its title, on one line."""
    paragraphs = (block.strip() for block in page.split("\n\n"))
    return next((" ".join(block.split()) for block in paragraphs if block and not block.startswith("#")), "")


def _text(text: str) -> str:
    """A message in plain text, in which nothing is a link."""
    return _without_surrogates(_LINK.sub(r"\\[", text))


def _without_surrogates(text: str) -> str:
    """Half characters, which many JSON parsers refuse, as escapes."""
    return _SURROGATE.sub(lambda half: half[0].encode("unicode_escape").decode("ascii"), text)
