"""Watches a training run for mixed-precision mistakes, without changing what it computes.

Inside code::

    from amplint.runtime import verify

    with verify.watch(model, optimizer, scaler) as run:
        train()
    print(run.findings)

For a whole script, unchanged: `amplint run train.py`. Code that imports the shim is watched when the
environment variable AMPLINT_VERIFY is set: to 1, or to the folder of a record.

What is watched at every step costs no wait for the device; values are copied over every 20 steps. An error in
here is told once on stderr, and ends the observation, never the training.
"""

import atexit
import contextlib
import os
import sys
import threading
import traceback
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import torch

from amplint.runtime import anchors
from amplint.runtime.closeup import ForwardCloseup, StepCloseup
from amplint.runtime.context import Options, Run
from amplint.runtime.history import FirstNonFinite, HistoryWatch, OverflowLimit
from amplint.runtime.invariance import NormWatch
from amplint.runtime.observed import Observed
from amplint.runtime.place import here
from amplint.runtime.precision import PrecisionWatch
from amplint.runtime.protocol import ProtocolWatch
from amplint.runtime.ranks import RankWatch
from amplint.runtime.tracked import unwrapped

__all__ = ["Observed", "Options", "Verifier", "start", "start_from_environment", "watch"]

_KINDS = (torch.optim.Optimizer, anchors.SCALER)

#: Exit code of a script that --on-overflow N=abort ends.
ABORTED = 3

_Models = Union[torch.nn.Module, Sequence[torch.nn.Module], None]


