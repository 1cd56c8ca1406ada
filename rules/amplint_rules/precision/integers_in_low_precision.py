"""Positions, timesteps, labels and rotary angles in float16 or bfloat16."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Confidence, Edit, Fix, FixKind, Severity
from amplint.flow.precision.lattice import F16, INT, INT64, LOW, is_certain
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.values import Py, Tensor
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence, numbers
from amplint_rules.precision.evidence import Suspect

_PRODUCTS = ("mul", "outer", "ger", "einsum", "matmul", "bmm", "div")
_INTEGERS = frozenset((INT, INT64))
#: Levels of noise, which some call timesteps and which are no integers.
_NOISE = re.compile(r"sigma|noise_?level", re.IGNORECASE)
_COUNTS = re.compile(
    r"^(time_?steps?|t_steps?|time_?ids?|positions?|pos_?ids?|position_ids|token_ids|input_ids)$"
)
_INDEXED: dict[str, int] = {"cross_entropy": 1, "nll_loss": 1, "embedding": 0, "one_hot": 0}


def check(ctx: Context) -> Iterable[Report]:
    """Report where integers, or angles made of them, are held or multiplied in low precision."""
    yield from evidence.reports(
        ctx, _suspects(ctx), "where the values are cast instead (after cos and sin, say) is for you to say"
    )


def _suspects(ctx: Context) -> Iterator[Suspect]:
    for applied in evidence.notes(ctx).applied:
        if applied.op in ("arange", "range"):
            yield from _range(ctx, applied)
        elif applied.op in _PRODUCTS:
            yield from _angles(ctx, applied)
        elif applied.op == "to":
            yield from _cast(ctx, applied)
            yield from _back(ctx, applied)
        elif applied.op in _INDEXED:
            yield from _used_as_index(ctx, applied)


def _exact(applied_dtypes: frozenset[str]) -> int:
    """Up to where every integer is exact."""
    return 2048 if applied_dtypes == {F16} else 256


def _said(dtypes: frozenset[str]) -> str:
    return f"{evidence.said(dtypes)}, which is exact to {_exact(dtypes & LOW)} only"


def _range(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    """A range that is made in low precision."""
    result = applied.result
    sure = evidence.confidence(result.dtypes, high=Confidence.MEDIUM) if isinstance(result, Tensor) else None
    if sure is None or not isinstance(result, Tensor) or not _may_exceed(ctx, applied.args, result.dtypes):
        return
    yield Suspect(
        applied.site,
        f"positions are counted in {_said(result.dtypes)}; count in int64 or float32, and cast what is made of them",
        ((applied.site, f"{applied.op} in {evidence.said(result.dtypes)}"),),
        sure,
        applied.entry,
        fix=partial(_counted, ctx, applied.site),
    )


def _may_exceed(ctx: Context, args: Iterable[object], dtypes: frozenset[str]) -> bool:
    """Whether a range of integers may go where they are not exact."""
    given = list(args)
    numbers_given = [float(a.value) for a in given if isinstance(a, Py) and isinstance(a.value, (int, float))]
    if not all(number.is_integer() for number in numbers_given):
        return False
    if numbers_given and len(numbers_given) == len(given):
        return max(map(abs, numbers_given)) > _exact(dtypes & LOW) + 1
    return True


def _counted(ctx: Context, site: int) -> Fix | str:
    """A fix that counts in float32."""
    model, call = evidence.place(ctx, site)
    why = "cast what is made of the positions instead"
    if model is not ctx.model or not isinstance(call, cst.Call):
        return why
    given = next((a for a in call.args if a.keyword is not None and a.keyword.value == "dtype"), None)
    root = call.func.value if isinstance(call.func, cst.Attribute) else None
    if given is None or not isinstance(root, cst.Name) or "torch" not in model.names.resolve(root):
        return why
    edit = Edit(model.tree.span(given.value), f"{root.value}.float32")
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, "count in float32", (edit,))


def _angles(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    """Positions times frequencies."""
    tensors = applied.tensors
    rates = [t for t in tensors if "frequencies" in t.marks]
    counts = [t for t in tensors if "positions" in t.marks and "frequencies" not in t.marks]
    if len(tensors) < 2 or not rates or (applied.op == "div" and not counts):
        return
    others = [t for t in tensors if t not in rates]
    if not counts and (not others or any(t.marks & {"frequencies"} for t in others)):
        return
    result = applied.result
    low = [t for t in (*rates, *counts, result) if isinstance(t, Tensor) and is_certain(t.dtypes)]
    possible = evidence.lowest([*rates, result])
    worst = evidence.lowest(low) or possible
    sure = evidence.confidence(worst.dtypes, high=Confidence.MEDIUM) if worst is not None else None
    if sure is None or worst is None:
        return
    dtype = evidence.said(worst.dtypes)
    is_half = worst.dtypes == {F16}
    yield Suspect(
        applied.site,
        f"positions are multiplied by frequencies or slopes in {dtype}, which has no integers between "
        f"{'2048 and 2050' if is_half else '256 and 258'}: a product of about 1000 is off by up to "
        f"{'0.25' if is_half else '2'}; multiply in float32 and cast what comes out",
        (*evidence.origin(worst), (applied.site, f"multiplied in {dtype}")),
        sure,
        applied.entry,
    )


def _statement(ctx: Context, applied: Applied) -> str:
    model, found = evidence.place(ctx, applied.site)
    return model.tree.code(model.tree.statement(found))


def _cast(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    """A cast of what is by name, or was made as, positions or timesteps."""
    result, source = applied.result, next(iter(applied.tensors), None)
    if not isinstance(result, Tensor) or source is None or not is_certain(result.dtypes):
        return
    is_counted = "positions" in source.marks and source.op in ("arange", "range", *numbers.MOVES)
    if is_counted:
        made = numbers.made_by(ctx, numbers.moved(ctx, source))
        if (
            made is None
            or made.op not in ("arange", "range")
            or not _may_exceed(ctx, made.args, result.dtypes)
        ):
            return
    elif (
        not _COUNTS.match(_written(ctx, applied))
        or "frequencies" in source.marks
        or is_certain(source.dtypes)
        or _NOISE.search(_statement(ctx, applied))
    ):
        return
    high = Confidence.MEDIUM
    if is_certain(source.dtypes, _INTEGERS) and result.dtypes == {F16} and not is_counted:
        high = Confidence.LOW
    what = "positions" if is_counted else _written(ctx, applied)
    sure = evidence.confidence(result.dtypes, high=high)
    if sure is not None:
        yield Suspect(
            applied.site,
            f"{what} cast to {_said(result.dtypes)}; keep them in "
            "int64 or float32, and cast what is made of them",
            ((applied.site, f"cast to {evidence.said(result.dtypes)}"),),
            sure,
            applied.entry,
        )


def _written(ctx: Context, applied: Applied) -> str:
    """The last name of `self.a.b[0]`, on which a method is called."""
    text = next(iter(numbers.operand_code(ctx, applied)), "")
    return re.split(r"[.\s]", text.partition("[")[0].partition("(")[0])[-1]


def _back(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    """Integers that went through low precision and are integers again."""
    result, source = applied.result, next(iter(applied.tensors), None)
    if isinstance(result, Tensor) and source is not None and is_certain(result.dtypes, _INTEGERS):
        yield from _lost(ctx, applied, source, "made integers again")


def _used_as_index(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    position = _INDEXED[applied.op]
    source = applied.argument(position, "target" if position else "input")
    if isinstance(source, Tensor):
        yield from _lost(ctx, applied, source, f"used by {applied.op}")


def _lost(ctx: Context, applied: Applied, source: Tensor, what: str) -> Iterator[Suspect]:
    if "integers" not in source.marks or source.origin is None or not is_certain(source.dtypes):
        return
    dtype = evidence.said(source.dtypes)
    yield Suspect(
        source.origin,
        f"integers go through {_said(source.dtypes)}: larger ones are rounded; cast only what is floating point",
        ((source.origin, f"int64 becomes {dtype}"), (applied.site, what)),
        Confidence.MEDIUM,
        applied.entry,
    )


RULE = Rule(
    code="AMP320",
    name="integers-in-low-precision",
    summary="positions, timesteps, labels or rotary angles in float16 or bfloat16",
    severity=Severity.WARNING,
    check=check,
    words=shapes.LOW_PRECISION_WORDS,
    shape=shapes.low_precision,
    confidence=Confidence.MEDIUM,
    fixable="unsafe",
    module=__name__,
)
