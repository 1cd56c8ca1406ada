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

    @property
    def rank(self) -> int:
        """Higher for surer ones."""
        return ("low", "medium", "high").index(self.value)


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
    """Names that leave one `import` or `from .. import` statement; several fixes may each take some out."""

    #: The statement itself.
    statement: Span
    #: Its whole lines, indentation and newline included.
    lines: Span
    #: Spans of all names that the statement imports (with their `as`), in order.
    aliases: tuple[Span, ...]
    #: The text before the first name, between the names, and behind the last one to the end of the statement.
    gaps: tuple[str, ...]
    #: Which of them go.
    removed: frozenset[int]
    #: What stands in its place when nothing is left: "" or an indented `pass` where a block would be empty.
    placeholder: str = ""
    #: Where the names go, if they are to be imported from another module instead.
    move: ImportMove | None = None

    def merged(self, other: ImportRemoval) -> ImportRemoval:
        """Both removals from the same statement at once."""
        move = self.move.merged(other.move) if self.move is not None and other.move is not None else self.move
        return replace(self, removed=self.removed | other.removed, move=move)

    def edits(self) -> tuple[Edit, ...]:
        """The text edits of this removal; the formatting of the names that stay is untouched."""
        kept = [i for i in range(len(self.aliases)) if i not in self.removed]
        if not kept:
            return self._moved() if self.move is not None else (Edit(self.lines, self.placeholder),)
        found = []
        if self.move is not None:
            place = self.lines.start if self.move.place is None else self.move.place
            found.append(Edit(Span(place, place), self.move.statement(), lines=1))
        found.extend(Edit(self._before_others(i), "") for i in sorted(self.removed) if i < kept[-1])
        if kept[-1] != len(self.aliases) - 1:
            found.append(Edit(self._behind(kept[-1]), ""))
        return tuple(found)

    def _before_others(self, index: int) -> Span:
        """A name that others follow: with its comma, and its line and comment where it stands alone there."""
        start, behind = self.aliases[index].start, self.gaps[index + 1]
        line, newline, rest = behind.partition("\n")
        if "\n" not in self.gaps[index] or not newline:
            return Span(start, self.aliases[index + 1].start)
        indent = len(rest) - len(rest.lstrip(" \t"))
        return Span(start, self.aliases[index].end + len(line) + 1 + indent)

    def _behind(self, index: int) -> Span:
        """All names behind the one of this index, whose comma and comment stay when its line ends there."""
        start, end = self.aliases[index].end, self.aliases[-1].end
        line, newline, _ = self.gaps[index + 1].partition("\n")
        last, newline_behind, _ = self.gaps[-1].partition("\n")
        if not newline or not newline_behind:
            return Span(start, end)
        has_return = line.endswith("\r")
        return Span(start + len(line) - has_return, end + len(last) - last.endswith("\r"))

    def _moved(self) -> tuple[Edit, ...]:
        """All names go elsewhere: the module's name changes, and names that are called otherwise there."""
        assert self.move is not None
        renamed = (Edit(self.aliases[i], text) for i, text, is_new in self.move.names if is_new)
        return (Edit(self.move.module, self.move.target), *renamed)


@dataclass(frozen=True, slots=True)
class ImportMove:
    """Names of a `from .. import` statement that are imported from another module instead."""

    #: The module's name in the statement.
    module: Span
    target: str
    #: (index in the statement, text of the name with its `as`, whether it differs from what stands there).
    names: tuple[tuple[int, str, bool], ...]
    indent: str
    newline: str
    #: Where a statement of their own goes when other names stay; None: right above this one.
    place: int | None = None

    def merged(self, other: ImportMove) -> ImportMove:
        """Both moves at once, the names in the order of the statement."""
        return replace(self, names=tuple(sorted({*self.names, *other.names})))

    def statement(self) -> str:
        """A whole line that imports the names from the other module."""
        names = ", ".join(text for _, text, _ in self.names)
        return f"{self.indent}from {self.target} import {names}{self.newline}"


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
