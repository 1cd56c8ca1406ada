"""Findings as one HTML file that needs nothing else: by file, with code, traces and what fixes would change."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from amplint.finding import Finding, Note
from amplint.report.diff import excerpt
from amplint.report.frame import Look, frame, shown, window_at
from amplint.report.places import Sources, alone, place
from amplint.report.text import groups, label, summary
from amplint.source import Source

if TYPE_CHECKING:
    from amplint.runner import FixMode, RunResult

_TEMPLATE = "page.html.jinja"
_LOOK = Look()
_SIGNED = re.compile(r" *\d* ([-+])( |$)")


@dataclass(frozen=True, slots=True)
class Line:
    """A row of code or of a diff."""

    text: str
    #: hit, caret, added, removed, or nothing.
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a trace."""

    place: str
    message: str
    #: The row of code; empty where it cannot be read.
    code: str


@dataclass(frozen=True, slots=True)
class Item:
    """A finding, and others that say the same of the file."""

    finding: Finding
    place: str
    label: str
    message: str
    code: Sequence[Line]
    others: Sequence[str]
    steps: Sequence[Step]
    changes: Sequence[Line]


def render(result: RunResult, mode: FixMode, cwd: Path) -> str:
    """The page. Files that only a trace names are read from `cwd`. Needs jinja2."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    template = environment.from_string(
        resources.files(__package__).joinpath(_TEMPLATE).read_text(encoding="utf-8")
    )
    read = Sources(result.sources, cwd)
    items = [_item(group, result.sources, read) for group in groups(result.findings)]
    files = {name: list(of_file) for name, of_file in groupby(items, key=lambda item: item.finding.filename)}
    failures = [f"{problem}" for problem in result.problems]
    failures += [f"internal error in {error.filename}: {error.message}" for error in result.internal_errors]
    return template.render(
        summary=summary(result, mode).splitlines(),
        failures=[_LOOK.plain(failure) for failure in failures],
        rules=_by_rule(result.findings),
        files=[(_LOOK.plain(name), of_file) for name, of_file in files.items()],
    )


def _by_rule(findings: Sequence[Finding]) -> list[tuple[Finding, int]]:
    """A finding of each rule and severity, with how many there are, commonest first."""
    counts = Counter((finding.code, finding.severity) for finding in findings)
    first = {(finding.code, finding.severity): finding for finding in reversed(findings)}
    ordered = sorted(first, key=lambda key: (-counts[key], key[0], key[1].value))
    return [(first[key], counts[key]) for key in ordered]


def _item(group: Sequence[Finding], sources: Mapping[str, Source], read: Sources) -> Item:
    finding = group[0]
    source = sources.get(finding.filename)
    where = _LOOK.plain(f"{finding.filename}:{place(finding, sources)}")
    code: list[str] = []
    changes: list[str] = []
    if source is not None:
        finding, source, elsewhere = alone(finding, source)
        code = frame(source, finding.start, finding.end, label(finding), _LOOK, "")
        if finding.fix is not None:
            changes = excerpt(source, finding, finding.fix, _LOOK, elsewhere)
    return Item(
        finding,
        where,
        label(finding),
        _LOOK.plain(finding.message),
        [Line(text, _kind_of_code(text)) for text in code],
        [str(place(other, sources)) for other in group[1:]],
        [_step(note, read) for note in finding.trace],
        [Line(text, _kind_of_change(text)) for text in changes],
    )


def _kind_of_code(text: str) -> str:
    """A marked row begins with a sign, and the row with the carets has no number."""
    if text.startswith(">"):
        return "hit"
    return "caret" if text.lstrip().startswith("|") else ""


def _kind_of_change(text: str) -> str:
    """The sign stands behind the number of the row, or behind the blanks in its place."""
    signed = _SIGNED.match(text)
    return {"+": "added", "-": "removed"}[signed[1]] if signed else ""


def _step(note: Note, sources: Sources) -> Step:
    """A step of a trace with its row of code."""
    source = sources.get(note.filename)
    row = note.start.row if source is None else source.place(note.start).line
    where = _LOOK.plain(f"{note.filename}:{row}")
    return Step(where, _LOOK.plain(note.message), _code(note, source))


def _code(note: Note, source: Source | None) -> str:
    """The row that a step is about, "" where it cannot be read."""
    if source is None or not 1 <= note.start.row <= len(source.line_starts):
        return ""
    text = source.line_text(note.start.row)
    return shown(text, window_at(text, note.start.column, _LOOK), _LOOK).strip()
