"""The backend `hccl` of `torch.distributed`: gloo, on the CPU's view of the NPU tensors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist

from amplint.simnpu.memory import inputs

#: Collectives that gloo has under another name.
_GLOO = {"all_gather_single": "_allgather_base", "reduce_scatter_single": "_reduce_scatter_base"}

_COLLECTIVES = (
    "_allgather_base",
    "_reduce_scatter_base",
    "all_gather_single",
    "allgather",
    "allgather_into_tensor_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "broadcast",
    "gather",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "scatter",
    "send",
)


class Work(cast(Any, dist)._Work):  # type: ignore[misc]
    """A collective under way. Its future holds the NPU tensors, where gloo's would hold CPU ones."""

    def __init__(self, gloo: Any, value: Any) -> None:
        super().__init__()
        self._gloo, self._value = gloo, value
        self._future: torch.futures.Future[Any] = torch.futures.Future()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until it is done."""
        return bool(self._gloo.wait())

    def is_completed(self) -> bool:
        """Whether it is done."""
        return bool(self._gloo.is_completed())

    def get_future(self) -> torch.futures.Future[Any]:
        """A future with the tensors; waits until it is done."""
        self._gloo.wait()
        if not self._future.done():
            self._future.set_result(self._value)
        return self._future

    def result(self) -> Any:
        """The tensors."""
        return self._value


class ProcessGroupHccl(cast(Any, dist).ProcessGroup):  # type: ignore[misc]
    """One process group of the backend."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._gloo = cast(Any, dist).ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self) -> str:
        """`"hccl"`."""
        return "hccl"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gloo, name)


def _collective(name: str) -> Any:
    def run(self: ProcessGroupHccl, *args: Any, **kwargs: Any) -> Work:
        gloo = getattr(self._gloo, _GLOO.get(name, name))
        work = gloo(*inputs(args), **{key: inputs(each) for key, each in kwargs.items()})
        return Work(work, _first_list(args[0]) if args else None)

    return run


def _first_list(tensors: Any) -> Any:
    while isinstance(tensors, (list, tuple)) and tensors and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    return tensors


def register() -> None:
    """Make `init_process_group("hccl")` work, and `is_hccl_available()` true."""
    for name in _COLLECTIVES:
        setattr(ProcessGroupHccl, name, _collective(name))
    dist.Backend.register_backend("hccl", ProcessGroupHccl, devices=["npu"])
    dist.is_hccl_available = lambda: True  # type: ignore[attr-defined]
