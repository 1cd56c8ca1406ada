"""Where the value of a loss that may be scaled is shown, summed up or returned."""

from __future__ import annotations

import re
from collections.abc import Iterator

from amplint.flow import conditions as c
from amplint.flow import protocol as p
from amplint.flow import walk
from amplint.flow.lift import last
from amplint.flow.objects import Objects, backward_losses
from amplint.model import ir

_SHOWS = re.compile(
    r"^(print|log|info|debug|warning|write|append|min|max)$|add_scalar|set_(postfix|description)|^log_|_log$|^update$"
)
_KEEPS = ("detach", "item", "cpu", "float", "mean", "sum", "clone", "numpy", "tolist", "data")
_SCALE = ("get_scale", "_scale", "_get_scale_async")


class Leaks:
    """What one function does with variables that it assigns a scaled loss to."""

    def __init__(self, body: ir.Block, objects: Objects) -> None:
        self._objects = objects
        self._scaled: set[c.Path] = set()
        for stmt in walk.statements(body):
            if isinstance(stmt, ir.Assign) and stmt.value is not None and objects.factors(stmt.value)[0]:
                self._scaled.update(path for t in stmt.targets if (path := objects.lift.path(t)) is not None)
        #: Site of the first backward of each loss.
        self._backward: dict[c.Path, int] = {}
        for expr in walk.expressions(body) if self._scaled else ():
            for loss in backward_losses(expr) if isinstance(expr, ir.Call) else ():
                path = objects.lift.path(loss)
                if path is not None:
                    self._backward.setdefault(path, expr.site)

    def _losses(self, expr: ir.Expr) -> tuple[c.Path, ...]:
        """The variables in `expr` that a scaled loss was assigned to, where its value is all that is taken."""
        path = self._objects.lift.path(expr)
        if path is not None:
            if path in self._scaled:
                return (path,)
            return self._losses(expr.value) if isinstance(expr, ir.Attr) and expr.attr in _KEEPS else ()
        if isinstance(expr, ir.Call):
            if isinstance(expr.func, ir.Attr) and expr.func.attr in _KEEPS:
                return self._losses(expr.func.value)
            return (
                self._losses(expr.args[0].value) if len(expr.args) == 1 and last(expr.func) == "float" else ()
            )
        if isinstance(expr, ir.Binary):
            if any(isinstance(e, ir.Attr) and e.attr in _SCALE for e in walk.inside(expr)):
                return ()
            return (*self._losses(expr.left), *self._losses(expr.right))
        if isinstance(expr, (ir.Items, ir.Star, ir.Other)):
            return tuple(path for part in walk.parts(expr) for path in self._losses(part))
        return ()

    def returned(self, stmt: ir.Return) -> Iterator[p.Leak]:
        """`return loss` behind its backward: callers get the scaled value."""
        losses = self._losses(stmt.value) if self._scaled and stmt.value is not None else ()
        late = tuple(path for path in losses if self._backward.get(path, stmt.site) < stmt.site)
        if late:
            yield p.Leak(late, (), "returned", stmt.site)

    def accumulated(self, stmt: ir.AugAssign) -> Iterator[p.Leak]:
        """`total += loss.item()`; a sum that is itself the loss of a backward is no leak."""
        losses = self._losses(stmt.value) if self._scaled and stmt.op in ("+", "-") else ()
        target = self._objects.lift.path(stmt.target)
        if losses and target not in self._backward and target not in self._scaled:
            yield p.Leak(losses, (), "added up", stmt.site)

    def compared(self, test: ir.Expr) -> Iterator[p.Leak]:
        """`if loss < 0.1`."""
        for expr in walk.inside(test) if self._scaled else ():
            if isinstance(expr, ir.Compare) and expr.op in ("<", ">", "<=", ">="):
                losses = (*self._losses(expr.left), *self._losses(expr.right))
                if losses:
                    yield p.Leak(losses, (), "compared", expr.site)

    def shown(self, call: ir.Call) -> Iterator[p.Leak]:
        """`log(loss)`, `losses.append(loss.item())`, and `scheduler.step(loss)` behind its backward."""
        name = last(call.func)
        if not self._scaled or not (_SHOWS.search(name) or name == "step"):
            return
        losses = tuple(path for arg in call.args for path in self._losses(arg.value))
        if name in ("append", "update"):
            taken = any(not isinstance(arg.value, (ir.Name, ir.Attr)) for arg in call.args)
            losses = losses if taken else ()  # a list of losses may be summed and taken the gradient of
        elif name == "step":
            losses = tuple(path for path in losses if self._backward.get(path, call.site) < call.site)
        if losses:
            yield p.Leak(losses, (), f"handed to {name}", call.site)
