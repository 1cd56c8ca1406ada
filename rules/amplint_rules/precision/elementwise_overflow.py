"""Arithmetic that leaves float16's range although its operands do not: squares, areas, exponentials, scores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial

from amplint.finding import Confidence, Severity
from amplint.flow.precision.lattice import F16
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.values import Number, Py, Tensor, Value
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence, numbers
from amplint_rules.precision.evidence import Suspect

_PRODUCTS = ("matmul", "bmm", "mm", "einsum", "linear", "baddbmm", "addmm", "inner", "tensordot")
_SUMS = ("mean", "sum")
#: What may stand between a mean of squares and its root.
_TO_ROOT = numbers.MOVES | {"add", "clamp", "clamp_min", "clip", "maximum", "max", "mul", "div", "float"}
_LOG_SCALE = re.compile(r"log_?_?(var|std|sigma|scale|s2)|(var|std|sigma|scale)_?log|lnvar", re.IGNORECASE)
#: exp of a float16 number is infinite from here on.
_LARGEST_EXPONENT = 11.09
#: Logits of unit vectors are at most 1 / temperature.
_COLDEST = 1 / _LARGEST_EXPONENT


def check(ctx: Context) -> Iterable[Report]:
    """Report idioms that overflow in float16."""
    yield from evidence.reports(ctx, _suspects(ctx), "where float32 is to begin is for you to say")


def _suspects(ctx: Context) -> Iterator[Suspect]:
    for applied in evidence.notes(ctx).applied:
        if applied.op in ("rsqrt", "sqrt", "pow", "reciprocal"):
            yield from _squares(ctx, applied)
        elif applied.op == "mul":
            yield from _area(ctx, applied)
            yield from _late_scale(ctx, applied)
        elif applied.op == "div":
            yield from _late_scale(ctx, applied)
        elif applied.op in ("exp", "expm1"):
            yield from _exponential(ctx, applied)
        elif applied.op in ("log", "log1p"):
            yield from _softplus(ctx, applied)


def _suspect(
    ctx: Context,
    applied: Applied,
    message: str,
    what: str,
    fix_to: str = "",
    high: Confidence = Confidence.MEDIUM,
) -> Iterator[Suspect]:
    result = applied.result
    if not isinstance(result, Tensor):
        return
    sure = evidence.confidence(result.dtypes, (F16,), high)
    if sure is None:
        return
    fix = partial(evidence.upcast, ctx, applied.site, fix_to) if fix_to else None
    trace = (*evidence.origin(result), (applied.site, what))
    yield Suspect(applied.site, message, trace, sure, applied.entry, fix=fix)


def _is_half(value: object) -> bool:
    return isinstance(value, Tensor) and F16 in value.dtypes


# -- squares --------------------------------------------------------------------------------------------------


def _squares(ctx: Context, root: Applied) -> Iterator[Suspect]:
    """The squares under a root: root mean squares and norms by hand."""
    if root.op == "pow" and not (len(root.args) > 1 and _power(root.args[1]) in (0.5, -0.5)):
        return
    value: Value = next(iter(root.tensors), Py(None))
    for _ in range(10):
        made = numbers.made_by(ctx, value)
        if made is None:
            return
        if made.op in _SUMS:
            square = numbers.made_by(ctx, numbers.moved(ctx, next(iter(made.tensors), Py(None))))
            if square is not None and _is_square(ctx, square) and not _is_variance(ctx, square):
                yield from _suspect(
                    ctx, square,
                    "squares are infinite in float16 from 256 on; square and average in float32, and cast the result",
                    "squared in float16",
                )  # fmt: skip
            return
        if made.op not in _TO_ROOT:
            return
        value = next((t for t in made.tensors if t.is_scalar is not True), next(iter(made.tensors), Py(None)))


def _power(value: Value) -> float | None:
    return float(value.value) if isinstance(value, Py) and isinstance(value.value, (int, float)) else None


def _is_square(ctx: Context, applied: Applied) -> bool:
    if not _is_half(applied.result):
        return False
    if applied.op == "square":
        return True
    if applied.op == "pow":
        return len(applied.args) > 1 and _power(applied.args[1]) == 2
    if applied.op == "mul" and len(applied.tensors) == 2:
        parts = list(numbers.operand_code(ctx, applied))
        return len(parts) == 2 and parts[0] == parts[1]
    return False


def _is_variance(ctx: Context, square: Applied) -> bool:
    """Whether what is squared is a difference from a mean, which is a norm's own business."""
    made = numbers.made_by(ctx, next(iter(square.tensors), Py(None)))
    if made is None or made.op != "sub":
        return False
    return any(getattr(numbers.made_by(ctx, t), "op", "") == "mean" for t in made.tensors)


# -- areas ----------------------------------------------------------------------------------------------------


def _area(ctx: Context, product: Applied) -> Iterator[Suspect]:
    """Width times height, both differences of coordinates."""
    if len(product.tensors) == 2 and len(product.args) == 2 and all(_is_half(t) for t in product.tensors):
        first, second = numbers.operand_code(ctx, product) if product.form == "operator" else ("", "-")
        if first != second and all(_side(ctx, t) for t in product.tensors):
            yield from _suspect(
                ctx, product,
                "the area is infinite in float16 from 256 x 256 pixels on; compute boxes in float32",
                "width times height in float16",
            )  # fmt: skip


