"""Gradients are read or changed, where their size matters, while they are multiplied by the loss scale."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from amplint.finding import Applicability, Fix, FixKind, Severity
from amplint.flow.measures import shows_by_name
from amplint.flow.verdicts import Violation
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes, statements
from amplint_rules.scaler import protocol


def check(ctx: Context) -> Iterable[Report]:
    """Report each reading or change of scaled gradients; a change is an error, a reading a warning."""
    for report, violation in protocol.reported(ctx, "touch", _message, _fix):
        if not (_changes(violation) and _grows_with_the_scale(ctx, violation)):
            yield protocol.with_severity(report, Severity.ERROR if _changes(violation) else Severity.WARNING)


def _grows_with_the_scale(ctx: Context, violation: Violation) -> bool:
    """Whether what changes the gradients is itself multiplied by the scale, or made from kept gradients."""
    model, whole = protocol.place(ctx, violation.site)
    if isinstance(whole, cst.Call):
        parts: list[cst.CSTNode] = [arg.value for arg in whole.args]
    else:
        parts = [whole.value] if isinstance(whole, (cst.Assign, cst.AugAssign)) else []
    for part in parts:
        for made in protocol.makings(model, part):
            code = model.tree.code(made)
            if "get_scale" in code or (made is not part and ".grad" in code and "_like(" not in code):
                return True
    return False


def _changes(violation: Violation) -> bool:
    return violation.detail.startswith("changed")


def _message(ctx: Context, violation: Violation) -> str:
    how = violation.detail.partition(" ")[2]
    scale = f"the loss scale of {protocol.scaler_of(violation)}"
    if _changes(violation):
        return (
            f"{how} changes gradients that are still multiplied by {scale}, by something that is not; "
            "nothing is raised, and the result depends on the scale"
        )
    verb = "shows" if shows_by_name(how) else "measures"
    return f"{how} {verb} gradients that are still multiplied by {scale}: the result grows with it"


def _fix(ctx: Context, violation: Violation) -> Fix | str:
    calls = protocol.calls_of(ctx, violation.scaler, "unscale_") or protocol.calls_of(
        ctx, violation.scaler, "step"
    )
    if len(calls) != 1 or not protocol.in_one_scope(ctx, violation.site, calls[0]):
        return "call unscale_ once before the gradients are looked at; which call that is, is a choice"
    backward = protocol.statement(ctx, violation.trace[0][0])
    call = protocol.node(ctx, calls[0])
    anchor = protocol.outermost_loop_without(ctx, violation.site, backward)
    if not statements.siblings(ctx.model.tree, backward, anchor):
        return "the gradients are looked at in another block than the backward; unscale them by hand"
    code = ctx.model.tree.code(call).replace(".step(", ".unscale_(", 1)
    mine = protocol.statement(ctx, calls[0])
    if not protocol.runs_through(ctx, anchor, mine):
        return "the step does not always follow, and unscale_ without a step and update raises later; unscale by hand"
    if ".unscale_(" in ctx.model.tree.code(call):
        edits = statements.moved_before(ctx, mine, anchor)
        return Fix(FixKind.REPAIR, Applicability.UNSAFE, f"Move {code} up", edits)
    edit = statements.inserted_before(ctx, anchor, code)
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, f"Call {code} before", (edit,))


RULE = Rule(
    code="AMP202",
    name="scaled-grad-read",
    summary="gradients are read or changed while they are still multiplied by the loss scale",
    severity=Severity.WARNING,
    check=check,
    words=(".scale", "caler", "unscale_", "manual_backward", "Accelerator", "Fabric"),
    shape=shapes.protocol,
    fixable="sometimes",
    module=__name__,
)
