"""`optimizer.step()` where the scaler's `step` belongs: it consumes scaled gradients, or skips no overflow."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from amplint.finding import Applicability, Edit, Fix, FixKind, Severity
from amplint.flow.verdicts import Violation
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes, statements
from amplint_rules.scaler import frameworks, protocol


def check(ctx: Context) -> Iterable[Report]:
    """Report each step of an optimizer that a scaler should take, and what is done past a framework's object."""
    yield from protocol.reports(ctx, "bypass", _message, _fix)
    yield from frameworks.bypasses(ctx)


def _message(ctx: Context, violation: Violation) -> str:
    optimizer = protocol.owner(ctx, violation.site) or protocol.optimizer_of(violation)
    scaler = protocol.scaler_of(violation)
    if violation.detail == "twice":
        return f"{optimizer}.step() repeats the step that {scaler}.step({optimizer}) takes"
    if violation.detail in ("unscaled", "checked"):
        return (
            f"{optimizer}.step() after {scaler}.unscale_ is taken even when gradients overflowed; "
            f"{scaler}.step({optimizer}) skips it then"
        )
    return (
        f"{optimizer}.step() uses gradients that are still multiplied by the loss scale of {scaler}; "
        "nothing is raised"
    )


def _fix(ctx: Context, violation: Violation) -> Fix | str:
    call, statement = protocol.node(ctx, violation.site), protocol.statement(ctx, violation.site)
    optimizer = protocol.owner(ctx, violation.site)
    if violation.detail == "twice":
        edit = statements.removed(ctx, statement)
        if edit is None:
            return "the second step is all that stands in its block; take it out by hand"
        return Fix(FixKind.REPAIR, Applicability.UNSAFE, f"Take {optimizer}.step() out", (edit,))
    if not isinstance(call, cst.Call) or call.args or not optimizer:
        return "the step is handed something, which a scaler's step does not pass on"
    if not protocol.in_one_scope(ctx, violation.site, violation.trace[0][0]):
        return f"{protocol.scaler_of(violation)} has no name where the step stands"
    scaler = protocol.scaler_at(ctx, violation.trace[0][0])
    if not scaler:
        return f"{protocol.scaler_of(violation)} has no name where the step stands"
    if protocol.calls_of(ctx, violation.scaler, "update") and not protocol.is_updated_behind(
        ctx, violation.scaler, statement
    ):
        return f"{scaler}.update() does not always follow this step; update there, too"
    edits = [Edit(ctx.model.tree.span(call), f"{scaler}.step({optimizer})")]
    if not protocol.calls_of(ctx, violation.scaler, "update"):
        if not statements.can_stand_alone(statement):
            return "the step shares its line with other statements; give it a line of its own first"
        edits.append(statements.inserted_after(ctx, statement, f"{scaler}.update()"))
    message = f"Let {scaler} take the step"
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, message, tuple(edits))


RULE = Rule(
    code="AMP203",
    name="scaler-step-bypass",
    summary="an optimizer steps itself with gradients that a GradScaler scaled",
    severity=Severity.ERROR,
    check=check,
    words=(".scale", "caler", "unscale_", "manual_backward", *shapes.OWNERS),
    shape=shapes.scaler_step_bypass,
    fixable="sometimes",
    module=__name__,
)
