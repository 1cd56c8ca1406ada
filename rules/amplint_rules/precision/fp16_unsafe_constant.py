"""Constants that are 0 or infinite in float16."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Confidence, Edit, Fix, FixKind, Severity
from amplint.flow.precision.lattice import F16, LOW, is_certain
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.values import NONE, Many, Number, Tensor, Value, tensors_in
from amplint.model.units import is_own
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence, numbers
from amplint_rules.precision.evidence import Suspect

#: Operator -> the position and name of the value that it fills in. Those of `_CONVERTS` raise where it does not fit.
_FILLS: Mapping[str, tuple[int, str]] = {
    "masked_fill": (2, "value"),
    "fill": (1, "value"),
    "full": (1, "fill_value"),
    "full_like": (1, "fill_value"),
    "new_full": (2, "fill_value"),
    "index_fill": (3, "value"),
    "scatter": (3, "value"),
    "pad": (3, "value"),
    "setitem": (2, "value"),
    "tensor": (0, "data"),
    "as_tensor": (0, "data"),
    "new_tensor": (1, "data"),
}
_SILENT = ("setitem", "tensor", "as_tensor", "new_tensor", "where")
_LOWER_BOUNDS: Mapping[str, tuple[int, str]] = {
    "clamp": (1, "min"),
    "clip": (1, "min"),
    "clamp_min": (1, "min"),
    "maximum": (1, "other"),
    "max": (1, "other"),
}
#: Function -> where its guard against a division by 0 stands, and what it is where nobody says.
_GUARDED: Mapping[str, tuple[int, float]] = {"normalize": (3, 1e-12), "cosine_similarity": (3, 1e-8)}
_OPTIMIZERS: Mapping[str, float] = {
    **dict.fromkeys(("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "SparseAdam"), 1e-8),
    "Adagrad": 1e-10,
}
#: Products with a number below this are 0 in float16, however large the other factor is.
_ALWAYS_ZERO = numbers.VANISHING / 65504
_USE = "compute in float32, or use 1e-7 or more"


@dataclass(frozen=True, slots=True)
class _Use:
    """A constant that meets a tensor."""

    suspect: Suspect
    #: Where the constant is written.
    constant: int | None
    function: str


def check(ctx: Context) -> Iterable[Report]:
    """Report constants that become 0 or infinite in float16 where they meet a tensor."""
    yield from evidence.reports(
        ctx,
        _gathered(ctx, list(_uses(ctx))),
        "where float32 is to begin, or which constant fits, is for you to say",
    )


def _gathered(ctx: Context, uses: list[_Use]) -> Iterator[Suspect]:
    """One suspect for a constant on one row; for a default of the function that uses it on several rows, one in all."""
    by_constant: dict[tuple[int, str], list[_Use]] = defaultdict(list)
    for use in uses:
        if use.constant is None:
            yield use.suspect
        else:
            by_constant[use.constant, use.function].append(use)
    for (constant, _), group in by_constant.items():
        first_of_row: dict[int, _Use] = {}
        for use in group:
            row = _row(ctx, use.suspect.site)
            known = first_of_row.get(row)
            if known is None or use.suspect.confidence.rank > known.suspect.confidence.rank:
                first_of_row[row] = use
        rows = sorted(first_of_row)
        best = max(group, key=lambda use: use.suspect.confidence.rank)
        if len(rows) > 1 and _is_default_of(ctx, constant, best.suspect.site):
            step = (best.suspect.site, "used here")
            yield replace(best.suspect, site=constant, trace=(*best.suspect.trace, step), fix=None)
        else:
            yield from (first_of_row[row].suspect for row in rows)


def _row(ctx: Context, site: int) -> int:
    model, node = evidence.place(ctx, site)
    return model.source.position(model.tree.span(node).start).row


def _is_default_of(ctx: Context, constant: int, use: int) -> bool:
    """Whether a constant is the default of a parameter of the function in which it is used."""
    if is_own(constant) != is_own(use):
        return False
    model, node = evidence.place(ctx, constant)
    around = list(model.tree.ancestors(node))
    param = next((i for i, n in enumerate(around) if isinstance(n, cst.Param)), None)
    if param is None:
        return False
    function = next((n for n in around[param:] if isinstance(n, cst.FunctionDef)), None)
    return function is not None and function in model.tree.ancestors(evidence.place(ctx, use)[1])


def _uses(ctx: Context) -> Iterator[_Use]:
    for applied in evidence.notes(ctx).applied:
        op = applied.op
        if op in ("add", "sub", "mul"):
            yield from _arithmetic(ctx, applied)
        elif op in _FILLS or op == "where":
            yield from _fills(ctx, applied)
        elif op in _LOWER_BOUNDS:
            yield from _bounds(ctx, applied)
        elif op in _GUARDED:
            yield from _guards(ctx, applied)
        elif op.startswith("torch.optim."):
            yield from _optimizers(ctx, applied)


def _result(applied: Applied) -> Tensor | None:
    """The result where it may be float16."""
    found = applied.result
    return found if isinstance(found, Tensor) and F16 in found.dtypes else None


def _use(
    applied: Applied,
    tensor: Tensor,
    constant: int | None,
    message: str,
    what: str,
    high: Confidence = Confidence.HIGH,
    severity: Severity | None = None,
    fix: Callable[[], Fix | str] | None = None,
) -> Iterator[_Use]:
    sure = evidence.confidence(tensor.dtypes, (F16,), high)
    if sure is None:
        return
    trace = (*evidence.origin(tensor), (applied.site, what))
    suspect = Suspect(applied.site, message, trace, sure, applied.entry, severity, fix)
    yield _Use(suspect, constant, applied.function)


def _arithmetic(ctx: Context, applied: Applied) -> Iterator[_Use]:
    result = _result(applied)
    if result is None or len(applied.args) < 2:
        return
    if applied.op == "add" and all(_is_limit(ctx, value) for value in applied.args[:2]):
        yield from _use(
            applied, result, None,
            "two masks of the lowest number are added: the sum is -inf, and softmax of a row that is masked "
            "everywhere NaN; combine them with torch.minimum or as booleans",
            "the lowest number twice", Confidence.MEDIUM,
        )  # fmt: skip
        return
    for value in applied.args[:2]:
        found = numbers.number_of(ctx, value)
        if found is None:
            continue
        number, site = found
        said = numbers.written(number)
        if applied.op in ("add", "sub") and numbers.vanishes(number):
            yield from _use(
                applied, result, site,
                f"{said} is 0 in float16, so that what it guards against happens: {_USE}",
                f"{said} meets a float16 tensor",
            )  # fmt: skip
        elif applied.op in ("add", "sub") and numbers.overflows(number):
            yield from _use(
                applied, result, site,
                f"{said} is infinite in float16 (largest 65504): use a number that fits, or add in float32",
                f"{said} meets a float16 tensor", Confidence.MEDIUM,
            )  # fmt: skip
        elif applied.op == "mul" and numbers.overflows(number):
            yield from _use(
                applied, result, site,
                f"times {said} everything from {numbers.written(65520 / abs(number))} on is infinite in float16 "
                "(largest 65504): use a smaller factor, or multiply in float32",
                f"{said} times a float16 tensor", Confidence.MEDIUM,
            )  # fmt: skip
        elif applied.op == "mul" and 0 < abs(number) < _ALWAYS_ZERO:
            yield from _use(
                applied, result, site,
                f"times {said} every float16 number is 0: multiply in float32",
                f"{said} times a float16 tensor", Confidence.MEDIUM,
            )  # fmt: skip


def _is_limit(ctx: Context, value: Value) -> bool:
    """Whether a tensor is filled with the lowest number of its dtype where it masks."""
    tensor = numbers.moved(ctx, value)
    made = numbers.made_by(ctx, tensor)
    if made is None:
        return False
    if made.op in ("mul", "where"):
        return any(_is_lowest(ctx, each) for each in made.args)
    if made.op not in _FILLS:
        return False
    position, name = _FILLS[made.op]
    return _is_lowest(ctx, made.argument(position, name))


def _is_lowest(ctx: Context, value: Value | None) -> bool:
    if isinstance(value, Number):
        return value.what in ("finfo.min", "-finfo.max")
    found = numbers.number_of(ctx, value)
    return found is not None and found[0] <= -32760


def _fills(ctx: Context, applied: Applied) -> Iterator[_Use]:
    result = _result(applied)
    if result is None:
        return
    if applied.op == "where":
        candidates = [*applied.args[1:3], applied.keyword("other")]
    else:
        candidates = [applied.argument(*_FILLS[applied.op])]
    for value in candidates:
        found = numbers.number_of(ctx, value)
        if found is None:
            continue
        number, site = found
        said = numbers.written(number)
        if numbers.overflows(number):
            is_silent = applied.op in _SILENT
            then = f"becomes {'-' if number < 0 else ''}inf" if is_silent else "raises RuntimeError"
            yield from _use(
                applied, result, site,
                f"{said} does not fit into float16 (largest 65504): {applied.op} {then}; use "
                "torch.finfo(dtype).min or float32",
                f"{applied.op} with {said} in float16",
                Confidence.MEDIUM if is_silent else Confidence.HIGH,
                None if is_silent else Severity.ERROR,
                partial(_fitting, ctx, applied.site, number) if applied.op == "masked_fill" else None,
            )  # fmt: skip
        elif numbers.vanishes(number):
            yield from _use(
                applied, result, site,
                f"{said} is 0 in float16: {_USE}", f"{applied.op} with {said} in float16", Confidence.MEDIUM,
            )  # fmt: skip


def _fitting(ctx: Context, site: int, number: float) -> Fix | str:
    """A fix that takes the limit of the tensor's own dtype."""
    model, call = evidence.place(ctx, site)
    why = "which number fits is for you to say"
    if model is not ctx.model or not isinstance(call, cst.Call) or not call.args:
        return why
    names = model.names
    if not isinstance(call.func, cst.Attribute) or any(names.resolve(call.func)):
        return why
    receiver, written = call.func.value, call.args[-1].value
    torch = next(
        (n for n in model.tree.of_type(cst.Name) if "torch" in names.resolve(n) and n.value == "torch"), None
    )
    if torch is None or not isinstance(receiver, (cst.Name, cst.Attribute)) or len(call.args) != 2:
        return why
    limit = "min" if number < 0 else "max"
    text = f"torch.finfo({model.tree.code(receiver)}.dtype).{limit}"
    edit = Edit(model.tree.span(written), text)
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, f"fill with the dtype's {limit}imum", (edit,))


