"""One observed run: what its parts share, the values they wait for, and what they found."""

import os
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch

from amplint.runtime.device_log import DeviceLog
from amplint.runtime.naming import Names
from amplint.runtime.observed import Observed, Step
from amplint.runtime.place import Place, Site
from amplint.runtime.record import Record
from amplint.runtime.tracked import Registry, TrackedOptimizer, TrackedScaler

#: Steps that are looked at closely whatever `every` says: what is wrong from the start shows at once.
_FIRST_STEPS = 3
#: Values are copied from the device at least this often, in steps.
_COPY_EVERY = 20


@dataclass(frozen=True)
class Options:
    """How a run is observed."""

    #: Folder of the record; None for none.
    record: Optional[str] = None
    #: One step in so many is looked at closely: dtypes, activations, gradients, updates.
    every: int = 50
    #: After so many skipped steps in a row something is done; 0 for never.
    overflow_limit: int = 0
    #: What: `abort` ends the script with exit code 3, `notify` writes a line to stderr.
    overflow_action: str = "notify"


@dataclass
class Row:
    """What is known of one optimizer step."""

    optimizer: int
    step: int
    losses: List[float] = field(default_factory=list)
    norm: Optional[float] = None
    scale: Optional[float] = None
    skipped: bool = False

    def as_json(self) -> Dict[str, Any]:
        """The row of the record; the loss is the mean over the backward passes of the step."""
        loss = sum(self.losses) / len(self.losses) if self.losses else None
        return {
            "event": "step",
            "step": self.step,
            "optimizer": self.optimizer,
            "loss": loss,
            "grad_norm": self.norm,
            "scale": self.scale,
            "skipped": self.skipped,
        }


