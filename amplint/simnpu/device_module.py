"""The module `torch.npu`, and its submodules, as far as training scripts use them."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from typing import Any

import torch

from amplint.simnpu import counters, rng, saturation, scaler, streams
from amplint.simnpu.settings import Settings

_index = 0


def build(settings: Settings) -> types.ModuleType:
    """`torch.npu` for the given chip. It and its submodules are put into `sys.modules`.

    Functions that make no sense without a chip answer what an idle one would: no memory in use, no stream but
    one.
    """
    npu = types.ModuleType("torch.npu")
    npu.__dict__.update(_devices(settings), **_memory(settings), **_random(), **_precision(settings))
    npu.__dict__.update(_streams(), **_legacy_tensor_types())
    for name, members in _submodules(settings).items():
        _add(npu, name, members)
    npu.__dict__["__path__"] = []  # a package, so that `import torch.npu.amp` finds the submodules
    sys.modules["torch.npu"] = npu
    return npu


def _add(npu: types.ModuleType, name: str, members: dict[str, Any]) -> None:
    module = types.ModuleType(f"torch.npu.{name}")
    module.__dict__.update(members)
    module.__dict__["__path__"] = []
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[f"torch.npu.{parent}"] if parent else npu, last, module)
    sys.modules[module.__name__] = module


def _devices(settings: Settings) -> dict[str, Any]:
    chip = settings.chip
    properties = types.SimpleNamespace(
        name=chip.name, total_memory=chip.memory, major=0, minor=0, multi_processor_count=1
    )
    index_of = functools.partial(device_index, settings)

    def set_device(device: Any) -> None:
        global _index
        _index = index_of(device)

    class device(contextlib.ContextDecorator):
        """Makes a device the current one inside a `with` block."""

        def __init__(self, device: Any) -> None:
            self.idx = None if device is None else index_of(device)

        def __enter__(self) -> None:
            self.previous = _index
            set_device(self.idx)

        def __exit__(self, *error: object) -> None:
            set_device(self.previous)

    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "init": _nothing,
        "_lazy_init": _nothing,
        "device_count": lambda: settings.device_count,
        "current_device": lambda: _index,
        "_get_device_index": lambda device, optional=False, allow_cpu=False: index_of(device),
        "set_device": set_device,
        "device": device,
        "device_of": lambda tensor: device(tensor.get_device() if tensor.is_npu else None),
        "synchronize": synchronize,
        "get_device_name": lambda device=None: chip.name,
        "get_device_capability": lambda device=None: None,
        "get_device_properties": lambda device=None: properties,
        "can_device_access_peer": lambda device, peer_device: True,
        "get_soc_version": lambda: 0,
        "is_bf16_supported": lambda including_emulation=True: chip.bf16,
        "utilization": lambda device=None: 0,
        "set_compile_mode": _nothing,
        "set_option": _nothing,
        "set_sync_debug_mode": counters.set_sync_debug_mode,
        "get_sync_debug_mode": counters.get_sync_debug_mode,
        "get_npu_overflow_flag": saturation.overflowed,
        "clear_npu_overflow_flag": saturation.clear,
    }


def device_index(settings: Settings, device: Any = None) -> int:
    """Number of `device`, an index, a name or a `torch.device`; the current one if it names none.

    Raises:
        RuntimeError: for a device that is not there.
    """
    if device is None:
        return _index
    if not isinstance(device, int):
        device = torch.device(device).index
    if device is None or device < 0:
        return _index
    if device >= settings.device_count:
        raise RuntimeError(
            f"invalid device ordinal: npu:{device}, but there are {settings.device_count} simulated NPUs"
        )
    return int(device)


def synchronize(device: Any = None) -> None:
    """Wait for the device, which has finished; counted as a wait of the host."""
    counters.sync("synchronize")


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Accept everything."""


def _memory(settings: Settings) -> dict[str, Any]:
    total = settings.chip.memory
    zeros = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    cached = ("memory_cached", "max_memory_cached")
    ignored = (
        "empty_cache",
        "reset_peak_memory_stats",
        "reset_accumulated_memory_stats",
        "reset_max_memory_allocated",
        "reset_max_memory_cached",
        "set_per_process_memory_fraction",
        "ipc_collect",
    )
    return {
        **{name: lambda device=None: 0 for name in (*zeros, *cached)},
        **dict.fromkeys(ignored, _nothing),
        "mem_get_info": lambda device=None: (total, total),
        "memory_stats": lambda device=None: memory_stats(),
        "memory_summary": lambda device=None, abbreviated=False: "simulated NPU: memory is not simulated",
    }


