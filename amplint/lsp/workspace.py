"""The files of the workspace that are not open: what they import, and on request what is wrong in them.

A second process looks at them, so that nobody who types waits for it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from amplint.config import ConfigError
from amplint.lsp import worker
from amplint.lsp.analysis import ATTEMPTS, LATER, Analysis, WorkerDied
from amplint.lsp.messages import CheckedFile
from amplint.lsp.settings import EditorSettings, Scope, Scopes

if TYPE_CHECKING:
    from amplint.project.link import ModuleIndex

ResultT = TypeVar("ResultT")

#: Files of one folder that are looked at, at most: somebody may open their home.
_MOST_FILES = 20_000
#: Files that are extracted in one piece of work.
_BATCH = 25
#: Lower priority than what somebody waits for.
_NICENESS = 10

#: Seconds between looks at whether an index is ready.
_MOMENT = 0.05

#: Told (files done, files in all); gives whether to go on.
Progress = Callable[[int, int], bool]


def unheard(done: int, total: int) -> bool:
    """Progress that nobody watches."""
    return True


class Folders:
    """The workspace folders, each with an index of its files."""

    def __init__(self, scopes: Scopes) -> None:
        self.analysis = Analysis(_NICENESS)
        self.analysis.restarted = self._restarted
        self._scopes = scopes
        #: Folder -> (name -> what is known of that file).
        self.indexes: dict[str, dict[str, ModuleIndex]] = {}
        self._taught: set[Scope] = set()
        #: Held while an index is made, or takes in what changed on disk.
        self._reading = asyncio.Lock()

    def _restarted(self) -> None:
        self._taught.clear()

    def forget(self) -> None:
        """The configuration changed."""
        self._taught.clear()

    async def index(self, folder: str, editor: EditorSettings, progress: Progress = unheard) -> bool:
        """Read which modules there are below a folder and what they import; False when that was stopped.

        Raises `ConfigError` and `WorkerDied`.
        """
        async with self._reading:
            scope = self._scopes.of(None, folder, editor)
            paths = (await self.analysis.ask(LATER, worker.files, scope))[:_MOST_FILES]
            found: dict[str, ModuleIndex] = {}
            for start in range(0, len(paths), _BATCH):
                if not progress(start, len(paths)):
                    return False
                batch = paths[start : start + _BATCH]
                for module in await self._ask(worker.index, scope, batch) or ():
                    found[module.filename] = module
            if found != self.indexes.get(folder):
                self.indexes[folder] = found
                self._taught = {scope for scope in self._taught if scope.base != folder}
        return True

    async def update(self, folder: str, editor: EditorSettings, paths: list[str]) -> None:
        """Files below a folder changed on disk."""
        async with self._reading:
            known = self.indexes.get(folder)
            if known is None:
                return
            try:
                scope = self._scopes.of(None, folder, editor)
            except ConfigError:
                return
            modules = await self._ask(worker.index, scope, paths)
            if modules is None:
                return
            for path in paths:
                known.pop(os.path.relpath(path, folder).replace(os.sep, "/"), None)
            known.update((module.filename, module) for module in modules)
            self._taught = {scope for scope in self._taught if scope.base != folder}

    async def check(
        self, folder: str, editor: EditorSettings, skip: set[str], progress: Progress = unheard
    ) -> list[CheckedFile] | None:
        """Check all files below a folder but those in `skip`; None when it was stopped."""
        while self._reading.locked():  # what changed before somebody asked is to be known
            if not progress(0, 1):
                return None
            await asyncio.sleep(_MOMENT)
        if not await self.index(folder, editor, lambda done, total: progress(0, total)):
            return None  # not every client tells of changes on disk, so the index is made again
        base = self._scopes.of(None, folder, editor)
        paths = [os.path.join(folder, name) for name in sorted(self.indexes[folder])]
        found = []
        for start in range(0, len(paths), _BATCH):
            scopes: dict[Scope, list[str]] = {}
            for path in paths[start : start + _BATCH]:
                try:
                    scope = self._scopes.of(path, folder, editor)
                except ConfigError:
                    scope = base
                if path not in skip:
                    scopes.setdefault(scope, []).append(path)
            for scope, batch in scopes.items():
                await self._teach(scope)
                same = await self._ask(worker.recall, scope, batch) or {}
                for number, path in enumerate(batch, start):
                    if not progress(number, len(paths)):
                        return None
                    checked = same.get(path) or await self._checked(scope, path)
                    found.extend([checked] if checked is not None else [])
        progress(len(paths), len(paths))
        return found

    async def _checked(self, scope: Scope, path: str) -> CheckedFile | None:
        """Check one file; None when it cannot be read, or the process died of it."""
        for _ in range(ATTEMPTS):
            await self._teach(scope)
            with suppress(WorkerDied):
                return await self.analysis.ask(LATER, worker.check_file, scope, path)
        return None

    async def _ask(self, work: Callable[..., ResultT], scope: Scope, paths: Sequence[str]) -> ResultT | None:
        """Ask the process about files; None when it died of that."""
        for _ in range(ATTEMPTS):
            with suppress(WorkerDied):
                return await self.analysis.ask(LATER, work, scope, paths)
        return None

    async def _teach(self, scope: Scope) -> None:
        for _ in range(ATTEMPTS):
            if scope in self._taught:
                return
            self._taught.add(scope)
            modules = tuple(self.indexes.get(scope.base, {}).values())
            with suppress(WorkerDied):
                await self.analysis.ask(LATER, worker.learn, scope, modules)

    def stop(self) -> None:
        """End the process."""
        self.analysis.stop()
