"""`torch.amp.GradScaler()` without a device means CUDA, and disables itself elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from amplint.finding import Severity
from amplint.port.device import hardcoded, severity, without_device
from amplint.rule import Context, Report, Rule

_SCALER = ("torch.amp.GradScaler",)
_EFFECT = "on NPU the scaler disables itself and scales nothing"
_PATCHED = "it stays enabled on NPU only while transfer_to_npu is imported"


def check(ctx: Context) -> Iterable[Report]:
    """Report constructions without a device or with the literal "cuda"."""
    level = severity(ctx)
    effect = _EFFECT if level is None else _PATCHED
    for call, literal in hardcoded(ctx, _SCALER, position=0):
        yield Report(call, f'torch.amp.GradScaler("cuda"): {effect}', severity=level, fix=literal.fix)
    for call, missing in without_device(ctx, _SCALER, position=0):
        message = f"torch.amp.GradScaler without a device means CUDA: {effect}"
        yield Report(call, message, severity=level, fix=missing.fix)


RULE = Rule(
    code="AMP105",
    name="grad-scaler-default-device",
    summary='torch.amp.GradScaler is made without a device, or for "cuda" only',
    severity=Severity.WARNING,
    npu_severity=Severity.ERROR,
    check=check,
    words=("GradScaler",),
    fixable="sometimes",
    module=__name__,
)
