"""Bounds just inside -1 and 1 that are -1 and 1 in the dtype at hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from amplint.finding import Confidence, Severity
from amplint.flow.precision.lattice import BF16, F16
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.values import Tensor
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence, numbers
from amplint_rules.precision.evidence import Suspect

#: Operator -> positions and names of its bounds.
_BOUNDS: dict[str, tuple[tuple[int, str], ...]] = {
    "clamp": ((1, "min"), (2, "max")),
    "clip": ((1, "min"), (2, "max")),
    "clamp_min": ((1, "min"),),
    "clamp_max": ((1, "max"),),
    "minimum": ((1, "other"),),
    "maximum": ((1, "other"),),
    "logit": ((1, "eps"),),
}


def check(ctx: Context) -> Iterable[Report]:
    """Report each clamp one of whose bounds is rounded to what it is to keep away."""
    yield from evidence.reports(ctx, _suspects(ctx), "which bound or formula is meant is for you to say")


def _suspects(ctx: Context) -> Iterator[Suspect]:
    for applied in evidence.notes(ctx).of(*_BOUNDS):
        tensor = applied.result if applied.op != "logit" else evidence.lowest(applied.args[:1])
        if not isinstance(tensor, Tensor):
            continue
        for bound in _given(ctx, applied):
            lost = [d for d in (F16, BF16) if abs(numbers.rounded(bound, d)) == 1.0]
            sure = evidence.confidence(tensor.dtypes, lost, Confidence.MEDIUM) if lost else None
            if sure is None or not 0.9 < abs(bound) < 1:
                continue
            dtype = evidence.said(tensor.dtypes & frozenset(lost))
            one = "1" if bound > 0 else "-1"
            yield Suspect(
                applied.site,
                f"the bound {_exact(bound)} is {one} in {dtype}, so that {applied.op} lets {one} through; "
                "compute it in float32, or from logits",
                (*evidence.origin(tensor), (applied.site, f"{applied.op} in {dtype}")),
                sure,
                applied.entry,
                fix=partial(evidence.upcast, ctx, applied.site, "compute it in float32", back=False),
            )


def _given(ctx: Context, applied: Applied) -> Iterator[float]:
    for position, name in _BOUNDS[applied.op]:
        found = numbers.number_of(ctx, applied.argument(position, name))
        if found is not None:
            yield 1 - found[0] if applied.op == "logit" else found[0]


def _exact(bound: float) -> str:
    """A bound with the digits that matter: 1 - 1e-07."""
    sign = "-" if bound < 0 else ""
    return f"{sign}(1 - {1 - abs(bound):.1g})"


RULE = Rule(
    code="AMP323",
    name="clamp-rounds-away",
    summary="a bound of clamp just below 1 is 1 in float16 or bfloat16",
    severity=Severity.WARNING,
    check=check,
    words=shapes.LOW_PRECISION_WORDS,
    shape=shapes.clamp_rounds_away,
    confidence=Confidence.MEDIUM,
    fixable="unsafe",
    module=__name__,
)
