"""The functions and classes of a document, kept in step with it without parsing all of it for each keystroke."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from amplint.lsp.moves import Change
from amplint.source import Source
from amplint.syntax.syntax_error import parsed_only


@dataclass(frozen=True, slots=True)
class Unit:
    """A function of the module, or a method of one of its classes; nested functions are part of it."""

    name: str
    #: The class, "" for a function.
    owner: str
    #: First and last row, decorators included.
    first: int
    last: int
    #: The column of its `def`.
    column: int
    #: First row of the body, and the column at which that begins; 0 where it is on the row of the `def`.
    body: int
    indent: int

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Group:
    """A class of the module: its first row with decorators, that of its `class`, and its last one."""

    name: str
    first: int
    head: int
    last: int


@dataclass(frozen=True, slots=True)
class Outline:
    """What there is in a text that can be parsed."""

    text: str
    units: tuple[Unit, ...]
    classes: tuple[Group, ...]

    def starts(self, source: Source) -> list[int]:
        """Offsets at which functions and classes of the module begin, and at which what is behind them does."""
        spans = [(group.first, group.last) for group in self.classes]
        spans += [(unit.first, unit.last) for unit in self.units if not unit.owner]
        return cuts(spans, source.line_starts)

    def after(self, new: str) -> Outline | None:
        """The outline of a new text that differs inside one function only; None where that must be found out.

        The new text can be parsed: all of it but that function can, and that can by itself.
        """
        change = Change(self.text, new)
        if self.text == new:
            return self
        old_rows = change.old_rows
        first, last = change.head, len(self.text) - change.tail
        unit = next(
            (u for u in self.units if old_rows[u.first - 1] <= first < _end(old_rows, u, self.text)), None
        )
        if unit is None or last > _end(old_rows, unit, self.text):
            return None
        start = old_rows[unit.first - 1]
        end = _end(old_rows, unit, self.text) + len(new) - len(self.text)
        snippet = new[start:end]
        if not snippet.endswith("\n"):
            return None
        made = _alone(snippet, unit)
        if made is None:
            return None
        delta = len(change.new_rows) - len(old_rows)
        return Outline(
            new,
            tuple(
                made if each is unit else _shifted(each, delta) if each.first > unit.last else each
                for each in self.units
            ),
            tuple(_grown(each, unit, made, delta) for each in self.classes),
        )


def cuts(spans: Iterable[tuple[int, int]], row_starts: Sequence[int]) -> list[int]:
    """Offsets at which spans of rows (counted from 1) begin, and at which what is behind them does."""
    rows = sorted({row for first, last in spans for row in (first, last + 1)})
    return [row_starts[row - 1] for row in rows if 1 < row <= len(row_starts)]


def _end(rows: list[int], unit: Unit, text: str) -> int:
    """The offset behind the last row of a unit."""
    return rows[unit.last] if unit.last < len(rows) else len(text)


def _alone(snippet: str, unit: Unit) -> Unit | None:
    """A function whose text is this now; None where it is no function of the same kind any more."""
    head = "class _:\n" if unit.column else ""
    _, tree = parsed_only(head + snippet)
    if tree is None or len(tree.body) != 1:
        return None
    node = tree.body[0]
    if head:
        if not isinstance(node, ast.ClassDef) or len(node.body) != 1:
            return None
        node = node.body[0]
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.col_offset != unit.column:
        return None
    made = _unit(node, unit.owner)
    if made.first != 1 + bool(head):
        return None
    return _shifted(made, unit.first - made.first)


def _shifted(unit: Unit, delta: int) -> Unit:
    return replace(
        unit, first=unit.first + delta, last=unit.last + delta, body=unit.body + delta if unit.body else 0
    )


def _grown(group: Group, before: Unit, after: Unit, delta: int) -> Group:
    """A class, of which a function that changed may be a part, or the end."""
    if group.first > before.last:
        return Group(group.name, group.first + delta, group.head + delta, group.last + delta)
    if group.last == before.last:
        return replace(group, last=after.last)
    return replace(group, last=group.last + delta) if group.last > before.last else group


def outline_of(text: str, tree: ast.Module) -> Outline:
    """The outline of a text that has been parsed."""
    classes = tuple(
        Group(node.name, _first(node), node.lineno, node.end_lineno or node.lineno)
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    )
    return Outline(text, tuple(_units(tree)), classes)


def _units(tree: ast.Module) -> Iterator[Unit]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield _unit(node, "")
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield _unit(inner, node.name)


def _unit(node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str) -> Unit:
    first = _first(node)
    start = node.body[0]
    begins = min([start.lineno, *(each.lineno for each in getattr(start, "decorator_list", []))])
    body = begins if begins > node.lineno else 0
    return Unit(node.name, owner, first, node.end_lineno or first, node.col_offset, body, start.col_offset)


def _first(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])
