"""What variables hold and what tests mean in one abstract state."""

from __future__ import annotations

from amplint.flow import conditions as c
from amplint.flow import protocol as p
from amplint.flow.objects import Objects, value_paths
from amplint.flow.state import Change, Known, Pool, State

#: Larger values are not kept: a counter would grow for ever.
_LARGEST_TERM = 8


class Environment:
    """Aliases, flags and assumptions of the states of one file."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._pool = Pool()
        #: How often a test asked for each atom.
        self._uses: dict[c.Atom, int] = {}
        #: Assumptions that this root can no longer afford; never made again, so that loops come to an end.
        self._dropped: set[c.Atom] = set()
        #: Values can no longer be afforded either.
        self._forgetful = False

    def _resolve(self, path: c.Path, state: State) -> c.Term:
        """What `path` denotes once aliases are followed."""
        found = state.values.resolved.get(path)
        if found is None:
            found = state.values.resolved[path] = self._follow(path, state)
        return found

    def _follow(self, path: c.Path, state: State) -> c.Term:
        for _ in range(12):
            found: p.Value | None = None
            rest: c.Path = ()
            for size in range(len(path), 0, -1):
                head = path[:size]
                value = state.values.get(head) or self._objects.stable.get(self._objects.home(head))
                if isinstance(value, p.Alias):
                    found, rest = value, path[size:]
                    break
                if value is not None and size == len(path):
                    return c.Ref(path)
            if not isinstance(found, p.Alias):
                return c.Ref(path)
            if isinstance(found.term, c.Ref):
                path = (*found.term.path, *rest)
                continue
            return found.term if not rest else c.Ref(path)
        return c.Ref(path)

    def _path(self, path: c.Path, state: State) -> c.Path:
        found = self._resolve(path, state)
        return found.path if isinstance(found, c.Ref) else path

    def _scaler(self, path: c.Path, state: State) -> c.Path | None:
        """The scaler that `path` denotes, or None where it is none."""
        found = self._path(path, state)
        is_scaler = self._objects.is_scaler(path) or self._objects.is_scaler(found)
        return found if is_scaler else None

    def _expand(self, formula: c.Formula, state: State, depth: int = 0) -> c.Formula:
        """`formula` over what its variables were defined by."""

        def change(atom: c.Atom) -> c.Formula:
            left = c.rewrite_term(atom.left, lambda path: self._resolve(path, state))
            right = c.rewrite_term(atom.right, lambda path: self._resolve(path, state))
            if isinstance(left, c.Ref) and depth < 6 and atom.kind in ("truth", "none", "enabled"):
                defined = self._defined(atom.kind, left.path, state)
                if defined is not None:
                    return self._expand(defined, state, depth + 1)
            rebuilt = c.rebuild(atom, left, right)
            return self._pool.atom(rebuilt) if isinstance(rebuilt, c.Atom) else rebuilt

        return c.rewrite(formula, change)

    def _defined(self, kind: str, path: c.Path, state: State) -> c.Formula | None:
        """The formula that decides an atom of `kind` over `path`, where its value is known."""
        value = state.values.get(path) or self._objects.stable.get(self._objects.home(path))
        if isinstance(value, p.Flag):
            return value.formula if kind == "truth" else (False if kind == "none" else None)
        if not isinstance(value, p.Made):
            found = self._objects.made(path) if self._objects.is_scaler(path) else None
            if found is None:
                return None
            value = found
        if kind == "enabled":
            return c.both(value.present, value.enabled)
        return value.present if kind == "truth" else c.negate(value.present)

    def _assume(self, test: c.Formula, value: bool, state: State) -> list[State]:
        expanded = state.values.expanded.get(test)
        if expanded is None:
            formula = self._expand(test, state)
            expanded = state.values.expanded[test] = (formula, tuple(c.atoms(formula)))
        formula, atoms = expanded
        for atom in atoms:
            self._uses[atom] = self._uses.get(atom, 0) + 1
        key = (formula, value)
        found: list[Known] | None = state.known.memo.get(key)
        if found is None:
            found = [self._pool.known(known) for known in c.assume(formula, value, state.known)]
            state.known.memo[key] = found
        if self._dropped:
            ways = [{a: v for a, v in known.items() if a not in self._dropped} for known in found]
            return [state.assuming(known) for known in ways]
        return [state.assuming(known) for known in found]

    def _assign(self, node: p.Assign, state: State) -> State:
        changed = state.values.assigned.get(id(node))
        if changed is None:
            changed = state.values.assigned[id(node)] = self._change(node, state)
        path, element, value = changed
        if path is None:
            return state
        after = state.forget(path)
        if element is not None:
            after = after.assuming(after.forget_known(element))
        if value is None or (self._forgetful and not isinstance(value, (p.Scaled, p.Made))):
            return after
        return after.holding({**after.values, path: value})

    def _change(self, node: p.Assign, state: State) -> Change:
        """What an assignment does."""
        path = node.path if len(node.path) == 1 else (*self._path(node.path[:-1], state), node.path[-1])
        value = self._settled(node.value, state)
        if isinstance(value, p.Alias) and isinstance(value.term, c.Ref) and value.term.path == path:
            return None, None, None
        element: c.Path | None = None
        if isinstance(value, p.Alias) and isinstance(value.term, c.Ref):
            element = value.term.path if value.term.path[-1] in ("[]", "parameters()") else None
        grows = isinstance(node.value, p.Alias) and any(
            q[: len(path)] == path for q in value_paths(node.value)
        )
        large = isinstance(value, p.Alias) and (grows or c.size(value.term) > _LARGEST_TERM)
        mentions_itself = value is not None and any(q[: len(path)] == path for q in _paths_of(value))
        return path, element, None if large or mentions_itself else value

    def _settled(self, value: p.Value | None, state: State) -> p.Value | None:
        """`value` with every path resolved as of now."""
        if isinstance(value, p.Alias):
            carried = self._carried(value.term, state)
            if carried:
                return p.Scaled(carried)
            return p.Alias(c.rewrite_term(value.term, lambda path: self._resolve(path, state)))
        if isinstance(value, p.Flag):
            return p.Flag(self._expand(value.formula, state))
        if isinstance(value, p.Made):
            return p.Made(self._expand(value.present, state), self._expand(value.enabled, state))
        if isinstance(value, p.Scaled):
            scalers = dict.fromkeys(self._path(scaler, state) for scaler in value.scalers)
            for loss in value.losses:
                scalers.update(dict.fromkeys(self._carried(c.Ref(loss), state)))
            return p.Scaled(tuple(scalers)) if scalers else None
        return None

    def _carried(self, term: c.Term, state: State) -> tuple[c.Path, ...]:
        """The scalers that a term over scaled losses is scaled by."""
        found: dict[c.Path, None] = {}
        for path in c.term_paths(term):
            value = state.values.get(path) or state.values.get(self._path(path, state))
            if isinstance(value, p.Scaled):
                found.update(dict.fromkeys(value.scalers))
        return tuple(found)


def _paths_of(value: p.Value) -> list[c.Path]:
    return [] if isinstance(value, p.Scaled) else value_paths(value)