class Run:
    """State of one observed run. Handlers of the parts are called by `verify.Verifier`, which shields them."""

    def __init__(self, options: Options, models: Tuple[torch.nn.Module, ...] = ()) -> None:
        self.options = options
        self.folder = os.getcwd()
        self.rank = int(os.environ.get("RANK", "0") or 0)
        self.registry = Registry()
        self.names = Names(models)
        self.log = DeviceLog()
        self.record = Record(options.record, self.rank)
        self.findings: List[Observed] = []
        self._reported: Set[Any] = set()
        self._kept: List[Site] = []
        #: Remarks for the summary that are no findings.
        self.notes: List[str] = []
        #: Number of the coming optimizer step.
        self.step = 0
        self.skips = 0
        #: Steps of all optimizers, skipped ones included.
        self.attempts = 0
        #: Optimizers that the last backward pass reached.
        self.touched: List[TrackedOptimizer] = []
        self.first_nonfinite: Optional[Dict[str, Any]] = None
        self._rows: Dict[Tuple[int, int], Row] = {}
        self._last_scale: Dict[int, float] = {}
        self._value_handlers: Dict[str, Callable[..., None]] = {}
        self._after_step: List[Callable[[TrackedOptimizer, Optional[TrackedScaler], bool, int], None]] = []
        self._after_cycle: List[Callable[[TrackedScaler], None]] = []
        self._drained: List[Callable[[], None]] = []
        self._shown: Set[str] = set()

    # ------------------------------------------------------------------------------------ what parts ask for

    def on_value(self, kind: str, handler: Callable[..., None]) -> None:
        """Call `handler(value, *rest of the tag)` for values of a kind, once they are on the host."""
        self._value_handlers[kind] = handler

    def on_step(
        self, handler: Callable[[TrackedOptimizer, Optional[TrackedScaler], bool, int], None]
    ) -> None:
        """Call `handler(optimizer, scaler, skipped, step)` after every optimizer step."""
        self._after_step.append(handler)

    def on_cycle(self, handler: Callable[[TrackedScaler], None]) -> None:
        """Call `handler(scaler)` after every update that followed a step."""
        self._after_cycle.append(handler)

    def on_drained(self, handler: Callable[[], None]) -> None:
        """Call `handler()` after values came over."""
        self._drained.append(handler)

    def is_close_step(self, step: int) -> bool:
        """Whether this step is looked at closely."""
        return step < _FIRST_STEPS or step % self.options.every == 0

    def shielded(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function of ours from a hook; whoever observes replaces this by what contains its errors."""
        function(*arguments)

    def put(self, value: torch.Tensor, kind: str, tracked: TrackedOptimizer) -> None:
        """Note a value of the coming step of an optimizer, such as its `norm`."""
        self.log.put(value, (kind, tracked.index, tracked.attempts))

    def report(
        self,
        code: str,
        message: str,
        site: Optional[Site],
        step: int,
        *,
        trace: List[Tuple[Optional[Site], str]] = [],  # noqa: B006 (never written to)
        subject: Any = None,
        module: Optional[str] = None,
        parameter: Optional[str] = None,
        figures: Tuple[Tuple[str, float], ...] = (),
    ) -> None:
        """Report a mistake, once per code, place and subject."""
        quick = (code, id(site.code), site.instruction, subject) if site is not None else None
        if quick in self._reported:
            return  # without looking up the place once more
        place = self._place(site)
        key = (code, place.filename, place.row, subject)
        if key in self._reported:
            return
        self._reported.add(key)
        if site is not None:
            self._reported.add(quick)
            self._kept.append(site)  # the id of its code stays its own
        steps = tuple(Step(self._place(each), text) for each, text in trace if each is not None)
        found = Observed(code, message, place, step, self.rank, module, parameter, steps, figures)
        self.findings.append(found)
        self.record.write({"event": "finding", "finding": found.as_json(self.folder)})

    def note(self, text: str) -> None:
        """Remark something in the summary, once."""
        if text not in self._shown:
            self._shown.add(text)
            self.notes.append(text)
            self.record.write({"event": "note", "message": text})

    # ---------------------------------------------------------------------------------- what the loop brings

    def step_ended(self, tracked: TrackedOptimizer, own: Optional[TrackedScaler], skipped: bool) -> None:
        """An optimizer stepped, or its step was skipped by the scaler `own`."""
        step = tracked.attempts
        row = self._row(tracked.index, step)
        row.skipped = skipped
        self.attempts += 1
        self.skips += skipped
        for handler in self._after_step:
            handler(tracked, own, skipped, step)
        tracked.attempts += 1
        tracked.consume()
        tracked.marks = tracked.brief_mark()
        if tracked.attempts > self.step:
            self.step = tracked.attempts
            if self.step % min(self.options.every, _COPY_EVERY) == 0:
                self.drain()

    def cycle_ended(self, own: TrackedScaler, set_by_user: bool) -> None:
        """A scaler was updated after steps."""
        if own.scale is not None:
            rows = tuple((each.index, each.attempts - 1) for each in own.cycles[own.updates - 1][0])
            self.log.put(
                own.scale, ("scale", own.index, own.step, own.skipped, set_by_user, own.step_site, rows)
            )
        own.consecutive_skips = own.consecutive_skips + 1 if own.skipped else 0
        for handler in self._after_cycle:
            handler(own)
        own.skipped = False

    def drain(self, final: bool = False) -> None:
        """Bring noted values to the host, let the parts judge them, and write the rows that are complete.

        The last row waits for its scale, which `update` sets after the step, unless this is the end.
        """
        for tag, value in self.log.drain():
            kind = tag[0]
            if kind == "loss":
                self._row(*tag[1]).losses.append(value)
            elif kind == "norm":
                self._row(tag[1], tag[2]).norm = value
            elif kind == "scale":
                for index, step in tag[6]:
                    self._row(index, step).scale = value
            handler = self._value_handlers.get(kind)
            if handler is not None:
                handler(value, *tag[1:])
        done = {each.index: each.attempts - (not final) for each in self.registry.optimizers()}
        for key in sorted(self._rows, key=lambda pair: (pair[1], pair[0])):
            if key[1] < done.get(key[0], 1 << 62):
                self.record.write(self._rows.pop(key).as_json())
        for each in self._drained:
            each()

    def _row(self, index: int, step: int) -> Row:
        row = self._rows.get((index, step))
        if row is None:
            row = self._rows[index, step] = Row(index, step)
        return row

    def _place(self, site: Optional[Site]) -> Place:
        if site is not None:
            return site.place()
        import sys

        main = getattr(sys.modules.get("__main__"), "__file__", None) or "<unknown>"
        return Place(main, 1, 1, 1, 1)
