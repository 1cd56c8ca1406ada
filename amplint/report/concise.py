"""Findings in one line each, as editors and `grep` like them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from amplint.finding import Applicability, Finding, FixKind
from amplint.report.places import place
from amplint.report.text import COLORS
from amplint.source import Source

if TYPE_CHECKING:
    from amplint.report.frame import Look
    from amplint.runner import FixMode, RunResult

#: What stands before the message of a finding with a fix.
_MARKS = {FixKind.PORT: "[*]", FixKind.REPAIR: "[+]"}


def render(result: RunResult, mode: FixMode, look: Look) -> str:
    """`path:row:column: CODE message`, a line for each finding that is left; `path:cell 3:row:column` in notebooks.

    `[*]` before the message: `amplint fix` rewrites it. `[+]`: `amplint fix --repair` does. Unsafe fixes are
    marked only where `mode` admits them.
    """
    return "".join(_line(finding, result.sources, mode, look) + "\n" for finding in result.findings)


def _line(finding: Finding, sources: Mapping[str, Source], mode: FixMode, look: Look) -> str:
    where = f"{finding.filename}:{place(finding, sources)}:"
    parts = [
        look.style(look.plain(where), "bold"),
        look.style(finding.code, COLORS[finding.severity], "bold"),
        _mark(finding, mode),
        look.plain(finding.message),
    ]
    return " ".join(part for part in parts if part)


def _mark(finding: Finding, mode: FixMode) -> str:
    fix = finding.fix
    admitted = (Applicability.SAFE, Applicability.UNSAFE) if mode.unsafe else (Applicability.SAFE,)
    return _MARKS[fix.kind] if fix is not None and fix.applicability in admitted else ""
