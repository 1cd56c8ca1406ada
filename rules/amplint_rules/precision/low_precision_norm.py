"""Normalisation whose statistics, weights or running averages are float16 or bfloat16."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.finding import Confidence, Severity
from amplint.flow.precision.lattice import BF16, F16, is_certain
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.values import Py, Ref, Tensor, Value
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence
from amplint_rules.precision.evidence import MOVES, Suspect

_NORMS = ("batch_norm", "instance_norm", "layer_norm", "group_norm", "rms_norm")
#: Norms that no autocast region lifts, and whose running averages are kept in their weights' dtype.
_WITH_AVERAGES = ("batch_norm", "instance_norm")
#: What code does that casts norms back, which is not followed.
_WALKS = ("modules", "named_modules", "children", "named_children", "apply")
_SMALLEST_HALF = 2.98e-8


@dataclass(frozen=True, slots=True)
class _Statistic:
    """A variance as it is computed, or the mean of the squares."""

    applied: Applied
    #: "variance", "mean of squares", "one pass".
    kind: str


#: What only programs for text say.
_OF_TEXT = re.compile(r"\b(?:bert|gpt|t5|llama)|tokenizer|squad|glue\b|language.?model", re.IGNORECASE)
_BATCHNORM = re.compile(r"(?<!keep_)batch_?norm|\bbn\b|resnet|conv\d?d", re.IGNORECASE)


def check(ctx: Context) -> Iterable[Report]:
    """Report norms that are written by hand, modules of torch made half for training, and apex's switch for it."""
    suspects = [*_by_hand(ctx), *_modules(ctx), *_apex(ctx)]
    yield from evidence.reports(ctx, suspects, "where the norm is to leave float32 is for you to say")


# -- written by hand ------------------------------------------------------------------------------------------


def _by_hand(ctx: Context) -> Iterator[Suspect]:
    notes = evidence.notes(ctx)
    trains = evidence.trains(ctx)
    for root in notes.of("sqrt", "rsqrt", "pow", "div"):
        for statistic, is_vanishing in _statistics(ctx, root):
            applied = statistic.applied
            result = evidence.lowest((applied.result,))
            if result is None:
                continue
            sure = evidence.confidence(result.dtypes, high=Confidence.MEDIUM)
            if sure is None:
                continue
            has_range = F16 in result.dtypes and (is_vanishing or not applied.no_grad)
            if not trains and not has_range:
                sure = Confidence.LOW
            yield _suspect(applied, statistic.kind, result, sure)


def _statistics(ctx: Context, root: Applied) -> Iterator[tuple[_Statistic, bool]]:
    """The statistics that a root, or a division by a standard deviation, is taken of; whether an eps vanishes."""
    if root.op == "div":
        if len(root.args) > 1 and root.form in ("operator", ""):
            for made in evidence.before(ctx, root.args[1], "add", "clamp", "clamp_min", *MOVES):
                if (
                    made.op == "std"
                    and made.args
                    and _is_low(made.args[0])
                    and _is_centred(ctx, root.args[0])
                ):
                    yield _Statistic(made, "variance"), False
        return
    if root.op == "pow" and root.argument(1, "exponent") not in (Py(-0.5), Py(0.5)):
        return
    if not root.args or not _divides(ctx, root):
        return
    ways = list(evidence.before(ctx, root.args[0], "add", "clamp", "clamp_min", *MOVES))
    is_vanishing = any(_has_small_eps(way) for way in ways)
    for made in ways:
        found = _statistic(ctx, made)
        if found is not None:
            yield found, is_vanishing


