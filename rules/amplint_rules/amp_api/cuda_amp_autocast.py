"""`torch.cuda.amp.autocast` opens a region for CUDA only."""

from __future__ import annotations

from collections.abc import Iterable

from amplint.finding import Severity
from amplint.port.report import reports
from amplint.rule import Context, Report, Rule


def check(ctx: Context) -> Iterable[Report]:
    """Report every unguarded import and use."""
    return reports(ctx, RULE.code)


RULE = Rule(
    code="AMP101",
    name="cuda-amp-autocast",
    summary="torch.cuda.amp.autocast is imported or used: on another accelerator the region does nothing",
    severity=Severity.WARNING,
    npu_severity=Severity.ERROR,
    check=check,
    words=("cuda.amp", "cuda import amp", "autocast"),
    fixable="sometimes",
    module=__name__,
)
