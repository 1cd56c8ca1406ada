"""What a file must look like for a rule to be worth LibCST: one cheap predicate over its outline per rule.

Beside the rules rather than in them, because the gate asks before LibCST is loaded and the rule modules load it.
"""

from __future__ import annotations

import re
from functools import cache

from amplint import facts
from amplint.flow.scaler import may_scale
from amplint.gate import Outline

#: Methods whose result is a tensor of another dtype or on another device.
CASTS = ("float", "half", "bfloat16", "double", "to", "type", "type_as", "cuda", "npu", "xpu")
_CLIPS = ("clip_grad_norm_", "clip_grad_value_")
#: Words without one of which a file makes nothing low precision.
LOW_PRECISION_WORDS = (
    "autocast",
    "half",
    "float16",
    "precision",
    "HalfTensor",
    "16-",
    "custom_fwd",
    "BFloat16Tensor",
)
_REDUCTIONS = frozenset(
    (
        *("all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor"),
        *("_reduce_scatter_base", "reduce_dtype"),
    )
)
#: Names that nobody gives to a tensor.
_MODULES = re.compile(
    r"self|(?:\w*_)?(?:model|models|module|net|network|encoder|decoder|vae|unet|pipe|pipeline)"
)
#: Functions and modules that CUDA's autocast casts and NPU's does not.
_NPU_GAPS = frozenset(
    (
        *("interpolate", "upsample", "upsample_bilinear", "upsample_nearest", "rms_norm", "vdot", "vecdot"),
        *("Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d", "RMSNorm"),
    )
)


def low_precision(outline: Outline) -> bool:
    """Something that makes values low precision."""
    return bool(outline.made_low)


def low_precision_softmax(outline: Outline) -> bool:
    """The same, and a softmax."""
    return low_precision(outline) and any(
        "softm" in name.lower() or name == "logsumexp" for name in outline.names
    )


def half_weights_with_optimizer(outline: Outline) -> bool:
    """The same in so many words, or a dtype by a name, and an optimizer."""
    return low_precision(outline) and "optim" in " ".join(outline.names).lower()


def half_unsupported_op(outline: Outline) -> bool:
    """The same; writes by an index have no name to look for."""
    return low_precision(outline)


def collective_dtype(outline: Outline) -> bool:
    """The same, and a reduction over ranks."""
    return low_precision(outline) and not outline.names.isdisjoint(_REDUCTIONS)


def npu_fused_op_dtype(outline: Outline) -> bool:
    """The same, and a fused operator of torch_npu."""
    return low_precision(outline) and any(name.startswith("npu_") for name in outline.names)


def npu_autocast_gap(outline: Outline) -> bool:
    """The same, and an operator that CUDA's autocast casts and NPU's does not."""
    return low_precision(outline) and not outline.names.isdisjoint(_NPU_GAPS)


def loss_outside_autocast(outline: Outline) -> bool:
    """Something low precision, and a loss or a distribution."""
    return low_precision(outline) and any(
        "loss" in name.lower() or name in ("cross_entropy", "kl_div") or name in _DISTRIBUTIONS
        for name in outline.names
    )


_DISTRIBUTIONS = ("distributions", "Categorical", "OneHotCategorical", "Bernoulli", "Normal")


def autocast_disabled(outline: Outline) -> bool:
    """Something low precision, and a region that may be disabled."""
    return low_precision(outline) and not outline.names.isdisjoint(("enabled", "autocast", "custom_fwd"))


def low_precision_accumulation(outline: Outline) -> bool:
    """Something low precision; additions are no names."""
    return low_precision(outline)


def low_precision_norm(outline: Outline) -> bool:
    """Something low precision and what a norm is made of, or apex asked for BatchNorm in half."""
    names = outline.names
    if not names.isdisjoint(("keep_batchnorm_fp32", "O3")):
        return True
    return low_precision(outline) and (
        not names.isdisjoint(("rsqrt", "sqrt", "std", "var", "pow"))
        or any("norm" in name.lower() for name in names)
    )


_WIDENS = frozenset(("float", "float32", "double", "float64", "fp32", "FloatTensor"))


def round_trip_cast(outline: Outline) -> bool:
    """A cast to half and one to float32."""
    return low_precision(outline) and not outline.names.isdisjoint(_WIDENS)


