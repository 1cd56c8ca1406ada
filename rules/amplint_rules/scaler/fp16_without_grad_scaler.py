"""Training in float16 autocast without a loss scale: small gradients become 0."""

from __future__ import annotations

from collections.abc import Iterable

from amplint.finding import Confidence, Severity
from amplint.flow import conditions as c
from amplint.flow.dtypes import FP16
from amplint.flow.held import Held, Placed, objects_of
from amplint.flow.regions import Loss, Region, backward_of, regions_of
from amplint.flow.steps import changes_gradients, factor_of, may_scale, optimizer_steps
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

_CHOICE = (
    "either a GradScaler (scale, step and update in this loop, its state in the checkpoint) or "
    "dtype=torch.bfloat16 for the region: that is a choice"
)


def check(ctx: Context) -> Iterable[Report]:
    """Report each backward of a loss from a float16 region in a file where nothing scales."""
    model = ctx.model
    if "backward" not in model.source.text:  # most files with autocast train nothing
        return
    held = objects_of(model)
    if may_scale(model, held) or changes_gradients(held):
        return
    steps = optimizer_steps(held)
    nodes = model.tree.nodes
    for loss in regions_of(model).losses:
        step = _step_of(held, loss, steps)
        source = backward_of(loss.call)
        if step is None or source is None or factor_of(held, source) is not None:
            continue
        found = _fp16(held, loss)
        if found is None:
            continue
        region, certain = found
        what = model.tree.code(nodes[source.site])
        how = "is computed in float16" if certain else "may be computed in float16"
        if region.enabled is not True:
            how += ", where the region is enabled,"
        yield Report(
            nodes[loss.call.site],
            f"`{what}` {how} and nothing scales it: gradients below 6e-8 become 0",
            severity=Severity.ERROR if certain else Severity.WARNING,
            confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
            trace=[
                (
                    nodes[region.site],
                    f"the forward pass {'is' if certain else 'may be'} float16 in this region",
                ),
                (nodes[loss.call.site], "its gradients are computed here, unscaled"),
                (nodes[step.call.site], "and the optimizer uses them here"),
            ],
            fix=lambda: _CHOICE,
        )


def _step_of(held: Held, loss: Loss, steps: list[Placed]) -> Placed | None:
    """The step that uses the gradients: in the same function, or else in the same class."""
    same = [step for step in steps if step.function == loss.function]
    if not same:
        owner = held.functions[loss.function].owner
        same = [step for step in steps if owner and held.functions[step.function].owner == owner]
    return next((s for s in same if s.call.site > loss.call.site), same[0] if same else None)


def _fp16(held: Held, loss: Loss) -> tuple[Region, bool] | None:
    """The region that is float16, and whether it certainly is; None where it may well be none."""
    for region in loss.regions:
        if region.inference or region.enabled is False:
            continue
        low = [choice for choice in region.dtypes if choice.kind == FP16]
        if not low or not held.may_be(region.enabled, low[0].guard, loss.guard):
            continue
        if region.kinds == {FP16}:
            return region, True
        # of several, the one to be had must be written out as such, or be the default of a device
        chosen = [c.is_modelled(choice.guard) or choice.site == region.site for choice in low]
        if "" not in region.kinds and all(chosen):
            return region, False
    return None


RULE = Rule(
    code="AMP218",
    name="fp16-without-grad-scaler",
    summary="a loss from float16 autocast is differentiated without a loss scale",
    severity=Severity.ERROR,
    check=check,
    words=("autocast",),
    shape=shapes.fp16_without_grad_scaler,
    module=__name__,
)
