"""Stand-ins for what the machine lacks: other PyTorch releases, accelerators, and ``torch_npu``."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # optimizers import it at their first step, which must not happen under a stand-in

import amplint.runtime

SHIM = Path(amplint.runtime.__file__)
_numbers = itertools.count()


class NpuScaler(getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)):  # type: ignore[misc]
    """Has torch_npu's signature and state, and works on CPU tensors."""

    def __init__(
        self,
        init_scale=2.0**16,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=2000,
        dynamic=True,
        enabled=True,
    ):
        # Without the device argument PyTorch's constructor would disable itself here for want of CUDA.
        super().__init__(enabled=False)
        self._device = "cpu"
        self._enabled = enabled
        self._init_scale = init_scale
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._dynamic = dynamic
        self._init_growth_tracker = 0
        self._scale = self._growth_tracker = None
        self._per_optimizer_states = {}
        self.cleared_flags = 0

    def scale(self, outputs):
        self.cleared_flags += 1
        return outputs * self._init_scale

    def state_dict(self):
        return {**super().state_dict(), "dynamic": self._dynamic} if self._enabled else {}

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        if self._enabled:
            self._dynamic = state_dict["dynamic"]


@pytest.fixture
def load_shim() -> Iterator[Callable[..., types.ModuleType]]:
    """Load the shim's file afresh, as a module that knows nothing of the package it came from."""
    loaded = []

    def load(path: Path = SHIM) -> types.ModuleType:
        name = f"_amp_copy_{next(_numbers)}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loaded.append(name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in loaded:
        del sys.modules[name]


@pytest.fixture
def no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a CPU only, whatever this one has."""
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    monkeypatch.delattr(torch, "npu", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    _accelerator(monkeypatch, lambda check_available=False: None)


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any] | None], None]:
    """Replace ``torch.accelerator.current_accelerator``; None takes ``torch.accelerator`` away."""
    return lambda current: _accelerator(monkeypatch, current)


def _accelerator(monkeypatch: pytest.MonkeyPatch, current: Callable[..., Any] | None) -> None:
    if current is None:
        monkeypatch.delattr(torch, "accelerator", raising=False)
    else:
        stand_in = types.SimpleNamespace(current_accelerator=current)
        monkeypatch.setattr(torch, "accelerator", stand_in, raising=False)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU be the accelerator, so that casts and scaling really happen."""
    monkeypatch.setattr(amplint.runtime, "device_type", lambda: "cpu")


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """An importable ``torch_npu`` with an available NPU; ``npu.inf_nan`` says whether float16 has Inf."""
    chip = types.SimpleNamespace(inf_nan=True, asked=0, available=True, autocast=False, dtype=torch.float16)

    def is_support_inf_nan() -> bool:
        chip.asked += 1
        return chip.inf_nan

    module = types.ModuleType("torch_npu.npu")
    module.is_available = lambda: chip.available  # type: ignore[attr-defined]
    module.is_autocast_enabled = lambda: chip.autocast  # type: ignore[attr-defined]
    module.get_autocast_dtype = lambda: chip.dtype  # type: ignore[attr-defined]
    module.utils = types.SimpleNamespace(is_support_inf_nan=is_support_inf_nan)  # type: ignore[attr-defined]
    module.amp = types.SimpleNamespace(GradScaler=NpuScaler)  # type: ignore[attr-defined]
    package = types.ModuleType("torch_npu")
    package.npu = module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_npu", package)
    monkeypatch.setattr(torch, "npu", module, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    _accelerator(monkeypatch, None)  # PyTorch would need a registered backend to report one
    chip.scaler = NpuScaler
    return chip
