"""Places in a text: offsets in code points, rows and columns from 1 as in findings, and what the client counts.

A client and its server agree on UTF-8, UTF-16 or UTF-32 as the unit of a column. Rows end in CR LF, CR or LF and in
nothing else, which is what the protocol says, what Python says, and not what `str.splitlines` does.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from lsprotocol import types as t

from amplint.finding import Position, Span

_NEWLINE = re.compile(r"\r\n?|\n")
_BYTES_PER_UNIT = {"utf-8": 1, "utf-16": 2, "utf-32": 4}
_CODECS = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}


@dataclass(frozen=True)
class Text:
    """A text and the unit in which its client counts columns: "utf-8", "utf-16" or "utf-32"."""

    text: str
    encoding: str = "utf-16"

    @cached_property
    def starts(self) -> list[int]:
        """Offsets at which rows begin; after a final newline there is one last, empty row."""
        return [0, *(match.end() for match in _NEWLINE.finditer(self.text))]

    def line(self, row: int) -> str:
        """A row, counted from 0, without its newline; "" behind the last one."""
        if not 0 <= row < len(self.starts):
            return ""
        end = self.starts[row + 1] if row + 1 < len(self.starts) else len(self.text)
        return self.text[self.starts[row] : end].rstrip("\r\n")

    def row_of(self, offset: int) -> int:
        """The row, counted from 0, that an offset is in."""
        return bisect_right(self.starts, offset) - 1

    def to_client(self, offset: int) -> t.Position:
        """The client's position of an offset; offsets outside the text are those of its ends."""
        offset = min(max(0, offset), len(self.text))
        row = self.row_of(offset)
        return t.Position(row, self._units(self.text[self.starts[row] : offset]))

    def offset(self, position: t.Position) -> int:
        """The offset of a client's position; one behind the end of a row or of the text is that end."""
        if position.line >= len(self.starts):
            return len(self.text)
        if position.line < 0:
            return 0
        line = self.line(position.line)
        return self.starts[position.line] + self._code_points(line, max(0, position.character))

    @property
    def bom(self) -> int:
        """Characters at the beginning that are no part of the source that findings are about."""
        return 1 if self.text.startswith("\ufeff") else 0

    @property
    def source(self) -> str:
        """The text as findings are about it."""
        return self.text[self.bom :]

    def row_column(self, place: Position) -> t.Position:
        """The client's position of a finding's row and column."""
        column = place.column - 1 + (self.bom if place.row == 1 else 0)
        return t.Position(place.row - 1, self._units(self.line(place.row - 1)[:column]))

    def range(self, span: Span) -> t.Range:
        """The client's range of a finding's span."""
        return t.Range(self.to_client(span.start + self.bom), self.to_client(span.end + self.bom))

    def row_end(self, row: int) -> t.Position:
        """The client's position of the end of a row that is counted from 0."""
        return t.Position(row, self._units(self.line(row)))

    def replaced(self, range_: t.Range, content: str) -> Text:
        """The text with a range replaced, as a client's change says."""
        start = self.offset(range_.start)
        end = max(start, self.offset(range_.end))
        return Text(self.text[:start] + content + self.text[end:], self.encoding)

    def _units(self, text: str) -> int:
        if text.isascii() or self.encoding == "utf-32":
            return len(text)
        return len(text.encode(_CODECS[self.encoding], "surrogatepass")) // _BYTES_PER_UNIT[self.encoding]

    def _code_points(self, line: str, units: int) -> int:
        """Code points that begin before so many units; a unit inside of a character belongs to it."""
        if line.isascii() or self.encoding == "utf-32":
            return min(units, len(line))
        for count, character in enumerate(line):
            if units <= 0:
                return count
            units -= self._units(character)
            if units < 0:
                return count
        return len(line)
