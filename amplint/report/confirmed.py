"""Findings that a run showed, too: `amplint check --with-record DIR` reads what `amplint run --record DIR` wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from amplint.finding import Finding

#: What a run cannot tell apart: it sees that a region or a scaler is for CUDA, and not how that is written.
_SAME = {"AMP101": "AMP104", "AMP102": "AMP105"}


@dataclass(frozen=True, slots=True)
class Seen:
    """A finding of a run."""

    code: str
    #: Absolute path.
    path: str
    first_row: int
    last_row: int
    step: int
    rank: int


def read_record(folder: Path) -> list[Seen]:
    """The findings of the last run in every rank's record, by step.

    OSError when the folder holds no record or one cannot be read; lines that are no JSON are left out.
    """
    files = sorted(folder.glob("rank*.jsonl"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no record (rank0.jsonl)")
    return sorted(
        (seen for file in files for seen in _last_run(file)), key=lambda seen: (seen.step, seen.rank)
    )


def _last_run(file: Path) -> list[Seen]:
    seen: list[Seen] = []
    folder = ""
    for line in _lines(file):
        if line.get("event") == "run":
            seen = []
            folder = str(line.get("folder", ""))
        elif line.get("event") == "finding":
            try:
                seen.append(_seen(line["finding"], folder))
            except (KeyError, TypeError, ValueError):
                continue  # written by another version
    return seen


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text("utf-8", errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def _seen(finding: dict[str, Any], folder: str) -> Seen:
    return Seen(
        code=finding["code"],
        path=os.path.realpath(os.path.join(folder, finding["filename"])),
        first_row=int(finding["location"]["row"]),
        last_row=int(finding["end_location"]["row"]),
        step=int(finding["step"]),
        rank=int(finding["rank"]),
    )


def confirmation(finding: Finding, record: Sequence[Seen], cwd: Path) -> Seen | None:
    """The first time that the run showed this finding: same rule and file, at rows of the same statement."""
    path = os.path.realpath(cwd / finding.filename)
    for seen in record:
        if (
            seen.code in (finding.code, _SAME.get(finding.code))
            and seen.path == path
            and seen.first_row <= finding.end.row
            and finding.start.row <= seen.last_row
        ):
            return seen
    return None


def in_words(findings: Sequence[Finding], record: Sequence[Seen], cwd: Path) -> list[Finding]:
    """The findings, with a remark at the end of the message of those that the run showed."""
    return [
        finding
        if (seen := confirmation(finding, record, cwd)) is None
        else replace(finding, message=f"{finding.message} (confirmed by the run at step {seen.step})")
        for finding in findings
    ]


def in_json(finding: Finding, record: Sequence[Seen], cwd: Path) -> dict[str, object]:
    """One more key for a finding, `confirmed`: null, or the step and rank of the run."""
    seen = confirmation(finding, record, cwd)
    return {"confirmed": None if seen is None else {"step": seen.step, "rank": seen.rank}}
