"""Storages on `npu`: making, copying, and reading them from files.

PyTorch makes them with an allocator in C++, which a device written in Python cannot have, and crashes without.
So the memory is made by the CPU's allocator and handed over.
"""

from __future__ import annotations

from typing import Any

import torch

from amplint.simnpu.memory import as_cpu, as_npu

_PRIORITY = 1  # before PyTorch's own, whose first is 10


def register() -> None:
    """Teach `torch.save` the location `npu:0`, `torch.load` every one that begins with `npu`, and storages."""
    torch.serialization.register_package(_PRIORITY, _location, _restored)
    base: Any = torch.storage._StorageBase
    clone, cpu = base.clone, base.cpu
    base.clone = lambda self: _copied(self) if self.device.type == "npu" else clone(self)
    base.cpu = lambda self: _on_cpu(self) if self.device.type == "npu" else cpu(self)
    new = torch.UntypedStorage.__new__

    def make(cls: type, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type != "npu":
            return new(cls, *args, **kwargs, **({} if device is None else {"device": device}))
        return _handed_over(new(cls, *args, **kwargs))

    torch.UntypedStorage.__new__ = make  # type: ignore[method-assign]


def _location(storage: Any) -> str | None:
    return "npu:0" if storage.device.type == "npu" else None


def _restored(storage: Any, location: str) -> torch.UntypedStorage | None:
    if location.split(":")[0] != "npu":
        return None
    return _handed_over(storage._untyped_storage if isinstance(storage, torch.TypedStorage) else storage)


def _handed_over(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    return as_npu(torch.empty(0, dtype=torch.uint8).set_(storage).clone()).untyped_storage()


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device="npu").set_(storage)


def _copied(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    return _bytes(storage).clone().untyped_storage()


def _on_cpu(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    return as_cpu(_bytes(storage)).clone().untyped_storage()
