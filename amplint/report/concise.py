"""Findings in one line each, as editors and `grep` like them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplint.finding import Applicability, Finding, FixKind
from amplint.report.text import COLORS

if TYPE_CHECKING:
    from amplint.report.frame import Look
    from amplint.runner import FixMode, RunResult

#: What stands before the message of a finding with a fix.
_MARKS = {FixKind.PORT: "[*]", FixKind.REPAIR: "[+]"}


def render(result: RunResult, mode: FixMode, look: Look) -> str:
    """`path:row:column: CODE message`, a line for each finding that is left.

    `[*]` before the message: `amplint fix` rewrites it. `[+]`: `amplint fix --repair` does. Unsafe fixes are
    marked only where `mode` admits them.
    """
    return "".join(_line(finding, mode, look) + "\n" for finding in result.findings)


def _line(finding: Finding, mode: FixMode, look: Look) -> str:
    place = f"{finding.filename}:{finding.start.row}:{finding.start.column}:"
    parts = [
        look.style(look.plain(place), "bold"),
        look.style(finding.code, COLORS[finding.severity], "bold"),
        _mark(finding, mode),
        look.plain(finding.message),
    ]
    return " ".join(part for part in parts if part)


def _mark(finding: Finding, mode: FixMode) -> str:
    fix = finding.fix
    admitted = (Applicability.SAFE, Applicability.UNSAFE) if mode.unsafe else (Applicability.SAFE,)
    return _MARKS[fix.kind] if fix is not None and fix.applicability in admitted else ""
