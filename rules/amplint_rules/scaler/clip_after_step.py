"""Gradients are clipped, or unscaled, once the optimizer has used them."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from amplint.finding import Applicability, Fix, FixKind, Severity
from amplint.flow.verdicts import Violation
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes, statements
from amplint_rules.scaler import protocol


def check(ctx: Context) -> Iterable[Report]:
    """Report clips between the step and the next backward, and unscale_ after its step."""
    return protocol.reports(ctx, "clip-after-step", _message, _fix)


def _message(ctx: Context, violation: Violation) -> str:
    optimizer = protocol.optimizer_of(violation)
    if violation.detail == "unscale_":
        scaler = protocol.scaler_of(violation)
        return f"{scaler}.unscale_ comes after {scaler}.step for {optimizer}: RuntimeError"
    return f"this clip has no effect: {optimizer} has taken its step, and nothing uses these gradients again"


def _fix(ctx: Context, violation: Violation) -> Fix | str:
    tree = ctx.model.tree
    step = protocol.statement(ctx, violation.trace[0][0])
    late = protocol.statement(ctx, violation.site)
    block = tree.parent(late)
    branch = tree.parent(block) if block is not None else None
    if isinstance(branch, cst.If) and branch.orelse is None and len(branch.body.body) == 1:
        late = branch
    if not statements.siblings(tree, step, late) or tree.number(step) > tree.number(late):
        return "step and clip stand in different blocks; move the clip by hand"
    if protocol.rebinds_between(ctx, late, step):
        return "what the clip needs is not there before the step; move it by hand"
    scaler = protocol.owner(ctx, violation.trace[0][0])
    is_unscaled = any(
        site < violation.trace[0][0] and protocol.in_one_scope(ctx, site, violation.site)
        for site in protocol.calls_of(ctx, violation.scaler, "unscale_")
    )
    if is_unscaled and violation.detail == "unscale_":
        return "unscale_ stands before the step, too; take one of them out by hand"
    call = protocol.node(ctx, violation.trace[0][0])
    if (
        violation.detail == "clip"
        and violation.scaler
        and not is_unscaled
        and isinstance(call, cst.Call)
        and call.args
    ):
        return _joined(ctx, step, late, f"{scaler}.unscale_({tree.code(call.args[0].value)})")
    edits = statements.moved_before(ctx, late, step)
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, "Move it before the step", edits)


def _joined(ctx: Context, step: cst.CSTNode, late: cst.CSTNode, unscaled: str) -> Fix:
    """unscale_ and then the clip, before the step."""
    moved, taken = statements.moved_before(ctx, late, step)
    line = f"{statements.indent(ctx, step)}{unscaled}{ctx.model.source.newline}"
    edits = (statements.with_content(moved, line + moved.content), taken)
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, "Unscale and clip before the step", edits)


RULE = Rule(
    code="AMP208",
    name="clip-after-step",
    summary="gradients are clipped or unscaled once the step has used them",
    severity=Severity.ERROR,
    check=check,
    words=(".scale", "caler", "unscale_", "manual_backward", "Accelerator", "Fabric"),
    shape=shapes.protocol,
    fixable="sometimes",
    module=__name__,
)
