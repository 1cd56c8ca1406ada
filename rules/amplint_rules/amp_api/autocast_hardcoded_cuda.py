"""`torch.autocast("cuda", ..)`: the device-agnostic API with the device written into it."""

from __future__ import annotations

from collections.abc import Iterable

from amplint.finding import Severity
from amplint.port.device import REGION_STAYS, hardcoded, severity
from amplint.rule import Context, Report, Rule

_AUTOCAST = ("torch.autocast",)


def check(ctx: Context) -> Iterable[Report]:
    """Report calls (and partials) of torch.autocast whose device is the literal "cuda"."""
    level = severity(ctx)
    for call, literal in hardcoded(ctx, _AUTOCAST, position=0):
        if level is not None:
            effect = 'transfer_to_npu puts "npu" in its place while it is imported'
        elif literal.disables:
            effect = REGION_STAYS
        else:
            effect = "on NPU nothing in the region is autocast"
        yield Report(call, f'torch.autocast("cuda"): {effect}', severity=level, fix=literal.fix)


RULE = Rule(
    code="AMP104",
    name="autocast-hardcoded-cuda",
    summary='torch.autocast has the device "cuda" written into it',
    severity=Severity.WARNING,
    npu_severity=Severity.ERROR,
    check=check,
    words=("autocast",),
    fixable="sometimes",
    module=__name__,
)
