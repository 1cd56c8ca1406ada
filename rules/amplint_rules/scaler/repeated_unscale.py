"""`unscale_` runs twice for one optimizer before `update`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from amplint.finding import Applicability, Edit, Fix, FixKind, Severity, Span
from amplint.flow.gradients import CLIPPERS
from amplint.flow.verdicts import Violation
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes, statements
from amplint_rules.scaler import frameworks, protocol

_DECISION = (
    "unscale_ (and the clip) belong under the condition of the step, and whether the clip's result is wanted on "
    "other micro-steps is for you to say"
)
_TWICE = "two calls unscale the same gradients; which of them is right is for you to say"


def check(ctx: Context) -> Iterable[Report]:
    """Report `unscale_` calls that can repeat, and accelerate's clip where it unscales on every micro-step."""
    yield from protocol.reports(ctx, "repeated-unscale", _message, _fix)
    yield from frameworks.unguarded_clips(ctx)


def _repeats_itself(violation: Violation) -> bool:
    return violation.trace[0][0] == violation.site


def _message(ctx: Context, violation: Violation) -> str:
    scaler, optimizer = protocol.scaler_of(violation), protocol.optimizer_of(violation)
    if _repeats_itself(violation):
        return (
            f"{scaler}.unscale_ can run again for {optimizer} before {scaler}.update(), as on micro-steps that no "
            "step follows: RuntimeError"
        )
    return f"{scaler}.unscale_ runs a second time for {optimizer} before {scaler}.update(): RuntimeError"


def _fix(ctx: Context, violation: Violation) -> Fix | str:
    """`unscale_` and the clip behind it go directly before the step."""
    tree = ctx.model.tree
    call = protocol.node(ctx, violation.site)
    if not _repeats_itself(violation) or not isinstance(call, cst.Call):
        return _TWICE
    step = _step_of(ctx, call)
    if step is None:
        return _DECISION
    unscale = tree.statement(call)
    block, home = tree.parent(unscale), tree.parent(step)
    branch = tree.parent(home) if home is not block and home is not None else None
    if branch is not None and not (isinstance(branch, cst.If) and branch.body is home):
        return _DECISION
    behind = branch if branch is not None else step
    if (
        not statements.siblings(tree, unscale, behind)
        or not statements.can_stand_alone(step)
        or not isinstance(home, cst.IndentedBlock)
        or not isinstance(block, cst.IndentedBlock)
    ):
        return _DECISION
    taken = _taken(ctx, block.body[block.body.index(unscale) :], behind)
    start = 0 if branch is not None else block.body.index(unscale) + len(taken)
    between = [
        *block.body[block.body.index(unscale) + len(taken) : block.body.index(behind)],
        *(home.body[start : home.body.index(step)]),
    ]
    if taken[0] is not unscale or any(_matters(ctx, part, call) for part in between):
        return _DECISION
    text = _reindented(ctx, taken, statements.indent(ctx, unscale), statements.indent(ctx, step))
    if text is None:
        return _DECISION
    start_of_step = statements.rows(ctx, step).start
    gone = [Edit(statements.rows(ctx, part), "") for part in taken]
    edits = (*gone, Edit(Span(start_of_step, start_of_step), text))
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, "Unscale only before the step", edits)


def _step_of(ctx: Context, unscale: cst.Call) -> cst.CSTNode | None:
    """The statement that steps what the call unscales, where there is exactly one in its function."""
    tree, names = ctx.model.tree, ctx.model.names
    if not isinstance(unscale.func, cst.Attribute) or len(unscale.args) != 1:
        return None
    written = tree.code(unscale.func.value), tree.code(unscale.args[0].value)
    found = [
        step
        for step in tree.of_type(cst.Call)
        if isinstance(step.func, cst.Attribute)
        and step.func.attr.value == "step"
        and len(step.args) == 1
        and (tree.code(step.func.value), tree.code(step.args[0].value)) == written
    ]
    if len(found) != 1 or names.scope_of(found[0]) is not names.scope_of(unscale):
        return None
    return tree.statement(found[0])


def _taken(ctx: Context, rest: Sequence[cst.BaseStatement], behind: cst.CSTNode) -> list[cst.BaseStatement]:
    """The statement that unscales, with the clip right behind it."""
    taken = [rest[0]]
    if len(rest) > 1 and rest[1] is not behind and _is_clip(ctx, rest[1]):
        taken.append(rest[1])
    return taken


def _is_clip(ctx: Context, statement: cst.BaseStatement) -> bool:
    """Whether the statement does nothing but clip: its result is dropped."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    expr = statement.body[0]
    call = expr.value if isinstance(expr, cst.Expr) else None
    return isinstance(call, cst.Call) and not CLIPPERS.isdisjoint(ctx.model.names.resolve(call.func))


def _matters(ctx: Context, statement: cst.CSTNode, unscale: cst.Call) -> bool:
    """Whether a statement between may have to do with gradients, the scaler or the optimizer."""
    tree = ctx.model.tree
    assert isinstance(unscale.func, cst.Attribute)
    own = {
        part.value
        for written in (unscale.func.value, unscale.args[0].value)
        for part in tree.within(written)
        if isinstance(part, cst.Name) and part.value != "self"
    }
    return any(
        isinstance(part, cst.Name) and (part.value in own or "grad" in part.value or part.value == "backward")
        for part in tree.within(statement)
    )


def _reindented(ctx: Context, taken: list[cst.BaseStatement], old: str, new: str) -> str | None:
    """The rows of these statements with another indentation, or None where a string runs over several rows."""
    if any('"""' in ctx.model.tree.code(part) or "'''" in ctx.model.tree.code(part) for part in taken):
        return None
    rows = "".join(statements.rows_text(ctx, part) for part in taken).splitlines(keepends=True)
    if any(row.strip() and not row.startswith(old) for row in rows):
        return None
    return "".join(new + row[len(old) :] if row.strip() else row for row in rows)


RULE = Rule(
    code="AMP205",
    name="repeated-unscale",
    summary="unscale_ can run twice for one optimizer before update",
    severity=Severity.ERROR,
    check=check,
    words=(".scale", "caler", "unscale_", "manual_backward", *shapes.OWNERS),
    shape=shapes.repeated_unscale,
    fixable="sometimes",
    module=__name__,
)
