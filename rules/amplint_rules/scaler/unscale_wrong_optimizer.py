"""`unscale_` for one object and `step` for another that holds the same parameters."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from amplint.finding import Severity
from amplint.flow.verdicts import Violation
from amplint.model.units import is_own
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.scaler import protocol


def check(ctx: Context) -> Iterable[Report]:
    """Report unscale_ of an inner optimizer whose wrapper is stepped."""
    return protocol.reports(ctx, "wrong-optimizer", _message, lambda ctx, violation: _DECISION)


_DECISION = "unscale_ and step must get the same object; which of the two is meant is for you to say"


def _message(ctx: Context, violation: Violation) -> str:
    scaler, inner = protocol.scaler_of(violation), protocol.optimizer_of(violation)
    step = protocol.node(ctx, violation.shows_at)
    outer = f"the optimizer around {inner}"
    if all(map(is_own, (violation.site, violation.shows_at))) and protocol.in_one_scope(
        ctx, violation.site, violation.shows_at
    ):
        args = step.args if isinstance(step, cst.Call) else ()
        outer = ctx.model.tree.code(args[0].value) if args else outer
    return (
        f"{scaler} keeps state by object: its step of {outer} knows nothing of unscale_({inner}) and divides the "
        "same gradients by the scale once more"
    )


RULE = Rule(
    code="AMP209",
    name="unscale-wrong-optimizer",
    summary="unscale_ gets one object and step another one with the same parameters",
    severity=Severity.ERROR,
    check=check,
    words=(".scale", "caler", "unscale_", "manual_backward", "Accelerator", "Fabric"),
    shape=shapes.protocol,
    fixable="none",
    module=__name__,
)
