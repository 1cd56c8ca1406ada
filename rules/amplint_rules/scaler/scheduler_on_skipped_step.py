"""A learning rate scheduler goes on at each step, also where the scaler skipped the optimizer's step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from amplint.finding import Severity
from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.held import Held, objects_of
from amplint.flow.lift import last, names
from amplint.flow.placement import Place, Scene
from amplint.flow.usage import Usage, Use, usage_of
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

_NAMED = re.compile(r"sched|warmup|lr_?(decay|sched)", re.IGNORECASE)
_MADE = re.compile(r"^get_.*schedule|^get_scheduler$|Scheduler$")
#: These step by a metric, or by their own knowledge of the optimizer.
_OTHERS = ("ReduceLROnPlateau", "AcceleratedScheduler")
#: Any of these is a look at whether the step was taken.
_LOOKS = re.compile(r"_step_count|found_inf|was_run|skipp?ed|overflow|_step_called|step_taken|did_step")
_SCALES = ("get_scale", "_scale")
#: Schedulers of other things.
_NO_LR = re.compile(
    r"noise|ddim|ddpm|diffusion|profil|prof$|ema|teacher|momentum_sched|wd_sched|beta", re.IGNORECASE
)
_REASON = "step the scheduler only where update() did not lower get_scale(); whether it matters is a choice"


def check(ctx: Context) -> Iterable[Report]:
    """Report schedulers that step as often as the scaler does, whatever the scaler did."""
    held = objects_of(ctx.model)
    usage = usage_of(ctx.model, held)
    nodes, code = ctx.model.tree.nodes, ctx.model.tree.code
    if any(map(_knows_of_skips, usage.scenes)):
        return
    for scene in usage.scenes:
        steps = list(_steps(held, usage, scene, 0))
        for call, place in scene.calls:
            scheduler = _scheduler(held, call)
            if scheduler is None:
                continue
            for use, where in steps:
                if _as_often(held, scheduler, place, where) and _is_per_step(held, usage, scene, place):
                    assert isinstance(use.call.func, ir.Attr) and isinstance(call.func, ir.Attr)
                    scaler = code(nodes[use.call.func.value.site])
                    yield Report(
                        nodes[call.site],
                        f"`{code(nodes[call.func.value.site])}` also steps where {scaler} found inf and skipped the "
                        "optimizer's step: the schedule runs ahead",
                        trace=[(nodes[use.call.site], "this step may be skipped")],
                        fix=lambda: _REASON,
                    )
                    break


def _knows_of_skips(scene: Scene) -> bool:
    """Whether a function compares scales, or counts the steps that were taken."""
    for expr in walk.expressions(scene.function.body):
        if _LOOKS.search(last(expr)):
            return True
        if isinstance(expr, ir.Compare) and any(last(e) in _SCALES for e in scene.origins(expr)):
            return True
    return False


def _steps(held: Held, usage: Usage, scene: Scene, depth: int) -> Iterator[tuple[Use, Place]]:
    """The steps of scalers that a function takes, itself or in a function of this file that it calls."""
    for use in usage.of("step"):
        if use.scene is scene and usage.may_scale(use.scaler, use.call):
            yield use, use.place
    if depth > 1:
        return
    for call, place in scene.calls:
        called = held.callee(call, scene.function.owner)
        if called is not None and called in held.functions and called != scene.name:
            for use, inner in _steps(held, usage, usage.scene(called), depth + 1):
                if not inner.loops and not inner.tests:
                    yield use, place


def _scheduler(held: Held, call: ir.Call) -> c.Path | None:
    """The scheduler whose `step()` a call is."""
    if not isinstance(call.func, ir.Attr) or call.func.attr != "step" or call.args or names(call.func):
        return None
    path = held.lift.path(call.func.value)
    if path is None:
        return None
    written = path[-1].rpartition(":")[2]
    if _NO_LR.search(written):
        return None
    made = [
        b.value for origin in held.origins(path) for b in held.values(origin) if isinstance(b.value, ir.Call)
    ]
    if any(last(value.func) in _OTHERS for value in made):
        return None
    if any(_is_scheduler(value) for value in made):
        return path
    return path if _NAMED.search(written) and not held.owned(path) else None


def _is_scheduler(call: ir.Call) -> bool:
    if any(name.startswith("torch.optim.lr_scheduler.") for name in names(call.func)):
        return True
    called = (last(call.func), *(name.rpartition(".")[2] for name in names(call.func)))
    return any(_MADE.search(name) for name in called)


def _as_often(held: Held, scheduler: c.Path, place: Place, step: Place) -> bool:
    """Whether the two stand in one loop, the scheduler under no test but those of the step and about itself."""
    if place.loops != step.loops or place.excludes(step):
        return False
    own = [test for test, _ in step.tests]
    for test, _ in place.tests:
        if test in own:
            continue
        paths = {held.lift.path(e) for e in walk.inside(test.test)}
        if scheduler not in paths:
            return False
    return True


def _is_per_step(held: Held, usage: Usage, scene: Scene, place: Place) -> bool:
    """Whether this is a loop over batches, or a function that does one of them."""
    if place.loops:
        return True
    called = [
        where
        for other in usage.scenes
        for call, where in other.calls
        if held.callee(call, other.function.owner) == scene.name
    ]
    return bool(scene.name) and (not called or any(where.loops for where in called))


RULE = Rule(
    code="AMP215",
    name="scheduler-on-skipped-step",
    summary="a learning rate scheduler steps although the scaler may have skipped the optimizer's step",
    severity=Severity.INFO,
    check=check,
    words=(".scale", "unscale_", "GradScaler"),
    shape=shapes.scheduler_on_skipped_step,
    off_by_default=True,
    module=__name__,
)
