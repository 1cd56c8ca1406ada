"""`torch.autocast(str(device))`: the device type is a bare word such as "npu", without index and no object."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Edit, Fix, FixKind, Severity
from amplint.model.guards import guard
from amplint.model.names import Binding, string_value
from amplint.model.tensors import is_device
from amplint.port.device import device_arguments, replaced
from amplint.port.edits import CannotEdit
from amplint.port.flags import last_name
from amplint.port.spelling import Spelling
from amplint.rule import Context, Report, Rule

_CUSTOM = ("torch.amp.custom_fwd", "torch.amp.custom_bwd")
_OBJECT = "raises ValueError (RuntimeError before torch 2.4)"
_INDEX = "torch before 2.4 raises RuntimeError, later releases leave out the checks for the device"
_CASTS = "no tensor has it, so cast_inputs is ignored"


def check(ctx: Context) -> Iterable[Report]:
    """Report unguarded regions and decorators whose device type is an object or carries an index."""
    places = [
        *device_arguments(ctx, ("torch.autocast",), position=0),
        *device_arguments(ctx, _CUSTOM, position=None),
    ]
    for call, name, arg in places:
        if guard(ctx.model, call) is not None:
            continue
        text = ctx.model.tree.code(arg.value)
        if is_device(ctx.model, arg.value):
            message = f"`{text}` is a torch.device, and {name} takes the type as a string: it {_OBJECT}"
            yield Report(
                call,
                message,
                severity=Severity.ERROR,
                fix=partial(_fix, ctx, arg, f"{_tight(text, arg)}.type"),
            )
        elif any(_has_index(ctx, source) for source in ctx.model.values.sources(arg.value)):
            effect = _CASTS if name in _CUSTOM else _INDEX
            what = "can carry" if _is_str(ctx, arg.value) else "carries"
            yield Report(
                call,
                f"`{text}` {what} an index, and is no device type then: {effect}",
                fix=partial(_without_index, ctx, call, arg),
            )


def _has_index(ctx: Context, source: cst.BaseExpression | Binding) -> bool:
    """Whether a value is a device with its index, written as text."""
    if isinstance(source, Binding):
        return False
    if isinstance(source, cst.FormattedString):
        parts = source.parts[:2]
        return any(isinstance(part, cst.FormattedStringText) and ":" in part.value for part in parts)
    return ":" in (string_value(source) or "") or _is_str(ctx, source)


def _is_str(ctx: Context, node: cst.BaseExpression) -> bool:
    """`str(device)`, but not `str(device_type)`."""
    if not isinstance(node, cst.Call) or not ctx.model.names.is_name(node.func, "builtins.str"):
        return False
    return len(node.args) == 1 and not (last_name(node.args[0].value) or "").endswith("type")


def _without_index(ctx: Context, call: cst.Call, arg: cst.Arg) -> Fix | str:
    node, tree = arg.value, ctx.model.tree
    if isinstance(node, cst.FormattedString):
        first = node.parts[0]
        if not isinstance(first, cst.FormattedStringText):
            return "what stands before the index is decided elsewhere"
        written = first.value
    elif string_value(node) is not None:
        written = string_value(node) or ""
    else:
        inner = node.args[0].value if isinstance(node, cst.Call) else node
        text = tree.code(inner)
        if is_device(ctx.model, inner):
            return _fix(ctx, arg, f"{text}.type")
        return _fix(ctx, arg, f"torch.device({text}).type", needs_torch=True)
    kind = written.partition(":")[0]
    if kind == "cuda":
        return replaced(ctx, call, arg)
    return _fix(ctx, arg, f'"{kind}"')


def _tight(text: str, arg: cst.Arg) -> str:
    return text if isinstance(arg.value, (cst.Name, cst.Attribute, cst.Call)) else f"({text})"


def _fix(ctx: Context, arg: cst.Arg, text: str, *, needs_torch: bool = False) -> Fix | str:
    edits: tuple[Edit, ...] = ()
    if needs_torch:
        try:
            torch, edits = Spelling(ctx.model, ctx.settings).module("torch", ctx.model.names.scope_of(arg))
        except CannotEdit as error:
            return str(error)
        text = torch + text.removeprefix("torch")
    edit = Edit(ctx.model.tree.span(arg.value), text)
    return Fix(FixKind.PORT, Applicability.SAFE, "pass the bare device type", (edit, *edits))


RULE = Rule(
    code="AMP109",
    name="autocast-device-spelling",
    summary="the device type of autocast is given with an index, or as a torch.device",
    severity=Severity.WARNING,
    npu_severity=Severity.ERROR,
    check=check,
    words=("autocast", "custom_fwd", "custom_bwd"),
    fixable="sometimes",
    module=__name__,
)
