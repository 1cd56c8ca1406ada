"""A loss of low precision predictions where no autocast region lifts it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from amplint.finding import Confidence, Severity
from amplint.flow.precision.lattice import LOW, UNKNOWN, is_certain, is_possible
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.operators import operators
from amplint.flow.precision.values import Tensor
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence
from amplint_rules.precision.evidence import Suspect

LOSSES = tuple(op for op, row in operators().items() if row.result == "loss")
#: Losses whose targets are classes: a target of another dtype widens nothing.
_OF_CLASSES = ("cross_entropy", "nll_loss", "multi_margin_loss", "multilabel_margin_loss")
#: Losses that take exp or log of their input: in a half model, without a region, those only.
_EXPONENTIAL = (
    *_OF_CLASSES[:2],
    "kl_div",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "ctc_loss",
)
#: Distributions by the parameter that is a model's output.
_DISTRIBUTIONS = {
    "Categorical": ("probs", "logits"),
    "OneHotCategorical": ("probs", "logits"),
    "Bernoulli": ("probs", "logits"),
    "Multinomial": ("total_count", "probs", "logits"),
    "Normal": ("loc", "scale"),
}


def check(ctx: Context) -> Iterable[Report]:
    """Report each loss, and each distribution, of predictions that are low precision outside a region."""
    yield from evidence.reports(ctx, _suspects(ctx), "which argument to cast is for you to say")


def _suspects(ctx: Context) -> Iterator[Suspect]:
    for applied in evidence.notes(ctx).applied:
        if applied.ambient.enabled or _is_disabled_region(applied):
            continue
        if applied.op in LOSSES:
            yield from _of_loss(ctx, applied)
        elif applied.op.startswith("torch.distributions."):
            yield from _of_distribution(ctx, applied)


def _is_disabled_region(applied: Applied) -> bool:
    """A region with `enabled=False` is another rule's."""
    return applied.ambient.enabled is False and applied.ambient.site is not None


def _of_loss(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    prediction = evidence.lowest(applied.args[:1])
    result = evidence.lowest((applied.result,))
    if prediction is None or result is None:
        return
    sure = evidence.confidence(result.dtypes)
    if sure is Confidence.LOW and _is_output(prediction) and applied.ambient.enabled is False:
        # a float32 target makes the others compute in float32
        targets = [v for v in applied.args[1:2] if not isinstance(v, Tensor) or not _is_low(v)]
        if applied.op in _OF_CLASSES or not targets:
            sure = Confidence.MEDIUM
    if not evidence.leaves_region(ctx, prediction):
        if applied.op not in _EXPONENTIAL:
            return
        if applied.no_grad and not evidence.trains(ctx):
            sure = Confidence.LOW
    if sure is not None:
        yield _suspect(ctx, applied, prediction, applied.op, sure, is_loss=True)


def _of_distribution(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    name = applied.op.rpartition(".")[2]
    given = [applied.argument(i, p) for i, p in enumerate(_DISTRIBUTIONS.get(name, ()))]
    value = evidence.lowest(v for v in given if v is not None)
    if value is None or applied.ambient.enabled is None:
        return
    sure = evidence.confidence(value.dtypes, high=Confidence.MEDIUM)
    if sure is not None:
        yield _suspect(ctx, applied, value, name, sure, is_loss=False)


def _is_output(value: Tensor) -> bool:
    """The result of a model that is not looked into, where it is called in a region or is low precision itself."""
    return "output" in value.marks and is_possible(value.dtypes) and value.dtypes <= LOW | {UNKNOWN}


def _is_low(value: Tensor) -> bool:
    return is_certain(value.dtypes) or _is_output(value)


def _suspect(
    ctx: Context, applied: Applied, value: Tensor, op: str, sure: Confidence, is_loss: bool
) -> Suspect:
    dtype = evidence.said(value.dtypes)
    is_left = evidence.leaves_region(ctx, value)
    where = (
        f"the autocast region that made its input {dtype} has ended"
        if is_left
        else f"its input is {dtype} and no autocast region is around"
    )
    computes = f"{op} computes" if is_loss else f"the log-probabilities of {op} are computed"
    fix = partial(
        evidence.as_float32,
        ctx,
        applied.site,
        f"compute {op} in float32",
        safe=applied.keyword("weight") is None,
    )
    return Suspect(
        applied.site,
        f"{computes} in {dtype} here, since {where}; pass it .float(), or compute it inside the region",
        (*evidence.origin(value), (applied.site, f"{op} of a {dtype} input outside any region")),
        sure,
        applied.entry,
        fix=fix,
    )


RULE = Rule(
    code="AMP302",
    name="loss-outside-autocast",
    summary="a loss is computed in float16 or bfloat16, outside the autocast region that would lift it",
    severity=Severity.WARNING,
    check=check,
    words=shapes.LOW_PRECISION_WORDS,
    shape=shapes.loss_outside_autocast,
    fixable="safe",
    module=__name__,
)
