"""`torch_npu.contrib.transfer_to_npu`: CUDA code runs on the NPU, as far as the real module makes it.

What the real one leaves alone is left alone too (`torch.device("cuda").type`, `torch.cuda.nvtx`,
`torch.version.cuda`, the TF32 switches), so that a script that fails there fails here.

Source: `torch_npu/contrib/transfer_to_npu.py` of torch_npu 2.13, read; the lists are the ones of its
documentation.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.parallel
import torch.utils._device


def _words(text: str) -> list[str]:
    return text.split()


_FUNCTIONS = _words("""
arange as_tensor autocast bartlett_window blackman_window empty empty_like empty_strided eye from_file
frombuffer full full_like get_device_module hamming_window hann_window kaiser_window linspace load logspace
normal ones ones_like rand rand_like randint randint_like randn randn_like randperm range scalar_tensor
set_default_device tensor tril_indices triu_indices zeros zeros_like
""")
_TENSOR_METHODS = _words("new_empty new_empty_strided new_full new_ones new_tensor new_zeros pin_memory to")
_MODULE_METHODS = ("to", "to_empty")
_DEVICE_ARGUMENTS = ("device", "device_type", "map_location", "device_id")

_installed = False


def install() -> None:
    """Rename CUDA in this process, once for all. `torch.jit.script` returns its argument from then on."""
    global _installed
    if _installed:
        return
    _installed = True
    warnings.warn(
        "torch.cuda.* and torch.cuda.amp.* are replaced with torch.npu.* and torch.npu.amp.*, the device "
        '"cuda" with "npu" and the backend nccl with hccl (simulated transfer_to_npu).',
        ImportWarning,
        stacklevel=2,
    )
    cast(Any, torch.utils._device)._device_constructors()  # remembers the functions as they are
    _replace_modules()
    for name in _FUNCTIONS:
        if name != "autocast":
            setattr(torch, name, _renaming(getattr(torch, name)))
    _rename_in_constructors()
    for name in _TENSOR_METHODS:
        setattr(torch.Tensor, name, _renaming(getattr(torch.Tensor, name), number_is_device=name == "to"))
    for name in _MODULE_METHODS:
        setattr(torch.nn.Module, name, _renaming(getattr(torch.nn.Module, name), number_is_device=True))
    tensor, module = cast(Any, torch.Tensor), cast(Any, torch.nn.Module)
    tensor.cuda, tensor.is_cuda = tensor.npu, tensor.is_npu
    module.cuda = module.npu
    cast(Any, torch.jit).script = lambda obj, *args, **kwargs: obj
    if torch.distributed.is_available():
        _rename_backend()


def _replace_modules() -> None:
    """Put `torch.npu`'s members in the place of `torch.cuda`'s of the same public name."""
    for name in ("", ".amp", ".amp.autocast_mode", ".amp.grad_scaler", ".amp.common", ".random"):
        npu, cuda = sys.modules[f"torch.npu{name}"], importlib.import_module(f"torch.cuda{name}")
        for member, value in vars(npu).items():
            if not member.startswith("_") and not inspect.ismodule(value):
                setattr(cuda, member, _renaming(value) if inspect.isfunction(value) else value)
    vars(torch.cuda)["DoubleTensor"] = vars(sys.modules["torch.npu"])["FloatTensor"]


def _rename_in_constructors() -> None:
    """Classes keep being classes: their `__init__` renames its arguments."""
    renamed: Any
    for renamed in (
        torch.autocast,
        torch.utils._device.DeviceContext,
        torch.nn.parallel.DistributedDataParallel,
    ):
        renamed.__init__ = _renaming(renamed.__init__)
    for renamed in (torch.Generator, torch.Event):
        renamed.__new__ = staticmethod(_renaming(renamed.__new__))


def _rename_backend() -> None:
    distributed: Any = torch.distributed
    init = distributed.init_process_group

    @functools.wraps(init)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        args = tuple(_in_text(each, "nccl", "hccl") for each in args)
        if "backend" in kwargs:
            kwargs["backend"] = _in_text(kwargs["backend"], "nccl", "hccl")
        return init(*args, **kwargs)

    distributed.init_process_group = init_process_group
    distributed.is_nccl_available = lambda: True


def _renaming(function: Callable[..., Any], number_is_device: bool = False) -> Callable[..., Any]:
    """`function`, called with `npu` wherever an argument that can be a device says `cuda`."""

    @functools.wraps(function)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        for name in _DEVICE_ARGUMENTS:
            if name in kwargs:
                kwargs[name] = _device(kwargs[name], number_is_device=True)
        return function(*[_device(each, number_is_device) for each in args], **kwargs)

    return renamed


def _device(value: Any, number_is_device: bool = False) -> Any:
    if isinstance(value, str):
        return _in_text(value, "cuda", "npu")
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("npu") if value.index is None else torch.device("npu", value.index)
    if isinstance(value, int) and not isinstance(value, bool) and number_is_device:
        return f"npu:{value}"
    if isinstance(value, dict):
        return {_in_text(key, "cuda", "npu"): _in_text(each, "cuda", "npu") for key, each in value.items()}
    return value


def _in_text(value: Any, old: str, new: str) -> Any:
    return value.replace(old, new) if isinstance(value, str) else value
