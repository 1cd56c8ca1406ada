"""The loss is not scaled, and its gradients are stepped through a scaler that divides them by the scale."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from amplint.finding import Applicability, Edit, Fix, FixKind, Severity
from amplint.flow.verdicts import Violation
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.scaler import protocol


def check(ctx: Context) -> Iterable[Report]:
    """Report backwards of unscaled losses whose gradients a scaler steps with."""
    return protocol.reports(ctx, "unscaled-backward", _message, _fix)


def _message(ctx: Context, violation: Violation) -> str:
    optimizer = protocol.optimizer_of(violation)
    return (
        f"this loss is not scaled, but {violation.scaler}.step({optimizer}) divides its gradients by the scale "
        "(before the first scale() it raises)"
    )


def _fix(ctx: Context, violation: Violation) -> Fix | str:
    call = protocol.node(ctx, violation.site)
    scaler = protocol.owner(ctx, violation.shows_at)
    plain = isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute)
    if not plain or not scaler or not protocol.in_one_scope(ctx, violation.site, violation.shows_at):
        return f"{violation.scaler} has no name where the backward stands"
    assert isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute)
    loss = call.func.value
    edit = Edit(ctx.model.tree.span(loss), f"{scaler}.scale({ctx.model.tree.code(loss)})")
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, f"Scale the loss with {scaler}", (edit,))


RULE = Rule(
    code="AMP207",
    name="backward-without-scale",
    summary="gradients of an unscaled loss are stepped through an enabled scaler",
    severity=Severity.ERROR,
    check=check,
    words=("backward",),
    shape=shapes.protocol,
    fixable="sometimes",
    module=__name__,
)
