"""A simulated NPU: a device called `npu` that executes on the CPU, for tests and continuous integration.

From the command line, for a script or a console script and everything that it starts::

    python -m amplint.simnpu train.py --epochs 1

In a process of one's own, once, before the first tensor::

    from amplint import simnpu

    simnpu.activate(soc="910B")

It shows what a script does with an NPU: which device, which dtype autocast gives, when the loss scale moves,
where the host waits. It does not show speed, memory, or the last digits of the NPU's own kernels. It needs
PyTorch 2.10 or newer and nothing else. Importing this module does nothing, and does not import PyTorch.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from amplint.simnpu import counters
from amplint.simnpu.settings import CHIPS, Chip, Settings, from_environment, operators

__all__ = [
    "CHIPS",
    "OVERLAY",
    "Chip",
    "Settings",
    "activate",
    "activate_from_environment",
    "blocked",
    "current_settings",
    "is_active",
    "op_counts",
    "reset_counts",
    "sync_count",
    "sync_counts",
]

#: Folder with the `torch_npu` of the simulation. PyTorch loads it by itself where it is on the import path.
OVERLAY = Path(__file__).parent / "overlay"

_active: Settings | None = None


def activate(soc: str = "910B", *, devices: int | None = None, blocklist: Iterable[str] = ()) -> None:
    """Give this process the device `npu`, and an importable `torch_npu`. Once for all: it cannot be undone.

    A second call with the same arguments does nothing.

    Args:
        soc: the chip: `"910A"` (float16 saturates, no bfloat16), `"910B"`, `"910C"` or `"950"`.
        devices: how many devices are reported; None means one per process of a node under `torchrun`. They are
            one and the same device, and every tensor says `npu:0`.
        blocklist: operators that raise `NotImplementedError` (`"aten::sort"`, `"linear"`).

    Raises:
        RuntimeError: if the process has it with other settings, has another backend in its place, or has
            PyTorch older than 2.10.
        ValueError: for an unknown chip, fewer than one device, or a name that is no operator of PyTorch.
    """
    _activate(Settings(soc, devices, frozenset(blocklist)))


def activate_from_environment() -> None:
    """`activate` with what the environment variables `AMPLINT_SIMNPU_*` say, unless it is active already."""
    import torch  # noqa: F401

    if not is_active():
        _activate(from_environment())


def _activate(settings: Settings) -> None:
    global _active
    import torch  # may load the simulated torch_npu by itself, and so activate  # noqa: F401

    if _active is not None:
        if settings != _active:
            raise RuntimeError(f"the simulated NPU is active with other settings: {_active}")
        return
    from amplint.simnpu.install import install

    _active = settings
    try:
        install(settings)
    except BaseException:
        _active = None
        raise
    if str(OVERLAY) not in sys.path:
        sys.path.insert(0, str(OVERLAY))
    import torch_npu  # noqa: F401


def is_active() -> bool:
    """Whether this process has the simulated NPU."""
    return _active is not None


def current_settings() -> Settings:
    """What is simulated in this process.

    Raises:
        RuntimeError: if it is not active.
    """
    if _active is None:
        raise RuntimeError("the simulated NPU is not active")
    return _active


def sync_count() -> int:
    """How often the host waited for the device since the start or `reset_counts`.

    A wait is: `.item()` and what uses it (`float(t)`, `if t:`), a blocking copy to the CPU, `synchronize`, and
    operators whose result's shape depends on values (`nonzero`, `masked_select`, indexing with a mask, ...).
    """
    return sum(counters.syncs.values())


def sync_counts() -> dict[str, int]:
    """The same by reason: `item`, `d2h`, `synchronize`, or the operator."""
    return dict(counters.syncs)


def op_counts() -> dict[str, int]:
    """Operator (`aten::mm`) -> how often it ran on the device since the start or `reset_counts`."""
    return dict(counters.ops)


def reset_counts() -> None:
    """Set all counts to zero."""
    counters.reset()


@contextlib.contextmanager
def blocked(*names: str) -> Iterator[None]:
    """Context manager inside which these operators raise as well; see `activate`.

    Raises:
        ValueError: for a name that is no operator of PyTorch.
    """
    from amplint.simnpu import blocklist

    added = blocklist.block(operators(names))
    try:
        yield
    finally:
        blocklist.unblock(added)
