"""Kernels for the operators that allocate, copy, or share memory, which cannot run on CPU copies."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch.nn.functional import linear

from amplint.simnpu import blocklist, counters, pinned, saturation
from amplint.simnpu.autocast import operator
from amplint.simnpu.fallback import check_bf16, is_half, results, run
from amplint.simnpu.memory import adopt, as_cpu, as_npu, set_storage

Kernel = Callable[..., Any]

_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

#: Run by the CPU's kernel on the NPU tensor itself, so that the result is a true view of its storage.
_VIEWS = (
    "_reshape_alias",
    "as_strided",
    "set_",
    "set_.source_Storage",
    "set_.source_Storage_storage_offset",
    "set_.source_Tensor",
    "unfold",
    "view",
    "view_as_complex",
    "view_as_real",
)


#: PyTorch would compute these from other operators, where the NPU has a kernel.
_WITHOUT_DECOMPOSITION = ("native_layer_norm", "native_group_norm")


def npu_kernels() -> dict[str, Kernel]:
    """Operator -> kernel for NPU tensors."""
    return {
        **{name: functools.partial(run, operator(name)) for name in _WITHOUT_DECOMPOSITION},
        **{name: _on_the_tensor_itself(operator(name)) for name in _VIEWS},
        "_amp_foreach_non_finite_check_and_unscale_": _check_and_unscale,
        "_local_scalar_dense": _local_scalar_dense,
        "_to_copy": _to_copy,
        "_copy_from": _copy_from,
        "_copy_from_and_resize": _copy_from_and_resize,
        "convolution_overrideable": _convolution,
        "convolution_backward_overrideable": _convolution_backward,
        "empty.memory_format": _empty,
        "empty_strided": _empty_strided,
        "record_stream": lambda self, s: None,
        "resize_": _resize_,
    }


def cpu_kernels() -> dict[str, Kernel]:
    """Operator -> kernel for CPU tensors: those that ask the accelerator for pinned memory."""
    return {"_pin_memory": pinned.pin_memory, "is_pinned": pinned.is_pinned}


def autograd_kernels() -> dict[str, Kernel]:
    """Operator -> composition above autograd, for those for which PyTorch picks fused cells the CPU lacks."""
    from torch._decomp import decompositions

    return {
        "gru_cell": _gru_cell,
        "lstm_cell": _lstm_cell,
        "gru.data": decompositions.gru_impl_data,
        "gru.input": decompositions.gru_impl,
        "lstm.data": decompositions.lstm_data_impl,
        "lstm.input": decompositions.lstm_impl,
    }


Bias: TypeAlias = "torch.Tensor | None"


def _gru_cell(
    input: torch.Tensor,
    hx: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: Bias = None,
    b_hh: Bias = None,
) -> torch.Tensor:
    input_reset, input_update, input_new = linear(input, w_ih, b_ih).chunk(3, 1)
    hidden_reset, hidden_update, hidden_new = linear(hx, w_hh, b_hh).chunk(3, 1)
    reset = (input_reset + hidden_reset).sigmoid()
    update = (input_update + hidden_update).sigmoid()
    new = (input_new + reset * hidden_new).tanh()
    return new + update * (hx - new)


def _lstm_cell(
    input: torch.Tensor,
    hx: Sequence[torch.Tensor],
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: Bias = None,
    b_hh: Bias = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    hidden, cell = hx
    gates = linear(input, w_ih, b_ih) + linear(hidden, w_hh, b_hh)
    take, forget, new, out = gates.chunk(4, 1)
    cell = forget.sigmoid() * cell + take.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def _on_the_tensor_itself(op: Any) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return op.redispatch(_CPU, *args, **kwargs)

    return kernel


def _local_scalar_dense(self: torch.Tensor) -> Any:
    counters.sync("item")
    return torch.ops.aten._local_scalar_dense.default.redispatch(_CPU, self)


def _check_and_unscale(self: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
    run(operator("_amp_foreach_non_finite_check_and_unscale_"), self, found_inf, inv_scale)
    if saturation.enabled and saturation.overflowed():  # without Inf only the chip's flag tells
        as_cpu(found_inf).fill_(1.0)


_warned_of_float64 = False


def _to_copy(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    global _warned_of_float64
    stays = device is None or device.type == "npu"
    # torch_npu (csrc/aten/common/ToKernelNpu.cpp) rewrites casts of NPU tensors, not copies to the NPU
    if dtype is torch.float64 and stays and self.device.type == "npu" and self.dtype is not torch.float64:
        dtype = torch.float32
        if not _warned_of_float64:
            _warned_of_float64 = True
            warnings.warn(
                "Device do not support double dtype now, dtype cast replace with float.", stacklevel=2
            )
    out = torch.empty_like(
        self,
        dtype=dtype or self.dtype,
        device=device or self.device,
        pin_memory=bool(pin_memory) and not stays,
        memory_format=memory_format or torch.preserve_format,
    )
    return out.copy_(self, non_blocking=non_blocking)


def _empty(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    _check_device(device)
    shape = memory_format or torch.contiguous_format
    return as_npu(torch.empty(size, dtype=dtype, device="cpu", memory_format=shape))


def _empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    _check_device(device)
    return as_npu(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def _check_device(device: torch.device | None) -> None:
    from amplint.simnpu import current_settings

    count = current_settings().device_count
    if device is not None and device.index is not None and device.index >= count:
        raise RuntimeError(f"invalid device ordinal: {device}, but there are {count} simulated NPUs")


def _copy_from(self: torch.Tensor, dst: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    counters.ops["aten::_copy_from"] += 1
    if self.device.type == "npu" and dst.device.type == "cpu" and not non_blocking:
        counters.sync("d2h")
    as_cpu(dst).copy_(as_cpu(self))
    if saturation.enabled and dst.device.type == "npu":
        saturation.clamp(as_cpu(dst))
    return dst


def _copy_from_and_resize(self: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
    if dst.shape != self.shape:
        adopt(dst, torch.empty(self.shape, dtype=dst.dtype))
    return _copy_from(self, dst)


def _resize_(
    self: torch.Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None
) -> torch.Tensor:
    wanted = torch.empty(size, dtype=self.dtype, memory_format=memory_format or torch.contiguous_format)
    room = self.untyped_storage().nbytes() // self.element_size() - self.storage_offset()
    if math.prod(size) <= room:
        set_storage(self, self.untyped_storage(), int(self.storage_offset()), size, wanted.stride())
        return self
    kept = min(self.numel(), wanted.numel())
    wanted.view(-1)[:kept] = as_cpu(self).reshape(-1)[:kept]
    adopt(self, wanted)
    return self


def _convolution(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *settings: Any
) -> torch.Tensor:
    _count("convolution", input)
    tensors = _float32(input, weight, bias)
    out = torch.ops.aten.convolution(*tensors, *settings)
    return _finished(out, like=input)


def _convolution_backward(
    grad_output: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, *settings: Any
) -> list[torch.Tensor | None]:
    _count("convolution_backward", input)
    *geometry, groups, mask = settings
    transposed = geometry[3]
    bias_size = [weight.size(1) * groups if transposed else weight.size(0)]
    tensors = _float32(grad_output, input, weight)
    grads = torch.ops.aten.convolution_backward(*tensors, bias_size, *geometry, groups, mask)
    return [None if each is None else _finished(each, like=input) for each in grads]


def _count(name: str, input: torch.Tensor) -> None:
    counters.ops[f"aten::{name}"] += 1
    blocklist.refuse(f"aten::{name}")
    if input.dtype is torch.bfloat16:
        check_bf16(f"aten::{name}")


def _float32(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    """CPU views, float16 ones as float32: a matrix unit adds up in float32, and the CPU is slow in float16."""
    views = [None if each is None else as_cpu(each) for each in tensors]
    kinds = {each.device.type for each in tensors if each is not None}
    if len(kinds) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, npu:0 and cpu!"
        )
    return [each.float() if each is not None and is_half(each) else each for each in views]


def _finished(out: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    out = out.to(like.dtype)
    if saturation.enabled:
        saturation.clamp(out)
    return torch.as_tensor(results(out))
