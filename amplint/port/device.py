"""Calls of the device-agnostic AMP API that name CUDA, or no device at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Edit, Fix, FixKind, Severity, Span
from amplint.model.guards import guard, transfer_to_npu
from amplint.model.names import string_value
from amplint.port.edits import CannotEdit
from amplint.port.spelling import Spelling
from amplint.rule import Context

#: What a region for CUDA with `enabled=False` does on another accelerator.
REGION_STAYS = "it does not disable an NPU region around it"


@dataclass(frozen=True, slots=True)
class DeviceProblem:
    """One call whose device is wrong or absent."""

    #: Qualified name of what is called.
    function: str
    #: Whether the call opens a region with `enabled=False`.
    disables: bool
    fix: Callable[[], Fix | str]


def severity(ctx: Context) -> Severity | None:
    """Info where `transfer_to_npu` makes the call work on NPU all the same, else the rule's own."""
    return Severity.INFO if transfer_to_npu(ctx.model) else None


def calls_of(ctx: Context, names: Sequence[str]) -> Iterator[tuple[cst.Call, str]]:
    """Calls that can only mean one of `names` (each with the name), in the order of the text."""
    for call in ctx.model.tree.of_type(cst.Call):
        found = ctx.model.names.resolve(call.func)
        if found and all(name in names for name in found) and not _is_partial(ctx, call.func):
            yield call, found[0]


def hardcoded(
    ctx: Context, names: Sequence[str], *, position: int | None
) -> Iterator[tuple[cst.Call, DeviceProblem]]:
    """Unguarded calls of `names`, or partials of them, whose device is the literal "cuda".

    `position` is the place of the device among positional arguments, None for keyword only. The node reported
    at is the call.
    """
    for call, name, arg in device_arguments(ctx, names, position=position):
        if string_value(arg.value) == "cuda" and guard(ctx.model, call) is None:
            yield call, DeviceProblem(name, disables(call), partial(replaced, ctx, call, arg))


def device_arguments(
    ctx: Context, names: Sequence[str], *, position: int | None
) -> Iterator[tuple[cst.Call, str, cst.Arg]]:
    """Calls of `names`, or partials of them, that give a device: the call, the name, the argument."""
    for call, name, skip in _calls_and_partials(ctx, names):
        arg = _device_argument(call, position, skip)
        if arg is not None:
            yield call, name, arg


def without_device(
    ctx: Context, names: Sequence[str], *, position: int, kind: FixKind = FixKind.PORT
) -> Iterator[tuple[cst.Call, DeviceProblem]]:
    """Unguarded calls of `names` that give no device."""
    for call, name in calls_of(ctx, names):
        positional = [arg for arg in call.args if arg.keyword is None]
        if positional or any(arg.star for arg in call.args):
            continue
        if _device_argument(call, position, 0) is not None:
            continue
        if guard(ctx.model, call) is None:
            yield call, DeviceProblem(name, disables(call), partial(_insert, ctx, call, kind))


def device_edits(ctx: Context, node: cst.CSTNode) -> tuple[str, tuple[Edit, ...]]:
    """The expression for the device type at `node` and the edits it needs. Raises `CannotEdit`."""
    return Spelling(ctx.model, ctx.settings).device(ctx.model.names.scope_of(node))


def _calls_and_partials(ctx: Context, names: Sequence[str]) -> Iterator[tuple[cst.Call, str, int]]:
    """Calls with the number of leading arguments that are not the function's own."""
    for call in ctx.model.tree.of_type(cst.Call):
        if ctx.model.names.is_name(call.func, "functools.partial"):
            if not call.args or call.args[0].star or call.args[0].keyword is not None:
                continue
            found = ctx.model.names.resolve(call.args[0].value)
            if found and all(name in names for name in found):
                yield call, found[0], 1
    for call, name in calls_of(ctx, names):
        yield call, name, 0


def _is_partial(ctx: Context, node: cst.BaseExpression) -> bool:
    """Whether `node` can hold a `functools.partial`, whose call does not show all arguments."""
    names = ctx.model.names
    todo, seen = [node], set[int]()
    while todo:
        current = todo.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, cst.Call) and names.is_name(current.func, "functools.partial"):
            return True
        if isinstance(current, cst.Name):
            bindings = names.scope_of(current).lookup(current.value)
            todo.extend(b.value for b in bindings if b.value is not None)
        elif isinstance(current, cst.IfExp):
            todo.extend((current.body, current.orelse))
    return False


def _device_argument(call: cst.Call, position: int | None, skip: int) -> cst.Arg | None:
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value in ("device_type", "device"):
            return arg
    if position is None or len(call.args) <= position + skip:
        return None
    arg = call.args[position + skip]
    return arg if arg.keyword is None and not arg.star else None


def disables(call: cst.Call) -> bool:
    """Whether a region is opened with the literal `enabled=False`."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == "enabled":
            return isinstance(arg.value, cst.Name) and arg.value.value == "False"
    return False


def replaced(ctx: Context, call: cst.Call, arg: cst.Arg) -> Fix | str:
    """The fix that puts the accelerator's device type in the place of CUDA, or why there is none."""
    try:
        device, edits = device_edits(ctx, call)
    except CannotEdit as error:
        return str(error)
    changed = Edit(ctx.model.tree.span(arg.value), device)
    message = 'take the device type of the accelerator instead of "cuda"'
    return Fix(FixKind.PORT, Applicability.SAFE, message, (changed, *edits))


def _insert(ctx: Context, call: cst.Call, kind: FixKind) -> Fix | str:
    try:
        device, edits = device_edits(ctx, call)
    except CannotEdit as error:
        return str(error)
    tree = ctx.model.tree
    text = f"{device}, " if call.args else device
    start = tree.span(call.args[0]).start if call.args else tree.span(call).end - 1
    edit = Edit(Span(start, start), text)
    return Fix(kind, Applicability.SAFE, "pass the device type of the accelerator", (edit, *edits))
