"""`update` on micro-steps on which nothing was stepped."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from amplint.finding import Applicability, Edit, Fix, FixKind, Severity
from amplint.flow.verdicts import Violation
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes, statements
from amplint_rules.scaler import protocol


def check(ctx: Context) -> Iterable[Report]:
    """Report updates that are reached without a step or unscale_ since the last one."""
    return protocol.reports(ctx, "update-without-step", _message, _fix)


def _message(ctx: Context, violation: Violation) -> str:
    scaler = protocol.scaler_of(violation)
    return (
        f"{scaler}.update() also runs where {scaler} has not stepped or unscaled anything since the last update(): "
        "AssertionError there, and the scale must not change while gradients add up"
    )


def _fix(ctx: Context, violation: Violation) -> Fix | str:
    tree = ctx.model.tree
    update = protocol.statement(ctx, violation.site)
    steps = protocol.calls_of(ctx, violation.scaler, "step")
    if len(steps) != 1:
        return "several steps share this scaler; which condition update belongs under is a choice"
    step = protocol.statement(ctx, steps[0])
    block = tree.parent(step)
    branch = tree.parent(block) if block is not None else None
    if (
        not isinstance(block, cst.IndentedBlock)
        or not isinstance(branch, cst.If)
        or branch.body is not block
        or not protocol.runs_through(ctx, branch, update)
        or not statements.can_stand_alone(step)
        or len(statements.rows_text(ctx, update).splitlines()) != 1
    ):
        return "update and the step do not stand in blocks that follow each other; move it by hand"
    edits = (
        statements.inserted_after(ctx, step, tree.code(protocol.node(ctx, violation.site))),
        Edit(statements.rows(ctx, update), ""),
    )
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, "Update under the condition of the step", edits)


RULE = Rule(
    code="AMP206",
    name="update-during-accumulation",
    summary="update also runs on micro-steps on which nothing was stepped",
    severity=Severity.ERROR,
    check=check,
    words=(".scale", "caler", "unscale_", "manual_backward", "Accelerator", "Fabric"),
    shape=shapes.protocol,
    fixable="sometimes",
    module=__name__,
)
