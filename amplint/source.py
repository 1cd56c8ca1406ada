"""Bytes to text and back: encoding, BOM, newlines, places in the text, and atomic writes.

The text of a `Source` is the file decoded and nothing else: newlines are not translated, so that an offset
into it means the same thing for every part of amplint and the bytes outside an edit come back unchanged.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from amplint.finding import Position

if TYPE_CHECKING:
    from amplint.notebook.cells import Cells

#: What the names of notebooks end in.
NOTEBOOK = ".ipynb"

#: The only row separators; `str.splitlines` also splits at form feeds, U+0085, U+2028 and more.
_NEWLINE = re.compile(r"\r\n?|\n")
_NEWLINE_BYTES = re.compile(rb"\r\n?|\n")

#: PEP 263; the second row counts only when the first one is blank or a comment.
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-_.a-zA-Z0-9]+)")
_BLANK_OR_COMMENT = re.compile(rb"^[ \t\f]*(?:#.*)?$")

#: Encodings in which decoding and encoding again always gives the same bytes.
_LOSSLESS = frozenset({"utf-8", "ascii", "iso8859-1"})


class SourceError(Exception):
    """A file that cannot be read, decoded or written; the message is one line without the file's name."""

    def __init__(self, filename: str, message: str, position: Position = Position(1, 1)) -> None:  # noqa: B008
        """Keep `filename` (as shown to the user), `message` and the 1-based `position` it concerns."""
        super().__init__(filename, message, position)
        self.filename = filename
        self.message = message
        self.position = position

    def __str__(self) -> str:
        """Render as `filename: message`."""
        return f"{self.filename}: {self.message}"


