"""The server as an object: what it knows of its client, what it tells and what it asks it."""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from lsprotocol import types as t
from pygls.lsp.server import LanguageServer

from amplint.config import BASELINE, ConfigError
from amplint.discover import SUFFIXES
from amplint.lsp import actions
from amplint.lsp.analysis import ATTEMPTS, NOW, WorkerDied
from amplint.lsp.diagnostics import diagnostic
from amplint.lsp.documents import Documents, encoding_of, path_of, uri_of
from amplint.lsp.messages import CheckedFile, Rewritten
from amplint.lsp.positions import Text
from amplint.lsp.results import Result
from amplint.lsp.session import Session
from amplint.lsp.settings import read_editor_settings
from amplint.lsp.workspace import Progress, unheard

ResultT = TypeVar("ResultT")

#: Files that decide what is found.
CONFIGURATION = ("pyproject.toml", "amplint.toml", BASELINE)


class Server(LanguageServer):
    """amplint for one client."""

    session: Session
    #: The client has asked for a shutdown.
    has_said_goodbye = False
    #: Documents for which the client has been given a first look only: its stamp and its identity.
    _given: dict[str, tuple[int, str]]
    #: Files that are not open whose findings the client shows since somebody asked for the whole workspace.
    _shown: set[str]

    @property
    def watches(self) -> bool:
        """Whether the client tells of files that change on disk."""
        workspace = self.client_capabilities.workspace
        watching = workspace.did_change_watched_files if workspace is not None else None
        return watching is not None and bool(watching.dynamic_registration)

    def begin(self, params: t.InitializeParams) -> None:
        """Set the session up, when the client has said what it can do."""
        documents = Documents(
            self.workspace.root_uri,
            t.TextDocumentSyncKind.Incremental,
            params.workspace_folders or [],
            self.workspace.position_encoding,
        )
        self.protocol._workspace = documents
        self.session = Session(documents, self.warn)
        self.session.editor = read_editor_settings(params.initialization_options)
        self._given = {}
        self._shown = set()
        self.session.publish = self.publish
        self.session.outdated = self.outdated
        for problem in self.session.editor.problems:
            self.session.warn(f"settings: {problem}")
        gc.collect()
        gc.freeze()  # the types of the protocol are many; looking through them each time would block

    def end(self) -> None:
        """End the processes that work for the client, if it ever said hello."""
        session = getattr(self, "session", None)
        if session is not None:
            session.stop()

    # -- what the client can do ------------------------------------------------------------------------------

    @property
    def pulls(self) -> bool:
        """Whether the client asks for diagnostics by itself."""
        document = self.client_capabilities.text_document
        return document is not None and document.diagnostic is not None

    @property
    def resolves(self) -> bool:
        """Whether the client asks for the edit of a code action when it is chosen."""
        document = self.client_capabilities.text_document
        can = document.code_action if document is not None else None
        return (
            can is not None and can.resolve_support is not None and "edit" in can.resolve_support.properties
        )

    def pushes(self, uri: str) -> bool:
        """Whether the client is told of the diagnostics of a document, or notebook, without asking."""
        return not self.pulls or self.session.is_notebook(uri)

    def warn(self, text: str) -> None:
        """Show a message to the user."""
        self.window_show_message(t.ShowMessageParams(t.MessageType.Warning, f"amplint: {text}"))
        self.window_log_message(t.LogMessageParams(t.MessageType.Warning, text))

    # -- diagnostics -----------------------------------------------------------------------------------------

    def publish(self, uri: str, result: Result) -> None:
        """Push a result; a client that pulls is told to ask again, where it has got less than this.

        For the cells of a notebook results are always pushed: that is what clients expect.
        """
        if self.session.is_notebook(uri):
            for page in result.pages.values():
                view = result.cells.get(page.uri)
                self._push(page.uri, page.version, view.diagnostics if view is not None else [])
        elif self.pulls:
            given = self._given.pop(uri, None)
            is_more = not result.provisional and given is not None and given[0] == result.stamp
            if is_more and given is not None and given[1] != result.identity:
                self.outdated()
        else:
            self._push(uri, result.version, result.diagnostics)

    def _push(self, uri: str, version: int | None, diagnostics: list[t.Diagnostic]) -> None:
        self.text_document_publish_diagnostics(
            t.PublishDiagnosticsParams(uri=uri, version=version, diagnostics=diagnostics)
        )

    def clear(self, uri: str) -> None:
        """Take the diagnostics of a document away, if they are pushed."""
        self.text_document_publish_diagnostics(t.PublishDiagnosticsParams(uri=uri, diagnostics=[]))

    async def diagnosed(self, uri: str) -> Result | None:
        """What is known of a document: a first look, if the client can be told to ask again."""
        if not self.can_be_told:
            return await self.session.current(uri)
        result = await self.session.first_look(uri)
        if result is not None and result.provisional:
            self._given[uri] = (result.stamp, result.identity)
        return result

    @property
    def can_be_told(self) -> bool:
        """Whether the client asks for diagnostics again when it is told to."""
        workspace = self.client_capabilities.workspace
        return workspace is not None and bool(workspace.diagnostics and workspace.diagnostics.refresh_support)

    def outdated(self) -> None:
        """Results of some documents are outdated: check these, or have the client ask for them."""
        for uri in self.session.open:
            if self.pushes(uri):
                self.session.check_soon(uri, 0)
        if self.pulls and self.can_be_told:
            self.workspace_diagnostic_refresh(None)

    def reconfigured(self) -> None:
        """Settings changed: everything is to be checked again."""
        for problem in self.session.editor.problems:
            self.session.warn(f"settings: {problem}")
        self.session.touch_all()
        self.outdated()
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.inlay_hint and workspace.inlay_hint.refresh_support:
            self.workspace_inlay_hint_refresh(None)
        if workspace is not None and workspace.code_lens and workspace.code_lens.refresh_support:
            self.workspace_code_lens_refresh(None)

    # -- what the client is asked for ------------------------------------------------------------------------

    async def read_settings(self) -> bool:
        """Ask the client for its settings, one set for each folder; False when it cannot say."""
        workspace = self.client_capabilities.workspace
        if workspace is None or not workspace.configuration:
            return False
        folders = self.session.workspace_folders
        scopes = [None, *(uri_of(folder) for folder in folders)]
        items = [t.ConfigurationItem(scope_uri=uri, section="amplint") for uri in scopes]
        try:
            given = await self.workspace_configuration_async(t.ConfigurationParams(items))
        except Exception as error:  # whatever a client answers, the server goes on
            self.window_log_message(t.LogMessageParams(t.MessageType.Warning, f"no settings: {error}"))
            return False
        if not any(given):  # an editor without a section of ours: what it said at first stays
            return True
        first, *rest = given
        before = (self.session.editor, dict(self.session.by_folder))
        if first:
            self.session.editor = read_editor_settings(first)
        self.session.by_folder = {
            folder: read_editor_settings(each) for folder, each in zip(folders, rest, strict=False) if each
        }
        if before != (self.session.editor, self.session.by_folder):
            self.reconfigured()
        return True

    async def watch(self) -> None:
        """Have the client tell of configuration and code that changes on disk."""
        if not self.watches:
            return
        patterns = [*(f"**/{name}" for name in CONFIGURATION), *(f"**/*{suffix}" for suffix in SUFFIXES)]
        options = t.DidChangeWatchedFilesRegistrationOptions([t.FileSystemWatcher(each) for each in patterns])
        registration = t.Registration("amplint-files", t.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        try:
            await self.client_register_capability_async(t.RegistrationParams([registration]))
        except Exception as error:  # whatever a client answers, the server goes on
            self.window_log_message(
                t.LogMessageParams(t.MessageType.Warning, f"files are not watched: {error}")
            )

    # -- work that others do ---------------------------------------------------------------------------------

    async def ask(self, work: Callable[..., ResultT], result: Result, *arguments: object) -> ResultT | None:
        """Ask the worker about the document of a result; None when it died of that."""
        for _ in range(ATTEMPTS):
            with suppress(WorkerDied):
                return await self.session.analysis.ask(NOW, work, result.document, *arguments)
        return None

    async def rewrite(self, uri: str, work: Callable[..., Rewritten]) -> t.WorkspaceEdit | None:
        """The edit that the worker makes of a document; None where there is none to make."""
        result = await self.session.current(uri)
        if result is None:
            return None
        made = await self.ask(work, result)
        if made is None:
            return None
        for problem in made.problems:
            self.warn(problem)
        return actions.edit_of(uri, result, made) if made.edits else None

    async def apply(self, label: str, uri: str, work: Callable[..., Rewritten]) -> bool:
        """Have the client make an edit of a document."""
        edit = await self.rewrite(uri, work)
        if edit is None:
            return False
        answer = await self.workspace_apply_edit_async(t.ApplyWorkspaceEditParams(edit, label))
        return answer.applied

    @asynccontextmanager
    async def shown_progress(self, title: str) -> AsyncIterator[Progress]:
        """Show the progress of something, if the client can; the user may stop it."""
        window = self.client_capabilities.window
        if window is None or not window.work_done_progress:
            yield unheard
            return
        token = str(uuid.uuid4())
        await self.work_done_progress.create_async(token)
        self.work_done_progress.begin(token, t.WorkDoneProgressBegin(title, percentage=0, cancellable=True))
        try:
            yield self.reporter(token)
        finally:
            self.work_done_progress.end(token, t.WorkDoneProgressEnd())
            self.work_done_progress.tokens.pop(token, None)

    def reporter(self, token: t.ProgressToken) -> Progress:
        """What reports progress to the client, a step of a hundredth at a time."""
        shown = -1

        def report(done: int, total: int) -> bool:
            nonlocal shown
            percentage = 100 * done // max(total, 1)
            if percentage != shown:
                shown = percentage
                message = f"{done} of {total} files"
                self.work_done_progress.report(
                    token, t.WorkDoneProgressReport(message=message, percentage=percentage)
                )
            future = self.work_done_progress.tokens.get(token)
            return future is None or not future.cancelled()

        return report

    async def check_files(self, progress: Progress) -> list[tuple[str, str, list[t.Diagnostic]]] | None:
        """(URI, identity, diagnostics) of all files of the workspace, open ones as they are in the editor."""
        found: list[tuple[str, str, list[t.Diagnostic]]] = []
        opened = set()
        for uri in self.session.open:
            result = await self.session.current(uri)
            opened.add(path_of(uri) or "")
            if result is not None and self.session.is_notebook(uri):
                found.extend((cell, view.identity, view.diagnostics) for cell, view in result.cells.items())
            elif result is not None:
                found.append((uri, result.identity, result.diagnostics))
        encoding = encoding_of(self.workspace.position_encoding)
        for folder in self.session.workspace_folders:
            try:
                checked = await self.session.folders.check(
                    folder, self.session.settings_of(folder), opened, progress
                )
            except ConfigError as error:
                self.session.warn(f"configuration: {error}")
                continue
            except WorkerDied:
                continue
            if checked is None:
                return None
            for file in checked:
                text = Text(file.text, encoding)

                def elsewhere(
                    name: str, folder: str = folder, own: CheckedFile = file, text: Text = text
                ) -> tuple[str, Text | None]:
                    path = os.path.normpath(os.path.join(folder, name))
                    return uri_of(path), text if name == own.filename else None

                items = [diagnostic(finding, text, None, elsewhere) for finding in file.findings]
                found.append((uri_of(file.path), file.identity, items))
        return found

    def show_closed(self, findings: dict[str, list[t.Diagnostic]]) -> None:
        """Show the findings of files that are not open, by URI, instead of those that were shown before."""
        for uri in sorted(self._shown | findings.keys()):
            items = findings.get(uri, [])
            self.text_document_publish_diagnostics(t.PublishDiagnosticsParams(uri=uri, diagnostics=items))
        self._shown = {uri for uri, items in findings.items() if items}

    def changed(self, uri: str, *, opened: bool = False) -> None:
        """The text of a document changed."""
        self.session.touch(uri)
        if uri in self._shown:  # from now on it has findings of its own
            self._shown.discard(uri)
            if self.pulls:
                self.text_document_publish_diagnostics(t.PublishDiagnosticsParams(uri=uri, diagnostics=[]))
        if self.pushes(uri):
            self.session.check_soon(uri, 0 if opened else self.session.editor.debounce / 1000)
