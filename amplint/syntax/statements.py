"""The logical lines of a file, read off its tokens: where they are, what they say, and in which definition.

A logical line is a statement, or the header of a compound one. Tokens are enough for that, so it works in files
that cannot be parsed, too, up to what is wrong with them.
"""

from __future__ import annotations

import io
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from amplint.finding import Position
from amplint.source import Source

_LAYOUT = (tokenize.NL, tokenize.ENDMARKER)
#: From Python 3.12 on, f-strings come in pieces, and from 3.14 on t-strings do.
_OPENS = tuple(getattr(tokenize, name, -1) for name in ("FSTRING_START", "TSTRING_START"))
_CLOSES = tuple(getattr(tokenize, name, -1) for name in ("FSTRING_END", "TSTRING_END"))


@dataclass(slots=True)
class Statement:
    """One logical line; rows count from 1."""

    first_row: int
    last_row: int
    #: Names of the classes and functions that it stands in, joined by dots; "" at the top of a module.
    within: str
    #: (where a token starts, its text), without comments; the same for every version of Python.
    tokens: list[tuple[Position, str]] = field(default_factory=list)

    def text(self, start: Position | None = None, end: Position | None = None) -> str:
        """Its tokens from `start` and before `end`; line breaks, blanks and comments make no difference."""
        parts = [
            text for place, text in self.tokens if (not start or place >= start) and (not end or place < end)
        ]
        kept = [
            part
            for part, following in zip(parts, [*parts[1:], ""], strict=False)
            if not (part == "," and following in (")", "]", "}"))  # a formatter adds these
        ]
        return "\0".join(kept)


class Statements:
    """All logical lines of a file, its comments, and the rows that no comment can be put behind."""

    def __init__(self, source: Source) -> None:
        """Read the tokens; behind what cannot be tokenized, nothing is known."""
        self.all: list[Statement] = []
        #: Row -> (column from 0, text) of its comment.
        self.comments: dict[int, tuple[int, str]] = {}
        #: Rows that end inside a string.
        self.open_rows: set[int] = set()
        self._source = source
        self._read()
        self._firsts = [statement.first_row for statement in self.all]

    def at(self, row: int) -> Statement | None:
        """The logical line that a row belongs to; None between them."""
        index = bisect_right(self._firsts, row) - 1
        found = self.all[index] if index >= 0 else None
        return found if found is not None and row <= found.last_row else None

    def within(self, row: int) -> str:
        """The definition that a row is in, where it may be one between logical lines."""
        index = bisect_right(self._firsts, row) - 1
        return self.all[index].within if index >= 0 else ""

    def takes_comment(self, row: int) -> bool:
        """Whether a comment can be put at the end of a row."""
        if row in self.open_rows:
            return False
        return row in self.comments or not self._source.line_text(row).rstrip(" \t\f").endswith("\\")

    def _read(self) -> None:
        #: The name of each open block, "" for one that is no definition.
        blocks: list[str] = []
        current: Statement | None = None
        header = ""
        for kind, text, start, end in _tokens(self._source):
            if kind == tokenize.COMMENT:
                self.comments[start.row] = (start.column - 1, text)
            elif kind == tokenize.INDENT:
                blocks.append(header)
            elif kind == tokenize.DEDENT:
                if blocks:
                    blocks.pop()
            elif kind == tokenize.NEWLINE:
                if current is not None:
                    current.last_row = start.row
                    header = _defined(current)
                    self.all.append(current)
                current = None
            elif kind not in _LAYOUT:
                if current is None:
                    current = Statement(start.row, start.row, ".".join(filter(None, blocks)))
                current.tokens.append((start, text))
                current.last_row = end.row
                self.open_rows.update(range(start.row, end.row))
        if current is not None:
            self.all.append(current)


def _defined(statement: Statement) -> str:
    """The name that a logical line defines a class or function under; "" for any other."""
    words = [text for _, text in statement.tokens[:3]]
    if words[:1] == ["async"]:
        del words[0]
    return words[1] if words[0] in ("def", "class") and len(words) > 1 else ""


def _tokens(source: Source) -> Iterator[tuple[int, str, Position, Position]]:
    """Tokens with where they start and end; a formatted string is one token in every version of Python."""
    rows = [source.line_text(row) for row in range(1, len(source.line_starts) + 1)]
    lines = io.StringIO("\n".join(rows), newline="\n")
    depth = 0
    begun = Position(1, 1)
    try:
        for token in tokenize.generate_tokens(lines.readline):
            start, end = (
                Position(token.start[0], token.start[1] + 1),
                Position(token.end[0], token.end[1] + 1),
            )
            if token.type in _OPENS:
                begun = begun if depth else start
                depth += 1
            elif token.type in _CLOSES:
                depth -= 1
                if not depth:
                    yield tokenize.STRING, _between(rows, begun, end), begun, end
            elif not depth:
                yield token.type, token.string, start, end
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        return


def _between(rows: list[str], start: Position, end: Position) -> str:
    """The text from one place to another."""
    if start.row == end.row:
        return rows[start.row - 1][start.column - 1 : end.column - 1]
    first, last = rows[start.row - 1][start.column - 1 :], rows[end.row - 1][: end.column - 1]
    return "\n".join([first, *rows[start.row : end.row - 1], last])
