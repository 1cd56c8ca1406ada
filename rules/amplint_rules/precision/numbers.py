"""Python numbers that meet tensors, and what becomes of them in float16 and bfloat16."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

import libcst as cst

from amplint.flow.precision.lattice import BF16, F16
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.values import Number, Py, Tensor, Value
from amplint.rule import Context
from amplint_rules.precision import evidence

#: Numbers from here on become infinite in float16; its largest is 65504.
OUT_OF_RANGE = 65520.0
#: Numbers up to here become 0 in float16; its smallest is 5.96e-8.
VANISHING = 2.0**-25
_FINFO = {
    "float16": {"max": 65504.0, "min": -65504.0, "eps": 2.0**-10, "tiny": 2.0**-14},
    "bfloat16": {"max": 3.3895e38, "min": -3.3895e38, "eps": 2.0**-7, "tiny": 2.0**-126},
    "float32": {"max": 3.4028e38, "min": -3.4028e38, "eps": 2.0**-23, "tiny": 2.0**-126},
    "float64": {"max": 1.7977e308, "min": -1.7977e308, "eps": 2.0**-52, "tiny": 2.0**-1022},
}
_MAKES_TENSORS = ("tensor", "as_tensor", "full", "new_tensor", "new_full", "full_like", "scalar_tensor")


def rounded(number: float, dtype: str) -> float:
    """A number as float16 or bfloat16 holds it."""
    if dtype == F16:
        try:
            return float(struct.unpack("e", struct.pack("e", number))[0])
        except OverflowError:
            return math.copysign(math.inf, number)
    if dtype == BF16 and math.isfinite(number) and abs(number) < 3e38:
        bits = int(struct.unpack("I", struct.pack("f", number))[0])
        bits += 0x7FFF + ((bits >> 16) & 1)
        return float(struct.unpack("f", struct.pack("I", bits & 0xFFFF0000))[0])
    return number


def vanishes(number: float) -> bool:
    """Whether a number that is not 0 is 0 in float16."""
    return 0 < abs(number) <= VANISHING


def overflows(number: float) -> bool:
    """Whether a finite number is infinite in float16."""
    return OUT_OF_RANGE <= abs(number) < math.inf


def number_of(ctx: Context, value: Value | None) -> tuple[float, int | None] | None:
    """The number that a value is, also as a tensor without dimensions, and where it is written."""
    if isinstance(value, Py):
        if isinstance(value.value, bool) or not isinstance(value.value, (int, float)):
            return None
        try:
            return float(value.value), value.site
        except OverflowError:
            return None
    if isinstance(value, Number) and len(value.dtypes) == 1:
        what = value.what.removeprefix("-").removeprefix("finfo.").replace("smallest_normal", "tiny")
        found = _FINFO.get(next(iter(value.dtypes)), {}).get(what)
        return None if found is None else (-found if value.what.startswith("-") else found, None)
    if isinstance(value, Tensor) and value.is_scalar is True and value.op in _MAKES_TENSORS:
        made = made_by(ctx, value)
        if made is not None:
            return next((n for n in (number_of(ctx, a) for a in (*made.args, made.keyword("fill_value"))
                                     if isinstance(a, (Py, Number))) if n is not None), None)  # fmt: skip
    return None


def made_by(ctx: Context, value: Value | None) -> Applied | None:
    """The operator whose result a tensor is."""
    if not isinstance(value, Tensor) or value.site is None:
        return None
    ways = [w for w in evidence.notes(ctx).by_site.get(value.site, ()) if w.op == value.op]
    same = [w for w in ways if isinstance(w.result, Tensor) and w.result.dtypes == value.dtypes]
    return next(iter(same or ways), None)


#: Operators that move, choose or copy elements.
MOVES = frozenset(
    (
        *(
            "getitem",
            "view",
            "reshape",
            "permute",
            "transpose",
            "t",
            "unsqueeze",
            "squeeze",
            "expand",
            "repeat",
        ),
        *(
            "contiguous",
            "clone",
            "detach",
            "flatten",
            "chunk",
            "split",
            "unbind",
            "triu",
            "tril",
            "expand_as",
        ),
        *("select", "narrow", "unflatten", "movedim", "roll", "flip", "to", "view_as", "T", "mT", "swapaxes"),
        *(
            "repeat_interleave",
            "broadcast_to",
            "cat",
            "stack",
            "pad",
            "index_select",
            "gather",
            "take",
            "dropout",
        ),
    )
)


def moved(ctx: Context, value: Value, through: frozenset[str] = MOVES) -> Value:
    """What a tensor was before its elements were only moved, or went through other operators named."""
    for _ in range(12):
        made = made_by(ctx, value)
        if made is None or made.op not in through:
            return value
        before = next((t for t in made.tensors), None)
        if before is None:
            return value
        value = before
    return value


def written(number: float) -> str:
    """A number for a message."""
    return f"{number:g}"


def operand_code(ctx: Context, applied: Applied) -> Iterator[str]:
    """What the operands of an operator look like in the text, the receiver of a method first."""
    model, node = evidence.place(ctx, applied.site)
    parts: list[cst.CSTNode] = []
    if isinstance(node, cst.BinaryOperation):
        parts = [node.left, node.right]
    elif isinstance(node, cst.AugAssign):
        parts = [node.target, node.value]
    elif isinstance(node, cst.Call):
        is_method = isinstance(node.func, cst.Attribute) and not any(model.names.resolve(node.func))
        if is_method and isinstance(node.func, cst.Attribute):
            parts.append(node.func.value)
        parts.extend(arg.value for arg in node.args)
    elif isinstance(node, cst.Assign):
        parts = [node.targets[0].target, node.value]
    for part in parts:
        yield model.tree.code(part)
