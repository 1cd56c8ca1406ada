"""Going through IR: what is inside an expression, a statement, a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from amplint.cancel import checkpoint
from amplint.model import ir


def _of_comprehension(expr: ir.Comprehension) -> tuple[ir.Expr, ...]:
    inner = (e for target, iterable, tests in expr.parts for e in (iterable, target, *tests))
    return (*inner, *expr.element)


#: Kind of expression -> the expressions directly inside, in order of evaluation; the others have none.
_PARTS: dict[type, Callable[[Any], tuple[ir.Expr, ...]]] = {
    ir.Attr: lambda expr: (expr.value,),
    ir.Call: lambda expr: (expr.func, *[arg.value for arg in expr.args]),
    ir.Binary: lambda expr: (expr.left, expr.right),
    ir.Bool: lambda expr: (expr.left, expr.right),
    ir.Compare: lambda expr: (expr.left, expr.right),
    ir.Unary: lambda expr: (expr.operand,),
    ir.IfExp: lambda expr: (expr.test, expr.body, expr.orelse),
    ir.Subscript: lambda expr: (expr.value, expr.index),
    ir.Items: lambda expr: expr.items,
    ir.Star: lambda expr: (expr.value,),
    ir.Comprehension: _of_comprehension,
    ir.Walrus: lambda expr: (expr.value, expr.target),
    ir.Lambda: lambda expr: (expr.body,),
    ir.Other: lambda expr: expr.parts,
}


def parts(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The expressions directly inside `expr`, in order of evaluation."""
    found = _PARTS.get(type(expr))
    return found(expr) if found is not None else ()


def inside(expr: ir.Expr) -> Iterator[ir.Expr]:
    """`expr` and everything within it, outermost first."""
    stack = [expr]
    while stack:
        current = stack.pop()
        yield current
        found = _PARTS.get(type(current))
        if found is not None:
            stack.extend(found(current)[::-1])


def own(stmt: ir.Stmt) -> tuple[ir.Expr, ...]:
    """The expressions of a statement itself, without its blocks."""
    if isinstance(stmt, ir.Assign):
        return (*((stmt.value,) if stmt.value is not None else ()), *stmt.targets)
    if isinstance(stmt, ir.AugAssign):
        return (stmt.value, stmt.target)
    if isinstance(stmt, ir.Do):
        return (stmt.value,)
    if isinstance(stmt, (ir.If, ir.While, ir.Assert)):
        return (stmt.test,)
    if isinstance(stmt, ir.For):
        return (stmt.iterable, stmt.target)
    if isinstance(stmt, ir.With):
        return tuple(e for item in stmt.items for e in item if e is not None)
    if isinstance(stmt, ir.Match):
        return (stmt.subject, *(guard for guard, _ in stmt.cases if guard is not None))
    if isinstance(stmt, (ir.Return, ir.Raise)):
        return (stmt.value,) if stmt.value is not None else ()
    return (stmt.target,) if isinstance(stmt, ir.Delete) else ()


def blocks(stmt: ir.Stmt) -> tuple[ir.Block, ...]:
    """The blocks of a compound statement."""
    if isinstance(stmt, (ir.If, ir.For, ir.While)):
        return (stmt.body, stmt.orelse)
    if isinstance(stmt, ir.With):
        return (stmt.body,)
    if isinstance(stmt, ir.Try):
        return (stmt.body, *(handler.body for handler in stmt.handlers), stmt.orelse, stmt.final)
    if isinstance(stmt, ir.Match):
        return tuple(body for _, body in stmt.cases)
    return ()


def statements(block: ir.Block) -> Iterator[ir.Stmt]:
    """Every statement of `block`, those inside others included, in the order of the text."""
    for stmt in block:
        yield stmt
        for inner in blocks(stmt):
            yield from statements(inner)


def expressions(block: ir.Block) -> Iterator[ir.Expr]:
    """Every expression of `block`, in the order of the text."""
    checkpoint()
    for stmt in statements(block):
        for expr in own(stmt):
            yield from inside(expr)
