"""The GradScaler protocol: scale, backward, unscale_, clip, step, update, for every optimizer by itself.

Each handler is told of a call before or after it happens (see `anchors`). What is wrong is reported at the
call that the static rule of the same code reports at. Gradients that another optimizer's loss left behind
count only if nobody clears them before they are used, so that GANs are judged by their steps.
"""

from typing import Any, Dict, List, Optional, Set, Tuple

import torch

from amplint.runtime.anchors import current_step
from amplint.runtime.context import Run
from amplint.runtime.place import Site, here
from amplint.runtime.tracked import Clip, TrackedOptimizer, TrackedScaler


class ProtocolWatch:
    """Follows scalers, optimizers and gradients through a training loop."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._fired: Set[TrackedScaler] = set()
        self._before: Dict[TrackedOptimizer, List[Any]] = {}
        self._backward_site: Optional[Site] = None
        self._by_hand: Dict[TrackedOptimizer, bool] = {}
        self._unscaling_site: Optional[Site] = None
        #: The clip of scaled gradients that no optimizer holds the parameters of.
        self._stray_clip: Optional[Clip] = None

    # -------------------------------------------------------------------------------- scale and backward

    def scaled(self, scaler: Any, outputs: Any, result: Any) -> None:
        """Remember that a backward pass through the result leaves scaled gradients."""
        tracked = self._run.registry.scaler(scaler)
        if not tracked.enabled:
            return
        fire = self._fired.add
        for each in [result] if isinstance(result, torch.Tensor) else result:
            if isinstance(each, torch.Tensor) and each.requires_grad:
                hold: Any = each.register_hook  # has no annotations
                hold(lambda _gradient: fire(tracked))

    def backward_begins(self, roots: Any, gradients: Any) -> None:
        """Note the state of all gradients."""
        self._fired.clear()
        self._stray_clip = None
        self._backward_site = here()
        self._before = {}
        self._run.registry.refresh()
        for tracked in self._run.registry.optimizers():
            marks = tracked.mark()
            self._before[tracked] = marks
            if not any(marks):
                tracked.fresh()
            self._by_hand[tracked] = bool(tracked.marks) and tracked.brief(marks) != tracked.marks

    def backward_ended(self) -> None:
        """See which optimizers got gradients, and whether they are scaled."""
        site = self._backward_site
        touched = []
        for tracked, before in self._before.items():
            after = tracked.mark()
            if after == before:
                continue
            touched.append(tracked)
            tracked.marks = tracked.brief(after)
            tracked.backward_site = site
            tracked.consumed = False
            tracked.zeroed_at = None
            if tracked.is_unscaled and self._fired and any(before) and not self._by_hand.get(tracked):
                tracked.is_mixed = True
                tracked.mixed = tracked.unscaled_at
            tracked.is_unscaled = False
            for scaler in self._fired:
                tracked.scaled.setdefault(scaler, {})[scaler.updates] = site
            if not self._fired:
                tracked.plain = site
                tracked.has_plain = True
        self._run.touched = touched
        self._before = {}

    def zeroed(self, owner: Any) -> None:
        """Gradients of an optimizer or of a module were cleared."""
        known = self._run.registry.optimizers()
        if isinstance(owner, torch.optim.Optimizer):
            tracked = self._run.registry.optimizer(owner)
            cleared, keys = [tracked], set()
            if len(known) > 1:  # others may have been made for the same parameters
                keys = {id(each) for each in tracked.parameters()}
        else:
            cleared, keys = [], {id(each) for each in owner.parameters()}
        if keys:
            cleared += [each for each in known if each not in cleared and each.owned_within(keys)]
        for tracked in cleared:
            had_gradients = bool(tracked.scaled or tracked.has_plain) and not tracked.consumed
            tracked.fresh()
            if had_gradients:
                tracked.zeroed_at = here()
            tracked.marks = tracked.brief_mark()

    # ---------------------------------------------------------------------------------- unscale and clip

    def unscaling(self, scaler: Any, optimizer: Any) -> None:
        """The user calls `unscale_`."""
        own, tracked = self._both(scaler, optimizer)
        if not own.enabled:
            return
        self._unscaling_site = site = here()
        if tracked in own.stepped:
            if tracked.consumed:
                self._report(
                    "AMP208",
                    "unscale_ runs after scaler.step() already used the gradients",
                    tracked,
                    site,
                    step=max(0, tracked.attempts - 1),
                    trace=[(own.stepped[tracked], "stepped here")],
                )
            else:
                self._missing_update(own, tracked)
        elif tracked in own.unscaled:
            first = own.unscaled[tracked]
            if tracked.is_mixed or tracked.is_unscaled:
                self._report(
                    "AMP205",
                    "unscale_ runs twice for one optimizer before update(): gradients are divided by the loss"
                    " scale more than once",
                    tracked,
                    site,
                    trace=[(first, "unscaled here first")],
                )
            else:
                self._report(
                    "AMP204",
                    "after this unscale_ neither step() nor update() ran before the next iteration:"
                    " the scaler still takes the new gradients for unscaled ones",
                    tracked,
                    first,
                    step=max(0, tracked.attempts),
                )
        else:
            self._check_cycle(own, tracked, site)

    def unscaled(self, scaler: Any, optimizer: Any, within_step: bool) -> None:
        """Gradients were unscaled, by the user or by `step`."""
        own, tracked = self._both(scaler, optimizer)
        if not own.enabled:
            return
        site = tracked.step_site if within_step else self._unscaling_site
        own.unscaled[tracked] = site
        tracked.notice_new_gradients()
        tracked.is_unscaled = True
        tracked.unscaled_at = site
        tracked.marks = tracked.brief_mark()

    def clipping(self, name: str, parameters: Any) -> None:
        """Gradients are about to be clipped."""
        clipped = _listed(parameters)
        if self._fired and not self._run.touched:
            self._stray_clip = (name, here(), self._backward_site)
        for tracked in self._run.registry.optimizers():
            if not (tracked.is_scaled or tracked.consumed_by_scaler) or not tracked.owns(clipped):
                continue
            tracked.notice_new_gradients()
            if tracked.is_scaled and tracked.is_written_by_hand():
                tracked.is_by_hand = True
            elif tracked.is_scaled and not tracked.consumed:
                if tracked.clip is None:  # a mistake if this optimizer is stepped before they are cleared
                    tracked.clip = (name, here(), _first_site(tracked))
            elif tracked.consumed and tracked.consumed_by_scaler:
                self._report(
                    "AMP208",
                    f"{name} runs after the optimizer step that it was meant for",
                    tracked,
                    here(),
                    step=max(0, tracked.attempts - 1),
                    trace=[(tracked.step_site, "stepped here")],
                )

    def _clipped_while_scaled(self, tracked: TrackedOptimizer, clip: Optional[Clip]) -> None:
        """Gradients are about to be used."""
        if clip is not None:
            name, site, first = clip
            self._report(
                "AMP201",
                f"{name} clips gradients that are still multiplied by the loss scale: the norm that reaches"
                " step() depends on the scale; call unscale_ for the optimizer before it",
                tracked,
                site,
                trace=[(first, "the scaled loss is differentiated here")],
            )

    def clipped(self, name: str, parameters: Any, result: Any) -> None:
        """Remember what the clip itself wrote."""
        listed = _listed(parameters)
        for tracked in self._run.registry.optimizers():
            if tracked.owns(listed):
                tracked.marks = tracked.brief_mark()
                if isinstance(result, torch.Tensor) and not tracked.is_scaled and name == "clip_grad_norm_":
                    self._run.put(result, "norm", tracked)

    # ------------------------------------------------------------------------------------ step and update

    def scaler_stepping(
        self, scaler: Any, optimizer: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> None:
        """`scaler.step(optimizer)` begins."""
        own, tracked = self._both(scaler, optimizer)
        tracked.step_site = site = here()
        if not own.enabled:
            return
        own.step_site, own.step = site, tracked.attempts
        self._clipped_while_scaled(tracked, tracked.clip)
        if any(callable(each) for each in (*args, kwargs.get("closure"))):
            self._report(
                "AMP210", "a closure goes through scaler.step(): its gradients stay scaled", tracked, site
            )
        if tracked in own.stepped:
            if tracked.consumed:
                self._report(
                    "AMP203",
                    "the optimizer is stepped twice through the scaler without a backward pass in between",
                    tracked,
                    site,
                    trace=[(own.stepped[tracked], "stepped here first")],
                )
            else:
                self._missing_update(own, tracked)
            return
        self._check_cycle(own, tracked, site)
        if tracked.zeroed_at is not None and not tracked.scaled:
            self._report(
                "AMP216",
                "zero_grad clears the gradients between backward and the step that was to use them",
                tracked,
                tracked.zeroed_at,
                trace=[(site, "stepped here without gradients")],
            )
        elif all(getattr(each, "grad", None) is None for each in tracked.parameters()):
            self._without_gradients(tracked, site)
        if tracked.has_plain:
            mixed = "some of the gradients come" if tracked.scaled else "the gradients come"
            self._report(
                "AMP207",
                f"{mixed} from a loss that the scaler did not scale, and step() divides them by the loss scale",
                tracked,
                tracked.plain,
                trace=[(site, "divided by the scale and stepped here")],
            )

    def scaler_stepped(self, scaler: Any, optimizer: Any, ran: bool) -> None:
        """`scaler.step(optimizer)` ended; the optimizer ran, or the step was skipped."""
        own, tracked = self._both(scaler, optimizer)
        if not own.enabled:
            return
        own.stepped[tracked] = tracked.step_site
        own.skipped = own.skipped or not ran
        tracked.last_scaler = own
        tracked.consumed_by_scaler = True
        self._run.step_ended(tracked, own, skipped=not ran)

    def optimizer_stepping(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """`optimizer.step()` begins, called by the user or by a scaler."""
        tracked = self._run.registry.optimizer(optimizer)
        tracked.depth += 1
        if tracked.depth > 1 or self._through_scaler(optimizer):
            return
        tracked.step_site = site = here()
        tracked.notice_new_gradients()
        self._clipped_while_scaled(tracked, tracked.clip)
        if tracked.is_scaled and not tracked.consumed:
            if tracked.is_by_hand or tracked.is_written_by_hand():
                return
            self._report(
                "AMP203",
                "optimizer.step() uses gradients that are multiplied by the loss scale, and would use Inf and"
                " NaN, too; step through the scaler",
                tracked,
                site,
                trace=[(_first_site(tracked), "the scaled loss is differentiated here")],
            )
        elif tracked.consumed and tracked.consumed_by_scaler:
            self._report(
                "AMP203",
                "optimizer.step() runs once more after scaler.step(), with the same gradients and without the"
                " check for overflow",
                tracked,
                site,
                step=max(0, tracked.attempts - 1),
                trace=[
                    (tracked.last_scaler.step_site if tracked.last_scaler else None, "stepped here first")
                ],
            )

    def optimizer_stepped(self, optimizer: Any) -> None:
        """`optimizer.step()` ended."""
        tracked = self._run.registry.optimizer(optimizer)
        tracked.depth = max(0, tracked.depth - 1)
        if tracked.depth or self._through_scaler(optimizer):
            return
        again = tracked.consumed and tracked.consumed_by_scaler
        tracked.consumed_by_scaler = False
        if not again:
            self._run.step_ended(tracked, None, skipped=False)

    def updating(self, scaler: Any, new_scale: Any) -> None:
        """`scaler.update()` begins."""
        own = self._run.registry.scaler(scaler)
        if not own.enabled or new_scale is not None or own.stepped or own.unscaled or not own.updates:
            return
        waiting = [
            each
            for each in self._run.registry.optimizers()
            if not each.consumed and own.updates in each.scaled.get(own, {})
        ]
        if waiting:
            message = (
                "update() runs while gradients accumulate that no step has used yet: the scale changes inside"
                " one accumulation window"
            )
            self._report("AMP206", message, waiting[0], here())
        else:
            message = "update() runs once more without a step since the last update"
            site = own.cycles.get(own.updates - 1, (set(), None))[1]
            self._run.report(
                "AMP211", message, here(), max(0, self._run.step - 1), trace=[(site, "updated here first")]
            )

    def updated(self, scaler: Any, new_scale: Any) -> None:
        """`scaler.update()` ended: a new cycle begins."""
        own = self._run.registry.scaler(scaler)
        if not own.enabled:
            return
        stepped = bool(own.stepped)
        own.close_cycle(here())
        if stepped:
            self._run.cycle_ended(own, set_by_user=new_scale is not None)

    def closing(self, failed: bool) -> None:
        """The run is over: what was stepped and never updated shows now."""
        for own in self._run.registry.scalers():
            if own.stepped and not own.updates and not failed:
                tracked = next(iter(own.stepped))
                self._missing_update(own, tracked)

    # ---------------------------------------------------------------------------------------------- parts

    def _both(self, scaler: Any, optimizer: Any) -> Tuple[TrackedScaler, TrackedOptimizer]:
        return self._run.registry.scaler(scaler), self._run.registry.optimizer(optimizer)

    def _through_scaler(self, optimizer: Any) -> bool:
        current = current_step()
        if current is None or not getattr(current[0], "_enabled", False):
            return False
        return self._run.registry.optimizer(current[1]) is self._run.registry.optimizer(optimizer)

    def _missing_update(self, own: TrackedScaler, tracked: TrackedOptimizer) -> None:
        self._report(
            "AMP204",
            "the scaler is stepped here and not updated before the next iteration: its scale never adapts, and"
            " it refuses the next step",
            tracked,
            own.stepped[tracked],
            step=max(0, tracked.attempts - 1),
        )

    def _without_gradients(self, tracked: TrackedOptimizer, site: Optional[Site]) -> None:
        """Say why, where it shows: a model that was moved after the optimizer was made has other parameters."""
        message = "no parameter of this optimizer has a gradient when it is stepped"
        self._run.names.look()
        own = {id(each) for each in tracked.parameters()}
        others = {
            each.device.type
            for root in self._run.names.roots()
            for each in root.parameters()
            if each.grad is not None and id(each) not in own
        }
        mine = {each.device.type for each in tracked.parameters()}
        if others and not others & mine:
            message += (
                f": its parameters are on {', '.join(sorted(mine))}, and those of the model that have gradients on"
                f" {', '.join(sorted(others))}; moving a model to another device can give it new parameters, so"
                " make the optimizer after that"
            )
            self._clipped_while_scaled(tracked, self._stray_clip)
        self._report("AMP224", message, tracked, site, trace=[(tracked.made, "the optimizer is made here")])

    def _check_cycle(self, own: TrackedScaler, tracked: TrackedOptimizer, site: Optional[Site]) -> None:
        """Gradients that are about to be unscaled must all carry the scale of today, and carry it once."""
        if tracked.is_mixed:
            early = tracked.mixed
            self._report(
                "AMP205",
                "unscale_ runs before the last micro-step of an accumulation window: scaled gradients are added"
                " to unscaled ones, and all of them divided again",
                tracked,
                early,
                trace=[(site, "unscaled again here")],
            )
        old = [cycle for cycle in tracked.scaled.get(own, {}) if cycle < own.updates]
        if not old or tracked.is_mixed:
            return
        others, update = own.cycles.get(min(old), (set(), None))
        trace = [
            (tracked.scaled[own][min(old)], "differentiated with the scale from before that update"),
            (site, "unscaled with the scale from after it"),
        ]
        if others - {tracked}:
            message = (
                "update() runs before every optimizer that shares the scaler was stepped: the others' gradients"
                " are divided by another scale than they were multiplied by; call it once, at the end"
            )
            self._report("AMP211", message, tracked, update, trace=trace)
        else:
            message = "update() runs inside one accumulation window: its gradients carry different scales"
            self._report("AMP206", message, tracked, update, trace=trace)

    def _report(
        self,
        code: str,
        message: str,
        tracked: TrackedOptimizer,
        site: Optional[Site],
        step: Optional[int] = None,
        trace: List[Tuple[Optional[Site], str]] = [],  # noqa: B006 (never written to)
    ) -> None:
        at = tracked.attempts if step is None else step
        self._run.report(code, message, site, at, trace=trace, subject=tracked.index)


def _listed(parameters: Any) -> List[torch.Tensor]:
    """What a clip was given: a tensor, or any number of them."""
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters or ())


def _first_site(tracked: TrackedOptimizer) -> Optional[Site]:
    """Where the first scaled loss was differentiated whose gradients the optimizer holds."""
    return next(iter(next(iter(tracked.scaled.values())).values()))
