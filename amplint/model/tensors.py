"""Which expressions are evidently tensors, or devices; what cannot be told is neither."""

from __future__ import annotations

from functools import cache

import libcst as cst

from amplint import facts
from amplint.model.module import ModuleModel
from amplint.model.names import Binding, Reference
from amplint.model.values import Source, every_part, is_none

_TENSOR = ("torch.Tensor", "torch.FloatTensor", "torch.LongTensor", "torch.BoolTensor", "torch.nn.Parameter")
_DEVICES = ("torch.device", "torch.accelerator.current_accelerator", "torch.get_default_device")
_METHOD = "torch.Tensor."
#: Attributes of tensors that modules do not have; of the second row, calls only.
_ATTRIBUTES = ("data", "grad", "shape", "ndim")
_ASKED = ("size", "dim", "numel", "item", "tolist")
#: Iterating over these gives tensors, or (name, tensor).
_PARAMETERS = ("parameters", "buffers")
_NAMED = ("named_parameters", "named_buffers")


@cache
def _results() -> frozenset[str]:
    return frozenset(row["name"] for row in facts.table("tensor_results"))


@cache
def _only_tensors() -> frozenset[str]:
    """Methods that hardly anything but tensors has."""
    table = facts.table("tensor_results")
    return frozenset(row["name"].removeprefix(_METHOD) for row in table if row["only_tensors"])


def is_tensor(model: ModuleModel, node: cst.BaseExpression, depth: int = 0) -> bool:
    """Whether `node` can only be a tensor: by a function of torch, an annotation, or what it is made from."""
    if depth > 20:
        return False
    if isinstance(node, (cst.Name, cst.Attribute, cst.IfExp, cst.NamedExpr)):
        if isinstance(node, cst.Name) and depth == 0 and _is_used_as_tensor(model, node):
            return True
        if isinstance(node, cst.Attribute) and node.attr.value in ("data", "grad", "T", "mT"):
            return is_tensor(model, node.value, depth + 1)
        # what is None has no methods, so it does not come this far
        sources = [source for source in model.values.sources(node) if not is_none(source)]
        return bool(sources) and all(
            source is not node and _is_tensor_source(model, source, depth + 1) for source in sources
        )
    if isinstance(node, cst.Call):
        return _is_tensor_call(model, node, depth)
    if isinstance(node, cst.BinaryOperation):
        # a tensor and a number, array or tensor give a tensor; `"%d" % x` does not
        if isinstance(node.left, (cst.SimpleString, cst.ConcatenatedString, cst.FormattedString)):
            return False
        return is_tensor(model, node.left, depth + 1) or is_tensor(model, node.right, depth + 1)
    if isinstance(node, cst.UnaryOperation):
        return not isinstance(node.operator, cst.Not) and is_tensor(model, node.expression, depth + 1)
    if isinstance(node, cst.Comparison):
        plain = (cst.Is, cst.IsNot, cst.In, cst.NotIn)
        return not any(isinstance(c.operator, plain) for c in node.comparisons) and is_tensor(
            model, node.left, depth + 1
        )
    return isinstance(node, cst.Subscript) and is_tensor(model, node.value, depth + 1)


def _is_tensor_source(model: ModuleModel, source: Source, depth: int) -> bool:
    if not isinstance(source, Binding):
        return is_tensor(model, source, depth)
    if source.annotation is not None:
        return every_part(model.names, source.annotation, lambda note: model.names.is_name(note, *_TENSOR))
    return source.kind == "loop" and _is_parameter_target(model, source)


def _is_parameter_target(model: ModuleModel, binding: Binding) -> bool:
    """`for p in model.parameters()` and the second of `for name, p in model.named_parameters()`."""
    loop = binding.node
    if not isinstance(loop, (cst.For, cst.CompFor)):
        return False
    method = _method(loop.iter)
    if method in ("items", "values") and _method(loop.iter.func.value) == "state_dict":  # type: ignore[attr-defined]
        method = {"items": _NAMED[0], "values": _PARAMETERS[0]}[method]
    target = loop.target
    if isinstance(target, cst.Tuple) and len(target.elements) == 2:
        second = target.elements[1].value
        return method in _NAMED and isinstance(second, cst.Name) and second.value == binding.name
    return method in _PARAMETERS and isinstance(target, cst.Name)


def _method(node: cst.BaseExpression) -> str:
    """The name of the method that `node` is a call of, else ""."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        return node.func.attr.value
    return ""


def _is_used_as_tensor(model: ModuleModel, name: cst.Name) -> bool:
    """Whether the value that `name` holds is computed with, or asked what only a tensor answers."""
    owner = model.names.scope_of(name).owner(name.value)
    held = model.values.reaching(name)
    for reference in model.names.references:
        root = reference.root
        if root is name or root.value != name.value or reference.scope.owner(root.value) is not owner:
            continue
        if held and model.values.reaching(root) == held and _computes(model, reference):
            return True
    return False


def _computes(model: ModuleModel, reference: Reference) -> bool:
    outer = model.tree.parent(reference.node)
    if reference.attributes:
        called = isinstance(outer, cst.Call) and outer.func is reference.node
        first = reference.attributes[0]
        return first in _ATTRIBUTES or (len(reference.attributes) == 1 and called and first in _ASKED)
    if isinstance(outer, cst.BinaryOperation):
        is_text = isinstance(outer.operator, cst.Modulo) and outer.right is reference.node
        return not is_text and not isinstance(outer.operator, (cst.BitOr, cst.Add))
    return isinstance(outer, cst.Subscript) and outer.value is reference.node and len(outer.slice) > 1


def _is_tensor_call(model: ModuleModel, node: cst.Call, depth: int) -> bool:
    named = model.names.resolve(node.func)
    if named and all(named):
        return all(name in _results() or name in _TENSOR for name in named)
    if not isinstance(node.func, cst.Attribute):
        return False
    method = node.func.attr.value
    if method in _only_tensors():
        return "torch" in model.source.text
    return _METHOD + method in _results() and is_tensor(model, node.func.value, depth + 1)


def is_device(model: ModuleModel, node: cst.BaseExpression) -> bool:
    """Whether `node` can only be a `torch.device`."""
    sources = model.values.sources(node)
    return bool(sources) and all(_is_device_source(model, source) for source in sources)


def _is_device_source(model: ModuleModel, source: Source) -> bool:
    if isinstance(source, Binding):
        note = source.annotation
        return note is not None and model.names.is_name(note, "torch.device")
    if isinstance(source, cst.Attribute):
        return source.attr.value == "device" and is_tensor(model, source.value)
    return isinstance(source, cst.Call) and model.names.is_name(source.func, *_DEVICES)
