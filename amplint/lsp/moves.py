"""Where findings of one text are in another one that differs from it in one place."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from amplint.finding import Finding, Note, Position, Span

_NEWLINE = re.compile(r"\r\n?|\n")


@dataclass(frozen=True)
class Change:
    """Two texts (without byte order marks) and what they begin and end with in common."""

    old: str
    new: str

    @cached_property
    def head(self) -> int:
        """How many characters they begin with in common.

        Rows that were put in, or taken out, begin where a row begins and not behind the indentation that they share
        with the next one.
        """
        head = _common(self.old, self.new)
        more, less = (self.new, self.old) if len(self.new) > len(self.old) else (self.old, self.new)
        behind = len(less) - head  # characters behind what was put in, if nothing was taken out
        within = head - (less.rfind("\n", 0, head) + 1)
        if within and more[len(more) - behind :] == less[head:]:
            end = len(more) - behind
            if end - within >= head and more[end - within : end] == less[head - within : head]:
                return head - within
        return head

    @cached_property
    def tail(self) -> int:
        """How many they end with in common, behind those they begin with."""
        most = min(len(self.old), len(self.new)) - self.head
        return min(_common(self.old[::-1], self.new[::-1]), most)

    @property
    def rows(self) -> tuple[int, int]:
        """First and last row, from 1, of what changed, in the new text."""
        last = max(self.head, len(self.new) - self.tail - 1)
        return _row(self.new_rows, self.head), _row(self.new_rows, last)

    @cached_property
    def old_rows(self) -> list[int]:
        """Offsets at which the rows of the old text begin."""
        return [0, *(match.end() for match in _NEWLINE.finditer(self.old))]

    @cached_property
    def new_rows(self) -> list[int]:
        """Offsets at which the rows of the new text begin."""
        return [0, *(match.end() for match in _NEWLINE.finditer(self.new))]

    def offset(self, offset: int, *, is_end: bool = False) -> int | None:
        """The new place of an old one; None inside of what changed. What begins where something was put in moves."""
        if offset < self.head or (is_end and offset == self.head):
            return offset
        if offset >= len(self.old) - self.tail:
            return offset + len(self.new) - len(self.old)
        return offset if offset == self.head else None

    def position(self, position: Position) -> Position | None:
        """The same for a row and column."""
        if not 0 < position.row <= len(self.old_rows):
            return None
        offset = self.offset(self.old_rows[position.row - 1] + position.column - 1)
        return None if offset is None else self._placed(offset)

    def _placed(self, offset: int) -> Position:
        row = _row(self.new_rows, offset)
        return Position(row, offset - self.new_rows[row - 1] + 1)

    def moved(self, findings: Iterable[Finding], why_no_fix: str) -> list[Finding]:
        """Findings of the old text in the new one, without those in what changed, and without their fixes."""
        if self.old == self.new:
            return list(findings)
        kept = []
        for finding in findings:
            start = self.offset(finding.span.start)
            end = self.offset(finding.span.end, is_end=finding.span.end > finding.span.start)
            if start is None or end is None or end - start != finding.span.end - finding.span.start:
                continue
            notes = []
            for note in finding.trace:
                is_own = note.filename == finding.filename
                place = self.position(note.start) if is_own else note.start
                if place is not None:
                    notes.append(Note(note.filename, place, note.message))
            moved = replace(
                finding,
                span=Span(start, end),
                start=self._placed(start),
                end=self._placed(end),
                trace=tuple(notes),
            )
            if finding.fix is not None:
                moved = replace(moved, fix=None, no_fix_reason=why_no_fix)
            kept.append(moved)
        return kept


def _row(rows: list[int], offset: int) -> int:
    return bisect_right(rows, offset)


def _common(one: str, two: str) -> int:
    """How many characters two texts begin with in common."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
