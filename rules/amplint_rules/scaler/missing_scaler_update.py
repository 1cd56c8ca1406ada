"""A step (or `unscale_`) of the scaler that no `update` follows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import libcst as cst

from amplint.finding import Applicability, Confidence, Fix, FixKind, Severity
from amplint.flow.verdicts import Violation
from amplint.model.units import is_own
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes, statements
from amplint_rules.scaler import protocol

_DEFINITIONS = (cst.FunctionDef, cst.ClassDef)
#: How the step of a trace that leaves without update begins.
_NEVER = "update is never reached"


def check(ctx: Context) -> Iterable[Report]:
    """Report the last step that no update follows, on some path."""
    if _updates_itself(ctx):
        return
    for report, violation in protocol.reported(ctx, "no-update", _message, _fix):
        surely = report.confidence is Confidence.LOW and _repeats_without(ctx, violation)
        yield replace(report, confidence=Confidence.HIGH) if surely else report


def _repeats_without(ctx: Context, violation: Violation) -> bool:
    """Whether a loop takes this step in every round, and updates behind the loop or in some rounds only."""
    sites = [violation.site, violation.shows_at or violation.site]
    updates = protocol.calls_of(ctx, violation.scaler, "update")
    if not all(map(is_own, sites)) or len(set(sites)) > 1 or len(updates) != 1:
        return False
    if _method(ctx, violation) != "step":
        return False
    tree = ctx.model.tree
    if not protocol.in_one_scope(ctx, violation.site, updates[0]):
        return False
    loop = _loop_of(ctx, violation.site)
    if loop is None or any(isinstance(p, (cst.Break, cst.Continue, cst.Return)) for p in tree.within(loop)):
        return False
    update, step = protocol.node(ctx, updates[0]), protocol.node(ctx, violation.site)
    varies = {part.value for part in tree.within(loop.target) if isinstance(part, cst.Name)}
    stepped = [made for arg in getattr(step, "args", ()) for made in protocol.makings(ctx.model, arg.value)]
    if any(isinstance(p, cst.Name) and p.value in varies for made in stepped for p in tree.within(made)):
        return False  # each round may step another optimizer
    if not tree.inside(update, loop):
        return True
    return any(
        isinstance(part, cst.Name) and part.value in varies
        for outer in tree.ancestors(update)
        if isinstance(outer, cst.If) and tree.inside(outer, loop)
        for part in tree.within(outer.test)
    )


def _loop_of(ctx: Context, site: int) -> cst.For | None:
    """The `for` whose every round runs the statement at `site` after a backward."""
    tree = ctx.model.tree
    for outer in tree.ancestors(protocol.statement(ctx, site)):
        if isinstance(outer, cst.For):
            runs = any(tree.inside(protocol.node(ctx, b), outer) for b in protocol.backwards(ctx))
            return outer if runs else None
        if isinstance(outer, (cst.If, cst.Try, cst.While, cst.FunctionDef, cst.Match)):
            break
    return None


def _updates_itself(ctx: Context) -> bool:
    """Whether the file has a scaler of its own whose step updates it."""
    tree = ctx.model.tree
    for call in tree.of_type(cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "update":
            function, klass, *_ = (
                *(o for o in tree.ancestors(call) if isinstance(o, _DEFINITIONS)),
                None,
                None,
            )
            if (
                isinstance(function, cst.FunctionDef)
                and function.name.value == "step"
                and isinstance(klass, cst.ClassDef)
                and any(tree.code(base.value).endswith("Scaler") for base in klass.bases)
            ):
                return True
    return False


def _message(ctx: Context, violation: Violation) -> str:
    scaler, optimizer = protocol.scaler_of(violation), protocol.optimizer_of(violation)
    call = f"{scaler}.{_method(ctx, violation)}"
    if _leaves(violation):
        return (
            f"{call} for {optimizer} is not followed by {scaler}.update() where {_row(ctx, violation)} leaves: "
            "the next unscale_ or step raises RuntimeError"
        )
    if protocol.calls_of(ctx, violation.scaler, "update"):
        return f"{call} for {optimizer} can be followed by another one with no {scaler}.update() between: RuntimeError"
    return (
        f"{call} for {optimizer} is never followed by {scaler}.update(): the scale stays what it is, and the next "
        "unscale_ or step raises RuntimeError"
    )


def _row(ctx: Context, violation: Violation) -> str:
    """The row at which a path leaves without update."""
    site = next(site for site, text in violation.trace if text.startswith(_NEVER))
    model, left = protocol.place(ctx, site)
    where = "" if model is ctx.model else f"{model.filename}, "
    return f"{where}line {model.source.shown_row(model.source.position(model.tree.span(left).start).row)}"


def _method(ctx: Context, violation: Violation) -> str:
    code = protocol.code(ctx, violation.site)
    return "unscale_" if ".unscale_(" in code else "step"


def _leaves(violation: Violation) -> bool:
    return any(text.startswith(_NEVER) for _, text in violation.trace)


def _fix(ctx: Context, violation: Violation) -> Fix | str:
    if _leaves(violation):
        return "call step and update before leaving, or leave before unscale_: which, is a choice"
    if _method(ctx, violation) == "unscale_":
        return "no step follows unscale_ here; what is missing is not known"
    scaler = protocol.owner(ctx, violation.site)
    statement = protocol.statement(ctx, violation.site)
    if protocol.calls_of(ctx, violation.scaler, "update"):
        return "update is called elsewhere; call it on this path, too"
    if not scaler or not statements.can_stand_alone(statement):
        return "the step shares its line with other statements; give it a line of its own first"
    if len(protocol.calls_of(ctx, violation.scaler, "step")) > 1:
        return "several steps share this scaler; update once behind the last of them"
    anchor = _last_round(ctx, protocol.node(ctx, violation.site))
    edit = statements.inserted_after(ctx, anchor, f"{scaler}.update()")
    return Fix(FixKind.REPAIR, Applicability.SAFE, f"Call {scaler}.update() after the step", (edit,))


def _last_round(ctx: Context, step: cst.CSTNode) -> cst.CSTNode:
    """The statement of the step, or the loop over optimizers around it."""
    tree = ctx.model.tree
    statement = tree.statement(step)
    handed = [arg.value for arg in step.args] if isinstance(step, cst.Call) else []
    names = {part.value for arg in handed for part in tree.within(arg) if isinstance(part, cst.Name)}
    for outer in tree.ancestors(statement):
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef)):
            break
        if isinstance(outer, cst.For) and any(
            isinstance(part, cst.Name) and part.value in names for part in tree.within(outer.target)
        ):
            return outer
    return statement


RULE = Rule(
    code="AMP204",
    name="missing-scaler-update",
    summary="a path steps (or unscales) through the scaler and never updates it",
    severity=Severity.ERROR,
    check=check,
    words=(".scale", "caler", "unscale_", "manual_backward", "Accelerator", "Fabric"),
    shape=shapes.protocol,
    fixable="sometimes",
    module=__name__,
)
