"""Cells to one module and back.

The module has the rows of the cells in their order. Before each cell but the first stands a row of its own, so that an
edit at the end of one cell is not one at the beginning of the next. A magic is replaced by a call that binds the same
names, over as many rows; so is all of a cell that cannot be parsed. The rows that are not the user's end in a comment
that says which they are: `#%%% 3` before cell 3, `#%%% 3.2` for its second magic. No cell has `#%%%` in it; where one
does, they have more percent signs.
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from amplint.finding import Position
from amplint.notebook.magics import cell_magics, find, split_rows

#: What stands for something that is not known.
_CALL = "get_ipython("
_TIMED = re.compile(r"([ \t]*)%time(?=[ \t]+[^\s-])")
#: As long as `%time`, so that columns stay.
_IF = "if 1:"
_TOO_DEEP = "nested too deeply to be analysed"


class NotebookError(Exception):
    """A notebook that cannot be read or changed; the message is one line."""

    def __init__(self, message: str, position: Position = Position(1, 1)) -> None:  # noqa: B008
        """Keep `message` and the place in the file that it is about."""
        super().__init__(message)
        self.message = message
        self.position = position


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a cell cannot be parsed; the position is one in the module."""

    message: str
    position: Position


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell in the module."""

    #: From 1; every cell of the notebook counts, those of text too.
    number: int
    source: str = field(repr=False)
    #: The row of the module before its first one.
    offset: int
    #: Rows of its own in the module.
    rows: int
    #: Whether a row that is not the user's stands before it.
    has_mark: bool = True
    #: What stands in the module for rows that are no Python: (those rows, with their newlines; what stands there).
    replaced: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = field(default=(), repr=False)
    #: How many of them are cell magics, which have to stay at its top.
    magics: int = 0
    #: Its rows are indented, all of them.
    is_indented: bool = False
    is_broken: bool = False

    @property
    def ends_open(self) -> bool:
        """Whether its last row has no newline, and so got one in the module."""
        return not self.source.endswith(("\n", "\r"))


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit in the terms of one cell: rows and columns of its own source."""

    cell: int
    start: Position
    end: Position
    content: str


