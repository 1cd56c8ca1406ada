"""`torch.autocast(dtype=..)` without a device type: a TypeError, common after a migration by hand."""

from __future__ import annotations

from collections.abc import Iterable

from amplint.finding import FixKind, Severity
from amplint.port.device import without_device
from amplint.rule import Context, Report, Rule


def check(ctx: Context) -> Iterable[Report]:
    """Report calls of torch.autocast that give no device type at all."""
    for call, missing in without_device(ctx, ("torch.autocast",), position=0, kind=FixKind.REPAIR):
        message = "torch.autocast without device_type raises TypeError when it is called"
        yield Report(call, message, fix=missing.fix)


RULE = Rule(
    code="AMP113",
    name="autocast-missing-device-type",
    summary="torch.autocast is called without device_type, which raises TypeError",
    severity=Severity.ERROR,
    check=check,
    words=("autocast",),
    fixable="sometimes",
    module=__name__,
)
