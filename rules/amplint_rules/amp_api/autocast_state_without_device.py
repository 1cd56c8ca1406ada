"""`torch.is_autocast_enabled()` and its kin without a device ask, and set, the state of CUDA only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import libcst as cst

from amplint import facts
from amplint.finding import Applicability, Edit, Fix, FixKind, Severity, Span
from amplint.model.guards import guard
from amplint.port.device import calls_of, hardcoded
from amplint.port.edits import CannotEdit
from amplint.port.spelling import Spelling
from amplint.rule import Context, Report, Rule

#: Qualified name -> its row.
_CALLS = {row["name"]: row for row in facts.table("autocast_state")}
#: The functions that take a device first, and so may be told "cuda".
_WITH_DEVICE = tuple(dict.fromkeys(row["new"] for row in _CALLS.values() if row["new"]))
_READS = "on NPU it says nothing about the region that the code runs in"
_SETS = "autocast on NPU does not change"


def check(ctx: Context) -> Iterable[Report]:
    """Report unguarded calls that name no device, or the literal "cuda"."""
    found = [
        (call, row)
        for call, row in ((call, _CALLS[name]) for call, name in calls_of(ctx, tuple(_CALLS)))
        if not (row["until"] and ctx.settings.torch >= facts.version(row["until"]))
        and len(call.args) == int(row["arguments"])
        and guard(ctx.model, call) is None
    ]
    by_hand = any(row["sets"] for _, row in found)
    for call, row in found:
        short = row["name"].rpartition(".")[2]
        if row["new"]:
            effect = _SETS if row["sets"] else _READS
            until = f" before torch {row['until']}" if row["until"] else ""
            message = f"{short} without a device means CUDA{until}: {effect}"
            yield Report(call, message, fix=partial(_fix, ctx, call, row))
        elif by_hand:
            yield Report(
                call,
                f"{short} is part of an autocast region made by hand for CUDA",
                fix=lambda: "the pair has no replacement but the context manager torch.autocast",
            )
    for call, literal in hardcoded(ctx, _WITH_DEVICE, position=0):
        short = literal.function.rpartition(".")[2]
        effect = _SETS if short.startswith("set_") else _READS
        yield Report(call, f'{short}("cuda"): {effect}', fix=literal.fix)


def _fix(ctx: Context, call: cst.Call, row: Mapping[str, str]) -> Fix | str:
    if any(arg.star or arg.keyword is not None for arg in call.args):
        return "the argument is not passed by position"
    spelling = Spelling(ctx.model, ctx.settings)
    scope = ctx.model.names.scope_of(call)
    span = ctx.model.tree.span(call)
    try:
        if spelling.is_shim and row["shim"]:
            module, edits = spelling.shim(scope)
            changed = [Edit(span, f"{module}.{row['shim']}()")]
        else:
            name, more = spelling.torch_name(row["new"], facts.version(row["since"]), scope)
            device, edits = spelling.device(scope)
            edits = (*more, *edits)
            at = ctx.model.tree.span(call.args[0]).start if call.args else span.end - 1
            changed = [Edit(Span(at, at), f"{device}, " if call.args else device)]
            if row["new"] != row["name"]:
                changed.append(Edit(ctx.model.tree.span(call.func), name))
    except CannotEdit as error:
        return str(error)
    message = "name the device type of the accelerator"
    return Fix(FixKind.PORT, Applicability.SAFE, message, (*changed, *edits))


RULE = Rule(
    code="AMP106",
    name="autocast-state-without-device",
    summary="the autocast state is read or set without a device, which means CUDA",
    severity=Severity.WARNING,
    npu_severity=Severity.ERROR,
    check=check,
    words=("autocast_enabled", "autocast_gpu_dtype", "get_autocast_dtype", "set_autocast_dtype"),
    fixable="sometimes",
    module=__name__,
)
