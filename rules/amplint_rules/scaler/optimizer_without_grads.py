"""`scaler.step` of an optimizer whose parameters may have got no gradient, which is an AssertionError."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from amplint.finding import Confidence, Severity
from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.held import Held, objects_of
from amplint.flow.lift import last, names, without_scale
from amplint.flow.objects import backward_losses
from amplint.flow.placement import Definition, Place, Scene
from amplint.flow.usage import Usage, Use, usage_of
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

_FRESH = ("zeros", "ones", "tensor", "full", "empty", "zeros_like", "ones_like", "full_like", "scalar_tensor")
#: What still is the loss, and has no gradient of its own to offer.
_KEEPS = ("mean", "sum", "float", "to", "cuda", "squeeze", "reshape", "view")
#: Looks at whether there are gradients, or at what the loss is connected to.
_GUARDS = ("grad", "requires_grad", "grad_fn", "is_leaf")
_LOSS = (
    "return a zero that is connected to the model (prediction.sum() * 0), or skip the step and the update for "
    "such a batch: which, is a choice"
)
_ORDER = "make the optimizer after the module that it is to train"


@dataclass(frozen=True, slots=True)
class _Fresh:
    """A tensor made on the spot, with `requires_grad`, that may be the loss; `why` tells how it may be."""

    site: int
    confidence: Confidence


def check(ctx: Context) -> Iterable[Report]:
    """Report losses that may be connected to nothing, and optimizers of modules that are replaced later."""
    held = objects_of(ctx.model)
    usage = usage_of(ctx.model, held)
    steps = [use for use in usage.of("step") if usage.may_scale(use.scaler, use.call) and use.call.args]
    if not steps:
        return
    reported: set[int] = set()
    for use, backward, fresh in _constant_losses(held, usage, steps):
        if fresh.site not in reported:
            reported.add(fresh.site)
            yield _constant(ctx, use, backward, fresh)
    yield from _replaced(ctx, held, usage, steps)


def _constant(ctx: Context, use: Use, backward: ir.Call, fresh: _Fresh) -> Report:
    nodes = ctx.model.tree.nodes
    assert isinstance(use.call.func, ir.Attr)
    scaler = ctx.model.tree.code(nodes[use.call.func.value.site])
    return Report(
        nodes[fresh.site],
        "this tensor is connected to no parameter: where it is the loss, no gradient is computed, and "
        f"{scaler}.step raises an AssertionError",
        confidence=fresh.confidence,
        trace=[
            (nodes[backward.site], "the loss that this may be is differentiated here"),
            (nodes[use.call.site], "nothing to check for inf: this raises"),
        ],
        fix=lambda: _LOSS,
    )


# -- losses that are made on the spot ------------------------------------------------------------------------


def _constant_losses(held: Held, usage: Usage, steps: list[Use]) -> Iterator[tuple[Use, ir.Call, _Fresh]]:
    for scene in usage.scenes:
        for call, place in scene.calls:
            for loss in backward_losses(call):
                if not (isinstance(loss, ir.Call) or held.lift.path(loss) is not None):
                    continue
                use = _step_of(held, scene, call, loss, steps)
                if use is None or _is_guarded(held, scene, place, use, loss):
                    continue
                for fresh in _made(held, usage, scene, without_scale(loss), place, 0):
                    yield use, call, fresh


def _step_of(held: Held, scene: Scene, call: ir.Call, loss: ir.Expr, steps: list[Use]) -> Use | None:
    """The step that uses the gradients of a scaled loss."""
    scalers = [e for e in scene.origins(loss) if isinstance(e, ir.Call) and last(e.func) == "scale"]
    for scale in scalers:
        path = held.lift.path(scale.func.value) if isinstance(scale.func, ir.Attr) else None
        if path is None or not held.is_scaler(path):
            continue
        own = [use for use in steps if held.identity(use.scaler) == held.identity(path)]
        same = [use for use in own if use.scene is scene and use.call.site > call.site]
        if same:
            return same[0]
    return None


def _is_guarded(held: Held, scene: Scene, backward: Place, use: Use, loss: ir.Expr) -> bool:
    """Whether a test around, or one that leaves before, asks about the loss or about gradients."""
    paths = set(scene.closure(without_scale(loss))) & _assigned_losses(scene, loss)
    own = held.lift.path(without_scale(loss))
    if own is not None:
        paths.add(own)
    for place in scene.places:
        stmt = place.stmt
        if not isinstance(stmt, (ir.If, ir.While)):
            continue
        about = any(
            held.lift.path(e) in paths or (isinstance(e, ir.Attr) and e.attr in _GUARDS)
            for e in walk.inside(stmt.test)
        )
        if about and stmt.site < use.place.site:
            return True
    return False


def _assigned_losses(scene: Scene, loss: ir.Expr) -> set[c.Path]:
    return {path for path in scene.closure(loss) if "loss" in path[-1].lower()}


def _made(
    held: Held, usage: Usage, scene: Scene, expr: ir.Expr, place: Place, depth: int
) -> Iterator[_Fresh]:
    """The tensors made on the spot that `expr` may be where `place` stands."""
    if depth > 5:
        return
    if _is_fresh(held, expr):
        if depth:
            yield _Fresh(expr.site, Confidence.MEDIUM)
        return
    if isinstance(expr, ir.IfExp):
        for part in (expr.body, expr.orelse):
            yield from _made(held, usage, scene, part, place, depth + 1)
    elif isinstance(expr, ir.Binary) and expr.op in ("/", "*") and _is_factor(held, expr.right):
        yield from _made(held, usage, scene, expr.left, place, depth)
    elif isinstance(expr, ir.Call):
        if isinstance(expr.func, ir.Attr) and expr.func.attr in _KEEPS and not names(expr.func):
            yield from _made(held, usage, scene, expr.func.value, place, depth)
            return
        called = held.callee(expr, scene.function.owner)
        if called is not None and called in held.functions:
            yield from _returned(held, usage, usage.scene(called), depth + 1)
    else:
        path = held.lift.path(expr)
        if path is not None and len(path) == 1:
            yield from _variable(held, usage, scene, path, place, depth)


def _is_factor(held: Held, expr: ir.Expr) -> bool:
    return isinstance(expr, (ir.Const, ir.Name, ir.Attr, ir.Subscript)) or (
        isinstance(expr, ir.Call) and last(expr.func) in ("len", "float", "int", "max")
    )


def _returned(held: Held, usage: Usage, scene: Scene, depth: int) -> Iterator[_Fresh]:
    """What a function of this file may return; one that only ever returns such a tensor is a stub."""
    returns = [place for place in scene.places if isinstance(place.stmt, ir.Return)]
    values = [p.stmt.value for p in returns if isinstance(p.stmt, ir.Return)]
    if all(value is not None and _is_fresh(held, value) for value in values):
        return
    for value, place in zip(values, returns, strict=True):
        if value is not None:
            yield from _made(held, usage, scene, value, place, depth)


def _variable(
    held: Held, usage: Usage, scene: Scene, path: c.Path, place: Place, depth: int
) -> Iterator[_Fresh]:
    """What of a variable's values may still be there at `place`."""
    found = [d for d in scene.definitions.get(path, ()) if d.place.site < place.site]
    for definition in found:
        if definition.value is None or definition.grows:
            continue
        if _is_overwritten(definition, found, place):
            continue
        others = [d for d in found if d is not definition]
        if _is_fresh(held, definition.value):
            if others and _may_stay(scene, path, definition, others, place):
                yield _Fresh(definition.value.site, _confidence(scene, path, definition, others))
            continue
        yield from _made(held, usage, scene, definition.value, definition.place, depth + 1)


