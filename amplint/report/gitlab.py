"""Findings as a Code Quality report of GitLab (https://docs.gitlab.com/ci/testing/code_quality/)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from amplint.finding import Finding, Severity
from amplint.report.frame import Look
from amplint.report.places import beside_cell, file_rows
from amplint.source import Source

if TYPE_CHECKING:
    from amplint.runner import RunResult

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "info"}


def render(result: RunResult) -> str:
    """A list of what is left to report, by file, line, column and code; ASCII only, a final newline."""
    return json.dumps([_finding(finding, result.sources) for finding in result.findings], indent=2) + "\n"


def _finding(finding: Finding, sources: Mapping[str, Source]) -> dict[str, object]:
    look = Look()
    first, last = file_rows(finding, sources)
    return {
        "description": look.plain(f"{finding.code}: {finding.message}{beside_cell(finding, sources)}"),
        "check_name": finding.name,
        "fingerprint": finding.fingerprint,
        "severity": _SEVERITIES[finding.severity],
        "location": {
            "path": look.plain(finding.filename),
            "lines": {"begin": first, "end": last},
        },
    }
