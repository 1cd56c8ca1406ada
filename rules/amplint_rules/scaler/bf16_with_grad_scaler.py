"""An enabled GradScaler where everything is bfloat16, which has float32's range and needs no loss scale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Confidence, Edit, Fix, FixKind, Severity, Span
from amplint.flow import conditions as c
from amplint.flow.dtypes import BF16, FP16, FP32
from amplint.flow.held import Held, Placed, objects_of
from amplint.flow.lift import SCALERS
from amplint.flow.parameters import Cast, low_precision_parameters
from amplint.flow.regions import Region, regions_of
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

_CHOSEN = "which dtype a run uses is decided elsewhere: enable the scaler only where it is float16"
_OWN_ENABLED = "enabled= is computed: make it true only where the dtype is float16"
_UNCLEAR = "the scaler's arguments are unpacked from a variable"


def check(ctx: Context) -> Iterable[Report]:
    """Report each scaler that is on wherever this file computes in bfloat16."""
    model = ctx.model
    held = objects_of(model)
    nodes = model.tree.nodes
    casts = [cast for cast in low_precision_parameters(held) if cast.kind == BF16]
    for placed in _used(held):
        made = c.both(placed.guard, held.lift.enabled(placed.call) or False)
        cast = next((cast for cast in casts if placed.call.site in cast.scalers), None)
        if cast is not None:
            yield Report(
                nodes[placed.call.site],
                f"the gradients that this scaler unscales are bfloat16, as the parameters of {cast.model} are: "
                "bfloat16 needs no loss scale, and before torch 2.14 unscaling it fails on accelerators",
                severity=Severity.ERROR,
                trace=_cast_trace(nodes, cast),
                fix=lambda: _CHOSEN,
            )
            continue
        found = _bf16_regions(held, regions_of(model).all, made)
        if not found:
            continue
        where = "wherever bfloat16 is chosen" if found.chosen else "although its regions are bfloat16"
        yield Report(
            nodes[placed.call.site],
            f"the loss is scaled {where}: bfloat16 has the range of float32 and needs no loss scale, "
            "but steps are skipped and the scale is searched for all the same",
            confidence=Confidence.HIGH if found.certain else Confidence.MEDIUM,
            trace=[(nodes[found.region.site], "the autocast region is bfloat16 here")],
            fix=partial(_fix, ctx, placed, found),
        )


def _cast_trace(nodes: list[cst.CSTNode], cast: Cast) -> list[tuple[cst.CSTNode, str]]:
    return [
        (nodes[cast.site], f"the parameters of {cast.model} become bfloat16 here"),
        (nodes[cast.optimizer], "the optimizer is made of them here"),
        (nodes[cast.step], "and stepped by the scaler here"),
    ]


def _used(held: Held) -> Iterator[Placed]:
    """Scalers of this file that scale something in this file."""
    scales = any(
        held.is_scaler(path)
        for placed in held.calls
        if (func := placed.call.func) and getattr(func, "attr", "") == "scale" and placed.call.args
        if (path := held.lift.path(getattr(func, "value", None))) is not None
    )
    return held.constructors() if scales else iter(())


@dataclass(frozen=True, slots=True)
class _Found:
    """A region that is bfloat16 while the scaler is on."""

    region: Region
    #: Other runs may choose float16.
    chosen: bool
    #: The scaler is on wherever the region is bfloat16.
    certain: bool


def _bf16_regions(held: Held, regions: Iterable[Region], made: c.Formula) -> _Found | None:
    """What the regions of this file have in common, where that is bfloat16 with the scaler on."""
    first: Region | None = None
    chosen, certain = False, True
    for region in regions:
        if region.inference or region.enabled is False or set(region.devices) == {"cpu"}:
            continue
        if not region.kinds <= {BF16, FP16, FP32, "other"}:
            return None
        low = [choice for choice in region.dtypes if choice.kind == BF16]
        if not low:
            if FP16 in region.kinds:
                return None
            continue
        active = c.both(region.enabled, low[0].guard)
        if not c.is_modelled(active):
            return None
        if not held.implies(active, made):
            if region.kinds != {BF16} or not _is_amp_flag(made):
                return None
            certain = False
        chosen = chosen or FP16 in region.kinds
        first = first or region
    return _Found(first, chosen, certain and not chosen) if first is not None else None


def _is_amp_flag(made: c.Formula) -> bool:
    """Whether the scaler is on where one flag for mixed precision as a whole is set."""
    if not isinstance(made, c.Atom) or made.kind != "truth" or not isinstance(made.left, c.Ref):
        return False
    name = made.left.path[-1].rpartition(":")[2].lower()
    return "amp" in name.split("_") or "mixed" in name or "autocast" in name


# -- the repair -------------------------------------------------------------------------------------------------


def _fix(ctx: Context, placed: Placed, found: _Found) -> Fix | str:
    if found.chosen or _is_looked_up(ctx, found.region):
        return _CHOSEN
    call = ctx.model.tree.nodes[placed.call.site]
    assert isinstance(call, cst.Call)
    if any(arg.star for arg in call.args):
        return _UNCLEAR
    positions = [SCALERS[name] for name in ctx.model.names.resolve(call.func) if name in SCALERS]
    own = [arg for arg in call.args if arg.keyword is not None and arg.keyword.value == "enabled"]
    if own or not positions or len(call.args) > positions[0]:
        return _OWN_ENABLED
    tree = ctx.model.tree
    end = tree.span(call).end - 1
    edit = Edit(Span(end, end), "enabled=False")
    if call.args:
        last = tree.span(call.args[-1].value).end
        edit = Edit(Span(last, last), ", enabled=False")
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, "switch the scaler off", (edit,))


def _is_looked_up(ctx: Context, region: Region) -> bool:
    """Whether the dtype comes out of a table, in which there are others."""
    tree = ctx.model.tree
    return any(isinstance(tree.parent(tree.nodes[d.site]), cst.DictElement) for d in region.dtypes)


RULE = Rule(
    code="AMP217",
    name="bf16-with-grad-scaler",
    summary="a loss scale is kept although everything is computed in bfloat16, which needs none",
    severity=Severity.WARNING,
    check=check,
    words=("GradScaler",),
    shape=shapes.bf16_with_grad_scaler,
    fixable="sometimes",
    module=__name__,
)
