"""Findings for people: where, what, the code, how it comes about, and what the fix would change."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from amplint.finding import Applicability, Confidence, Finding, FixKind, InternalError, Severity
from amplint.report.frame import Look, frame
from amplint.report.places import alone, note_place, place
from amplint.source import Place, Source, SourceError

if TYPE_CHECKING:
    from amplint.runner import FileChange, FixMode, RunResult

#: What each severity looks like.
COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}

_SHIM = re.compile(r"\bamplint(?:\.|[ \t]+import[ \t]+)runtime\b")

#: Rules with a finding for each import and each use of a symbol: in a file, equal ones are shown once.
_GROUPED = frozenset(f"AMP10{digit}" for digit in range(1, 8))


def render(result: RunResult, look: Look) -> str:
    """Everything that is left to report, an empty line after each finding."""
    blocks = (_block(group, result.sources, look) for group in groups(result.findings))
    return "".join("\n".join(block) + "\n\n" for block in blocks)


def summary(result: RunResult, mode: FixMode) -> str:
    """What was fixed, what is left, and which option would fix how much of that."""
    lines = []
    if result.changes:
        lines.append(fixed(result.changes, "Fixed" if mode.write else "Would fix"))
        if any(_begins_to_need_shim(change) for change in result.changes):
            lines.append(
                "The new code imports amplint.runtime, which needs torch 2.1: install amplint where it runs,"
                " or keep a copy (`amplint shim --vendor`)."
            )
    if result.in_baseline:
        verb = "is" if len(result.in_baseline) == 1 else "are"
        lines.append(f"{_count(len(result.in_baseline), 'finding')} {verb} in the baseline.")
    if result.findings:
        lines.append(_left(result))
        lines += _ways_to_fix(result.findings, mode)
    elif result.files:
        others = " other" if result.in_baseline else ""
        left = " left" if result.changes else ""
        lines.append(f"No{others} findings{left} in {_count(result.files, 'file')}.")
    return "".join(line + "\n" for line in lines) + notes(result)


def notes(result: RunResult) -> str:
    """What was written besides fixes, and what could be."""
    return "".join(line + "\n" for line in result.notes)


def _begins_to_need_shim(change: FileChange) -> bool:
    return bool(_SHIM.search(change.new_text)) and not _SHIM.search(change.source.text)


def fixed(changes: Sequence[FileChange], verb: str) -> str:
    """How many findings the fixes take care of, by rule."""
    findings = [finding for change in changes for finding in change.fixed]
    by_rule = ", ".join(f"{number} {code} ({name})" for code, name, number in _by_rule(findings))
    total = f"{verb} {_count(len(findings), 'finding')} in {_count(len(changes), 'file')}"
    return f"{total}: {by_rule}." if by_rule else f"{total}."


def statistics(result: RunResult) -> str:
    """Findings by rule, commonest first, then the counters of the analyses."""
    rows = [(str(number), f"{code} {name}") for code, name, number in _by_rule(result.findings)]
    rows += [(str(value), key) for key, value in sorted(result.statistics.items())]
    width = max((len(number) for number, _ in rows), default=0)
    return "".join(f"{number:>{width}}  {what}\n" for number, what in rows)


def problem(error: SourceError, look: Look) -> str:
    """One line on a file that cannot be read or written."""
    place = error.filename
    if (error.position.row, error.position.column) != (1, 1):
        place += f":{error.position.row}:{error.position.column}"
    return f"{look.style('error:', 'red', 'bold')} {look.plain(f'{place}: {error.message}')}"


def internal_errors(errors: Sequence[InternalError], look: Look) -> Iterator[str]:
    """A line on each failure of amplint, and the first traceback: the others tend to be the same."""
    for error in errors:
        where = f"{error.code} in {error.filename}" if error.code else error.filename
        yield f"{look.style('internal error:', 'red', 'bold')} {look.plain(f'{where}: {error.message}')}"
    first = next((error.traceback for error in errors if error.traceback), None)
    if first:
        yield "\n".join(map(look.plain, first.rstrip("\n").split("\n")))
    if errors:
        yield "this is a bug in amplint, please report it with the lines above; other results are complete"


def groups(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings that are shown together, in the order of the first of each."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for index, finding in enumerate(findings):
        key: tuple[object, ...] = (index,)
        if finding.code in _GROUPED:
            fix = finding.fix and (finding.fix.kind, finding.fix.applicability)
            key = (
                finding.filename,
                finding.code,
                finding.severity,
                finding.confidence,
                fix,
                finding.no_fix_reason,
            )
        groups.setdefault(key, []).append(finding)
    return list(groups.values())


def _block(group: Sequence[Finding], sources: Mapping[str, Source], look: Look) -> list[str]:
    finding = group[0]
    color = COLORS[finding.severity]
    where = f"{finding.filename}:{place(finding, sources)}:"
    rule = look.style(f"{finding.code} {finding.name}", color, "bold")
    lines = [f"{look.style(look.plain(where), 'bold')} {rule}  {look.plain(finding.message)}"]
    source = sources.get(finding.filename)
    others = 0
    if source is not None:
        finding, source, others = alone(finding, source)
        lines += _indented(frame(source, finding.start, finding.end, label(finding), look, color))
    lines += _others([place(other, sources) for other in group[1:]], look)
    for number, note in enumerate(finding.trace, 1):
        lines.append(
            look.plain(f"  {number}. {note.filename}:{note_place(note, sources).line}: {note.message}")
        )
    return lines + _fix_lines(finding, source, others, look)


def label(finding: Finding) -> str:
    """The severity, and the confidence unless it is high."""
    if finding.confidence is Confidence.HIGH:
        return finding.severity.value
    return f"{finding.severity.value}, {finding.confidence.value} confidence"


def _others(found: Sequence[Place], look: Look) -> list[str]:
    """Where else in the file the same is found, rows of the same place once."""
    if not found:
        return []
    places = ", ".join(map(str, found))
    text = f"and at {len(found)} more {'place' if len(found) == 1 else 'places'}: {places}"
    return [
        look.style(line, "dim") for line in wrap(text, 100, initial_indent="  ", subsequent_indent="    ")
    ]


def _fix_lines(finding: Finding, source: Source | None, others: int, look: Look) -> list[str]:
    fix = finding.fix
    if fix is None:
        return [look.plain(f"  no fix: {finding.no_fix_reason}")] if finding.no_fix_reason else []
    head = look.style(f"fix ({fix.kind.value}, {fix.applicability.value}):", "bold")
    lines = [f"  {head} {look.plain(fix.message)}".rstrip()]
    if source is not None:
        from amplint.report.diff import excerpt  # `difflib` is dear, and most runs show no fix

        lines += _indented(excerpt(source, finding, fix, look, others))
    return lines


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _left(result: RunResult) -> str:
    findings = result.findings
    severities = Counter(finding.severity for finding in findings)
    words = {Severity.ERROR: "error", Severity.WARNING: "warning"}
    parts = [_count(severities[severity], word) for severity, word in words.items() if severities[severity]]
    if severities[Severity.INFO]:
        parts.append(f"{severities[Severity.INFO]} info")
    files = _count(len({finding.filename for finding in findings}), "file")
    left = " left" if result.changes else ""
    return f"{_count(len(findings), 'finding')}{left} in {files} ({', '.join(parts)})."


def _ways_to_fix(findings: Iterable[Finding], mode: FixMode) -> list[str]:
    """What is not fixed yet for want of an option; display fixes have none."""
    waiting = Counter(
        (finding.fix.kind, finding.fix.applicability is Applicability.SAFE)
        for finding in findings
        if finding.fix is not None and finding.fix.applicability is not Applicability.DISPLAY
    )
    lines = []
    ports = waiting[FixKind.PORT, True]
    if ports and not mode.ports:
        lines.append(f"{ports} fixable with `amplint fix`.")
    repairs = waiting[FixKind.REPAIR, True]
    if repairs and not mode.repairs:
        verbs = "changes numbers and waits" if repairs == 1 else "change numbers and wait"
        lines.append(f"{_count(repairs, 'repair')} {verbs} for `amplint fix --repair`.")
    ways = ((FixKind.PORT, mode.ports, "fix"), (FixKind.REPAIR, mode.repairs, "fix --repair"))
    for kind, fixing, command in ways:
        unsafe = waiting[kind, False]
        if unsafe and not (fixing and mode.unsafe):
            noun = _count(unsafe, f"unsafe {kind.value}")
            verb = "needs" if unsafe == 1 else "need"
            lines.append(f"{noun} {verb} a look first: `amplint {command} --unsafe-fixes`.")
    return lines


def _by_rule(findings: Iterable[Finding]) -> list[tuple[str, str, int]]:
    """Code, name and number of findings, commonest first."""
    counts = Counter((finding.code, finding.name) for finding in findings)
    return sorted(((code, name, number) for (code, name), number in counts.items()), key=_commonest)


def _commonest(row: tuple[str, str, int]) -> tuple[int, str]:
    return -row[2], row[0]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