def _statistic(ctx: Context, made: Applied) -> _Statistic | None:
    """What a value under a root is, where it is computed of low precision values."""
    if made.op in ("var", "var_mean") and made.args and _is_low(made.args[0]):
        return _Statistic(made, "variance")
    if made.op == "sub" and len(made.args) == 2:
        first = next((a for a in evidence.before(ctx, made.args[0], *MOVES) if _is_mean(ctx, a)), None)
        second = next(
            (a for a in evidence.before(ctx, made.args[1], *MOVES) if _squared(a) is not None), None
        )
        if first is not None and second is not None and _is_low(made.result):
            square = _squared(second)
            assert square is not None
            of_mean = any(_is_mean(ctx, a) for a in evidence.before(ctx, square, *MOVES))
            if of_mean and _square_below(ctx, first) is not None:
                return _Statistic(made, "one pass")
        return None
    if made.op != "mean" or not made.args or not _is_low(made.result) or made.keyword("dtype") is not None:
        return None
    base = _square_below(ctx, made)
    if base is None:
        return None
    ways = list(evidence.before(ctx, base, *MOVES))
    differences = [a for a in ways if a.op == "sub"]
    if not differences:
        # the square of float16 values leaves the range first, which is another rule's
        return _Statistic(made, "mean of squares") if _dtypes(made.result) == {BF16} else None
    if any(_is_centred_difference(ctx, a) for a in differences):
        return _Statistic(made, "variance")
    return None


def _is_mean(ctx: Context, made: Applied) -> bool:
    """A mean, or a sum that is divided by a number."""
    if made.op == "div" and len(made.args) == 2 and not isinstance(made.args[1], Tensor):
        return any(a.op == "sum" for a in evidence.before(ctx, made.args[0], *MOVES))
    return made.op == "mean"


def _square_below(ctx: Context, mean: Applied) -> Value | None:
    through = ("sum", *MOVES) if mean.op == "div" else MOVES
    for made in evidence.before(ctx, mean.args[0], *through):
        base = _squared(made)
        if base is not None:
            return base
    return None


def _squared(made: Applied) -> Value | None:
    if made.op == "square" and made.args:
        return made.args[0]
    if made.op == "pow" and made.argument(1, "exponent") in (Py(2), Py(2.0)):
        return made.args[0]
    if made.op == "mul" and len(made.args) == 2 and made.args[0] == made.args[1]:
        return made.args[0] if isinstance(made.args[0], Tensor) and made.args[0].site is not None else None
    return None


def _is_centred(ctx: Context, value: Value) -> bool:
    ways = evidence.before(ctx, value, "mul", *MOVES)
    return any(a.op == "sub" and _is_centred_difference(ctx, a) for a in ways)


def _is_centred_difference(ctx: Context, difference: Applied) -> bool:
    """`x - x.mean(..)`."""
    if len(difference.args) < 2:
        return False
    return any(
        a.op in ("mean", "var_mean", "std_mean") for a in evidence.before(ctx, difference.args[1], *MOVES)
    )


def _divides(ctx: Context, root: Applied) -> bool:
    """Whether a root is what something is multiplied with or divided by."""
    for applied in evidence.notes(ctx).of("mul", "div"):
        at = 1 if applied.op == "div" else slice(None)
        operands = applied.args[at] if isinstance(at, slice) else applied.args[1:2]
        for value in operands:
            if isinstance(value, Tensor) and any(
                made.site == root.site
                for made in evidence.before(ctx, value, "add", "clamp", "reciprocal", *MOVES)
            ):
                return True
    return False


def _has_small_eps(applied: Applied) -> bool:
    if applied.op != "add":
        return False
    values = [a.value for a in applied.args if isinstance(a, Py) and isinstance(a.value, float)]
    return any(0 < abs(v) < _SMALLEST_HALF for v in values)


def _dtypes(value: Value) -> frozenset[str]:
    return value.dtypes if isinstance(value, Tensor) else frozenset()


def _is_low(value: Value) -> bool:
    return isinstance(value, Tensor) and evidence.confidence(value.dtypes) is not None


def _suspect(applied: Applied, kind: str, result: Tensor, sure: Confidence) -> Suspect:
    dtype = evidence.said(result.dtypes)
    if kind == "one pass":
        message = (
            f"the variance is E[x^2] - E[x]^2 in {dtype} here, which cancels to nothing where the mean is not 0; "
            "compute the mean of (x - mean)^2 in float32"
        )
    else:
        message = (
            f"the {kind} of a normalisation is computed in {dtype} here; normalise in float32 (x.float()) and cast "
            "the result back"
        )
    return Suspect(
        applied.site,
        message,
        (*evidence.origin(result), (applied.site, f"{kind} in {dtype}")),
        sure,
        applied.entry,
    )


# -- modules --------------------------------------------------------------------------------------------------


