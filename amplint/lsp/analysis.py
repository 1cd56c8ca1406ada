"""The worker process as the server sees it: one piece of work at a time, the urgent ones first, each cancellable."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, TypeVar

from amplint import pool
from amplint.lsp import worker

ResultT = TypeVar("ResultT")

#: What somebody waits for; what they see when they stop typing; what can wait.
NOW, SOON, LATER = range(3)


#: How often a piece of work is tried: a process may have died before, of something else.
ATTEMPTS = 2


class WorkerDied(Exception):
    """The process that analyses died of this piece of work, as native code may; a new one is there for the next."""


@dataclass(order=True)
class _Job:
    urgency: int
    number: int
    call: tuple[Any, ...] = field(compare=False)
    result: asyncio.Future[Any] = field(compare=False)


class Analysis:
    """Hands work to a process and gives its results, on the server's event loop and never blocking it."""

    def __init__(self, niceness: int = 0) -> None:
        self._niceness = niceness
        self._cancelled: Any = get_context("spawn").Value("Q", 0, lock=False)
        self._executor: ProcessPoolExecutor | None = None
        self._waiting: list[_Job] = []
        self._running: tuple[int, _Job] | None = None
        self._numbers = itertools.count()
        self._tickets = itertools.count(1)
        self._task: asyncio.Task[None] | None = None
        #: Called when a process had to be replaced: what it knew is gone.
        self.restarted: Callable[[], None] = lambda: None

    async def ask(self, urgency: int, work: Callable[..., ResultT], *arguments: Any) -> ResultT:
        """Have a function of `worker` called in the process. Cancelling the caller cancels the work.

        Raises `WorkerDied`.
        """
        loop = asyncio.get_running_loop()
        job = _Job(urgency, next(self._numbers), (work, *arguments), loop.create_future())
        heapq.heappush(self._waiting, job)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._work())
        try:
            found: ResultT = await job.result
        except asyncio.CancelledError:
            job.result.cancel()
            if self._running is not None and self._running[1] is job:
                self._cancelled.value = self._running[0]
            raise
        return found

    async def _work(self) -> None:
        """Do all that waits."""
        while self._waiting:
            job = heapq.heappop(self._waiting)
            if job.result.done():
                continue
            ticket = next(self._tickets)
            self._running = (ticket, job)
            try:
                found = await asyncio.wrap_future(self._submit(ticket, job))
            except BrokenProcessPool:
                self._stop_process()
                self.restarted()
                if not job.result.done():
                    job.result.set_exception(WorkerDied())
            except Exception as error:
                if not job.result.done():
                    job.result.set_exception(error)
            else:
                if not job.result.done():
                    job.result.set_result(found)
            finally:
                self._running = None

    def _submit(self, ticket: int, job: _Job) -> Any:
        if self._executor is None:
            self._executor = pool.one_worker(worker.start, (self._cancelled, self._niceness))
        return pool.submit(self._executor, worker.perform, ticket, *job.call)

    def stop(self) -> None:
        """End the process, whatever it is at."""
        if self._task is not None:
            self._task.cancel()
        self._stop_process()

    def _stop_process(self) -> None:
        if self._executor is None:
            return
        pool.stop(self._executor)
        self._executor = None
