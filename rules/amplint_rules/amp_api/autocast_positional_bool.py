"""`torch.autocast(device, True)`: the second parameter is dtype; `torch.cuda.amp.autocast` had enabled."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Edit, Fix, FixKind, Severity, Span
from amplint.port.device import calls_of
from amplint.port.flags import is_bool, looks_like_flag
from amplint.rule import Context, Report, Rule


def check(ctx: Context) -> Iterable[Report]:
    """Report calls of torch.autocast whose second positional argument is a switch."""
    for call, _ in calls_of(ctx, ("torch.autocast",)):
        if len(call.args) < 2 or any(arg.star or arg.keyword is not None for arg in call.args[:2]):
            continue
        second = call.args[1]
        if looks_like_flag(ctx.model, second.value):
            text = ctx.model.tree.code(second.value)
            yield Report(
                call,
                f"`{text}` lands in dtype, the second parameter of torch.autocast: entering the region raises"
                " TypeError",
                fix=partial(_fix, ctx, call, second),
            )


def _fix(ctx: Context, call: cst.Call, arg: cst.Arg) -> Fix | str:
    if any(other.keyword is not None and other.keyword.value == "enabled" for other in call.args):
        return "enabled is given as well, so which of the two is meant only the author knows"
    if any(other.keyword is None for other in call.args[2:]):
        return "more positional arguments follow"
    start = ctx.model.tree.span(arg).start
    edit = Edit(Span(start, start), "enabled=")
    sure = Applicability.SAFE if is_bool(arg.value) else Applicability.UNSAFE
    return Fix(FixKind.REPAIR, sure, "pass the switch as enabled=", (edit,))


RULE = Rule(
    code="AMP111",
    name="autocast-positional-bool",
    summary="torch.autocast is given a switch as second positional argument, which is dtype",
    severity=Severity.ERROR,
    check=check,
    words=("autocast",),
    fixable="sometimes",
    module=__name__,
)