def _side(ctx: Context, value: Tensor) -> bool:
    """Whether a tensor is a difference of coordinates, or one column of such differences."""
    has_column = False
    current: Value = value
    for _ in range(8):
        made = numbers.made_by(ctx, current)
        if made is None:
            return False
        if made.op == "sub":
            ends = [numbers.made_by(ctx, t) for t in made.tensors]
            if len(ends) != 2 or len(made.args) != 2:
                return False
            return has_column or all(end is not None and _is_column(end) for end in ends)
        if made.op in ("getitem", "unbind", "chunk", "split", "select"):
            has_column = has_column or _is_column(made)
        elif made.op not in ("clamp", "clamp_min", "clip", "relu", "maximum", "squeeze", "unsqueeze"):
            return False
        current = next(iter(made.tensors), Py(None))
    return False


def _is_column(made: Applied) -> bool:
    """Whether an operator takes single columns."""
    if made.op in ("unbind", "chunk", "split", "select", "min", "max", "minimum", "maximum"):
        return True
    if made.op != "getitem":
        return False
    index = made.args[1] if len(made.args) > 1 else None
    items = getattr(index, "items", (index,))
    return bool(items) and isinstance(items[-1], Py) and isinstance(items[-1].value, int)


# -- scores ---------------------------------------------------------------------------------------------------


def _late_scale(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    """Scores that are scaled only after they were added."""
    numbers_given = [v for v in applied.args if isinstance(v, (Py, Number))]
    if len(applied.tensors) != 1 or not numbers_given or not _is_half(applied.tensors[0]):
        return
    if any(isinstance(v, Py) and not _shrinks(applied.op, v) for v in numbers_given):
        return
    added = numbers.made_by(ctx, numbers.moved(ctx, applied.tensors[0]))
    if added is None or added.op != "add" or len(added.tensors) != 2:
        return
    if all(
        getattr(numbers.made_by(ctx, numbers.moved(ctx, t)), "op", "") in _PRODUCTS[:4] for t in added.tensors
    ):
        yield from _suspect(
            ctx, added,
            "scores are added before they are scaled, and their sum may leave float16's range (65504); scale the "
            "query first",
            "unscaled scores added in float16",
        )  # fmt: skip


def _shrinks(op: str, value: Py) -> bool:
    number = _power(value)
    return number is not None and (abs(number) > 1 if op == "div" else abs(number) < 1)


# -- exponentials ---------------------------------------------------------------------------------------------


def _exponential(ctx: Context, applied: Applied) -> Iterator[Suspect]:
    """exp of log variances, and of logits from which no maximum is subtracted."""
    operand = next(iter(applied.tensors), None)
    if operand is None or not _is_half(applied.result) or not _is_half(operand):
        return
    current: Value = operand
    divisor = 1.0
    texts = list(numbers.operand_code(ctx, applied))
    is_log_scale = any(_LOG_SCALE.search(text) and not text.lstrip("(").startswith("-") for text in texts)
    for _ in range(10):
        made = numbers.made_by(ctx, current)
        if made is None:
            break
        if made.op in ("clamp", "clip", "clamp_max", "minimum"):
            bound = numbers.number_of(
                ctx, made.argument(1 if made.op in ("clamp_max", "minimum") else 2, "max")
            )
            if bound is None or bound[0] <= _LARGEST_EXPONENT:
                return
        elif made.op in _PRODUCTS and not is_log_scale:
            if _is_of_unit_vectors(ctx, made) and divisor >= _COLDEST:
                return
            message = (
                "exp is infinite in float16 from 11.09 on; subtract the maximum (logsumexp), or use float32"
            )
            yield from _suspect(ctx, applied, message, "exp in float16", "compute exp in float32")
            return
        elif made.op in ("mul", "div"):
            known = next(
                (n for n in (_power(v) for v in made.args if isinstance(v, Py)) if n is not None), None
            )
            if known is not None and known < 0:
                break
            divisor = (known or divisor) if made.op == "div" else divisor
        elif made.op not in numbers.MOVES:
            break
        current = next(iter(made.tensors), Py(None))
    if is_log_scale:
        message = (
            "exp of a log variance is infinite in float16 from 11.09 on; clamp it, and compute exp in float32"
        )
        yield from _suspect(ctx, applied, message, "exp in float16", "compute exp in float32")


def _softplus(ctx: Context, log: Applied) -> Iterator[Suspect]:
    """`log(1 + exp(x))`, which is infinite where x itself is far from it."""
    made = numbers.made_by(ctx, next(iter(log.tensors), None))
    if (
        log.op == "log"
        and made is not None
        and made.op == "add"
        and any(v in (Py(1), Py(1.0)) for v in made.args)
    ):
        made = numbers.made_by(ctx, next(iter(made.tensors), None))
    elif log.op == "log":
        return
    if made is not None and made.op == "exp" and _is_half(made.result):
        yield from _suspect(
            ctx, made,
            "exp is infinite in float16 from 11.09 on, and so is this log(1 + exp); use softplus or logsigmoid",
            "exp in float16",
        )  # fmt: skip


def _is_of_unit_vectors(ctx: Context, product: Applied) -> bool:
    made = [numbers.made_by(ctx, numbers.moved(ctx, t)) for t in product.tensors]
    return bool(made) and all(m is not None and m.op in ("normalize", "div") for m in made)


RULE = Rule(
    code="AMP321",
    name="elementwise-overflow",
    summary="squares, areas, exponentials or scores that leave float16's range",
    severity=Severity.WARNING,
    check=check,
    words=shapes.LOW_PRECISION_WORDS,
    shape=shapes.low_precision,
    confidence=Confidence.MEDIUM,
    fixable="unsafe",
    module=__name__,
)
