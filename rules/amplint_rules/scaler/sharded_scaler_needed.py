"""A plain GradScaler beside FSDP1 or fairscale: each rank judges overflow by its own shard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from amplint.finding import Severity
from amplint.flow.dtypes import BF16, FP16, assigned, choices
from amplint.flow.held import Held, Placed, objects_of
from amplint.flow.lift import names
from amplint.flow.regions import Region, Regions, regions_of
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

_WRAPPERS = ("FullyShardedDataParallel", "ShardedDataParallel")
_REASON = (
    "import the sharded class that belongs to the wrapper, and hand it the process group that it shards over"
)
_POSITIONAL = "name each argument: which parameter a position means is different in other releases of torch"
_PRECISIONS = ("param_dtype", "compute_dtype")


def check(ctx: Context) -> Iterable[Report]:
    """Report plain scalers that serve a sharded model in float16, and sharded ones with positional arguments."""
    held = objects_of(ctx.model)
    tree = ctx.model.tree
    made = list(held.constructors())
    sharded = [placed for placed in made if _is_sharded(placed)]
    for placed in sharded:
        call = tree.nodes[placed.call.site]
        first = placed.call.args[0] if placed.call.args else None
        of_torch = all(name.startswith("torch.") for name in names(placed.call.func))
        if of_torch and first is not None and first.keyword is None and not first.star:
            assert isinstance(call, cst.Call)
            yield Report(
                call,
                f"ShardedGradScaler takes `{tree.code(call.args[0].value)}` for its device or its initial "
                "scale, depending on the release of torch; name the argument",
                severity=Severity.WARNING,
                fix=lambda: _POSITIONAL,
            )
    if sharded or _mentions_sharded(ctx):
        return
    evidence = list(_wraps(held, regions_of(ctx.model)))
    for placed in made:
        for wrap, half in evidence:
            if not _may_meet(held, wrap, placed):
                continue
            wrapper = _wrapper(wrap.call).rpartition(".")[2]
            yield Report(
                tree.nodes[placed.call.site],
                f"each rank of {wrapper} has a shard of the gradients, and this scaler looks at that alone: "
                "one rank skips a step that others take; use ShardedGradScaler",
                trace=[
                    (tree.nodes[wrap.call.site], f"the model is sharded here, by {wrapper}"),
                    (tree.nodes[half], "float16 is asked for here"),
                ],
                fix=lambda: _REASON,
            )
            break


def _is_sharded(placed: Placed) -> bool:
    return any(name.rpartition(".")[2] == "ShardedGradScaler" for name in names(placed.call.func))


def _mentions_sharded(ctx: Context) -> bool:
    """Whether the file has the sharded class under any name, or a scaler class of its own."""
    model = ctx.model
    return any(
        "ShardedGradScaler" in (binding.name, (binding.origin or "").rpartition(".")[2])
        or (binding.kind == "import" and (binding.origin or "").rpartition(".")[2] == "ShardedGradScaler")
        for scope in model.names.scopes
        for bindings in scope.bindings.values()
        for binding in bindings
    )


def _wrapper(call: ir.Call) -> str:
    """The sharding class that is called, "" for anything else."""
    for name in names(call.func):
        known = name.startswith(("torch.distributed.fsdp.", "fairscale."))
        if known and name.rpartition(".")[2] in _WRAPPERS:
            return name
    return ""


def _may_meet(held: Held, wrap: Placed, made: Placed) -> bool:
    enabled = held.lift.enabled(made.call)
    return enabled is not False and held.may_be(
        wrap.guard, made.guard, enabled if enabled is not None else True
    )


def _wraps(held: Held, regions: Regions) -> Iterator[tuple[Placed, int]]:
    """The calls that shard a module in float16, and where that is asked for."""
    some = [r for r in regions.all if r.enabled is not False and not r.inference]
    half = [region for region in some if _is_half(region)]
    lower = any(not _is_half(r) and (BF16 in r.kinds or "" in r.kinds) for r in regions.all)
    for placed in held.calls:
        if not _wrapper(placed.call):
            continue
        precision = next((arg.value for arg in placed.call.args if arg.keyword == "mixed_precision"), None)
        kinds = dict(_asked(held, precision, 0)) if precision is not None else {}
        if any(arg.star for arg in placed.call.args) or BF16 in kinds or "" in kinds:
            continue
        if FP16 in kinds:
            yield placed, kinds[FP16]
        elif half and not lower and not kinds:
            yield placed, half[0].site


def _is_half(region: Region) -> bool:
    """Whether a region is float16, as it is by default on accelerators."""
    by_default = all(choice.site == region.site for choice in region.dtypes)
    return region.kinds == {FP16} or (by_default and FP16 in region.kinds and "cuda" in region.devices)


def _asked(held: Held, expr: ir.Expr, depth: int) -> Iterator[tuple[str, int]]:
    """The dtypes that `mixed_precision=` asks for, "" among them where that cannot be told."""
    if depth > 6:
        yield "", expr.site
    elif isinstance(expr, ir.Const):
        if expr.value is True:  # fairscale's flag
            yield FP16, expr.site
    elif isinstance(expr, (ir.IfExp, ir.Bool)):
        parts = (expr.body, expr.orelse) if isinstance(expr, ir.IfExp) else (expr.left, expr.right)
        for part in parts:
            yield from _asked(held, part, depth + 1)
    elif isinstance(expr, ir.Call) and any(n.endswith("MixedPrecision") for n in names(expr.func)):
        given = [arg.value for arg in expr.args if arg.keyword in _PRECISIONS]
        given.extend(arg.value for arg in expr.args[:1] if arg.keyword is None)
        for dtype in given:
            yield from ((choice.kind, choice.site) for choice in choices(held, dtype))
    else:
        path = held.lift.path(expr)
        found = list(assigned(held, path)) if path is not None else []
        for value, _ in found:
            if value is None:
                yield "", expr.site
            else:
                yield from _asked(held, value, depth + 1)
        if not found:
            yield "", expr.site


RULE = Rule(
    code="AMP221",
    name="sharded-scaler-needed",
    summary="a plain GradScaler beside FSDP1 or fairscale in float16, or a ShardedGradScaler called by position",
    severity=Severity.ERROR,
    check=check,
    words=("ShardedDataParallel", "ShardedGradScaler"),
    shape=shapes.sharded_scaler_needed,
    module=__name__,
)
