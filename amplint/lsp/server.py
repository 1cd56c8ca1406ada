"""The server: which request goes where. Nothing here parses or analyses."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from lsprotocol import types as t
from pygls.lsp.server import LanguageServer

from amplint import __version__
from amplint.config import ConfigError
from amplint.discover import SUFFIXES
from amplint.finding import Span
from amplint.lsp import actions, worker
from amplint.lsp.analysis import NOW, WorkerDied
from amplint.lsp.diagnostics import diagnostic
from amplint.lsp.documents import Documents, encoding_of, path_of, uri_of
from amplint.lsp.hover import finding_hover
from amplint.lsp.messages import CheckedFile, Rewritten, Wanted
from amplint.lsp.positions import Text
from amplint.lsp.results import Result
from amplint.lsp.session import Session
from amplint.lsp.settings import read_editor_settings
from amplint.lsp.workspace import Progress, unheard

ResultT = TypeVar("ResultT")

FIX_ALL = "amplint.fixAll"
IGNORE = "amplint.ignore"
CHECK_WORKSPACE = "amplint.checkWorkspace"
EXPLAIN_FLOW = "amplint.explainFlow"
SHOW_SETTINGS = "amplint.showSettings"

#: Files in which the configuration is.
CONFIGURATION = ("pyproject.toml", "amplint.toml")


class Server(LanguageServer):
    """amplint for one client."""

    session: Session
    #: Documents for which the client has been given a first look only: its stamp and its identity.
    _given: dict[str, tuple[int, str]]

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
        self.session.publish = self.publish
        self.session.outdated = self.outdated
        for problem in self.session.editor.problems:
            self.session.warn(f"settings: {problem}")

    # -- what the client can do ------------------------------------------------------------------------------

    @property
    def pulls(self) -> bool:
        """Whether the client asks for diagnostics by itself."""
        document = self.client_capabilities.text_document
        return document is not None and document.diagnostic is not None

    def warn(self, text: str) -> None:
        """Show a message to the user."""
        self.window_show_message(t.ShowMessageParams(t.MessageType.Warning, f"amplint: {text}"))
        self.window_log_message(t.LogMessageParams(t.MessageType.Warning, text))

    # -- diagnostics -----------------------------------------------------------------------------------------

    def publish(self, uri: str, result: Result) -> None:
        """Push a result; a client that pulls is told to ask again, where it has got less than this."""
        if self.pulls:
            given = self._given.pop(uri, None)
            is_more = not result.provisional and given is not None and given[0] == result.stamp
            if is_more and given is not None and given[1] != result.identity:
                self.outdated()
        else:
            self.text_document_publish_diagnostics(
                t.PublishDiagnosticsParams(uri=uri, version=result.version, diagnostics=result.diagnostics)
            )

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
        if not self.pulls:
            for uri in self.session.open:
                self.session.check_soon(uri, 0)
            return
        if self.can_be_told:
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
        workspace = self.client_capabilities.workspace
        watching = workspace.did_change_watched_files if workspace is not None else None
        if watching is None or not watching.dynamic_registration:
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
        try:
            return await self.session.analysis.ask(NOW, work, result.document, *arguments)
        except WorkerDied:
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
        return actions.edit_of(uri, result.version, result.text, made) if made.edits else None

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
        found = []
        opened = set()
        for uri in self.session.open:
            result = await self.session.current(uri)
            opened.add(path_of(uri) or "")
            if result is not None:
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

    def changed(self, uri: str, *, opened: bool = False) -> None:
        """The text of a document changed."""
        self.session.touch(uri)
        if not self.pulls:
            self.session.check_soon(uri, 0 if opened else self.session.editor.debounce / 1000)


server = Server("amplint", __version__, text_document_sync_kind=t.TextDocumentSyncKind.Incremental)


@server.feature(t.INITIALIZE)
def initialize(ls: Server, params: t.InitializeParams) -> None:
    """The client says what it can do."""
    ls.begin(params)


@server.feature(t.SHUTDOWN)
def shutdown(ls: Server, params: None) -> None:
    """No more requests will come."""
    ls.session.stop()


@server.feature(t.TEXT_DOCUMENT_DID_OPEN)
def did_open(ls: Server, params: t.DidOpenTextDocumentParams) -> None:
    """A document was opened."""
    ls.changed(params.text_document.uri, opened=True)


@server.feature(t.TEXT_DOCUMENT_DID_CHANGE)
def did_change(ls: Server, params: t.DidChangeTextDocumentParams) -> None:
    """A document was changed."""
    ls.changed(params.text_document.uri)


@server.feature(t.TEXT_DOCUMENT_DID_CLOSE)
def did_close(ls: Server, params: t.DidCloseTextDocumentParams) -> None:
    """A document was closed."""
    uri = params.text_document.uri
    ls.session.close(uri)
    if not ls.pulls:
        ls.text_document_publish_diagnostics(t.PublishDiagnosticsParams(uri=uri, diagnostics=[]))


@server.feature(
    t.TEXT_DOCUMENT_DIAGNOSTIC,
    t.DiagnosticOptions(inter_file_dependencies=True, workspace_diagnostics=True, identifier="amplint"),
)
async def document_diagnostic(
    ls: Server, params: t.DocumentDiagnosticParams
) -> t.RelatedFullDocumentDiagnosticReport | t.RelatedUnchangedDocumentDiagnosticReport:
    """The client asks for the diagnostics of a document."""
    result = await ls.diagnosed(params.text_document.uri)
    if result is None:
        return t.RelatedFullDocumentDiagnosticReport(items=[])
    if params.previous_result_id == result.identity:
        return t.RelatedUnchangedDocumentDiagnosticReport(result_id=result.identity)
    return t.RelatedFullDocumentDiagnosticReport(items=result.diagnostics, result_id=result.identity)


@server.feature(
    t.TEXT_DOCUMENT_CODE_ACTION,
    t.CodeActionOptions(code_action_kinds=actions.KINDS, resolve_provider=True),
)
async def code_action(ls: Server, params: t.CodeActionParams) -> list[t.CodeAction]:
    """The client asks what can be done at a place."""
    uri = params.text_document.uri
    result = await ls.session.current(uri)
    if result is None:
        return []
    start, end = result.text.offset(params.range.start), result.text.offset(params.range.end)
    found = [
        d
        for d in result.diagnostics
        if result.text.offset(d.range.start) <= end and result.text.offset(d.range.end) >= start
    ]
    return list(actions.actions(uri, result.version, found, result.diagnostics, params.context.only))


@server.feature(t.CODE_ACTION_RESOLVE)
async def resolve(ls: Server, params: t.CodeAction) -> t.CodeAction:
    """The client wants the edit of an action."""
    data: Any = params.data
    if params.edit is None and isinstance(data, dict) and "uri" in data:
        if "ignore" in data:
            work = partial(worker.ignore, fingerprint=data["ignore"], reason=ls.session.editor.ignore_reason)
        else:
            work = partial(worker.rewrite, wanted=wanted(ls, data.get("rule")))
        params.edit = await ls.rewrite(data["uri"], work)
    return params


def wanted(ls: Server, rule: str | None) -> Wanted:
    """Which fixes "fix all" makes: those of a rule that somebody points at, or all that is safe."""
    if rule is not None:
        return Wanted(repairs=True, codes=frozenset({rule}))
    return Wanted(repairs=ls.session.editor.repair)


@server.feature(t.TEXT_DOCUMENT_HOVER)
async def hover(ls: Server, params: t.HoverParams) -> t.Hover | None:
    """The client asks what there is to say of a place."""
    uri = params.text_document.uri
    result = await ls.session.current(uri)
    if result is None:
        return None
    offset = result.text.offset(params.position)
    found = result.at(offset)
    if found:
        contents = t.MarkupContent(t.MarkupKind.Markdown, finding_hover(found))
        return t.Hover(contents, result.text.range(found[0].span))
    said = await ls.ask(worker.describe, result, offset - result.text.bom)
    if said is None:
        return None
    return t.Hover(t.MarkupContent(t.MarkupKind.Markdown, said.text), result.text.range(said.span))


@server.feature(t.TEXT_DOCUMENT_INLAY_HINT, t.InlayHintOptions(resolve_provider=False))
async def inlay_hint(ls: Server, params: t.InlayHintParams) -> list[t.InlayHint]:
    """The client asks for inlay hints, which are off unless somebody wants them."""
    if not ls.session.editor.inlay_hints:
        return []
    result = await ls.session.current(params.text_document.uri)
    if result is None or result.broken:
        return []
    text = result.text
    start, end = text.offset(params.range.start) - text.bom, text.offset(params.range.end) - text.bom
    return [
        t.InlayHint(
            position=text.range(each.span).end,
            label=each.text,
            kind=t.InlayHintKind.Type,
            tooltip=t.MarkupContent(t.MarkupKind.Markdown, each.detail) if each.detail else None,
            padding_left=True,
        )
        for each in await ls.ask(worker.hints, result, Span(max(0, start), max(0, end))) or []
    ]


@server.feature(t.TEXT_DOCUMENT_CODE_LENS, t.CodeLensOptions(resolve_provider=False))
async def code_lens(ls: Server, params: t.CodeLensParams) -> list[t.CodeLens]:
    """The client asks for code lenses, which are off unless somebody wants them."""
    uri = params.text_document.uri
    if not ls.session.editor.code_lens:
        return []
    result = await ls.session.current(uri)
    if result is None or result.broken:
        return []
    made = []
    for each in await ls.ask(worker.lenses, result) or []:
        place = result.text.range(each.span)
        command = t.Command(
            each.text, EXPLAIN_FLOW, arguments=[uri, place.start.line], tooltip=each.detail or None
        )
        made.append(t.CodeLens(place, command))
    return made


# -- commands --------------------------------------------------------------------------------------------------


@server.command(FIX_ALL)
async def fix_all(ls: Server, uri: str, rule: str | None = None) -> bool:
    """Fix a document, of one rule everything or of all rules what is safe; whether the client did it."""
    return await ls.apply("amplint: fix all", uri, partial(worker.rewrite, wanted=wanted(ls, rule)))


@server.command(IGNORE)
async def ignore(ls: Server, uri: str, fingerprint: str, reason: str) -> bool:
    """Silence a finding by a comment with a reason; whether the client did it."""
    work = partial(worker.ignore, fingerprint=fingerprint, reason=reason)
    return await ls.apply("amplint: ignore here", uri, work)


@server.command(CHECK_WORKSPACE)
async def check_workspace(ls: Server) -> dict[str, int] | None:
    """Check all files of all workspace folders, with progress; how much was found, or None when it was stopped."""
    async with ls.shown_progress("amplint: checking the workspace") as progress:
        found = await ls.check_files(progress)
    if found is None:
        return None
    for uri, _, items in found:
        if ls.session.has_result(uri) is None:
            ls.text_document_publish_diagnostics(t.PublishDiagnosticsParams(uri=uri, diagnostics=items))
    return {"files": len(found), "findings": sum(len(items) for _, _, items in found)}


@server.command(EXPLAIN_FLOW)
async def explain_flow(ls: Server, uri: str, line: int) -> str | None:
    """What the analyses believe at a line (counted from 0), in Markdown; it is logged, too."""
    result = await ls.session.current(uri)
    if result is None:
        return None
    text = await ls.ask(worker.explain, result, line + 1)
    if text is not None:
        ls.window_log_message(t.LogMessageParams(t.MessageType.Info, f"line {line + 1}:\n{text}"))
    return text


@server.command(SHOW_SETTINGS)
async def show_settings(ls: Server, uri: str) -> dict[str, Any] | None:
    """The settings in force for a document, by their names in a configuration file."""
    document = ls.session.documents.open_document(uri)
    unsaved = ls.session.unsaved(uri, document) if document is not None else None
    if unsaved is None:
        return None
    scope = unsaved.scope
    values = {name: value for name, value, _ in scope.settings.in_force()}
    return {"folder": scope.base, "root": scope.settings.root, **values}


# -- the workspace ---------------------------------------------------------------------------------------------


@server.feature(t.WORKSPACE_DIAGNOSTIC)
async def workspace_diagnostic(
    ls: Server, params: t.WorkspaceDiagnosticParams
) -> t.WorkspaceDiagnosticReport:
    """The client asks for the diagnostics of all files."""
    token = params.work_done_token
    progress = ls.reporter(token) if token is not None else unheard
    if token is not None:
        begin = t.WorkDoneProgressBegin("amplint: checking the workspace", percentage=0, cancellable=True)
        ls.work_done_progress.begin(token, begin)
    try:
        found = await ls.check_files(progress)
    finally:
        if token is not None:
            ls.work_done_progress.end(token, t.WorkDoneProgressEnd())
    previous = {each.uri: each.value for each in params.previous_result_ids}
    items: list[t.WorkspaceFullDocumentDiagnosticReport | t.WorkspaceUnchangedDocumentDiagnosticReport] = []
    for uri, identity, diagnostics in found or []:
        version = document.version if (document := ls.session.documents.open_document(uri)) else None
        if previous.get(uri) == identity:
            items.append(t.WorkspaceUnchangedDocumentDiagnosticReport(uri, identity, version))
        elif diagnostics or uri in previous or version is not None:
            items.append(
                t.WorkspaceFullDocumentDiagnosticReport(uri, diagnostics, version, result_id=identity)
            )
    return t.WorkspaceDiagnosticReport(items)


@server.feature(t.INITIALIZED)
async def initialized(ls: Server, params: t.InitializedParams) -> None:
    """The client is ready: read its settings, watch files, and look at the workspace."""
    await ls.read_settings()
    await ls.watch()
    for folder in ls.session.workspace_folders:
        ls.session.in_background(ls.session.index(folder))


@server.feature(t.WORKSPACE_DID_CHANGE_CONFIGURATION)
async def did_change_configuration(ls: Server, params: t.DidChangeConfigurationParams) -> None:
    """The settings of the editor changed."""
    if not await ls.read_settings():
        ls.session.editor = read_editor_settings(params.settings)
        ls.session.by_folder.clear()
    ls.reconfigured()


@server.feature(t.WORKSPACE_DID_CHANGE_WATCHED_FILES)
def did_change_watched_files(ls: Server, params: t.DidChangeWatchedFilesParams) -> None:
    """Files changed on disk: configuration, or code that findings in open documents may depend on."""
    paths = [path for change in params.changes if (path := path_of(change.uri)) is not None]
    if any(os.path.basename(path) in CONFIGURATION for path in paths):
        ls.reconfigured()
    if code := [path for path in paths if path.endswith(SUFFIXES)]:
        ls.session.files_changed(code)


@server.feature(t.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
async def did_change_folders(ls: Server, params: t.DidChangeWorkspaceFoldersParams) -> None:
    """The client opened or closed folders: files may belong to others now."""
    await ls.read_settings()
    ls.reconfigured()
    for folder in params.event.added:
        if (path := path_of(folder.uri)) is not None:
            ls.session.in_background(ls.session.index(path))


def serve() -> None:
    """Answer the client at stdin and stdout until it says exit. Whatever else prints goes to stderr."""
    client = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    server.start_io(sys.stdin.buffer, client)
