"""`zero_grad` between the backward and the step that wants its gradients."""

from __future__ import annotations

from collections.abc import Iterable

from amplint.finding import Applicability, Fix, FixKind, Severity
from amplint.flow.verdicts import Violation
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes, statements
from amplint_rules.scaler import protocol


def check(ctx: Context) -> Iterable[Report]:
    """Report zero_grad calls that throw away the gradients of the next step."""
    return protocol.reports(ctx, "zero-grad", _message, _fix)


def _message(ctx: Context, violation: Violation) -> str:
    scaler, optimizer = protocol.scaler_of(violation), protocol.optimizer_of(violation)
    return (
        f"zero_grad() throws away the gradients of the backward before it: {scaler}.step finds none for {optimizer} "
        "(AssertionError), or steps with zeros where set_to_none=False"
    )


def _fix(ctx: Context, violation: Violation) -> Fix | str:
    tree = ctx.model.tree
    zero = protocol.statement(ctx, violation.site)
    backwards = [
        site
        for site in protocol.backwards(ctx)
        if site < violation.site and protocol.in_one_scope(ctx, site, violation.site)
    ]
    if len(backwards) != 1:
        return "several backwards come before; which gradients are meant is a choice"
    backward = protocol.statement(ctx, backwards[0])
    if not statements.siblings(tree, backward, zero):
        return "backward and zero_grad stand in different blocks; move it by hand"
    edits = statements.moved_before(ctx, zero, backward)
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, "Zero the gradients before the backward", edits)


RULE = Rule(
    code="AMP216",
    name="zero-grad-misplaced",
    summary="zero_grad between backward and step throws the gradients away",
    severity=Severity.ERROR,
    check=check,
    words=("zero_grad",),
    shape=shapes.protocol,
    fixable="sometimes",
    module=__name__,
)
