"""Activation checkpointing by hand whose second forward pass does not run as the first one did."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.finding import Confidence, Severity
from amplint.flow import walk
from amplint.flow.dtypes import DEFAULT, UNKNOWN
from amplint.flow.held import objects_of
from amplint.flow.lift import last, names
from amplint.flow.precision.values import Class
from amplint.flow.regions import Region, Regions, regions_of
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.regions.entered import is_function, seen
from amplint_rules.regions.function_without_custom_fwd import BWD, decorated

_CHOICE = (
    "keep torch.is_autocast_enabled(device_type) and torch.get_autocast_dtype(device_type) on ctx in forward and give "
    "both to torch.autocast around the recomputation, or use torch.utils.checkpoint"
)
#: Contexts and calls that may bring the state of autocast back.
_RESTORES = re.compile(r"autocast|amp\b|amp_|_amp|precision", re.IGNORECASE)
#: Methods that compute the gradients of a block.
_BACKWARD = re.compile(r"backward", re.IGNORECASE)
_GRADIENTS = ("backward", "grad")
_SETTERS = (
    "set_autocast_enabled",
    "set_autocast_dtype",
    "set_autocast_gpu_dtype",
    "autocast_increment_nesting",
)


@dataclass(frozen=True, slots=True)
class _Recomputed:
    """A call in `backward` that runs the forward pass again."""

    call: ir.Call
    #: The regions around it in `backward`, outermost first.
    regions: tuple[Region, ...]


def check(ctx: Context) -> Iterable[Report]:
    """Report each recomputation whose autocast state is another one than that of the forward pass."""
    held = objects_of(ctx.model)
    regions = regions_of(ctx.model)
    for klass in held.classes.by_name:
        if not is_function(held.classes, klass):
            continue
        forward, backward = (
            held.functions.get(held.classes.method(klass, m) or "?") for m in ("forward", "backward")
        )
        if (
            forward is None
            or backward is None
            or backward.owner != klass
            or decorated(backward, BWD) is not None
        ):
            continue
        for found in _recomputed(regions, forward, backward):
            report = _report(ctx, regions, klass, found)
            if report is not None:
                yield report


def _report(ctx: Context, regions: Regions, klass: str, found: _Recomputed) -> Report | None:
    nodes = ctx.model.tree.nodes
    name = klass.rpartition(".")[2]
    applied = [
        a
        for a in seen(ctx).of("function.apply")
        if a.args and a.args[0] == Class(klass) and a.ambient.enabled and a.ambient.site is not None
    ]
    if not found.regions:
        trace = [
            (nodes[a.ambient.site], "the forward pass runs in this region")
            for a in applied[:1]
            if a.ambient.site
        ]
        return Report(
            nodes[found.call.site],
            f"the backward of {name} computes the forward pass again without its autocast region: backward is called "
            "outside, so that this runs in another dtype than what it stands for",
            confidence=Confidence.HIGH if applied else Confidence.LOW,
            trace=[*trace, (nodes[found.call.site], "the forward pass is computed again")],
            fix=lambda: _CHOICE,
        )
    region = found.regions[-1]
    kinds = {kind for kind in region.kinds if kind != DEFAULT}
    if region.enabled is False or UNKNOWN in kinds or len(kinds) > 2:
        return None
    before = {a.ambient.site: a.ambient.dtypes for a in applied}
    others = {
        kind
        for other in regions.all
        if other.site != region.site and other.enabled is not False
        for kind in other.kinds
    }
    if before and all(dtypes <= kinds for dtypes in before.values()):
        return None
    sure = Confidence.HIGH if before else Confidence.LOW if others == kinds else Confidence.MEDIUM
    what = " or ".join(sorted(kinds))
    first = [
        (nodes[site], "the forward pass runs in this region") for site in list(before)[:1] if site is not None
    ]
    return Report(
        nodes[region.site],
        f"the backward of {name} computes the forward pass again in {what}, whatever dtype its autocast region had",
        confidence=sure,
        trace=[
            *first,
            (nodes[region.site], f"a region of {what}"),
            (nodes[found.call.site], "the second forward pass"),
        ],
        fix=lambda: _CHOICE,
    )


def _recomputed(regions: Regions, forward: ir.Function, backward: ir.Function) -> Iterator[_Recomputed]:
    """The first call that runs again what forward was handed, in backward or in a method that it calls."""
    held = regions.held
    kept = set(_kept(forward))
    calls = {last(e.func) for e in walk.expressions(backward.body) if isinstance(e, ir.Call)}
    if not kept or not backward.params or not calls.isdisjoint(_SETTERS):
        return
    if not calls.isdisjoint(_GRADIENTS):
        variables = {held.lift.path(t) for t in _from_context(backward, kept)}
        for call, around in _enabled(regions, backward.body, backward, (), False):
            func = call.func
            while isinstance(func, ir.Subscript):
                func = func.value
            if _is_kept(func, backward, kept) or (
                isinstance(func, ir.Name) and held.lift.path(func) in variables
            ):
                yield _Recomputed(call, around)
                return
    for name in calls:  # reversible blocks do it themselves
        for method in held.functions.values():
            if method.owner is not None and method.qualname.endswith(f".{name}") and _BACKWARD.search(name):
                yield from _in_block(regions, method)


def _in_block(regions: Regions, method: ir.Function) -> Iterator[_Recomputed]:
    """The first part of its own that a block runs again for its gradients."""
    calls = {last(e.func) for e in walk.expressions(method.body) if isinstance(e, ir.Call)}
    if calls.isdisjoint(_GRADIENTS) or not method.params or not calls.isdisjoint(_SETTERS):
        return
    held = regions.held
    for call, around in _enabled(regions, method.body, method, (), False):
        func = call.func
        is_part = (
            isinstance(func, ir.Attr)
            and isinstance(func.value, ir.Name)
            and func.value.id == method.params[0].name
        )
        if is_part and call.args and held.callee(call, method.owner) is None:
            yield _Recomputed(call, around)
            return


def _kept(forward: ir.Function) -> Iterator[str]:
    """Attributes of ctx that forward gives something it was handed, and calls."""
    me = forward.params[0].name if forward.params else ""
    handed = {p.name for p in forward.params[1:]}
    for stmt in walk.statements(forward.body):
        if not isinstance(stmt, ir.Assign) or stmt.value is None:
            continue
        names_in = {e.id for e in walk.inside(stmt.value) if isinstance(e, ir.Name)}
        for target in stmt.targets:
            is_on_it = (
                isinstance(target, ir.Attr) and isinstance(target.value, ir.Name) and target.value.id == me
            )
            if is_on_it and names_in & handed and not _RESTORES.search(last(target)):
                yield last(target)


def _is_kept(expr: ir.Expr, backward: ir.Function, kept: set[str]) -> bool:
    return (
        isinstance(expr, ir.Attr)
        and expr.attr in kept
        and isinstance(expr.value, ir.Name)
        and expr.value.id == backward.params[0].name
    )


def _from_context(backward: ir.Function, kept: set[str]) -> Iterator[ir.Expr]:
    """The variables of backward that hold what was kept."""
    for stmt in walk.statements(backward.body):
        if isinstance(stmt, ir.Assign) and stmt.value is not None and _is_kept(stmt.value, backward, kept):
            yield from stmt.targets
        if isinstance(stmt, ir.For) and any(_is_kept(e, backward, kept) for e in walk.inside(stmt.iterable)):
            yield from (stmt.target.items if isinstance(stmt.target, ir.Items) else (stmt.target,))


def _enabled(
    regions: Regions, block: ir.Block, function: ir.Function, around: tuple[Region, ...], on: bool
) -> Iterator[tuple[ir.Call, tuple[Region, ...]]]:
    """The calls that run with gradients, and the regions around them; none where the state may be restored."""
    for stmt in block:
        inner, enabled = around, on
        if isinstance(stmt, ir.With):
            restored = False
            for item, _ in stmt.items:
                made = tuple(regions.made_by(item, function.qualname))
                inner = (*inner, *made[:1])
                enabled = enabled or _turns_on(item)
                restored = restored or (not made and _may_restore(item))
            if restored:
                continue
        if isinstance(stmt, ir.Do) and isinstance(stmt.value, ir.Call) and _sets_gradients(stmt.value):
            on = _turns_on(stmt.value)
        if on:
            yield from (
                (e, around) for whole in walk.own(stmt) for e in walk.inside(whole) if isinstance(e, ir.Call)
            )
        asks = isinstance(stmt, ir.If) and any(_RESTORES.search(last(e)) for e in walk.inside(stmt.test))
        for part in walk.blocks(stmt):
            for call, regions_there in _enabled(regions, part, function, inner, enabled):
                if regions_there or not asks:  # the arm without a region is the one where it was off
                    yield call, regions_there


def _sets_gradients(call: ir.Call) -> bool:
    return any(name.endswith(".set_grad_enabled") for name in names(call.func))


def _turns_on(item: ir.Expr) -> bool:
    if not isinstance(item, ir.Call):
        return False
    named = names(item.func)
    if any(name.endswith(".enable_grad") for name in named):
        return True
    given = item.args[0].value if item.args else None
    return any(name.endswith(".set_grad_enabled") for name in named) and (
        isinstance(given, ir.Const) and given.value is True
    )


def _may_restore(item: ir.Expr) -> bool:
    return any(_RESTORES.search(last(e)) for e in walk.inside(item) if last(e)) or (
        isinstance(item, (ir.Name, ir.Star))
    )


RULE = Rule(
    code="AMP317",
    name="recompute-loses-autocast",
    summary="a forward pass that is computed again for the backward pass runs without the autocast state of the first",
    severity=Severity.ERROR,
    check=check,
    words=("enable_grad", "set_grad_enabled"),
    shape=shapes.recompute_loses_autocast,
    module=__name__,
)
