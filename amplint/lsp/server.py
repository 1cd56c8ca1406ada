"""The server: which request goes where. Nothing here parses or analyses."""

from __future__ import annotations

import os
import sys
from typing import Any

from lsprotocol import types as t
from pygls.lsp.server import LanguageServer

from amplint import __version__
from amplint.lsp import actions, worker
from amplint.lsp.analysis import NOW, WorkerDied
from amplint.lsp.documents import Document, Documents
from amplint.lsp.hover import finding_hover
from amplint.lsp.messages import Wanted
from amplint.lsp.results import Result
from amplint.lsp.session import Session
from amplint.lsp.settings import read_editor_settings


class Server(LanguageServer):
    """amplint for one client."""

    session: Session

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
        """Push a result, to clients that do not pull."""
        if not self.pulls:
            self.text_document_publish_diagnostics(
                t.PublishDiagnosticsParams(uri=uri, version=result.version, diagnostics=result.diagnostics)
            )

    def outdated(self) -> None:
        """Results of some documents are outdated: check these, or have the client ask for them."""
        if not self.pulls:
            for uri in self.session.open:
                self.session.check_soon(uri, 0)
            return
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.diagnostics and workspace.diagnostics.refresh_support:
            self.workspace_diagnostic_refresh(None)

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
    result = await ls.session.current(params.text_document.uri)
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
        uri = data["uri"]
        document = ls.session.documents.open_document(uri)
        if document is not None:
            params.edit = await rewrite(ls, uri, document, wanted(ls, data.get("rule")))
    return params


def wanted(ls: Server, rule: str | None) -> Wanted:
    """Which fixes "fix all" makes: those of a rule that somebody points at, or all that is safe."""
    if rule is not None:
        return Wanted(repairs=True, codes=frozenset({rule}))
    return Wanted(repairs=ls.session.editor.repair)


async def rewrite(ls: Server, uri: str, document: Document, which: Wanted) -> t.WorkspaceEdit | None:
    """The edit that makes some fixes; None where there is none to make."""
    version, text = document.version, document.content
    unsaved = ls.session.unsaved(uri, document)
    if unsaved is None:
        return None
    try:
        made = await ls.session.analysis.ask(NOW, worker.rewrite, unsaved, which)
    except WorkerDied:
        return None
    for problem in made.problems:
        ls.session.warn(problem)
    return actions.edit_of(uri, version, text, made)


@server.feature(t.TEXT_DOCUMENT_HOVER)
async def hover(ls: Server, params: t.HoverParams) -> t.Hover | None:
    """The client asks what there is to say of a place."""
    result = await ls.session.current(params.text_document.uri)
    if result is None:
        return None
    found = result.at(result.text.offset(params.position))
    if not found:
        return None
    contents = t.MarkupContent(t.MarkupKind.Markdown, finding_hover(found))
    return t.Hover(contents, result.text.range(found[0].span))


def serve() -> None:
    """Answer the client at stdin and stdout until it says exit. Whatever else prints goes to stderr."""
    client = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    server.start_io(sys.stdin.buffer, client)
