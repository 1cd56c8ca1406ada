"""Operators without a kernel for float16 or bfloat16, and writes into a tensor of another dtype."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial

from amplint import facts
from amplint.finding import Confidence, Fix, Severity
from amplint.flow.precision.lattice import BF16, BOOL, F16, LOW, UNKNOWN
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.operators import CUDA, category
from amplint.flow.precision.values import NONE, Py, Sequence_, Tensor, Value
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence
from amplint_rules.precision.evidence import Suspect

#: Operators that write one tensor into another -> where the other one is given, and the names of its parameter.
_WRITES: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "scatter": (3, ("src",)),
    "scatter_add": (3, ("src",)),
    "scatter_reduce": (3, ("src",)),
    "index_add": (3, ("source",)),
    "index_copy": (3, ("source",)),
    "index_reduce": (3, ("source",)),
    "masked_scatter": (2, ("source",)),
    "index_put": (2, ("values",)),
    "setitem": (2, ()),
}
_SIZES = ("n", "s", "n_fft")


@cache
def _kinds() -> Mapping[str, str]:
    """Short name -> "fft", "linalg" or "loss"."""
    return {row["function"].rpartition(".")[2]: row["kind"] for row in facts.table("half_unsupported")}


@cache
def _functions() -> frozenset[str]:
    return frozenset(row["function"] for row in facts.table("half_unsupported"))


def check(ctx: Context) -> Iterable[Report]:
    """Report each call that fails for the dtype of its operands."""
    yield from evidence.reports(ctx, _suspects(ctx), "cast one of the two to the dtype of the other")


def _suspects(ctx: Context) -> Iterator[Suspect]:
    for applied in evidence.notes(ctx).applied:
        if applied.op in _WRITES:
            yield from _written(ctx, applied)
        elif _is_unsupported(applied):
            yield from _unsupported(ctx, applied)


def _is_unsupported(applied: Applied) -> bool:
    if applied.op.startswith("."):
        return applied.op[1:] in _kinds() and f"torch.{applied.op[1:]}" in _functions()
    return applied.op in _functions() or applied.op == "ctc_loss"


def _unsupported(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    operand = evidence.lowest(
        applied.args[:1] or tuple(v for k, v in applied.keywords if k in ("input", "A"))
    )
    if operand is None:
        return
    name = applied.op.rpartition(".")[2]
    kind = _kinds()[name]
    dtypes = operand.dtypes & LOW
    on_npu = ctx.settings.effective_target == "npu"
    some_sizes = kind == "fft" and BF16 not in dtypes and not on_npu
    if some_sizes and _is_power_of_two(applied):
        return
    sure = evidence.confidence(operand.dtypes, high=Confidence.MEDIUM if some_sizes else Confidence.HIGH)
    if sure is None:
        return
    dtype = evidence.said(operand.dtypes)
    if kind == "fft" and F16 in dtypes and not on_npu:
        why = "cuFFT takes float16 only in sizes that are powers of two, NPU and CPU not at all"
    elif on_npu:
        why = f"there is no kernel for {dtype} on NPU"
    else:
        why = f"there is no kernel for {dtype} on CUDA"
    yield Suspect(
        applied.site,
        f"{name} of a {dtype} tensor: {why}, and autocast does not lift it; give it a float32 input",
        (*evidence.origin(operand), (applied.site, f"{name} of a {dtype} input")),
        sure,
        applied.entry,
        Severity.WARNING if some_sizes else None,
        partial(_fix, ctx, applied, name),
    )


def _fix(ctx: Context, applied: Applied, name: str) -> Fix | str:
    message = f"Compute {name} in float32"
    if applied.op.startswith("."):
        return evidence.upcast(ctx, applied.site, message, back=False)
    return evidence.lift(ctx, applied.site, message)


def _is_power_of_two(applied: Applied) -> bool:
    """Whether the sizes are given, and powers of two."""
    given = next((value for key, value in applied.keywords if key in _SIZES), None)
    if given is None and len(applied.args) > 1 and applied.args[1] != NONE:
        given = applied.args[1]
    items: tuple[Value, ...] = (
        given.items if isinstance(given, Sequence_) else () if given is None else (given,)
    )
    sizes = [item.value for item in items if isinstance(item, Py) and isinstance(item.value, int)]
    return bool(items) and len(sizes) == len(items) and all(n > 0 and n & (n - 1) == 0 for n in sizes)


def _written(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    """A tensor that is written into one of another dtype."""
    position, names = _WRITES[applied.op]
    target = applied.args[0] if applied.args else None
    source = applied.args[position] if position < len(applied.args) else None
    for name in names:
        source = source if source is not None else applied.keyword(name)
    if not isinstance(target, Tensor) or not isinstance(source, Tensor):
        return
    by_tensor = _writes_by_tensor(applied.args[1]) if applied.op == "setitem" else True
    if by_tensor is False:
        return
    in_place = applied.form == "in place" or applied.op == "setitem"
    if (
        not in_place
        and applied.ambient.enabled is not False
        and category(CUDA, applied.op, (2, 13)) == "promote"
    ):
        return
    known = target.dtypes | source.dtypes
    if UNKNOWN in known or target.dtypes & source.dtypes or not known & LOW or source.is_scalar is True:
        return
    what = "an indexed assignment" if applied.op == "setitem" else applied.op + ("_" if in_place else "")
    ours, theirs = (" or ".join(sorted(t.dtypes)) for t in (target, source))
    yield Suspect(
        applied.site,
        f"{what} of {theirs} values into a {ours} tensor fails, it converts nothing; cast the values with "
        ".to() of the other's dtype",
        (
            *evidence.origin(target),
            *evidence.origin(source),
            (applied.site, f"{theirs} is written into {ours}"),
        ),
        Confidence.LOW
        if by_tensor is None
        else Confidence.MEDIUM
        if applied.op == "setitem" and source.is_scalar is None
        else Confidence.HIGH,
        applied.entry,
    )


def _writes_by_tensor(index: Value) -> bool | None:
    """Whether an index is a tensor, or has one; None where that may be a number.

    Slices, numbers and integer tensors without dimensions copy, and a copy converts.
    """
    items = index.items if isinstance(index, Sequence_) else (index,)
    tensors = [item for item in items if isinstance(item, Tensor)]
    if any(t.is_scalar is False or t.dtypes == frozenset((BOOL,)) for t in tensors):
        return True
    return None if any(t.is_scalar is None for t in tensors) else False


RULE = Rule(
    code="AMP316",
    name="half-unsupported-op",
    summary="an operator that has no kernel for float16 or bfloat16, or a write into a tensor of another dtype",
    severity=Severity.ERROR,
    check=check,
    words=shapes.LOW_PRECISION_WORDS,
    shape=shapes.half_unsupported_op,
    fixable="sometimes",
    module=__name__,
)
