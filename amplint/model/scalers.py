"""Which expressions are PyTorch's GradScaler: by what made them, by annotation, or by how they are used."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import libcst as cst

from amplint import facts
from amplint.finding import Confidence
from amplint.model.module import ModuleModel
from amplint.model.names import Binding, Scope, dotted
from amplint.model.values import Source, every_part, is_none


@cache
def scaler_params() -> dict[str, tuple[str, ...]]:
    """Qualified name of each GradScaler class -> its parameters in positional order (none: keywords only)."""
    rows = facts.table("grad_scalers")
    return {row["name"]: tuple(filter(None, row["params"].split(","))) for row in rows}


def scaler_confidence(model: ModuleModel, node: cst.BaseExpression) -> Confidence | None:
    """How sure `node` is a GradScaler of PyTorch or torch_npu; None where it may as well be another class."""
    if model.names.is_name(node, *scaler_params()):
        return Confidence.HIGH  # the class itself
    sources = [source for source in model.values.sources(node, choices=False) if not is_none(source)]
    if sources and all(_is_scaler_source(model, source) for source in sources):
        return Confidence.HIGH
    known = [s for s in sources if not isinstance(s, Binding) and s is not node and isinstance(s, cst.Call)]
    if any(_makes_other(model, call) for call in known) or _has_own_class(model):
        return None
    return Confidence.MEDIUM if _behaves_as_scaler(model, node) else None


def _is_scaler_source(model: ModuleModel, source: Source) -> bool:
    if isinstance(source, Binding):
        note = source.annotation
        return note is not None and every_part(model.names, note, lambda part: _is_scaler_class(model, part))
    return isinstance(source, cst.Call) and _is_scaler_class(model, source.func)


def _is_scaler_class(model: ModuleModel, node: cst.BaseExpression) -> bool:
    """A class of the table, or one that this module derives from it."""
    if model.names.is_name(node, *scaler_params()):
        return True
    bindings = model.names.scope_of(node).lookup(node.value) if isinstance(node, cst.Name) else []
    return bool(bindings) and all(
        isinstance(each.node, cst.ClassDef) and _derives(model, each.node) for each in bindings
    )


def _derives(model: ModuleModel, node: cst.ClassDef) -> bool:
    return any(model.names.is_name(base.value, *scaler_params()) for base in node.bases)


def _makes_other(model: ModuleModel, call: cst.Call) -> bool:
    """Whether a call makes an object of a class that is none of the table."""
    named = model.names.resolve(call.func)
    return bool(named) and all(named) and not _is_scaler_class(model, call.func)


def _has_own_class(model: ModuleModel) -> bool:
    """Whether the module defines or imports a GradScaler of its own (a vendored copy, another framework's)."""
    for scope in model.names.scopes:
        for binding in scope.bindings.get("GradScaler", ()):
            if isinstance(binding.node, cst.ClassDef) and not _derives(model, binding.node):
                return True
            if binding.kind == "import" and model.names.binding_names(binding)[0] not in scaler_params():
                return True
    return False


def _behaves_as_scaler(model: ModuleModel, node: cst.BaseExpression) -> bool:
    """Whether the same variable's `unscale_` is called, or what it scales is differentiated."""
    text = dotted(node)
    if text is None:
        return False
    where = _owner(model, node)
    return any(dotted(owner) == text and _owner(model, owner) is where for owner in _protocol(model))


def _owner(model: ModuleModel, node: cst.BaseExpression) -> Scope | None:
    """The scope that binds the variable; for `self.x`, the class."""
    root = node
    while isinstance(root, cst.Attribute):
        root = root.value
    if not isinstance(root, cst.Name):
        return None
    owner = model.names.scope_of(root).owner(root.value)
    is_method = owner is not None and owner.parent is not None and owner.parent.kind == "class"
    return owner.parent if owner is not None and is_method and root is not node else owner


def _protocol(model: ModuleModel) -> Iterator[cst.BaseExpression]:
    for call in model.tree.of_type(cst.Call):
        if not isinstance(call.func, cst.Attribute):
            continue
        if call.func.attr.value == "unscale_" and call.args:
            yield call.func.value
        scaled = call.func.value
        if (
            call.func.attr.value == "backward"
            and isinstance(scaled, cst.Call)
            and isinstance(scaled.func, cst.Attribute)
            and scaled.func.attr.value == "scale"
        ):
            yield scaled.func.value
