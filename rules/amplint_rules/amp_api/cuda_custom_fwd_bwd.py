"""`custom_fwd` and `custom_bwd` bound to CUDA, by their module or by `device_type="cuda"`."""

from __future__ import annotations

from collections.abc import Iterable

from amplint.finding import Severity
from amplint.port.device import hardcoded
from amplint.port.report import reports
from amplint.rule import Context, Report, Rule

_CUSTOM = ("torch.amp.custom_fwd", "torch.amp.custom_bwd")


def check(ctx: Context) -> Iterable[Report]:
    """Report the `torch.cuda.amp` pair, and the `torch.amp` pair with the literal "cuda"."""
    yield from reports(ctx, RULE.code)
    for call, literal in hardcoded(ctx, _CUSTOM, position=None):
        name = literal.function.rpartition(".")[2]
        yield Report(call, f'{name}(device_type="cuda") reacts to CUDA\'s autocast only', fix=literal.fix)


RULE = Rule(
    code="AMP103",
    name="cuda-custom-fwd-bwd",
    summary="custom_fwd or custom_bwd is bound to CUDA: under another accelerator's autocast it does nothing",
    severity=Severity.WARNING,
    npu_severity=Severity.ERROR,
    check=check,
    words=("custom_fwd", "custom_bwd"),
    fixable="sometimes",
    module=__name__,
)
