"""The parameters that a GradScaler's optimizer updates are float16, which `unscale_` refuses."""

from __future__ import annotations

from collections.abc import Iterable

from amplint.finding import Severity
from amplint.flow.dtypes import FP16
from amplint.flow.held import Held, objects_of
from amplint.flow.parameters import Cast, low_precision_parameters
from amplint.flow.scaler import scaler_analysis
from amplint.model.units import is_own
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.scaler import protocol

_INPUTS = (
    "what is cast along with the parameters (inputs, other modules) must become float32 again as well: "
    "drop the casts and let autocast choose"
)


def check(ctx: Context) -> Iterable[Report]:
    """Report each cast to float16 of parameters that a scaler's optimizer owns."""
    for cast in _casts(ctx):
        if cast.kind != FP16:
            continue
        steps = [
            (cast.site, f"parameters of {cast.model} are float16 from here on"),
            (cast.optimizer, "they are handed to the optimizer here"),
            *((site, "the scaler is made here") for site in cast.scalers[:1]),
            (cast.step, "float16 gradients are unscaled here"),
        ]
        yield Report(
            ctx.model.tree.nodes[cast.site],
            f"parameters of {cast.model} are made float16 and updated through a GradScaler, which raises "
            '"Attempting to unscale FP16 gradients"; keep them float32',
            trace=protocol.trace(ctx, steps),
            fix=lambda: _INPUTS,
        )


def _casts(ctx: Context) -> Iterable[Cast]:
    """The casts in this file; where none is stepped here, those that functions of other files step."""
    found = low_precision_parameters(objects_of(ctx.model))
    if found:
        return found
    linked = scaler_analysis(ctx.model, ctx.project).linked
    if linked is None or not any(True for _ in linked.others):
        return ()
    return (cast for cast in low_precision_parameters(Held(linked)) if is_own(cast.site))


RULE = Rule(
    code="AMP219",
    name="fp16-params-with-grad-scaler",
    summary="trainable parameters are float16 although a GradScaler steps their optimizer",
    severity=Severity.ERROR,
    check=check,
    words=("GradScaler",),
    shape=shapes.fp16_params_with_grad_scaler,
    module=__name__,
)
