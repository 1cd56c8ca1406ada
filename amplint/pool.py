"""Several processes for many files, and none for a few.

Workers are spawned, never forked. A worker that dies (a crash in native code) costs the result of the one file that
killed it: the files of its batch are tried again in smaller batches until it is found.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

#: Bytes of source in one batch.
_BATCH = 600_000
#: Python from 3.11 on keeps the working directory out of `sys.path` where it is set.
_SAFE_PATH = "PYTHONSAFEPATH"
#: Seconds in which what looks after the workers notices that they are gone.
_GRACE = 10
_HAS_MASKS = hasattr(signal, "pthread_sigmask")


@dataclass(frozen=True, slots=True)
class Lost(Generic[ItemT]):
    """An item whose processing killed the worker."""

    item: ItemT


def worker_count(jobs: int) -> int:
    """Processes to use: `jobs`, or one for each CPU that this process may use.

    One where a worker would import what lies in the working directory instead of the standard library.
    """
    if sys.version_info < (3, 11) and _shadows_standard_library():
        return 1
    if jobs > 0:
        return jobs
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def batches(items: Sequence[ItemT], size: Callable[[ItemT], int]) -> list[list[ItemT]]:
    """Items in batches of about equal size, the biggest items first."""
    ordered = sorted(items, key=size, reverse=True)
    found: list[list[ItemT]] = []
    room = 0
    for item in ordered:
        if room <= 0:
            found.append([])
            room = _BATCH
        found[-1].append(item)
        room -= max(1, size(item))
    return found


def run_batches(
    work: Callable[[list[ItemT]], list[ResultT]],
    todo: list[list[ItemT]],
    *,
    workers: int,
    initializer: Callable[..., None],
    arguments: tuple[object, ...],
) -> Iterator[ResultT | Lost[ItemT]]:
    """Results of `work` over all batches, as they come. `work` and its items must be importable and picklable."""

    def pool(size: int) -> ProcessPoolExecutor:
        with _starting():  # its semaphores have a process of their own
            return ProcessPoolExecutor(size, get_context("spawn"), _start, (initializer, arguments))

    def carefully(batch: list[ItemT]) -> Iterator[ResultT | Lost[ItemT]]:
        """A batch whose worker may have died of it, in a process of its own; halved until the culprit is alone."""
        try:
            with pool(1) as alone:
                yield from _submit(alone, work, batch).result()
        except BrokenProcessPool:
            if len(batch) == 1:
                yield Lost(batch[0])
                return
            half = len(batch) // 2
            yield from carefully(batch[:half])
            yield from carefully(batch[half:])

    unfinished: list[list[ItemT]] = []
    with pool(min(workers, len(todo))) as executor:
        try:
            running = {_submit(executor, work, batch): batch for batch in todo}
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    batch = running.pop(future)
                    try:
                        yield from future.result()
                    except BrokenProcessPool:
                        unfinished.append(batch)
        except BaseException:
            stop(executor)
            raise
    for batch in unfinished:
        yield from carefully(batch)


def one_worker(initializer: Callable[..., None], arguments: tuple[object, ...]) -> ProcessPoolExecutor:
    """A process that keeps what it knows from one piece of work to the next; it starts with the first one.

    What is submitted to it goes through `submit`.
    """
    with _starting():
        return ProcessPoolExecutor(1, get_context("spawn"), _start, (initializer, arguments))


def submit(
    executor: ProcessPoolExecutor, work: Callable[..., ResultT], *arguments: object
) -> Future[ResultT]:
    """Submit a piece of work; raises `BrokenProcessPool` when the process has died."""
    with _starting():
        return executor.submit(work, *arguments)


def stop(executor: ProcessPoolExecutor) -> None:
    """End the processes of a pool: what they are at may take long, and nobody waits for it."""
    workers_left = list((getattr(executor, "_processes", None) or {}).values())
    manager = getattr(executor, "_executor_manager_thread", None)
    executor.shutdown(wait=False, cancel_futures=True)
    for process in workers_left:
        process.terminate()
    if manager is not None:  # it closes a pipe that Python, when it ends, would write to
        manager.join(_GRACE)


def _submit(
    executor: ProcessPoolExecutor, work: Callable[[list[ItemT]], list[ResultT]], batch: list[ItemT]
) -> Future[list[ResultT]]:
    """Submit a batch; a pool that has broken meanwhile gives a future that says so."""
    try:
        with _starting():
            return executor.submit(work, batch)
    except BrokenProcessPool as error:
        failed: Future[list[ResultT]] = Future()
        failed.set_exception(error)
        return failed


def _start(initializer: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """Begin a worker: an interrupt is the business of the process that started it, without which it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    initializer(*arguments)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _starting() -> Iterator[None]:
    """Let processes that start meanwhile inherit two things.

    They do not look for modules in the working directory, where the linted code is; and an interrupt, which is not
    theirs to handle, does not reach them while they still import what they need.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if _HAS_MASKS else set()
    try:
        yield
    finally:
        if _HAS_MASKS:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


def _shadows_standard_library() -> bool:
    try:
        names = {name.partition(".")[0] for name in os.listdir()}
    except OSError:
        return True
    return not names.isdisjoint(sys.stdlib_module_names)
