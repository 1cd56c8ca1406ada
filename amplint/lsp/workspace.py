"""The files of the workspace that are not open: what they import, and on request what is wrong in them.

A second process looks at them, so that nobody who types waits for it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from amplint.config import ConfigError
from amplint.lsp import worker
from amplint.lsp.analysis import LATER, Analysis, WorkerDied
from amplint.lsp.messages import CheckedFile
from amplint.lsp.settings import EditorSettings, Scope, Scopes

if TYPE_CHECKING:
    from amplint.project.link import ModuleIndex

#: Files of one folder that are looked at, at most: somebody may open their home.
_MOST_FILES = 20_000
#: Files that are extracted in one piece of work.
_BATCH = 25
#: Lower priority than what somebody waits for.
_NICENESS = 10

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
        #: Held while an index takes in what changed on disk.
        self._updating = asyncio.Lock()

    def _restarted(self) -> None:
        self._taught.clear()

    def forget(self) -> None:
        """The configuration changed."""
        self._taught.clear()

    async def index(self, folder: str, editor: EditorSettings, progress: Progress = unheard) -> bool:
        """Read which modules there are below a folder and what they import; False when that was stopped.

        Raises `ConfigError` and `WorkerDied`.
        """
        scope = self._scopes.of(None, folder, editor)
        paths = (await self.analysis.ask(LATER, worker.files, scope))[:_MOST_FILES]
        found: dict[str, ModuleIndex] = {}
        for start in range(0, len(paths), _BATCH):
            if not progress(start, len(paths)):
                return False
            try:
                modules = await self.analysis.ask(LATER, worker.index, scope, paths[start : start + _BATCH])
            except WorkerDied:
                continue
            found.update((module.filename, module) for module in modules)
        self.indexes[folder] = found
        self._taught = {scope for scope in self._taught if scope.base != folder}
        return True

    async def update(self, folder: str, editor: EditorSettings, paths: list[str]) -> None:
        """Files below a folder changed on disk."""
        known = self.indexes.get(folder)
        if known is None:
            return
        async with self._updating:
            try:
                scope = self._scopes.of(None, folder, editor)
                modules = await self.analysis.ask(LATER, worker.index, scope, paths)
            except (ConfigError, WorkerDied):
                return
        for path in paths:
            known.pop(os.path.relpath(path, folder).replace(os.sep, "/"), None)
        known.update((module.filename, module) for module in modules)
        self._taught = {scope for scope in self._taught if scope.base != folder}

    async def check(
        self, folder: str, editor: EditorSettings, skip: set[str], progress: Progress = unheard
    ) -> list[CheckedFile] | None:
        """Check all files below a folder but those in `skip`; None when it was stopped."""
        if folder not in self.indexes and not await self.index(folder, editor, progress):
            return None
        base = self._scopes.of(None, folder, editor)
        async with self._updating:
            pass  # what changed before somebody asked is known now
        paths = [os.path.join(folder, name) for name in sorted(self.indexes[folder])]
        found = []
        for number, path in enumerate(paths):
            if not progress(number, len(paths)):
                return None
            if path in skip:
                continue
            try:
                scope = self._scopes.of(path, folder, editor)
            except ConfigError:
                scope = base
            await self._teach(scope)
            try:
                checked = await self.analysis.ask(LATER, worker.check_file, scope, path)
            except WorkerDied:
                continue
            if checked is not None:
                found.append(checked)
        progress(len(paths), len(paths))
        return found

    async def _teach(self, scope: Scope) -> None:
        if scope not in self._taught:
            self._taught.add(scope)
            modules = tuple(self.indexes.get(scope.base, {}).values())
            await self.analysis.ask(LATER, worker.learn, scope, modules)

    def stop(self) -> None:
        """End the process."""
        self.analysis.stop()
