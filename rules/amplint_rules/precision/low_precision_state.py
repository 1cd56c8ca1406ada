"""Averages, running sums and gradient buffers that are kept in float16 or bfloat16."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import libcst as cst

from amplint.finding import Confidence, Severity
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.values import Number, Tensor, Value
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence, numbers
from amplint_rules.precision.evidence import Step, Suspect

#: An average that takes over this share or less of each new value cannot be kept in low precision.
_SMALL_SHARE = 0.0101
_DECAY = re.compile(r"decay|ema|momentum|alpha|beta|tau|\bmu\b|\bm\b", re.IGNORECASE)
_WRITES = ("copy_", "set_")
#: A cast behind a value, which is still the value that the mixture is written back to.
_LOWERED = re.compile(r"\.(half|bfloat16)\(\)$|\.to\((dtype=)?torch\.(float16|half|bfloat16)\)$")


def check(ctx: Context) -> Iterable[Report]:
    """Report state that outlives a step and is updated in low precision."""
    yield from evidence.reports(
        ctx,
        _suspects(ctx),
        "which part of the state is to be float32, and where it is cast back, is for you to say",
    )


def _suspects(ctx: Context) -> Iterator[Suspect]:
    decays = [a for a in evidence.notes(ctx).of("mul") if a.form in ("in place", "augmented")]
    for applied in evidence.notes(ctx).of("lerp", "add"):
        if evidence.in_optimizer(ctx, applied):
            continue
        if applied.op == "lerp":
            yield from _lerp(ctx, applied)
        elif applied.op == "add":
            if applied.form in ("in place", "augmented"):
                yield from _decayed(ctx, applied, decays)
            if applied.form in ("in place", "augmented") or _is_augmented(ctx, applied):
                yield from _running(ctx, applied)
            yield from _mixed(ctx, applied)
    for applied in evidence.notes(ctx).of(".copy_"):
        yield from _copied(ctx, applied)


# -- exponential averages -------------------------------------------------------------------------------------


def _average(
    ctx: Context, applied: Applied, state: Value, share: float | None, is_named: bool
) -> Iterator[Suspect]:
    """An average that takes over a small share, or one that is a decay by name, of each new value."""
    if not isinstance(state, Tensor) or not ((share is not None and 0 < share <= _SMALL_SHARE) or is_named):
        return
    sure = evidence.confidence(state.dtypes, high=Confidence.HIGH if share is not None else Confidence.MEDIUM)
    if sure is None:
        return
    dtype = evidence.said(state.dtypes)
    is_kept = state.op in ("deepcopy", "clone", "zeros_like", "empty_like", "to") and state.site is not None
    site = state.site if is_kept and state.site is not None else applied.site
    amount = f"{share:.2g} of" if share is not None else "a small share of"
    yield Suspect(
        site,
        f"this average is kept in {dtype} and takes over {amount} each new value, which is mostly rounded away; keep "
        "it in float32",
        (*evidence.origin(state), *_made(site, applied, dtype), (applied.site, f"updated in {dtype}")),
        sure,
        applied.entry,
    )


def _made(site: int, applied: Applied, dtype: str) -> tuple[Step, ...]:
    return ((site, f"kept in {dtype}"),) if site != applied.site else ()


def _lerp(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    """`average.lerp_(new, share)`."""
    weight = applied.argument(2, "weight")
    if weight is None or not applied.args:
        return
    found = numbers.number_of(ctx, weight)
    is_named = found is None and isinstance(weight, Number) and _is_decay(ctx, applied)
    is_state = applied.form == "in place" or _is_written_back(ctx, applied)
    if is_state:
        yield from _average(ctx, applied, applied.args[0], found[0] if found is not None else None, is_named)


def _decayed(ctx: Context, added: Applied, decays: list[Applied]) -> Iterator[Suspect]:
    """`average.mul_(decay).add_(new, alpha=1 - decay)`, in one statement or two."""
    if not added.args:
        return
    target = _text(ctx, added)
    for decay in reversed(decays):
        if decay.function != added.function or len(decay.args) < 2:
            continue
        if not (target == _text(ctx, decay) or target.startswith(f"{_text(ctx, decay)}.mul_(")):
            continue
        found = numbers.number_of(ctx, decay.args[1])
        share = _share(ctx, added)
        if found is not None and share is not None and abs(found[0] + share - 1) > 1e-6:
            return
        known = 1 - found[0] if found is not None else None
        is_named = found is None and isinstance(decay.args[1], Number) and _is_decay(ctx, decay)
        yield from _average(ctx, added, decay.args[0], known, is_named)
        return


def _share(ctx: Context, added: Applied) -> float | None:
    """The factor of what is added, where it is known."""
    alpha = numbers.number_of(ctx, added.keyword("alpha"))
    if alpha is not None:
        return alpha[0]
    made = numbers.made_by(ctx, added.args[1]) if len(added.args) > 1 else None
    if made is not None and made.op == "mul":
        return next((n[0] for n in (numbers.number_of(ctx, a) for a in made.args) if n is not None), None)
    return None


def _mixed(ctx: Context, added: Applied) -> Iterator[Suspect]:
    """`average = decay * average + (1 - decay) * new`."""
    if added.form != "operator" or len(added.tensors) != 2 or not _is_written_back(ctx, added):
        return
    for tensor in added.tensors:
        made = numbers.made_by(ctx, tensor)
        if made is None or made.op != "mul" or len(made.tensors) != 1:
            continue
        state = made.tensors[0]
        if _targets(ctx, added).isdisjoint(
            _LOWERED.sub("", text) for text in numbers.operand_code(ctx, made)
        ):
            continue
        factor = next((a for a in made.args if not isinstance(a, Tensor)), None)
        found = numbers.number_of(ctx, factor)
        is_named = found is None and isinstance(factor, Number) and _is_decay(ctx, made)
        yield from _average(ctx, added, state, 1 - found[0] if found is not None else None, is_named)
        return


def _copied(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    """`average.copy_(..)` of a mixture with itself that is computed elsewhere: in a helper or a lambda."""
    state = applied.args[0] if applied.args else None
    added = numbers.made_by(ctx, numbers.moved(ctx, applied.args[1])) if len(applied.args) > 1 else None
    if not isinstance(state, Tensor) or added is None or added.op != "add" or len(added.tensors) != 2:
        return
    for tensor in added.tensors:
        made = numbers.made_by(ctx, tensor)
        if made is not None and made.op == "mul" and made.tensors == (state,):
            found = numbers.number_of(ctx, next(a for a in made.args if not isinstance(a, Tensor)))
            if found is not None:
                yield from _average(ctx, applied, state, 1 - found[0], is_named=False)


def _is_decay(ctx: Context, applied: Applied) -> bool:
    return any(_DECAY.search(text) for text in list(numbers.operand_code(ctx, applied)))


def _text(ctx: Context, applied: Applied) -> str:
    return next(iter(numbers.operand_code(ctx, applied)), "").replace(".data", "")


def _is_written_back(ctx: Context, applied: Applied) -> bool:
    return bool(_written_to(ctx, applied))


def _written_to(ctx: Context, applied: Applied) -> str:
    """What the value of an expression is assigned or copied to."""
    model, node = evidence.place(ctx, applied.site)
    for around in model.tree.ancestors(node):
        if isinstance(around, cst.Assign):
            return model.tree.code(around.targets[0].target)
        if (
            isinstance(around, cst.Call)
            and isinstance(around.func, cst.Attribute)
            and around.func.attr.value in _WRITES
        ):
            return model.tree.code(around.func.value)
        if isinstance(around, cst.BaseStatement):
            break
    return ""


def _targets(ctx: Context, applied: Applied) -> set[str]:
    """What a value is assigned to, also through a variable that is stored as it is or as a copy."""
    target = _written_to(ctx, applied)
    model, node = evidence.place(ctx, applied.site)
    tree = model.tree
    function = next((a for a in tree.ancestors(node) if isinstance(a, cst.FunctionDef)), None)
    if not target.isidentifier() or function is None:
        return {target}
    stored = (n for n in tree.within(function) if isinstance(n, cst.Assign))
    return {target, *(tree.code(n.targets[0].target) for n in stored if _copied_name(n.value) == target)}


def _copied_name(value: cst.BaseExpression) -> str:
    """`x` in `x`, `x.clone()` and `x.detach()`."""
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and not value.args:
        if value.func.attr.value not in ("clone", "detach"):
            return ""
        value = value.func.value
    return value.value if isinstance(value, cst.Name) else ""


# -- sums -----------------------------------------------------------------------------------------------------


def _running(ctx: Context, added: Applied) -> Iterator[Suspect]:
    """A sum in an attribute, or gradients that are added to something that is none."""
    if len(added.args) < 2 or not isinstance(added.args[1], Tensor):
        return
    total, value = added.args[0], added.args[1]
    if numbers.number_of(ctx, total) is not None and isinstance(added.result, Tensor):
        total = added.result  # a sum that begins as a number has the dtype of what is added
    if not isinstance(total, Tensor) or total.marks & {"parameter", "gradient"}:
        return
    is_gradient = "gradient" in value.marks
    if not is_gradient and not (_is_own_attribute(ctx, added) and _is_total(total, value)):
        return
    sure = evidence.confidence(total.dtypes, high=Confidence.MEDIUM)
    if sure is None:
        return
    dtype = evidence.said(total.dtypes)
    what = "gradients are summed" if is_gradient else f"{_text(ctx, added)} is a running sum"
    where = "" if is_gradient else " kept"
    yield Suspect(
        added.site,
        f"{what}{where} in {dtype}, which stops growing where one value is less than half a step of the sum (ones at "
        f"{'2048' if dtype == 'float16' else '256'}); keep it in float32",
        (*evidence.origin(total), (added.site, f"added in {dtype}")),
        sure,
        added.entry,
    )


def _is_augmented(ctx: Context, added: Applied) -> bool:
    return isinstance(evidence.node(ctx, added.site), cst.AugAssign)


def _is_total(total: Tensor, value: Tensor) -> bool:
    """A sum of reduced values, or one in a buffer that begins empty."""
    return (
        total.is_scalar is True or value.is_scalar is True or total.op in ("zeros_like", "zeros", "new_zeros")
    )


def _is_own_attribute(ctx: Context, added: Applied) -> bool:
    """Whether a sum is an attribute of an object, which outlives the call."""
    text = next(iter(numbers.operand_code(ctx, added)), "")
    return bool(re.match(r"^self\.[\w.]+(\[.*\])?$", text))


RULE = Rule(
    code="AMP314",
    name="low-precision-state",
    summary="an average, running sum or gradient buffer kept in float16 or bfloat16",
    severity=Severity.WARNING,
    check=check,
    words=shapes.LOW_PRECISION_WORDS,
    shape=shapes.low_precision,
    confidence=Confidence.MEDIUM,
    module=__name__,
)
