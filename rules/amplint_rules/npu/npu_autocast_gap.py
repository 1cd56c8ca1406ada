"""Operators that CUDA's autocast casts, and NPU's does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from amplint.finding import Confidence, Severity
from amplint.flow.precision.lattice import F32, LOW, is_certain
from amplint.flow.precision.notes import Applied, Notes
from amplint.flow.precision.operators import CUDA, NPU, RMS_NORM_LISTED, Rules, category, operators
from amplint.flow.precision.values import Py, Tensor, tensors_in
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence
from amplint_rules.precision.evidence import Suspect

#: What only moves values, so that they are what they were before it.
_COPIES = frozenset(("nearest", "nearest-exact"))
#: Lists of autocast whose operators cast what they are given.
_CASTS_BY_ITSELF = frozenset(("lower", "fp32", "set", "append"))
_JOINS = frozenset(("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack"))
_MOST_FOLLOWED = 200


def check(ctx: Context) -> Iterable[Report]:
    """Report each operator that gives another dtype on NPU than on CUDA, or fails there."""
    yield from evidence.reports(
        ctx, _suspects(ctx), "which of the operands has the dtype that is meant is for you to say"
    )


def _suspects(ctx: Context) -> Iterator[Suspect]:
    # the project supports this release of torch and those after it
    newest = max(ctx.settings.torch, RMS_NORM_LISTED)
    if not any(_differs(applied, newest) for applied in evidence.notes(ctx).applied):
        return
    notes = evidence.notes(ctx, NPU)
    on_cuda = Rules(CUDA, newest)
    for applied in notes.applied:
        if not _differs(applied, newest):
            continue
        listed = category(CUDA, applied.op, newest)
        if listed == "fp32":
            yield from _not_lifted(ctx, notes, applied, on_cuda)
        elif listed in ("promote", "lower"):
            yield from _not_made_alike(applied, listed)


def _differs(applied: Applied, newest: tuple[int, int]) -> bool:
    """Whether an operator runs in a region, and is in other lists on NPU than on CUDA."""
    return (
        applied.op in operators()
        and applied.ambient.enabled is True
        and category(CUDA, applied.op, newest) != category(NPU, applied.op, newest)
    )


def _not_lifted(ctx: Context, notes: Notes, applied: Applied, on_cuda: Rules) -> Iterator[Suspect]:
    """The input stays low precision, where CUDA's autocast makes it float32."""
    here = evidence.lowest((applied.result,))
    keywords = dict(applied.keywords)
    there = on_cuda.apply(applied.op, applied.args, keywords, applied.ambient, frozenset((F32,)))
    if here is None or not isinstance(there, Tensor) or not is_certain(there.dtypes, (F32,)):
        return
    sure = evidence.confidence(here.dtypes, high=Confidence.MEDIUM)
    if sure is None:
        return
    if _only_copies(applied) and not _is_computed_with(notes, applied):
        sure = Confidence.LOW
    source = evidence.lowest(applied.args[:1]) or here
    dtype = evidence.said(here.dtypes)
    what = _called(applied)
    is_new = applied.op == "rms_norm" and ctx.settings.torch < RMS_NORM_LISTED
    since = f" from torch {RMS_NORM_LISTED[0]}.{RMS_NORM_LISTED[1]} on" if is_new else ""
    yield Suspect(
        applied.site,
        f"{what} gives {dtype} here on NPU, whose autocast leaves it alone, and float32 on CUDA, whose autocast "
        f"lifts it{since}; give it a float32 input",
        (
            *evidence.origin(source),
            (applied.site, f"{what} of a {dtype} input, which NPU's autocast does not lift"),
        ),
        sure,
        applied.entry,
        fix=partial(evidence.lift, ctx, applied.site, f"Give {what} a float32 input", not is_new)
        if len({each.op for each in notes.by_site[applied.site]}) == 1
        else lambda: f"{what} is a part of what is called here",
    )


def _not_made_alike(applied: Applied, listed: str) -> Iterator[Suspect]:
    """Operands of two dtypes, which CUDA's autocast makes alike; without it the call fails."""
    first, second = (
        (evidence.lowest((v,)) or v for v in applied.args[:2]) if len(applied.args) > 1 else (None, None)
    )
    if not isinstance(first, Tensor) or not isinstance(second, Tensor):
        return
    known = (LOW, (F32,))
    kinds = [
        next((i for i, kind in enumerate(known) if is_certain(t.dtypes, kind)), None) for t in (first, second)
    ]
    if None in kinds or kinds[0] == kinds[1]:
        return
    low, full = (first, second) if kinds[0] == 0 else (second, first)
    what = _called(applied)
    cast = "casts both to the wider one" if listed == "promote" else "casts both"
    yield Suspect(
        applied.site,
        f"{what} of {evidence.said(low.dtypes)} and float32 fails on NPU; CUDA's autocast {cast}, NPU's does not: "
        "cast the operands to one dtype",
        (*evidence.origin(low), *evidence.origin(full), (applied.site, f"{what} of both")),
        Confidence.HIGH,
        applied.entry,
        Severity.ERROR,
    )


def _called(applied: Applied) -> str:
    """The operator as it is called here."""
    return (
        applied.form.removeprefix("module ")
        if applied.form.startswith("module ")
        else applied.op.replace("linalg_", "linalg.")
    )


def _only_copies(applied: Applied) -> bool:
    """Whether the operator computes nothing: nearest, which is also what interpolate does unless told."""
    if (
        applied.op not in ("interpolate", "upsample", "upsample_nearest")
        or "UpsamplingBilinear" in applied.form
    ):
        return False
    mode = applied.keyword("mode")
    if mode is None and not applied.form and applied.op == "interpolate" and len(applied.args) > 3:
        mode = applied.args[3]
    return mode is None or (isinstance(mode, Py) and mode.value in _COPIES)


def _is_computed_with(notes: Notes, applied: Applied) -> bool:
    """Whether something computes with the result in the dtype that it has, rather than cast it by itself."""
    uses: dict[tuple[str, int | None], list[Applied]] = {}
    for each in notes.applied:
        for value in (*each.args, *(v for _, v in each.keywords)):
            for tensor in tensors_in(value):
                uses.setdefault((tensor.op, tensor.site), []).append(each)
    seen: set[tuple[str, int | None]] = set()
    left: list[tuple[str, int | None]] = [(applied.op, applied.site)]
    while left and len(seen) < _MOST_FOLLOWED:
        at = left.pop()
        if at in seen:
            continue
        seen.add(at)
        for use in uses.get(at, ()):
            row = operators().get(use.op)
            if row is None or use.op == "to" or category(NPU, use.op, (2, 13)) in _CASTS_BY_ITSELF:
                continue
            if use.op not in _JOINS and (row.result not in ("keep", "list") or row.shape == "reduce"):
                return True
            left.append((use.op, use.site))
    return False


RULE = Rule(
    code="AMP801",
    name="npu-autocast-gap",
    summary="an operator that CUDA's autocast lifts to float32 and NPU's does not",
    severity=Severity.WARNING,
    check=check,
    words=shapes.LOW_PRECISION_WORDS,
    shape=shapes.npu_autocast_gap,
    confidence=Confidence.MEDIUM,
    fixable="sometimes",
    module=__name__,
)
