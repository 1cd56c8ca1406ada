"""Moves tensors between `cpu` and `npu` without copying them.

A tensor is exported as a DLPack capsule, the device in the capsule is overwritten, and the capsule is imported
again: device code 1 is the CPU, 12 is DLPack's "extension device", which PyTorch maps to PrivateUse1, the key
behind `npu`. Both tensors share the memory and keep it alive. PyTorch's own way to make a PrivateUse1 tensor
from Python (`torch._C._acc.create_empty_tensor`) gives one without memory.

All devices are device 0: the Python hooks of PyTorch 2.13 offer no current device to set, and autograd starts
one worker for one device.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

_CPU, _EXTENSION = 1, 12
_DEVICE_TYPE, _DEVICE_INDEX = (
    8,
    12,
)  # offsets in bytes into DLTensor {void* data; DLDevice {int32; int32}; ...}

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_export = cast("Callable[[torch.Tensor], object]", torch._C._to_dlpack)
_import = cast("Callable[[object], torch.Tensor]", torch._C._from_dlpack)


def _retag(tensor: torch.Tensor, device_type: int) -> torch.Tensor:
    capsule = _export(tensor)
    address = _capsule_pointer(capsule, b"dltensor")
    ctypes.c_int32.from_address(address + _DEVICE_TYPE).value = device_type
    ctypes.c_int32.from_address(address + _DEVICE_INDEX).value = 0
    return _import(capsule)


def is_npu(value: object) -> bool:
    """Whether `value` is a tensor on the simulated device."""
    return isinstance(value, torch.Tensor) and value.device.type == "npu"


def as_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a CPU tensor without autograd history; a CPU tensor is returned as it is."""
    if tensor.device.type != "npu":
        return tensor
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return _retag(tensor, _CPU)


def as_npu(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a CPU tensor as an NPU tensor without autograd history.

    Raises:
        NotImplementedError: for a sparse or otherwise unstrided tensor.
    """
    if tensor.layout is not torch.strided:
        raise NotImplementedError(f"the simulated NPU has no {tensor.layout} tensors")
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return _retag(tensor.detach() if tensor.requires_grad else tensor, _EXTENSION)


def inputs(value: Any) -> Any:
    """`value` with every NPU tensor and NPU device in it, at any depth of lists, replaced by the CPU's."""
    if isinstance(value, torch.Tensor):
        return as_cpu(value)
    if isinstance(value, (list, tuple)):
        return [inputs(each) for each in value]
    if isinstance(value, torch.device) and value.type == "npu":
        return torch.device("cpu")
    return value


def adopt(npu: torch.Tensor, cpu: torch.Tensor) -> None:
    """Give `npu` the memory and the shape of `cpu`: memory that came through DLPack cannot be resized."""
    new = as_npu(cpu)
    set_storage(npu, new.untyped_storage(), int(new.storage_offset()), new.size(), new.stride())


def set_storage(
    npu: torch.Tensor, storage: torch.UntypedStorage, offset: int, size: Sequence[int], stride: Sequence[int]
) -> None:
    """Let `npu` look at `storage` from `offset` on; offset and strides count elements."""
    torch.ops.aten.set_.source_Storage_storage_offset(npu, storage, offset, size, stride)
