"""Sets of dtypes, and how PyTorch's type promotion combines them.

A set holds every dtype that a value can have, and `UNKNOWN` where that may not be all. A claim is a set of one dtype.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

F16, BF16, F32, F64 = "float16", "bfloat16", "float32", "float64"
INT, INT64, BOOL, COMPLEX, F8 = "int", "int64", "bool", "complex", "float8"
UNKNOWN = "?"

Dtypes = frozenset[str]

LOW: Dtypes = frozenset((F16, BF16))
FLOATS: Dtypes = frozenset((F16, BF16, F32, F64))
ANY: Dtypes = frozenset((UNKNOWN,))

#: What code calls a dtype (`torch.half`, `"fp16"`, `.bfloat16()`) -> the dtype.
NAMED = {
    "float16": F16,
    "half": F16,
    "fp16": F16,
    "bfloat16": BF16,
    "bf16": BF16,
    "float32": F32,
    "float": F32,
    "fp32": F32,
    "float64": F64,
    "double": F64,
    "int64": INT64,
    "long": INT64,
    "int32": INT,
    "int": INT,
    "int16": INT,
    "short": INT,
    "int8": INT,
    "uint8": INT,
    "bool": BOOL,
    "complex64": COMPLEX,
    "cfloat": COMPLEX,
    "complex128": COMPLEX,
    "cdouble": COMPLEX,
    "complex32": COMPLEX,
    "chalf": COMPLEX,
    "float8_e4m3fn": F8,
    "float8_e5m2": F8,
    "float8_e4m3fnuz": F8,
    "float8_e5m2fnuz": F8,
}
_KIND = {BOOL: 0, INT: 1, INT64: 1, F16: 2, BF16: 2, F32: 2, F64: 2, COMPLEX: 3}


def kind(dtype: str) -> int:
    """The category of a dtype in type promotion: bool, integer, floating, complex; -1 where it has none of them."""
    return _KIND.get(dtype, -1)


def promoted(first: str, second: str) -> str:
    """The dtype of an operation over dimensioned tensors of two dtypes; `UNKNOWN` where it depends on more."""
    if UNKNOWN in (first, second) or kind(first) < 0 or kind(second) < 0:
        return UNKNOWN
    if first == second:
        return first
    if kind(first) != kind(second):
        return first if kind(first) > kind(second) else second
    pair = {first, second}
    if F64 in pair:
        return F64
    if pair == {F16, BF16}:
        return F32
    if F32 in pair:
        return F32
    return UNKNOWN  # integers of several widths


def pairs(
    first: Dtypes, second: Dtypes, first_is_scalar: bool | None, second_is_scalar: bool | None
) -> Dtypes:
    """The dtypes of an operation over two tensors."""
    return promoted_all([(first, first_is_scalar), (second, second_is_scalar)])


def promoted_all(operands: Sequence[tuple[Dtypes, bool | None]]) -> Dtypes:
    """The dtypes of an operation over tensors; one without dimensions gives way within its category."""
    # what those with dimensions have come to so far, and those without
    found: set[tuple[str, str]] = {("", "")}
    for dtypes, is_scalar in operands:
        grown: set[tuple[str, str]] = set()
        for dtype in dtypes:
            for one, other in found:
                if is_scalar is not True:
                    grown.add((promoted(one, dtype) if one else dtype, other))
                if is_scalar is not False:
                    grown.add((one, promoted(other, dtype) if other else dtype))
        found = grown
    return frozenset(_outweighed(one, other) for one, other in found)


def _outweighed(one: str, other: str) -> str:
    """What tensors with dimensions and tensors without come to."""
    if not one or not other or one == other:
        return one or other
    if UNKNOWN in (one, other):
        return UNKNOWN
    if 0 <= kind(other) <= kind(one):
        return one
    return promoted(one, other)


def is_certain(found: Dtypes, wanted: Iterable[str] = LOW) -> bool:
    """Whether a value has one of the wanted dtypes whatever happens."""
    return bool(found) and found <= frozenset(wanted)


def is_possible(found: Dtypes, wanted: Iterable[str] = LOW) -> bool:
    """Whether a value has one of the wanted dtypes on some path."""
    return not found.isdisjoint(wanted)
