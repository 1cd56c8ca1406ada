"""The history of losses and loss scales: what a scaler's ups and downs say about a run.

Thresholds: PyTorch's scaler multiplies its scale by 2 after `growth_interval` (2000) good steps to see whether
it fits; that it does not is one skipped step, and no mistake. Without other overflows less than 0.1 % of the
steps are skipped. The scale has no floor: after 166 skips from 65536 it is 0, and the step after that is not
skipped but writes NaN.
"""

import math
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple

import torch

from amplint.runtime.context import Run
from amplint.runtime.device_log import MOST
from amplint.runtime.place import Site
from amplint.runtime.tracked import TrackedOptimizer, TrackedScaler, gradient_norms

#: Updates during which the scale finds its level.
_WARM_UP = 50
_WINDOW = 1000
_RATE = 0.01
#: So many skips in a row are no calibration any more: from 65536 that leads below 1.
_IN_A_ROW = 17
#: Good updates after which a burst of skips is late, and how many skips are a burst.
_SETTLED, _BURST = 100, 3
#: Separate falls, after the scale first held, and their product that make a decline.
_FALLS, _DECLINE = 4, 16.0
#: Losses in a row that are no numbers.
_BAD_LOSSES = 3


class _Scale:
    """What was seen of one scaler."""

    def __init__(self) -> None:
        self.updates = 0
        self.last: Optional[float] = None
        self.good_in_a_row = 0
        self.skips_in_a_row = 0
        self.all_skips = 0
        self.probing = False
        self.held = False
        self.falls: List[Tuple[int, float]] = []
        self.recent: Deque[bool] = deque(maxlen=_WINDOW)
        self.settled_before_burst = False
        self.burst_step: Optional[int] = None


