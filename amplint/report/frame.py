"""Source rows as a terminal shows them: gutter, carets, tabs, wide characters, and rows that are too long.

A *cell* is one column of the terminal; what is to be aligned is cells, not characters.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from amplint.finding import Position
from amplint.source import Source

#: Cells of a source row that are shown.
WIDTH = 120
_TAB = 4
_CONTEXT_ROWS = 2
#: A span over more rows than this is shown without its middle.
_SPAN_ROWS = 6
#: Of a row with a megabyte in it, only so many characters on either side of the place are looked at.
_REACH = 1000

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


@dataclass(frozen=True, slots=True)
class Look:
    """What the device that a report goes to can show."""

    color: bool = False
    #: Characters without bytes in this encoding are spelled as escapes.
    encoding: str = "utf-8"

    def style(self, text: str, *names: str) -> str:
        """Color `text`, if there are colors and there is text."""
        if not self.color or not text:
            return text
        return f"\x1b[{';'.join(_CODES[name] for name in names)}m{text}\x1b[0m"

    def plain(self, text: str) -> str:
        """Spell as escapes what a terminal would obey (newlines, too) or cannot show."""
        if text.isascii() and text.isprintable():
            return text
        return "".join(map(self.glyph, text))

    def glyph(self, character: str) -> str:
        """How one character is shown."""
        if character.isprintable():
            try:
                character.encode(self.encoding)
            except UnicodeEncodeError:
                pass
            else:
                return character
        return character.encode("unicode_escape").decode("ascii")


@dataclass(frozen=True, slots=True)
class Window:
    """The part of long rows that is shown: of the characters from `base` on, the cells from `left` on."""

    base: int = 0
    left: int = 0


def window_at(text: str, column: int, look: Look) -> Window:
    """The window in which a 1-based column of a row is well visible."""
    base = max(0, column - 1 - _REACH)
    cell = len(_cells(text[base : column - 1], look))
    return Window(base, 0 if cell <= WIDTH - 30 else cell - 40)


def shown(text: str, window: Window, look: Look) -> str:
    """The part of a row that lies in the window; dots stand for what was cut off."""
    cells = _cells(text[window.base : window.base + 2 * _REACH], look)
    visible = cells[window.left : window.left + WIDTH]
    if len(cells) > window.left + WIDTH and not cells[window.left + WIDTH]:
        visible[-1] = " "  # the first half of a wide character
    if text and (window.base or window.left):
        visible[:4] = [*"...", visible[3] or " "] if len(visible) > 3 else "..."
    if len(cells) > window.left + WIDTH or len(text) > window.base + 2 * _REACH:
        visible[-4:] = [visible[-4] if visible[-3] else " ", *"..."]
    return "".join(visible).rstrip()


def frame(source: Source, start: Position, end: Position, label: str, look: Look, color: str) -> list[str]:
    """The rows around a span: those it covers are marked, its first one has carets and `label` below.

    Empty when the source has no such rows.
    """
    last = max(start.row, end.row - 1 if end.column == 1 else end.row)
    if last > len(source.line_starts):
        return []
    first_text = source.line_text(start.row)
    window = window_at(first_text, start.column, look)
    stop = end.column if end.row == start.row else len(first_text) + 1
    rows = _rows(source, start.row, last)
    gutter = len(str(rows[-1]))
    lines = []
    for row in rows:
        if row is None:
            lines.append(look.style(f"  {'':>{gutter}} ...", "dim"))
            continue
        marked = start.row <= row <= last
        head = look.style(f"{'>' if marked else ' '} {row:>{gutter}} |", "dim")
        lines.append(f"{head} {shown(source.line_text(row), window, look)}".rstrip())
        if row == start.row:
            indent, width = _carets(first_text, start.column, stop, window, look)
            carets = look.style("^" * width + f" {label}", color, "bold")
            lines.append(f"{look.style(f'  {chr(32) * gutter} |', 'dim')} {' ' * indent}{carets}")
    return lines


def _rows(source: Source, first: int, last: int) -> list[int | None]:
    """Rows to show; None stands for those left out of a long span."""
    before = range(max(1, first - _CONTEXT_ROWS), first)
    after = range(last + 1, min(len(source.line_starts), last + _CONTEXT_ROWS) + 1)
    span: Sequence[int | None] = range(first, last + 1)
    if len(span) > _SPAN_ROWS:
        span = (*span[: _SPAN_ROWS // 2], None, last)
    return [
        *_from_first_text(source, before),
        *span,
        *reversed(_from_first_text(source, after[::-1])),
    ]


def _from_first_text(source: Source, rows: Sequence[int]) -> list[int]:
    """Rows without the blank ones at the beginning."""
    kept = list(rows)
    while kept and not source.line_text(kept[0]).strip():
        del kept[0]
    return kept


def _carets(text: str, start: int, stop: int, window: Window, look: Look) -> tuple[int, int]:
    """Cells before the carets and under them, for the columns from `start` up to `stop` of a row."""
    begin = len(_cells(text[window.base : start - 1], look)) + max(0, start - 1 - len(text)) - window.left
    finish = len(_cells(text[window.base : min(stop - 1, window.base + 2 * _REACH)], look)) - window.left
    begin = max(0, begin)
    return begin, max(1, min(finish, WIDTH) - begin)


def _cells(text: str, look: Look) -> list[str]:
    """What is shown in each cell; a wide character leaves the cell after it empty."""
    if text.isascii() and text.isprintable():
        return list(text)
    cells: list[str] = []
    for character in text:
        glyph = look.glyph(character)
        if character == "\t":
            cells += " " * (_TAB - len(cells) % _TAB)
        elif glyph != character:
            cells += glyph
        elif unicodedata.category(character) in ("Mn", "Me"):
            if cells:
                cells[-1] += character
        elif unicodedata.east_asian_width(character) in ("W", "F"):
            cells += (character, "")
        else:
            cells.append(character)
    return cells