@dataclass(frozen=True)
class Cells:
    """The module that the cells of a notebook make, and where each of its rows comes from."""

    #: The source of each cell; None for what is no Python of this notebook.
    sources: tuple[str | None, ...] = field(repr=False)
    text: str = field(repr=False)
    #: Those that are in the module, in order.
    cells: tuple[Cell, ...] = ()
    problems: tuple[Problem, ...] = ()
    #: How the comments begin that are not the user's.
    fence: str = "#%%%"
    newline: str = "\n"
    #: The file that they come from, "" where they came as texts.
    raw: str = field(default="", repr=False)

    def at(self, row: int) -> Cell | None:
        """The cell that a row of the module is in; the row behind the last of a cell counts as its own.

        None where the notebook has no Python at all.
        """
        index = bisect_right(self.cells, row - 1, key=lambda cell: cell.offset)
        return self.cells[max(0, index - 1)] if self.cells else None

    def row(self, number: int, row: int) -> int | None:
        """The row of the module for a row of the cell with this number; None where there is none."""
        cell = next((cell for cell in self.cells if cell.number == number), None)
        return cell.offset + row if cell is not None and 1 <= row <= cell.rows else None

    def file_rows(self, number: int) -> list[tuple[int, int]]:
        """First and last row of the file for each row of a cell; empty where there is no file."""
        from amplint.notebook.document import rows_in_file

        return rows_in_file(self.raw, number) if self.raw else []

    def edit(self, start: Position, end: Position, content: str) -> Edit | None:
        """An edit of the module as one of a cell; None when it is about more than one."""
        cell = self.at(start.row)
        if cell is None or end.row > cell.offset + cell.rows + (end.column == 1):
            return None
        rows = split_rows(cell.source)
        last = Position(len(rows), len(rows[-1][0]) + 1)
        first = Position(max(1, start.row - cell.offset), start.column if start.row > cell.offset else 1)
        behind = Position(max(1, end.row - cell.offset), end.column if end.row > cell.offset else 1)
        if first > last and cell.ends_open and cell.source:  # behind a row without a newline
            content = self.newline + content.removesuffix("\n").removesuffix("\r")
        elif behind > last and cell.ends_open and first > Position(1, 1) and not content:
            first = Position(first.row - 1, len(rows[first.row - 2][0]) + 1) if first.column == 1 else first
        elif behind > last and cell.ends_open:
            content = content.removesuffix("\n").removesuffix("\r")
        return Edit(cell.number, min(first, last), min(behind, last), content)

    def split(self, text: str) -> dict[int, str]:
        """The cells whose source is another one in a new text of the module, by number.

        NotebookError when rows that are not the user's were changed.
        """
        changed = {}
        for cell, rows in zip(self.cells, self._parts(text), strict=True):
            source = self._restored(cell, rows)
            if cell.magics and not _has_body(source) and _has_body(cell.source):
                raise NotebookError(f"nothing would be left below the magic of cell {cell.number}")
            if source != cell.source:
                changed[cell.number] = source
        return changed

    def rewritten(self, text: str) -> Cells:
        """The notebook with a new text of its module. NotebookError as for `split`."""
        changed = self.split(text)
        sources = [changed.get(number, source) for number, source in enumerate(self.sources, 1)]
        raw = self.raw
        if raw:
            from amplint.notebook.document import spliced

            raw = spliced(raw, changed)
        return joined(sources, fence=self.fence, newline=self.newline, raw=raw)

    def _parts(self, text: str) -> Iterator[list[tuple[str, str]]]:
        """The rows of each cell in a new text."""
        rows = split_rows(text)
        mark = re.compile(rf"(?:pass|{_IF})  {re.escape(self.fence)} (\d+)")
        expected = iter(self.cells)
        part: list[tuple[str, str]] = []
        cell = next(expected, None)
        if cell is not None and cell.has_mark:
            if not rows or (match := mark.fullmatch(rows[0][0])) is None or int(match[1]) != cell.number:
                raise NotebookError(
                    f"an edit would stand before cell {cell.number}, all of which is indented"
                )
            del rows[0]
        for row in rows:
            match = mark.fullmatch(row[0])
            if match is None:
                part.append(row)
                continue
            cell = next(expected, None)
            if cell is None or int(match[1]) != cell.number:
                break
            yield part
            part = []
        else:
            if next(expected, None) is None:
                if self.cells:
                    yield part
                    return
                if not text:
                    return
        raise NotebookError("an edit would reach over the end of a cell")

    def _restored(self, cell: Cell, rows: list[tuple[str, str]]) -> str:
        """The source of a cell, of which these are the rows in the module."""
        mark = re.compile(rf"([ \t\f]*)(.*?)  {re.escape(self.fence)} {cell.number}\.(\d+)(.*)", re.DOTALL)
        wanted = [
            (code, row, index)
            for old, new in cell.replaced
            for index, (code, row) in enumerate(zip(new, old, strict=True))
        ]
        found: list[str] = []
        magics_end = 0
        taken = 0
        for text, newline in rows:
            match = mark.fullmatch(text)
            if match is None:
                found.append(text + newline)
                continue
            if taken >= len(wanted) or int(match[3]) != taken + 1:
                raise NotebookError(f"an edit would change a magic in cell {cell.number}")
            code, old, index = wanted[taken]
            taken += 1
            if code == _IF:
                restored = _timed(match)
            elif match[2] != code.strip(" \t\f") or match[4]:
                restored = None
            else:  # its indentation may be another one
                restored = old if index or cell.is_broken else match[1] + old.lstrip(" \t\f")
            if restored is None:
                raise NotebookError(f"an edit would change a magic in cell {cell.number}")
            found.append(restored + newline)
            magics_end = len(found) if taken <= cell.magics else magics_end
        if taken != len(wanted):
            raise NotebookError(f"an edit would change a magic in cell {cell.number}")
        if cell.magics:
            found = _magics_first(found, magics_end)
        source = "".join(found)
        if cell.ends_open:
            source = re.sub(r"[\r\n]+\Z", "", source)
        return source


def _has_body(source: str) -> bool:
    """Whether a cell has more than its cell magics, most of which are errors by themselves."""
    return any(row.strip() and not row.lstrip().startswith("%%") for row, _ in split_rows(source))


def _timed(match: re.Match[str]) -> str | None:
    """A row with `%time`, whose code may be another one."""
    return f"{match[1]}%time{match[2][len(_IF) :]}{match[4]}" if match[2].startswith(_IF) else None


def _magics_first(rows: list[str], end: int) -> list[str]:
    """The rows of a cell with its cell magics, which end before `end`, at the top."""
    magics = [row for row in rows[:end] if not row.strip() or row.lstrip().startswith("%%")]
    return magics + [row for row in rows[:end] if row not in magics] + rows[end:]


def joined(sources: Sequence[str | None], *, fence: str = "", newline: str = "", raw: str = "") -> Cells:
    """The module that the sources of cells make; None stands for a cell that is no Python.

    Cells whose first row is the magic of something else, such as `%%bash`, are found here.
    """
    given = [source for source in sources if source is not None]
    if not newline:
        crlf = sum(source.count("\r\n") for source in given)
        newline = "\r\n" if crlf > sum(source.count("\n") for source in given) - crlf else "\n"
    if not fence:
        fence = "#%%%"
        while any(fence in source for source in given):
            fence += "%"
    maker = _Maker(fence, newline)
    for number, source in enumerate(sources, 1):
        if source is not None:
            maker.add(number, source)
    return Cells(
        tuple(sources), "".join(maker.text), tuple(maker.cells), tuple(maker.problems), fence, newline, raw
    )


