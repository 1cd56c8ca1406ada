"""What code does past a framework's object that owns a scaler: backwards, clips and steps that it does not see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from amplint.finding import Confidence
from amplint.rule import Context, Report
from amplint_rules.scaler import trainers
from amplint_rules.scaler.owners import (
    Owner,
    Owners,
    argument,
    called_on,
    in_one_mode,
    is_plain_backward,
    is_same,
    last,
    may_both_run,
    methods,
    owners,
    scalings,
    steps,
)

_TORCH_CLIPS = ("clip_grad_norm_", "clip_grad_value_")
_RAW_CLIPS = tuple(f"torch.nn.utils{part}.{name}" for part in ("", ".clip_grad") for name in _TORCH_CLIPS)
_SCALER = ("scale", "step", "unscale_", "update")


def unguarded_clips(ctx: Context) -> Iterable[Report]:
    """Clips by an owner, or by an optimizer that it prepared, on micro-steps that do not step.

    There the scaler is not updated, and the next clip raises.
    """
    found = owners(ctx)
    for call in methods(ctx, (clip.rpartition(".")[2] for clip in found.columns("clips"))):
        name = called_on(ctx, call)
        owner = found.made.get(name)
        if owner is None:
            yield from _clips_without_step(ctx, call, found)
            continue
        if not owner.accumulates or owner.row["synced"] in ctx.model.tree.text:
            continue
        reason = f"put the clip under `if {name}.{owner.row['synced']}:`, with what uses its result"
        yield Report(
            call,
            f"{_written(call)} unscales the gradients on every micro-step, whether or not {name} synchronises: "
            "with fp16 the second one of a window raises",
            confidence=Confidence.MEDIUM,
            trace=[
                (owner.made, "gradients are accumulated over several micro-steps"),
                (call, f"unscaled and clipped here without a test of {owner.row['synced']}"),
            ],
            fix=lambda reason=reason: reason,  # type: ignore[misc]
        )


def _clips_without_step(ctx: Context, call: cst.Call, found: Owners) -> Iterator[Report]:
    """A clip by a prepared optimizer, beside an `if` in which alone that optimizer steps."""
    tree = ctx.model.tree
    for part, owner in found.prepared:
        clips = owner.methods("clips")
        if f"optimizer.{last(call)}" not in clips or owner.scales is not True or not is_same(ctx, call, part):
            continue
        if argument(owner.made, owner.methods("precision")[0]) is None:
            continue  # a plugin scales, and its optimizer has clips of its own
        own = [step for step, _ in steps(ctx, call, found) if called_on(ctx, step) == called_on(ctx, call)]
        branch = next((a for a in tree.ancestors(own[0]) if isinstance(a, cst.If)), None) if own else None
        if len(own) != 1 or branch is None or tree.parent(branch) is not tree.parent(tree.statement(call)):
            continue
        if branch.orelse is not None or tree.number(branch) < tree.number(call):
            continue
        yield Report(
            call,
            f"{_written(call)} unscales the gradients on every micro-step, and {called_on(ctx, call)} steps only "
            "on some: with fp16 the second one of a window raises",
            confidence=owner.confidence,
            trace=[(call, "unscaled and clipped on every micro-step"), (own[0], "stepped only on some")],
            fix=lambda: "clip where the step is taken, with what uses its result",
        )
        return


def bypasses(ctx: Context) -> Iterable[Report]:
    """Plain backwards for what an owner steps, calls of its own scaler, and scalers beside it."""
    found = owners(ctx)
    yield from trainers.bypasses(ctx, found)
    if not found.made:
        return
    for call in methods(ctx, ("backward",)):
        if not is_plain_backward(ctx, call, found):
            continue
        step, owner = next(steps(ctx, call, found), (None, None))
        if step is None or owner is None or not owner.may_scale:
            continue
        if _is_left_to_plain_torch(ctx, call, owner, found):
            continue
        name, stepped = owner.name, called_on(ctx, step)
        whose = "" if stepped == name else f" is one of {name}: with fp16 it"
        unscales = " divides the gradients by the loss scale" + ("" if whose else ", with fp16")
        yield Report(
            call,
            f"this loss is not scaled, but {stepped}.step(){whose}{unscales}; "
            f"{name}.{owner.row['backward']} scales",
            confidence=owner.confidence,
            trace=[
                (owner.made, f"{name} owns the scaler"),
                (call, "plain backward"),
                (step, "and its step"),
            ],
            fix=lambda name=name, method=owner.row["backward"]: f"scale with {name}.{method}",  # type: ignore[misc]
        )
    for call in methods(ctx, _SCALER):
        called = called_on(ctx, call)
        own = [n for n, owner in found.made.items() for s in owner.methods("scaler") if called == f"{n}.{s}"]
        if called not in found.scalers and not own:
            continue
        name, owner = (own[0], found.made[own[0]]) if own else next(iter(found.made.items()))
        yield Report(
            call,
            f"{called} belongs to {name}, which calls it itself: this {_written(call)} is one too many",
            confidence=owner.confidence,
            trace=[(owner.made, f"{name} owns the scaler")],
            fix=lambda name=name: f"leave the scaler to {name}",  # type: ignore[misc]
        )
    yield from _other_scalers(ctx, found)


def _is_left_to_plain_torch(ctx: Context, call: cst.Call, owner: Owner, found: Owners) -> bool:
    """Whether a plain backward may be one of several, of which its owner scales what it steps with."""
    scaled = [other for other, whose in scalings(ctx, call, found) if whose.name == owner.name]
    if owner.form == "engine" or owner.confidence is Confidence.LOW:
        return bool(scaled)  # of a model beside it, or scaled in a way of their own
    return any(not may_both_run(ctx, call, other) for other in scaled)


def _other_scalers(ctx: Context, found: Owners) -> Iterator[Report]:
    """Steps of an engine with gradients that a scaler of torch's scaled, which nothing else in the file steps."""
    for scale in methods(ctx, ("scale",)):
        scaler = called_on(ctx, scale)
        step, owner = next(
            ((s, o) for s, o in steps(ctx, scale, found) if o.form == "engine" and o.name != scaler),
            (None, None),
        )
        if step is None or owner is None or not trainers.scales_alone(ctx, scale):
            continue
        yield Report(
            step,
            f"{owner.name}.step() uses gradients that are still multiplied by the loss scale of {scaler}: "
            f"{owner.name} scales and unscales by itself, and knows nothing of {scaler}",
            confidence=Confidence.MEDIUM,
            trace=[
                (owner.made, f"{owner.name} owns a scaler, where there is one"),
                (scale, f"scaled here by {scaler}"),
                (step, "and stepped here without unscaling"),
            ],
            fix=lambda name=owner.name, method=owner.row["backward"]: f"scale with {name}.{method}",  # type: ignore[misc]
        )


