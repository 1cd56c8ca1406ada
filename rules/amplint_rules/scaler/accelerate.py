"""What accelerate's wrappers do with a scaler that no code of the file touches."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from amplint.finding import Confidence
from amplint.rule import Context, Report

_CLASSES = ("accelerate.Accelerator", "accelerate.accelerator.Accelerator")
_DECISION = "put the clip under `if ACCELERATOR.sync_gradients:`, with what uses its result"
_CLIPS = ("clip_grad_norm_", "clip_grad_value_")


def unguarded_clips(ctx: Context) -> Iterable[Report]:
    """Clips of an Accelerator that accumulates gradients, in a file that never asks `sync_gradients`.

    `Accelerator.clip_grad_norm_` unscales the gradients of every prepared optimizer; on a micro-step without a step
    the scaler is not updated, and the next clip raises (accelerate 1.x, accelerator.py, `unscale_gradients`).
    """
    tree, names = ctx.model.tree, ctx.model.names
    if "accelerate" not in tree.text or "sync_gradients" in tree.text:
        return
    made: dict[str, cst.Call] = {}
    for call in tree.of_type(cst.Call):
        if any(name in _CLASSES for name in names.resolve(call.func)) and _accumulates(call):
            target = tree.parent(call)
            if isinstance(target, cst.Assign) and len(target.targets) == 1:
                made[tree.code(target.targets[0].target)] = call
    for call in tree.of_type(cst.Call) if made else ():
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _CLIPS:
            continue
        owner = tree.code(call.func.value)
        if owner in made:
            yield Report(
                call,
                f"{owner}.{call.func.attr.value} unscales the gradients on every micro-step, whether or not "
                f"{owner} synchronises: with fp16 the second one of a window raises",
                confidence=Confidence.MEDIUM,
                trace=[
                    (made[owner], "gradients are accumulated over several micro-steps"),
                    (call, "unscaled and clipped here without a test of sync_gradients"),
                ],
                fix=lambda owner=owner: _DECISION.replace("ACCELERATOR", owner),  # type: ignore[misc]
            )


def _accumulates(call: cst.Call) -> bool:
    """Whether an Accelerator is made with more than one micro-step per step, as far as the text tells."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == "gradient_accumulation_steps":
            return not (isinstance(arg.value, cst.Integer) and arg.value.evaluated_value == 1)
        if arg.keyword is not None and arg.keyword.value == "gradient_accumulation_plugin":
            return True
    return False
