"""Whether a file ever asks if values are finite, or may skip a step."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.flow import walk
from amplint.flow.held import Held
from amplint.model import ir

#: Any of these is a look at whether values are finite.
_CHECKS = ("isfinite", "isnan", "isinf", "nan_to_num", "nan_to_num_", "error_if_nonfinite", "detect_anomaly")
_CHECKS_TOO = ("finite", "nan", "overflow", "skip")


def asks(held: Held) -> bool:
    """Whether any name in the file is that of a look at whether values are finite."""
    return any(_is_check(name) for name in _identifiers(held))


def _is_check(name: str) -> bool:
    return name in _CHECKS or any(part in name.lower() for part in _CHECKS_TOO)


def _identifiers(held: Held) -> Iterator[str]:
    for function in held.functions.values():
        for expr in walk.expressions(function.body):
            if isinstance(expr, (ir.Name, ir.Attr)):
                yield expr.id if isinstance(expr, ir.Name) else expr.attr
            elif isinstance(expr, ir.Call):
                yield from (arg.keyword for arg in expr.args if arg.keyword is not None)
