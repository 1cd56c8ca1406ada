"""Arithmetic and comparisons of Python values while a file is interpreted."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from amplint.flow.precision.lattice import COMPLEX, F8, INT, UNKNOWN
from amplint.flow.precision.values import (
    NONE,
    Class,
    Dtype,
    Function,
    Number,
    Py,
    Ref,
    Sequence_,
    Tensor,
    Value,
    alternatives,
    number_kind,
)

_FOLDED: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LARGEST = 1e300


def fold(op: str, left: Value, right: Value) -> Value | None:
    """Arithmetic of Python numbers; None where a tensor or something unknown takes part."""
    if isinstance(left, Py) and isinstance(right, Py):
        if isinstance(left.value, str) and isinstance(right.value, str) and op == "+":
            return Py(left.value + right.value)
        if not isinstance(left.value, (int, float)) or not isinstance(right.value, (int, float)):
            return None
        if (
            abs(left.value) > _LARGEST
            or abs(right.value) > _LARGEST
            or (op == "**" and abs(right.value) > 64)
        ):
            return Number("float")
        function = _FOLDED.get(op)
        try:
            result = function(left.value, right.value) if function is not None else None
        except (ArithmeticError, ValueError):
            return Number("float")
        return Py(result, left.site) if isinstance(result, (int, float)) else None
    if is_number(left) and is_number(right):
        kinds = {number_kind(left), number_kind(right)}
        if op == "/" or "float" in kinds:
            return Number("float")
        return Number("int" if kinds == {"int"} else "")
    return None


def negated(value: Value, site: int) -> Value | None:
    """`-value`, for Python numbers."""
    if isinstance(value, Py) and isinstance(value.value, (int, float)):
        return Py(-value.value, site)
    if isinstance(value, Number):
        return Number(value.kind, f"-{value.what}" if value.what else "", value.dtypes)
    return None


def is_number(value: Value) -> bool:
    """Whether this is a Python number, known or not."""
    return isinstance(value, Number) or (isinstance(value, Py) and isinstance(value.value, (int, float)))


def compared(op: str, left: Value, right: Value) -> Value:
    """A comparison, where it can be told."""
    found = {_compared(op, one, other) for one in alternatives(left) for other in alternatives(right)}
    return Py(found.pop()) if len(found) == 1 and None not in found else Number("bool")


def _compared(op: str, left: Value, right: Value) -> bool | None:
    if op in ("is", "is not"):
        if NONE in (left, right):
            other = right if left == NONE else left
            if other == NONE:
                return op == "is"
            if isinstance(other, (Tensor, Py, Ref, Function, Class, Dtype, Sequence_, Number)):
                return op == "is not"
            return None
        op = "==" if op == "is" else "!="
    if isinstance(left, Dtype) and isinstance(right, Dtype):
        if UNKNOWN in left.dtypes | right.dtypes:
            return None
        if left.dtypes.isdisjoint(right.dtypes):
            return op == "!="
        # some names of the lattice stand for several dtypes
        is_one = len(left.dtypes) == 1 and left.dtypes.isdisjoint((INT, COMPLEX, F8))
        return (op == "==") if left == right and is_one else None
    if isinstance(left, Py) and isinstance(right, Py) and op in _COMPARED:
        try:
            return _COMPARED[op](left.value, right.value)
        except TypeError:
            return None
    if op in ("in", "not in") and isinstance(right, Sequence_):
        tests = [_compared("==", left, item) for item in right.items]
        if True in tests:
            return op == "in"
        return op == "not in" if all(test is False for test in tests) else None
    return None
