"""What code does past accelerate's wrappers, which own a scaler that no code of the file touches.

`Accelerator.backward` scales the loss, `clip_grad_norm_` unscales first, and a prepared optimizer's `step` is the
scaler's `step` and `update` (accelerate 1.x: accelerator.py and optimizer.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from amplint.finding import Confidence
from amplint.rule import Context, Report

_CLASSES = ("accelerate.Accelerator", "accelerate.accelerator.Accelerator")
_CLIPS = ("clip_grad_norm_", "clip_grad_value_")
_RAW_CLIPS = tuple(f"torch.nn.utils{part}.{name}" for part in ("", ".clip_grad") for name in _CLIPS)
_SCALER = ("scale", "step", "unscale_", "update")
#: Precisions in which accelerate makes no scaler.
_UNSCALED = ("no", "bf16", "fp8")


@dataclass(slots=True)
class _Accelerators:
    """The Accelerators of a file, by how they are written."""

    #: As written -> the call that makes it.
    made: dict[str, cst.Call] = field(default_factory=dict)
    #: What `prepare` gave back.
    prepared: list[cst.BaseExpression] = field(default_factory=list)
    #: Names of their scalers.
    scalers: set[str] = field(default_factory=set)


def unguarded_clips(ctx: Context) -> Iterable[Report]:
    """Clips of an Accelerator that accumulates gradients, in a file that never asks `sync_gradients`.

    On a micro-step without a step the scaler is not updated, and the next clip raises.
    """
    if "sync_gradients" in ctx.model.tree.text:
        return
    found = _accelerators(ctx)
    for call in _methods(ctx, _CLIPS) if found.made else ():
        owner = _owner(ctx, call)
        if owner not in found.made or not _accumulates(found.made[owner]):
            continue
        reason = f"put the clip under `if {owner}.sync_gradients:`, with what uses its result"
        yield Report(
            call,
            f"{_written(call)} unscales the gradients on every micro-step, whether or not {owner} synchronises: "
            "with fp16 the second one of a window raises",
            confidence=Confidence.MEDIUM,
            trace=[
                (found.made[owner], "gradients are accumulated over several micro-steps"),
                (call, "unscaled and clipped here without a test of sync_gradients"),
            ],
            fix=lambda reason=reason: reason,  # type: ignore[misc]
        )


def bypasses(ctx: Context) -> Iterable[Report]:
    """Plain backwards for a prepared optimizer, and calls of the Accelerator's own scaler."""
    found = _accelerators(ctx)
    if not found.made:
        return
    accelerator, made = next(iter(found.made.items()))
    for call in _methods(ctx, ("backward",)):
        if call.args or _owner(ctx, call) in found.made:
            continue
        step = next(_steps(ctx, call, found), None)
        if step is None:
            continue
        yield Report(
            call,
            f"this loss is not scaled, but {_owner(ctx, step)}.step() is one of {accelerator}: with fp16 it divides "
            f"the gradients by the loss scale; {accelerator}.backward(loss) scales",
            confidence=_confidence(made),
            trace=[
                (made, f"{accelerator} owns the scaler"),
                (call, "plain backward"),
                (step, "and its step"),
            ],
            fix=lambda name=accelerator: f"call {name}.backward(loss)",  # type: ignore[misc]
        )
    for call in _methods(ctx, _SCALER):
        owner = _owner(ctx, call)
        if owner not in found.scalers and not any(owner == f"{name}.scaler" for name in found.made):
            continue
        yield Report(
            call,
            f"{owner} belongs to {accelerator}, which calls it itself: this {_written(call)} is one too many",
            confidence=_confidence(made),
            trace=[(made, f"{accelerator} owns the scaler")],
            fix=lambda name=accelerator: f"leave the scaler to {name}",  # type: ignore[misc]
        )


