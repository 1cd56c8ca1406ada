"""The value of the scaled loss is logged, added up or returned."""

from __future__ import annotations

from collections.abc import Iterable

from amplint.finding import Severity
from amplint.flow.verdicts import Violation
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.scaler import protocol

_DECISION = "give the scaled loss a name of its own, or none: which value was wanted is for you to say"


def check(ctx: Context) -> Iterable[Report]:
    """Report uses of a scaled loss other than its backward."""
    return protocol.reports(ctx, "leak", _message, lambda ctx, violation: _DECISION)


def _message(ctx: Context, violation: Violation) -> str:
    scaler = protocol.scaler_of(violation)
    return f"what is {violation.detail} here is the loss times the loss scale of {scaler}, not the loss"


RULE = Rule(
    code="AMP214",
    name="scaled-loss-escapes",
    summary="the scaled loss is logged, added up or returned",
    severity=Severity.WARNING,
    check=check,
    words=(".scale", "caler", "unscale_", "manual_backward", "Accelerator", "Fabric"),
    shape=shapes.protocol,
    fixable="none",
    module=__name__,
)
