"""Private parts of GradScaler and apex, which another release or another device's scaler may not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from amplint.finding import Confidence, Severity
from amplint.model.names import string_value
from amplint.model.scalers import scaler_confidence
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

_APEX = "apex.amp._amp_state"
_BY_NAME = ("builtins.getattr", "builtins.setattr", "builtins.hasattr", "builtins.delattr")


def check(ctx: Context) -> Iterable[Report]:
    """Report uses of private attributes of scalers, and of apex's global state."""
    for node, owner, name in _accesses(ctx):
        confidence = scaler_confidence(ctx.model, owner)
        if confidence is not None:
            text = ctx.model.tree.code(owner)
            effect = "is replaced" if _is_stored_to(ctx, node) else "is used"
            yield Report(
                node,
                f"{name} of `{text}` {effect}, which is private to GradScaler:"
                " other releases and the scalers of other devices may do without it",
                confidence=confidence,
            )
    yield from _apex(ctx)


def _accesses(ctx: Context) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression, str]]:
    """Each access to an attribute of a private name: the expression, the object, the name."""
    for node in ctx.model.tree.of_type(cst.Attribute):
        if node.attr.value in shapes.private_parts() and not _is_self(node.value):
            yield node, node.value, node.attr.value
    for call in ctx.model.tree.of_type(cst.Call):
        if len(call.args) < 2 or not ctx.model.names.is_name(call.func, *_BY_NAME):
            continue
        name = string_value(call.args[1].value)
        if name in shapes.private_parts() and name is not None and not _is_self(call.args[0].value):
            yield call, call.args[0].value, name


def _is_self(node: cst.BaseExpression) -> bool:
    """A class that extends the scaler may know it from inside."""
    return isinstance(node, cst.Name) and node.value in ("self", "cls")


def _is_stored_to(ctx: Context, node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Call):
        return ctx.model.names.is_name(node.func, "builtins.setattr", "builtins.delattr")
    return isinstance(ctx.model.tree.parent(node), (cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.Del))


def _apex(ctx: Context) -> Iterator[Report]:
    message = "apex keeps this to itself, and it has no counterpart in torch.amp"
    for scope in ctx.model.names.scopes:
        for binding in (b for bindings in scope.bindings.values() for b in bindings if b.kind == "import"):
            origin = ctx.model.names.binding_names(binding)[0]
            if origin == _APEX or origin.startswith(f"{_APEX}."):
                yield Report(binding.node, f"{origin} is imported: {message}")
    for reference in ctx.model.names.references:
        if "_amp_state" in reference.attributes and reference.root.value != "_amp_state":
            names = ctx.model.names.resolve(reference.node)
            if any(name == _APEX or name.startswith(f"{_APEX}.") for name in names):
                yield Report(reference.node, f"{_APEX} is used: {message}")


RULE = Rule(
    code="AMP112",
    name="amp-private-api",
    summary="a private part of GradScaler or of apex is used, which may be gone or different elsewhere",
    severity=Severity.WARNING,
    confidence=Confidence.HIGH,
    check=check,
    words=("_amp_state", "GradScaler", "unscale_", ".scale("),
    shape=shapes.amp_private_api,
    module=__name__,
)
