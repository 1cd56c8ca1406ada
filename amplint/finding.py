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


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text of `span` by `content`; an empty span inserts."""

    span: Span
    content: str
    #: Whole lines that may stand at one place with others, in this order: 1 imports, 2 what needs them.
    lines: int = 0

    @property
    def sort_key(self) -> tuple[Span, int, str]:
        """Order in which edits are made."""
        return (self.span, self.lines, self.content)


@dataclass(frozen=True, slots=True)
class ImportRemoval:
    """Names taken out of one `import` or `from .. import` statement; several fixes may each take some out."""

    #: The whole lines of the statement, indentation and newline included.
    lines: Span
    #: Spans of all names that the statement imports (with their `as`), in order.
    aliases: tuple[Span, ...]
    #: Which of them go.
    removed: frozenset[int]
    #: What stands in its place when nothing is left: "" or an indented `pass` where a block would be empty.
    placeholder: str = ""

    def merged(self, other: ImportRemoval) -> ImportRemoval:
        """Both removals from the same statement at once."""
        return replace(self, removed=self.removed | other.removed)

    def edits(self) -> tuple[Edit, ...]:
        """The text edits of this removal; the formatting of the names that stay is untouched."""
        kept = [i for i in range(len(self.aliases)) if i not in self.removed]
        if not kept:
            return (Edit(self.lines, self.placeholder),)
        found = []
        for i in sorted(self.removed):
            if i < kept[-1]:
                found.append(Edit(Span(self.aliases[i].start, self.aliases[i + 1].start), ""))
        last = len(self.aliases) - 1
        if kept[-1] != last:
            found.append(Edit(Span(self.aliases[kept[-1]].end, self.aliases[last].end), ""))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits to one file that belong together: all of them are applied, or none."""

    kind: FixKind
    applicability: Applicability
    message: str
    #: Everything that this fix changes when applied alone.
    edits: tuple[Edit, ...]
    #: The removals of imported names that some of `edits` stand for; merged when several fixes are applied.
    imports: tuple[ImportRemoval, ...] = ()

    @property
    def plain_edits(self) -> tuple[Edit, ...]:
        """The edits that are not import removals."""
        removals = {edit for removal in self.imports for edit in removal.edits()}
        return tuple(edit for edit in self.edits if edit not in removals)


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
