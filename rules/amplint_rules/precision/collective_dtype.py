"""Collectives that add up float16 over the ranks before anything is divided."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from amplint.finding import Confidence, Severity
from amplint.flow.precision.lattice import F16
from amplint.flow.precision.notes import Applied, Notes
from amplint.flow.precision.values import Dtype, Lib, Py, Tensor, tensors_in
from amplint.model.units import is_own
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence
from amplint_rules.precision.evidence import Suspect

#: Collective that sums -> which of its arguments is summed, and the name of that.
_SUMS = {
    "all_reduce": (0, "tensor"),
    "all_reduce_coalesced": (0, "tensors"),
    "reduce": (0, "tensor"),
    "reduce_scatter": (1, "input_list"),
    "reduce_scatter_tensor": (1, "input"),
    "_reduce_scatter_base": (1, "input"),
}
_PLACES = ("torch.distributed.", "torch.distributed.nn.", "torch.distributed.nn.functional.")
_DIVISION = re.compile(
    r"(?:(?<!/)/(?!/)=?|\bdiv_?\(|\bmul_?\(\s*1(?:\.0?)?\s*/)\s*[\w.]*(?:world|size|rank|replica|n_?gpu|num_)",
    re.IGNORECASE,
)
#: A division as it is written, by whatever it is.
_ANY_DIVISION = re.compile(r"(?<!/)/(?!/)|\bdiv_?\(")
#: Names of sums that stay small: figures that are averaged for a report.
_SMALL = re.compile(r"loss|metric|acc|correct|count|score", re.IGNORECASE)
_FACTORS = frozenset(("div", "mul", "true_divide", "divide"))
#: Rows behind the collective in which the division is looked for.
_BEHIND = 30
#: Rows before it that may divide already.
_BEFORE = 15
_MOST_FOLLOWED = 60


def check(ctx: Context) -> Iterable[Report]:
    """Report each such collective."""
    yield from evidence.reports(
        ctx,
        _suspects(ctx),
        "the division has to move in front of the collective, for every place that reads the sum",
    )


def _suspects(ctx: Context) -> Iterator[Suspect]:
    notes = evidence.notes(ctx)
    for applied in notes.applied:
        place, _, name = applied.op.rpartition(".")
        if name in _SUMS and f"{place}." in _PLACES:
            yield from _summed(ctx, notes, applied, name)
        elif name == "MixedPrecision" and place == "torch.distributed.fsdp":
            reduce_dtype = applied.keyword("reduce_dtype")
            if reduce_dtype == Dtype(frozenset((F16,))):
                yield Suspect(
                    applied.site,
                    "gradients are added up over the ranks in float16; reduce them in float32 or bfloat16",
                    ((applied.site, "reduce_dtype is float16"),),
                    Confidence.LOW,
                    applied.entry,
                )


def _summed(ctx: Context, notes: Notes, applied: Applied, name: str) -> Iterator[Suspect]:
    position, keyword = _SUMS[name]
    given = applied.argument(position, keyword)
    found = tensors_in(given) if given is not None else ()
    tensor = evidence.lowest(found)
    if tensor is None or not _adds(applied, position):
        return
    sure = evidence.confidence(tensor.dtypes, (F16,), Confidence.MEDIUM)
    if sure is None or _is_divided(ctx, notes, tensor) or _is_written(ctx, applied, _ANY_DIVISION, -_BEFORE):
        return
    is_small = tensor.is_scalar is True or _SMALL.search(evidence.code(ctx, tensor.site or applied.site))
    if is_small or not _is_divided_behind(ctx, applied):
        sure = Confidence.LOW
    yield Suspect(
        applied.site,
        f"{name} adds up float16 values of all ranks, and they are divided only afterwards: the sum overflows at 65504 "
        "and does so the sooner the more ranks there are; divide first, or reduce in float32",
        (*evidence.origin(tensor), (applied.site, "summed over the ranks in float16")),
        sure,
        applied.entry,
    )


def _adds(applied: Applied, position: int) -> bool:
    """Whether the collective sums, which it does unless told."""
    op = applied.keyword("op")
    if op is None:
        op = next(
            (v for v in applied.args[position + 1 :] if isinstance(v, Lib) and "ReduceOp" in v.name), None
        )
    return op is None or (isinstance(op, Lib) and op.name.rpartition(".")[2] == "SUM")


def _is_divided(ctx: Context, notes: Notes, tensor: Tensor) -> bool:
    """Whether a tensor comes out of a division, as far as can be seen."""
    left, seen = [tensor], set[tuple[str, int | None]]()
    while left and len(seen) < _MOST_FOLLOWED:
        each = left.pop()
        if (each.op, each.site) in seen or each.site is None:
            continue
        seen.add((each.op, each.site))
        if each.op in _FACTORS or _ANY_DIVISION.search(evidence.code(ctx, each.site)):
            return True
        for made in notes.made(each):
            left.extend(t for value in made.args for t in tensors_in(value))
    return False


def _is_divided_behind(ctx: Context, applied: Applied) -> bool:
    """Whether something is divided by what is called like the number of ranks, or by a variable, behind it."""
    if _is_written(ctx, applied, _DIVISION, _BEHIND):
        return True
    return any(
        other.function == applied.function
        and is_own(other.site) == is_own(applied.site)
        and other.site > applied.site
        and len(other.args) > 1
        and not isinstance(other.args[1], (Py, Tensor))
        for other in evidence.notes(ctx).of("div")
    )


def _is_written(ctx: Context, applied: Applied, division: re.Pattern[str], rows: int) -> bool:
    """Whether a division is written on so many rows behind the call, or before it."""
    model, node = evidence.place(ctx, applied.site)
    span = model.tree.span(node)
    lines = model.source.text.splitlines()
    if rows > 0:
        row = model.source.position(span.end).row
        near = lines[row - 1 : row + rows]
    else:
        row = model.source.position(span.start).row
        near = lines[max(row - 1 + rows, 0) : row - 1]
        starts = [i for i, line in enumerate(near) if line.lstrip().startswith(("def ", "async def "))]
        near = near[starts[-1] :] if starts else near
    return any(division.search(line.partition("#")[0]) for line in near)


RULE = Rule(
    code="AMP322",
    name="collective-dtype",
    summary="float16 values are added up over the ranks and divided only afterwards",
    severity=Severity.WARNING,
    check=check,
    words=("all_reduce", "reduce", "MixedPrecision"),
    shape=shapes.collective_dtype,
    confidence=Confidence.MEDIUM,
    module=__name__,
)
