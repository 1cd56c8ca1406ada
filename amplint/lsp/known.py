"""Findings that a project has taken on: those of its baseline, which an editor does not show either."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from amplint.finding import Finding
from amplint.lsp.settings import Scope
from amplint.source import Source

if TYPE_CHECKING:
    from amplint.baseline import Baseline


FileState = tuple[int, int] | None


def state_of(path: str | Path) -> FileState:
    """What tells one state of a file from another; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


class Known:
    """The baseline of a scope; it is read again when its file changes."""

    def __init__(self, scope: Scope) -> None:
        self._base = Path(scope.base)
        self._path = scope.settings.baseline_file(self._base) if scope.baseline else None
        self._is_named = scope.baseline and scope.settings.baseline is not None
        self._state: FileState = None
        self._baseline: Baseline | None = None
        #: Why it cannot be used, in one line; "" where it can, or where there is none.
        self.problem = ""

    def new(self, findings: Sequence[Finding], source: Source) -> tuple[Finding, ...]:
        """The findings in a source that are not in the baseline."""
        baseline = self._read()
        if baseline is None or not baseline.entries or not findings:
            return tuple(findings)
        from amplint.baseline import unknown

        return tuple(unknown(findings, source, baseline, self._base))

    @property
    def is_current(self) -> bool:
        """Whether the baseline on disk is the one that was last read."""
        return self._on_disk() == self._state

    def _on_disk(self) -> FileState:
        return state_of(self._path) if self._path is not None else None

    def _read(self) -> Baseline | None:
        state = self._on_disk()
        if state is None:
            self.problem = f"{self._path}: there is no such baseline" if self._is_named else ""
            self._baseline = None
        elif state != self._state:
            from amplint.baseline import BaselineError, read

            assert self._path is not None
            self.problem, self._baseline = "", None
            try:
                self._baseline = read(self._path)
            except BaselineError as error:
                self.problem = str(error)
        self._state = state
        return self._baseline
