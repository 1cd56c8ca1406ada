"""Pinned memory, which on the simulated NPU is ordinary memory that remembers having been asked for."""

from __future__ import annotations

from typing import Any

import torch


def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    """A copy of the CPU tensor that says it is pinned."""
    copy = self.clone()
    # PyTorch keeps the Python object of a storage, with its attributes, as long as the storage lives
    copy.untyped_storage()._simulated_pin = True  # type: ignore[attr-defined]
    return copy


def is_pinned(self: torch.Tensor, device: Any = None) -> bool:
    """Whether the tensor's memory came from `pin_memory`."""
    return getattr(self.untyped_storage(), "_simulated_pin", False)
