"""What a rule reports: findings with traces, and the fixes that go with them.

Positions are 1-based rows and columns in code points; ends are exclusive. Spans inside the engine are
0-based character offsets into the decoded text; the two meet only in `Position`/`Location`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum


class Severity(str, Enum):
    """How bad the consequence is when the finding is true."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Confidence(str, Enum):
    """How sure the analysis is that the finding is true."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class FixKind(str, Enum):
    """A port keeps today's meaning on CUDA; a repair changes numbers because they were wrong."""

    PORT = "port"
    REPAIR = "repair"


class Applicability(str, Enum):
    """Safe: exactly one right rewrite. Unsafe: a judgement. Display: shown, never applied."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    DISPLAY = "display"


@dataclass(frozen=True, order=True, slots=True)
class Position:
    """A place in a file: 1-based row, 1-based column in code points."""

    row: int
    column: int


@dataclass(frozen=True, order=True, slots=True)
class Span:
    """A half-open range of character offsets into one file's decoded text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Note:
    """One step of the trace that makes a finding true, in the order in which it happens at run time."""

    filename: str
    start: Position
    message: str


@dataclass(frozen=True, order=True, slots=True)
class Edit:
    """Replace the text of `span` by `content`; an empty span inserts."""

    span: Span
    content: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits to one file that belong together: all of them are applied, or none."""

    kind: FixKind
    applicability: Applicability
    message: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake at one place of one file."""

    code: str
    name: str
    message: str
    severity: Severity
    confidence: Confidence
    filename: str
    span: Span
    start: Position
    end: Position
    trace: tuple[Note, ...] = ()
    fix: Fix | None = None
    #: Why there is no fix (exactly one of `fix` and `no_fix_reason` is set in what users see).
    no_fix_reason: str | None = None
    fingerprint: str = ""
    url: str = ""

    @property
    def sort_key(self) -> tuple[str, Position, str, str]:
        """Order of every report: file, place, code."""
        return (self.filename, self.start, self.code, self.message)


@dataclass(frozen=True, slots=True)
class InternalError:
    """A failure of amplint itself (never of the linted code), tied to a rule and a file where known."""

    filename: str
    message: str
    code: str | None = None
    traceback: str = field(default="", compare=False)


def fingerprinted(findings: Iterable[Finding], lines: list[str]) -> list[Finding]:
    """Give each finding of one file a fingerprint that survives moved lines.

    It digests code, file and the stripped text of the finding's line; equal ones are numbered in order.
    """
    seen: dict[str, int] = {}
    result = []
    for finding in findings:
        row = finding.start.row
        text = lines[row - 1].strip() if 0 < row <= len(lines) else ""
        base = f"{finding.code}\0{finding.filename}\0{text}\0{finding.start.column if not text else ''}"
        nth = seen[base] = seen.get(base, -1) + 1
        digest = hashlib.sha256(f"{base}\0{nth}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        result.append(replace(finding, fingerprint=digest))
    return result