def _bounds(ctx: Context, applied: Applied) -> Iterator[_Use]:
    result = _result(applied)
    found = numbers.number_of(ctx, applied.argument(*_LOWER_BOUNDS[applied.op]))
    if result is None or found is None:
        return
    number, site = found
    if numbers.vanishes(number):
        said = numbers.written(number)
        yield from _use(
            applied, result, site,
            f"the lower bound {said} is 0 in float16, so that 0 stays 0: {_USE}",
            f"{applied.op} at {said} in float16",
        )  # fmt: skip


def _guards(ctx: Context, applied: Applied) -> Iterator[_Use]:
    result = _result(applied)
    if result is None:
        return
    position, default = _GUARDED[applied.op]
    given = applied.argument(position, "eps")
    found = numbers.number_of(ctx, given) if given is not None else (default, None)
    if found is None or not numbers.vanishes(found[0]):
        return
    said = numbers.written(found[0]) if given is not None else f"{default:g}, the default,"
    yield from _use(
        applied, result, found[1],
        f"eps of {applied.op} ({said}) is 0 in float16, so that a vector of zeros becomes NaN: "
        "compute it in float32",
        f"{applied.op} of a float16 tensor", Confidence.HIGH if given is not None else Confidence.MEDIUM,
        fix=partial(evidence.upcast, ctx, applied.site, f"compute {applied.op} in float32"),
    )  # fmt: skip