def clamp_rounds_away(outline: Outline) -> bool:
    """The same, and something that bounds."""
    return low_precision(outline) and not outline.names.isdisjoint(
        (
            *("clamp", "clamp_", "clip", "clip_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_"),
            *("minimum", "maximum", "logit"),
        )
    )


def discarded_cast(outline: Outline) -> bool:
    """A cast whose call is a statement of its own, on what is not called like a module."""
    return any(cast in CASTS and not is_called_module(name) for cast, name in outline.discarded_calls)


def is_called_module(name: str) -> bool:
    """Whether something is called as only modules are: `self`, `model`, `text_encoder`."""
    return bool(_MODULES.fullmatch(name))


def with_and(outline: Outline) -> bool:
    """A `with` item that is an `and`."""
    return outline.has_with_and


def clip_before_unscale(outline: Outline) -> bool:
    """Something that scales a loss; the clip may stand in another file, but not one past a framework's object."""
    return protocol(outline) or (has_owner(outline) and not outline.names.isdisjoint(_CLIPS))


#: Words of the text of each file with an owner of a scaler.
OWNERS = ("Accelerator", "Fabric", "deepspeed", "colossalai", "training_step")


def has_owner(outline: Outline) -> bool:
    """A framework's object that owns a scaler, and code that backpropagates or steps beside it."""
    names = outline.names
    for row in facts.table("scaler_owners"):
        parts = row["class"].split(".")
        if parts[-1] not in names or names.isdisjoint(("backward", "training_step")):
            continue
        if row["form"] == "object" and not names.isdisjoint(row["prepare"].split(",")):
            return True
        if row["form"] == "engine" and "step" in names and parts[0] in outline.text:
            return True
        if row["form"] == "base" and row["prepare"] in names:
            return True
    return False


def scaler_step_bypass(outline: Outline) -> bool:
    """Something that scales a loss, or a framework's object that does."""
    return protocol(outline) or has_owner(outline)


def protocol(outline: Outline) -> bool:
    """Something that scales a loss, or a scaler beside a backward."""
    return may_scale(outline.names) or "unscale_" in outline.names


def repeated_unscale(outline: Outline) -> bool:
    """The same, or a framework's clip of accumulated gradients."""
    return protocol(outline) or (
        has_owner(outline) and any(name.startswith("clip_grad") for name in outline.names)
    )


def amp_gated_on_cuda(outline: Outline) -> bool:
    """Something that can be compared with CUDA."""
    return not outline.names.isdisjoint(("cuda", "is_cuda"))


def grad_scaler_odd_arguments(outline: Outline) -> bool:
    """Any class named like a GradScaler."""
    return any(name.endswith("GradScaler") for name in outline.names)


@cache
def private_parts() -> frozenset[str]:
    """Names of GradScaler's private attributes and methods."""
    return frozenset(row["name"] for row in facts.table("grad_scaler_private"))


def amp_private_api(outline: Outline) -> bool:
    """A private name of GradScaler where there is one or something is used as one, or apex's global state."""
    names = outline.names
    if "_amp_state" in names:
        return True
    is_used = "unscale_" in names or {"scale", "backward"} <= names
    return not names.isdisjoint(private_parts()) and (is_used or grad_scaler_odd_arguments(outline))


def _trains(outline: Outline) -> bool:
    return {"backward", "step"} <= outline.names


def bf16_with_grad_scaler(outline: Outline) -> bool:
    """A GradScaler that scales something, and bfloat16."""
    names = outline.names
    return "bfloat16" in names and "scale" in names and grad_scaler_odd_arguments(outline)


def fp16_without_grad_scaler(outline: Outline) -> bool:
    """A training step under autocast, and no class named like a GradScaler."""
    return _trains(outline) and "autocast" in outline.names and not grad_scaler_odd_arguments(outline)


def fp16_params_with_grad_scaler(outline: Outline) -> bool:
    """A GradScaler that steps something, perhaps by a function from another file, and float16."""
    names = outline.names
    steps = "step" in names or bool(outline.imports)
    return steps and not names.isdisjoint(("half", "float16")) and grad_scaler_odd_arguments(outline)


def sharded_scaler_needed(outline: Outline) -> bool:
    """A GradScaler, and a wrapper that shards; or the scaler made for it."""
    names = outline.names
    if "ShardedGradScaler" in names:
        return True
    sharded = not names.isdisjoint(("FullyShardedDataParallel", "ShardedDataParallel"))
    return sharded and grad_scaler_odd_arguments(outline)


