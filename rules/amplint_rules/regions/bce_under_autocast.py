"""binary_cross_entropy in an enabled autocast region: it raises on CUDA and NPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Confidence, Edit, Fix, FixKind, Severity, Span
from amplint.flow import walk
from amplint.flow.held import Held, objects_of
from amplint.flow.precision.notes import Applied
from amplint.flow.regions import regions_of
from amplint.model import ir
from amplint.model.units import is_own
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence
from amplint_rules.precision.evidence import Suspect
from amplint_rules.regions.entered import seen

_BY_HAND = (
    "take BCEWithLogitsLoss or binary_cross_entropy_with_logits and drop the sigmoid before it, or compute the loss "
    "behind the region on float32 values"
)


def check(ctx: Context) -> Iterable[Report]:
    """Report each binary_cross_entropy, by function or by BCELoss, that runs in a region."""
    yield from evidence.reports(ctx, _suspects(ctx), _BY_HAND)


def _suspects(ctx: Context) -> Iterator[Suspect]:
    certain = {region.site for region in regions_of(ctx.model).all if region.enabled is True}
    for applied in seen(ctx).of("binary_cross_entropy"):
        region = applied.ambient.site
        if not applied.ambient.enabled or region is None:
            continue
        what = "BCELoss" if applied.form == "module BCELoss" else "binary_cross_entropy"
        condition = "" if region in certain else " where the region is enabled"
        yield Suspect(
            applied.site,
            f"{what} raises RuntimeError in an autocast region of CUDA or NPU{condition}: take the loss with logits, "
            "without the sigmoid before it",
            ((region, "the autocast region"), (applied.site, f"{what} runs in it")),
            Confidence.HIGH if region in certain or not is_own(region) else Confidence.MEDIUM,
            applied.entry,
            fix=partial(_fix, ctx, applied),
        )


def _fix(ctx: Context, applied: Applied) -> Fix | str:
    """The function with logits in place of it, on what the sigmoid was taken of."""
    tree = ctx.model.tree
    call = tree.nodes[applied.site]
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute) or not call.args:
        return _BY_HAND
    first = call.args[0]
    if call.func.attr.value != "binary_cross_entropy" or first.star or first.keyword is not None:
        return _BY_HAND
    logits, is_here = _logits(ctx, first.value)
    if logits is None:
        return _BY_HAND
    name = tree.span(call.func)
    edits = (
        Edit(Span(name.end - len("binary_cross_entropy"), name.end), "binary_cross_entropy_with_logits"),
        Edit(tree.span(first.value), logits),
    )
    sure = Applicability.SAFE if is_here else Applicability.UNSAFE
    return Fix(FixKind.REPAIR, sure, "Take the loss of the logits", edits)


def _logits(ctx: Context, expr: cst.BaseExpression) -> tuple[str | None, bool]:
    """What a sigmoid was taken of to make `expr`, as code, and whether that is written in `expr` itself."""
    tree = ctx.model.tree
    if isinstance(expr, cst.Call) and (found := _under_sigmoid(ctx, expr)) is not None:
        return tree.code(found), True
    held = objects_of(ctx.model)
    value = _only_value(held, tree.number(expr))
    if value is None:
        return None, False
    node = tree.nodes[value.site]
    found = _under_sigmoid(ctx, node) if isinstance(node, cst.Call) else None
    is_stable = isinstance(found, cst.Name) and _only_value(held, tree.number(found)) is not None
    return (tree.code(found), False) if found is not None and is_stable else (None, False)


def _under_sigmoid(ctx: Context, call: cst.Call) -> cst.BaseExpression | None:
    named = ctx.model.names.resolve(call.func)
    if any(name in ("torch.sigmoid", "torch.nn.functional.sigmoid") for name in named):
        return call.args[0].value if len(call.args) == 1 and not call.args[0].star else None
    is_method = isinstance(call.func, cst.Attribute) and call.func.attr.value == "sigmoid" and not call.args
    return call.func.value if is_method and not named and isinstance(call.func, cst.Attribute) else None


def _only_value(held: Held, site: int) -> ir.Expr | None:
    """The one expression that the variable named at a site is assigned."""
    for function in held.functions.values():
        for expr in walk.expressions(function.body):
            if expr.site == site and isinstance(expr, ir.Name):
                path = held.lift.path(expr)
                values = held.values(path) if path is not None else ()
                return values[0].value if len(values) == 1 else None
    return None


RULE = Rule(
    code="AMP310",
    name="bce-under-autocast",
    summary="binary_cross_entropy or BCELoss runs in an autocast region, where it raises",
    severity=Severity.ERROR,
    check=check,
    words=("autocast",),
    shape=shapes.autocast,
    fixable="sometimes",
    module=__name__,
)