class FileChanged(SourceError):
    """The file on disk is no longer the one that was read; it was not overwritten."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is for its reader: a row and a column of a file, or of a cell of a notebook."""

    cell: int | None
    row: int
    column: int

    def __str__(self) -> str:
        """`4:1`, or `cell 3:4:1`."""
        return f"{self.line}:{self.column}"

    @property
    def line(self) -> str:
        """`4`, or `cell 3:4`."""
        return f"{self.row}" if self.cell is None else f"cell {self.cell}:{self.row}"


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its raw bytes and the text they mean.

    Offsets count code points of `text`, from 0; positions are 1-based rows and columns. The text of a notebook is the
    module that its cells make.
    """

    #: The name shown to the user.
    filename: str
    #: Where the file lies; None for standard input and for text that never was a file.
    path: Path | None
    data: bytes = field(repr=False)
    #: Decoded, newlines untouched, BOM removed.
    text: str = field(repr=False)
    #: The canonical name of the Python codec, such as `utf-8` or `iso8859-1`.
    encoding: str = "utf-8"
    #: The byte order mark the file begins with: UTF-8's, or empty.
    bom: bytes = b""
    #: The cells that `text` is made of; None for what is no notebook.
    cells: Cells | None = field(default=None, repr=False)
    _line_starts: tuple[int, ...] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def line_starts(self) -> tuple[int, ...]:
        """Offsets at which rows begin; after a final newline there is one last, empty row."""
        starts = self._line_starts
        if starts is None:
            starts = (0, *(match.end() for match in _NEWLINE.finditer(self.text)))
            object.__setattr__(self, "_line_starts", starts)
        return starts

    @property
    def newline(self) -> str:
        """The newline that most rows end in; a newline character where there is none."""
        crlf = self.text.count("\r\n")
        counts = {"\n": self.text.count("\n") - crlf, "\r\n": crlf, "\r": self.text.count("\r") - crlf}
        return max(counts, key=counts.__getitem__)

    def position(self, offset: int) -> Position:
        """Row and column of an offset; the end of the text has one too. IndexError outside the text."""
        if not 0 <= offset <= len(self.text):
            raise IndexError(f"offset {offset} is outside {self.filename}")
        row = bisect_right(self.line_starts, offset)
        return Position(row, offset - self.line_starts[row - 1] + 1)

    def offset(self, position: Position) -> int:
        """Offset of a row and column, the inverse of `position`. IndexError outside the text."""
        start, end = self._row_bounds(position.row)
        last = end - 1 if position.row < len(self.line_starts) else end
        offset = start + position.column - 1
        if not start <= offset <= last:
            raise IndexError(f"row {position.row} of {self.filename} has no column {position.column}")
        return offset

    def place(self, position: Position, start: Position | None = None) -> Place:
        """Where a position is for the reader; `start` is where the span that it ends begins."""
        cell = self.cells.at((start or position).row) if self.cells is not None else None
        if cell is None:
            return Place(None, position.row, position.column)
        return Place(cell.number, max(1, position.row - cell.offset), position.column)

    def shown_row(self, row: int) -> str:
        """A row in a sentence, behind the word line: `12`, or `4 of cell 3`."""
        place = self.place(Position(row, 1))
        return f"{place.row}" if place.cell is None else f"{place.row} of cell {place.cell}"

    def file_rows(self, first: int, last: int) -> tuple[int, int]:
        """First and last row in the file for such rows of the text; they differ for notebooks."""
        cell = self.cells.at(first) if self.cells is not None else None
        if self.cells is None or cell is None:
            return first, last
        rows = self.cells.file_rows(cell.number)
        if not rows:
            return 1, 1
        begin, end = (max(0, min(row - cell.offset, len(rows)) - 1) for row in (first, last))
        return rows[begin][0], rows[max(begin, end)][1]

    def line_text(self, row: int) -> str:
        """Text of a 1-based row without its newline. IndexError when there is no such row."""
        start, end = self._row_bounds(row)
        return self.text[start:end].rstrip("\r\n")

    def encode(self, text: str) -> bytes:
        """Bytes of a new text for this file, in its encoding and with its BOM.

        SourceError when the encoding has no bytes for the text, or when it is one in which not even the
        present text comes back as it was (several byte sequences mean one character). For a notebook, when the
        text is one that its cells cannot make.
        """
        if self.cells is not None:
            return self._with_cells(self._cells_with(text)).data
        if self.encoding not in _LOSSLESS and self._encoded(self.text) != self.data:
            raise SourceError(self.filename, f"cannot be rewritten: {self.encoding} does not round-trip here")
        return self._encoded(text)

    def rewritten(self, text: str) -> Source:
        """This file with a new text.

        SourceError when `encode` raises it, or when the new text would be read in another encoding. That of a
        notebook may differ from `text` where rows are no Python.
        """
        if self.cells is not None:
            return self._with_cells(self._cells_with(text))
        data = self.encode(text)
        if _reads_as(self.data, self.text) and not _reads_as(data, text):
            raise SourceError(
                self.filename, "cannot be rewritten: the new text would be read in another encoding"
            )
        return replace(self, data=data, text=text)

    def _cells_with(self, text: str) -> Cells:
        """The cells of this notebook with a new text of their module."""
        from amplint.notebook.cells import NotebookError

        assert self.cells is not None
        try:
            return self.cells.rewritten(text)
        except NotebookError as error:
            raise SourceError(self.filename, f"cannot be rewritten: {error.message}") from error

    def _with_cells(self, cells: Cells) -> Source:
        """This notebook with other cells."""
        data = self.bom + (cells.raw or cells.text).encode(self.encoding, "surrogatepass")
        return replace(self, data=data, text=cells.text, cells=cells)

    def _encoded(self, text: str) -> bytes:
        try:
            return self.bom + text.encode(self.encoding)
        except UnicodeError as error:
            raise SourceError(
                self.filename, f"the new text cannot be encoded as {self.encoding} ({_reason(error)})"
            ) from error

    def _row_bounds(self, row: int) -> tuple[int, int]:
        """Offsets of the start of a row and of the next one (of the end of the text for the last row)."""
        starts = self.line_starts
        if not 1 <= row <= len(starts):
            raise IndexError(f"{self.filename} has no row {row}")
        return starts[row - 1], starts[row] if row < len(starts) else len(self.text)


def read_source(path: Path, filename: str) -> Source:
    """Read and decode a file that is shown to the user as `filename`.

    SourceError when it is missing, not a regular file (a FIFO would block for ever), unreadable or no
    Python text.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SourceError(filename, "not a regular file")
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise SourceError(filename, "does not exist") from error
    except (OSError, ValueError) as error:
        raise SourceError(filename, f"cannot be read: {_reason(error)}") from error
    return source_from_bytes(data, filename, path)


