"""Moments of optimizers that are allocated, cast or saved in float16 or bfloat16."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import libcst as cst

from amplint.finding import Confidence, Severity
from amplint.flow.precision.lattice import LOW, is_certain
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.values import Tensor
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence, numbers
from amplint_rules.precision.evidence import Suspect

_MAKERS = ("zeros_like", "empty_like", "ones_like", "zeros", "empty", "new_zeros", "full_like", "clone", "to")
_FIRST = re.compile(r"exp_avg\b(?!_sq)|momentum|first|\bm\b|_m\b|mom", re.IGNORECASE)
_SECOND = re.compile(
    r"exp_avg_sq|_sq\b|square|second|variance|\bv\b|_v\b|\bnu\b|max_exp|denom|hess", re.IGNORECASE
)
#: A factor kept in the state beside what it multiplies.
_SCALE = re.compile(r"""\[\s*["'][^"']*(?:exp_avg|moment|_sq|avg)[^"']*scale|\bscale_inv\b""", re.IGNORECASE)
_MASTER = re.compile(r"master|fp32|float32|main_param", re.IGNORECASE)


def check(ctx: Context) -> Iterable[Report]:
    """Report optimizer state that is made low precision."""
    yield from evidence.reports(ctx, _suspects(ctx), "whether a state may be rounded is for you to say")


def _suspects(ctx: Context) -> Iterator[Suspect]:
    for applied in evidence.notes(ctx).applied:
        result = applied.result
        if not isinstance(result, Tensor):
            continue
        source = next(iter(applied.tensors), None)
        if applied.op == "to" and source is not None and "optimizer state" in source.marks:
            yield from _cast(ctx, applied, result)
        elif applied.op in _MAKERS and evidence.in_optimizer(ctx, applied):
            yield from _allocated(ctx, applied, result)
        elif applied.op == "addcmul" and applied.form == "in place":
            yield from _second_moment(ctx, applied)


def _cast(ctx: Context, applied: Applied, result: Tensor) -> Iterator[Suspect]:
    """State of an optimizer is cast, for saving or for good."""
    if not is_certain(result.dtypes) or _spares_second_moments(ctx, applied):
        return
    dtype = evidence.said(result.dtypes)
    then = (
        "squared gradients below 3e-8 become 0, and the resumed optimizer divides by eps"
        if "float16" in result.dtypes
        else "moments that change by less than 0.4 % stay what they are"
    )
    yield Suspect(
        applied.site,
        f"the state of the optimizer becomes {dtype} here: {then}; leave it in float32 (exp_avg_sq at least)",
        ((applied.site, f"cast to {dtype}"),),
        Confidence.HIGH if result.dtypes == {"float16"} else Confidence.MEDIUM,
        applied.entry,
    )


def _spares_second_moments(ctx: Context, applied: Applied) -> bool:
    """Whether the second moments are treated by name, around the cast."""
    model, node = evidence.place(ctx, applied.site)
    statement = model.tree.statement(node)
    around = [n for n in model.tree.ancestors(node) if isinstance(n, (cst.FunctionDef, cst.Module))]
    if _FIRST.search(model.tree.code(statement)) and not _SECOND.search(model.tree.code(statement)):
        return True
    return isinstance(around[0], cst.FunctionDef) and "exp_avg_sq" in model.tree.code(around[0]).replace(
        model.tree.code(statement), ""
    )


def _allocated(ctx: Context, applied: Applied, result: Tensor) -> Iterator[Suspect]:
    """State of an optimizer of one's own is allocated in low precision."""
    model, node = evidence.place(ctx, applied.site)
    holder = next((n for n in model.tree.ancestors(node) if isinstance(n, (cst.Assign, cst.AnnAssign))), None)
    if holder is None:
        return
    target = holder.target if isinstance(holder, cst.AnnAssign) else holder.targets[0].target
    name = model.tree.code(target)
    if not isinstance(target, cst.Subscript) and applied.op in ("clone", "to"):
        return
    is_second, is_first = bool(_SECOND.search(name)), bool(_FIRST.search(name))
    if not (is_second or is_first or _MASTER.search(name)) or _is_scaled(ctx, applied):
        return
    high = Confidence.LOW if is_first and not is_second else Confidence.MEDIUM
    sure = evidence.confidence(result.dtypes, high=high)
    if sure is None:
        return
    dtype = evidence.said(result.dtypes)
    yield Suspect(
        applied.site,
        f"{name} is kept in {dtype}, where small squares and small changes are rounded away; keep it in float32",
        (*evidence.origin(result), (applied.site, f"made {dtype}")),
        sure,
        applied.entry,
    )


def _is_scaled(ctx: Context, applied: Applied) -> bool:
    """Whether the function keeps a scale beside the state, as who stores it in float16 knowingly does."""
    model, found = evidence.place(ctx, applied.site)
    around = next((n for n in model.tree.ancestors(found) if isinstance(n, cst.FunctionDef)), None)
    return around is not None and bool(_SCALE.search(model.tree.code(around)))


def _second_moment(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    """`v.mul_(beta).addcmul_(g, g, value=1 - beta)` by hand."""
    parts = list(numbers.operand_code(ctx, applied))
    if len(parts) < 3 or parts[1] != parts[2] or not applied.tensors:
        return
    moment = numbers.moved(ctx, applied.tensors[0], frozenset(("mul",)))
    if not isinstance(moment, Tensor):
        return
    sure = evidence.confidence(moment.dtypes, high=Confidence.MEDIUM)
    if sure is None or "parameter" in moment.marks:
        return
    is_kept = moment.op in _MAKERS and moment.site is not None
    site = moment.site if is_kept and moment.site is not None else applied.site
    dtype = evidence.said(moment.dtypes & LOW)
    yield Suspect(
        site,
        f"averages of squared gradients are kept in {dtype}, where small squares and small changes are rounded away; "
        "keep them in float32",
        (*evidence.origin(moment), (site, f"kept in {dtype}"), (applied.site, "squares added here")),
        sure,
        applied.entry,
    )


RULE = Rule(
    code="AMP324",
    name="low-precision-optimizer-state",
    summary="moments of an optimizer allocated, cast or saved in float16 or bfloat16",
    severity=Severity.WARNING,
    check=check,
    words=shapes.LOW_PRECISION_WORDS,
    shape=shapes.low_precision,
    confidence=Confidence.MEDIUM,
    module=__name__,
)
