"""Streams and events. The simulated NPU has finished an operation when the call returns.

They are PyTorch's own classes, whose C++ half treats the device as one that has a single stream, with what it
cannot do for such a device (timing, waiting for an event) and with the waits counted.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from amplint.simnpu import counters

_torch_event: Any = torch.Event
_torch_stream: Any = torch.Stream


class _AnyEvent(type(_torch_event)):  # type: ignore[misc]
    """Makes PyTorch's own events instances of `Event` too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _torch_event)


class _AnyStream(type(_torch_stream)):  # type: ignore[misc]
    """Makes PyTorch's own streams instances of `Stream` too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _torch_stream)


class Event(_torch_event, metaclass=_AnyEvent):  # type: ignore[misc]
    """A point in time; everything before it is done."""

    def __new__(cls, device: Any = None, enable_timing: bool = False, **other: Any) -> Event:
        """Accept what `torch.Event` and `torch_npu.npu.Event` accept; the device is `npu` unless given."""
        if isinstance(device, bool):  # torch_npu's first argument
            device, enable_timing = None, device
        event: Event = super().__new__(cls, device or "npu", enable_timing=enable_timing)
        event._time = None
        return event

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._time: float | None

    def record(self, stream: Any = None) -> None:
        """Note the time."""
        self._time = time.perf_counter()

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to `end_event`: time of the host, not of a device.

        Raises:
            RuntimeError: if one of the events was not recorded.
        """
        if self._time is None or end_event._time is None:
            raise RuntimeError("both events must be recorded before calculating elapsed time")
        return float(end_event._time - self._time) * 1e3

    def synchronize(self) -> None:
        """Wait for the event; counted as a wait of the host."""
        counters.sync("synchronize")

    def wait(self, stream: Any = None) -> None:
        """Let a stream wait for the event."""

    def query(self) -> bool:
        """Whether the event has happened: always."""
        return True


class Stream(_torch_stream, metaclass=_AnyStream):  # type: ignore[misc]
    """A queue of work; all queues are the same one."""

    def __new__(cls, device: Any = None, priority: int = 0, **other: Any) -> Stream:
        """Accept what `torch.Stream` and `torch_npu.npu.Stream` accept; the device is `npu` unless given."""
        known = {name: other[name] for name in ("stream_id", "device_index", "device_type") if name in other}
        if known:
            same: Stream = super().__new__(cls, **known)
            return same
        new: Stream = super().__new__(cls, "npu" if device is None else device, priority=priority)
        return new

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take the arguments of `__new__`."""

    @property
    def npu_stream(self) -> int:
        """Number of the queue."""
        return int(self.stream_id)

    def synchronize(self) -> None:
        """Wait for the queue; counted as a wait of the host."""
        counters.sync("synchronize")

    def record_event(self, event: Any = None) -> Any:
        """Record `event`, or a new one, on this queue."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Let this queue wait for an event."""


def current_stream(device: Any = None) -> Stream:
    """The only queue."""
    return Stream()


def set_stream(stream: Any) -> None:
    """Make `stream` the current one: it is already."""


def stream(stream: Any) -> Any:
    """Context manager under which `stream` is the current one; None means the one that already is."""
    return Stream() if stream is None else stream
