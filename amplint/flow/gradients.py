"""Which expressions clip gradients, and which divide them by the loss scale by hand."""

from __future__ import annotations

from amplint.flow import walk
from amplint.flow.lift import last, names
from amplint.model import ir

#: Functions that clip the gradients of `parameters`, their first argument.
CLIPPERS = frozenset(
    {
        "apex.contrib.clip_grad.clip_grad_norm_",
        "apex.contrib.clip_grad.clip_grad.clip_grad_norm_",
        *(
            f"torch.nn.utils{module}.{name}"
            for module in ("", ".clip_grad")
            for name in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grads_with_norm_")
        ),
    }
)
#: timm's, wherever they were imported from or copied to.
_TIMM = ("dispatch_clip_grad", "adaptive_clip_grad")
_SHARDED = (
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
)
_INFINITE = ("math.inf", "torch.inf", "numpy.inf", "numpy.Inf", "torch.math.inf")
_BOUNDS = frozenset({"clamp_", "clip_"})
_PURE_BOUNDS = ("torch.clamp", "torch.clip", "torch.clamp_", "torch.clip_")
_TOGETHER = ("torch._foreach_mul_", "torch._foreach_div_")


def is_sharded(value: ir.Expr | None) -> bool:
    """Whether `value` wraps a module in FSDP."""
    return isinstance(value, ir.Call) and any(name in _SHARDED for name in names(value.func))


def clipped_by_call(call: ir.Call) -> tuple[ir.Expr | None, str] | None:
    """(parameters, function) when `call` is a known clipping function that does more than measure."""
    known = [name for name in names(call.func) if name in CLIPPERS or name.rpartition(".")[2] in _TIMM]
    if not known or any(arg.star for arg in call.args) or known[0].startswith(("__main__.", "<")):
        return None
    name = known[0].rpartition(".")[2]
    params: ir.Expr | None = None
    bound: ir.Expr | None = None
    positional = [arg.value for arg in call.args if arg.keyword is None]
    if positional:
        params = positional[0]
    if len(positional) > 1:
        bound = positional[1]
    for arg in call.args:
        if arg.keyword == "parameters":
            params = arg.value
        elif arg.keyword in ("max_norm", "clip_value", "value"):
            bound = arg.value
    if bound is not None and is_infinite(bound):
        return None
    return params, name


def is_infinite(expr: ir.Expr) -> bool:
    """Whether `expr` is infinity: such a bound only measures the norm."""
    if isinstance(expr, ir.Call) and names(expr.func) == ("builtins.float",) and len(expr.args) == 1:
        value = expr.args[0].value
        return isinstance(value, ir.Const) and str(value.value).lower().lstrip("+") in ("inf", "infinity")
    return any(name in _INFINITE for name in names(expr))


def gradient_of(expr: ir.Expr) -> ir.Expr | None:
    """`p` where `expr` is `p.grad` or `p.grad.data`."""
    if isinstance(expr, ir.Attr) and expr.attr == "data":
        expr = expr.value
    return expr.value if isinstance(expr, ir.Attr) and expr.attr == "grad" else None


class Derived:
    """The variables of one function that are computed from gradient norms, or from the loss scale."""

    def __init__(self, body: ir.Block) -> None:
        self.norms: set[tuple[str, str | None]] = set()
        self.scales: set[tuple[str, str | None]] = set()
        assigned = [
            (target, stmt.value)
            for stmt in walk.statements(body)
            if isinstance(stmt, (ir.Assign, ir.AugAssign)) and stmt.value is not None
            for target in (stmt.targets if isinstance(stmt, ir.Assign) else (stmt.target,))
            if isinstance(target, ir.Name)
        ]
        grows = True
        while grows:
            before = len(self.norms) + len(self.scales)
            for target, value in assigned:
                if self.from_norm(value):
                    self.norms.add((target.id, target.scope))
                if self.from_scale(value):
                    self.scales.add((target.id, target.scope))
            grows = len(self.norms) + len(self.scales) > before

    def from_norm(self, expr: ir.Expr) -> bool:
        """Whether `expr` is computed from the norm of gradients."""
        if any(isinstance(e, ir.Name) and (e.id, e.scope) in self.norms for e in walk.inside(expr)):
            return True
        measures = any(isinstance(e, ir.Call) and "norm" in last(e.func) for e in walk.inside(expr))
        return measures and any(isinstance(e, ir.Attr) and e.attr == "grad" for e in walk.inside(expr))

    def from_scale(self, expr: ir.Expr) -> bool:
        """Whether `expr` is computed from a scaler's current scale."""
        return any(
            (isinstance(e, ir.Name) and (e.id, e.scope) in self.scales)
            or (isinstance(e, ir.Attr) and e.attr in ("get_scale", "_scale", "_get_scale_async"))
            for e in walk.inside(expr)
        )

    def clip_of(self, expr: ir.Expr) -> ir.Expr | None:
        """`p` where the call bounds `p.grad` in place, by value or by a factor made from a norm."""
        if not isinstance(expr, ir.Call):
            return None
        if names(expr.func) and names(expr.func)[0] in ("torch.clamp_", "torch.clip_") and expr.args:
            return gradient_of(expr.args[0].value)
        if not isinstance(expr.func, ir.Attr):
            return None
        target = gradient_of(expr.func.value)
        if target is None or expr.func.attr in _BOUNDS:
            return target
        if expr.func.attr in ("mul_", "div_") and expr.args and self.from_norm(expr.args[0].value):
            return target
        return (
            self._rewritten(target, expr.args[0].value) if expr.func.attr == "copy_" and expr.args else None
        )

    def clip_by_assignment(self, target: ir.Expr, value: ir.Expr, op: str = "") -> ir.Expr | None:
        """`p` where `p.grad = bounded` or `p.grad *= factor` clips."""
        owner = gradient_of(target)
        if owner is None:
            return None
        if op in ("*", "/"):
            return owner if self.from_norm(value) else None
        return self._rewritten(owner, value)

    def _rewritten(self, owner: ir.Expr, value: ir.Expr) -> ir.Expr | None:
        if isinstance(value, ir.Call) and value.func is not None:
            bounds = any(name in _PURE_BOUNDS for name in names(value.func))
            if bounds and value.args and gradient_of(value.args[0].value) is not None:
                return owner
            if isinstance(value.func, ir.Attr) and value.func.attr in ("clamp", "clip"):
                return owner if gradient_of(value.func.value) is not None else None
        if isinstance(value, ir.Binary) and value.op in ("*", "/"):
            grad = gradient_of(value.left) or gradient_of(value.right)
            return owner if grad is not None and self.from_norm(value) else None
        return None

    def descales(self, expr: ir.Expr) -> bool:
        """Whether the call multiplies or divides a gradient by something made from the loss scale."""
        if not isinstance(expr, ir.Call) or not isinstance(expr.func, ir.Attr):
            return False
        if any(name in _TOGETHER for name in names(expr.func)):
            return any(self.from_scale(arg.value) for arg in expr.args[1:])
        if expr.func.attr not in ("mul_", "div_") or gradient_of(expr.func.value) is None:
            return False
        return bool(expr.args) and self.from_scale(expr.args[0].value)

    def descales_by_assignment(self, target: ir.Expr, value: ir.Expr) -> bool:
        """Whether `p.grad = p.grad / scale` or `p.grad *= inverse` does."""
        return gradient_of(target) is not None and self.from_scale(value)
