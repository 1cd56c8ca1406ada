"""A gradient penalty is built from the gradients of a scaled loss, without dividing by the scale."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from amplint.finding import Confidence, Severity
from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.held import Held, objects_of
from amplint.flow.lift import last, names, without_scale
from amplint.flow.objects import backward_losses
from amplint.flow.placement import Scene
from amplint.flow.usage import Usage, usage_of
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

_GRAD = ("torch.autograd.grad", "torch.autograd.autograd.grad")
_SCALE = re.compile(r"get_scale|_scale$|^scale$|unscale|inv_|loss_scale")
#: What these give does not depend on how long the gradient is.
_NORMALIZES = ("normalize", "cosine_similarity", "sign")
_REASON = (
    "divide the gradients by get_scale() where they are taken, or take them of the loss before it is scaled"
)


@dataclass(frozen=True, slots=True)
class _Taken:
    """Gradients of something scaled; `scale` is the call of `scaler.scale`."""

    call: ir.Call
    scaler: ir.Expr
    scale: int


def check(ctx: Context) -> Iterable[Report]:
    """Report each `autograd.grad` of a scaled loss that a loss is computed from as it is."""
    held = objects_of(ctx.model)
    usage = usage_of(ctx.model, held)
    nodes = ctx.model.tree.nodes
    for scene in usage.scenes:
        for taken in _taken(held, usage, scene):
            used = _used(scene, taken.call)
            if used is None:
                continue
            site, text, confidence = used
            scaler = ctx.model.tree.code(nodes[taken.scaler.site])
            trace: list[tuple[cst.CSTNode, str]] = [
                (nodes[taken.scale], f"{scaler} scales what is differentiated")
            ]
            trace.append((nodes[site], text))
            yield Report(
                nodes[taken.call.site],
                f"these gradients are multiplied by the scale of {scaler}, and so is the penalty that is computed "
                f"from them; divide them by {scaler}.get_scale() first",
                confidence=confidence,
                trace=trace,
                fix=lambda: _REASON,
            )


def _taken(held: Held, usage: Usage, scene: Scene) -> Iterator[_Taken]:
    for call, _ in scene.calls:
        if not any(name in _GRAD for name in names(call.func)):
            continue
        given = {arg.keyword: arg.value for arg in call.args if arg.keyword is not None}
        positional = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
        graph = given.get("create_graph")
        if graph is None or (isinstance(graph, ir.Const) and not graph.value):
            continue
        outputs = given.get("outputs", positional[0] if positional else None)
        wrt = given.get("grad_outputs", positional[2] if len(positional) > 2 else None)
        for expr in (outputs, wrt):
            found = _scaling(held, usage, scene, expr, 0) if expr is not None else None
            if found is not None:
                yield _Taken(call, *found)
                break


def _scaling(held: Held, usage: Usage, scene: Scene, expr: ir.Expr, depth: int) -> tuple[ir.Expr, int] | None:
    """The scaler, and the call of its `scale`, that `expr` is the product of."""
    if depth > 4:
        return None
    if isinstance(expr, ir.Call):
        func = expr.func
        if isinstance(func, ir.Attr) and func.attr == "scale" and expr.args:
            path = held.lift.path(func.value)
            is_one = path is not None and held.is_scaler(path) and usage.may_scale(path, expr)
            return (func.value, expr.site) if is_one else None
        if isinstance(func, ir.Attr) and func.attr in ("sum", "mean", "float"):
            return _scaling(held, usage, scene, func.value, depth + 1)
        return None
    if isinstance(expr, ir.Items):
        found = [_scaling(held, usage, scene, item, depth + 1) for item in expr.items]
        return found[0] if found and all(found) else None
    path = held.lift.path(expr)
    if path is None:
        return None
    values = scene.definitions.get(path, [])
    if values:
        before = [d for d in values if d.place.site < expr.site]
        latest = before[-1].value if before else None
        return _scaling(held, usage, scene, latest, depth + 1) if latest is not None else None
    if held.is_param(path) and path[0].startswith(f"{scene.name}:"):
        given, complete = held.given(path)
        found = [_scaling(held, usage, scene, value, depth + 1) for value in given]
        return found[0] if complete and found and all(found) else None
    return None


def _used(scene: Scene, taken: ir.Call) -> tuple[int, str, Confidence] | None:
    """Where the gradients go into a loss with nothing dividing them; None where that is not seen."""
    lift = scene.held.lift
    tainted: set[c.Path] = set()
    scales = _scales(scene)

    own = {id(e) for e in walk.inside(taken)}

    def is_clean(expr: ir.Expr) -> bool:
        return any(
            (isinstance(e, (ir.Name, ir.Attr)) and (_SCALE.search(last(e)) or last(e) in _NORMALIZES))
            or lift.path(e) in scales
            for e in walk.inside(expr)
            if id(e) not in own
        )

    def carries(expr: ir.Expr) -> bool:
        return any(
            e is taken or ((p := lift.path(e)) is not None and p in tainted) for e in walk.inside(expr)
        )

    for place in scene.places:
        stmt = place.stmt
        for whole in walk.own(stmt):
            for expr in walk.inside(whole):
                if not isinstance(expr, ir.Call):
                    continue
                for loss in backward_losses(expr):
                    plain = without_scale(loss)
                    if plain is not taken and carries(plain) and not is_clean(plain):
                        return expr.site, "the penalty is part of this loss", Confidence.HIGH
        result = stmt.value if isinstance(stmt, ir.Return) else None
        if result is not None and carries(result) and not is_clean(result) and _computes(scene, result):
            return stmt.site, "the penalty is returned", Confidence.MEDIUM
        if isinstance(stmt, ir.For) and carries(stmt.iterable):
            tainted.update(p for e in walk.inside(stmt.target) if (p := lift.path(e)) is not None)
        if not isinstance(stmt, (ir.Assign, ir.AugAssign)) or stmt.value is None:
            continue
        value = stmt.value
        targets = stmt.targets if isinstance(stmt, ir.Assign) else (stmt.target,)
        paths = {p for t in targets for e in walk.inside(t) if (p := lift.path(e)) is not None}
        if carries(value):
            if is_clean(value):
                tainted -= paths
                continue
            tainted |= paths
        elif isinstance(stmt, ir.Assign) or is_clean(value):
            tainted -= paths
    return None


def _scales(scene: Scene) -> set[c.Path]:
    """Variables that are computed from the scale."""
    found: set[c.Path] = set()
    for path, definitions in scene.definitions.items():
        for definition in definitions:
            value = definition.value
            if value is not None and any(
                isinstance(e, ir.Attr) and e.attr in ("get_scale", "_scale", "_get_scale_async")
                for e in walk.inside(value)
            ):
                found.add(path)
    return found


def _computes(scene: Scene, value: ir.Expr) -> bool:
    """Whether a value is computed from the gradients, rather than being them."""
    if scene.held.lift.path(value) is None:
        return True
    found = scene.definitions.get(scene.held.lift.path(value) or (), [])
    return any(
        isinstance(d.value, ir.Binary)
        or (isinstance(d.value, ir.Call) and not any(n in _GRAD for n in names(d.value.func)))
        for d in found
    )


RULE = Rule(
    code="AMP222",
    name="grad-penalty-scaled",
    summary="a gradient penalty is computed from scaled gradients",
    severity=Severity.ERROR,
    check=check,
    words=("create_graph",),
    shape=shapes.grad_penalty_scaled,
    module=__name__,
)
