"""`with autocast() and torch.no_grad():` enters only the last of the two contexts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import pairwise

import libcst as cst

from amplint.finding import Applicability, Edit, Fix, FixKind, Severity, Span
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

#: Contexts that change precision or gradients; any call in a `with .. and ..` whose name ends so is one.
_CONTEXTS = (
    "autocast",
    "no_grad",
    "inference_mode",
    "enable_grad",
    "set_grad_enabled",
    "no_sync",
    "ema_scope",
)


def check(ctx: Context) -> Iterable[Report]:
    """Report `with` items that join two contexts with `and`."""
    for statement in ctx.model.tree.of_type(cst.With):
        for item in statement.items:
            if not isinstance(item.item, cst.BooleanOperation) or not isinstance(item.item.operator, cst.And):
                continue
            parts = _parts(item.item)
            if not all(isinstance(part, cst.Call) for part in parts):
                continue
            if not any(_is_context(ctx, part) for part in parts):
                continue
            entered = ctx.model.tree.code(parts[-1])
            lost = ", ".join(f"`{ctx.model.tree.code(part)}`" for part in parts[:-1])
            yield Report(
                item.item,
                f"`and` gives the last context only: `{entered}` is entered, {lost} never",
                fix=partial(_fix, ctx, statement, item, parts),
            )


def _parts(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The operands of a chain of `and`, in order."""
    if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.And):
        return [*_parts(node.left), *_parts(node.right)]
    return [node]


def _is_context(ctx: Context, node: cst.BaseExpression) -> bool:
    if not isinstance(node, cst.Call):
        return False
    named = [name.rpartition(".")[2] for name in ctx.model.names.resolve(node.func)]
    if isinstance(node.func, cst.Attribute):
        named.append(node.func.attr.value)
    elif isinstance(node.func, cst.Name):
        named.append(node.func.value)
    return any(name in _CONTEXTS for name in named)


def _fix(ctx: Context, statement: cst.With, item: cst.WithItem, parts: list[cst.BaseExpression]) -> Fix | str:
    tree = ctx.model.tree
    alone = isinstance(statement.lpar, cst.LeftParen) and len(statement.items) == 1
    if alone or any(isinstance(node, cst.BooleanOperation) and node.lpar for node in tree.within(item.item)):
        return "the contexts stand in parentheses of their own"
    if any(part.lpar for part in parts):
        return "a context stands in parentheses of its own"
    edits = []
    for left, right in pairwise(parts):
        gap = Span(tree.span(left).end, tree.span(right).start)
        between = tree.text[gap.start : gap.end]
        if between.strip() != "and":
            return "a comment or a line break stands beside the `and`"
        edits.append(Edit(gap, ", "))
    return Fix(FixKind.REPAIR, Applicability.SAFE, "enter both contexts", tuple(edits))


RULE = Rule(
    code="AMP308",
    name="with-and",
    summary="`with a() and b():` enters only the last context",
    severity=Severity.ERROR,
    check=check,
    words=(" and", ")and", "\tand"),
    shape=shapes.with_and,
    fixable="sometimes",
    module=__name__,
)
