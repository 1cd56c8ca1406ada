"""A server for each module of tests, and a client that notes what it is told."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("pytest_lsp", reason="needs the extra `test`")

from lsprotocol import types as t
from pytest_lsp import LanguageClient
from pytest_lsp.client import make_test_lsp_client

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "from amplint.cli import main; main()", "lsp"]


class Editor:
    """A client with open documents of its own, as an editor has them."""

    def __init__(self, client: LanguageClient, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.versions: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.published: dict[str, list[t.PublishDiagnosticsParams]] = {}
        self.refreshes = 0
        self.edits: list[t.ApplyWorkspaceEditParams] = []
        self.registered: list[t.Registration] = []
        self._news = asyncio.Event()

        for name in (t.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS, t.WORKSPACE_DIAGNOSTIC_REFRESH):
            client.protocol.fm.features.pop(name)

        @client.feature(t.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: t.PublishDiagnosticsParams) -> None:
            self.published.setdefault(params.uri, []).append(params)
            self._news.set()

        @client.feature(t.WORKSPACE_DIAGNOSTIC_REFRESH)
        def refresh(params: None) -> None:
            self.refreshes += 1
            self._news.set()

        @client.feature(t.WORKSPACE_APPLY_EDIT)
        def apply(params: t.ApplyWorkspaceEditParams) -> t.ApplyWorkspaceEditResult:
            self.edits.append(params)
            return t.ApplyWorkspaceEditResult(applied=True)

        @client.feature(t.CLIENT_REGISTER_CAPABILITY)
        def register(params: t.RegistrationParams) -> None:
            self.registered.extend(params.registrations)
            self._news.set()

    async def start(self, capabilities: t.ClientCapabilities, **more: object) -> t.InitializeResult:
        """Start the server and say hello."""
        path = os.pathsep.join([str(ROOT), str(ROOT / "rules")])
        await self.client.start_io(*COMMAND, env={**os.environ, "PYTHONPATH": path}, cwd=str(self.folder))
        more.setdefault("workspace_folders", [t.WorkspaceFolder(self.folder.as_uri(), "project")])
        return await self.client.initialize_session(
            t.InitializeParams(capabilities=capabilities, root_uri=self.folder.as_uri(), **more)
        )

    def uri(self, name: str) -> str:
        """The URI of a file in the folder."""
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str) -> str:
        """Open a document; what is on disk does not matter. Gives its URI."""
        uri = self.uri(name)
        self.versions[uri], self.texts[uri] = 1, text
        self.client.text_document_did_open(
            t.DidOpenTextDocumentParams(t.TextDocumentItem(uri, "python", 1, text))
        )
        return uri

    def replace(self, uri: str, text: str) -> None:
        """Replace all of a document."""
        self.texts[uri] = text
        self._change(uri, t.TextDocumentContentChangeWholeDocument(text))

    def edit(self, uri: str, start: tuple[int, int], end: tuple[int, int], text: str) -> None:
        """Replace a range (of lines and columns as the client counts them) of a document."""
        self._change(
            uri, t.TextDocumentContentChangePartial(t.Range(t.Position(*start), t.Position(*end)), text)
        )

    def _change(self, uri: str, change: t.TextDocumentContentChangeEvent) -> None:
        self.versions[uri] += 1
        self.client.text_document_did_change(
            t.DidChangeTextDocumentParams(
                t.VersionedTextDocumentIdentifier(self.versions[uri], uri), [change]
            )
        )

    def close(self, uri: str) -> None:
        """Close a document."""
        self.client.text_document_did_close(t.DidCloseTextDocumentParams(t.TextDocumentIdentifier(uri)))

    async def pull(self, uri: str, previous: str | None = None) -> t.DocumentDiagnosticReport:
        """Ask for the diagnostics of a document."""
        return await self.client.text_document_diagnostic_async(
            t.DocumentDiagnosticParams(t.TextDocumentIdentifier(uri), previous_result_id=previous)
        )

    async def codes(self, uri: str) -> list[str]:
        """Codes of the diagnostics of a document, pulled."""
        return [str(d.code) for d in (await self.pull(uri)).items]

    async def until(self, condition, timeout: float = 60) -> None:
        """Wait until something has been told that makes a condition true."""

        async def wait() -> None:
            while not condition():
                self._news.clear()
                await self._news.wait()

        await asyncio.wait_for(wait(), timeout)

    async def pushed(self, uri: str, version: int | None = None) -> list[t.Diagnostic]:
        """The diagnostics pushed for a version of a document (its newest)."""
        wanted = self.versions[uri] if version is None else version

        def there() -> bool:
            return any(each.version == wanted for each in self.published.get(uri, []))

        await self.until(there)
        return list(next(p for p in reversed(self.published[uri]) if p.version == wanted).diagnostics)

    async def actions(
        self, uri: str, diagnostic: t.Diagnostic | None = None, only: list[str] | None = None
    ) -> list[t.CodeAction]:
        """The code actions at a diagnostic."""
        place = diagnostic.range if diagnostic else t.Range(t.Position(0, 0), t.Position(0, 0))
        found = await self.client.text_document_code_action_async(
            t.CodeActionParams(
                t.TextDocumentIdentifier(uri),
                place,
                t.CodeActionContext([diagnostic] if diagnostic else [], only=only),
            )
        )
        return list(found or [])

    async def hover(self, uri: str, line: int, column: int) -> str:
        """The text of a hover, "" for none."""
        found = await self.client.text_document_hover_async(
            t.HoverParams(t.TextDocumentIdentifier(uri), t.Position(line, column))
        )
        return found.contents.value if found else ""

    def applied(self, uri: str, edit: t.WorkspaceEdit | None) -> str:
        """The text of a document after an edit (the client counts in UTF-32)."""
        assert edit is not None and edit.document_changes is not None
        (change,) = edit.document_changes
        assert change.text_document.uri == uri
        assert change.text_document.version == self.versions[uri]
        return after(self.texts[uri], change.edits)

    async def stop(self) -> None:
        """End the server; a fatal error of it fails the test."""
        assert self.client.error is None, self.client.error
        await self.client.shutdown_session()
        await self.client.stop()


def after(text: str, edits: list[t.TextEdit]) -> str:
    """A text after edits whose columns are code points."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for edit in sorted(edits, key=lambda e: (e.range.start.line, e.range.start.character), reverse=True):
        start = starts[edit.range.start.line] + edit.range.start.character
        end = starts[edit.range.end.line] + edit.range.end.character
        text = text[:start] + edit.new_text + text[end:]
    return text


def capabilities(*, pull: bool = True, encodings: list[str] | None = None) -> t.ClientCapabilities:
    """What a client can do."""
    return t.ClientCapabilities(
        general=t.GeneralClientCapabilities(position_encodings=encodings or ["utf-32"]),
        text_document=t.TextDocumentClientCapabilities(
            diagnostic=t.DiagnosticClientCapabilities() if pull else None,
            publish_diagnostics=t.PublishDiagnosticsClientCapabilities(),
        ),
        workspace=t.WorkspaceClientCapabilities(
            diagnostics=t.DiagnosticWorkspaceClientCapabilities(refresh_support=True),
            configuration=False,
            workspace_folders=True,
            did_change_watched_files=t.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True),
        ),
        window=t.WindowClientCapabilities(work_done_progress=True),
    )


def new_editor(folder: Path) -> Editor:
    """An editor whose server has not been started."""
    return Editor(make_test_lsp_client(), folder)
