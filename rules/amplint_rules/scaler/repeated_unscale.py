"""`unscale_` runs twice for one optimizer before `update`."""

from __future__ import annotations

from collections.abc import Iterable

from amplint.finding import Severity
from amplint.flow.verdicts import Violation
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.scaler import accelerate, protocol

_DECISION = (
    "unscale_ (and the clip) belong under the condition of the step, and whether the clip's result is wanted on "
    "other micro-steps is for you to say"
)


def check(ctx: Context) -> Iterable[Report]:
    """Report `unscale_` calls that can repeat, and accelerate's clip where it unscales on every micro-step."""
    yield from protocol.reports(ctx, "repeated-unscale", _message, lambda ctx, violation: _DECISION)
    yield from accelerate.unguarded_clips(ctx)


def _message(ctx: Context, violation: Violation) -> str:
    optimizer = protocol.optimizer_of(ctx, violation)
    again = "on the next micro-step, " if violation.trace[0][0] == violation.site else ""
    return (
        f"{violation.scaler}.unscale_ runs {again}a second time for {optimizer} before update(): RuntimeError"
    )


RULE = Rule(
    code="AMP205",
    name="repeated-unscale",
    summary="unscale_ can run twice for one optimizer before update",
    severity=Severity.ERROR,
    check=check,
    words=("unscale_", "clip_grad"),
    shape=shapes.repeated_unscale,
    fixable="none",
    module=__name__,
)
