"""The loss is not scaled, and its gradients are stepped through a scaler that divides them by the scale."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from amplint.finding import Applicability, Edit, Fix, FixKind, Severity
from amplint.flow.verdicts import Violation
from amplint.model.module import ModuleModel
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.scaler import protocol


def check(ctx: Context) -> Iterable[Report]:
    """Report backwards of unscaled losses whose gradients a scaler steps with."""
    for report, violation in protocol.reported(ctx, "unscaled-backward", _message, _fix):
        if not _may_be_scaled(ctx, violation):
            yield report


def _may_be_scaled(ctx: Context, violation: Violation) -> bool:
    """Whether a function that makes the loss may have scaled it."""
    model, call = protocol.place(ctx, violation.site)
    loss = call.func if isinstance(call, cst.Call) and _last(call.func) == "backward" else call
    scales = _functions_that_scale(model)
    own = {violation.scaler, violation.scaler.rpartition(".")[2]} - {""}
    return any(
        isinstance(part, cst.Call)
        and (_last(part.func) in scales or any(model.tree.code(arg.value) in own for arg in part.args))
        for made in protocol.makings(model, loss)
        for part in model.tree.within(made)
    )


def _functions_that_scale(model: ModuleModel) -> set[str]:
    """Names of functions and variables of a file in which something is called `scale`."""
    tree = model.tree
    found = set()
    for scale in tree.of_type(cst.Attribute):
        if scale.attr.value != "scale":
            continue
        for outer in tree.ancestors(scale):
            if isinstance(outer, cst.FunctionDef):
                found.add(outer.name.value)
                break
            if isinstance(outer, cst.Assign) and not isinstance(tree.parent(scale), cst.Call):
                found.update(_last(target.target) for target in outer.targets)
    return found


def _last(expr: cst.CSTNode) -> str:
    """The last part of a name as written."""
    if isinstance(expr, cst.Attribute):
        return expr.attr.value
    return expr.value if isinstance(expr, cst.Name) else ""


def _message(ctx: Context, violation: Violation) -> str:
    scaler, optimizer = protocol.scaler_of(violation), protocol.optimizer_of(violation)
    return (
        f"this loss is not scaled, but {scaler}.step({optimizer}) divides its gradients by the scale: the update is "
        f"that much too small (or AssertionError, before the first {scaler}.scale())"
    )


def _fix(ctx: Context, violation: Violation) -> Fix | str:
    call = protocol.node(ctx, violation.site)
    scaler = protocol.owner(ctx, violation.shows_at)
    plain = isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute)
    if not plain or not scaler or not protocol.in_one_scope(ctx, violation.site, violation.shows_at):
        return f"{protocol.scaler_of(violation)} has no name where the backward stands"
    assert isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute)
    if not _is_whole(ctx, violation):
        return "more than scale is missing: unscale_ before gradients are looked at, or update after the step"
    loss = call.func.value
    edit = Edit(ctx.model.tree.span(loss), f"{scaler}.scale({ctx.model.tree.code(loss)})")
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, f"Scale the loss with {scaler}", (edit,))


def _is_whole(ctx: Context, violation: Violation) -> bool:
    """Whether everything else that a scaled loss needs is there, in one block."""
    tree = ctx.model.tree
    backward = protocol.statement(ctx, violation.site)
    step = protocol.statement(ctx, violation.shows_at)
    beside = protocol.beside(ctx, step, backward)
    if beside is None or not protocol.runs_through(ctx, backward, beside):
        return False
    if not protocol.is_updated_behind(ctx, violation.scaler, step):
        return False
    for part in tree.nodes[violation.site : violation.shows_at]:
        if isinstance(part, cst.Name):
            if part.value == "unscale_":
                return beside is step or tree.inside(part, beside)
            if part.value == "grad" or "clip_grad" in part.value or "norm" in part.value:
                return False
    return True


RULE = Rule(
    code="AMP207",
    name="backward-without-scale",
    summary="gradients of an unscaled loss are stepped through an enabled scaler",
    severity=Severity.ERROR,
    check=check,
    words=(".scale", "caler", "unscale_", "manual_backward", "Accelerator", "Fabric"),
    shape=shapes.protocol,
    fixable="sometimes",
    module=__name__,
)
