"""Conditions that are true on CUDA and false on every other accelerator."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from amplint.model.module import ModuleModel
from amplint.model.names import Binding, string_value

_AVAILABLE = ("torch.cuda.is_available",)


@dataclass(frozen=True, slots=True)
class CudaTest:
    """A condition that tells CUDA from everything else."""

    #: The whole expression, where it is written: a variable is followed to what is assigned to it.
    node: cst.BaseExpression
    #: True on CUDA only; else false on CUDA only.
    positive: bool


def cuda_test(model: ModuleModel, node: cst.BaseExpression, depth: int = 0) -> CudaTest | None:
    """What `node` asks about CUDA, or None where it may be true, or false, for another accelerator as well."""
    if depth > 8:
        return None
    if isinstance(node, (cst.Name, cst.Attribute)):
        if isinstance(node, cst.Attribute) and node.attr.value == "is_cuda":
            return CudaTest(node, True)
        sources = model.values.sources(node, choices=True)
        if len(sources) != 1 or isinstance(sources[0], Binding) or sources[0] is node:
            return None
        return cuda_test(model, sources[0], depth + 1)
    found = _direct(model, node, depth)
    return None if found is None else CudaTest(node, found)


def _direct(model: ModuleModel, node: cst.BaseExpression, depth: int) -> bool | None:
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        inner = cuda_test(model, node.expression, depth + 1)
        return None if inner is None else not inner.positive
    if isinstance(node, cst.BooleanOperation):
        sides = [cuda_test(model, side, depth + 1) for side in (node.left, node.right)]
        told = {side.positive for side in sides if side is not None}
        # `a and cuda` is true on CUDA only, `a or not cuda` false on CUDA only
        decides = isinstance(node.operator, cst.And)
        return decides if decides in told else None
    if isinstance(node, cst.Comparison):
        return _compared(node)
    if isinstance(node, cst.IfExp):
        test, arms = cuda_test(model, node.test, depth + 1), (_constant(node.body), _constant(node.orelse))
        return (
            test.positive == (arms == ("True", "False")) if test and set(arms) == {"True", "False"} else None
        )
    if isinstance(node, cst.Call):
        if model.names.is_name(node.func, *_AVAILABLE):
            return True
        if len(node.args) != 1:
            return None
        if model.names.is_name(node.func, "builtins.bool"):
            inner = cuda_test(model, node.args[0].value, depth + 1)
            return None if inner is None else inner.positive
        is_prefix = isinstance(node.func, cst.Attribute) and node.func.attr.value == "startswith"
        return True if is_prefix and string_value(node.args[0].value) == "cuda" else None
    return None


def _compared(node: cst.Comparison) -> bool | None:
    """`x == "cuda"`, `"cuda" in x` and their opposites."""
    if len(node.comparisons) != 1:
        return None
    operator, right = node.comparisons[0].operator, node.comparisons[0].comparator
    texts = (string_value(node.left), string_value(right))
    if isinstance(operator, (cst.Equal, cst.NotEqual)):
        return isinstance(operator, cst.Equal) if "cuda" in texts else None
    several = isinstance(right, (cst.Tuple, cst.List, cst.Set, cst.Dict))
    if isinstance(operator, (cst.In, cst.NotIn)) and texts[0] == "cuda" and not several:
        return isinstance(operator, cst.In)
    return None


def _constant(node: cst.BaseExpression) -> str:
    return node.value if isinstance(node, cst.Name) else ""
