"""A fixed loss scale by hand: gradients that are never divided, or twice, or whose overflow nobody looks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.finding import Confidence, Severity
from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.dtypes import FP16
from amplint.flow.held import Held, Placed, objects_of
from amplint.flow.lift import last, names
from amplint.flow.regions import backward_of, regions_of
from amplint.flow.steps import has_owner, optimizer_steps
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.scaler import finite

#: Names of loss scales, and of factors that are none.
_SCALE = re.compile(r"scal", re.IGNORECASE)
_NO_SCALE = re.compile(r"world|accum|weight|lambda|guidance|resc|token|lr|grayscale|upscale", re.IGNORECASE)
#: Below this a factor is taken for the weight of a loss.
_LEAST = 64
#: From here on an overflow is a matter of time.
_LARGE = 1024
#: Functions that may divide the gradients elsewhere.
_DIVIDES = re.compile(
    r"unscale|scale_grad|grad_scale|master|model_grads|grads_to|allreduce|all_reduce", re.IGNORECASE
)
_BY_HAND = "torch.amp.GradScaler scales, divides and skips steps that overflow; replacing the fixed scale is a choice"
_GRADIENTS = ("grad", "main_grad")
#: Methods that change a gradient in place.
_IN_PLACE = ("div_", "mul_", "copy_", "divide_", "true_divide_")


@dataclass(frozen=True, slots=True)
class _Scaled:
    """`(loss * factor).backward()` where the factor is a loss scale."""

    placed: Placed
    factors: tuple[ir.Expr, ...]
    #: What it is, where the file says.
    value: float | None

    @property
    def factor(self) -> ir.Expr:
        """The factor, as it is written last."""
        return self.factors[0]


@dataclass(frozen=True, slots=True)
class _Division:
    """Gradients are divided by something."""

    expr: ir.Expr
    function: str
    site: int
    arms: tuple[tuple[int, int], ...]


def check(ctx: Context) -> Iterable[Report]:
    """Report each backward of a loss that is scaled by hand where the rest is missing."""
    held = objects_of(ctx.model)
    if has_owner(ctx.model, held):
        return
    steps = optimizer_steps(held)
    divisions = tuple(d for name, f in held.functions.items() for d in _divisions(held, f.body, name, ()))
    for scaled in _scaled(held):
        step = next((s for s in steps if s.call.site > scaled.placed.call.site), steps[0] if steps else None)
        if step is not None:
            yield from _reports(ctx, held, scaled, step, divisions)


def _reports(
    ctx: Context, held: Held, scaled: _Scaled, step: Placed, divisions: tuple[_Division, ...]
) -> Iterator[Report]:
    nodes = ctx.model.tree.nodes
    written = ctx.model.tree.code(nodes[scaled.factor.site])
    backward = nodes[scaled.placed.call.site]
    begin = (nodes[scaled.factor.site], "the loss is multiplied by a fixed scale, and gradients with it")
    end = (nodes[step.call.site], "the optimizer uses the gradients")
    by_it = [d for d in divisions if held.lift.term(d.expr) == held.lift.term(scaled.factor)]
    if len(scaled.factors) > 1:
        yield Report(
            backward,
            f"the loss is multiplied by `{written}` twice before this backward",
            trace=[(nodes[f.site], "multiplied here") for f in sorted(scaled.factors, key=lambda f: f.site)],
            fix=lambda: "take one of the two out",
        )
    elif not by_it and not divisions and not _may_divide(held, scaled):
        yield Report(
            backward,
            f"the loss is multiplied by `{written}`, and nothing divides the gradients by it before the step",
            confidence=Confidence.MEDIUM if scaled.value is not None else Confidence.LOW,
            trace=[begin, end],
            fix=lambda: _BY_HAND,
        )
    twice = next((pair for pair in _pairs(by_it)), None)
    if twice is not None:
        yield Report(
            nodes[twice[1].site],
            f"the gradients are divided by `{written}` a second time here",
            trace=[
                begin,
                (nodes[twice[0].site], "divided here"),
                (nodes[twice[1].site], "and here again"),
                end,
            ],
            fix=lambda: "take one of the two out",
        )
    elif len(by_it) == 1 and _is_half(ctx, held, scaled) and not finite.asks(held) and not _clips(held):
        is_large = scaled.value is None or scaled.value >= _LARGE
        yield Report(
            nodes[step.call.site],
            f"an overflow under the fixed loss scale `{written}` reaches the weights: nothing in this file asks "
            "whether the gradients are finite before this step",
            confidence=Confidence.MEDIUM if is_large else Confidence.LOW,
            trace=[begin, (nodes[by_it[0].site], "inf divided by it stays inf"), end],
            fix=lambda: _BY_HAND,
        )


def _pairs(divisions: list[_Division]) -> Iterator[tuple[_Division, _Division]]:
    """Divisions of one function that both happen."""
    for index, first in enumerate(divisions):
        for second in divisions[index + 1 :]:
            arms = dict(first.arms)
            if first.function == second.function and all(
                arms.get(test, arm) == arm for test, arm in second.arms
            ):
                yield first, second


# -- what is scaled -------------------------------------------------------------------------------------------------


def _scaled(held: Held) -> Iterator[_Scaled]:
    for placed in held.calls:
        loss = backward_of(placed.call)
        if loss is None or placed.inference:
            continue
        found = tuple(f for f in _factors(held, loss, placed.function) if _is_scale(held, f))
        if found:
            same = tuple(f for f in found if held.lift.term(f) == held.lift.term(found[0]))
            yield _Scaled(placed, same, _value(held, found[0]))


def _factors(held: Held, expr: ir.Expr, function: str, depth: int = 0) -> Iterator[ir.Expr]:
    """What a loss is multiplied by, the last first; through one assignment."""
    sides: list[ir.Expr] = []
    if isinstance(expr, ir.Binary) and expr.op == "*":
        sides = [expr.right, expr.left]
    elif (
        isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr) and expr.func.attr in ("mul", "multiply")
    ):
        sides = [*(arg.value for arg in expr.args), expr.func.value]
    if sides:
        yield from (side for side in sides if _value(held, side) is not None or _is_named(side))
        yield from (f for side in sides if not _is_named(side) for f in _factors(held, side, function, depth))
        return
    path = held.lift.path(expr)
    if path is None or depth > 1:
        return
    values = [b for b in held.values(path) if b.value is not None and b.function == function]
    scaled = [b.value for b in values if _multiplies(b.value)]
    if len(scaled) == 1 and scaled[0] is not None:
        yield from _factors(held, scaled[0], function, depth + 2)


def _multiplies(expr: ir.Expr | None) -> bool:
    if isinstance(expr, ir.Call):
        return last(expr.func) in ("mul", "multiply")
    return isinstance(expr, ir.Binary) and expr.op == "*"


def _is_named(expr: ir.Expr) -> bool:
    name = last(expr)
    return (
        bool(_SCALE.search(name))
        and not _NO_SCALE.search(name)
        and "loss" not in name.lower().replace("loss_scal", "")
    )


def _is_scale(held: Held, factor: ir.Expr) -> bool:
    value = _value(held, factor)
    if isinstance(factor, (ir.Const, ir.Binary)):  # a power of two is no weight
        return (
            value is not None and value >= 2 * _LEAST and value == int(value) and int(value).bit_count() == 1
        )
    return _is_named(factor) and (value is None or value >= _LEAST)


def _value(held: Held, expr: ir.Expr | None, depth: int = 0) -> float | None:
    """The number that an expression is."""
    if isinstance(expr, ir.Const):
        is_number = isinstance(expr.value, (int, float)) and not isinstance(expr.value, bool)
        return float(expr.value) if is_number and isinstance(expr.value, (int, float)) else None
    if isinstance(expr, ir.Binary) and expr.op in ("**", "*"):
        left, right = _value(held, expr.left, depth), _value(held, expr.right, depth)
        if left is None or right is None or abs(right) > 64:
            return None
        return left**right if expr.op == "**" else left * right
    path = held.lift.path(expr)
    if path is None or depth > 3:
        return None
    values = [binding.value for binding in held.values(path)]
    if not values and held.is_param(path):
        values = list(held.given(path)[0])
    found = {_value(held, value, depth + 1) for value in values}
    return found.pop() if len(found) == 1 else None


# -- what happens to gradients --------------------------------------------------------------------------------------


def _divisions(
    held: Held, block: ir.Block, function: str, arms: tuple[tuple[int, int], ...]
) -> Iterator[_Division]:
    for stmt in block:
        for site, by in (*_by_statement(held, stmt), *_by_call(held, stmt)):
            yield _Division(by, function, site, arms)
        if isinstance(stmt, ir.If):
            yield from _divisions(held, stmt.body, function, (*arms, (stmt.site, 0)))
            yield from _divisions(held, stmt.orelse, function, (*arms, (stmt.site, 1)))
        else:
            for part in walk.blocks(stmt):
                yield from _divisions(held, part, function, arms)


def _by_statement(held: Held, stmt: ir.Stmt) -> Iterator[tuple[int, ir.Expr]]:
    """Where an assignment divides gradients, and by what; a factor as it is where it does not invert anything."""
    if isinstance(stmt, ir.AugAssign) and stmt.op in ("/", "*") and _is_gradient(stmt.target):
        yield stmt.site, stmt.value if stmt.op == "/" else _inverted(held, stmt.value)
    if isinstance(stmt, ir.Assign) and any(_is_gradient(target) for target in stmt.targets):
        value = stmt.value
        if isinstance(value, ir.Binary) and value.op in ("/", "*"):
            yield stmt.site, value.right if value.op == "/" else _inverted(held, value.right)


def _by_call(held: Held, stmt: ir.Stmt) -> Iterator[tuple[int, ir.Expr]]:
    """The same for calls of methods that change gradients in place."""
    for expr in (e for whole in walk.own(stmt) for e in walk.inside(whole)):
        if not isinstance(expr, ir.Call) or not isinstance(expr.func, ir.Attr) or not expr.args:
            continue
        value = expr.args[-1].value
        if any("_foreach_" in name for name in names(expr.func)):
            yield expr.site, value
        elif _is_gradient(expr.func.value) and expr.func.attr in _IN_PLACE:
            yield expr.site, _inverted(held, value) if expr.func.attr in ("mul_", "copy_") else value


def _inverted(held: Held, expr: ir.Expr) -> ir.Expr:
    """`scale` of `1 / scale`, also where a variable holds that; anything else as it is."""
    path = held.lift.path(expr)
    values = held.values(path) if path is not None else ()
    value = values[0].value if len(values) == 1 else expr
    return value.right if isinstance(value, ir.Binary) and value.op == "/" else expr


def _is_gradient(expr: ir.Expr) -> bool:
    if isinstance(expr, ir.Attr) and expr.attr == "data":
        expr = expr.value
    return last(expr) in _GRADIENTS or (isinstance(expr, ir.Name) and expr.id in ("g", "gradient"))


def _may_divide(held: Held, scaled: _Scaled) -> bool:
    """Whether something else may take the scale out again: a division by it, or a function that is named so."""
    term = held.lift.term(scaled.factor)
    root = last(scaled.factor)
    for function in held.functions.values():
        if _DIVIDES.search(function.qualname):
            return True
        for expr in walk.expressions(function.body):
            if isinstance(expr, ir.Binary) and expr.op == "/" and not _is_loss(expr.left):
                is_it = held.lift.term(expr.right) == term or (bool(root) and last(expr.right) == root)
            else:
                is_it = isinstance(expr, ir.Call) and (
                    bool(_DIVIDES.search(last(expr.func))) or _hands_on(held, expr, term, root)
                )
            if is_it:
                return True
    return False


def _is_loss(expr: ir.Expr) -> bool:
    return any("loss" in last(e).lower() for e in walk.inside(expr))


def _hands_on(held: Held, call: ir.Call, term: c.Term, root: str) -> bool:
    """Whether a call is handed the scale: it may be what divides."""
    if last(call.func) in ("print", "log", "info", "format"):
        return False
    return any(
        not isinstance(arg.value, ir.Const)
        and (held.lift.term(arg.value) == term or (arg.keyword is not None and arg.keyword == root))
        for arg in call.args
    )


def _is_half(ctx: Context, held: Held, scaled: _Scaled) -> bool:
    """Whether gradients are float16: the loss comes from such a region, or a model was made half."""
    for loss in regions_of(ctx.model).losses:
        if loss.call.site == scaled.placed.call.site:
            return any(region.kinds == {FP16} and region.enabled is not False for region in loss.regions)
    return any(last(placed.call.func) == "half" and not placed.call.args for placed in held.calls)


def _clips(held: Held) -> bool:
    """Whether a clip is between, which AMP225 is about."""
    return any(last(placed.call.func) == "clip_grad_norm_" for placed in held.calls)


RULE = Rule(
    code="AMP319",
    name="loss-scale-by-hand",
    summary="a fixed loss scale by hand is not divided out, is applied twice, or lets overflows through",
    severity=Severity.WARNING,
    check=check,
    words=("autocast", "half", "float16", "fp16"),
    shape=shapes.loss_scale_by_hand,
    confidence=Confidence.MEDIUM,
    module=__name__,
)
