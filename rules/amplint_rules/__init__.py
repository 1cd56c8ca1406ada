"""The built-in rules: one small module and one page each, in folders by family."""

from __future__ import annotations

import sys

from amplint.registry import load_rules
from amplint.rule import Rule

#: Modules of this package with a `RULE`, in order of code.
MODULES = (
    "amp_api.cuda_amp_autocast",
    "amp_api.cuda_amp_grad_scaler",
    "amp_api.cuda_custom_fwd_bwd",
    "amp_api.autocast_hardcoded_cuda",
    "amp_api.grad_scaler_default_device",
    "amp_api.autocast_state_without_device",
    "amp_api.cuda_amp_module",
    "amp_api.amp_gated_on_cuda",
    "amp_api.autocast_device_spelling",
    "amp_api.grad_scaler_positional",
    "amp_api.autocast_positional_bool",
    "amp_api.amp_private_api",
    "amp_api.autocast_missing_device_type",
    "amp_api.grad_scaler_odd_arguments",
    "scaler.clip_before_unscale",
    "scaler.scaled_grad_read",
    "scaler.scaler_step_bypass",
    "scaler.missing_scaler_update",
    "scaler.repeated_unscale",
    "scaler.update_during_accumulation",
    "scaler.backward_without_scale",
    "scaler.clip_after_step",
    "scaler.unscale_wrong_optimizer",
    "scaler.scaler_step_closure",
    "scaler.repeated_update",
    "scaler.scaler_state_not_saved",
    "scaler.scaler_recreated",
    "scaler.scaled_loss_escapes",
    "scaler.scheduler_on_skipped_step",
    "scaler.zero_grad_misplaced",
    "scaler.bf16_with_grad_scaler",
    "scaler.fp16_without_grad_scaler",
    "scaler.fp16_params_with_grad_scaler",
    "scaler.rank_local_nonfinite_skip",
    "scaler.sharded_scaler_needed",
    "scaler.grad_penalty_scaled",
    "scaler.scale_read_after_update",
    "scaler.optimizer_without_grads",
    "scaler.clip_without_overflow_guard",
    "precision.low_precision_accumulation",
    "precision.loss_outside_autocast",
    "precision.low_precision_norm",
    "precision.low_precision_softmax",
    "precision.fp16_unsafe_constant",
    "precision.autocast_disabled_no_upcast",
    "values.discarded_cast",
    "values.with_and",
    "regions.backward_in_autocast",
    "regions.bce_under_autocast",
    "regions.function_without_custom_fwd",
    "precision.half_weights_with_optimizer",
    "regions.autocast_weight_cache",
    "precision.low_precision_state",
    "regions.autocast_thread_local",
    "precision.half_unsupported_op",
    "regions.recompute_loses_autocast",
    "regions.autocast_dtype_ignored",
    "regions.loss_scale_by_hand",
    "precision.integers_in_low_precision",
    "precision.elementwise_overflow",
    "precision.collective_dtype",
    "precision.clamp_rounds_away",
    "precision.low_precision_optimizer_state",
    "precision.round_trip_cast",
    "npu.npu_autocast_gap",
    "npu.npu_fused_op_dtype",
    "about_run.syntax_error",
    "about_run.unused_suppression",
    "about_run.unknown_rule_in_suppression",
    "about_run.expired_suppression",
)


def rules() -> tuple[Rule, ...]:
    """Every built-in rule."""
    return load_rules(sys.modules[__name__], MODULES)
