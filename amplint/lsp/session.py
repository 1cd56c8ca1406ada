"""The state of one client: open documents, their results, and the checks that are due."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from amplint.config import ConfigError, Settings
from amplint.discover import display_name
from amplint.lsp import worker
from amplint.lsp.analysis import ATTEMPTS, LATER, NOW, SOON, Analysis, WorkerDied
from amplint.lsp.documents import Documents, Opened, path_of, uri_of
from amplint.lsp.messages import Checked, Unsaved
from amplint.lsp.positions import Text
from amplint.lsp.results import Result, notebook_result, result_of
from amplint.lsp.settings import EditorSettings, Scope, Scopes
from amplint.lsp.workspace import Folders, Progress, unheard

#: Seconds without anything to check after which the worker tidies up.
_QUIET = 1.0
#: Seconds between a first look at a document and the check of all of it, at least and at most, and the share of what
#: the last such check took: parts of it cannot be interrupted, and the larger the file the longer are these.
_PAUSE, _LONGEST_PAUSE = 0.25, 1.0
_SHARE = 0.25

#: Seconds to wait for a client to say what its settings are.
_SETTINGS_WAIT = 2.0


@dataclass
class _State:
    """What is known of an open document."""

    #: Changes with its text, its configuration, and what it depends on.
    stamp: int
    result: Result | None = None
    #: What a first look at the document as it is gave, until it has been checked as a whole.
    first: Result | None = None
    #: Set when there is a first or whole result for the document as it is.
    seen: asyncio.Event = field(default_factory=asyncio.Event)
    #: Set when somebody waits for the whole check.
    needed: asyncio.Event = field(default_factory=asyncio.Event)
    check: asyncio.Task[Result | None] | None = None
    #: The check has not begun: it waits for the user to stop typing.
    is_waiting: bool = False
    #: Seconds that the last check of all of it took.
    took: float = 0.0
    #: What killed the worker; it is not tried again.
    deadly: Unsaved | None = None
    scopes: set[Scope] = field(default_factory=set)


class Session:
    """Open documents and notebooks and their results. All of it lives on the event loop of the server."""

    def __init__(self, documents: Documents, warn: Callable[[str], None]) -> None:
        self.documents = documents
        self.analysis = Analysis()
        self.analysis.restarted = self._restarted
        self.scopes = Scopes()
        self.folders = Folders(self.scopes)
        #: Settings for everything, and for single workspace folders by path.
        self.editor = EditorSettings()
        self.by_folder: dict[str, EditorSettings] = {}
        #: Called with every new result, and with documents whose results may have changed without their text.
        self.publish: Callable[[str, Result], None] = lambda uri, result: None
        self.outdated: Callable[[], None] = lambda: None
        #: Set when the settings are known; nothing is checked before.
        self.settled = asyncio.Event()
        self._warn = warn
        self._warned: set[str] = set()
        self._states: dict[str, _State] = {}
        #: Scopes whose files the worker has been told of, and what it was told.
        self._taught: dict[Scope, object] = {}
        self._stamps = itertools.count(1)
        self._tidying: asyncio.TimerHandle | None = None
        self._background: set[asyncio.Future[None]] = set()

    # -- what happens to documents ---------------------------------------------------------------------------

    def touch(self, uri: str) -> None:
        """The text of a document changed (or it was opened)."""
        state = self._states.get(uri)
        stamp = next(self._stamps)
        if state is None:
            self._states[uri] = _State(stamp)
        else:
            state.stamp = stamp
            state.first = None
            state.seen.clear()
            state.needed.clear()
            if state.check is not None:
                state.check.cancel()
                state.check = None

    def touch_all(self) -> None:
        """The configuration changed: nothing that was found counts any more."""
        self.scopes.forget()
        self.folders.forget()
        self._warned.clear()
        for uri in self._states:
            self.touch(uri)

    def has_new_configuration(self) -> bool:
        """Read configuration files again; whether that matters to an open document."""

        def scopes() -> list[Scope | None]:
            found: list[Scope | None] = []
            for uri in self._states:
                try:
                    found.append(self._scope(uri))
                except ConfigError:
                    found.append(None)
            return found

        before = scopes()
        self.scopes.forget()
        return before != scopes()

    def close(self, uri: str) -> None:
        """A document is no longer open."""
        state = self._states.pop(uri, None)
        if state is None:
            return
        if state.check is not None:
            state.check.cancel()
        path = path_of(uri)
        for scope in state.scopes:
            name = _name(path, uri, scope)
            self.in_background(self._told(scope, worker.close, name))

    @property
    def open(self) -> list[str]:
        """URIs of the open documents."""
        return list(self._states)

    def is_notebook(self, uri: str) -> bool:
        """Whether this is the URI of an open notebook, or of a cell of one."""
        return self.documents.notebook(uri) is not None

    def has_result(self, uri: str) -> Result | None:
        """The newest result of a document, perhaps of an older text than it has."""
        state = self._states.get(uri)
        return state.result if state is not None else None

    def is_current(self, uri: str, result: Result) -> bool:
        """Whether a result is about the document as it is."""
        state = self._states.get(uri)
        return state is not None and state.stamp == result.stamp

    async def settle(self) -> None:
        """Wait until the settings are known, or the client has had time enough to say."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.settled.wait(), _SETTINGS_WAIT)
        self.settled.set()

    # -- checks ----------------------------------------------------------------------------------------------

    def check_soon(self, uri: str, delay: float) -> None:
        """Check a document after so many seconds, unless it changes again before."""
        state = self._states.get(uri)
        if state is not None and not self._is_done(state):
            self._begin(uri, state, delay, SOON)

    async def current(self, uri: str) -> Result | None:
        """The result for a document as it is (of a cell, in its notebook); None for one that is not open."""
        notebook = self.documents.notebook(uri)
        if notebook is not None and notebook.uri != uri:
            whole = await self.current(notebook.uri)
            return whole.cells.get(uri) if whole is not None else None
        while True:
            state = self._states.get(uri)
            if state is None:
                return None
            if self._is_done(state):
                return state.result
            check = self._begin(uri, state, 0, NOW)
            state.needed.set()
            try:
                result = await asyncio.shield(check)
            except asyncio.CancelledError:
                if not check.cancelled():  # not the check, but whoever asked
                    raise
                continue
            if result is None or self.is_current(uri, result):
                return result

    async def first_look(self, uri: str) -> Result | None:
        """The same, or what a first look at the document gave; `publish` is called with the whole result later."""
        state = self._states.get(uri)
        while state is not None and state.first is None and not self._is_done(state):
            stamp = state.stamp
            check = self._begin(uri, state, 0, NOW)
            news = asyncio.ensure_future(state.seen.wait())
            try:
                await asyncio.wait({check, news}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                news.cancel()
            if state.stamp == stamp and check.done() and not state.seen.is_set():
                return None  # it was closed, or is excluded
            state = self._states.get(uri)
        if state is None:
            return None
        return state.result if self._is_done(state) else state.first

    async def _pause(self, state: _State) -> None:
        """Wait before a whole check until nobody types, or somebody needs it: parsing cannot be interrupted."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(state.needed.wait(), min(max(_PAUSE, _SHARE * state.took), _LONGEST_PAUSE))

    def _is_done(self, state: _State) -> bool:
        return state.result is not None and state.result.stamp == state.stamp

    def _begin(self, uri: str, state: _State, delay: float, urgency: int) -> asyncio.Task[Result | None]:
        check = state.check
        if check is not None and not check.done():
            if delay or not state.is_waiting:
                return check
            check.cancel()
        state.is_waiting = delay > 0
        state.check = asyncio.get_running_loop().create_task(self._check(uri, state, delay, urgency))
        return state.check

    async def _check(self, uri: str, state: _State, delay: float, urgency: int) -> Result | None:
        await self.settle()
        if delay:
            await asyncio.sleep(delay)
            state.is_waiting = False
        opened = self.documents.opened(uri)
        if opened is None:
            return None
        stamp, version, text = state.stamp, opened.version, opened.text
        unsaved = self.unsaved(uri, opened)
        if unsaved is None:
            checked = Checked()
            unsaved = Unsaved(Scope(os.curdir, Settings()), uri, None, text.text)
        else:
            state.scopes.add(unsaved.scope)
            await self._teach(unsaved.scope)
            if state.result is not None and state.deadly != unsaved and opened.cells is None:
                seen = await self._glanced(unsaved, state, urgency)
                if seen is not None and self._states.get(uri) is state and state.stamp == stamp:
                    where = self._elsewhere(unsaved.scope)
                    state.first = result_of(seen, state.result, stamp, version, text, unsaved, where)
                    state.seen.set()
                    self.publish(uri, state.first)
                    await self._pause(state)
            began = time.monotonic()
            checked = await self._checked(unsaved, state, urgency)
            state.took = time.monotonic() - began
        for error in checked.internal_errors:
            self.warn(f"{unsaved.filename}: internal error: {error}")
        if checked.problem:
            self.warn(f"baseline: {checked.problem}")
        where = self._elsewhere(unsaved.scope)
        if opened.cells is None:
            made = result_of(checked, state.result, stamp, version, text, unsaved, where)
        else:
            made = notebook_result(checked, state.result, stamp, opened, unsaved, where)
        if self._states.get(uri) is not state or state.stamp != stamp:
            return made  # of no use any more: not published
        state.result, state.first = made, None
        state.seen.set()
        self.publish(uri, made)
        self._touch_stale(checked.stale, unsaved.scope)
        if self._tidying is not None:
            self._tidying.cancel()
        self._tidying = asyncio.get_running_loop().call_later(_QUIET, self._tidy)
        return made

    def _tidy(self) -> None:
        """Nothing happened for a while: have the worker collect its garbage."""

        async def tidy() -> None:
            with suppress(WorkerDied):
                await self.analysis.ask(LATER, worker.tidy)

        self.in_background(tidy())

    async def _glanced(self, unsaved: Unsaved, state: _State, urgency: int) -> Checked | None:
        """What a first look shows; None where it shows nothing, or fails (the whole check will say why)."""
        try:
            return await self.analysis.ask(urgency, worker.glance, unsaved)
        except WorkerDied:
            return None
        except Exception:
            self.warn(f"{unsaved.filename}: a first look failed")
        return None

    async def _checked(self, unsaved: Unsaved, state: _State, urgency: int) -> Checked:
        """What the worker says of a document; never raises for what is in it."""
        if state.deadly != unsaved:
            for _ in range(ATTEMPTS):
                await self._teach(unsaved.scope)
                try:
                    return await self.analysis.ask(urgency, worker.check, unsaved)
                except WorkerDied:
                    continue
                except Exception as error:
                    return Checked(internal_errors=(f"{type(error).__name__}: {error}",))
            state.deadly = unsaved
        return Checked(internal_errors=("the process that analysed it died; nothing in it was checked",))

    def _touch_stale(self, names: tuple[str, ...], scope: Scope) -> None:
        """Documents that are to be checked again, since others changed that they use."""
        if not names:
            return
        for uri, state in self._states.items():
            if state.result is not None and _name(path_of(uri), uri, scope) in names:
                self.touch(uri)
        self.outdated()

    async def _told(self, scope: Scope, work: Callable[..., tuple[str, ...]], *arguments: object) -> None:
        """Tell the worker of something that may matter to open documents."""
        try:
            self._touch_stale(await self.analysis.ask(SOON, work, scope, *arguments), scope)
        except WorkerDied:
            return

    def files_changed(self, paths: list[str]) -> None:
        """Files changed on disk."""
        for scope in {scope for state in self._states.values() for scope in state.scopes}:
            names = [display_name(Path(path), Path(scope.base)) for path in paths]
            self.in_background(self._told(scope, worker.changed, names))
        for folder in self.workspace_folders:
            below = [path for path in paths if path.startswith(os.path.join(folder, ""))]
            if below:
                self.in_background(self.folders.update(folder, self.settings_of(folder), below))

    async def index(self, folder: str, progress: Progress = unheard) -> None:
        """Read which modules a workspace folder has, and check again what that matters to."""
        try:
            if not await self.folders.index(folder, self.settings_of(folder), progress):
                return
        except (ConfigError, WorkerDied):
            return
        for scope in {scope for state in self._states.values() for scope in state.scopes}:
            if scope.base == folder:
                await self._teach(scope, look_again=True)

    async def _teach(self, scope: Scope, *, look_again: bool = False) -> None:
        """Tell the worker which modules there are around a scope's documents."""
        modules = self.folders.indexes.get(scope.base)
        if modules is None:
            return
        for _ in range(ATTEMPTS):
            if self._taught.get(scope) is modules:
                return
            self._taught[scope] = modules
            try:
                stale = await self.analysis.ask(SOON, worker.learn, scope, tuple(modules.values()))
            except WorkerDied:
                continue
            if look_again:
                self._touch_stale(stale, scope)

    def _restarted(self) -> None:
        """The worker is a new one, which knows nothing."""
        self._taught.clear()

    def settings_of(self, folder: str) -> EditorSettings:
        """What the editor set for a workspace folder."""
        return self.by_folder.get(folder, self.editor)

    # -- where a document belongs ----------------------------------------------------------------------------

    def unsaved(self, uri: str, opened: Opened) -> Unsaved | None:
        """A document for the worker; None when it is excluded, or its configuration is broken (which is said)."""
        path = path_of(uri)
        try:
            scope = self._scope(uri)
        except ConfigError as error:
            self.warn(f"configuration: {error}")
            return None
        if path is not None and self.scopes.excludes(path, scope):
            return None
        return Unsaved(scope, _name(path, uri, scope), path, opened.text.text, opened.sources)

    def _scope(self, uri: str) -> Scope:
        """What a document is checked under. Raises `ConfigError`."""
        path = path_of(uri)
        base = self.folder_of(path)
        return self.scopes.of(path, base, self.settings_of(base))

    def folder_of(self, path: str | None) -> str:
        """The innermost workspace folder around a file, or the file's own folder."""
        folders = self.workspace_folders
        if path is None:
            return folders[0] if folders else os.getcwd()
        around = [f for f in folders if path.startswith(os.path.join(f, ""))]
        return max(around, key=len) if around else os.path.dirname(path)

    @property
    def workspace_folders(self) -> list[str]:
        """Paths of the folders that the client works in."""
        folders = [folder for each in self.documents.folders.values() if (folder := path_of(each.uri))]
        root = self.documents.root_path
        return folders or ([os.path.abspath(root)] if root else [])

    def _elsewhere(self, scope: Scope) -> Callable[[str], tuple[str, Text | None]]:
        """Name of a file in findings -> URI and text, for places in other files."""

        def find(filename: str) -> tuple[str, Text | None]:
            path = os.path.normpath(os.path.join(scope.base, filename))
            for uri in self._states:
                document = self.documents.open_document(uri)
                if document is not None and (path_of(uri) == path or f"<{uri}>" == filename):
                    return uri, document.content
            return uri_of(path), None

        return find

    def warn(self, text: str) -> None:
        """Tell the user of a problem, once."""
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)

    def in_background(self, work: Coroutine[None, None, None]) -> None:
        """Let something be done that nobody waits for."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def stop(self) -> None:
        """End everything."""
        for state in self._states.values():
            if state.check is not None:
                state.check.cancel()
        for work in self._background:
            work.cancel()
        if self._tidying is not None:
            self._tidying.cancel()
        self.analysis.stop()
        self.folders.stop()


def _name(path: str | None, uri: str, scope: Scope) -> str:
    """The name of a document in reports."""
    if path is None:
        return f"<{uri}>"  # no import may lead to it
    return display_name(Path(path), Path(scope.base))
