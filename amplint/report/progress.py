"""A progress bar for runs that somebody waits for."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

#: Seconds before there is a bar: rich takes 0.1 s to import, and most runs are over by then.
_PATIENCE = 0.5
#: Seconds between two refreshes. There is no thread that refreshes: the run may fork.
_INTERVAL = 0.1


class Progress:
    """Shows on stderr how many files are done; the bar vanishes at the end."""

    def __init__(self) -> None:
        """Start the clock."""
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._due = time.monotonic() + _PATIENCE

    def __enter__(self) -> Progress:
        """Show nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int) -> None:
        """Say that `done` of `total` files are done."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _INTERVAL
        if self._bar is None:
            self._bar = _new_bar()
            self._task = self._bar.add_task("checking", total=total)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, completed=done, total=total)
        self._bar.refresh()


def _new_bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
