"""Where the size of gradients is read, and where they are changed in a way that depends on their size."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from amplint.flow import walk
from amplint.flow.gradients import clipped_by_call, gradient_of, is_infinite
from amplint.flow.lift import last, names
from amplint.model import ir

Sites = frozenset[int]
#: What a call of a function that returns a measurement measures: the owner (None: not known), in a tuple.
Measured = Callable[[ir.Call], tuple[ir.Expr | None] | None]

_MEASURES = frozenset(
    {
        "abs",
        "square",
        "pow",
        "std",
        "var",
        "mean",
        "max",
        "min",
        "amax",
        "amin",
        "median",
        "histc",
        "quantile",
    }
)
#: Calls that show values to people or keep them for that.
_SHOWS = re.compile(
    r"^(print|log|info|debug|warn|warning|write|tqdm|report|record)$|add_(scalar|histogram|text)|set_(postfix|description)"
    r"|^log_|_log$|^record_|_meter$"
)
_NAMED = re.compile(
    r"^(log|plot|record|track|write|monitor)_?(the_)?(model_)?grad(ient)?s?(_|$|[A-Z])(?!accum|clip|scal)"
)
#: Calls that only ask whether numbers are finite.
_FINITE = re.compile(r"(is|_|^)(_?in)?(finite|nan|inf|nonfinite)|overflow", re.IGNORECASE)
_CHANGES = frozenset(
    {"add_", "sub_", "subtract_", "addcmul_", "addcdiv_", "lerp_", "sign_", "sigmoid_", "tanh_"}
)
#: Functions of torch that measure the gradients of the parameters, or the tensors, they are handed.
_TOTALS = ("torch.nn.utils.get_total_norm", "torch.nn.utils.clip_grad.get_total_norm")


def _lists_of_gradients(body: ir.Block) -> Iterator[tuple[str, str | None]]:
    """The variables of a function that are assigned `[p.grad for p in ..]`."""
    for stmt in walk.statements(body):
        value = stmt.value if isinstance(stmt, ir.Assign) else None
        if isinstance(value, ir.Comprehension) and gradient_of(value.element[0]) is not None:
            yield from ((t.id, t.scope) for t in _targets(stmt))


def asks_for_finite(test: ir.Expr) -> bool:
    """Whether a test asks if numbers are finite."""
    for expr in walk.inside(test):
        if isinstance(expr, ir.Call) and _FINITE.search(last(expr.func)):
            return True
        if isinstance(expr, (ir.Name, ir.Attr)) and _FINITE.search(last(expr)):
            return True
        if isinstance(expr, ir.Compare) and (is_infinite(expr.right) or is_infinite(expr.left)):
            return True
    return False


class Measures:
    """The measurements of gradients in one function whose result is shown, kept or compared."""

    def __init__(self, body: ir.Block, measured: Measured = lambda call: None) -> None:
        self._measured = measured
        self._held: dict[tuple[str, str | None], Sites] = {}
        #: Variables that hold lists of gradients.
        self._gradients = set(_lists_of_gradients(body))
        #: Call -> whose gradients it measures (None: not known); all of them, shown or not.
        self.owners: dict[int, ir.Expr | None] = {}
        self._fill(body)
        #: The calls whose result is used for more than asking whether it is finite.
        self.used = frozenset(self._sinks(body, False))
        #: The function returns such a measurement.
        self.returned = any(
            bool(self._sites(stmt.value))
            for stmt in walk.statements(body)
            if isinstance(stmt, ir.Return) and stmt.value is not None
        )

    def _fill(self, body: ir.Block) -> None:
        found = [(stmt, value) for stmt in walk.statements(body) for value in _stored(stmt)]
        if not any(self._is_measure(e) for _, value in found for e in walk.inside(value)) and not any(
            self._is_measure(e) for e in walk.expressions(body)
        ):
            return
        grows = True
        while grows:
            before = sum(map(len, self._held.values()))
            for stmt, value in found:
                sites = self._sites(value)
                for target in _targets(stmt) if sites else ():
                    key = (target.id, target.scope)
                    self._held[key] = self._held.get(key, frozenset()) | sites
            grows = sum(map(len, self._held.values())) > before

    def _is_measure(self, expr: ir.Expr) -> bool:
        if not isinstance(expr, ir.Call):
            return False
        found = self._owner(expr)
        if found is None:
            return False
        self.owners[expr.site] = found[0]
        return True

    def _owner(self, call: ir.Call) -> tuple[ir.Expr | None] | None:
        """(the parameters whose gradients are measured,) or None where the call measures none."""
        measured = self._measured(call)
        if measured is not None:
            return measured
        if any(name in _TOTALS for name in names(call.func)):
            return (first_argument(call),)
        bounds = [arg.value for arg in call.args[1:2] if arg.keyword in (None, "max_norm")]
        if (
            bounds
            and is_infinite(bounds[0])
            and any(last(call.func).startswith(n) for n in ("clip_grad_norm",))
        ):
            return (call.args[0].value,)
        if not _measures_by_name(call):
            return None
        if clipped_by_call(call) is not None:
            return None
        for part in (
            call.func.value if isinstance(call.func, ir.Attr) else None,
            *(a.value for a in call.args),
        ):
            for expr in walk.inside(part) if part is not None else ():
                owner = gradient_of(expr)
                if owner is not None:
                    return (owner,)
                if isinstance(expr, ir.Name) and (expr.id, expr.scope) in self._gradients:
                    return (None,)
        return None

    def _sites(self, expr: ir.Expr) -> Sites:
        """The measurements that the value of `expr` is made from."""
        if isinstance(expr, ir.Call) and _FINITE.search(last(expr.func)):
            return frozenset()
        if isinstance(expr, ir.Compare):
            return frozenset()
        if isinstance(expr, ir.Call) and self._is_measure(expr):
            return frozenset({expr.site})
        found = (
            self._held.get((expr.id, expr.scope), frozenset()) if isinstance(expr, ir.Name) else frozenset()
        )
        for part in walk.parts(expr):
            found |= self._sites(part)
        return found

    def _sinks(self, block: ir.Block, is_checked: bool) -> Iterator[int]:
        if not self.owners:
            return
        for stmt in block:
            checks = isinstance(stmt, (ir.If, ir.While)) and asks_for_finite(stmt.test)
            for expr in (e for whole in walk.own(stmt) for e in walk.inside(whole)):
                if is_checked:
                    break
                if isinstance(expr, ir.Compare) and expr.op in ("<", ">", "<=", ">="):
                    if not (is_infinite(expr.left) or is_infinite(expr.right)):
                        yield from self._sites(expr.left) | self._sites(expr.right)
                elif isinstance(expr, ir.Call) and _shows(expr):
                    for arg in expr.args:
                        yield from self._sites(arg.value)
            if isinstance(stmt, ir.Assign) and stmt.value is not None and not is_checked:
                kept = [t for t in stmt.targets if isinstance(t, (ir.Subscript, ir.Attr))]
                if kept and not any(gradient_of(t) is not None for t in kept):
                    yield from self._sites(stmt.value)
            for inner in walk.blocks(stmt):
                yield from self._sinks(inner, is_checked or checks)


def _measures_by_name(call: ir.Call) -> bool:
    return last(call.func) in _MEASURES or "norm" in last(call.func)


def shows_by_name(name: str) -> bool:
    """Whether something of that name shows what it is handed."""
    return _SHOWS.search(name) is not None or _NAMED.search(name) is not None


def first_argument(call: ir.Call) -> ir.Expr | None:
    """What a call hands over first."""
    return call.args[0].value if call.args and not call.args[0].star else None


def says_it_shows(call: ir.Call) -> bool:
    """Whether the name of what is called says that it shows gradients of what it is handed."""
    return bool(call.args) and _NAMED.search(last(call.func)) is not None


def shown(call: ir.Call) -> ir.Expr | None:
    """The parameter whose gradient itself is handed to something that shows it, such as `add_histogram`."""
    if not _shows(call):
        return None
    for arg in call.args:
        expr = arg.value
        while isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr) and not expr.args:
            if _measures_by_name(expr):
                break  # it is reported itself
            expr = expr.func.value  # .cpu(), .detach(), .clone()
        owner = gradient_of(expr)
        if owner is not None:
            return owner
    return None


def changed_by_call(call: ir.Call) -> ir.Expr | None:
    """`p` where the call changes `p.grad` by something that is no gradient itself."""
    if not isinstance(call.func, ir.Attr) or call.func.attr not in _CHANGES:
        return None
    owner = gradient_of(call.func.value)
    if owner is None or any(_mentions_gradient(arg.value) for arg in call.args):
        return None
    return owner


def changed_by_assignment(target: ir.Expr, value: ir.Expr, op: str = "") -> ir.Expr | None:
    """`p` where `p.grad += noise` or `p.grad = p.grad + noise` does."""
    owner = gradient_of(target)
    if owner is None:
        return None
    if op in ("+", "-"):
        return None if _mentions_gradient(value) else owner
    if op == "" and isinstance(value, ir.Binary) and value.op in ("+", "-"):
        grads = [gradient_of(side) is not None for side in (value.left, value.right)]
        others = [side for side, is_grad in zip((value.left, value.right), grads, strict=True) if not is_grad]
        if any(grads) and others and not any(map(_mentions_gradient, others)):
            return owner
    return None


def _mentions_gradient(expr: ir.Expr) -> bool:
    """Whether `expr` is made from gradients, as far as names tell; `zeros_like(p.grad)` has only their shape."""
    if isinstance(expr, ir.Call) and last(expr.func).endswith("_like"):
        return False
    if isinstance(expr, (ir.Name, ir.Attr)) and "grad" in last(expr).lower():
        return True
    if isinstance(expr, ir.Attr) and expr.attr in ("shape", "dtype", "device"):
        return False
    if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr) and expr.func.attr == "size":
        return False
    return any(_mentions_gradient(part) for part in walk.parts(expr))


def _shows(call: ir.Call) -> bool:
    name = last(call.func)
    owner = last(call.func.value) if isinstance(call.func, ir.Attr) else ""
    return _SHOWS.search(name) is not None or owner in ("wandb", "writer", "logger", "logging")


def _stored(stmt: ir.Stmt) -> Iterator[ir.Expr]:
    if isinstance(stmt, (ir.Assign, ir.AugAssign)) and stmt.value is not None:
        yield stmt.value
    elif isinstance(stmt, ir.For):
        yield stmt.iterable
    elif isinstance(stmt, ir.Do) and isinstance(stmt.value, ir.Call):
        call = stmt.value
        if isinstance(call.func, ir.Attr) and call.func.attr in ("append", "add_", "add", "extend"):
            yield from (arg.value for arg in call.args)


def _targets(stmt: ir.Stmt) -> Iterator[ir.Name]:
    if isinstance(stmt, ir.Assign):
        found: tuple[ir.Expr, ...] = stmt.targets
    elif isinstance(stmt, ir.AugAssign):
        found = (stmt.target,)
    elif isinstance(stmt, ir.For):
        found = stmt.target.items if isinstance(stmt.target, ir.Items) else (stmt.target,)
    elif isinstance(stmt, ir.Do) and isinstance(stmt.value, ir.Call) and isinstance(stmt.value.func, ir.Attr):
        found = (stmt.value.func.value,)
    else:
        found = ()
    yield from (target for target in found if isinstance(target, ir.Name))
