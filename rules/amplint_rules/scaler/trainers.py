"""What a subclass of a framework's trainer does in the step that it overrides, past the trainer's own scaler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from amplint.finding import Confidence
from amplint.model.scalers import scaler_params
from amplint.rule import Context, Report
from amplint_rules.scaler.owners import Owner, Owners, argument, called_on, calls_in, in_one_mode, last

#: Words of code that scales, or steps, in a way of its own.
_BY_HAND = (
    "scale_loss",
    "manual_backward",
    "deepspeed",
    "use_apex",
    "do_grad_scaling",
    "_inner_training_loop",
)
#: What the trainer steps itself, or that is no optimizer.
_OWN_STEPS = ("self.optimizer", "self.lr_scheduler", "self.scheduler", "self.callback_handler")


def bypasses(ctx: Context, found: Owners) -> Iterator[Report]:
    """Plain backwards, and losses scaled by another scaler, whose gradients the trainer steps with."""
    for owner, method in _overridden(ctx, found):
        klass = owner.made
        calls = list(calls_in(ctx, method))
        if _does_it_by_hand(ctx, klass, calls):
            continue
        scales = [call for call in calls if last(call) == "scale" and scales_alone(ctx, call)]
        for call in scales:
            yield Report(
                call,
                f"the trainer steps with these gradients, and knows nothing of {called_on(ctx, call)}: they are "
                "still multiplied by its scale",
                confidence=Confidence.MEDIUM,
                trace=[(method, "the trainer calls this, and then clips and steps"), (call, "scaled here")],
                fix=lambda owner=owner: f"scale with {_own_backward(owner)}",  # type: ignore[misc]
            )
        if any(_scales(ctx, call, owner) for call in calls_in(ctx, klass)):
            continue
        for call in calls:
            if not _is_plain_backward(ctx, call) or not in_one_mode(ctx, call, method):
                continue
            yield Report(
                call,
                "this loss is not scaled, but the trainer's step divides the gradients by the loss scale, with "
                f"fp16; {_own_backward(owner)} scales",
                confidence=owner.confidence,
                trace=[
                    (method, "the trainer calls this, and then clips and steps"),
                    (call, "plain backward"),
                ],
                fix=lambda owner=owner: f"scale with {_own_backward(owner)}",  # type: ignore[misc]
            )


def raw_clips(ctx: Context, found: Owners, clips: Sequence[str]) -> Iterator[Report]:
    """torch's clipping in the step, behind what scaled the loss."""
    for owner, method in _overridden(ctx, found):
        calls = list(calls_in(ctx, method))
        if owner.row["unscale"] in ctx.model.tree.text or _does_it_by_hand(ctx, owner.made, calls):
            continue
        scaled = [call for call in calls if called_on(ctx, call) + "." + last(call) == _own_backward(owner)]
        scaled.extend(call for call in calls if last(call) == method.name.value)
        for call in calls:
            if not any(name in clips for name in ctx.model.names.resolve(call.func)):
                continue
            before = [s for s in scaled if ctx.model.tree.number(s) < ctx.model.tree.number(call)]
            if not before or not in_one_mode(ctx, call, before[0]):
                continue
            yield Report(
                call,
                f"{last(call)} of torch acts on gradients that {_own_backward(owner)} has scaled (with fp16); "
                "the trainer unscales and clips behind this method, with max_grad_norm",
                confidence=owner.confidence,
                trace=[
                    (before[0], "the loss is scaled here, and so are its gradients"),
                    (call, "clipped here"),
                ],
                fix=lambda: "leave the clip to the trainer: set max_grad_norm",
            )


def scales_alone(ctx: Context, call: cst.Call) -> bool:
    """Whether a call of `scale` is one of an enabled GradScaler that nothing in the file steps or unscales with."""
    assert isinstance(call.func, cst.Attribute)
    tree, names = ctx.model.tree, ctx.model.names
    written = called_on(ctx, call)
    if any(f"{written}.{method}(" in tree.text for method in ("step", "unscale_")):
        return False
    makers = list(ctx.model.values.sources(call.func.value, choices=False))
    for maker in makers:
        if not isinstance(maker, cst.Call) or not names.is_name(maker.func, *scaler_params()):
            return False
        enabled = argument(maker, "enabled")
        positional = sum(arg.keyword is None for arg in maker.args)
        if positional > 1 or (enabled is not None and tree.code(enabled) != "True"):
            return False
    return bool(makers)


def _overridden(ctx: Context, found: Owners) -> Iterator[tuple[Owner, cst.FunctionDef]]:
    """The trainers of the file that override the step, each with that method."""
    for owner in found.classes:
        klass = owner.made
        body = klass.body.body if isinstance(klass, cst.ClassDef) else ()
        for method in body:
            if isinstance(method, cst.FunctionDef) and method.name.value in owner.methods("prepare"):
                yield owner, method


def _does_it_by_hand(ctx: Context, klass: cst.CSTNode, calls: Sequence[cst.Call]) -> bool:
    """Whether a class has its own way to scale, or its step steps optimizers of its own."""
    text = ctx.model.tree.code(klass)
    if any(word in text for word in _BY_HAND):
        return True
    return any(last(call) == "step" and called_on(ctx, call) not in _OWN_STEPS for call in calls)


def _own_backward(owner: Owner) -> str:
    return f"self.{owner.row['backward']}"


def _scales(ctx: Context, call: cst.Call, owner: Owner) -> bool:
    """Whether a call scales a loss, or hands it to something that may."""
    if last(call) == "scale":
        return True
    if last(call) != "backward" or "torch.autograd.backward" in ctx.model.names.resolve(call.func):
        return False
    return any(arg.keyword is None for arg in call.args)


def _is_plain_backward(ctx: Context, call: cst.Call) -> bool:
    if "torch.autograd.backward" in ctx.model.names.resolve(call.func):
        return True
    return last(call) == "backward" and isinstance(call.func, cst.Attribute)
