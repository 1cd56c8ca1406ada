"""Turns PrivateUse1, the key that PyTorch keeps for devices of others, into the device `npu` of this process."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils import backend_registration

from amplint.simnpu import (
    autocast,
    blocklist,
    device_module,
    fallback,
    kernels,
    rng,
    saturation,
    storages,
    streams,
)
from amplint.simnpu.settings import Settings

#: First PyTorch release whose device hooks can be written in Python.
OLDEST_TORCH = (2, 10)

#: Registrations last as long as these objects.
_libraries: list[Any] = []


class _Hooks(torch._C._acc.PrivateUse1Hooks):
    def is_available(self) -> bool:
        return True

    def is_built(self) -> bool:
        return True

    def has_primary_context(self, device_index: int) -> bool:
        return True


class _Guard(torch._C._acc.DeviceGuard):
    def type_(self) -> Any:
        return torch._C._autograd.DeviceType.PrivateUse1


def check_torch() -> None:
    """Raise unless this PyTorch can be given a device from Python.

    Raises:
        RuntimeError: for PyTorch before 2.10, or if another backend has taken the place.
    """
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if release < OLDEST_TORCH:
        raise RuntimeError(f"the simulated NPU needs PyTorch 2.10 or newer, and this is {torch.__version__}")
    taken = torch._C._get_privateuse1_backend_name()
    if taken != "privateuseone":
        raise RuntimeError(f"this process already has a device of others, {taken!r}: start a fresh one")


def install(settings: Settings) -> None:
    """Register the device. It cannot be undone.

    Raises:
        RuntimeError: see `check_torch`.
    """
    check_torch()
    saturation.enabled = settings.saturates
    fallback.bf16_supported = settings.chip.bf16
    torch.Generator = rng.Generator  # type: ignore[misc]
    npu = device_module.build(settings)
    backend_registration._setup_privateuseone_for_python_backend("npu", npu, _Hooks(), _Guard())
    npu.__dict__["default_generators"] = (rng.default(),)
    _register_kernels()
    blocklist.block(settings.blocklist)
    _clear_the_cache_with_torch()
    _answer_for_the_accelerator(settings)
    storages.register()
    if torch.distributed.is_available():
        from amplint.simnpu import hccl

        hccl.register()


def _register_kernels() -> None:
    new_library: Any = torch.library.Library
    everything = new_library("_", "IMPL")
    everything.fallback(fallback.run, "PrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    aten = new_library("aten", "IMPL")
    for key, table in (
        ("PrivateUse1", kernels.npu_kernels()),
        ("CPU", kernels.cpu_kernels()),
        ("AutogradPrivateUse1", kernels.autograd_kernels()),
        ("AutocastPrivateUse1", dict(autocast.kernels())),
    ):
        for name, kernel in table.items():
            aten.impl(name, kernel, key)
    _libraries.extend((everything, aten))


def _clear_the_cache_with_torch() -> None:
    clear = torch.clear_autocast_cache

    def clear_autocast_cache() -> None:
        clear()
        autocast.clear_cache()

    torch.clear_autocast_cache = clear_autocast_cache


def _answer_for_the_accelerator(settings: Settings) -> None:
    """Replace what `torch.accelerator` and `torch` would ask C++ hooks for that Python cannot provide."""
    npu = sys.modules["torch.npu"]
    functions = {
        "current_device_index": npu.current_device,
        "current_device_idx": npu.current_device,
        "device_count": npu.device_count,
        "device_index": npu.device,
        "empty_cache": npu.empty_cache,
        "get_memory_info": npu.mem_get_info,
        "max_memory_allocated": npu.max_memory_allocated,
        "max_memory_reserved": npu.max_memory_reserved,
        "memory_allocated": npu.memory_allocated,
        "memory_reserved": npu.memory_reserved,
        "memory_stats": npu.memory_stats,
        "reset_accumulated_memory_stats": npu.reset_accumulated_memory_stats,
        "reset_peak_memory_stats": npu.reset_peak_memory_stats,
        "set_device_idx": npu.set_device,
        "set_device_index": npu.set_device,
        "synchronize": device_module.synchronize,
    }
    for name, function in functions.items():
        if hasattr(torch.accelerator, name):
            setattr(torch.accelerator, name, function)
    torch.Event = streams.Event  # type: ignore[misc]
    torch.Stream = streams.Stream  # type: ignore[misc]
