"""Going through IR: what is inside an expression, a statement, a block."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.model import ir


def parts(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The expressions directly inside `expr`, in order of evaluation."""
    if isinstance(expr, ir.Attr):
        return (expr.value,)
    if isinstance(expr, ir.Call):
        return (expr.func, *(arg.value for arg in expr.args))
    if isinstance(expr, (ir.Binary, ir.Bool, ir.Compare)):
        return (expr.left, expr.right)
    if isinstance(expr, ir.Unary):
        return (expr.operand,)
    if isinstance(expr, ir.IfExp):
        return (expr.test, expr.body, expr.orelse)
    if isinstance(expr, ir.Subscript):
        return (expr.value, expr.index)
    if isinstance(expr, ir.Items):
        return expr.items
    if isinstance(expr, ir.Star):
        return (expr.value,)
    if isinstance(expr, ir.Comprehension):
        inner = (e for target, iterable, tests in expr.parts for e in (iterable, target, *tests))
        return (*inner, *expr.element)
    if isinstance(expr, ir.Walrus):
        return (expr.value, expr.target)
    if isinstance(expr, ir.Lambda):
        return (expr.body,)
    return expr.parts if isinstance(expr, ir.Other) else ()


def inside(expr: ir.Expr) -> Iterator[ir.Expr]:
    """`expr` and everything within it, outermost first."""
    stack = [expr]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(parts(current)))


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
    for stmt in statements(block):
        for expr in own(stmt):
            yield from inside(expr)