def _optimizers(ctx: Context, applied: Applied) -> Iterator[_Use]:
    name = applied.op.rpartition(".")[2]
    default = _OPTIMIZERS.get(name)
    params = applied.argument(0, "params")
    if default is None or params is None:
        return
    tensors = tensors_in(params if not isinstance(params, Many) else params.element)
    if len(tensors) != 1 or not is_certain(tensors[0].dtypes, LOW) or F16 not in tensors[0].dtypes:
        return
    given = applied.keyword("eps")
    found = numbers.number_of(ctx, given) if given not in (None, NONE) else (default, None)
    if found is None or not numbers.vanishes(found[0]):
        return
    said = numbers.written(found[0])
    yield from _use(
        applied, tensors[0], found[1],
        f"the parameters are float16, in which eps={said} of {name} is 0: small gradients are divided by 0; keep "
        "the parameters in float32",
        f"{name} over float16 parameters", Confidence.MEDIUM,
    )  # fmt: skip


RULE = Rule(
    code="AMP305",
    name="fp16-unsafe-constant",
    summary="a constant is 0 or infinite in float16, where it meets a tensor",
    severity=Severity.WARNING,
    check=check,
    words=shapes.LOW_PRECISION_WORDS,
    shape=shapes.low_precision,
    confidence=Confidence.MEDIUM,
    fixable="unsafe",
    module=__name__,
)