def _modules(ctx: Context) -> Iterator[Suspect]:
    if not evidence.trains(ctx):
        return
    walks = any(a.op.rpartition(".")[2] in _WALKS for a in evidence.notes(ctx).applied)
    for applied in evidence.notes(ctx).of(*_NORMS):
        weight = applied.keyword("weight")
        if not isinstance(weight, Tensor) or weight.origin is None or applied.no_grad:
            continue
        if not applied.form.startswith("module ") or not is_certain(weight.dtypes):
            continue
        has_averages = applied.op in _WITH_AVERAGES
        name = applied.form.removeprefix("module ")
        dtype = evidence.said(weight.dtypes)
        if not has_averages:
            if applied.ambient.enabled is not False:
                continue
            if not _is_of_norm(ctx, weight.origin):
                if weight.dtypes == {F16} and is_certain(_dtypes(applied.result), (F16,)):
                    yield _of_half_model(ctx, applied, weight, name, walks)
                continue
        loses = "whose running averages stop moving" if has_averages else "which normalises in it"
        yield Suspect(
            weight.origin,
            f"this makes {name} {dtype}, {loses}; keep norms in float32 for training, or use autocast instead",
            ((weight.origin, weight.why), (applied.site, f"{name} runs with {dtype} weights")),
            Confidence.LOW if walks else Confidence.MEDIUM,
            applied.entry,
        )


def _of_half_model(ctx: Context, applied: Applied, weight: Tensor, name: str, walks: bool) -> Suspect:
    """A norm in a model that is float16 as a whole, and trained so; bfloat16 is often meant."""
    has_masters = "master" in ctx.model.source.text
    return Suspect(
        applied.site,
        f"{name} normalises in float16 here, as the whole model was made so for training: a spread below a "
        "thousandth of the mean is lost before it; keep float32 weights and let autocast choose",
        (*evidence.origin(weight), (applied.site, f"{name} of a float16 input with float16 weights")),
        Confidence.LOW if walks or has_masters else Confidence.MEDIUM,
        applied.entry,
    )


def _is_of_norm(ctx: Context, origin: int) -> bool:
    """Whether the norm itself was made half, rather than the model around it."""
    for applied in evidence.notes(ctx).by_site.get(origin, ()):
        if applied.op.startswith("torch.nn.") and "Norm" in applied.op:
            return True
        me = applied.args[0] if applied.op == "module.to" and applied.args else None
        if isinstance(me, Ref) and isinstance(me.key[-1], int):
            made = evidence.notes(ctx).by_site.get(me.key[-1], ())
            if any(a.op.startswith("torch.nn.") and "Norm" in a.op for a in made):
                return True
    return False


# -- apex -----------------------------------------------------------------------------------------------------


def _apex(ctx: Context) -> Iterator[Suspect]:
    for applied in evidence.notes(ctx).applied:
        if applied.op not in ("apex.amp.initialize", "apex.amp.frontend.initialize"):
            continue
        level = applied.argument(3, "opt_level") if len(applied.args) > 3 else applied.keyword("opt_level")
        keep = applied.keyword("keep_batchnorm_fp32")
        is_off = keep in (Py(False), Py("False"))
        if is_off or (level == Py("O3") and keep is None):
            why = "keep_batchnorm_fp32 is off" if is_off else "O3 casts everything"
            yield Suspect(
                applied.site,
                f"{why}: BatchNorm computes and averages in float16; keep it in float32",
                ((applied.site, why),),
                Confidence.LOW if _has_no_batchnorm(ctx) else Confidence.MEDIUM,
                applied.entry,
            )


def _has_no_batchnorm(ctx: Context) -> bool:
    """Whether the file trains a model of text by its words: these have LayerNorm, which the option is not about."""
    text = ctx.model.source.text
    return bool(_OF_TEXT.search(text)) and not _BATCHNORM.search(text)


RULE = Rule(
    code="AMP303",
    name="low-precision-norm",
    summary="a normalisation computes, or keeps its averages, in float16 or bfloat16",
    severity=Severity.WARNING,
    check=check,
    words=(*shapes.LOW_PRECISION_WORDS, "keep_batchnorm_fp32", "apex"),
    shape=shapes.low_precision_norm,
    confidence=Confidence.MEDIUM,
    module=__name__,
)
