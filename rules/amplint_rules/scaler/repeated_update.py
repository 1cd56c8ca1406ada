"""More than one `update` in an iteration."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from amplint.finding import Applicability, Fix, FixKind, Severity
from amplint.flow.verdicts import Violation
from amplint.model.units import is_own
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes, statements
from amplint_rules.scaler import protocol


def check(ctx: Context) -> Iterable[Report]:
    """Report the updates of an iteration but the last."""
    for report, violation in protocol.reported(ctx, "repeated-update", _message, _fix):
        if not _has_a_loop_of_its_own(ctx, violation):
            yield report


def _has_a_loop_of_its_own(ctx: Context, violation: Violation) -> bool:
    """Whether the first update ends a round of an inner loop, as several steps of a critic do."""
    tree = ctx.model.tree
    sites = violation.site, violation.shows_at
    if (
        violation.detail != "several"
        or not all(map(is_own, sites))
        or not protocol.in_one_scope(ctx, violation.site, violation.shows_at)
    ):
        return False
    later = protocol.node(ctx, violation.shows_at)
    return any(
        isinstance(outer, (cst.For, cst.While)) and not tree.inside(later, outer)
        for outer in tree.ancestors(protocol.node(ctx, violation.site))
    )


def _message(ctx: Context, violation: Violation) -> str:
    scaler = protocol.scaler_of(violation)
    if violation.detail == "nothing":
        return f"{scaler}.update() runs a second time with nothing stepped since the first: AssertionError"
    if violation.detail == "stale":
        return (
            f"{scaler}.update() may change the scale before the step of {protocol.optimizer_of(violation)}, "
            "whose gradients were scaled by the old one"
        )
    return (
        f"{scaler}.update() runs more than once in one iteration: one call behind the last step is right, "
        "for growth_interval counts calls"
    )


def _always_both(ctx: Context, other: int, violation: Violation) -> bool:
    """Whether this update and the other call run together, with an update behind them both."""
    here, there = protocol.statement(ctx, violation.site), protocol.statement(ctx, other)
    if violation.detail == "nothing":
        return protocol.runs_through(ctx, there, here)
    if not protocol.runs_through(ctx, here, there):
        return False
    return violation.detail == "several" or protocol.is_updated_behind(ctx, violation.scaler, there)


def _fix(ctx: Context, violation: Violation) -> Fix | str:
    other = violation.trace[0][0] if violation.detail == "nothing" else violation.shows_at
    if not _always_both(ctx, other, violation):
        return "the two do not always run together; which of them to keep where is a choice"
    edit = statements.removed(ctx, protocol.statement(ctx, violation.site))
    if edit is None:
        return "the update is all that stands in its block; take it out by hand"
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, "Update once, behind the last step", (edit,))


RULE = Rule(
    code="AMP211",
    name="repeated-update",
    summary="update runs more than once in an iteration",
    severity=Severity.WARNING,
    check=check,
    words=(".scale", "caler", "unscale_", "manual_backward", "Accelerator", "Fabric"),
    shape=shapes.protocol,
    fixable="sometimes",
    module=__name__,
)