def raw_clips(ctx: Context) -> Iterable[Report]:
    """torch's clipping of gradients that an owner has scaled."""
    found = owners(ctx)
    names, tree = ctx.model.names, ctx.model.tree
    yield from trainers.raw_clips(ctx, found, _RAW_CLIPS)
    if any(word in tree.text for word in found.columns("unscale")):
        return
    for call in tree.of_type(cst.Call) if found.made else ():
        if not any(name in _RAW_CLIPS for name in names.resolve(call.func)):
            continue
        for scaled, owner in scalings(ctx, call, found):
            whose = [step for step, other in steps(ctx, call, found) if other.name == owner.name]
            if not whose or not owner.may_scale or _clips_others(ctx, call, owner, found):
                continue
            if not in_one_mode(ctx, call, scaled):
                continue
            yield _raw_clip(ctx, call, scaled, whose[0], owner)
            break


def _raw_clip(ctx: Context, call: cst.Call, scaled: cst.Call, step: cst.Call, owner: Owner) -> Report:
    by = called_on(ctx, scaled)
    clips = owner.methods("clips")
    own = last(call) if last(call) in clips else next(iter(clips), "")
    clipper = called_on(ctx, step) if own.startswith("optimizer.") else owner.name
    advice = f"{clipper}.{own.removeprefix('optimizer.')} unscales first"
    fix = f"clip with {clipper}'s own method"
    if owner.row["clipping"]:
        advice = f"{owner.row['clipping']} in the configuration of {clipper} clips after it has unscaled"
        fix = f"let {clipper} clip: set {owner.row['clipping']} in its configuration"
    return Report(
        call,
        f"{_written(call)} of torch acts on gradients that {by}.{last(scaled)} has scaled (with fp16); {advice}",
        confidence=owner.confidence,
        trace=[(scaled, "the loss is scaled here, and so are its gradients"), (call, "clipped here")],
        fix=lambda: fix,
    )


def _clips_others(ctx: Context, call: cst.Call, owner: Owner, found: Owners) -> bool:
    """Whether a clip beside an engine may be of a model that is stepped without it, or too late to matter."""
    if owner.form != "engine":
        return False
    names, tree = ctx.model.names, ctx.model.tree
    backwards = [
        other
        for other in methods(ctx, ("backward",))
        if names.scope_of(other) is names.scope_of(call) and is_plain_backward(ctx, other, found)
    ]
    first = tree.code(call.args[0].value) if call.args else ""
    return bool(backwards) and not first.startswith(f"{owner.name}.")


def _written(call: cst.Call) -> str:
    return f"{last(call)}()" if last(call) == "update" else last(call)
