"""Where the statements of one function stand: in which loops, under which tests, and what is assigned before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.held import Held
from amplint.model import ir

#: Sources of sources are followed through so many variables.
_MOST = 200

Loop = ir.For | ir.While


@dataclass(frozen=True, slots=True)
class Place:
    """A statement and what is around it, from the outside: (compound statement, which of its blocks)."""

    stmt: ir.Stmt
    around: tuple[tuple[ir.Stmt, int], ...]

    @property
    def site(self) -> int:
        """Where the statement begins; places in the order of the text have rising sites."""
        return self.stmt.site

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops whose body this is part of, the outermost first."""
        return tuple(s for s, block in self.around if isinstance(s, (ir.For, ir.While)) and block == 0)

    @property
    def tests(self) -> tuple[tuple[ir.If, bool], ...]:
        """The `if`s around, each with whether this runs where the test holds."""
        return tuple((s, block == 0) for s, block in self.around if isinstance(s, ir.If))

    def excludes(self, other: Place) -> bool:
        """Whether the two stand in different blocks of one `if`, `match` or `try`."""
        for (mine, one), (theirs, two) in zip(self.around, other.around, strict=False):
            if mine is not theirs:
                return False
            if one != two:
                return isinstance(mine, (ir.If, ir.Match))
        return False

    def is_sure_before(self, other: Place) -> bool:
        """Whether this stands in a block around `other`, and before it: it ran when `other` runs."""
        size = len(self.around)
        return self.site < other.site and self.around == other.around[:size]


@dataclass(frozen=True, slots=True)
class Definition:
    """One assignment to a path; `value` is None where it is not plain, `grows` where it keeps the old value."""

    place: Place
    value: ir.Expr | None
    grows: bool = False


class Scene:
    """The statements of one function of a file."""

    def __init__(self, held: Held, function: str) -> None:
        self.held = held
        self.name = function
        self.function = held.functions[function]
        self.places: tuple[Place, ...] = tuple(_places(self.function.body, ()))

    @cached_property
    def calls(self) -> tuple[tuple[ir.Call, Place], ...]:
        """Every call with the statement that it is part of, in the order of the text."""
        return tuple(
            (expr, place)
            for place in self.places
            for whole in walk.own(place.stmt)
            for expr in walk.inside(whole)
            if isinstance(expr, ir.Call)
        )

    @cached_property
    def definitions(self) -> dict[c.Path, list[Definition]]:
        """Path -> the assignments to it in this function."""
        found: dict[c.Path, list[Definition]] = {}
        for place in self.places:
            for target, value, grows in _assigned(place.stmt):
                path = self.held.lift.path(target)
                if path is not None:
                    found.setdefault(path, []).append(Definition(place, value, grows))
        return found

    def reads(self, expr: ir.Expr) -> Iterator[c.Path]:
        """Every path that `expr` reads, `self.x` of `self.x.y` included."""
        for part in walk.inside(expr):
            path = self.held.lift.path(part)
            if path is not None:
                yield path

    def closure(self, *exprs: ir.Expr) -> dict[c.Path, None]:
        """Every path that the values of `exprs` are computed from, through the variables of this function."""
        found: dict[c.Path, None] = {}
        stack = [path for expr in exprs for path in self.reads(expr)]
        while stack and len(found) < _MOST:
            path = stack.pop()
            if path in found:
                continue
            found[path] = None
            for definition in self.definitions.get(path, ()):
                if definition.value is not None:
                    stack.extend(self.reads(definition.value))
        return found

    def origins(self, *exprs: ir.Expr) -> Iterator[ir.Expr]:
        """Everything inside `exprs`, and inside what the variables in them were assigned in this function."""
        for expr in exprs:
            yield from walk.inside(expr)
        for path in self.closure(*exprs):
            for definition in self.definitions.get(path, ()):
                if definition.value is not None:
                    yield from walk.inside(definition.value)


def _places(block: ir.Block, around: tuple[tuple[ir.Stmt, int], ...]) -> Iterator[Place]:
    for stmt in block:
        yield Place(stmt, around)
        for index, inner in enumerate(walk.blocks(stmt)):
            yield from _places(inner, (*around, (stmt, index)))


def _assigned(stmt: ir.Stmt) -> Iterator[tuple[ir.Expr, ir.Expr | None, bool]]:
    """(target, value, whether the old value is kept) for all that a statement binds."""
    if isinstance(stmt, ir.Assign) and stmt.value is not None:
        for target in stmt.targets:
            yield from _unpacked(target, stmt.value)
    elif isinstance(stmt, ir.AugAssign):
        yield stmt.target, stmt.value, True
    elif isinstance(stmt, ir.For):
        yield from _unpacked(stmt.target, ir.Star(stmt.iterable, stmt.iterable.site))
    elif isinstance(stmt, ir.With):
        for context, bound in stmt.items:
            if bound is not None:
                yield bound, context, False
    for whole in walk.own(stmt):
        for expr in walk.inside(whole):
            if isinstance(expr, ir.Walrus):
                yield expr.target, expr.value, False


def _unpacked(target: ir.Expr, value: ir.Expr) -> Iterator[tuple[ir.Expr, ir.Expr | None, bool]]:
    """The parts of a target; what comes from unpacking one value is computed from all of it."""
    if not isinstance(target, ir.Items):
        yield target, value, False
        return
    parts: tuple[ir.Expr, ...] = (value,) * len(target.items)
    if isinstance(value, ir.Items) and len(value.items) == len(target.items):
        parts = value.items
    for item, part in zip(target.items, parts, strict=True):
        yield from _unpacked(item.value if isinstance(item, ir.Star) else item, part)


def scenes(held: Held) -> tuple[Scene, ...]:
    """One scene for each function of a file, in the order of the text."""
    return tuple(Scene(held, name) for name in held.functions)
