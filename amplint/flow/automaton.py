"""The GradScaler protocol itself: what each event does to the phases of the scalers, and what it breaks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from amplint.flow import conditions as c
from amplint.flow import protocol as p
from amplint.flow.environment import Environment
from amplint.flow.objects import Objects
from amplint.flow.pruning import looks_like_optimizer
from amplint.flow.sightings import Mistake, Recording
from amplint.flow.state import FRAMEWORK, PLAIN, Called, Pending, Phase, State

#: What a clip sees of one scaler: scaled, unscaled, other (not its gradients), or the kind of its phase; with it
#: the scaler's optimizers that provably own the clipped parameters.
Seen = tuple[str, tuple[c.Path, ...]]

_NO_SCALER = (FRAMEWORK, PLAIN)


@dataclass(frozen=True, slots=True)
class Frame:
    """Which functions are being executed, and the class of the innermost one's object."""

    functions: tuple[str, ...]
    klass: str | None
    #: The call by which it was reached.
    call: int | None = None


class Automaton(Environment):
    """What events do; which of them happen, and in which order, is for subclasses to know."""

    def __init__(self, objects: Objects) -> None:
        super().__init__(objects)
        self._record = Recording()
        #: (scaler, what was answered) whenever the number of a scaler's optimizers decided something.
        self._alone: set[tuple[c.Path, bool]] = set()
        #: What a clip saw of a scaler whose optimizers were not all known yet.
        self._guesses: list[tuple[c.Path, Phase, p.Clip | p.Touch, State, tuple[c.Path, ...], Seen]] = []
        #: What was asked about the optimizers of a scaler: (scaler, those known).
        self._asked: set[tuple[c.Path, tuple[c.Path, ...]]] = set()

    def _restart(self, known: dict[c.Path, dict[c.Path, None]]) -> None:
        """Begin a run in which the optimizers of an earlier one are known."""
        self._record = Recording(optimizers={s: dict(o) for s, o in known.items()})
        self._alone, self._guesses, self._asked = set(), [], set()

    def _guessed_right(self) -> bool:
        """Whether nothing would have come out differently, had all optimizers been known from the start."""
        now = {scaler: tuple(found) for scaler, found in self._record.optimizers.items()}
        return (
            all(self._is_alone(scaler) is answer for scaler, answer in tuple(self._alone))
            and all(known == now.get(scaler, ()) for scaler, known in self._asked)
            and all(
                known == now.get(scaler, ()) or self._at_clip(scaler, phase, node, state) == seen
                for scaler, phase, node, state, known, seen in tuple(self._guesses)
            )
        )

    def _is_alone(self, scaler: c.Path) -> bool:
        """Whether no more than one optimizer of the scaler is known."""
        answer = len(self._record.optimizers.get(scaler, ())) <= 1
        self._alone.add((scaler, answer))
        return answer

    def _optimizers(self, scaler: c.Path) -> tuple[c.Path, ...]:
        """The optimizers of a scaler that are known."""
        known = tuple(self._record.optimizers.get(scaler, ()))
        self._asked.add((scaler, known))
        return known

    def _end(self, state: State) -> None:
        """The root function ends."""
        for scaler, phase in state.scalers.items():
            self._abandon(phase)
            self._confirm_after(scaler, phase)
            for pending in phase.pending:
                if not (pending.late or pending.consumed):
                    self._record.clip(pending.site).left = True
            for call in phase.calls if phase.kind in ("scaled", "zeroed", "gone") else ():
                updated = scaler in self._record.updated
                kind = "no-update" if updated else "never-updated"
                trace = [(call.site, f"{call.method} is called here")]
                if call.left is not None:
                    trace.append((call.left, "update is never reached from here"))
                mistake = Mistake(kind, call.site, scaler, call.optimizer, tuple(trace))
                self._record.saw(mistake, call.site, is_certain=call.left is not None)

    def _leave_block(self, state: State, node: p.Exit) -> State:
        """Execution leaves a block by return, break or continue; what accumulates has still to step."""

        def is_left(call: Called) -> bool:
            return call.left is None and not call.is_past and (call.method == "step" or not node.accumulates)

        for scaler, phase in state.scalers.items():
            if any(map(is_left, phase.calls)):
                calls = tuple(replace(q, left=node.site) if is_left(q) else q for q in phase.calls)
                state = state.with_phase(scaler, replace(phase, calls=calls))
        return state

    @staticmethod
    def _next_round(states: Iterable[State]) -> list[State]:
        """The states at the start of a round of a loop: an `update` before belongs to another round."""
        found = []
        for state in states:
            for scaler, phase in state.scalers.items():
                calls = tuple(replace(call, is_past=True) for call in phase.calls)
                if phase.updated is not None or phase.earlier or calls != phase.calls:
                    state = state.with_phase(scaler, replace(phase, updated=None, earlier=(), calls=calls))
            found.append(state)
        return found

    # -- gradients ------------------------------------------------------------------------------------------

    def _backward(self, node: p.Backward, state: State) -> list[State]:
        scalers: dict[c.Path, None] = {}
        for path in node.scalers:
            found = self._scaler(path, state)
            if found is not None:
                scalers[found] = None
        for loss in node.losses:
            scalers.update(dict.fromkeys(self._carried(c.Ref(loss), state)))
        states = [state]
        for scaler in scalers:
            states = [after for before in states for after in self._scaled(scaler, node.site, before)]
        if not scalers:
            is_plain = node.is_plain and not node.scalers
            states = [state.with_phase(PLAIN, Phase("plain" if is_plain else "unknown", node.site))]
        return states

    def _scaled(self, scaler: c.Path, site: int, state: State) -> list[State]:
        """The states after a backward of what `scaler` scaled: it exists, and scales where it is enabled."""
        there = self._assume(self._pool.atom(c.Atom("truth", c.Ref(scaler))), True, state)
        on = [s for before in there for s in self._assume(self._enabled(scaler), True, before)]
        off = [s for before in there for s in self._assume(self._enabled(scaler), False, before)]
        return [
            *(self._scale(scaler, site, s) for s in on),
            *(s.with_phase(scaler, Phase("off", site)) for s in off),
        ]

    def _enabled(self, scaler: c.Path) -> c.Formula:
        return self._pool.atom(c.Atom("enabled", c.Ref(scaler)))

    def _may_scale(self, scaler: c.Path, state: State) -> bool:
        """Whether the scaler may exist and be enabled in `state`."""
        there = self._assume(self._pool.atom(c.Atom("truth", c.Ref(scaler))), True, state)
        return any(self._assume(self._enabled(scaler), True, before) for before in there)

    def _scale(self, scaler: c.Path, site: int, state: State) -> State:
        before = state.scalers.get(scaler)
        if before is None:
            return state.with_phase(scaler, Phase("scaled", site))
        self._abandon(before)
        self._confirm_after(scaler, before)
        if before.kind in ("gone", "zeroed", "off"):
            kept = replace(before, unscaled=(), stepped=(), pending=())
        else:
            kept = before
        backward = before.backward if before.kind == "scaled" and not before.stepped else site
        unscaled = () if self._is_alone(scaler) else kept.unscaled
        after = replace(kept, kind="scaled", backward=backward, unscaled=unscaled, after=())
        earlier = tuple(dict((*kept.earlier, *kept.spent)).items())
        return state.with_phase(scaler, replace(after, spent=(), earlier=earlier, zeroed=()))

    def _clip(self, node: p.Clip, state: State, frame: Frame) -> State:
        record = self._record.clip(node.site)
        seen = {s: self._at_clip(s, phase, node, state) for s, phase in state.scalers.items() if s != PLAIN}
        found = {verdict for verdict, _ in seen.values()}
        if "unknown" in found:
            record.unknown = True
        elif "unscaled" in found:
            record.unscaled = True
        elif "scaled" in found:
            for scaler, (verdict, owners) in seen.items():
                if verdict == "scaled":
                    phase = state.scalers[scaler]
                    record.scaled.setdefault(scaler, phase.backward)
                    record.entry = self._record.entry
                    pending = Pending(node.site, bool(phase.stepped), owners)
                    record.repeated |= any(q.site == node.site and not q.consumed for q in phase.pending)
                    if pending not in phase.pending:
                        phase = replace(phase, pending=(*phase.pending, pending))
                        state = state.with_phase(scaler, phase)
        elif "off" in found:
            record.off.update((scaler, None) for scaler, (verdict, _) in seen.items() if verdict == "off")
        else:
            record.idle = True
            if frame.call is not None:
                record.idle_calls[frame.call] = None
        return self._clip_after(node, state)

    def _clip_after(self, node: p.Clip, state: State) -> State:
        """Note a clip of gradients that every optimizer concerned has consumed."""
        for scaler, phase in state.scalers.items():
            spent = tuple(optimizer for optimizer, _ in phase.spent)
            if not spent or phase.kind == "unknown":
                continue
            if scaler == PLAIN:
                concerned: tuple[c.Path, ...] = spent if len(state.scalers) == 1 else ()
            else:
                params = self._modules(node.params, state)
                known = self._optimizers(scaler)
                owners = tuple(o for o in known if params and self._owns(o, params, state))
                others = (o for o in self._objects.optimizers if o not in known)
                is_other = bool(params) and any(self._owns(o, params, state) for o in others)
                concerned = owners or (() if is_other else known)
                if PLAIN in state.scalers and not owners:
                    concerned = ()
            if concerned and all(o in spent for o in concerned):
                if node.site in phase.after:
                    continue
                state = state.with_phase(scaler, replace(phase, after=(*phase.after, node.site)))
            else:
                self._record.at("clip-after-step", node.site).fine = True
        if any(phase.kind in ("scaled", "plain") and not phase.spent for phase in state.scalers.values()):
            self._record.at("clip-after-step", node.site).fine = True
        return state

    def _confirm_after(self, scaler: c.Path, phase: Phase) -> None:
        """The gradients that were clipped after their step are never used."""
        for site in phase.after:
            optimizer, step = phase.spent[0] if phase.spent else ((), phase.backward)
            trace = (
                (step, "the gradients are consumed here"),
                (site, "and clipped here, when nobody uses them"),
            )
            mistake = Mistake("clip-after-step", site, scaler, optimizer or None, trace, "clip")
            self._record.saw(mistake, site)

    def _at_clip(self, scaler: c.Path, phase: Phase, node: p.Clip | p.Touch, state: State) -> Seen:
        if phase.kind != "scaled":
            return phase.kind, ()
        optimizers = tuple(self._record.optimizers.get(scaler, ()))
        seen = self._seen(optimizers, phase, node, state)
        self._guesses.append((scaler, phase, node, state, optimizers, seen))
        return seen

    def _seen(
        self, optimizers: tuple[c.Path, ...], phase: Phase, node: p.Clip | p.Touch, state: State
    ) -> Seen:
        """What a clip sees of a scaler with these optimizers whose gradients are scaled."""
        params = self._modules(node.params, state)
        owners = tuple(o for o in optimizers if self._owns(o, params, state)) if params else ()
        if owners:
            if all(o in dict(phase.zeroed) for o in owners):
                return "zeroed", owners
            return "unscaled" if any(o in phase.unscaled for o in owners) else "scaled", owners
        if params and any(
            self._owns(o, params, state) for o in self._objects.optimizers if o not in optimizers
        ):
            return "other", ()
        return "unscaled" if phase.unscaled else "scaled", ()

    def _touch(self, node: p.Touch, state: State) -> State:
        """Gradients are read or changed in a way for which their scale matters."""
        sighting = self._record.at("touch", node.site)
        for scaler, phase in state.scalers.items():
            if scaler in _NO_SCALER:
                continue
            verdict, _ = self._at_clip(scaler, phase, node, state)
            if verdict == "unknown":
                sighting.unknown = True
            elif verdict == "scaled" and not phase.spent:
                word = "changed" if node.changes else "read"
                trace = (
                    (phase.backward, "the loss is scaled here, and so are its gradients"),
                    (node.site, f"the gradients are {word} here, with no unscale_ on this path"),
                )
                mistake = Mistake("touch", node.site, scaler, None, trace, f"{word} {node.how}")
                self._record.saw(mistake, node.site)
            elif verdict in ("scaled", "unscaled"):
                sighting.fine = True
        return state

    def _leak(self, node: p.Leak, state: State) -> State:
        """The value of a loss goes elsewhere than into a backward."""
        scalers = dict.fromkeys(
            found for path in node.scalers if (found := self._scaler(path, state)) is not None
        )
        for loss in node.losses:
            scalers.update(dict.fromkeys(self._carried(c.Ref(loss), state)))
        for scaler in scalers:
            if self._may_scale(scaler, state):
                trace = ((node.site, f"the scaled loss is {node.how} here"),)
                self._record.saw(Mistake("leak", node.site, scaler, None, trace, node.how), node.site)
        if not scalers:
            self._record.at("leak", node.site).fine = True
        return state

    def _modules(self, params: tuple[c.Path, ...] | None, state: State) -> tuple[c.Path, ...]:
        return tuple(self._path(path, state) for path in params) if params else ()

    def _owns(self, optimizer: c.Path, params: tuple[c.Path, ...], state: State) -> bool:
        """Whether all of `params` provably belong to `optimizer`."""
        if all(path[: len(optimizer) + 1] == (*optimizer, "param_groups") for path in params):
            return True
        owned = self._modules(self._objects.owned(optimizer), state)
        return bool(owned) and all(any(path[: len(o)] == o for o in owned) for path in params)

    # -- calls of the scaler --------------------------------------------------------------------------------

    def _method(self, node: p.Invoke, scaler: c.Path, state: State) -> list[State]:
        if node.method in ("step", "unscale_"):
            optimizer = self._optimizer(node, state)
            self._record.optimizers.setdefault(scaler, {})[optimizer] = None
            phase = state.scalers.get(scaler)
            if node.method == "step":
                self._unscaled_backward(node, scaler, optimizer, state)
            if phase is None:  # somebody else took the gradients: whoever calls this scales them
                if state.scalers or not self._may_scale(scaler, state):
                    return [state]
                phase = Phase("scaled", node.site)
            act = self._step if node.method == "step" else self._unscale
            return [state.with_phase(scaler, act(node, scaler, optimizer, phase))]
        if node.method == "update":
            return [self._update(node, scaler, state)]
        return [state]

    def _optimizer(self, node: p.Invoke, state: State) -> c.Path:
        for argument in node.arguments:
            if argument.keyword in (None, "optimizer") and not argument.star:
                if len(argument.handed) == 1:
                    return self._path(argument.handed[0], state)
                break
        return (f"<optimizer at {node.site}>",)

    def _unscaled_backward(self, node: p.Invoke, scaler: c.Path, optimizer: c.Path, state: State) -> None:
        """`scaler.step` where the only backward before it was of a loss that nothing had scaled."""
        phase, plain = state.scalers.get(scaler), state.scalers.get(PLAIN)
        if plain is None or plain.kind != "plain" or (phase is not None and phase.kind != "gone"):
            self._record.at("unscaled-backward", node.site).fine = True
        elif plain.spent or not self._may_scale(scaler, state):
            return
        else:
            trace = (
                (plain.backward, "gradients of a loss that is not scaled"),
                (node.site, "divided by the scale here"),
            )
            mistake = Mistake("unscaled-backward", plain.backward, scaler, optimizer, trace, "", node.site)
            self._record.saw(mistake, node.site)

    @staticmethod
    def _concerned(optimizer: c.Path, phase: Phase) -> tuple[Pending, ...]:
        """The clips that acted on what `optimizer` is about to consume."""
        if optimizer in phase.stepped:
            return ()
        return tuple(q for q in phase.pending if not q.owners or optimizer in q.owners)

    def _step(self, node: p.Invoke, scaler: c.Path, optimizer: c.Path, phase: Phase) -> Phase:
        self._judge_step(node, scaler, optimizer, phase)
        concerned = self._concerned(optimizer, phase)
        for pending in concerned:
            self._record.clip(pending.site).steps[node.site] = optimizer
        phase = phase.calling(optimizer, "step", node.site) if phase.kind in ("scaled", "gone") else phase
        return replace(
            phase,
            unscaled=tuple(o for o in phase.unscaled if o != optimizer),
            stepped=tuple(dict.fromkeys((*phase.stepped, optimizer))),
            pending=tuple(replace(q, consumed=True) if q in concerned else q for q in phase.pending),
            spent=tuple(dict((*phase.spent, (optimizer, node.site))).items())
            if phase.kind == "scaled"
            else (),
            after=(),
        )

    def _judge_step(self, node: p.Invoke, scaler: c.Path, optimizer: c.Path, phase: Phase) -> None:
        before = phase.call(optimizer)
        if phase.kind == "zeroed" or any(o == optimizer for o, _ in phase.zeroed):
            self._zeroed(node, scaler, optimizer, phase)
        elif phase.kind == "scaled":
            if before is not None and before.method == "step" and not _is_element(optimizer):
                self._not_updated(node, scaler, before.site, optimizer, before.left)
            if before is not None and before.method == "unscale_":
                self._record.at("no-update", before.site).fine = True
            if before is None:
                inner = next((o for o in phase.unscaled if self._wraps(optimizer, o)), None)
                call = phase.call(inner) if inner is not None else None
                if inner is not None and call is not None:
                    trace = (
                        (call.site, "the gradients are unscaled here for one object"),
                        (node.site, "and, for another with the same parameters, once more here"),
                    )
                    self._record.saw(
                        Mistake("wrong-optimizer", call.site, scaler, inner, trace, "", node.site), node.site
                    )
            self._record.at("zero-grad", node.site).fine = True
        elif phase.kind == "gone" and phase.updated and phase.spent and optimizer not in dict(phase.spent):
            trace = (
                (phase.updated[0], "the scale may change here"),
                (node.site, "gradients that were scaled before are unscaled by the new scale here"),
            )
            self._record.saw(
                Mistake("repeated-update", phase.updated[0], scaler, optimizer, trace, "stale", node.site),
                phase.updated[0],
            )

    def _wraps(self, outer: c.Path, inner: c.Path) -> bool:
        """Whether `outer` is an optimizer made around `inner`, or `inner` is one inside `outer`."""
        if len(inner) > len(outer) and inner[: len(outer)] == outer and "optim" in inner[-1].lower():
            return True
        return inner in self._objects.made_from(outer)

    def _not_updated(
        self, node: p.Invoke, scaler: c.Path, site: int, optimizer: c.Path, left: int | None
    ) -> None:
        trace = [(site, "the step that no update follows")]
        if left is not None:
            trace.append((left, "update is never reached from here"))
        trace.append((node.site, f"{node.method} is called again here"))
        mistake = Mistake("no-update", site, scaler, optimizer, tuple(trace), "again", node.site)
        self._record.saw(mistake, site, is_certain=left is not None)

    def _zeroed(self, node: p.Invoke, scaler: c.Path, optimizer: c.Path, phase: Phase) -> None:
        site = next((s for o, s in phase.zeroed if o == optimizer), phase.backward)
        trace = (
            (site, "the gradients are zeroed here"),
            (node.site, "and wanted here, with no backward between"),
        )
        self._record.saw(Mistake("zero-grad", site, scaler, optimizer, trace, "", node.site), node.site)

    def _unscale(self, node: p.Invoke, scaler: c.Path, optimizer: c.Path, phase: Phase) -> Phase:
        for pending in self._concerned(optimizer, phase):
            self._record.clip(pending.site).late_unscales[node.site] = optimizer
        before = phase.call(optimizer) if not _is_element(optimizer) else None
        if phase.kind == "unknown":
            self._record.at("repeated-unscale", node.site).unknown = True
        elif phase.kind == "zeroed" or any(o == optimizer for o, _ in phase.zeroed):
            self._zeroed(node, scaler, optimizer, phase)
        elif phase.kind == "scaled" and before is not None and before.left is not None:
            self._not_updated(node, scaler, before.site, optimizer, before.left)
        elif phase.kind == "scaled" and before is not None and before.method == "unscale_":
            trace = (
                (before.site, "unscaled here"),
                (node.site, "and again here, with no update between"),
            )
            mistake = Mistake("repeated-unscale", node.site, scaler, optimizer, trace, "", phase.backward)
            self._record.saw(mistake, node.site)
        elif phase.kind == "scaled" and before is not None and any(o == optimizer for o, _ in phase.spent):
            trace = ((before.site, "the optimizer has stepped here"), (node.site, "unscale_ comes too late"))
            self._record.saw(
                Mistake("clip-after-step", node.site, scaler, optimizer, trace, "unscale_"), node.site
            )
        elif phase.kind == "scaled" and before is not None:
            self._not_updated(node, scaler, before.site, optimizer, before.left)
        elif phase.kind == "scaled":
            self._record.at("repeated-unscale", node.site).fine = True
            self._record.at("zero-grad", node.site).fine = True
        if phase.kind != "scaled":
            return phase
        phase = phase.calling(optimizer, "unscale_", node.site)
        return replace(phase, unscaled=tuple(dict.fromkeys((*phase.unscaled, optimizer))))

    def _update(self, node: p.Invoke, scaler: c.Path, state: State) -> State:
        self._record.updated[scaler] = None
        phase = state.scalers.get(scaler)
        if phase is None:
            return state
        self._abandon(phase)
        if phase.kind in ("off", "unknown"):
            self._record.at("update-without-step", node.site).unknown |= phase.kind == "unknown"
            return state.with_phase(scaler, None)
        stepped = tuple(call.optimizer for call in phase.calls if call.method == "step")
        for call in phase.calls:
            self._record.at("no-update", call.site).fine = True
        if not node.arguments:
            self._judge_update(node, scaler, phase, stepped)
        if phase.kind == "scaled" and not phase.spent and phase.calls:  # the gradients have still to be used
            return state.with_phase(scaler, replace(phase, calls=(), pending=(), updated=None))
        after = Phase(
            "gone",
            phase.backward,
            spent=phase.spent,
            earlier=phase.earlier,
            after=phase.after,
            updated=(node.site, stepped) if stepped else None,
        )
        return state.with_phase(scaler, after)

    def _judge_update(
        self, node: p.Invoke, scaler: c.Path, phase: Phase, stepped: tuple[c.Path, ...]
    ) -> None:
        if not phase.calls and phase.kind == "scaled":
            trace = (
                (phase.backward, "gradients are added up from here"),
                (node.site, "and the scale is updated here, with no step or unscale_ before"),
            )
            self._record.saw(Mistake("update-without-step", node.site, scaler, None, trace), node.site)
            return
        self._record.at("update-without-step", node.site).fine = True
        if phase.updated is None:
            return
        first, optimizers = phase.updated
        trace = ((first, "updated here"), (node.site, "and again here, in one iteration"))
        if phase.kind == "gone" and not phase.calls:
            mistake = Mistake("repeated-update", node.site, scaler, None, trace, "nothing")
            self._record.saw(mistake, node.site)
        elif phase.kind == "scaled" and stepped and not set(stepped) & set(optimizers):
            mistake = Mistake("repeated-update", first, scaler, None, trace, "several", node.site)
            self._record.saw(mistake, first)

    def _abandon(self, phase: Phase) -> None:
        """Note the clips that nothing has consumed when their gradients are gone or added to."""
        for pending in phase.pending:
            if not (pending.late or pending.consumed):
                self._record.clip(pending.site).unconsumed = True

    # -- calls of the optimizer -----------------------------------------------------------------------------

    def _plain_step(self, node: p.Invoke, optimizer: c.Path, state: State) -> State:
        framework = state.scalers.get(FRAMEWORK)
        if framework is not None:
            self._step_of_framework(node, optimizer, framework)
            state = state.with_phase(FRAMEWORK, None)
        if not looks_like_optimizer(self._objects, optimizer):
            return state
        for scaler, phase in state.scalers.items():
            if scaler == PLAIN:
                spent = tuple(dict((*phase.spent, (optimizer, node.site))).items())
                state = state.with_phase(PLAIN, replace(phase, spent=spent, after=()))
                continue
            self._bypass(node, scaler, optimizer, phase, state)
            late = tuple(pending for pending in phase.pending if pending.late or pending.consumed)
            if late != phase.pending or phase.after:
                state = state.with_phase(scaler, replace(phase, pending=late, after=()))
        if not any(scaler not in _NO_SCALER for scaler in state.scalers):
            self._record.at("bypass", node.site).fine = True
        return state

    def _step_of_framework(self, node: p.Invoke, optimizer: c.Path, phase: Phase) -> None:
        for pending in self._concerned(optimizer, phase):
            self._record.clip(pending.site).steps[node.site] = optimizer

    def _bypass(self, node: p.Invoke, scaler: c.Path, optimizer: c.Path, phase: Phase, state: State) -> None:
        """A step of the optimizer itself where `scaler` scales."""
        sighting = self._record.at("bypass", node.site)
        known = self._optimizers(scaler)
        if optimizer not in known and (known or PLAIN in state.scalers):
            sighting.fine = True
            return
        if phase.kind in ("unknown", "off"):
            sighting.unknown |= phase.kind == "unknown"
            sighting.fine |= phase.kind == "off"
            return
        spent = dict((*phase.earlier, *phase.spent))
        detail = ""
        if optimizer in spent:
            detail = "twice"
            trace = (
                (spent[optimizer], "stepped through the scaler here"),
                (node.site, "and stepped again here"),
            )
        elif phase.kind != "scaled":
            sighting.fine = True
            return
        elif optimizer in phase.unscaled:
            call = phase.call(optimizer)
            detail = "checked" if node.is_checked else "unscaled"
            first = (call.site if call is not None else phase.backward, "the gradients are unscaled here")
            trace = (first, (node.site, "the step is taken whether or not they are finite"))
        else:
            detail = "scaled"
            trace = (
                (phase.backward, "the loss is scaled here, and so are its gradients"),
                (node.site, "the optimizer takes its step with them"),
            )
        self._record.saw(Mistake("bypass", node.site, scaler, optimizer, trace, detail), node.site)

    def _zero_grad(self, node: p.Invoke, state: State) -> State:
        receiver = self._path(node.receiver, state) if node.receiver is not None else ()
        for scaler, phase in list(state.scalers.items()):
            if scaler == FRAMEWORK:
                continue
            if scaler == PLAIN:
                if all(self._is_alone(other) for other in state.scalers):
                    self._confirm_after(scaler, phase)
                    state = state.with_phase(PLAIN, None)
            elif self._is_of_another(receiver, scaler):
                continue
            elif self._is_alone(scaler):
                state = state.with_phase(scaler, self._all_zeroed(node, scaler, phase))
            elif receiver in self._optimizers(scaler) and phase.kind in ("scaled", "gone"):
                zeroed = dict(phase.zeroed)
                if phase.kind == "scaled" and receiver not in dict(phase.spent):
                    zeroed[receiver] = node.site
                spent = tuple((optimizer, site) for optimizer, site in phase.spent if optimizer != receiver)
                state = state.with_phase(scaler, replace(phase, zeroed=tuple(zeroed.items()), spent=spent))
        return state

    def _is_of_another(self, optimizer: c.Path, scaler: c.Path) -> bool:
        """Whether `optimizer` is one, and none of those that are known of the scaler."""
        known = self._optimizers(scaler)
        return bool(known) and optimizer not in known and looks_like_optimizer(self._objects, optimizer)

    def _all_zeroed(self, node: p.Invoke, scaler: c.Path, phase: Phase) -> Phase | None:
        self._abandon(phase)
        self._confirm_after(scaler, phase)
        if phase.kind in ("unknown", "off"):
            return None
        is_early = phase.kind == "scaled" and not phase.spent and not node.is_checked
        site = node.site if is_early else phase.backward
        kind = "zeroed" if is_early else "gone"
        return Phase(kind, site, calls=phase.calls, earlier=phase.earlier, updated=phase.updated)


def _is_element(path: c.Path) -> bool:
    """Whether `path` stands for several objects, one at a time."""
    return "[]" in path
