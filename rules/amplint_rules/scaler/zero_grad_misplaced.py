"""`zero_grad` between the backward and the step that wants its gradients, or missing where the scaler steps."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Confidence, Fix, FixKind, Severity
from amplint.flow.verdicts import Violation
from amplint.model.units import is_own
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes, statements
from amplint_rules.scaler import protocol

#: Names of the one module that is trained.
_WHOLE = ("model", "net", "network", "module", "self")


def check(ctx: Context) -> Iterable[Report]:
    """Report zero_grad calls that throw away the gradients of the next step, and arms that lack theirs."""
    for report, violation in protocol.reported(ctx, "zero-grad", _message, _fix):
        if _concerns(ctx, violation):
            yield report
    yield from _missing(ctx)


def _concerns(ctx: Context, violation: Violation) -> bool:
    """Whether what is zeroed is the optimizer that steps, or the module that the loss was made by."""
    tree = ctx.model.tree
    zeroed = protocol.owner(ctx, violation.site)
    if not (zeroed and violation.optimizer and is_own(violation.site)) or zeroed == violation.optimizer:
        return True
    made = [
        tree.code(assign.value)
        for assign in tree.of_type(cst.Assign)
        if any(tree.code(target.target) == violation.optimizer for target in assign.targets)
        and ".parameters(" in tree.code(assign.value)
    ]
    if made:
        return any(f"{zeroed}.parameters(" in code for code in made)
    if zeroed.rpartition(".")[2] in _WHOLE:
        return True
    losses = [protocol.node(ctx, site) for site in protocol.backwards(ctx) if site < violation.site]
    written = {
        tree.code(part)
        for loss in losses[-1:]
        for value in protocol.makings(ctx.model, loss)
        for part in tree.within(value)
    }
    return zeroed in written


def _missing(ctx: Context) -> Iterable[Report]:
    """The scaler's step in an arm without zero_grad, where the arm without a scaler has the only one of the file."""
    tree = ctx.model.tree
    zeros = [call for call in tree.of_type(cst.Call) if _method(call) == "zero_grad"]
    others = [name for name in tree.of_type(cst.Attribute) if name.attr.value == "grad"]
    if len(zeros) != 1 or others:
        return
    (zero,) = zeros
    for outer in tree.ancestors(zero):
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef, cst.For, cst.While)):
            return
        if isinstance(outer, cst.If) and isinstance(outer.orelse, cst.Else):
            break
    else:
        return
    here, there = outer.body, outer.orelse.body
    if tree.inside(zero, there):
        here, there = there, here
    plain = [call for call in tree.within(here) if isinstance(call, cst.Call) and _method(call) == "step"]
    scaled = [call for call in tree.within(there) if isinstance(call, cst.Call) and _method(call) == "step"]
    scaler = protocol.owner(ctx, tree.number(scaled[0])) if len(scaled) == 1 else ""
    if len(plain) != 1 or not scaler or len(scaled[0].args) != 1:
        return
    optimizer = protocol.owner(ctx, tree.number(plain[0]))
    updated = protocol.calls_of(ctx, scaler, "update")
    is_scaler = protocol.calls_of(ctx, scaler, "scale") and updated
    if not is_scaler or tree.code(scaled[0].args[0].value) != optimizer:
        return
    last = next((site for site in updated if tree.inside(protocol.node(ctx, site), there)), None)
    yield Report(
        scaled[0],
        f"{tree.code(zero)} runs only in the other branch: here the gradients of all steps add up",
        confidence=Confidence.MEDIUM,
        trace=[(zero, "the gradients are zeroed in this branch only"), (scaled[0], "and never in this one")],
        fix=partial(_zero_here, ctx, zero, scaled[0] if last is None else protocol.node(ctx, last)),
    )


def _method(call: cst.Call) -> str:
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else ""


def _zero_here(ctx: Context, zero: cst.Call, last: cst.CSTNode) -> Fix | str:
    statement = ctx.model.tree.statement(last)
    if not statements.can_stand_alone(statement):
        return "the step shares its line with other statements; give it a line of its own first"
    code = ctx.model.tree.code(zero)
    edit = statements.inserted_after(ctx, statement, code)
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, f"Call {code} here, too", (edit,))


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
    if protocol.rebinds_between(ctx, zero, backward):
        return "what is zeroed has no name before the backward; move it by hand"
    edits = statements.moved_before(ctx, zero, backward)
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, "Zero the gradients before the backward", edits)


RULE = Rule(
    code="AMP216",
    name="zero-grad-misplaced",
    summary="zero_grad throws gradients away before the step, or is missing where the scaler steps",
    severity=Severity.ERROR,
    check=check,
    words=(".scale", "caler", "unscale_", "manual_backward", "Accelerator", "Fabric"),
    shape=shapes.protocol,
    fixable="sometimes",
    module=__name__,
)
