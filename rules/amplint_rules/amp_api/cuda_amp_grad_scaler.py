"""`torch.cuda.amp.GradScaler` scales losses on CUDA only."""

from __future__ import annotations

from collections.abc import Iterable

from amplint.finding import Severity
from amplint.port.report import reports
from amplint.rule import Context, Report, Rule


def check(ctx: Context) -> Iterable[Report]:
    """Report every unguarded import and use."""
    return reports(ctx, RULE.code)


RULE = Rule(
    code="AMP102",
    name="cuda-amp-grad-scaler",
    summary="torch.cuda.amp.GradScaler is imported or used: on another accelerator it disables itself",
    severity=Severity.WARNING,
    npu_severity=Severity.ERROR,
    check=check,
    words=("cuda.amp", "cuda import amp", "GradScaler", "grad_scaler"),
    fixable="sometimes",
    module=__name__,
)
