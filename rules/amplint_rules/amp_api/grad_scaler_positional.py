"""Positional arguments of a GradScaler that land in another parameter than the one meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Edit, Fix, FixKind, Severity, Span
from amplint.port.device import calls_of, device_edits
from amplint.port.edits import CannotEdit
from amplint.port.flags import is_bool, is_number, looks_like_flag
from amplint.rule import Context, Report, Rule

_NEW = "torch.amp.GradScaler"
_OLD = ("torch.cuda.amp.GradScaler", "amplint.runtime.GradScaler")
_NPU = "torch_npu.npu.amp.GradScaler"


def check(ctx: Context) -> Iterable[Report]:
    """Report constructions whose leading positional argument cannot be what its parameter takes."""
    for call, name in calls_of(ctx, (_NEW, *_OLD, _NPU)):
        positional = _positional(call)
        if positional:
            yield from _judge(ctx, call, name, positional)


def _positional(call: cst.Call) -> list[cst.Arg]:
    found = []
    for arg in call.args:
        if arg.star:
            return []
        if arg.keyword is None:
            found.append(arg)
    return found


def _judge(ctx: Context, call: cst.Call, name: str, positional: list[cst.Arg]) -> Iterator[Report]:
    tree = ctx.model.tree
    first = positional[0]
    text = tree.code(first.value)
    flag = looks_like_flag(ctx.model, first.value)
    if name == _NEW and (flag or is_number(first.value)):
        keyword = "enabled" if flag else "init_scale"
        effect = "the scaler stays enabled whatever it says" if flag else "the scale is not the one asked for"
        yield Report(
            call,
            f"`{text}` lands in device, the first parameter of torch.amp.GradScaler: {effect}",
            fix=partial(_name_and_device, ctx, call, positional, keyword),
        )
    elif name == _NEW and len(positional) > 1 and looks_like_flag(ctx.model, positional[1].value):
        second = tree.code(positional[1].value)
        yield Report(
            call,
            f"`{second}` lands in init_scale, the second parameter of torch.amp.GradScaler: the scale becomes"
            " 0 or 1",
            fix=partial(_name, ctx, call, positional[1:]),
        )
    elif name in (*_OLD, _NPU) and flag:
        yield Report(
            call,
            f"`{text}` lands in init_scale, the first parameter of GradScaler: the scale becomes 0 or 1 and"
            " the scaler stays enabled",
            fix=partial(_name, ctx, call, positional),
        )
    elif name == _NPU and len(positional) > 4:
        fifth = tree.code(positional[4].value)
        yield Report(
            call,
            f"`{fifth}` lands in dynamic, which torch_npu's GradScaler has before enabled: the scale becomes"
            " static",
            fix=lambda: "whether dynamic= or enabled= is meant only the author knows",
        )


def _name(ctx: Context, call: cst.Call, positional: list[cst.Arg]) -> Fix | str:
    """Pass the switch as enabled=."""
    if len(positional) > 1:
        return "more positional arguments follow"
    if _given(call, "enabled"):
        return "enabled is given as well, so which of the two is meant only the author knows"
    edit = _keyword(ctx, positional[0], "enabled")
    return Fix(FixKind.REPAIR, _sure(positional[0]), "pass the switch as enabled=", (edit,))


def _name_and_device(ctx: Context, call: cst.Call, positional: list[cst.Arg], keyword: str) -> Fix | str:
    """Give the device, and the argument the name of the parameter that it was meant for."""
    if len(positional) > 1:
        return "more positional arguments follow"
    if _given(call, keyword) or _given(call, "device"):
        return f"{keyword} is given as well, so what is meant only the author knows"
    try:
        device, edits = device_edits(ctx, call)
    except CannotEdit as error:
        return str(error)
    start = ctx.model.tree.span(positional[0]).start
    edit = Edit(Span(start, start), f"{device}, {keyword}=")
    message = f"pass the device and {keyword}="
    sure = Applicability.SAFE if keyword == "init_scale" else _sure(positional[0])
    return Fix(FixKind.REPAIR, sure, message, (edit, *edits))


def _keyword(ctx: Context, arg: cst.Arg, name: str) -> Edit:
    start = ctx.model.tree.span(arg).start
    return Edit(Span(start, start), f"{name}=")


def _given(call: cst.Call, name: str) -> bool:
    return any(arg.keyword is not None and arg.keyword.value == name for arg in call.args)


def _sure(arg: cst.Arg) -> Applicability:
    """A bool can only have been meant as `enabled`; a name can mean anything."""
    return Applicability.SAFE if is_bool(arg.value) else Applicability.UNSAFE


RULE = Rule(
    code="AMP110",
    name="grad-scaler-positional",
    summary="a positional argument of GradScaler lands in another parameter than the one meant",
    severity=Severity.ERROR,
    check=check,
    words=("GradScaler",),
    fixable="sometimes",
    module=__name__,
)
