"""Abstract states of the scaler protocol, and how equal or complementary ones are joined."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace

from amplint.flow import conditions as c
from amplint.flow.objects import value_paths
from amplint.flow.protocol import Value

#: The scaler that a framework drives behind `manual_backward` and `optimizer.step`.
FRAMEWORK: c.Path = ("<framework's scaler>",)


@dataclass(frozen=True, slots=True)
class Pending:
    """A clip that acted on scaled gradients, until it is known who consumes them."""

    site: int
    #: The scaler had already stepped an optimizer: this clip may belong after the step.
    late: bool
    #: The optimizers whose parameters were clipped, where that is known.
    owners: tuple[c.Path, ...] = ()
    #: Some optimizer has stepped with what was clipped.
    consumed: bool = False


@dataclass(frozen=True, slots=True)
class Phase:
    """Where one scaler stands: scaled, off (its backward ran without scaling) or unknown; absent: idle."""

    kind: str
    backward: int
    unscaled: tuple[c.Path, ...] = ()
    stepped: tuple[c.Path, ...] = ()
    pending: tuple[Pending, ...] = ()


@dataclass(slots=True)
class State:
    """One way in which execution can have come here. Never changed in place once it is handed on."""

    known: dict[c.Atom, bool] = field(default_factory=dict)
    values: dict[c.Path, Value] = field(default_factory=dict)
    scalers: dict[c.Path, Phase] = field(default_factory=dict)
    _facts: Hashable = field(default=None, compare=False, repr=False)

    def assuming(self, known: dict[c.Atom, bool]) -> State:
        """The same state under other assumptions."""
        return State(known, self.values, self.scalers, self._facts)

    def with_phase(self, scaler: c.Path, phase: Phase | None) -> State:
        """The same state with another phase of one scaler (None: idle)."""
        scalers = dict(self.scalers)
        if phase is None:
            scalers.pop(scaler, None)
        else:
            scalers[scaler] = phase
        return State(self.known, self.values, scalers)

    def facts(self) -> Hashable:
        """All but the assumptions; hashing them is most of the work of merging, so they are kept."""
        if self._facts is None:
            self._facts = (frozenset(self.values.items()), frozenset(self.scalers.items()))
        return self._facts

    def key(self) -> Hashable:
        """Equal for equal states."""
        return (frozenset(self.known.items()), self.facts())

    def forget(self, path: c.Path) -> State:
        """The state after `path` got a value that nothing is known about."""
        known = {a: v for a, v in self.known.items() if not _mentions(a, path)}
        values = {
            key: value
            for key, value in self.values.items()
            if key[: len(path)] != path and not any(p[: len(path)] == path for p in value_paths(value))
        }
        scalers = {s: phase for s, phase in self.scalers.items() if s[: len(path)] != path}
        return State(known, values, scalers)

    def forget_scope(self, scope: str) -> State:
        """The state without what is known of the variables of one function."""
        prefix = f"{scope}:"

        def local(path: c.Path) -> bool:
            return path[0].startswith(prefix)

        known = {a: v for a, v in self.known.items() if not any(map(local, c.atom_paths(a)))}
        values = {
            key: value
            for key, value in self.values.items()
            if not local(key) and not any(map(local, value_paths(value)))
        }
        return State(known, values, self.scalers)


def _mentions(atom: c.Atom, path: c.Path) -> bool:
    return _term_mentions(atom.left, path) or _term_mentions(atom.right, path)


def _term_mentions(term: c.Term, path: c.Path) -> bool:
    """Whether a new value of `path` may change `term`; a method may read any attribute of its object."""
    if isinstance(term, c.Ref):
        return term.path[: len(path)] == path
    if not isinstance(term, c.Op):
        return False
    if term.name == "call" and isinstance(term.args[0], c.Ref):
        owner = term.args[0].path[:-1]
        if owner and path[: len(owner)] == owner:
            return True
    return any(_term_mentions(part, path) for part in term.args)


def merge(states: Iterable[State]) -> list[State]:
    """The states without repetitions; two that differ in one assumption only become one without it."""
    found: dict[Hashable, State] = {}
    queue = list(states)
    if len(queue) < 2:
        return queue
    queue.reverse()
    while queue:
        state = queue.pop()
        key = state.key()
        if key in found:
            continue
        facts = state.facts()
        for atom, value in state.known.items():
            other = dict(state.known)
            other[atom] = not value
            opposite = (frozenset(other.items()), facts)
            if opposite in found:
                del found[opposite]
                del other[atom]
                queue.append(state.assuming(other))
                break
        else:
            found[key] = state
    return _without_special_cases(list(found.values()))


def _without_special_cases(states: list[State]) -> list[State]:
    """Drop each state that another one with fewer assumptions covers."""
    groups: dict[Hashable, list[State]] = {}
    for state in states:
        groups.setdefault(state.facts(), []).append(state)
    covered: set[int] = set()
    for group in groups.values():
        for state in group:
            items = state.known.items()
            if any(o is not state and id(o) not in covered and o.known.items() <= items for o in group):
                covered.add(id(state))
    return [state for state in states if id(state) not in covered]


def rarest(states: list[State], uses: dict[c.Atom, int]) -> c.Atom | None:
    """The assumption that the fewest tests have used, among those that `states` make."""
    made = dict.fromkeys(atom for state in states for atom in state.known)
    return min(made, key=lambda atom: uses.get(atom, 0), default=None)


def without(states: list[State], atom: c.Atom) -> list[State]:
    """The states with one assumption dropped."""
    return [state.assuming({a: v for a, v in state.known.items() if a != atom}) for state in states]


def descaled(phase: Phase) -> Phase:
    """The phase after somebody divided gradients by the loss scale by hand: nothing more can be told."""
    return replace(phase, kind="unknown")