def source_from_bytes(data: bytes, filename: str, path: Path | None = None) -> Source:
    """Decode the bytes of a Python file by its BOM or coding cookie (PEP 263), else as UTF-8; of a notebook, by name.

    SourceError when they are binary, the cookie names no text encoding or contradicts the BOM, or the
    bytes are not in the encoding; and when they are no notebook.
    """
    if filename.endswith(NOTEBOOK) or (path is not None and path.suffix == NOTEBOOK):
        return _notebook(data, filename, path)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceError(filename, "not a Python text file (UTF-16)")
    if (nul := data.find(b"\0")) >= 0:
        raise SourceError(filename, "not a Python text file (contains NUL bytes)", _byte_position(data, nul))
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    body = data[len(bom) :]
    encoding = _declared_encoding(body, filename, bool(bom))
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        message = f"not a Python text file (not {encoding}: {error.reason})"
        raise SourceError(filename, message, _byte_position(body, error.start)) from error
    except ValueError as error:
        raise SourceError(filename, f"not a Python text file (not {encoding})") from error
    return Source(filename, path, data, text, encoding, bom)


def source_from_cells(sources: Sequence[str | None], filename: str, path: Path | None = None) -> Source:
    """The module that the cells of a notebook make, given their sources; None stands for a cell that is no Python.

    Its bytes are those of the module.
    """
    from amplint.notebook.cells import joined

    cells = joined(sources)
    return Source(filename, path, cells.text.encode("utf-8", "surrogatepass"), cells.text, cells=cells)


def _notebook(data: bytes, filename: str, path: Path | None) -> Source:
    from amplint.notebook.cells import NotebookError
    from amplint.notebook.document import read_notebook

    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceError(filename, "not a notebook (UTF-16)")
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        cells = read_notebook(data[len(bom) :].decode("utf-8"))
    except UnicodeDecodeError as error:
        message = f"not a notebook (not utf-8: {error.reason})"
        raise SourceError(filename, message, _byte_position(data[len(bom) :], error.start)) from error
    except NotebookError as error:
        raise SourceError(filename, error.message, error.position) from error
    return Source(filename, path, data, cells.text, bom=bom, cells=cells)


def _reads_as(data: bytes, text: str) -> bool:
    """Whether the bytes of a file mean this text; those of a text that never was a file need not."""
    try:
        return source_from_bytes(data, "").text == text
    except SourceError:
        return False


def source_from_text(text: str, filename: str) -> Source:
    """Wrap text that is decoded already: its encoding is UTF-8, whatever a coding cookie in it says.

    SourceError when it contains NUL characters. Lone surrogates are kept. Under the name of a notebook, it is one.
    """
    if filename.endswith(NOTEBOOK):
        return _notebook(text.encode("utf-8", "surrogatepass"), filename, None)
    if "\0" in text:
        nul = text.encode("utf-8", "surrogatepass").find(b"\0")
        position = _byte_position(text.encode("utf-8", "replace"), nul)
        raise SourceError(filename, "not a Python text file (contains NUL characters)", position)
    bom = codecs.BOM_UTF8 if text.startswith("\ufeff") else b""
    return Source(filename, None, text.encode("utf-8", "surrogatepass"), text.removeprefix("\ufeff"), bom=bom)


def write_atomic(source: Source, new_text: str) -> None:
    """Replace the file a source was read from by `new_text`: either all of it is written, or nothing.

    A temporary file in the same folder gets the bytes, the mode and, where permitted, the owner, and is
    renamed over the file that `source.path` points to (a symbolic link stays one; other hard links keep
    the old content). A text that is the same already is not written.

    FileChanged when the file's bytes are not `source.data` any more; SourceError when the text cannot be
    encoded or written; ValueError when the source has no path.
    """
    if source.path is None:
        raise ValueError(f"{source.filename} was not read from a file")
    data = source.encode(new_text)
    if data == source.data:
        return
    target = Path(os.path.realpath(source.path))
    try:
        status = _unchanged(source, target)
        if not os.access(target, os.W_OK):
            raise SourceError(source.filename, "cannot be written: it is read-only")
        temporary = _temporary_name(target)
        try:
            _write_temporary(temporary, data, status)
            _unchanged(source, target)
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise SourceError(source.filename, f"cannot be written: {_reason(error)}") from error
    _sync_folder(target.parent)