def raw_clips(ctx: Context) -> Iterable[Report]:
    """torch's clipping of gradients that an Accelerator has scaled."""
    if "unscale_gradients" in ctx.model.tree.text:
        return
    found = _accelerators(ctx)
    names = ctx.model.names
    for call in ctx.model.tree.of_type(cst.Call) if found.made else ():
        if not any(name in _RAW_CLIPS for name in names.resolve(call.func)):
            continue
        around = [
            other
            for other in _methods(ctx, ("backward",))
            if _owner(ctx, other) in found.made and names.scope_of(other) is names.scope_of(call)
        ]
        step = next(_steps(ctx, call, found), None)
        if not around or step is None:
            continue
        accelerator = _owner(ctx, around[0])
        yield Report(
            call,
            f"{_written(call)} of torch acts on gradients that {accelerator}.backward has scaled (with fp16); "
            f"{accelerator}.{_last(call)} unscales first",
            confidence=_confidence(found.made[accelerator]),
            trace=[(around[0], "the loss is scaled here, and so are its gradients"), (call, "clipped here")],
            fix=lambda name=accelerator: f"clip with {name}'s own method",  # type: ignore[misc]
        )


def _accelerators(ctx: Context) -> _Accelerators:
    """The Accelerators of the file."""
    known = ctx.memo.get("accelerators")
    if isinstance(known, _Accelerators):
        return known
    found = _Accelerators()
    tree, names = ctx.model.tree, ctx.model.names
    for call in tree.of_type(cst.Call) if "accelerate" in tree.text else ():
        target = tree.parent(call)
        if isinstance(target, cst.Assign) and any(name in _CLASSES for name in names.resolve(call.func)):
            found.made.update((tree.code(part.target), call) for part in target.targets)
    for assign in tree.of_type(cst.Assign) if found.made else ():
        value, targets = assign.value, [part.target for part in assign.targets]
        if isinstance(value, cst.Call) and _last(value) == "prepare" and _owner(ctx, value) in found.made:
            for target in targets:
                parts = [e.value for e in target.elements] if isinstance(target, cst.Tuple) else [target]
                found.prepared.extend(parts)
        elif isinstance(value, cst.Attribute) and any(tree.code(value) == f"{n}.scaler" for n in found.made):
            found.scalers.update(map(tree.code, targets))
    ctx.memo["accelerators"] = found
    return found


def _methods(ctx: Context, wanted: tuple[str, ...]) -> Iterator[cst.Call]:
    for call in ctx.model.tree.of_type(cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in wanted:
            yield call


def _steps(ctx: Context, near: cst.CSTNode, found: _Accelerators) -> Iterator[cst.Call]:
    """Steps of prepared optimizers in the function of `near`."""
    names = ctx.model.names
    for call in _methods(ctx, ("step",)):
        if "opt" not in _owner(ctx, call).lower() or names.scope_of(call) is not names.scope_of(near):
            continue
        if any(_is_same(ctx, call, other) for other in found.prepared):
            yield call


def _is_same(ctx: Context, call: cst.Call, prepared: cst.BaseExpression) -> bool:
    """Whether the method is called on what was prepared: the same name of the same scope, or an attribute."""
    names, written = ctx.model.names, ctx.model.tree.code(prepared)
    if _owner(ctx, call) != written:
        return False
    if not isinstance(prepared, cst.Name):
        return True
    return names.scope_of(call).owner(written) is names.scope_of(prepared).owner(written)


def _owner(ctx: Context, call: cst.Call) -> str:
    return ctx.model.tree.code(call.func.value) if isinstance(call.func, cst.Attribute) else ""


def _last(call: cst.Call) -> str:
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value
    return call.func.value if isinstance(call.func, cst.Name) else ""


def _written(call: cst.Call) -> str:
    return f"{_last(call)}()" if _last(call) == "update" else _last(call)


def _argument(call: cst.Call, name: str) -> cst.BaseExpression | None:
    return next((a.value for a in call.args if a.keyword is not None and a.keyword.value == name), None)


def _confidence(made: cst.Call) -> Confidence:
    """Medium, and low where the Accelerator is certain to have no scaler."""
    precision = _argument(made, "mixed_precision")
    literal = precision.evaluated_value if isinstance(precision, cst.SimpleString) else None
    return Confidence.LOW if literal in _UNSCALED else Confidence.MEDIUM


def _accumulates(call: cst.Call) -> bool:
    """Whether an Accelerator is made with more than one micro-step per step, as far as the text tells."""
    steps = _argument(call, "gradient_accumulation_steps")
    if steps is not None:
        return not (isinstance(steps, cst.Integer) and steps.evaluated_value == 1)
    return _argument(call, "gradient_accumulation_plugin") is not None
