"""Operators that raise as if the NPU had no kernel for them.

An operator that the dispatcher brings to the fallback is refused there. One that PyTorch composes of others
never arrives, so it gets a kernel that raises, for as long as it is blocked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import torch

_blocked: set[str] = set()
_libraries: dict[str, Any] = {}


def block(names: Iterable[str]) -> set[str]:
    """Block operators (`aten::name`); returns those that were not blocked before.

    Raises:
        ValueError: for a name that is no operator of PyTorch.
    """
    added = set(names) - _blocked
    packets = {name: _packet(name) for name in added}
    for name, packet in packets.items():
        _libraries[name] = _register(name, packet)
    _blocked.update(added)
    return added


def unblock(names: Iterable[str]) -> None:
    """Undo `block`."""
    for name in names:
        _blocked.discard(name)
        _libraries.pop(name)._destroy()


def refuse(name: str) -> None:
    """Raise if the operator is blocked.

    Raises:
        NotImplementedError: as PyTorch does for an operator without a kernel.
    """
    if name in _blocked:
        _raise(name)


def _raise(name: str) -> NoReturn:
    raise NotImplementedError(
        f"Could not run '{name}' with arguments from the 'npu' backend: "
        "the operator is on the blocklist of the simulated NPU."
    )


def _packet(name: str) -> Any:
    namespace, _, operator = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    if packet is None:
        raise ValueError(f"PyTorch {torch.__version__} has no operator {name}")
    return packet


def _register(name: str, packet: Any) -> Any:
    library: Any = torch.library.Library(name.partition("::")[0], "IMPL")  # type: ignore[no-untyped-call]
    for overload in packet.overloads():
        schema = getattr(packet, overload)._schema
        qualified = f"{schema.name}.{schema.overload_name}".rstrip(".")
        if not torch._C._dispatch_has_kernel(qualified):  # TorchScript's own
            continue
        if not torch._C._dispatch_has_kernel_for_dispatch_key(qualified, "PrivateUse1"):
            library.impl(qualified.partition("::")[2], _raiser(name), "PrivateUse1")
    return library


def _raiser(name: str) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        _raise(name)

    return kernel
