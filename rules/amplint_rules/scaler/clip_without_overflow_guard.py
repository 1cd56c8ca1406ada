"""Clipping by norm as the only net against inf: the factor is 0 then, and 0 * inf is NaN."""

from __future__ import annotations

from collections.abc import Iterable

from amplint.finding import Confidence, Severity
from amplint.flow.dtypes import BF16, FP16
from amplint.flow.held import Held, Placed, objects_of
from amplint.flow.lift import names
from amplint.flow.regions import Loss, backward_of, regions_of
from amplint.flow.steps import factor_of, has_owner, is_divided, optimizer_steps
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.scaler import finite

_CLIPPERS = (
    "torch.nn.utils.clip_grad_norm_",
    "torch.nn.utils.clip_grad.clip_grad_norm_",
)
_CHOICE = "raise (error_if_nonfinite=True) or skip the step (where the norm is not finite): that is a choice"


def check(ctx: Context) -> Iterable[Report]:
    """Report each clip by norm of low-precision gradients in a file that never asks whether they are finite."""
    model = ctx.model
    if "backward" not in model.source.text:  # most files with autocast train nothing
        return
    held = objects_of(model)
    losses = regions_of(model).losses
    if not losses or has_owner(model, held) or finite.asks(held):
        return
    stepping = {step.function for step in optimizer_steps(held)}
    nodes = model.tree.nodes
    for placed in held.calls:
        if placed.function not in stepping or not any(name in _CLIPPERS for name in names(placed.call.func)):
            continue
        found = _before(held, placed, losses)
        if found is None:
            continue
        loss, factor = found
        trace = [(nodes[loss.regions[0].site], f"the forward pass is {_kind(loss)} in this region")]
        if factor is not None:
            trace.append(
                (nodes[factor.site], "the loss is multiplied by a fixed scale, and gradients with it")
            )
        yield Report(
            nodes[placed.call.site],
            "where a gradient is inf the norm is, too: this multiplies by 0 then, which makes inf NaN, "
            "and nothing in this file asks whether anything is finite",
            confidence=Confidence.LOW if factor is None else Confidence.MEDIUM,
            trace=[*trace, (nodes[loss.call.site], "gradients are computed here")],
            fix=lambda: _CHOICE,
        )


def _before(held: Held, placed: Placed, losses: tuple[Loss, ...]) -> tuple[Loss, ir.Expr | None] | None:
    """The backward before a clip in the same function, and the factor by which its loss is scaled by hand."""
    before = [x for x in losses if x.function == placed.function and x.call.site < placed.call.site]
    if not before or any(region.enabled is not True for region in before[-1].regions):
        return None
    loss = before[-1]
    source = backward_of(loss.call)
    factor = factor_of(held, source) if source is not None else None
    if factor is not None and is_divided(held, loss.function, factor):
        return (loss, factor) if _kind(loss) == FP16 else None
    return (loss, None) if _kind(loss) == BF16 else None


def _kind(loss: Loss) -> str:
    """The one dtype of the regions that a loss comes from, "" for several."""
    kinds = {kind for region in loss.regions for kind in region.kinds}
    return kinds.pop() if len(kinds) == 1 else ""


RULE = Rule(
    code="AMP225",
    name="clip-without-overflow-guard",
    summary="clipping by norm is the only net against inf, of which it makes NaN",
    severity=Severity.WARNING,
    check=check,
    words=("clip_grad_norm_",),
    shape=shapes.clip_without_overflow_guard,
    confidence=Confidence.MEDIUM,
    module=__name__,
)
