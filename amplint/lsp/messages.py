"""What the server and its worker process say to each other; all of it can be pickled."""

from __future__ import annotations

from dataclasses import dataclass, field

from amplint.finding import Finding, Span
from amplint.lsp.settings import Scope
from amplint.notebook.cells import Cells


@dataclass(frozen=True, slots=True)
class Unsaved:
    """A document as it is in the editor."""

    scope: Scope
    #: Its name in reports, relative to the scope's base.
    filename: str
    #: None for one that was never saved.
    path: str | None
    text: str
    #: Of a notebook the cells instead, None for those that are no Python.
    cells: tuple[str | None, ...] | None = None

    @property
    def size(self) -> int:
        """Its characters."""
        return len(self.text) + sum(len(cell or "") for cell in self.cells or ())


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check of one document gave; the findings are those for exactly its text."""

    findings: tuple[Finding, ...] = ()
    #: The file cannot be parsed; the only finding is about that.
    broken: bool = False
    #: A first look: a whole check may find more, or less.
    provisional: bool = False
    #: Failures of amplint itself, in one line each.
    internal_errors: tuple[str, ...] = ()
    #: What is wrong with the baseline, in one line.
    problem: str = ""
    #: Names of other open documents whose findings this document's new text may change.
    stale: tuple[str, ...] = ()
    #: Of a notebook, the module that was checked.
    cells: Cells | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which fixes to make."""

    ports: bool = True
    repairs: bool = False
    unsafe: bool = False
    #: Only those of these rules; all where it is empty.
    codes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Replaced:
    """A piece of a text (offsets in code points) and what is to stand there."""

    start: int
    end: int
    content: str
    #: The cell of a notebook whose text this is about.
    cell: int | None = None


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What fixing a document would do."""

    edits: tuple[Replaced, ...] = ()
    #: How many findings it mends.
    fixed: int = 0
    #: Why something could not be done, in one line each.
    problems: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Annotation:
    """Something that is said of a place, in Markdown for hovers and in plain words else."""

    span: Span
    text: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that is not open, and what is wrong in it."""

    path: str
    filename: str
    #: What identifies its content and everything that its findings depend on.
    identity: str
    #: For positions; "" where there are no findings.
    text: str = ""
    findings: tuple[Finding, ...] = ()
    internal_errors: tuple[str, ...] = ()
