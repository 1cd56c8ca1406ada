"""`torch_npu.npu.amp.GradScaler`: its signature, state and waits differ from those of PyTorch's own class.

Behaviour read from torch_npu 2.13 (`torch_npu/npu/amp/grad_scaler.py`), written anew on PyTorch's class.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.amp.grad_scaler import GradScaler as _TorchScaler
from torch.amp.grad_scaler import _refresh_per_optimizer_state

from amplint.simnpu import saturation


class GradScaler(_TorchScaler):
    """Scales losses, skips steps with overflow, and adapts the scale, on an NPU.

    Against `torch.amp.GradScaler`: no `device` argument; a static scale; the state has a key `dynamic`, which
    `load_state_dict` requires; three waits of the host per good step instead of one; on chips without Inf the
    overflow flag decides, and ranks agree on it.

    Args:
        init_scale: first loss scale (a factor, without unit).
        growth_factor: what the scale is multiplied by after `growth_interval` good steps.
        backoff_factor: what the scale is multiplied by after a step with overflow.
        growth_interval: good steps in a row before the scale grows.
        dynamic: False keeps the scale and never skips a step.
        enabled: False switches scaling off.

    Raises:
        ValueError: if enabled and `growth_factor <= 1` or `backoff_factor >= 1`.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        dynamic: bool = True,
        enabled: bool = True,
    ) -> None:
        if enabled and growth_factor <= 1.0:
            raise ValueError("The growth factor must be > 1.0.")
        if enabled and backoff_factor >= 1.0:
            raise ValueError("The backoff factor must be < 1.0.")
        super().__init__(
            "npu",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )
        self._dynamic = dynamic
        self._has_overflow = False
        self._flag_cleared = False

    def scale(self, outputs: Any) -> Any:
        """`outputs` times the scale; before the first of a step the chip's overflow flag is cleared."""
        if self._enabled and self._dynamic and not self._flag_cleared:
            saturation.clear()
            self._flag_cleared = True
        return super().scale(outputs)

    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, torch.Tensor]:
        if any(each.dtype is torch.float16 for each in _gradients(optimizer)) and not allow_fp16:
            raise TypeError("Attempting to unscale FP16 gradients.")
        if not self._dynamic:
            for gradient in _gradients(optimizer):
                gradient.mul_(inv_scale.to(gradient.dtype))
            return {found_inf.device: found_inf}
        found = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        if any(each.item() > 0 for each in found.values()):
            self._has_overflow = True
        if saturation.enabled and dist.is_available() and dist.is_initialized():
            overflows = torch.tensor([float(self._has_overflow)], device=found_inf.device)
            dist.all_reduce(overflows)
            self._has_overflow = overflows.item() != 0
        if self._has_overflow:
            found.setdefault(found_inf.device, found_inf).add_(1)
        return found

    def _maybe_opt_step(
        self, optimizer: torch.optim.Optimizer, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any
    ) -> float | None:
        if not self._dynamic:
            return cast("float | None", optimizer.step(*args, **kwargs))
        overflow = sum(each.item() for each in optimizer_state["found_inf_per_device"].values())
        if overflow or self._has_overflow:
            print("Gradient overflow. Skipping step")
            return None
        return cast("float | None", optimizer.step(*args, **kwargs))

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """End the step: shrink the scale after an overflow, grow it after enough good steps.

        Args:
            new_scale: the next scale, instead of that.
        """
        if not self._enabled:
            return
        scale, growth_tracker = self._check_scale_growth_tracker("update")
        if isinstance(new_scale, torch.Tensor):
            self._scale = new_scale
        elif new_scale is not None:
            self._scale = torch.full((), new_scale, dtype=torch.float32, device=scale.device)
        elif self._dynamic:
            self._adapt(scale, growth_tracker)
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)
        self._has_overflow = self._flag_cleared = False

    def _adapt(self, scale: torch.Tensor, growth_tracker: torch.Tensor) -> None:
        if self._has_overflow:
            scale.mul_(self._backoff_factor)
            growth_tracker.zero_()
            print(f"Loss scaler reducing loss scale to {scale.item()}")
            return
        growth_tracker.add_(1)
        if growth_tracker.item() == self._growth_interval:
            if not torch.isinf(scale * self._growth_factor):
                scale.mul_(self._growth_factor)
            growth_tracker.zero_()
            print(f"Loss scaler increasing loss scale to {scale.item()}")

    def state_dict(self) -> dict[str, Any]:
        """The state, empty if disabled."""
        return {**super().state_dict(), "dynamic": self._dynamic} if self._enabled else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state.

        Raises:
            KeyError: `dynamic`, if PyTorch's own scaler wrote the state.
            RuntimeError: if it is that of a disabled scaler.
        """
        super().load_state_dict(state_dict)
        if self._enabled:
            self._dynamic = state_dict["dynamic"]

    @staticmethod
    def get_npu_overflow_flag() -> bool:
        """The chip's overflow flag; see `torch_npu.npu.get_npu_overflow_flag`."""
        return saturation.overflowed()

    @staticmethod
    def clear_npu_overflow_flag() -> None:
        """Lower that flag."""
        saturation.clear()


def _gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    return [each.grad for each in parameters if each.grad is not None]


class autocast(torch.autocast):
    """`torch_npu.npu.amp.autocast`: `torch.autocast` for `npu`, with the arguments of `torch.cuda.amp`."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
    ) -> None:
        super().__init__("npu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


def amp_definitely_not_available() -> bool:
    """Whether there is no NPU: never."""
    return False
