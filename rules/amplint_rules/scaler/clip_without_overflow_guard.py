"""Clipping by norm as the only net against inf: the factor is 0 then, and 0 * inf is NaN."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amplint.finding import Confidence, Severity
from amplint.flow import walk
from amplint.flow.dtypes import BF16
from amplint.flow.held import Held, Placed, objects_of
from amplint.flow.lift import names
from amplint.flow.regions import Loss, regions_of
from amplint.flow.steps import may_scale, optimizer_steps
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

_CLIPPERS = (
    "torch.nn.utils.clip_grad_norm_",
    "torch.nn.utils.clip_grad.clip_grad_norm_",
)
#: Any of these is a look at whether values are finite.
_CHECKS = ("isfinite", "isnan", "isinf", "nan_to_num", "nan_to_num_", "error_if_nonfinite", "detect_anomaly")
_CHECKS_TOO = ("finite", "nan", "overflow", "skip")
_CHOICE = "raise (error_if_nonfinite=True) or skip the step (where the norm is not finite): that is a choice"


def check(ctx: Context) -> Iterable[Report]:
    """Report each clip by norm of gradients from bfloat16 in a file that never asks whether they are finite."""
    model = ctx.model
    held = objects_of(model)
    losses = [loss for loss in regions_of(model).losses if _is_bf16(loss)]
    if not losses or may_scale(model, held) or any(_is_check(name) for name in _identifiers(held)):
        return
    steps = optimizer_steps(held)
    nodes = model.tree.nodes
    for placed in held.calls:
        loss = _loss_of(placed, losses)
        if loss is None or not any(step.function == placed.function for step in steps):
            continue
        yield Report(
            nodes[placed.call.site],
            "where the norm is inf, this multiplies by 0 and makes NaN of every gradient that is inf; "
            "nothing in this file looks whether the norm is finite",
            trace=[
                (nodes[loss.regions[0].site], "the forward pass is bfloat16 in this region"),
                (nodes[loss.call.site], "gradients are computed here"),
            ],
            fix=lambda: _CHOICE,
        )


def _is_bf16(loss: Loss) -> bool:
    return all(region.kinds == {BF16} and region.enabled is True for region in loss.regions)


def _loss_of(placed: Placed, losses: list[Loss]) -> Loss | None:
    """The backward before a clip in the same function."""
    if not any(name in _CLIPPERS for name in names(placed.call.func)):
        return None
    before = [
        loss for loss in losses if loss.function == placed.function and loss.call.site < placed.call.site
    ]
    return before[-1] if before else None


def _is_check(name: str) -> bool:
    return name in _CHECKS or any(part in name.lower() for part in _CHECKS_TOO)


def _identifiers(held: Held) -> Iterator[str]:
    for function in held.functions.values():
        for expr in walk.expressions(function.body):
            if isinstance(expr, (ir.Name, ir.Attr)):
                yield expr.id if isinstance(expr, ir.Name) else expr.attr
            elif isinstance(expr, ir.Call):
                yield from (arg.keyword for arg in expr.args if arg.keyword is not None)


RULE = Rule(
    code="AMP225",
    name="clip-without-overflow-guard",
    summary="clipping by norm is the only net against inf, of which it makes NaN",
    severity=Severity.WARNING,
    check=check,
    words=("clip_grad_norm_",),
    shape=shapes.clip_without_overflow_guard,
    confidence=Confidence.MEDIUM,
    off_by_default=True,
    module=__name__,
)
