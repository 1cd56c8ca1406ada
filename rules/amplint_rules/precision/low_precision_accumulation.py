"""Sums of float16 or bfloat16 values that stall, leave the range, or are used again in half."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial

import libcst as cst

from amplint.finding import Confidence, Severity
from amplint.flow.precision.lattice import F16, LOW, is_certain, is_possible
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.values import Number, Py, Tensor, Value
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence
from amplint_rules.precision.evidence import MOVES, Suspect
from amplint_rules.precision.running_sums import over, rounds, running_sum

#: Functions and classes whose sums are a loss or a metric.
_LOSS = re.compile(
    r"loss|dice|iou|criterion|tversky|jaccard|metric|entropy|\bce\b|nll|objective", re.IGNORECASE
)
_SQUARES = ("pow", "square", "abs", "mul")
_THROUGH = ("add", "mul", "neg", "sub", "clamp", "clamp_min", *MOVES)


def check(ctx: Context) -> Iterable[Report]:
    """Report running sums, sums that are divided by sums, sums divided by a count, and cross entropy by hand."""
    yield from evidence.reports(ctx, _suspects(ctx), "which of the values to cast is for you to say")


def _suspects(ctx: Context) -> Iterator[Suspect]:
    for applied in evidence.notes(ctx).applied:
        if applied.op == "add":
            yield from _running(ctx, applied)
        elif applied.op == "builtins.sum":
            yield from _python_sum(ctx, applied)
        elif applied.op == "div":
            yield from _ratio(ctx, applied)
        elif applied.op in ("mean", "sum"):
            yield from _cross_entropy(ctx, applied)


def _sure(value: Value) -> bool:
    return isinstance(value, Tensor) and is_certain(value.dtypes)


def _stalls(dtypes: Iterable[str]) -> str:
    return (
        "2048 in float16"
        if set(dtypes) == {F16}
        else "256 in bfloat16"
        if F16 not in dtypes
        else "256 or 2048"
    )


def _running(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    """`total += x` in a loop, and in a method that is called once per step."""
    if len(applied.args) < 2 or not (_sure(applied.result) or is_possible(_dtypes(applied.result))):
        return
    added = evidence.lowest(applied.args[1:2]) or evidence.lowest(applied.args[:1])
    result = evidence.lowest((applied.result,))
    if added is None or result is None:
        return
    if any(mark in added.marks for mark in ("parameter", "positions", "gradient")):
        return
    model, node = evidence.place(ctx, applied.site)
    known = running_sum(model.tree, node)
    if known is None or (known.is_attribute and not isinstance(node, cst.BinaryOperation)):
        return  # `self.total += x` is state that is kept in half, which is another rule's
    often = rounds(model.tree, known.loop)
    sure = evidence.confidence(result.dtypes)
    if often is None or sure is None:
        return
    yield Suspect(
        applied.site,
        f"{known.total} is a running sum in {evidence.said(result.dtypes)}: ones stop adding up at "
        f"{_stalls(result.dtypes & LOW)}; keep it in float32, or add .item()",
        (
            *evidence.origin(added),
            (applied.site, f"added to {known.total} in {evidence.said(result.dtypes)}"),
        ),
        min(sure, often, key=lambda c: c.rank),
        applied.entry,
    )


def _dtypes(value: Value) -> frozenset[str]:
    return value.dtypes if isinstance(value, Tensor) else frozenset()


def _python_sum(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    """`sum(..)` of Python over half tensors, which adds one after another."""
    result = evidence.lowest((applied.result,))
    model, node = evidence.place(ctx, applied.site)
    if applied.form == "few" or result is None or not isinstance(node, cst.Call) or not node.args:
        return
    summed = node.args[0].value
    if isinstance(summed, (cst.GeneratorExp, cst.ListComp)):
        summed = summed.for_in.iter
    often = over(model.tree, summed)
    sure = evidence.confidence(result.dtypes)
    if often is None or sure is None or ".values()" in model.tree.code(summed):
        return
    often = Confidence.MEDIUM if _appended_to(ctx, node) else often
    dtype = evidence.said(result.dtypes)
    yield Suspect(
        applied.site,
        f"sum() adds {dtype} tensors one after another here, in {dtype}: ones stop adding up at "
        f"{_stalls(result.dtypes & LOW)}; use torch.stack(..).float().sum(), or collect .item()",
        (*evidence.origin(result), (applied.site, f"added up one by one in {dtype}")),
        min(sure, often, key=lambda c: c.rank),
        applied.entry,
    )


def _appended_to(ctx: Context, call: cst.Call) -> bool:
    """Whether what is summed is a list that a long loop fills."""
    tree = ctx.model.tree
    summed = call.args[0].value
    if not isinstance(summed, cst.Name):
        return False
    for node in tree.of_type(cst.Call):
        func = node.func
        if not isinstance(func, cst.Attribute) or func.attr.value != "append":
            continue
        if isinstance(func.value, cst.Name) and func.value.value == summed.value:
            loops = [a for a in tree.ancestors(node) if isinstance(a, (cst.For, cst.While))]
            found = [rounds(tree, loop) for loop in loops]
            if any(f is not None and f is not Confidence.LOW for f in found):
                return True
    return False


def _ratio(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    """Sums that are divided by sums (dice, masked means), and sums of many values divided by their number."""
    if len(applied.args) < 2 or not _sure(applied.result):
        return
    above = _sums(ctx, applied.args[0])
    below = _sums(ctx, applied.args[1])
    named = _is_loss(applied)
    if above and below:
        for each in (*above, *below):
            sure = Confidence.MEDIUM if named or evidence.trains(ctx) else Confidence.LOW
            yield _sum_suspect(ctx, each, "and is divided, in half, by another such sum", sure, applied)
    elif above and isinstance(applied.args[1], (Py, Number)) and _dtypes(above[0].result) == {F16}:
        for each in above:
            if _is_whole(each) and _is_of_squares(ctx, each):
                sure = Confidence.MEDIUM if named or evidence.trains(ctx) else Confidence.LOW
                yield _sum_suspect(ctx, each, "before it is divided by their number", sure, applied)


def _is_loss(applied: Applied) -> bool:
    return bool(_LOSS.search(applied.function))


def _sums(ctx: Context, value: Value) -> list[Applied]:
    """The sums in half that a value is made of."""
    return [
        a
        for a in evidence.before(ctx, value, "add", "mul", "clamp", "clamp_min", "sub", "neg", *MOVES)
        if _is_sum(a) and _sure(a.result) and a.keyword("keepdim") is None
    ]


def _is_sum(applied: Applied) -> bool:
    """A sum of half values, also of products: an einsum whose operands all have the same indices."""
    if applied.op == "sum":
        return bool(applied.args) and _sure(applied.args[0])
    equation = applied.args[0] if applied.op == "einsum" and len(applied.args) > 1 else None
    if not isinstance(equation, Py) or not isinstance(equation.value, str) or "->" not in equation.value:
        return False
    given, _, kept = equation.value.replace(" ", "").partition("->")
    first, *others = given.split(",")
    return len(kept) < len(first) and set(others) <= {first}


def _is_whole(applied: Applied) -> bool:
    return isinstance(applied.result, Tensor) and applied.result.is_scalar is True


def _is_of_squares(ctx: Context, applied: Applied) -> bool:
    return any(a.op in _SQUARES for a in evidence.before(ctx, applied.args[0], *MOVES))


def _sum_suspect(ctx: Context, applied: Applied, why: str, sure: Confidence, division: Applied) -> Suspect:
    result = evidence.lowest((applied.result,))
    assert result is not None
    dtype = evidence.said(result.dtypes)
    limit = "is inf above 65504" if F16 in result.dtypes else "is rounded to 8 bits"
    return Suspect(
        applied.site,
        f"this sum is {dtype}: it {limit} {why}; sum float32 values",
        (
            *evidence.origin(result),
            (applied.site, f"summed to {dtype}"),
            (division.site, "divided here"),
        ),
        sure,
        applied.entry,
        fix=partial(evidence.as_float32, ctx, applied.site, "sum float32 values"),
    )


def _cross_entropy(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    """A mean or sum of logarithms of probabilities in half."""
    result = evidence.lowest((applied.result,))
    if result is None or not applied.args or applied.keyword("dtype") is not None:
        return
    sure = evidence.confidence(result.dtypes, high=Confidence.MEDIUM)
    logs = [a for a in evidence.before(ctx, applied.args[0], *_THROUGH) if a.op == "log"]
    if sure is None or not logs or not all(_sure(a.result) for a in logs):
        return
    if not (_is_loss(applied) or evidence.trains(ctx)):
        sure = Confidence.LOW
    dtype = evidence.said(result.dtypes)
    yield Suspect(
        applied.site,
        f"cross entropy is written by hand and runs in {dtype} here: probabilities below what {dtype} holds become 0 "
        "and their logarithm -inf; compute it from float32 logits",
        (
            *evidence.origin(result),
            (logs[0].site, f"logarithm in {dtype}"),
            (applied.site, f"{applied.op} in {dtype}"),
        ),
        sure,
        applied.entry,
    )


RULE = Rule(
    code="AMP301",
    name="low-precision-accumulation",
    summary="a running sum, or a sum that a loss is made of, in float16 or bfloat16",
    severity=Severity.WARNING,
    check=check,
    words=shapes.LOW_PRECISION_WORDS,
    shape=shapes.low_precision_accumulation,
    fixable="unsafe",
    module=__name__,
)
