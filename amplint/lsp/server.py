"""The server: which request goes where. Nothing here parses or analyses."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

from lsprotocol import types as t

from amplint import __version__
from amplint.discover import SUFFIXES
from amplint.finding import Span
from amplint.lsp import actions, worker
from amplint.lsp.client import CONFIGURATION, Server
from amplint.lsp.documents import path_of
from amplint.lsp.hover import finding_hover
from amplint.lsp.messages import Wanted
from amplint.lsp.protocol import Protocol
from amplint.lsp.settings import read_editor_settings
from amplint.lsp.workspace import unheard

FIX_ALL = "amplint.fixAll"
IGNORE = "amplint.ignore"
CHECK_WORKSPACE = "amplint.checkWorkspace"
EXPLAIN_FLOW = "amplint.explainFlow"
SHOW_SETTINGS = "amplint.showSettings"

server = Server(
    "amplint",
    __version__,
    protocol_cls=Protocol,
    text_document_sync_kind=t.TextDocumentSyncKind.Incremental,
    notebook_document_sync=t.NotebookDocumentSyncOptions(
        [t.NotebookDocumentFilterWithCells(cells=[t.NotebookCellLanguage("python")])], save=True
    ),
)


@server.feature(t.INITIALIZE)
def initialize(ls: Server, params: t.InitializeParams) -> None:
    """The client says what it can do."""
    ls.begin(params)


@server.feature(t.SHUTDOWN)
def shutdown(ls: Server, params: None) -> None:
    """No more requests will come."""
    ls.has_said_goodbye = True
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
        ls.clear(uri)


@server.feature(t.NOTEBOOK_DOCUMENT_DID_OPEN)
def did_open_notebook(ls: Server, params: t.DidOpenNotebookDocumentParams) -> None:
    """A notebook was opened."""
    ls.changed(params.notebook_document.uri, opened=True)


@server.feature(t.NOTEBOOK_DOCUMENT_DID_CHANGE)
def did_change_notebook(ls: Server, params: t.DidChangeNotebookDocumentParams) -> None:
    """Cells of a notebook were changed, added, removed or moved (or run, which does not matter)."""
    cells = params.change.cells
    if cells is None:
        return
    for gone in (cells.structure.did_close or []) if cells.structure is not None else []:
        if not ls.session.is_notebook(gone.uri):
            ls.clear(gone.uri)
    if cells.structure is not None or cells.text_content:
        ls.changed(params.notebook_document.uri)


@server.feature(t.NOTEBOOK_DOCUMENT_DID_SAVE)
def did_save_notebook(ls: Server, params: t.DidSaveNotebookDocumentParams) -> None:
    """A notebook was saved: nothing is to be waited for."""
    ls.session.check_soon(params.notebook_document.uri, 0)


@server.feature(t.NOTEBOOK_DOCUMENT_DID_CLOSE)
def did_close_notebook(ls: Server, params: t.DidCloseNotebookDocumentParams) -> None:
    """A notebook was closed."""
    ls.session.close(params.notebook_document.uri)
    for cell in params.cell_text_documents:
        ls.clear(cell.uri)


@server.feature(
    t.TEXT_DOCUMENT_DIAGNOSTIC,
    t.DiagnosticOptions(inter_file_dependencies=True, workspace_diagnostics=True, identifier="amplint"),
)
async def document_diagnostic(
    ls: Server, params: t.DocumentDiagnosticParams
) -> t.RelatedFullDocumentDiagnosticReport | t.RelatedUnchangedDocumentDiagnosticReport:
    """The client asks for the diagnostics of a document; those of cells are pushed."""
    if ls.session.is_notebook(params.text_document.uri):
        return t.RelatedFullDocumentDiagnosticReport(items=[])
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
    found = result.within(start, end)
    made = list(actions.actions(uri, result, found, params.context.only))
    if not ls.resolves:
        for each in made:
            if each.edit is None:
                each.command = as_command(ls, each)
    return made


def as_command(ls: Server, action: t.CodeAction) -> t.Command:
    """What a client runs that cannot ask for the edit of an action."""
    data: Any = action.data
    if "ignore" in data:
        arguments = [data["uri"], data["ignore"], ls.session.editor.ignore_reason]
        return t.Command(action.title, IGNORE, arguments=arguments)
    return t.Command(action.title, FIX_ALL, arguments=[data["uri"], data.get("rule")])


@server.feature(t.CODE_ACTION_RESOLVE)
async def resolve(ls: Server, params: t.CodeAction) -> t.CodeAction:
    """The client wants the edit of an action."""
    data: Any = params.data
    if params.edit is None and isinstance(data, dict) and "uri" in data:
        if not all(isinstance(value, str) for value in data.values()):
            return params  # no action of this server
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
    said = await ls.ask(worker.describe, result, result.inward(offset))
    if said is None:
        return None
    return t.Hover(t.MarkupContent(t.MarkupKind.Markdown, said.text), result.outward(said.span))


@server.feature(t.TEXT_DOCUMENT_INLAY_HINT, t.InlayHintOptions(resolve_provider=False))
async def inlay_hint(ls: Server, params: t.InlayHintParams) -> list[t.InlayHint]:
    """The client asks for inlay hints, which are off unless somebody wants them."""
    await ls.session.settle()
    if not ls.session.editor.inlay_hints:
        return []
    result = await ls.session.current(params.text_document.uri)
    if result is None or result.broken:
        return []
    text = result.text
    within = Span(*(result.inward(text.offset(each)) for each in (params.range.start, params.range.end)))
    return [
        t.InlayHint(
            position=place.end,
            label=each.text,
            kind=t.InlayHintKind.Type,
            tooltip=t.MarkupContent(t.MarkupKind.Markdown, each.detail) if each.detail else None,
            padding_left=True,
        )
        for each in await ls.ask(worker.hints, result, within) or []
        if (place := result.outward(each.span)) is not None
    ]


@server.feature(t.TEXT_DOCUMENT_CODE_LENS, t.CodeLensOptions(resolve_provider=False))
async def code_lens(ls: Server, params: t.CodeLensParams) -> list[t.CodeLens]:
    """The client asks for code lenses, which are off unless somebody wants them."""
    uri = params.text_document.uri
    await ls.session.settle()
    if not ls.session.editor.code_lens:
        return []
    result = await ls.session.current(uri)
    if result is None or result.broken:
        return []
    made = []
    for each in await ls.ask(worker.lenses, result) or []:
        place = result.outward(each.span)
        if place is None:
            continue
        command = t.Command(
            each.text, EXPLAIN_FLOW, arguments=[uri, place.start.line], tooltip=each.detail or None
        )
        made.append(t.CodeLens(place, command))
    return made


# -- commands --------------------------------------------------------------------------------------------------


@server.command(FIX_ALL)
async def fix_all(ls: Server, uri: str, *rule: str | None) -> bool:
    """Fix a document, of one rule everything or of all rules what is safe; whether the client did it."""
    only = rule[0] if rule else None  # pygls demands all parameters of a command but these
    return await ls.apply("amplint: fix all", uri, partial(worker.rewrite, wanted=wanted(ls, only)))


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
    ls.show_closed(
        {
            uri: items
            for uri, _, items in found
            if ls.session.has_result(uri) is None and not ls.session.is_notebook(uri)
        }
    )
    return {"files": len(found), "findings": sum(len(items) for _, _, items in found)}


@server.command(EXPLAIN_FLOW)
async def explain_flow(ls: Server, uri: str, line: int) -> str | None:
    """What the analyses believe at a line (counted from 0), in Markdown; it is logged, too."""
    result = await ls.session.current(uri)
    if result is None:
        return None
    row = result.in_cell.cell.offset + line + 1 if result.in_cell is not None else line + 1
    text = await ls.ask(worker.explain, result, row)
    if text is not None:
        ls.window_log_message(t.LogMessageParams(t.MessageType.Info, f"line {line + 1}:\n{text}"))
    return text


@server.command(SHOW_SETTINGS)
async def show_settings(ls: Server, uri: str) -> dict[str, Any] | None:
    """The settings in force for a document, by their names in a configuration file."""
    notebook = ls.session.documents.notebook(uri)
    uri = notebook.uri if notebook is not None else uri
    opened = ls.session.documents.opened(uri)
    unsaved = ls.session.unsaved(uri, opened) if opened is not None else None
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
        if ls.session.is_notebook(uri):  # these are pushed
            continue
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
    ls.session.settled.set()
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


@server.feature(t.TEXT_DOCUMENT_DID_SAVE)
def did_save(ls: Server, params: t.DidSaveTextDocumentParams) -> None:
    """A document was saved: a client that watches nothing does not tell when its configuration changes."""
    if not ls.watches and ls.session.has_new_configuration():
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


def serve() -> bool:
    """Answer the client at stdin and stdout until it says exit, or goes away; whether it said goodbye before.

    Whatever else prints goes to stderr.
    """
    client = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        server.start_io(sys.stdin.buffer, client)
    finally:
        server.end()
    return server.has_said_goodbye