class Verifier:
    """One observation, from `start` to `close`."""

    def __init__(
        self,
        options: Optional[Options] = None,
        models: Tuple[torch.nn.Module, ...] = (),
        only: Tuple[Any, ...] = (),
    ) -> None:
        self._run = Run(options or Options(), models)
        self._run.shielded = self._shielded  # type: ignore[method-assign]
        self._only = {id(each): each for each in only}
        self._closed = False
        self._off = False
        self._lock = threading.RLock()
        self._limit = OverflowLimit(self._run)
        precision = PrecisionWatch(self._run)
        nonfinite = FirstNonFinite(self._run)
        self._forward = ForwardCloseup(self._run, precision, nonfinite)
        protocol = ProtocolWatch(self._run)
        # Close-ups of a step come before the protocol ends it, others ask it whom a backward pass reached.
        self._parts: List[Any] = [
            StepCloseup(self._run, precision),
            NormWatch(self._run),
            protocol,
            precision,
            HistoryWatch(self._run),
            self._forward,
            RankWatch(self._run, precision),
        ]
        self._by_event: Dict[str, List[Callable[..., None]]] = {}

    # ---------------------------------------------------------------------------------------------- results

    @property
    def findings(self) -> List[Observed]:
        """What was found so far; complete after the end of the observation."""
        return list(self._run.findings)

    @property
    def steps(self) -> int:
        """Optimizer steps so far, skipped ones included, of the optimizer with the most."""
        return self._run.step

    @property
    def skipped(self) -> int:
        """Steps that a scaler skipped, of all optimizers."""
        return self._run.skips

    @property
    def run(self) -> Run:
        """All that is known of the run."""
        return self._run

    # --------------------------------------------------------------------------------------------- lifetime

    def start(self) -> None:
        """Begin to observe."""
        anchors.attach(self)
        if self._run.names.roots():
            self._shielded(self._forward.attach)

    def close(self, failed: bool = False) -> None:
        """End the observation; may be called again, to no effect.

        Args:
            failed: an exception ends the run, so what is unfinished proves nothing.
        """
        if self._closed:
            return
        self._closed = True
        anchors.detach(self)
        if not self._off:
            self._shielded(self._finish, failed)
        self._shielded(self._forward.detach)
        self._shielded(self._run.record.close)

    def _finish(self, failed: bool) -> None:
        self._run.drain(final=True)
        for part in self._parts:
            closing = getattr(part, "closing", None)
            if closing is not None:
                closing(failed)
        self._run.record.write(
            {"event": "end", "steps": self._run.step, "skipped": self._run.skips, "failed": failed}
        )

    # ----------------------------------------------------------------------------------------------- events

    def tell(self, event: str, *arguments: Any) -> None:
        """Pass an event on to the parts that care (called by the anchors)."""
        if self._off or (self._only and not self._concerns(event, arguments)):
            return
        handlers = self._by_event.get(event)
        if handlers is None:
            found = (getattr(part, event, None) for part in (*self._parts, self))
            handlers = self._by_event[event] = [each for each in found if callable(each)]
        if not handlers:
            return
        try:
            with self._lock:
                for handler in handlers:
                    handler(*arguments)
        except Exception as error:
            self._fail(error)
        if event == "updated" and (self._limit.abort or self._limit.notify):
            self._say_overflow()

    def optimizer_made(self, optimizer: Any) -> None:
        """An optimizer was constructed: remember where."""
        self._run.registry.optimizer(optimizer, here())

    def _concerns(self, event: str, arguments: Tuple[Any, ...]) -> bool:
        """Whether an event is about what is to be observed: others of a kind that was given are not."""
        for each in arguments[:2]:
            kind = next((kind for kind in _KINDS if isinstance(each, kind)), None)
            given = [own for own in self._only.values() if kind is not None and isinstance(own, kind)]
            if given and id(unwrapped(each)) not in self._only:
                return False
        return True

    def _say_overflow(self) -> None:
        abort, notify = self._limit.abort, self._limit.notify
        self._limit.abort = self._limit.notify = None
        with contextlib.suppress(OSError, ValueError):
            print(f"amplint: {abort or notify}", file=sys.stderr, flush=True)
        if abort:
            raise SystemExit(ABORTED)

    def _shielded(self, function: Callable[..., Any], *arguments: Any) -> None:
        if self._off:
            return
        try:
            function(*arguments)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Say once that the verifier failed, and observe no more."""
        if self._off:
            return
        self._off = True
        with contextlib.suppress(Exception):
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            print(
                f"amplint: the verifier failed and switched itself off; the run goes on.\n{text.rstrip()}",
                file=sys.stderr,
                flush=True,
            )
        with contextlib.suppress(Exception):
            self._run.notes.append(f"the verifier failed in step {self._run.step}: {error!r}")
            self._run.record.write({"event": "failed", "step": self._run.step, "error": repr(error)})
        with contextlib.suppress(Exception):
            self._forward.detach()


@contextlib.contextmanager
def watch(
    model: _Models = None,
    optimizer: Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer], None] = None,
    scaler: Any = None,
    *,
    record: Optional[str] = None,
    every: int = 50,
    on_overflow: Tuple[int, str] = (0, "notify"),
) -> Iterator[Verifier]:
    """Observe the training loop inside the `with` block.

    Args:
        model: model or models, for the names in findings; None finds those of the process.
        optimizer: optimizer or optimizers to observe; None observes all.
        scaler: scaler or scalers to observe; None observes all.
        record: folder that the record is written to; None writes none.
        every: one step in so many is looked at closely.
        on_overflow: after how many skipped steps in a row to `abort` (SystemExit with code 3) or `notify`
            (a line on stderr); 0 for never.

    Yields:
        The observation; its `findings` are complete when the block has been left.
    """
    models, scalers = _tuple(model), _tuple(scaler)
    optimizers = tuple(unwrapped(each) for each in _tuple(optimizer))
    options = Options(
        record=record, every=every, overflow_limit=on_overflow[0], overflow_action=on_overflow[1]
    )
    verifier = Verifier(options, models, (*optimizers, *scalers))
    for each in optimizers or ():
        verifier.run.registry.optimizer(each)
    if not optimizers:
        _find_optimizers(verifier)
    verifier.start()
    failed = True
    try:
        yield verifier
        failed = False
    finally:
        verifier.close(failed)
        if record is not None:
            _write_page(verifier)


def _tuple(value: Any) -> Tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _find_optimizers(verifier: Verifier) -> None:
    import gc

    for each in gc.get_objects():
        if issubclass(type(each), torch.optim.Optimizer) and hasattr(each, "param_groups"):
            verifier.run.registry.optimizer(each)


_whole_run: List[Verifier] = []


def start(options: Options) -> Verifier:
    """Observe this process until it ends; tell at the end on stderr what was found."""
    if _whole_run:
        return _whole_run[0]
    verifier = Verifier(options)
    _whole_run.append(verifier)
    verifier.start()
    pid = os.getpid()
    atexit.register(_end, verifier, pid)
    return verifier


def start_from_environment() -> Optional[Verifier]:
    """What the shim calls: AMPLINT_VERIFY is 1, or the folder of a record; 0 or empty is off."""
    value = os.environ.get("AMPLINT_VERIFY", "")
    if value in ("", "0"):
        return None
    return start(Options(record=None if value == "1" else value))


def _end(verifier: Verifier, pid: int) -> None:
    if os.getpid() != pid:
        return
    failed = getattr(sys, "last_exc", None) is not None or getattr(sys, "last_type", None) is not None
    verifier.close(failed)
    try:
        from amplint.runtime.summary import summary

        if verifier.run.rank == 0 or verifier.findings:
            print(summary(verifier.run), file=sys.stderr, flush=True, end="")
    except Exception as error:  # a closed stderr; a verifier must not change the exit code
        with contextlib.suppress(Exception):
            print(f"amplint: no summary: {error!r}", file=sys.stderr)
    _write_page(verifier)


def _write_page(verifier: Verifier) -> None:
    record = verifier.run.record
    if record.path is None or record.problem is not None:
        return
    try:
        from amplint.runtime.page import write_page

        write_page(record.path)
    except Exception as error:
        with contextlib.suppress(Exception):
            print(f"amplint: no page: {error!r}", file=sys.stderr)
