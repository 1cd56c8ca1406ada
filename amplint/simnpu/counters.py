"""What the simulated NPU was asked to do: operators by name, and waits of the host for the device.

A real NPU works behind the host's back. Whatever brings a value to the host, or a shape that depends on
values, makes the host wait; each such wait is counted here under a reason, exactly.
"""

from __future__ import annotations

import warnings
from collections import Counter

#: Operator without overload -> how often it ran on the device. Composite operators count as what they call.
ops: Counter[str] = Counter()

#: Reason -> how often the host waited: `item`, `d2h`, `synchronize`, or the operator (`aten::nonzero`).
syncs: Counter[str] = Counter()

_MODES = ("default", "warn", "error")
_mode = "default"


def sync(reason: str) -> None:
    """Count one wait, and warn or raise where `set_sync_debug_mode` asked for it.

    Raises:
        RuntimeError: in mode `"error"`.
    """
    syncs[reason] += 1
    if _mode == "warn":
        warnings.warn(f"called a synchronizing NPU operation: {reason}", stacklevel=4)
    elif _mode == "error":
        raise RuntimeError(f"called a synchronizing NPU operation: {reason}")


def set_sync_debug_mode(mode: int | str) -> None:
    """Choose what a wait does besides being counted: `"default"` or 0, `"warn"` or 1, `"error"` or 2.

    Raises:
        ValueError: for another mode.
    """
    global _mode
    name = _MODES[mode] if isinstance(mode, int) and 0 <= mode < len(_MODES) else mode
    if name not in _MODES:
        raise ValueError(f"invalid sync debug mode {mode!r}: must be one of default, warn, error or 0, 1, 2")
    _mode = str(name)


def get_sync_debug_mode() -> int:
    """The mode as a number: 0 default, 1 warn, 2 error."""
    return _MODES.index(_mode)


def reset() -> None:
    """Set all counts to zero."""
    ops.clear()
    syncs.clear()
