"""What an argument is by the look of it: a switch, a loss scale, a device, a dtype."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

import libcst as cst

from amplint.model.module import ModuleModel

_FLAG = re.compile(
    r"^(?:use|is|enable|enabled|do|with|has)(?:_|$)|(?:^|_)(?:amp|enable|enabled|mixed|autocast|fp16_run|use_fp16"
    r"|mixed_precision|is_half)(?:_|$)",
    re.IGNORECASE,
)
_NO_FLAG = re.compile(r"dtype|device|scale|type$", re.IGNORECASE)
_SCALE = re.compile(r"scale", re.IGNORECASE)
_ARITHMETIC: dict[type[cst.BaseBinaryOp], Callable[[float, float], float]] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.Multiply: operator.mul,
    cst.Divide: operator.truediv,
    cst.Power: operator.pow,
}


def last_name(node: cst.BaseExpression) -> str | None:
    """`amp` for `args.amp`, `use_amp` for itself."""
    if isinstance(node, cst.Name):
        return node.value
    return node.attr.value if isinstance(node, cst.Attribute) else None


def is_bool(node: cst.BaseExpression) -> bool:
    """Whether the expression can only be a bool: a literal, a comparison, `not x`, or and/or of such."""
    if isinstance(node, cst.Name):
        return node.value in ("True", "False")
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.operator, cst.Not)
    if isinstance(node, cst.BooleanOperation):
        return is_bool(node.left) and is_bool(node.right)
    return isinstance(node, cst.Comparison)


def is_number(node: cst.BaseExpression) -> bool:
    """Whether the expression is arithmetic over number literals (`2.**16`)."""
    if isinstance(node, (cst.Integer, cst.Float)):
        return True
    if isinstance(node, cst.UnaryOperation):
        return is_number(node.expression)
    if isinstance(node, cst.BinaryOperation):
        return is_number(node.left) and is_number(node.right)
    return False


def number_value(node: cst.BaseExpression) -> float | None:
    """The value of arithmetic over number literals, or None."""
    if isinstance(node, (cst.Integer, cst.Float)):
        return float(node.evaluated_value)
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, (cst.Minus, cst.Plus)):
        value = number_value(node.expression)
        return -value if value is not None and isinstance(node.operator, cst.Minus) else value
    if not isinstance(node, cst.BinaryOperation):
        return None
    left, right = number_value(node.left), number_value(node.right)
    compute = _ARITHMETIC.get(type(node.operator))
    if left is None or right is None or compute is None:
        return None
    try:
        value = compute(left, right)
    except ArithmeticError:
        return None
    return value if isinstance(value, float) else None


def looks_like_flag(model: ModuleModel, node: cst.BaseExpression) -> bool:
    """Whether the expression is a switch: a bool, or named like one and not assigned something else here."""
    if is_bool(node):
        return True
    if isinstance(node, cst.BooleanOperation):
        return looks_like_flag(model, node.left) or looks_like_flag(model, node.right)
    name = last_name(node)
    if name is None:
        return False
    if isinstance(node, cst.Name):
        values = [b.value for b in model.names.scope_of(node).lookup(name) if b.kind == "assign"]
        known = [value for value in values if value is not None]
        if known and all(is_bool(value) for value in known):
            return True
        if any(_is_dtype(model, value) or is_number(value) for value in known):
            return False
    return _FLAG.search(name) is not None and _NO_FLAG.search(name) is None


def looks_like_scale(model: ModuleModel, node: cst.BaseExpression) -> bool:
    """Whether the expression is a loss scale: a number, or named like one."""
    if is_number(node):
        return True
    name = last_name(node)
    if name is not None and _SCALE.search(name) and not _FLAG.search(name):
        return True
    if isinstance(node, cst.Name):
        values = [b.value for b in model.names.scope_of(node).lookup(node.value)]
        return bool(values) and all(value is not None and is_number(value) for value in values)
    if isinstance(node, cst.BinaryOperation):
        return looks_like_scale(model, node.left) or looks_like_scale(model, node.right)
    if isinstance(node, cst.Call) and model.names.is_name(node.func, "builtins.float", "builtins.int"):
        return len(node.args) == 1 and looks_like_scale(model, node.args[0].value)
    return False


def _is_dtype(model: ModuleModel, node: cst.BaseExpression) -> bool:
    return any(
        name in ("torch.float16", "torch.half", "torch.bfloat16", "torch.float32")
        for name in model.names.resolve(node)
    )
