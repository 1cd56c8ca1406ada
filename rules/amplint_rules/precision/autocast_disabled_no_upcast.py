"""A region with `enabled=False` that is to protect float32, and computes in half because nothing is cast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from amplint.finding import Confidence, Severity
from amplint.flow.precision.lattice import F32, LOW, is_certain, is_possible
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.operators import CUDA, category
from amplint.flow.precision.values import Tensor
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence
from amplint_rules.precision.evidence import Suspect


def check(ctx: Context) -> Iterable[Report]:
    """Report what runs on low precision tensors in a region that was disabled for float32's sake."""
    first: dict[tuple[int | None, int | None], Suspect] = {}
    for region, value, suspect in _suspects(ctx):
        first.setdefault((region, value.origin), suspect)
    yield from evidence.reports(ctx, first.values(), "cast what goes into the region to float32 yourself")


def _suspects(ctx: Context) -> Iterator[tuple[int | None, Tensor, Suspect]]:
    """What runs in such a region, with the region and the tensor that comes in."""
    for applied in evidence.notes(ctx).applied:
        region = applied.ambient.site
        if applied.ambient.enabled is not False or region is None:
            continue
        value = _enters(ctx, applied)
        if value is None:
            continue
        sure = _confidence(ctx, applied, value)
        if sure is None:
            continue
        dtype = evidence.said(value.dtypes)
        is_mixed = _is_mixed(applied)
        what = (
            f"{applied.op} gets a {dtype} tensor and float32 weights here"
            if is_mixed
            else f"{applied.op} runs in {dtype} here"
        )
        yield (
            region,
            value,
            Suspect(
                applied.site,
                f"{what}: enabled=False casts nothing, it only stops autocast from lifting; cast what "
                "goes into the region with .float()",
                (
                    *evidence.origin(value),
                    (region, "autocast is disabled here"),
                    (applied.site, f"{applied.op} of a {dtype} input"),
                ),
                sure,
                applied.entry,
                fix=partial(evidence.as_float32, ctx, applied.site, f"give {applied.op} float32"),
            ),
        )


def _enters(ctx: Context, applied: Applied) -> Tensor | None:
    """The low precision operand that was not made low precision on purpose in the same region."""
    for value in applied.tensors:
        if not is_possible(value.dtypes) or value.origin is None or "parameter" in value.marks:
            continue
        ways = evidence.notes(ctx).by_site.get(value.origin, ())
        if any(way.ambient.site == applied.ambient.site and way.ambient.enabled is False for way in ways):
            continue
        return value
    return None


def _is_mixed(applied: Applied) -> bool:
    """A matrix product of half and float32, which raises."""
    dtypes = [t.dtypes for t in applied.tensors]
    lower = category(CUDA, applied.op, (2, 13)) == "lower"
    return lower and any(d == {F32} for d in dtypes) and any(is_certain(d) for d in dtypes)


def _confidence(ctx: Context, applied: Applied, value: Tensor) -> Confidence | None:
    listed = category(CUDA, applied.op, (2, 13))
    result = evidence.lowest((applied.result,))
    if listed == "lower":
        if _is_mixed(applied) and evidence.leaves_region(ctx, value):
            return Confidence.HIGH
        are_low = all(is_certain(t.dtypes) for t in applied.tensors)
        are_made = not any("parameter" in t.marks for t in applied.tensors)
        return Confidence.MEDIUM if are_low and are_made and evidence.leaves_region(ctx, value) else None
    if listed not in ("fp32", "set", "append") or result is None:
        return None
    if is_certain(value.dtypes) and is_certain(result.dtypes, LOW):
        return Confidence.HIGH if evidence.leaves_region(ctx, value) else Confidence.MEDIUM
    is_output = "output" in value.marks and len(applied.tensors) == 1
    return Confidence.MEDIUM if is_output else Confidence.LOW


RULE = Rule(
    code="AMP306",
    name="autocast-disabled-no-upcast",
    summary="a region with `enabled=False` gets float16 or bfloat16 tensors, and nothing casts them to float32",
    severity=Severity.WARNING,
    check=check,
    words=("autocast", "custom_fwd"),
    shape=shapes.autocast_disabled,
    fixable="unsafe",
    module=__name__,
)
