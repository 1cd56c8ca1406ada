"""What the rules about `torch.cuda.amp` say of each use."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from amplint.finding import Fix, Severity
from amplint.model.guards import transfer_to_npu
from amplint.port.plan import PortPlan, plan
from amplint.port.symbols import MODULE, Use
from amplint.rule import Context, Report

_EFFECT = {
    "AMP101": "on NPU the region does nothing and everything computes in fp32",
    "AMP102": "on NPU it disables itself and the loss is not scaled",
    "AMP103": "under NPU autocast it does not react, so cast_inputs is ignored",
    "AMP107": "its functions know CUDA only",
}


def reports(ctx: Context, code: str) -> Iterator[Report]:
    """One report for each unguarded import and use that `code` is about."""
    planned = plan(ctx)
    patched = transfer_to_npu(ctx.model)
    for use in planned.uses:
        if use.symbol.code == code:
            yield Report(
                use.node,
                _message(use, patched),
                severity=Severity.INFO if patched else None,
                fix=partial(_fix, planned, use),
            )


def _fix(planned: PortPlan, use: Use) -> Fix | str:
    return planned.fix(use)


def _message(use: Use, patched: bool) -> str:
    what = "is imported" if use.is_import else "is used"
    if patched:
        return f"{use.symbol.name} {what}; transfer_to_npu replaces it while it is imported"
    star = isinstance(use.node, cst.ImportFrom) and isinstance(use.node.names, cst.ImportStar)
    name = f"{use.symbol.name} (all of it)" if star and use.symbol.name == MODULE else use.symbol.name
    return f"{name} {what}: {_EFFECT[use.symbol.code]}"