def memory_stats(device: Any = None) -> dict[str, int]:
    """Counters of an allocator that has not allocated anything, all 0 (bytes or numbers)."""
    kinds = ("allocated_bytes", "reserved_bytes", "active_bytes", "allocation", "segment", "active")
    names = [f"{kind}.all.{what}" for kind in kinds for what in ("current", "peak", "allocated", "freed")]
    return dict.fromkeys([*names, "num_alloc_retries", "num_ooms"], 0)


def _random() -> dict[str, Any]:
    return {
        "manual_seed": rng.manual_seed,
        "manual_seed_all": rng.manual_seed,
        "seed": rng.seed,
        "seed_all": rng.seed,
        "initial_seed": rng.initial_seed,
        "get_rng_state": rng.get_rng_state,
        "set_rng_state": rng.set_rng_state,
        "get_rng_state_all": rng.get_rng_state_all,
        "set_rng_state_all": rng.set_rng_state_all,
    }


def _precision(settings: Settings) -> dict[str, Any]:
    half = [torch.float16, torch.bfloat16] if settings.chip.bf16 else [torch.float16]
    return {
        "get_amp_supported_dtype": lambda: [*half, torch.float32],
        "is_autocast_enabled": lambda: torch.is_autocast_enabled("npu"),
        "set_autocast_enabled": lambda enabled: torch.set_autocast_enabled("npu", enabled),
        "get_autocast_dtype": lambda: torch.get_autocast_dtype("npu"),
        "set_autocast_dtype": lambda dtype: torch.set_autocast_dtype("npu", dtype),
        # switches with torch_npu's defaults; they change nothing here
        "matmul": types.SimpleNamespace(allow_hf32=False, cube_math_type=None),
        "conv": types.SimpleNamespace(allow_hf32=True),
        "config": types.SimpleNamespace(allow_internal_format=not settings.chip.bf16),
    }


def _streams() -> dict[str, Any]:
    return {
        "Stream": streams.Stream,
        "Event": streams.Event,
        "current_stream": streams.current_stream,
        "default_stream": streams.current_stream,
        "set_stream": streams.set_stream,
        "stream": streams.stream,
    }


class _LegacyTensorType(type):
    """Answers `isinstance(x, torch.npu.FloatTensor)`."""

    dtype: torch.dtype

    def __instancecheck__(cls, instance: object) -> bool:
        if not isinstance(instance, torch.Tensor):
            return False
        return instance.device.type == "npu" and instance.dtype is cls.dtype

    def __call__(cls, *data: Any) -> torch.Tensor:
        if all(isinstance(each, int) for each in data):
            return torch.empty(data, dtype=cls.dtype, device="npu")
        return torch.tensor(data[0], dtype=cls.dtype, device="npu")


def _legacy_tensor_types() -> dict[str, Any]:
    dtypes = {
        "Float": torch.float32,
        "Half": torch.float16,
        "BFloat16": torch.bfloat16,
        "Double": torch.float64,
        "Long": torch.int64,
        "Int": torch.int32,
        "Short": torch.int16,
        "Char": torch.int8,
        "Byte": torch.uint8,
        "Bool": torch.bool,
    }
    return {
        f"{name}Tensor": _LegacyTensorType(f"{name}Tensor", (), {"dtype": dtype})
        for name, dtype in dtypes.items()
    }


def _submodules(settings: Settings) -> dict[str, dict[str, Any]]:
    amp = {
        "GradScaler": scaler.GradScaler,
        "autocast": scaler.autocast,
        "custom_fwd": functools.partial(torch.amp.custom_fwd, device_type="npu"),
        "custom_bwd": functools.partial(torch.amp.custom_bwd, device_type="npu"),
    }
    return {
        "amp": amp,
        "amp.autocast_mode": {name: amp[name] for name in ("autocast", "custom_fwd", "custom_bwd")},
        "amp.grad_scaler": {"GradScaler": scaler.GradScaler},
        "amp.common": {"amp_definitely_not_available": scaler.amp_definitely_not_available},
        "random": _random(),
        "memory": _memory(settings),
        "utils": {
            "is_support_inf_nan": lambda: not settings.saturates,
            "is_bf16_supported": lambda: settings.chip.bf16,
            "get_cann_version": lambda module="CANN": "",
        },
        "mstx": dict.fromkeys(("mark", "range_start", "range_end", "range_push", "range_pop"), _nothing),
    }
