"""float16 without Inf and NaN, as on Ascend 910A: overflow becomes +-65504 and raises a status flag."""

from __future__ import annotations

from typing import Any

import torch

_LARGEST = 65504.0  # largest finite float16

#: Whether the simulated chip works in this mode; set once by `install`.
enabled = False

_overflowed = False


def clamp(result: Any, raises: bool = True) -> None:
    """Saturate every float16 tensor in `result`, in place.

    Args:
        result: tensors, at any depth of lists; what is no CPU tensor of float16 is left alone.
        raises: whether that raises the status flag. An operator that only puts a given Inf into place (a mask
            filled with it) does not overflow.
    """
    global _overflowed
    if isinstance(result, (list, tuple)):
        for each in result:
            clamp(each, raises)
    elif isinstance(result, torch.Tensor) and result.dtype is torch.float16 and not _all_finite(result):
        _overflowed |= raises
        torch.nan_to_num_(result, nan=0.0, posinf=_LARGEST, neginf=-_LARGEST)


def _all_finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def overflowed() -> bool:
    """The chip's status flag: whether a float16 result overflowed since `clear`."""
    return _overflowed


def clear() -> None:
    """Lower the status flag."""
    global _overflowed
    _overflowed = False
