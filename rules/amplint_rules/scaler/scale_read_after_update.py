"""`get_scale()` is read on the wrong side of `update()`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amplint.finding import Confidence, Severity
from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.held import Held, objects_of
from amplint.flow.placement import Place, Scene
from amplint.flow.usage import Usage, Use, usage_of
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

_UNDO = (
    "keep the loss under another name and log that one, or read the scale before update(): which, is a choice"
)
_BOTH = "read the scale once before update() and once after it"
_READS = ("get_scale",)
_ORDERS = ("==", "!=", "<", "<=", ">", ">=")


def check(ctx: Context) -> Iterable[Report]:
    """Report scales that undo an earlier scale() too late, and comparisons of a scale with itself."""
    held = objects_of(ctx.model)
    usage = usage_of(ctx.model, held)
    for scene in usage.scenes:
        updates = [use for use in usage.of("update") if use.scene is scene]
        yield from _late(ctx, held, usage, scene)
        if updates:
            yield from _same(ctx, held, usage, scene, updates)


def _read(held: Held, expr: ir.Expr) -> c.Path | None:
    """The scaler whose scale `expr` reads."""
    func = expr.func if isinstance(expr, ir.Call) else expr
    if isinstance(func, ir.Attr) and func.attr in _READS:
        path = held.lift.path(func.value)
        return path if path is not None and held.is_scaler(path) else None
    return None


# -- undoing scale() ------------------------------------------------------------------------------------------


def _late(ctx: Context, held: Held, usage: Usage, scene: Scene) -> Iterator[Report]:
    """`scaled / scaler.get_scale()` once update() may have changed the scale."""
    nodes, code = ctx.model.tree.nodes, ctx.model.tree.code
    for place in scene.places:
        for binary in (e for whole in walk.own(place.stmt) for e in walk.inside(whole)):
            if not isinstance(binary, ir.Binary) or binary.op not in ("/", "*"):
                continue
            found = _factor(held, scene, binary.right, place)
            if found is None or (binary.op == "*" and not _is_inverse(found[2])):
                continue
            read, where, _ = found
            scaler = _read(held, read)
            assert scaler is not None
            scaled = _scaled(held, scene, binary.left, scaler, place)
            if scaled is None:
                continue
            between = [
                (call, updated)
                for call, updated in _updates(held, usage, scene, scaler)
                if scaled.place.site < updated.site < where.site
                and scaled.place.loops == updated.loops == where.loops
                and not updated.excludes(where)
                and not updated.excludes(scaled.place)
            ]
            if not between:
                continue
            yield Report(
                nodes[read.site],
                f"update() may have changed the scale since `{code(nodes[binary.left.site])}` was multiplied by it: "
                f"`{code(nodes[read.site])}` is not the factor to divide by",
                confidence=Confidence.MEDIUM,
                trace=[
                    (nodes[scaled.call.site], "scaled here"),
                    (nodes[between[-1][0].site], "the scale may change here"),
                    (nodes[binary.site], "divided here"),
                ],
                fix=lambda: _UNDO,
            )


def _factor(held: Held, scene: Scene, expr: ir.Expr, place: Place) -> tuple[ir.Expr, Place, ir.Expr] | None:
    """The read of a scale that a divisor is, the statement that it is part of, and the whole value."""
    for _ in range(4):
        read = next((e for e in walk.inside(expr) if _read(held, e)), None)
        if read is not None:
            return read, place, expr
        path = held.lift.path(expr)
        before = [d for d in scene.definitions.get(path, ()) if d.place.site < place.site] if path else []
        if not before or before[-1].value is None or before[-1].grows:
            return None
        expr, place = before[-1].value, before[-1].place
    return None


def _updates(held: Held, usage: Usage, scene: Scene, scaler: c.Path) -> Iterator[tuple[ir.Call, Place]]:
    """The calls in one function that update a scaler, through a function of this file too."""
    wanted = held.identity(scaler)
    own = [use for use in usage.of("update") if held.identity(use.scaler) == wanted]
    for call, place in scene.calls:
        called = held.callee(call, scene.function.owner)
        if any(use.call is call or (called is not None and use.scene.name == called) for use in own):
            yield call, place


def _is_inverse(expr: ir.Expr) -> bool:
    """`1 / scale`."""
    return isinstance(expr, ir.Binary) and expr.op == "/" and isinstance(expr.left, ir.Const)


def _scaled(held: Held, scene: Scene, expr: ir.Expr, scaler: c.Path, place: Place) -> Use | None:
    """The `scaler.scale(..)` whose product `expr` is, through assignments that run before `place`."""
    for _ in range(6):
        if isinstance(expr, ir.IfExp):
            arms = [e for e in (expr.body, expr.orelse) if isinstance(e, ir.Call)]
            if len(arms) != 1:
                return None
            expr = arms[0]
        if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
            path = held.lift.path(expr.func.value)
            if expr.func.attr == "scale" and path is not None:
                is_one = held.is_scaler(path) and held.identity(path) == held.identity(scaler)
                return Use(path, "scale", expr, place, scene) if is_one else None
            if expr.func.attr in ("item", "detach", "cpu", "float", "mean", "sum", "clone", "numpy"):
                expr = expr.func.value
                continue
            return None
        path = held.lift.path(expr)
        if path is None:
            return None
        before = [d for d in scene.definitions.get(path, ()) if d.place.site < place.site]
        if not before or before[-1].value is None or before[-1].grows:
            return None
        if any(d.place.loops != before[-1].place.loops for d in before):
            return None
        expr, place = before[-1].value, before[-1].place
    return None


# -- comparing a scale with itself ----------------------------------------------------------------------------


def _same(ctx: Context, held: Held, usage: Usage, scene: Scene, updates: list[Use]) -> Iterator[Report]:
    """`before < after` where both were read on the same side of update()."""
    nodes, code = ctx.model.tree.nodes, ctx.model.tree.code
    for place in scene.places:
        for compare in (e for whole in walk.own(place.stmt) for e in walk.inside(whole)):
            if not isinstance(compare, ir.Compare) or compare.op not in _ORDERS:
                continue
            reads = [_when(held, scene, side, place) for side in (compare.left, compare.right)]
            if reads[0] is None or reads[1] is None:
                continue
            (one, scaler, first), (two, other, second) = sorted(
                (r for r in reads if r is not None), key=lambda r: r[0]
            )
            if held.identity(scaler) != held.identity(other) or one == two:
                continue
            own = [use for use in updates if held.identity(use.scaler) == held.identity(scaler)]
            near = [use for use in own if use.place.loops == place.loops]
            if not near or any(one < use.call.site < two for use in own):
                continue
            if first.loops != place.loops or second.loops != place.loops:
                continue
            if _may_update(held, usage, scene, scaler, one, two):
                continue
            late = all(use.call.site < one for use in near)
            if not late and not all(use.call.site > two for use in near):
                continue
            side = "after" if late else "before"
            yield Report(
                nodes[one if late else two],
                f"both scales that `{code(nodes[compare.site])}` compares are read {side} update(), so they are the "
                "same and never tell that a step was skipped",
                confidence=Confidence.MEDIUM,
                trace=[
                    (nodes[one], "the scale is read here"),
                    (nodes[two], "and here"),
                    (nodes[near[0].call.site], "it changes here"),
                    (nodes[compare.site], "they are compared here"),
                ],
                fix=lambda: _BOTH,
            )


def _when(held: Held, scene: Scene, expr: ir.Expr, place: Place) -> tuple[int, c.Path, Place] | None:
    """Where the scale that `expr` holds was read, and of which scaler."""
    scaler = _read(held, expr)
    if scaler is not None:
        return expr.site, scaler, place
    path = held.lift.path(expr)
    found = scene.definitions.get(path, []) if path is not None else []
    if (
        len(found) != 1
        or found[0].value is None
        or found[0].grows
        or not found[0].place.is_sure_before(place)
    ):
        return None
    scaler = _read(held, found[0].value)
    return (found[0].value.site, scaler, found[0].place) if scaler is not None else None


def _may_update(held: Held, usage: Usage, scene: Scene, scaler: c.Path, start: int, end: int) -> bool:
    """Whether a call between the two reads may update the scaler: one that is handed it or that hides it."""
    wanted = held.identity(scaler)
    for call, _ in scene.calls:
        if not start < call.site < end or _read(held, call):
            continue
        called = held.callee(call, scene.function.owner)
        if called is not None and any(use.scene.name == called for use in usage.of("update")):
            return True
        if isinstance(call.func, ir.Attr):
            path = held.lift.path(call.func.value)
            if path is not None and held.identity(path) == wanted:
                continue
            if path is not None and (path[0].endswith(".self") or held.concerns(path)):
                return True
        handed = (p for arg in call.args for p in held.handed(arg.value))
        if any(held.identity(path) == wanted or path[0].endswith(".self") for path in handed):
            return True
    return False


RULE = Rule(
    code="AMP223",
    name="scale-read-after-update",
    summary="get_scale() is read on the wrong side of update()",
    severity=Severity.WARNING,
    check=check,
    words=("get_scale",),
    shape=shapes.scale_read_after_update,
    confidence=Confidence.MEDIUM,
    module=__name__,
)
