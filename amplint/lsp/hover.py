"""What a hover shows: the page of the rule of a finding, with how this finding came to be."""

from __future__ import annotations

from collections.abc import Sequence

from amplint.finding import Finding


def finding_hover(findings: Sequence[Finding]) -> str:
    """Markdown about findings at one place."""
    return "\n\n---\n\n".join(_about(finding) for finding in findings)


def _about(finding: Finding) -> str:
    parts = [f"**{finding.code} {finding.name}** ({finding.severity.value}): {finding.message}"]
    if finding.trace:
        steps = (
            f"{number}. {_place(note.filename, finding.filename)}line {note.start.row}: {note.message}"
            for number, note in enumerate(finding.trace, 1)
        )
        parts.append("\n".join(steps))
    if finding.fix is not None:
        parts.append(
            f"Fix ({finding.fix.applicability.value} {finding.fix.kind.value}): {finding.fix.message}"
        )
    elif finding.no_fix_reason:
        parts.append(f"No fix: {finding.no_fix_reason}")
    parts.append(rule_page(finding.code))
    if finding.url:
        parts.append(f"[{finding.code} on the web]({finding.url})")
    return "\n\n".join(part for part in parts if part)


def rule_page(code: str) -> str:
    """The page of a rule; "" for one that has none."""
    from amplint.registry import find_rule, page

    rule = find_rule(code)
    if rule is None:
        return ""
    try:
        return page(rule)
    except FileNotFoundError:
        return f"{rule.summary}."


def _place(filename: str, own: str) -> str:
    return "" if filename == own else f"{filename}, "