def _is_overwritten(definition: Definition, found: list[Definition], place: Place) -> bool:
    """Whether another assignment surely comes between."""
    return any(
        other.place.site > definition.place.site
        and other.place.is_sure_before(place)
        and not other.grows
        and other is not definition
        for other in found
    )


def _may_stay(
    scene: Scene, path: c.Path, definition: Definition, others: list[Definition], place: Place
) -> bool:
    """Whether nothing that surely runs later adds something connected."""
    return not any(
        other.place.is_sure_before(place) and other.place.site > definition.place.site for other in others
    )


def _confidence(scene: Scene, path: c.Path, definition: Definition, others: list[Definition]) -> Confidence:
    """Low for a sum that starts so: that there are no terms at all is rare."""
    adds = any(
        other.grows or (other.value is not None and path in set(scene.reads(other.value))) for other in others
    )
    return Confidence.LOW if adds else Confidence.MEDIUM


def _is_fresh(held: Held, expr: ir.Expr) -> bool:
    """`torch.zeros(.., requires_grad=True)`, and the same with `requires_grad_()`."""
    if not isinstance(expr, ir.Call):
        return False
    if isinstance(expr.func, ir.Attr) and expr.func.attr == "requires_grad_" and not names(expr.func):
        off = expr.args and isinstance(expr.args[0].value, ir.Const) and expr.args[0].value.value is False
        return not off and _is_constant(expr.func.value)
    if isinstance(expr.func, ir.Attr) and expr.func.attr in ("to", "cuda", "float") and not names(expr.func):
        return False  # the copy on another device hangs on a leaf, which is no parameter either; not certain
    needs = any(
        arg.keyword == "requires_grad" and isinstance(arg.value, ir.Const) and arg.value.value is True
        for arg in expr.args
    )
    return needs and _is_constant(expr)