class _Maker:
    """A module while it is made."""

    def __init__(self, fence: str, newline: str) -> None:
        self.text: list[str] = []
        self.cells: list[Cell] = []
        self.problems: list[Problem] = []
        self._fence = fence
        self._newline = newline
        self._row = 0

    def add(self, number: int, source: str) -> None:
        """Put a cell at the end of the module, unless it holds something else than Python."""
        rows = [(text, newline or self._newline) for text, newline in split_rows(source)]
        if len(rows) > 1 and not rows[-1][0]:
            del rows[-1]
        texts = [text for text, _ in rows]
        heads = cell_magics(texts)
        if heads is None:
            return
        cell = Cell(number, source, 0, len(rows), magics=len(heads))
        problem = _problem(source) if not heads else Problem("", Position(1, 1))
        if problem is not None:
            cell, texts, problem = self._with_magics(cell, texts, heads)
        if problem is not None and (first := next((text for text in texts if text.strip()), "")[:1]) in (
            " ",
            "\t",
        ):
            indented = _problem("\n".join([_IF, *texts]))
            if first and indented is None:
                cell, problem = replace(cell, is_indented=True), None
        if problem is not None:
            cell, texts = self._without_code(cell, [text for text, _ in rows])
        self._append(cell, texts, [newline for _, newline in rows], problem)

    def _with_magics(
        self, cell: Cell, rows: list[str], heads: list[tuple[int, str]]
    ) -> tuple[Cell, list[str], Problem | None]:
        """The cell with what stands for its magics."""
        rows = list(rows)
        replaced: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        begin = 0
        for row, name in heads:
            before = f"{name} = " if name else ""
            self._replace(cell.number, rows, row, 1, before, replaced)
            begin = row + 1
        for magic in list(find(rows[begin:])):
            first = begin + magic.first
            timed = _TIMED.match(rows[first])
            if timed is not None and magic.count == 1:
                code = timed[1] + _IF + rows[first][timed.end() :]
                if _problem(code.strip()) is None:
                    index = sum(len(old) for old, _ in replaced) + 1
                    replaced.append(((rows[first],), (_IF,)))
                    rows[first] = f"{code}  {self._fence} {cell.number}.{index}"
                    continue
            self._replace(cell.number, rows, first, magic.count, magic.before, replaced)
        cell = replace(cell, replaced=tuple(replaced))
        return cell, rows, _problem("\n".join(rows))

    def _without_code(self, cell: Cell, rows: list[str]) -> tuple[Cell, list[str]]:
        """The cell with something else for all of it."""
        rows = list(rows)
        replaced: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        self._replace(cell.number, rows, 0, len(rows), "", replaced)
        return replace(cell, replaced=tuple(replaced), magics=0, is_broken=True), rows

    def _replace(
        self,
        number: int,
        rows: list[str],
        first: int,
        count: int,
        before: str,
        replaced: list[tuple[tuple[str, ...], tuple[str, ...]]],
    ) -> None:
        """Put a call over as many rows in place of some."""
        index = sum(len(old) for old, _ in replaced)
        codes = [f"{before}{_CALL}", *[""] * (count - 2), ")"] if count > 1 else [f"{before}{_CALL})"]
        replaced.append((tuple(rows[first : first + count]), tuple(codes)))
        for place, code in enumerate(codes):
            rows[first + place] = f"{code}  {self._fence} {number}.{index + place + 1}"

    def _append(self, cell: Cell, rows: list[str], newlines: list[str], problem: Problem | None) -> None:
        has_mark = bool(self.cells) or cell.is_indented
        if has_mark:
            head = _IF if cell.is_indented else "pass"
            self.text.append(f"{head}  {self._fence} {cell.number}{self._newline}")
            self._row += 1
        self.cells.append(replace(cell, offset=self._row, has_mark=has_mark))
        if problem is not None:
            row = min(problem.position.row, cell.rows)
            self.problems.append(Problem(problem.message, Position(self._row + row, problem.position.column)))
        self.text.extend(row + newline for row, newline in zip(rows, newlines, strict=True))
        self._row += cell.rows


def _problem(text: str) -> Problem | None:
    """Why a text is no Python, None if it is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        place = Position(max(1, error.lineno or 1), max(1, error.offset or 1))
        return Problem(error.msg or "invalid syntax", place)
    except (RecursionError, MemoryError):
        return Problem(_TOO_DEEP, Position(1, 1))
    except ValueError as error:
        return Problem(str(error), Position(1, 1))
    return None
