"""Abstract states of the scaler protocol, and how equal or complementary ones are joined.

States are compared all the time. A `Pool` therefore keeps one of several equal parts of states: equality is then
identity, and what follows from a part (a formula's meaning, an assignment) is worked out once and kept with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from amplint.flow import conditions as c
from amplint.flow.hashing import Hashed, hashed_once
from amplint.flow.objects import value_paths
from amplint.flow.protocol import Value

#: The scaler that a framework drives behind `manual_backward` and `optimizer.step`.
FRAMEWORK: c.Path = ("<framework's scaler>",)
#: Stands for a scaler where there is none: gradients of losses that nothing has scaled.
PLAIN: c.Path = ("<no scaler>",)


@hashed_once
@dataclass(frozen=True, slots=True)
class Pending(Hashed):
    """A clip that acted on scaled gradients, until it is known who consumes them."""

    site: int
    #: The scaler had already stepped an optimizer: this clip may belong after the step.
    late: bool
    #: The optimizers whose parameters were clipped, where that is known.
    owners: tuple[c.Path, ...] = ()
    #: Some optimizer has stepped with what was clipped.
    consumed: bool = False


@hashed_once
@dataclass(frozen=True, slots=True)
class Called(Hashed):
    """What a scaler did last for one optimizer since its last `update`: "unscale_" or "step"."""

    optimizer: c.Path
    method: str
    site: int
    #: Where execution left its block (continue, return, break) since, in the same round of the loop.
    left: int | None = None
    #: Another round has begun since.
    is_past: bool = False


@hashed_once
@dataclass(frozen=True, slots=True)
class Phase(Hashed):
    """Where one scaler stands; absent: nothing is known to have happened.

    `kind` is about the gradients of its last backward: scaled, off (it ran without scaling), plain (there is no
    scaler), zeroed, gone (consumed, and the scale updated) or unknown.
    """

    kind: str
    #: The backward; the `zero_grad` where the kind is zeroed.
    backward: int
    unscaled: tuple[c.Path, ...] = ()
    stepped: tuple[c.Path, ...] = ()
    pending: tuple[Pending, ...] = ()
    #: The last call for each optimizer since the last `update`.
    calls: tuple[Called, ...] = ()
    #: Optimizers that have consumed these gradients, each with the step.
    spent: tuple[tuple[c.Path, int], ...] = ()
    #: Optimizers that have stepped in this round with gradients of backwards before.
    earlier: tuple[tuple[c.Path, int], ...] = ()
    #: Optimizers whose gradients were zeroed since the backward, each with the `zero_grad`.
    zeroed: tuple[tuple[c.Path, int], ...] = ()
    #: Clips since the gradients were consumed.
    after: tuple[int, ...] = ()
    #: The last `update` of this round of the loop (or call), and the optimizers stepped before it.
    updated: tuple[int, tuple[c.Path, ...]] | None = None

    def call(self, optimizer: c.Path) -> Called | None:
        """The last call for `optimizer` since the last `update`."""
        return next((call for call in self.calls if call.optimizer == optimizer), None)

    def calling(self, optimizer: c.Path, method: str, site: int) -> Phase:
        """The phase after a call for `optimizer`."""
        rest = tuple(call for call in self.calls if call.optimizer != optimizer)
        return replace(self, calls=(*rest, Called(optimizer, method, site)))

    def without(self, path: c.Path) -> Phase:
        """The phase once `path` holds something else: what is known of the optimizer that it held has no name."""

        def other(optimizer: c.Path) -> c.Path:
            return ("<another>", *optimizer) if optimizer[: len(path)] == path else optimizer

        return replace(
            self,
            unscaled=tuple(map(other, self.unscaled)),
            stepped=tuple(map(other, self.stepped)),
            calls=tuple(replace(call, optimizer=other(call.optimizer)) for call in self.calls),
            spent=tuple((other(optimizer), site) for optimizer, site in self.spent),
            earlier=tuple((other(optimizer), site) for optimizer, site in self.earlier),
            zeroed=tuple((other(optimizer), site) for optimizer, site in self.zeroed),
        )

    def names(self, path: c.Path) -> bool:
        """Whether it knows something of an optimizer at `path`."""
        known = (*self.unscaled, *self.stepped, *(q.optimizer for q in self.calls))
        pairs = (*self.spent, *self.earlier, *self.zeroed)
        return any(o[: len(path)] == path for o in (*known, *(o for o, _ in pairs)))

    @property
    def is_blank(self) -> bool:
        """Whether it says no more than that nothing has happened."""
        return self.kind == "gone" and not (self.calls or self.spent or self.updated or self.earlier)


#: The path that an assignment changes (None: nothing), the element that is another one from then on, and the
#: new value where it is kept.
Change = tuple[c.Path | None, c.Path | None, Value | None]


class Known(dict[c.Atom, bool]):
    """Assumptions; made by a pool and never changed."""

    __slots__ = ("literals", "memo")
    #: The same as numbers: twice the atom's, plus its value.
    literals: frozenset[int]
    #: What follows from these, by what was asked.
    memo: dict[Any, Any]


class Values(dict[c.Path, Value]):
    """What variables hold; made by a pool and never changed."""

    __slots__ = ("assigned", "expanded", "memo", "resolved")
    #: Path -> what it denotes.
    resolved: dict[c.Path, c.Term]
    #: Test -> the same over what its variables were defined by, and its atoms.
    expanded: dict[c.Formula, tuple[c.Formula, tuple[c.Atom, ...]]]
    #: Assignment (by identity) -> what it does.
    assigned: dict[int, Change]
    memo: dict[Any, Any]


class Phases(dict[c.Path, Phase]):
    """Where the scalers stand; made by a pool and never changed."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """One way in which execution can have come here."""

    pool: Pool
    known: Known
    values: Values
    scalers: Phases

    def assuming(self, known: Mapping[c.Atom, bool]) -> State:
        """The same state under other assumptions."""
        return State(self.pool, self.pool.known(known), self.values, self.scalers)

    def holding(self, values: Mapping[c.Path, Value]) -> State:
        """The same state with other values of variables."""
        return State(self.pool, self.known, self.pool.values(values), self.scalers)

    def with_phases(self, scalers: Mapping[c.Path, Phase]) -> State:
        """The same state with the scalers elsewhere."""
        return State(self.pool, self.known, self.values, self.pool.phases(scalers))

    def with_phase(self, scaler: c.Path, phase: Phase | None) -> State:
        """The same state with another phase of one scaler (None: idle)."""
        scalers = dict(self.scalers)
        if phase is None or phase.is_blank:
            scalers.pop(scaler, None)
        else:
            scalers[scaler] = phase
        return self.with_phases(scalers)

    @property
    def facts(self) -> tuple[int, int]:
        """All but the assumptions; equal for equal ones."""
        return (id(self.values), id(self.scalers))

    @property
    def key(self) -> tuple[int, int, int]:
        """Equal for equal states."""
        return (id(self.known), id(self.values), id(self.scalers))

    def forget(self, path: c.Path) -> State:
        """The state after `path` got a value that nothing is known about."""
        scalers = self.scalers
        if any(s[: len(path)] == path or phase.names(path) for s, phase in scalers.items()):
            kept = {s: phase for s, phase in scalers.items() if s[: len(path)] != path}
            scalers = self.pool.phases(
                {s: phase.without(path) if phase.names(path) else phase for s, phase in kept.items()}
            )
        return State(self.pool, self.forget_known(path), self._forget_values(path), scalers)

    def forget_known(self, path: c.Path) -> Known:
        """The assumptions that do not depend on `path`."""
        found: Known | None = self.known.memo.get(path)
        if found is None:
            found = self.pool.known({a: v for a, v in self.known.items() if not _mentions(a, path)})
            self.known.memo[path] = found
        return found

    def _forget_values(self, path: c.Path) -> Values:
        key = ("forget", path)
        found: Values | None = self.values.memo.get(key)
        if found is None:
            kept = {
                held: value
                for held, value in self.values.items()
                if held[: len(path)] != path and not any(p[: len(path)] == path for p in value_paths(value))
            }
            found = self.values.memo[key] = self.pool.values(kept)
        return found

    def forget_scope(self, scope: str) -> State:
        """The state without what is known of the variables of one function."""
        prefix = f"{scope}:"

        def local(path: c.Path) -> bool:
            return path[0].startswith(prefix)

        known: Known | None = self.known.memo.get(scope)
        if known is None:
            known = self.pool.known(
                {a: v for a, v in self.known.items() if not any(map(local, c.atom_paths(a)))}
            )
            self.known.memo[scope] = known
        values: Values | None = self.values.memo.get(scope)
        if values is None:
            kept = {
                held: value
                for held, value in self.values.items()
                if not local(held) and not any(map(local, value_paths(value)))
            }
            values = self.values.memo[scope] = self.pool.values(kept)
        return State(self.pool, known, values, self.scalers)


class Pool:
    """The parts of states, each once."""

    def __init__(self) -> None:
        self._atoms: dict[c.Atom, int] = {}
        self._one: dict[c.Atom, c.Atom] = {}
        self._known: dict[frozenset[int], Known] = {}
        self._values: dict[frozenset[tuple[c.Path, Value]], Values] = {}
        self._phases: dict[frozenset[tuple[c.Path, Phase]], Phases] = {}

    def state(
        self,
        known: Mapping[c.Atom, bool] | None = None,
        values: Mapping[c.Path, Value] | None = None,
        scalers: Mapping[c.Path, Phase] | None = None,
    ) -> State:
        """A state of these parts."""
        return State(self, self.known(known or {}), self.values(values or {}), self.phases(scalers or {}))

    def atom(self, atom: c.Atom) -> c.Atom:
        """The atom equal to `atom`; looking it up again then compares nothing."""
        return self._one.setdefault(atom, atom)

    def known(self, assumed: Mapping[c.Atom, bool]) -> Known:
        """The assumptions equal to `assumed`."""
        if isinstance(assumed, Known):
            return assumed
        atoms = self._atoms
        literals = frozenset(
            [2 * atoms.setdefault(atom, len(atoms)) + value for atom, value in assumed.items()]
        )
        found = self._known.get(literals)
        if found is None:
            found = self._known[literals] = Known(assumed)
            found.literals = literals
            found.memo = {}
        return found

    def values(self, held: Mapping[c.Path, Value]) -> Values:
        """The values equal to `held`."""
        if isinstance(held, Values):
            return held
        key = frozenset(held.items())
        found = self._values.get(key)
        if found is None:
            found = self._values[key] = Values(held)
            found.resolved, found.expanded, found.assigned, found.memo = {}, {}, {}, {}
        return found

    def phases(self, scalers: Mapping[c.Path, Phase]) -> Phases:
        """The phases equal to `scalers`."""
        if isinstance(scalers, Phases):
            return scalers
        return self._phases.setdefault(frozenset(scalers.items()), Phases(scalers))

    def opposite(self, known: Known, atom: c.Atom) -> Known | None:
        """`known` with the opposite of one assumption, where some state has ever assumed that."""
        number = 2 * self._atoms[atom]
        return self._known.get(known.literals ^ {number, number + 1})


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
    queue = list(states)
    if len(queue) < 2:
        return queue
    sizes: dict[tuple[int, int], int] = {}
    for state in queue:
        sizes[state.facts] = sizes.get(state.facts, 0) + 1
    found: dict[tuple[int, int, int], State] = {}
    queue.reverse()
    while queue:
        state = queue.pop()
        key = state.key
        if key in found:
            continue
        for atom in state.known if sizes[key[1:]] > 1 else ():
            other = state.pool.opposite(state.known, atom)
            opposite = (id(other), *key[1:])
            if opposite in found:
                del found[opposite]
                queue.append(state.assuming({a: v for a, v in state.known.items() if a != atom}))
                break
        else:
            found[key] = state
    return _without_special_cases(list(found.values()))


def _without_special_cases(states: list[State]) -> list[State]:
    """Drop each state that another one with fewer assumptions covers."""
    groups: dict[tuple[int, int], list[State]] = {}
    for state in states:
        groups.setdefault(state.facts, []).append(state)
    covered: set[int] = set()
    for group in groups.values():
        for state in group if len(group) > 1 else ():
            mine = state.known.literals
            if any(o is not state and id(o) not in covered and o.known.literals <= mine for o in group):
                covered.add(id(state))
    return [state for state in states if id(state) not in covered] if covered else states


def rarest(states: list[State], uses: dict[c.Atom, int]) -> c.Atom | None:
    """The assumption that the fewest tests have used, among those that `states` make."""
    made = dict.fromkeys(atom for state in states for atom in state.known)
    return min(made, key=lambda atom: uses.get(atom, 0), default=None)


def without(states: list[State], atom: c.Atom) -> list[State]:
    """The states with one assumption dropped."""
    return [state.assuming({a: v for a, v in state.known.items() if a != atom}) for state in states]


def descaled(phase: Phase) -> Phase:
    """The phase after somebody divided gradients by the loss scale by hand: nothing more can be told."""
    return replace(phase, kind="unknown", calls=(), spent=(), earlier=(), zeroed=(), after=())