def _is_constant(expr: ir.Expr) -> bool:
    while isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr) and expr.func.attr in _KEEPS:
        if names(expr.func):
            break
        expr = expr.func.value
    if not isinstance(expr, ir.Call):
        return False
    called = names(expr.func)
    if called:
        return all(name in {f"torch.{fresh}" for fresh in _FRESH} for name in called)
    return isinstance(expr.func, ir.Attr) and expr.func.attr in (
        "new_zeros",
        "new_tensor",
        "new_full",
        "new_ones",
    )


# -- optimizers of what is replaced --------------------------------------------------------------------------


def _replaced(ctx: Context, held: Held, usage: Usage, steps: list[Use]) -> Iterator[Report]:
    """An optimizer made of a module's parameters before another module takes that one's place."""
    nodes = ctx.model.tree.nodes
    for scene in usage.scenes:
        for optimizer, definitions in scene.definitions.items():
            owned = held.owned(optimizer)
            own = [use for use in steps if held.lift.path(use.call.args[0].value) == optimizer]
            if owned is None or len(definitions) != 1 or not own or len(owned) != 1:
                continue
            made = definitions[0]
            for later in scene.definitions.get(owned[0], ()):
                if later.place.around != made.place.around or later.place.site <= made.place.site:
                    continue
                if not _is_new(held, scene, owned[0], later) or own[0].call.site < later.place.site:
                    continue
                module = _written(owned[0])
                trace: list[tuple[cst.CSTNode, str]] = [
                    (nodes[later.place.site], f"`{module}` is another module from here on"),
                    (nodes[own[0].call.site], "no parameter of the optimizer has a gradient: this raises"),
                ]
                assert made.value is not None
                yield Report(
                    nodes[made.value.site],
                    f"the optimizer has the parameters of a `{module}` that is replaced afterwards: they get no "
                    "gradient, and the scaler's step raises an AssertionError",
                    confidence=Confidence.MEDIUM,
                    trace=trace,
                    fix=lambda: _ORDER,
                )


def _written(path: c.Path) -> str:
    root = "self" if path[0].endswith(".self") else path[0].rpartition(":")[2]
    return ".".join([root, *path[1:]])


def _is_new(held: Held, scene: Scene, path: c.Path, later: Definition) -> bool:
    """Whether a module is made that shares nothing with the one before."""
    value = later.value
    if not isinstance(value, ir.Call) or later.grows:
        return False
    if names(value.func) in (("copy.deepcopy",), ("copy.copy",)):
        return names(value.func) == ("copy.deepcopy",)
    if path in set(scene.closure(*(arg.value for arg in value.args))) or any(arg.star for arg in value.args):
        return False
    chain = value
    while isinstance(chain.func, ir.Attr) and isinstance(chain.func.value, ir.Call):
        chain = chain.func.value
    if isinstance(chain.func, ir.Attr) and held.lift.path(chain.func.value) == path:
        return False
    return last(chain.func)[:1].isupper() and not _is_wrapper(last(chain.func))


def _is_wrapper(name: str) -> bool:
    return "Parallel" in name or "Wrap" in name or name in ("DDP", "FSDP", "EMA", "Compiled")


RULE = Rule(
    code="AMP224",
    name="optimizer-without-grads",
    summary="scaler.step of an optimizer that may have got no gradient",
    severity=Severity.WARNING,
    check=check,
    words=(".scale", "unscale_", "GradScaler"),
    shape=shapes.optimizer_without_grads,
    confidence=Confidence.MEDIUM,
    module=__name__,
)
