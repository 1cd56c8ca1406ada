"""Sets of dtypes, and how PyTorch's type promotion combines them.

A set holds every dtype that a value can have, and `UNKNOWN` where that may not be all. A claim is a set of one dtype.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    """The dtypes of an operation over two tensors; a tensor without dimensions gives way within its category."""
    found: set[str] = set()
    for one in first:
        for other in second:
            found.update(_pair(one, other, first_is_scalar, second_is_scalar))
    return frozenset(found)


def _pair(one: str, other: str, one_scalar: bool | None, other_scalar: bool | None) -> Iterable[str]:
    both = promoted(one, other)
    if both == UNKNOWN or one == other or one_scalar is other_scalar is not None:
        return (both,)
    if kind(one) != kind(other):
        # a higher category decides, with one exception that needs dimensions: (bool, int) keep theirs
        return (both,)
    if one_scalar is True:
        return (other,)
    if other_scalar is True:
        return (one,)
    found = {both}
    if one_scalar is None:
        found.add(other)
    if other_scalar is None:
        found.add(one)
    return found


def is_certain(found: Dtypes, wanted: Iterable[str] = LOW) -> bool:
    """Whether a value has one of the wanted dtypes whatever happens."""
    return bool(found) and found <= frozenset(wanted)


def is_possible(found: Dtypes, wanted: Iterable[str] = LOW) -> bool:
    """Whether a value has one of the wanted dtypes on some path."""
    return not found.isdisjoint(wanted)
