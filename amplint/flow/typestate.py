"""Runs protocol programs over abstract states: which phase is each scaler in when gradients are clipped?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from operator import is_not

from amplint.cancel import checkpoint
from amplint.flow import conditions as c
from amplint.flow import protocol as p
from amplint.flow.automaton import Automaton, Frame
from amplint.flow.objects import Objects
from amplint.flow.pruning import runs_hooks
from amplint.flow.sightings import Recording
from amplint.flow.state import FRAMEWORK, Phase, State, Values, descaled, merge, rarest, without
from amplint.model.units import is_elsewhere

#: States of one point of a program; past this assumptions are dropped.
_MOST_STATES = 64
#: Subclasses as which the methods of a class are run, at most.
_MOST_HEIRS = 6
#: Nodes that one root may execute as one class; past this the analysis of the root gives up.
_MOST_STEPS = 20_000
_MOST_ROUNDS = 24
_DEPTH = 5
#: Calls that only look at what they are handed.
_LOOKS = re.compile(
    r"^(log|print|info|debug|warn|warning|error|write|add_scalar|save)|_log$|^log_|state_dict|register"
)


class GaveUp(Exception):
    """A root needs more steps than the analysis is willing to take."""


@dataclass(slots=True)
class Flow:
    """The states behind a piece of program: falling out of its end, or leaving otherwise."""

    normal: list[State]
    exits: dict[str, list[State]] = field(default_factory=dict)

    def leave(self, kind: str, states: Iterable[State]) -> None:
        """Add states that leave by return, raise, break or continue."""
        self.exits.setdefault(kind, []).extend(states)


class Typestate(Automaton):
    """One file's protocol programs, ready to be run from any function as root."""

    def __init__(self, objects: Objects, programs: dict[str, p.Program], matters: set[str]) -> None:
        super().__init__(objects)
        self._programs = programs
        self._matters = matters
        self._steps = 0
        #: Sites at which states are to be kept, and those of the last run.
        self.watched: frozenset[int] = frozenset()
        self.seen: dict[int, list[State]] = {}
        #: Scalers that the last run of the root let hooks take out of sight between `unscale_` and `update`.
        self._hooked: set[c.Path] = set()
        #: Scalers that the root updates itself, as an earlier run of it has shown.
        self._updating: frozenset[c.Path] = frozenset()

    def run(self, root: str) -> Recording:
        """Run one function with all scalers idle at its entry.

        Raises:
            GaveUp: when it needs too many steps.
        """
        known: dict[c.Path, dict[c.Path, None]] = {}
        self._updating = frozenset()
        for _ in range(2):
            self._restart(known)
            self.seen = {}
            self._uses = {}
            self._hooked = set()
            self._dropped = set()
            self._forgetful = False
            for klass in self._concrete(root):
                self._steps = 0
                flow = self._run(self._programs[root], [self._pool.state()], Frame((root,), klass))
                for state in (*flow.normal, *flow.exits.get("return", ())):
                    self._end(state)
            settled = self._record.optimizers == known or self._guessed_right()
            if settled and self._hooked.isdisjoint(self._record.updated):
                break
            known = self._record.optimizers
            self._updating = frozenset(self._record.updated)
        return self._record

    def _concrete(self, root: str) -> list[str | None]:
        """The classes that the object may be of: that of the method, and those that inherit it and replace others.

        What one of them does goes together: the `backward` of a subclass never meets the `step` of its base.
        """
        classes = self._objects.classes
        owner = self._objects.functions[root].owner
        if owner is None or owner not in classes.by_name:
            return [None]
        method = root.rpartition(".")[2]
        found: list[str | None] = [owner]
        for klass in classes.heirs(owner):
            if classes.method(klass, method) != root or len(found) > _MOST_HEIRS:
                continue
            if any(name in self._matters for name in classes.replaced(klass, owner)):
                found.append(klass)
        return found

    # -- programs -------------------------------------------------------------------------------------------

    def _run(self, program: p.Program, states: list[State], frame: Frame) -> Flow:
        flow = Flow(states)
        for node in program:
            if not flow.normal:
                break
            self._steps += len(flow.normal)
            if self._steps > _MOST_STEPS:
                raise GaveUp
            if node.site in self.watched:
                self.seen.setdefault(node.site, []).extend(flow.normal)
            checkpoint()
            step = self._node(node, flow.normal, frame)
            changed = len(step.normal) != len(flow.normal) or any(map(is_not, step.normal, flow.normal))
            flow.normal = self._bounded(step.normal) if changed else step.normal
            for kind, left in step.exits.items():
                flow.leave(kind, left)
        return flow

    def _bounded(self, states: list[State]) -> list[State]:
        states = merge(states)
        while len(states) > _MOST_STATES:
            self._record.imprecise = True
            atom = rarest(states, self._uses)
            if atom is not None:
                self._dropped.add(atom)
                states = merge(without(states, atom))
            elif any(state.values for state in states):
                self._forgetful = True
                states = merge(state.holding({}) for state in states)
            else:
                raise GaveUp
        return states

    def _node(self, node: p.Node, states: list[State], frame: Frame) -> Flow:
        if isinstance(node, p.Branch):
            return self._branch(node, states, frame)
        if isinstance(node, p.Loop):
            return self._loop(node, states, frame)
        if isinstance(node, p.Attempt):
            return self._attempt(node, states, frame)
        if isinstance(node, p.Choice):
            return self._joined([self._run(arm, states, frame) for arm in node.arms])
        if isinstance(node, p.Exit):
            if node.kind == "raise":
                return Flow([], {node.kind: states})
            left = [self._leave_block(state, node) for state in states]
            return Flow([], {node.kind: left})
        if isinstance(node, p.Invoke):
            return self._joined([self._invoke(node, state, frame) for state in states])
        return Flow([after for state in states for after in self._event(node, state, frame)])

    def _event(self, node: p.Node, state: State, frame: Frame) -> list[State]:
        if isinstance(node, p.Assign):
            return [self._assign(node, state)]
        if isinstance(node, p.Backward):
            return self._backward(node, state)
        if isinstance(node, p.ManualBackward):
            manual = frame.klass is not None and self._objects.is_manual(frame.klass)
            return [self._scale(FRAMEWORK, node.site, state)] if manual else [state]
        if isinstance(node, p.Clip):
            return [self._clip(node, state, frame)]
        if isinstance(node, p.Touch):
            return [self._touch(node, state)]
        if isinstance(node, p.Leak):
            return [self._leak(node, state)]
        if isinstance(node, p.Descale):
            return [state.with_phases({s: descaled(f) for s, f in state.scalers.items()})]
        raise TypeError(type(node).__name__)

    @staticmethod
    def _joined(flows: list[Flow]) -> Flow:
        result = Flow([state for flow in flows for state in flow.normal])
        for flow in flows:
            for kind, states in flow.exits.items():
                result.leave(kind, states)
        return result

    def _branch(self, node: p.Branch, states: list[State], frame: Frame) -> Flow:
        then = [after for state in states for after in self._assume(node.test, True, state)]
        orelse = [after for state in states for after in self._assume(node.test, False, state)]
        flows = []
        if then:
            flows.append(self._run(node.then, then, frame))
        if orelse:
            flows.append(self._run(node.orelse, orelse, frame))
        return self._joined(flows)

    def _loop(self, node: p.Loop, states: list[State], frame: Frame) -> Flow:
        result = Flow([])
        behind: list[State] = []
        broken: list[State] = []
        seen: set[object] = set()
        heads = self._bounded(states)
        for turn in range(_MOST_ROUNDS + 1):
            fresh = [head for head in heads if head.key not in seen]
            if not fresh:
                break
            if turn >= _MOST_ROUNDS:
                raise GaveUp
            seen.update(head.key for head in fresh)
            entered = fresh
            if node.test is not None:
                tests = self._run(node.start, fresh, frame).normal
                behind.extend(s for head in tests for s in self._assume(node.test, False, head))
                entered = [s for head in tests for s in self._assume(node.test, True, head)]
            program = node.body if node.test is not None else (*node.start, *node.body)
            flow = self._run(program, self._bounded(self._next_round(entered)), frame)
            broken.extend(flow.exits.pop("break", ()))
            heads = self._bounded([*flow.normal, *flow.exits.pop("continue", ())])
            if node.test is None:  # a loop over batches or parameters has some
                behind.extend(heads)
            for kind, left in flow.exits.items():
                result.leave(kind, left)
        last = self._run(node.orelse, self._bounded(behind), frame)
        result.normal = [*last.normal, *broken]
        for kind, left in last.exits.items():
            result.leave(kind, left)
        return result

    def _attempt(self, node: p.Attempt, states: list[State], frame: Frame) -> Flow:
        caught = list(states)
        body = Flow(states)
        for part in node.body:
            step = self._run((part,), body.normal, frame)
            body.normal = step.normal
            caught.extend(step.normal)
            for kind, left in step.exits.items():
                body.leave(kind, left)
        if node.handlers:
            caught.extend(body.exits.pop("raise", ()))
        handled = self._bounded(caught)
        flows = [self._run(handler, handled, frame) for handler in node.handlers]
        flows.append(self._run(node.orelse, body.normal, frame))
        flows.append(Flow([], body.exits))
        whole = self._joined(flows)
        if not node.final:
            return whole
        result = self._run(node.final, self._bounded(whole.normal), frame)
        for kind, left in whole.exits.items():
            final = self._run(node.final, self._bounded(left), frame)
            result.leave(kind, final.normal)
        return result

    # -- calls ----------------------------------------------------------------------------------------------

    def _invoke(self, node: p.Invoke, state: State, frame: Frame) -> Flow:
        scaler = self._scaler(node.receiver, state) if node.receiver is not None else None
        if scaler is not None and node.function is None:
            return Flow(self._method(node, scaler, state))
        callees = [] if self._is_of_optimizer(node, state, frame) else self._callees(node, state, frame)
        if callees:
            return self._joined([self._inline(node, name, klass, state, frame) for name, klass in callees])
        if node.method == "zero_grad":
            return Flow([self._zero_grad(node, state)])
        if node.method == "step" and node.receiver is not None:
            state = self._plain_step(node, self._path(node.receiver, state), state)
        return Flow([self._escape(node, state, frame)])

    def _callees(self, node: p.Invoke, state: State, frame: Frame) -> list[tuple[str, str | None]]:
        """Functions of this file that the call may reach, with the class of the object they are called on."""
        classes = self._objects.classes
        if node.function is not None:
            owner = self._objects.functions[node.function].owner
            return [(node.function, owner if owner in classes.by_name else None)]
        if node.above is not None:
            found = classes.above(node.above, node.method)
            return [(found, frame.klass)] if found is not None else []
        if node.receiver is None:
            return []
        klass = self._class_of(node.receiver, state, frame)
        if klass is not None:
            name = classes.method(klass, node.method)
            return [(name, klass)] if name is not None else []
        if node.method != "__call__":
            whole = self._class_of((*node.receiver, node.method), state, frame)
            called = classes.method(whole, "__call__") if whole is not None else None
            return [(called, whole)] if called is not None else []
        return []

    def _is_of_optimizer(self, node: p.Invoke, state: State, frame: Frame) -> bool:
        """Whether a method of an optimizer is called whose meaning is known, however it is written."""
        if node.method not in ("step", "zero_grad") or node.receiver is None:
            return False
        klass = self._class_of(node.receiver, state, frame)
        return klass is not None and self._objects.classes.is_optimizer(klass)

    def _class_of(self, path: c.Path, state: State, frame: Frame) -> str | None:
        if len(path) == 1 and path[0].endswith(".self"):
            own = frame.klass is not None and self._objects.lift.self_root(frame.klass) == path[0]
            return frame.klass if own else self._objects.instance(self._path(path, state))
        return self._objects.instance(path) or self._objects.instance(self._path(path, state))

    def _inline(self, node: p.Invoke, name: str, klass: str | None, state: State, frame: Frame) -> Flow:
        if self._is_placeholder(name, node):
            return Flow([self._escaped(state, lambda scaler: len(scaler) > 1)])
        if name not in self._matters:
            return Flow([state])
        if name in frame.functions or len(frame.functions) > _DEPTH:
            return Flow([self._escape(node, state, frame)])
        entry = self._bind(node, name, klass, state)
        outside = self._record.entry
        if outside is None and is_elsewhere(name):
            self._record.entry = node.site
        flow = self._run(self._programs[name], [entry], Frame((*frame.functions, name), klass, node.site))
        self._record.entry = outside
        states = [*flow.normal, *flow.exits.get("return", ())]
        result = Flow([self._leave(name, after, state) for after in states])
        result.leave("raise", [self._leave(name, s, state) for s in flow.exits.get("raise", ())])
        return result

    def _is_placeholder(self, name: str, node: p.Invoke) -> bool:
        """Whether a method has no code of its own and is there to be replaced by a subclass elsewhere."""
        function = self._objects.functions[name]
        if node.receiver is None or not node.receiver[-1].endswith(".self") or function.owner is None:
            return False
        return name in self._objects.placeholders

    def _leave(self, name: str, after: State, before: State) -> State:
        """The caller's state: the callee's variables are gone, and `self` means again what it meant."""
        result = after.forget_scope(name)
        root = self._receiver_root(name)
        if root is None or result.values.get((root,)) == before.values.get((root,)):
            return result
        values = {path: value for path, value in result.values.items() if path != (root,)}
        if (root,) in before.values:
            values[(root,)] = before.values[(root,)]
        return result.holding(values)

    def _receiver_root(self, name: str) -> str | None:
        function = self._objects.functions[name]
        if not self._objects.has_receiver(name) or function.owner not in self._objects.classes.by_name:
            return None
        return self._objects.lift.self_root(function.owner)

    def _bind(self, node: p.Invoke, name: str, klass: str | None, state: State) -> State:
        """The state at the entry of an inlined function."""
        entry = state.forget_scope(name)
        key = (id(node), name, klass)
        values: Values | None = state.values.memo.get(key)
        if values is None:
            values = self._pool.values(self._bound(node, name, klass, state, entry))
            state.values.memo[key] = values
        return entry.holding(values)

    def _bound(
        self, node: p.Invoke, name: str, klass: str | None, state: State, entry: State
    ) -> dict[c.Path, p.Value]:
        """What variables hold at the entry of an inlined function."""
        held = dict(entry.values)
        function = self._objects.functions[name]
        root = self._receiver_root(name)
        if root is not None and node.receiver is not None and node.above is None:
            receiver = node.receiver
            if klass is not None and self._objects.instance(receiver) is None and node.function is None:
                whole = (*receiver, node.method)
                receiver = whole if self._objects.instance(whole) is not None else receiver
            target = self._path(receiver, state)
            if target != (root,):
                held[(root,)] = p.Alias(c.Ref(target))
        params = [q for q in function.params[1 if root is not None else 0 :] if not q.star]
        given = [(q.name, self._objects.default(q.default)) for q in params if q.default is not None]
        plain = [q for q in params if not q.keyword_only]
        for index, argument in enumerate(node.arguments):
            if argument.star:
                break
            if argument.keyword is not None:
                given.append((argument.keyword, argument.value))
            elif index < len(plain):
                given.append((plain[index].name, argument.value))
        for param, value in given:
            settled = self._settled(value, state)
            if settled is not None:
                held[(f"{name}:{param}",)] = settled
            else:
                held.pop((f"{name}:{param}",), None)
        return held

    # -- what cannot be seen --------------------------------------------------------------------------------

    def _escape(self, node: p.Invoke, state: State, frame: Frame) -> State:
        """The state after a call into code that this file does not show."""
        if not state.scalers or _LOOKS.search(node.method):
            return state
        handed = [self._path(path, state) for a in node.arguments for path in a.handed]
        if any(name in self._matters for a in node.arguments for name in a.functions):
            return self._escaped(state, lambda scaler: True)
        receiver = self._path(node.receiver, state) if node.receiver is not None else None
        if node.receiver is not None and node.receiver[-1].endswith(".self"):
            receiver = receiver if self._is_foreign_method(node, frame) else None
        elif node.above is not None and self._objects.classes.is_open(node.above):
            receiver = (self._objects.lift.self_root(node.above),)
        hooked = runs_hooks(node)

        def touched(scaler: c.Path) -> bool:
            if any(scaler[: len(path)] == path for path in handed):
                return True
            holders = [self._path(holder, state) for holder in self._objects.holders_of(scaler)]
            if any(h[: len(path)] == path for path in handed for h in holders):
                return True
            if receiver is not None and (receiver in holders or scaler[: len(receiver)] == receiver):
                return True
            return hooked and (len(scaler) > 1 or bool(holders) or self._objects.is_shared(scaler))

        return self._left_to_hooks(state, touched) if hooked else self._escaped(state, touched)

    def _left_to_hooks(self, state: State, touched: Callable[[c.Path], bool]) -> State:
        """The state after hooks; where the root updates a scaler itself, they are not taken to do so as well."""
        after = self._escaped(state, touched)
        for scaler, phase in state.scalers.items():
            open_calls = tuple(call for call in phase.calls if call.method == "unscale_")
            if not open_calls or not touched(scaler):
                continue
            if scaler in self._updating:
                after = after.with_phase(scaler, replace(after.scalers[scaler], calls=open_calls))
            else:
                self._hooked.add(scaler)
        return after

    def _is_foreign_method(self, node: p.Invoke, frame: Frame) -> bool:
        """Whether `self.method()` runs code of a base class that this file does not show."""
        if (
            node.above is None
            and node.receiver is not None
            and self._objects.is_assigned((*node.receiver, node.method))
        ):
            return False
        return frame.klass is not None and self._objects.classes.is_open(frame.klass)

    @staticmethod
    def _escaped(state: State, touched: Callable[[c.Path], bool]) -> State:
        scalers = {
            scaler: descaled(phase) if _may_change(phase) and touched(scaler) else phase
            for scaler, phase in state.scalers.items()
        }
        return state.with_phases(scalers)


def _may_change(phase: Phase) -> bool:
    """Whether code out of sight may do anything with a scaler that is not given up already."""
    return phase.kind != "unknown" or bool(phase.calls)
