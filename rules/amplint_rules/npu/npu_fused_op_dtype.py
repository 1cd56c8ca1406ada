"""torch_npu's fused operators, which autocast does not know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from amplint import facts
from amplint.finding import Confidence, Severity
from amplint.flow.precision.lattice import FLOATS, LOW, is_certain
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.operators import NPU
from amplint.flow.precision.values import Tensor
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence
from amplint_rules.precision.evidence import Suspect

_PLACES = ("torch_npu", "torch.ops.npu", "torch")


@cache
def _operators() -> Mapping[str, dict[str, str]]:
    return {row["op"]: row for row in facts.table("npu_fused_ops")}


def check(ctx: Context) -> Iterable[Report]:
    """Report mixed operands, and half input of what autocast lifts where it is not fused."""
    yield from evidence.reports(ctx, _suspects(ctx), "which dtype is meant is for you to say")


def _suspects(ctx: Context) -> Iterator[Suspect]:
    for applied in evidence.notes(ctx, NPU).applied:
        place, _, name = applied.op.rpartition(".")
        row = _operators().get(name)
        if row is None or place not in _PLACES:
            continue
        found = _mixed(applied, row) or _not_lifted(applied, row)
        if found is not None:
            yield found


def _mixed(applied: Applied, row: Mapping[str, str]) -> Suspect | None:
    """Operands that are to have one dtype and have two."""
    named: list[tuple[str, Tensor]] = []
    for each in filter(None, row["alike"].split(",")):
        position, _, name = each.partition(":")
        value = applied.argument(int(position), name)
        if isinstance(value, Tensor) and is_certain(value.dtypes, FLOATS):
            named.append((name, value))
    low = next(((n, t) for n, t in named if is_certain(t.dtypes)), None)
    if low is None:
        return None
    other = next(((n, t) for n, t in named if not t.dtypes & low[1].dtypes), None)
    if other is None:
        return None
    first, second = (" or ".join(sorted(t.dtypes)) for _, t in (low, other))
    return Suspect(
        applied.site,
        f"{row['op']} gets {low[0]} in {first} and {other[0]} in {second}: autocast has no rule for fused "
        "operators and casts neither; cast them to one dtype",
        (
            *evidence.origin(low[1]),
            *evidence.origin(other[1]),
            (applied.site, "both are handed over as they are"),
        ),
        _confidence(row),
        applied.entry,
    )


def _not_lifted(applied: Applied, row: Mapping[str, str]) -> Suspect | None:
    """Half input in a region whose lists lift what the operator is made of."""
    if not row["lifted_as"] or applied.ambient.enabled is not True:
        return None
    source = evidence.lowest(applied.args[:1])
    if source is None or not is_certain(source.dtypes, LOW):
        return None
    dtype = evidence.said(source.dtypes)
    return Suspect(
        applied.site,
        f"{row['op']} runs in {dtype} here: autocast lifts {row['lifted_as']} to float32, but has no rule for the "
        "fused operator; give it a float32 input",
        (*evidence.origin(source), (applied.site, f"{row['op']} of a {dtype} input")),
        _confidence(row),
        applied.entry,
    )


def _confidence(row: Mapping[str, str]) -> Confidence:
    return Confidence.MEDIUM if row["confidence"] == "medium" else Confidence.LOW


RULE = Rule(
    code="AMP813",
    name="npu-fused-op-dtype",
    summary="a fused operator of torch_npu gets operands of two dtypes, or half ones that autocast would lift",
    severity=Severity.WARNING,
    check=check,
    words=("npu_",),
    shape=shapes.npu_fused_op_dtype,
    confidence=Confidence.MEDIUM,
    module=__name__,
)
