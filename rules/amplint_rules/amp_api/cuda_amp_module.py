"""The module `torch.cuda.amp` itself is imported or used."""

from __future__ import annotations

from collections.abc import Iterable

from amplint.finding import Severity
from amplint.port.report import reports
from amplint.rule import Context, Report, Rule


def check(ctx: Context) -> Iterable[Report]:
    """Report every unguarded import and use."""
    return reports(ctx, RULE.code)


RULE = Rule(
    code="AMP107",
    name="cuda-amp-module",
    summary="the module torch.cuda.amp is imported, passed on, or used for something that has no replacement",
    severity=Severity.WARNING,
    npu_severity=Severity.ERROR,
    check=check,
    words=("cuda.amp", "cuda import amp"),
    fixable="sometimes",
    module=__name__,
)