class HistoryWatch:
    """Judges every update of every scaler, and every loss, once its value is on the host."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._scales: Dict[int, _Scale] = {}
        #: Losses that were not differentiated yet; of those that never are, the last few.
        self._pending: Deque[torch.Tensor] = deque(maxlen=64)
        #: Losses since the last copy: [optimizer, step], and the optimizers that their gradients reached.
        self._unclaimed: List[Tuple[List[int], List[TrackedOptimizer]]] = []
        self._bad_losses: Dict[int, int] = {}
        self._last_bad: Dict[int, int] = {}
        self._sites: Dict[int, Optional[Site]] = {}
        run.on_value("scale", self._judge_scale)
        run.on_value("loss", self._judge_loss)
        run.on_step(self._step)
        run.on_drained(self._unclaimed.clear)

    # ----------------------------------------------------------------------------------------------- losses

    def scaled(self, scaler: Any, outputs: Any, result: Any) -> None:
        """Keep the loss before it is scaled, until it is known whose gradients it makes."""
        if not self._run.registry.scaler(scaler).enabled:
            return
        for each in [outputs] if isinstance(outputs, torch.Tensor) else ():
            self._pending.append(each.detach())

    def backward_begins(self, roots: Any, gradients: Any) -> None:
        """A loss that no scaler scaled."""
        if not self._pending and isinstance(roots, torch.Tensor) and gradients is None:
            self._pending.append(roots.detach())

    def backward_ended(self) -> None:
        """Note the losses, which belong to the optimizer that is stepped next."""
        losses = list(self._pending)
        self._pending.clear()
        touched = self._run.touched
        if not touched or len(self._unclaimed) >= MOST:
            return
        likely = min(touched, key=lambda each: (each.attempts, each.index))
        self._sites.setdefault(likely.index, likely.backward_site)
        for loss in losses:
            owner = [likely.index, likely.attempts]
            self._unclaimed.append((owner, touched))
            self._run.log.put(loss, ("loss", owner))

    def _step(
        self, tracked: TrackedOptimizer, own: Optional[TrackedScaler], skipped: bool, step: int
    ) -> None:
        rest = []
        for owner, touched in self._unclaimed:
            if tracked in touched:
                owner[:] = tracked.index, step
                self._sites[tracked.index] = tracked.backward_site
            else:
                rest.append((owner, touched))
        self._unclaimed[:] = rest

    def _judge_loss(self, value: float, owner: List[int]) -> None:
        index, step = owner
        if math.isfinite(value):
            self._bad_losses[index] = 0
            return
        if self._last_bad.get(index) == step:
            return
        self._last_bad[index] = step
        self._bad_losses[index] = count = self._bad_losses.get(index, 0) + 1
        if count == _BAD_LOSSES:
            self._report(
                "RUN106",
                f"the loss is {value} since step {step - count + 1}",
                self._sites.get(index),
                step - count + 1,
                index,
            )

    # ----------------------------------------------------------------------------------------------- scales

    def _judge_scale(
        self,
        value: float,
        index: int,
        step: int,
        skipped: bool,
        set_by_user: bool,
        site: Optional[Site],
        rows: Any,
    ) -> None:
        seen = self._scales.setdefault(index, _Scale())
        last, seen.last = seen.last, value
        seen.updates += 1
        if set_by_user:
            return
        fell = last is not None and value < last
        grew = last is not None and value > last
        skipped = skipped or fell
        probe = skipped and seen.probing
        if skipped:
            seen.skips_in_a_row += 1
            seen.all_skips += 1
            seen.probing = False
        if grew:
            seen.probing = True
            seen.falls.clear()
        if not skipped:
            seen.held = True
        elif seen.held and seen.skips_in_a_row == 1 and not probe:
            seen.falls.append((step, last if last is not None else value))
        self._low(seen, value, index, step, site)
        self._row(seen, index, step, site)
        self._rate(seen, skipped and not probe, index, step, site)
        self._decline(seen, value, index, step, site)
        self._late(seen, skipped, probe, index, step, site)
        if not skipped:
            seen.skips_in_a_row = 0
            seen.good_in_a_row += 1

    def _low(self, seen: _Scale, value: float, index: int, step: int, site: Optional[Site]) -> None:
        if value == 0:
            self._report(
                "RUN104",
                "the loss scale is 0: gradients become 0 * 1/0 = NaN, and the next finite-looking step writes them",
                site,
                step,
                (index, "zero"),
            )
        elif value < 1 or math.isnan(value):
            self._report(
                "RUN104",
                f"the loss scale fell to {value:g}: below 1 it makes gradients smaller, and it has no floor above 0",
                site,
                step,
                (index, "low"),
            )

    def _row(self, seen: _Scale, index: int, step: int, site: Optional[Site]) -> None:
        if seen.skips_in_a_row == _IN_A_ROW:
            first = step - _IN_A_ROW + 1
            self._report(
                "RUN103",
                f"every optimizer step since step {first} was skipped: the gradients overflow at any scale",
                site,
                first,
                index,
            )

    def _rate(self, seen: _Scale, counts: bool, index: int, step: int, site: Optional[Site]) -> None:
        if seen.updates <= _WARM_UP:
            return
        seen.recent.append(counts)
        skips, steps = sum(seen.recent), len(seen.recent)
        if skips >= 3 and steps >= 100 and skips > _RATE * steps:
            self._report(
                "RUN101",
                f"{skips} of the last {steps} steps overflowed, {skips / steps:.1%}; after warm-up less than 1 % do",
                site,
                step,
                index,
                figures=(("skipped", float(skips)), ("steps", float(steps))),
            )

    def _decline(self, seen: _Scale, value: float, index: int, step: int, site: Optional[Site]) -> None:
        if len(seen.falls) >= _FALLS and seen.falls[0][1] >= _DECLINE * value:
            first, before = seen.falls[0]
            self._report(
                "RUN102",
                f"the loss scale only falls since step {first}, from {before:g} to {value:g}, and never recovers:"
                " something in the model keeps growing",
                site,
                step,
                index,
                figures=(("before", before), ("now", value)),
            )

    def _late(
        self, seen: _Scale, skipped: bool, probe: bool, index: int, step: int, site: Optional[Site]
    ) -> None:
        if skipped and seen.skips_in_a_row == 1:
            seen.settled_before_burst = seen.good_in_a_row >= _SETTLED and not probe
            seen.burst_step = step
            seen.good_in_a_row = 0
        if seen.settled_before_burst and seen.skips_in_a_row == _BURST:
            first = seen.burst_step if seen.burst_step is not None else step
            self._report(
                "RUN105",
                f"{_BURST} steps in a row overflowed from step {first} on, after at least {_SETTLED} good ones:"
                " a spike of the gradients",
                site,
                first,
                index,
            )

    def closing(self, failed: bool) -> None:
        """A short run in which no step was ever taken."""
        for index, seen in self._scales.items():
            if 5 <= seen.updates == seen.all_skips < _IN_A_ROW:
                own = self._run.registry.scalers()[index]
                message = f"all {seen.updates} optimizer steps of the run were skipped"
                self._report("RUN103", message, own.step_site, 0, index)

    def _report(
        self,
        code: str,
        message: str,
        site: Optional[Site],
        step: int,
        subject: Any,
        figures: Tuple[Tuple[str, float], ...] = (),
    ) -> None:
        trace: List[Tuple[Optional[Site], str]] = []
        first = self._run.first_nonfinite or {}
        if first:
            what = f"module {first['module']}" if first.get("module") else "a gradient"
            trace.append(
                (first.get("site"), f"{what} was the first with Inf or NaN, in step {first['step']}")
            )
        self._run.report(
            code,
            message,
            site,
            step,
            subject=subject,
            trace=trace,
            module=first.get("module"),
            parameter=first.get("parameter"),
            figures=figures,
        )


class OverflowLimit:
    """Does what was asked for after so many skipped steps in a row."""

    def __init__(self, run: Run) -> None:
        self._run = run
        #: Set when the script is to end; `verify` raises it where no handler of ours would catch it.
        self.abort: Optional[str] = None
        self.notify: Optional[str] = None
        run.on_cycle(self._cycle)

    def _cycle(self, own: TrackedScaler) -> None:
        options = self._run.options
        if not options.overflow_limit or own.consecutive_skips != options.overflow_limit:
            return
        text = (
            f"{own.consecutive_skips} optimizer steps in a row were skipped, the last one is step {own.step}"
        )
        if options.overflow_action == "abort":
            self.abort = text
        else:
            self.notify = text


class FirstNonFinite:
    """Finds the parameter and the module in which an overflow began: one copy to the host per skipped step."""

    #: Skips that are looked into; later ones only if they come after a long good stretch.
    _LOOKS = 3

    def __init__(self, run: Run) -> None:
        self._run = run
        self._looks = 0
        self._good = 0
        #: Asks for the activations of the next step.
        self.armed = False
        run.on_step(self._step)

    def _step(
        self, tracked: TrackedOptimizer, own: Optional[TrackedScaler], skipped: bool, step: int
    ) -> None:
        if not skipped:
            self._good += 1
            return
        settled, self._good = self._good >= _SETTLED, 0
        if self._looks >= self._LOOKS and not settled:
            return
        self._looks += 1
        found = self._look(tracked, step)
        if found is not None and (settled or self._run.first_nonfinite is None):
            self._run.first_nonfinite = found
            shown = {key: value for key, value in found.items() if key != "site"}
            self._run.record.write({"event": "nonfinite", **shown})

    def _look(self, tracked: TrackedOptimizer, step: int) -> Optional[Dict[str, Any]]:
        parameters = [each for each in tracked.parameters() if type(each.grad) is torch.Tensor]
        gradients = [each.grad for each in parameters if each.grad is not None and not each.grad.is_sparse]
        if not gradients or len(gradients) != len(parameters):
            return None
        values = gradient_norms(gradients).tolist()
        bad = [each for each, value in zip(parameters, values, strict=True) if not math.isfinite(value)]
        if not bad:
            return None
        if not all(self._run.names.knows(each) for each in bad):
            self._run.names.look()
            self._run.names.give_up_on(bad)
        if len(bad) == len(parameters):
            self.armed = True  # the loss itself, perhaps; the next forward pass may tell
        order = self._run.names.order()
        # Backward runs from the last module to the first, and Inf spreads in that direction.
        first = max(bad, key=lambda each: order.get(id(each), -1))
        parameter, module, kind = self._run.names.parameter(first)
        return {
            "step": step,
            "pass": "backward",
            "module": module,
            "kind": kind,
            "parameter": parameter,
            "of": len(parameters),
            "bad": len(bad),
            "site": tracked.backward_site,
        }