def write_file(path: Path, data: bytes) -> None:
    """Write a file of amplint's own: either all of it, or nothing; what was there before is replaced.

    Links are followed and the mode of an existing file is kept. What is no regular file, such as /dev/stdout, cannot
    be replaced and is written to. SourceError when the file cannot be written.
    """
    try:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(path).st_mode):
                with open(path, "wb") as file:
                    file.write(data)
                return
        target = Path(os.path.realpath(path))
        status = _status(target)
        if status is not None and not os.access(target, os.W_OK):
            raise SourceError(str(path), "cannot be written: it is read-only")
        temporary = _temporary_name(target)
        try:
            _write_temporary(temporary, data, status)
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except (OSError, ValueError) as error:
        raise SourceError(str(path), f"cannot be written: {_reason(error)}") from error


def _status(target: Path) -> os.stat_result | None:
    try:
        return os.stat(target)
    except FileNotFoundError:
        return None


def _unchanged(source: Source, target: Path) -> os.stat_result:
    """Status of the file on disk; FileChanged unless it still holds the bytes that were read."""
    try:
        status = os.stat(target)
        same = stat.S_ISREG(status.st_mode) and target.read_bytes() == source.data
    except FileNotFoundError as error:
        raise FileChanged(source.filename, "was removed since it was read; not written") from error
    if not same:
        raise FileChanged(source.filename, "was changed since it was read; not overwritten")
    return status


def _temporary_name(target: Path) -> Path:
    """A fresh name beside the target; independent of its name, which may be as long as names can be."""
    return target.with_name(f".amplint-{os.getpid()}-{os.urandom(6).hex()}.tmp")


def _write_temporary(path: Path, data: bytes, status: os.stat_result | None) -> None:
    """Write a new file, with the owner and mode of the one that it is to replace if there is one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags, 0o666 if status is None else 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if status is not None and hasattr(os, "fchown"):
            for owner, group in ((-1, status.st_gid), (status.st_uid, -1)):
                with suppress(PermissionError):
                    os.fchown(descriptor, owner, group)
        if status is not None:
            os.chmod(path, stat.S_IMODE(status.st_mode))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Make the rename survive a power cut, on systems that can sync a folder."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _declared_encoding(body: bytes, filename: str, has_bom: bool) -> str:
    """Canonical name of the encoding that the first two rows declare; `utf-8` when they declare none."""
    position = Position(1, 1)
    start = 0
    for row in (1, 2):
        newline = _NEWLINE_BYTES.search(body, start)
        line = body[start : newline.start() if newline else len(body)]
        if match := _COOKIE.match(line):
            name = match[1].decode("ascii")
            position = Position(row, match.start(1) + 1)
            break
        if newline is None or not _BLANK_OR_COMMENT.match(line):
            return "utf-8"
        start = newline.end()
    else:
        return "utf-8"
    encoding = _codec_name(name)
    if encoding is None:
        raise SourceError(filename, f"unknown encoding in the coding cookie: {name}", position)
    if has_bom and encoding != "utf-8":
        raise SourceError(
            filename, f"the coding cookie says {name}, but the file begins with a UTF-8 BOM", position
        )
    return encoding


def _codec_name(name: str) -> str | None:
    """Canonical name of a text encoding, None for an unknown one and for bytes transforms such as rot13."""
    if re.match(r"utf[-_]8(?![0-9])", name, re.IGNORECASE):
        return "utf-8"  # editors write utf-8-unix and the like; utf-8-sig must not add a second BOM
    base = re.sub(r"[-_](?:unix|dos|mac)$", "", name, flags=re.IGNORECASE)
    for candidate in (name, base):
        try:
            if b"coding".decode(candidate) == "coding":  # LookupError for what is no text encoding
                return codecs.lookup(candidate).name
        except (LookupError, ValueError):
            continue
    return None


def _byte_position(data: bytes, index: int) -> Position:
    """Row and column of a byte, as far as the bytes before it can be read as UTF-8."""
    start = 0
    row = 1
    for newline in _NEWLINE_BYTES.finditer(data, 0, index):
        row, start = row + 1, newline.end()
    return Position(row, len(data[start:index].decode("utf-8", "replace")) + 1)


def _reason(error: Exception) -> str:
    """One line that says what went wrong, without the path an OSError repeats."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, UnicodeEncodeError):
        return f"{error.reason}: {error.object[error.start : error.start + 1]!a}"
    return " ".join(str(error).split()) or type(error).__name__
