"""Findings as Markdown, for the summary of a workflow or a comment: a table by rule, then the findings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from amplint.finding import Finding, Position
from amplint.report.frame import Look
from amplint.report.places import file_rows, place
from amplint.report.text import summary
from amplint.source import NOTEBOOK, Source

if TYPE_CHECKING:
    from amplint.runner import FixMode, RunResult

#: Characters of a report at most: a comment on GitHub has 65,536, the summary of a step a MiB.
LIMIT = 60_000
#: Room for the sentence about what is left out.
_RESERVE = 200
#: Characters of a message at most.
_MESSAGE = 400
#: Rows at most of each list but the one of the findings.
_ROWS = 50

#: What Markdown, tables and HTML would take for markup.
_MARKUP = re.compile(r"[\\`*_\[\]<>|~&$#]")

#: The address at which a finding can be looked at; None where there is none.
Link = Callable[[Finding], str | None]


def render(result: RunResult, mode: FixMode, link: Link) -> str:
    """What is left to report, at most `LIMIT` characters; the last line says how many findings that leaves out."""
    text = "## amplint\n\n" + "".join(f"{line}\n\n" for line in summary(result, mode).splitlines())
    failures = [f"{problem}" for problem in result.problems]
    failures += [f"internal error in {error.filename}: {error.message}" for error in result.internal_errors]
    text += _list(f"- {_cell(failure)}\n" for failure in failures)
    if not result.findings:
        return text.rstrip("\n") + "\n"
    text += "\n| rule | severity | findings |\n|---|---|---:|\n" + _list(_by_rule(result.findings))
    text += "\n| place | rule | finding |\n|---|---|---|\n"
    room = LIMIT - _RESERVE - len(text)
    rows: list[str] = []
    for finding in result.findings:
        row = _row(finding, result.sources, link)
        room -= len(row)
        if room < 0:
            break
        rows.append(row)
    return text + "".join(rows) + _left_out(result.findings[len(rows) :])


def blob_link(base: str) -> Link:
    """Links to files below an address such as https://github.com/OWNER/NAME/blob/COMMIT."""

    def link(finding: Finding) -> str | None:
        if finding.filename.startswith(("/", "../", "-")) or ":" in finding.filename:
            return None
        path = quote(finding.filename.encode("utf-8", "surrogateescape"))
        rows = f"L{finding.start.row}" + (
            f"-L{finding.end.row}" if finding.end.row > finding.start.row else ""
        )
        plain = "?plain=1" if path.endswith(NOTEBOOK) else ""  # else a notebook is shown without its rows
        return f"{base.rstrip('/')}/{path}{plain}#{rows}"

    return link


def _by_rule(findings: Iterable[Finding]) -> Iterator[str]:
    """A row for each rule and severity, commonest first."""
    counts = Counter(
        (finding.code, finding.name, finding.severity.value, finding.url) for finding in findings
    )
    for (code, name, severity, url), number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield f"| {_linked(f'{code} {name}', url)} | {severity} | {number} |\n"


def _row(finding: Finding, sources: Mapping[str, Source], link: Link) -> str:
    first, last = file_rows(finding, sources)
    in_file = replace(finding, start=Position(first, 1), end=Position(last, 1))
    where = _linked(f"{finding.filename}:{place(finding, sources).line}", link(in_file))
    return f"| {where} | {_linked(finding.code, finding.url)} | {_cell(finding.message)} |\n"


def _left_out(findings: list[Finding]) -> str:
    if not findings:
        return ""
    files = len({finding.filename for finding in findings})
    return (
        f"\nLeft out for want of room: {len(findings)} more {'finding' if len(findings) == 1 else 'findings'}"
        f" in {files} {'file' if files == 1 else 'files'}.\n"
    )


def _list(rows: Iterable[str]) -> str:
    """The first rows, and how many more there are."""
    listed = list(rows)
    more = len(listed) - _ROWS
    return "".join(listed[:_ROWS]) + (f"\n... and {more} more\n" if more > 0 else "")


def _linked(text: str, address: str | None) -> str:
    return f"[{_cell(text)}]({address})" if address else _cell(text)


def _cell(text: str) -> str:
    """Text that is one cell of a table, or one line, and not too long."""
    shown = text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]} ..."
    return _MARKUP.sub(lambda character: f"\\{character[0]}", Look().plain(shown))
