"""Softmax and its kin that run in float16 or bfloat16."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from amplint.finding import Confidence, Severity
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence
from amplint_rules.precision.evidence import Suspect

_OPS = ("softmax", "log_softmax", "softmin", "logsumexp")


def check(ctx: Context) -> Iterable[Report]:
    """Report each softmax whose input is low precision and which no autocast rule lifts."""
    yield from evidence.reports(
        ctx, _suspects(ctx), "which result dtype the code behind it needs is for you to say"
    )


def _suspects(ctx: Context) -> Iterator[Suspect]:
    for applied in evidence.notes(ctx).of(*_OPS):
        scores = evidence.lowest(applied.args[:1])
        result = evidence.lowest((applied.result,))
        if scores is None or result is None or applied.keyword("dtype") is not None:
            continue
        sure = evidence.confidence(result.dtypes, high=Confidence.MEDIUM)
        if sure is None:
            continue
        if applied.no_grad and not evidence.trains(ctx):
            sure = Confidence.LOW  # a model made half for inference is made so on purpose
        dtype = evidence.said(scores.dtypes)
        yield Suspect(
            applied.site,
            f"{applied.op} runs in {dtype} here, as its input is and no autocast region lifts it; compute it in "
            "float32 and cast the result",
            (*evidence.origin(scores), (applied.site, f"{applied.op} of a {dtype} input")),
            sure,
            applied.entry,
            fix=partial(evidence.upcast, ctx, applied.site, f"compute {applied.op} in float32"),
        )


RULE = Rule(
    code="AMP304",
    name="low-precision-softmax",
    summary="softmax, log_softmax or logsumexp runs in float16 or bfloat16",
    severity=Severity.WARNING,
    check=check,
    words=shapes.LOW_PRECISION_WORDS,
    shape=shapes.low_precision_softmax,
    confidence=Confidence.MEDIUM,
    fixable="unsafe",
    module=__name__,
)
