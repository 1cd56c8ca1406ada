"""Who steps the optimizers of one file, and whether anything in it may scale the loss."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.held import Held, Placed
from amplint.flow.lift import names
from amplint.model import ir

if TYPE_CHECKING:
    from amplint.model.module import ModuleModel

#: Names of loss scalers, of frameworks that own one, and of optimizers that keep copies of the parameters.
_OWNERS = re.compile(
    r"scaler|scale_backward|accelerate$|accelerator|deepspeed|lightning|fabric|apex|colossalai|megatron|fairscale"
    r"|fairseq|horovod|amp_?handle|optim_?wrapper|mixed_?precision_?opt|fp16_?optim|master_?(?:param|weight|grad|cop)|manual_backward|ignite"
    r"|catalyst|composer|mmengine|mmcv|oneflow|paddle|torchtnt|fastai",
    re.IGNORECASE,
)
#: Names of factors that a loss is multiplied by.
_FACTORS = re.compile(r"loss_?scal|scaled?_?loss|grad_?scal", re.IGNORECASE)
#: Of these, what torch itself calls so.
_TORCH = ("torch.accelerator", "torch.distributed", "torch.set_default")
_SCHEDULER = re.compile(r"sched|warmup|lr_|_lr|ema|prof|env|logger|timer|meter|bar$|counter", re.IGNORECASE)


def may_scale(model: ModuleModel, held: Held) -> bool:
    """Whether a name in the file suggests that losses are scaled, here or by a framework."""
    return has_owner(model, held) or any(_FACTORS.search(name) for name in _identifiers(held))


def has_owner(model: ModuleModel, held: Held) -> bool:
    """Whether a name in the file suggests a scaler, or a framework that owns one."""
    imported = (
        part
        for scope in model.names.scopes
        for bindings in scope.bindings.values()
        for binding in bindings
        if binding.kind == "import"
        for part in (binding.name, *(binding.origin or "").split("."))
        if not (binding.origin or "").startswith(_TORCH)
    )
    return any(_OWNERS.search(name) for name in (*imported, *_identifiers(held)))


def _identifiers(held: Held) -> Iterator[str]:
    for function in held.functions.values():
        yield function.qualname
        for param in function.params:
            yield param.name
        for expr in walk.expressions(function.body):
            if isinstance(expr, (ir.Name, ir.Attr)) and not any(n.startswith(_TORCH) for n in names(expr)):
                yield expr.id if isinstance(expr, ir.Name) else expr.attr
            if isinstance(expr, ir.Call):
                yield from (arg.keyword for arg in expr.args if arg.keyword is not None)
    for klass in held.classes.by_name.values():
        yield klass.qualname
        yield from (part for base in klass.bases for name in base for part in name.split("."))


def optimizer_steps(held: Held) -> list[Placed]:
    """The calls that step an optimizer."""
    found = []
    for placed in held.calls:
        func = placed.call.func
        if not isinstance(func, ir.Attr) or func.attr != "step" or len(placed.call.args) > 1 or names(func):
            continue
        path = held.lift.path(func.value)
        if path is None or _SCHEDULER.search(path[-1].rpartition(":")[2]):
            continue
        written = path[-1].rpartition(":")[2].lower()
        known = any(held.owned(origin) is not None for origin in held.origins(path))
        if known or "opt" in written:
            found.append(placed)
    return found


def changes_gradients(held: Held) -> bool:
    """Whether gradients are multiplied or divided by hand, as a static loss scale demands."""
    for function in held.functions.values():
        for stmt in walk.statements(function.body):
            targets = stmt.targets if isinstance(stmt, ir.Assign) else ()
            if isinstance(stmt, ir.AugAssign):
                targets = (stmt.target,)
            if any(_is_gradient(target) for target in targets) and not _is_none(stmt):
                return True
        for expr in walk.expressions(function.body):
            if not isinstance(expr, ir.Call):
                continue
            func = expr.func
            in_place = isinstance(func, ir.Attr) and func.attr in ("mul_", "div_", "copy_")
            if in_place and isinstance(func, ir.Attr) and _is_gradient(func.value):
                return True
            if any("_foreach_" in name for name in names(func)):
                return True
    return False


def _is_gradient(expr: ir.Expr) -> bool:
    if isinstance(expr, ir.Attr) and expr.attr == "data":
        expr = expr.value
    return isinstance(expr, ir.Attr) and expr.attr in ("grad", "main_grad")


def _is_none(stmt: ir.Stmt) -> bool:
    value = stmt.value if isinstance(stmt, (ir.Assign, ir.AugAssign)) else None
    return isinstance(value, ir.Const) and value.value is None


def factor_of(held: Held, expr: ir.Expr) -> ir.Expr | None:
    """The factor that a loss is multiplied by, as a static loss scale is: a number or a variable."""
    path = held.lift.path(expr)
    if path is not None:
        values = [binding.value for binding in held.values(path) if binding.value is not None]
        found = [factor for value in values if (factor := _factor(held, value)) is not None]
        return found[0] if found else None
    return _factor(held, expr)


def _factor(held: Held, expr: ir.Expr) -> ir.Expr | None:
    if not isinstance(expr, ir.Binary) or expr.op != "*":
        return None
    for part in (expr.right, expr.left):
        if isinstance(part, ir.Const) or (held.lift.path(part) is not None and isinstance(part, ir.Attr)):
            return part
        if isinstance(part, ir.Name) and "loss" not in part.id.replace("loss_scale", ""):
            return part
    return None


def is_divided(held: Held, function: str, factor: ir.Expr) -> bool:
    """Whether gradients are divided by `factor` in a function."""
    wanted = held.lift.term(factor)
    body = held.functions[function].body
    for stmt in walk.statements(body):
        divides = isinstance(stmt, ir.AugAssign) and stmt.op == "/" and _is_gradient(stmt.target)
        if divides and isinstance(stmt, ir.AugAssign) and held.lift.term(stmt.value) == wanted:
            return True
        for target in stmt.targets if isinstance(stmt, ir.Assign) else ():
            value = stmt.value if isinstance(stmt, ir.Assign) else None
            if _is_gradient(target) and isinstance(value, ir.Binary) and _inverts(held, value, wanted):
                return True
    for expr in walk.expressions(body):
        if not isinstance(expr, ir.Call) or not isinstance(expr.func, ir.Attr) or not expr.args:
            continue
        by = expr.args[0].value
        if _is_gradient(expr.func.value):
            if expr.func.attr == "div_" and held.lift.term(by) == wanted:
                return True
            if expr.func.attr == "mul_" and isinstance(by, ir.Binary) and _inverts(held, by, wanted):
                return True
    return False


def _inverts(held: Held, expr: ir.Binary, wanted: c.Term) -> bool:
    return expr.op == "/" and held.lift.term(expr.right) == wanted
