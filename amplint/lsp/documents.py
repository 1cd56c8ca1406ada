"""The documents that the client has open: their text is the client's business until they are closed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import unquote

from lsprotocol import types as t
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import TextDocument, Workspace

from amplint.lsp.positions import Text


@dataclass(frozen=True, slots=True)
class OpenCell:
    """A cell of Python of a notebook as it is at one moment."""

    uri: str
    version: int | None
    text: Text


@dataclass(frozen=True, slots=True)
class Opened:
    """An open document, or a notebook, as it is at one moment."""

    version: int | None
    #: Of a notebook nothing: that is in its cells.
    text: Text
    #: The cells of a notebook; None for one that is no Python.
    cells: tuple[OpenCell | None, ...] | None = None

    @property
    def sources(self) -> tuple[str | None, ...] | None:
        """The texts of the cells of a notebook."""
        if self.cells is None:
            return None
        return tuple(cell.text.text if cell is not None else None for cell in self.cells)


class Document(TextDocument):
    """An open document; unlike pygls's own it counts rows as the protocol does."""

    @property
    def content(self) -> Text:
        """Its text with positions, made once for each version."""
        known: Text | None = getattr(self, "_content", None)
        if known is None or known.text is not self._source:
            known = self._content = Text(self.source, encoding_of(self.position_codec.encoding))
        return known

    @property
    def lines(self) -> tuple[str, ...]:
        """Rows with what ends them."""
        content = self.content
        ends = [*content.starts[1:], len(content.text)]
        return tuple(content.text[start:end] for start, end in zip(content.starts, ends, strict=True))

    def apply_change(self, change: t.TextDocumentContentChangeEvent) -> None:
        """Take over a change that the client made."""
        if isinstance(change, t.TextDocumentContentChangePartial):
            made = self.content.replaced(change.range, change.text)
            self._content, self._source = made, made.text
        else:
            self._source = change.text


class Documents(Workspace):
    """A workspace of `Document`s."""

    def _create_text_document(
        self,
        doc_uri: str,
        source: str | None = None,
        version: int | None = None,
        language_id: str | None = None,
    ) -> Document:
        return Document(
            doc_uri,
            source=source,
            version=version,
            language_id=language_id,
            sync_kind=self._sync_kind,
            position_codec=self._position_codec,
        )

    def open_document(self, uri: str) -> Document | None:
        """The open document (or cell) with a URI."""
        found = self.text_documents.get(unquote(uri))
        return found if isinstance(found, Document) else None

    def notebook(self, uri: str) -> t.NotebookDocument | None:
        """The open notebook with a URI, or the one that has the cell with this URI."""
        return self.get_notebook_document(notebook_uri=uri) or self.get_notebook_document(cell_uri=uri)

    def opened(self, uri: str) -> Opened | None:
        """A document or a notebook as it is now; None where it is not open."""
        notebook = self.get_notebook_document(notebook_uri=uri)
        if notebook is not None:
            encoding = encoding_of(self.position_encoding)
            return Opened(notebook.version, Text("", encoding), tuple(map(self._cell, notebook.cells)))
        document = self.open_document(uri)
        return Opened(document.version, document.content) if document is not None else None

    def _cell(self, cell: t.NotebookCell) -> OpenCell | None:
        document = self.open_document(cell.document)
        is_python = document is not None and document.language_id in (None, "python")
        if document is None or not is_python or cell.kind != t.NotebookCellKind.Code:
            return None
        return OpenCell(cell.document, document.version, document.content)


def encoding_of(encoding: t.PositionEncodingKind | str | None) -> str:
    """The name of the unit of columns; UTF-16 where nothing was agreed on."""
    return str(getattr(encoding, "value", encoding) or "utf-16")


def path_of(uri: str) -> str | None:
    """The absolute path of a file URI, None for other kinds of documents (unsaved ones, say)."""
    if not uri.startswith("file:"):
        return None
    found = to_fs_path(uri)
    return os.path.abspath(found) if found else None


def uri_of(path: str) -> str:
    """The URI of a path."""
    found = from_fs_path(os.path.abspath(path))
    assert found is not None
    return str(found)
