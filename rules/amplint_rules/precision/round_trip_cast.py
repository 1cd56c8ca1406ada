"""A float32 value that is narrowed to half and widened again, with nothing between that needs half."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Confidence, Edit, Fix, FixKind, Severity, Span
from amplint.flow.precision.lattice import F32, F64, LOW, is_certain
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.values import Tensor, tensors_in
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence
from amplint_rules.precision.evidence import MOVES, Suspect

#: Where rounding to half is the point: emulation, error measurement, reference values.
_ON_PURPOSE = re.compile(
    r"quant|round|emul|simul|fake|test|ref\b|_ref|ref_|referen|error|truncat|split|residual|check|compar|bench|lossy",
    re.IGNORECASE,
)
_WIDE = frozenset((F32, F64))


def check(ctx: Context) -> Iterable[Report]:
    """Report the narrowing cast of each round trip."""
    yield from evidence.reports(
        ctx, _suspects(ctx), "the two casts stand apart; which of them goes is for you to say"
    )


def _suspects(ctx: Context) -> Iterator[Suspect]:
    for widening in evidence.notes(ctx).of("to"):
        if not _is_to(widening, _WIDE) or _ON_PURPOSE.search(widening.function):
            continue
        if not isinstance(widening.args[0], Tensor) or not is_certain(widening.args[0].dtypes):
            continue
        for narrowing in evidence.before(ctx, widening.args[0], *MOVES):
            if not _is_to(narrowing, LOW) or narrowing.function != widening.function:
                continue
            if _is_measured(ctx, widening, narrowing) or _is_used(ctx, narrowing):
                continue
            before = narrowing.args[0]
            if not isinstance(before, Tensor) or not is_certain(before.dtypes, _WIDE):
                continue
            assert isinstance(narrowing.result, Tensor)
            dtype = evidence.said(narrowing.result.dtypes)
            yield Suspect(
                narrowing.site,
                f"float32 values are rounded to {dtype} here and widened again right after: the bits are lost and "
                "nothing is saved; leave out this cast",
                (
                    *evidence.origin(before),
                    (narrowing.site, f"narrowed to {dtype}"),
                    (widening.site, "widened again"),
                ),
                Confidence.MEDIUM,
                narrowing.entry,
                fix=partial(_fix, ctx, narrowing.site, widening.site),
            )


def _is_to(applied: Applied, wanted: frozenset[str]) -> bool:
    return (
        applied.op == "to"
        and bool(applied.args)
        and isinstance(applied.result, Tensor)
        and is_certain(applied.result.dtypes, wanted)
    )


def _is_measured(ctx: Context, widening: Applied, narrowing: Applied) -> bool:
    """Whether what is lost is looked at: the result is subtracted from, or compared with, something."""
    sites = {widening.site, narrowing.site}
    return any(
        isinstance(value, Tensor) and value.site in sites
        for applied in evidence.notes(ctx).applied
        if applied.op in ("sub", "allclose", "isclose", "eq", "dist", "max") or "assert" in applied.op
        for value in applied.args
    )


def _is_used(ctx: Context, narrowing: Applied) -> bool:
    """Whether something needs the half value: it is sent, handed to a function or module, or computed with."""
    notes = evidence.notes(ctx)
    sites = {narrowing.site}
    for applied in notes.applied:
        if any(t.site in sites for v in applied.args for t in tensors_in(v)):
            if applied.op in MOVES:
                sites.add(applied.site)
            elif not _is_to(applied, _WIDE):
                return True
    return any(
        isinstance(value, Tensor) and value.site in sites and _is_handed_on(ctx, site)
        for site, (value, _) in notes.names.items()
    )


def _is_handed_on(ctx: Context, site: int) -> bool:
    """Whether a name is an argument of a call of which nothing was seen."""
    model, name = evidence.place(ctx, site)
    above = model.tree.parent(name)
    call = model.tree.parent(above) if isinstance(above, cst.Arg) else None
    if not isinstance(call, cst.Call):
        return False
    return site - model.tree.number(name) + model.tree.number(call) not in evidence.notes(ctx).by_site


def _fix(ctx: Context, narrowing: int, widening: int) -> Fix | str:
    model, call = evidence.place(ctx, narrowing)
    other = evidence.node(ctx, widening)
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
        return "leave out the cast to half"
    if not (
        isinstance(other, cst.Call) and isinstance(other.func, cst.Attribute) and other.func.value is call
    ):
        return "what else the half value is used for is for you to say"
    tree = model.tree
    if call.lpar or any(not _is_dtype(ctx, a.value) for a in call.args):
        return "leave out the cast to half"
    span = Span(tree.span(call.func.value).end, tree.span(call).end)
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, "leave out the cast to half", (Edit(span, ""),))


def _is_dtype(ctx: Context, node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Attribute) and any(
        name.startswith("torch.") for name in ctx.model.names.resolve(node)
    )


RULE = Rule(
    code="AMP325",
    name="round-trip-cast",
    summary="float32 values are narrowed to half and widened again, with nothing between that needs half",
    severity=Severity.WARNING,
    check=check,
    words=("half", "float16", "bfloat16", "HalfTensor"),
    shape=shapes.round_trip_cast,
    confidence=Confidence.MEDIUM,
    fixable="unsafe",
    module=__name__,
)