def clip_without_overflow_guard(outline: Outline) -> bool:
    """A training step under autocast that clips by norm."""
    names = outline.names
    return _trains(outline) and "clip_grad_norm_" in names and "autocast" in names


def _scales(outline: Outline) -> bool:
    names = outline.names
    is_used = "scale" in names and not names.isdisjoint(("backward", "manual_backward"))
    return is_used or "unscale_" in names or grad_scaler_odd_arguments(outline)


def scaler_step(outline: Outline) -> bool:
    """Something that scales a loss, or a GradScaler, and something that is stepped."""
    return "step" in outline.names and _scales(outline)


def scaler_state_not_saved(outline: Outline) -> bool:
    """A GradScaler, and something that saves or restores."""
    saving = ("state_dict", "save", "checkpoint", "ckpt", "snapshot", "dump", "keeper")
    return _scales(outline) and any(word in name.lower() for name in outline.names for word in saving)


def scale_read_after_update(outline: Outline) -> bool:
    """A scaler whose scale is read, and which is updated."""
    return {"get_scale", "update"} <= outline.names


def grad_penalty_scaled(outline: Outline) -> bool:
    """A gradient of a scaled loss that can itself be differentiated."""
    return {"create_graph", "scale", "grad"} <= outline.names


def scheduler_on_skipped_step(outline: Outline) -> bool:
    """A scaler that steps something, and a learning rate scheduler."""
    return scaler_step(outline) and any(
        word in name.lower() for name in outline.names for word in ("sched", "warmup", "lr")
    )


def rank_local_nonfinite_skip(outline: Outline) -> bool:
    """A look at whether something is finite, or a loss, in a training step."""
    names = outline.names
    looks = not names.isdisjoint(("isnan", "isinf", "isfinite")) or any("loss" in n.lower() for n in names)
    trains = ("backward", "manual_backward", "lightning", "pytorch_lightning")
    return looks and (not names.isdisjoint(trains) or any("scaler" in name.lower() for name in names))


def optimizer_without_grads(outline: Outline) -> bool:
    """A scaler that steps something, and a tensor that is made with a gradient or a module that is replaced."""
    return scaler_step(outline)


def backward_in_autocast(outline: Outline) -> bool:
    """A region, and something that computes gradients."""
    names = outline.names
    return "autocast" in names and not names.isdisjoint(("backward", "manual_backward", "grad"))


def autocast(outline: Outline) -> bool:
    """Something that may be an autocast region."""
    return "autocast" in outline.names


def autocast_weight_cache(outline: Outline) -> bool:
    """A region, and something that changes weights or switches gradients off."""
    changing = ("step", "load_state_dict", "no_grad", "copy_", "data", "lerp_", "copy_to", "inference_mode")
    return "autocast" in outline.names and not outline.names.isdisjoint(changing)


def function_without_custom_fwd(outline: Outline) -> bool:
    """An autograd function, and a region or what makes such functions fit for one."""
    names = outline.names
    return not names.isdisjoint(("Function", "InplaceFunction")) and any(
        word in name for name in names for word in ("autocast", "custom_fwd", "custom_bwd")
    )


def recompute_loses_autocast(outline: Outline) -> bool:
    """An autograd function that computes with gradients, and autocast."""
    names = outline.names
    return {"Function", "autocast"} <= names and not names.isdisjoint(("enable_grad", "set_grad_enabled"))


def autocast_thread_local(outline: Outline) -> bool:
    """A region, and something that hands work to other threads."""
    names = outline.names
    threads = ("Thread", "ThreadPoolExecutor", "ThreadPool", "Pool", "run_in_executor", "to_thread", "submit")
    return "autocast" in names and not names.isdisjoint(threads)


def loss_scale_by_hand(outline: Outline) -> bool:
    """A training step in something that is low precision, and no class named like a GradScaler."""
    return _trains(outline) and low_precision(outline) and not grad_scaler_odd_arguments(outline)


def autocast_dtype_ignored(outline: Outline) -> bool:
    """A region, and something called bfloat16."""
    names = outline.names
    return "autocast" in names and any("bf16" in name or "bfloat16" in name for name in names)
