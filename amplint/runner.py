"""Many files: read, extract, link, check, fix. The only place that knows about order and parallelism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from amplint.config import Settings
from amplint.finding import Finding, InternalError
from amplint.source import Source, SourceError


@dataclass(frozen=True, slots=True)
class FixMode:
    """Which fixes a run applies: safe ports with `ports`, safe repairs with `repairs`, unsafe ones as well with `unsafe`."""

    ports: bool = False
    repairs: bool = False
    unsafe: bool = False
    #: Write the files; otherwise the changes are only returned (for `--diff`).
    write: bool = False

    @property
    def any(self) -> bool:
        """Whether the run fixes anything at all."""
        return self.ports or self.repairs


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file as it was read and as the fixes leave it."""

    source: Source
    new_text: str
    fixed: tuple[Finding, ...]


@dataclass(slots=True)
class RunResult:
    """Everything that a run found; lists are in order of file, line, column, code."""

    #: What is left to report (after fixing, what remains).
    findings: list[Finding] = field(default_factory=list)
    #: Failures of amplint itself: exit 2.
    internal_errors: list[InternalError] = field(default_factory=list)
    #: Files that could not be read or written, with why: exit 2.
    problems: list[SourceError] = field(default_factory=list)
    changes: list[FileChange] = field(default_factory=list)
    #: Sources of the files with findings, by name (text after fixing), for code frames.
    sources: dict[str, Source] = field(default_factory=dict)
    #: Files looked at.
    files: int = 0
    #: Counters of the analyses (functions analysed, given up, ...).
    statistics: dict[str, int] = field(default_factory=dict)


def run(
    paths: Sequence[Path],
    settings: Settings,
    *,
    fix: FixMode = FixMode(),  # noqa: B008
    cwd: Path | None = None,
    stdin: Source | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RunResult:
    """Check `paths` (or `stdin`), fix what `fix` says, and say what remains."""
    raise NotImplementedError
