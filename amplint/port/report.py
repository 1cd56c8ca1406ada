"""What the rules about `torch.cuda.amp` say of each use."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from amplint.finding import Fix, Severity
from amplint.model.guards import transfer_to_npu
from amplint.port.device import REGION_STAYS, disables
from amplint.port.plan import plan, used
from amplint.port.symbols import Use
from amplint.rule import Context, Report

#: What each symbol is on another accelerator, as true of an annotation as of a call.
_EFFECT = {
    "AMP101": "it opens regions for CUDA only",
    "AMP102": "it is the GradScaler for CUDA only",
    "AMP103": "it reacts to CUDA's autocast only",
    "AMP107": "it is for CUDA only",
}


def reports(ctx: Context, code: str) -> Iterator[Report]:
    """One report for each unguarded import and use that `code` is about."""
    patched = transfer_to_npu(ctx.model)
    for use in used(ctx):
        if use.symbol.code == code:
            yield Report(
                use.node,
                _message(ctx, use, patched),
                severity=Severity.INFO if patched else None,
                fix=partial(_fix, ctx, use),
            )


def _fix(ctx: Context, use: Use) -> Fix | str:
    return plan(ctx).fix(use)


def _message(ctx: Context, use: Use, patched: bool) -> str:
    what = "is imported" if use.is_import else "is used"
    name = use.symbol.name
    if patched:
        return f"{name} {what}; transfer_to_npu replaces it while it is imported"
    if isinstance(use.node, cst.ImportFrom) and isinstance(use.node.names, cst.ImportStar):
        name = f"{name} (all of it)"
    if use.symbol.new and not use.symbol.params:
        return f"{name} {what}: the place of this name is {use.symbol.new}"
    return f"{name} {what}: {_call_effect(ctx, use) or _EFFECT[use.symbol.code]}"


def _call_effect(ctx: Context, use: Use) -> str | None:
    """What goes wrong on another accelerator where the symbol is called."""
    call = ctx.model.tree.parent(use.node)
    if not isinstance(call, cst.Call) or call.func is not use.node:
        return None
    if use.symbol.code == "AMP101":
        return REGION_STAYS if disables(call) else "on NPU nothing in the region is autocast"
    if use.symbol.code == "AMP102":
        return "on NPU it disables itself and the loss is not scaled"
    if any(arg.keyword is not None and arg.keyword.value == "cast_inputs" for arg in call.args):
        return "under NPU autocast cast_inputs is ignored"
    return None
