"""Dropping what does not matter from protocol programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from amplint.flow import conditions as c
from amplint.flow import protocol as p
from amplint.flow.objects import Objects, value_paths

#: Longest path that is followed through aliases (a list that holds itself would give ever longer ones).
_LONGEST = 8
#: Calls that may run functions registered elsewhere.
_HOOK = re.compile(r"hook|callback|event|handler|(^|_)(fire|emit|notify|dispatch|trigger)")
_OPTIMIZER = re.compile(r"opts?(im|$|_|\d|[A-Z])", re.IGNORECASE)


def _inner(node: p.Node) -> tuple[p.Program, ...]:
    if isinstance(node, p.Branch):
        return (node.then, node.orelse)
    if isinstance(node, p.Loop):
        return (node.start, node.body, node.orelse)
    if isinstance(node, p.Attempt):
        return (node.body, *node.handlers, node.orelse, node.final)
    return node.arms if isinstance(node, p.Choice) else ()


def nodes(program: p.Program) -> Iterator[p.Node]:
    """Every node of `program`, nested ones included."""
    for node in program:
        yield node
        for inner in _inner(node):
            yield from nodes(inner)


class Pruner:
    """Drops calls and assignments that no scaler, gradient or guard depends on."""

    def __init__(self, objects: Objects, programs: dict[str, p.Program]) -> None:
        self._objects = objects
        self._programs = programs
        #: Function -> functions that call it.
        self.callers = self._find_callers()
        #: Functions that are handed on as values, to be called by code that is not seen.
        self.handed_on = objects.as_values | {
            function
            for program in programs.values()
            for node in nodes(program)
            if isinstance(node, p.Invoke)
            for argument in node.arguments
            for function in argument.functions
        }
        self._scaled_losses = any(
            isinstance(value, p.Scaled) for program in programs.values() for value in _values(program)
        )
        #: Loop variable -> the elements that it runs over.
        self._elements: dict[c.Path, set[c.Path]] = {}
        for program in programs.values():
            for node in nodes(program):
                if isinstance(node, p.Assign) and isinstance(node.value, p.Alias):
                    term = node.value.term
                    if isinstance(term, c.Ref) and term.path[-1] == "[]":
                        self._elements.setdefault(node.path, set()).add(term.path)

    def result(self) -> dict[str, p.Program]:
        """The programs with what matters only."""
        slim = {name: self._prune(program, None) for name, program in self._programs.items()}
        relevant = self._find_relevant(slim)
        return {name: self._prune(program, relevant) for name, program in slim.items()}

    @cached_property
    def matters(self) -> set[str]:
        """Functions that contain an event, themselves or in what they call."""
        return self._reaching(self._is_event)

    @cached_property
    def stepping(self) -> set[str]:
        """Functions that let a scaler step or unscale, themselves or in what they call."""
        return self._reaching(
            lambda node: (
                isinstance(node, p.Invoke)
                and node.method in ("step", "unscale_")
                and node.receiver is not None
                and self._objects.is_scaler(node.receiver)
            )
        )

    @cached_property
    def scaling(self) -> set[str]:
        """Functions that may take gradients of a scaled loss, themselves or in what they call."""
        return self._reaching(self._may_scale)

    def _may_scale(self, node: p.Node) -> bool:
        if isinstance(node, p.Backward):
            return bool(node.scalers) or (bool(node.losses) and self._scaled_losses)
        return isinstance(node, p.ManualBackward)

    def _reaching(self, wanted: Callable[[p.Node], bool]) -> set[str]:
        found = {name for name, program in self._programs.items() if any(map(wanted, nodes(program)))}
        stack = list(found)
        while stack:
            for caller in self.callers.get(stack.pop(), ()):
                if caller not in found:
                    found.add(caller)
                    stack.append(caller)
        return found

    def _find_callers(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = {}
        for name, program in self._programs.items():
            for node in nodes(program):
                if isinstance(node, p.Invoke):
                    for callee in self.callees(node):
                        found.setdefault(callee, {})[name] = None
        return {callee: tuple(callers) for callee, callers in found.items()}

    def callees(self, node: p.Invoke) -> Iterator[str]:
        """Functions that the call may reach."""
        objects, classes = self._objects, self._objects.classes
        found: list[str | None] = [node.function]
        if node.above is not None:
            found.append(classes.above(node.above, node.method))
        elif node.receiver is not None:
            if len(node.receiver) == 1 and node.receiver[0].endswith(".self"):
                family = [k for k in classes.by_name if objects.lift.self_root(k) == node.receiver[0]]
            else:
                family = list(objects.possible_classes(node.receiver))
            found.extend(classes.method(klass, node.method) for klass in family)
            whole = objects.possible_classes((*node.receiver, node.method))
            found.extend(classes.method(klass, "__call__") for klass in whole)
        yield from dict.fromkeys(name for name in found if name is not None)

    def _is_event(self, node: p.Node) -> bool:
        if isinstance(node, p.Backward):
            return True
        if isinstance(node, (p.ManualBackward, p.Clip, p.Touch, p.Leak, p.Descale)):
            return True
        return isinstance(node, p.Invoke) and (self._is_protocol(node) or self._touches(node))

    def _is_protocol(self, node: p.Invoke) -> bool:
        """Whether a scaler or an optimizer is asked to do something."""
        if node.receiver is None or node.method not in ("unscale_", "step", "update", "zero_grad"):
            return False
        if node.method in ("unscale_", "zero_grad") or self._objects.is_scaler(node.receiver):
            return True
        paths = (node.receiver, *self._elements.get(node.receiver, ()))
        return node.method == "step" and any(looks_like_optimizer(self._objects, path) for path in paths)

    def _touches(self, node: p.Invoke) -> bool:
        if node.receiver is not None and self._objects.is_scaler(node.receiver):
            return False
        if node.function is not None and node.function not in self._objects.placeholders:
            return False  # it is followed, and kept for what is found in it
        paths = [path for argument in node.arguments for path in argument.handed]
        if node.receiver is not None and self._runs_code_elsewhere(node.receiver, node.method):
            paths.append(node.receiver)
        if runs_hooks(node) or any(argument.functions for argument in node.arguments):
            return True
        return any(self._objects.concerns(path) for path in paths)

    def _runs_code_elsewhere(self, receiver: c.Path, method: str) -> bool:
        """Whether the call may reach a method of `receiver` that this file does not show."""
        if len(receiver) > 1 or not receiver[0].endswith(".self"):
            return True
        family = [k for k in self._objects.classes.by_name if self._objects.lift.self_root(k) == receiver[0]]
        is_open = any(self._objects.classes.is_open(klass) for klass in family)
        return is_open and not self._objects.is_assigned((*receiver, method))

    def _keeps(self, node: p.Invoke) -> bool:
        if self._is_event(node):
            return True
        return any(f in self.matters or f in self._objects.placeholders for f in self.callees(node))

    def _prune(self, program: p.Program, relevant: Relevance | None) -> p.Program:
        found: list[p.Node] = []
        for node in program:
            kept = self._prune_node(node, relevant)
            if kept is not None:
                found.append(kept)
        return tuple(found)

    def _prune_node(self, node: p.Node, relevant: Relevance | None) -> p.Node | None:
        if isinstance(node, p.Invoke):
            return node if self._keeps(node) else None
        if isinstance(node, p.Assign):
            return node if relevant is None else relevant.reduced(node)
        if isinstance(node, p.Backward) and not self._scaled_losses:
            return replace(node, losses=())
        if isinstance(node, p.Branch):
            return self._prune_branch(node, relevant)
        if isinstance(node, p.Loop):
            start, body = self._prune(node.start, relevant), self._prune(node.body, relevant)
            orelse = self._prune(node.orelse, relevant)
            kept = any(map(_acts, nodes((*body, *orelse))))
            test = node.test if relevant is None or relevant.tests(node.test) else None
            return p.Loop(test, start, body, orelse, node.site) if kept else None
        if isinstance(node, p.Attempt):
            handlers = tuple(self._prune(handler, relevant) for handler in node.handlers)
            body, orelse = self._prune(node.body, relevant), self._prune(node.orelse, relevant)
            final = self._prune(node.final, relevant)
            if not (body or orelse or final or any(handlers)):
                return None
            return p.Attempt(body, handlers, orelse, final, node.site)
        if isinstance(node, p.Choice):
            arms = tuple(self._prune(arm, relevant) for arm in node.arms)
            return p.Choice(arms, node.site) if any(arms) else None
        return node

    def _prune_branch(self, node: p.Branch, relevant: Relevance | None) -> p.Node | None:
        then, orelse = self._prune(node.then, relevant), self._prune(node.orelse, relevant)
        if not (then or orelse):
            return None
        inner = list(nodes((*then, *orelse)))
        if relevant is None or any(map(_is_act, inner)) or relevant.tests(node.test):
            return p.Branch(node.test, then, orelse, node.site)
        if all(isinstance(n, p.Exit) and n.kind == "raise" for n in inner):
            return None
        return p.Choice((then, orelse), node.site)

    def _find_relevant(self, slim: dict[str, p.Program]) -> Relevance:
        tested: set[c.Path] = set()
        wide: set[c.Path] = set()
        read: set[c.Path] = set()
        assigned: list[p.Assign] = []
        for program in slim.values():
            for node in nodes(program):
                if isinstance(node, p.Assign):
                    assigned.append(node)
                elif isinstance(node, p.Branch) and any(map(_is_act, nodes((*node.then, *node.orelse)))):
                    _note(node.test, tested, wide)
                else:
                    called = isinstance(node, p.Invoke) and any(f in self.matters for f in self.callees(node))
                    read.update(_read(node, called))
        for node in assigned:
            if isinstance(node.value, p.Made):
                _note(node.value.present, tested, wide)
                _note(node.value.enabled, tested, wide)
        _close(assigned, tested)
        read |= tested
        _close(assigned, read)
        return Relevance(frozenset(tested), frozenset(read), frozenset(wide))


@dataclass(frozen=True, slots=True)
class Relevance:
    """Which variables guards and events depend on."""

    #: Paths whose values decide whether an event happens.
    tested: frozenset[c.Path]
    #: These, and the paths that events name.
    read: frozenset[c.Path]
    #: Objects whose methods decide something: any attribute of theirs may matter.
    wide: frozenset[c.Path]

    def assigns(self, node: p.Assign) -> bool:
        """Whether an assignment matters."""
        path = node.path
        return (
            isinstance(node.value, (p.Scaled, p.Made))
            or any(r[: len(path)] == path for r in self.read)
            or any(path[: len(w)] == w for w in self.wide)
        )

    def reduced(self, node: p.Assign) -> p.Assign | None:
        """The assignment without what no guard needs to know, or None."""
        if not self.assigns(node):
            return None
        is_plain = isinstance(node.value, p.Alias) and isinstance(node.value.term, c.Ref)
        if isinstance(node.value, (p.Scaled, p.Made)) or is_plain:
            return node
        if any(r[: len(node.path)] == node.path for r in self.tested):
            return node
        losses = tuple(dict.fromkeys(value_paths(node.value))) if isinstance(node.value, p.Alias) else ()
        return p.Assign(node.path, p.Scaled((), losses) if losses else None, node.site)

    def tests(self, test: c.Formula | None) -> bool:
        """Whether the outcome of `test` says something about what guards an event."""
        if isinstance(test, bool):
            return True
        paths = set(c.formula_paths(test)) if test is not None else set()
        return any(r[: len(path)] == path or path[: len(r)] == r for path in paths for r in self.tested)


def _note(formula: c.Formula, tested: set[c.Path], wide: set[c.Path]) -> None:
    for atom in c.atoms(formula):
        for term in (atom.left, atom.right):
            tested.update(c.term_paths(term))
            wide.update(owner for owner in c.called_on(term) if owner and not owner[-1].endswith(".self"))


class _Read:
    """Paths that are read, by everything that they start with."""

    def __init__(self, paths: set[c.Path]) -> None:
        self.paths: set[c.Path] = set()
        self._tails: dict[c.Path, set[c.Path]] = {}
        self.add(paths)

    def add(self, paths: Iterable[c.Path]) -> None:
        for path in paths:
            if path not in self.paths:
                self.paths.add(path)
                for size in range(len(path) + 1):
                    self._tails.setdefault(path[:size], set()).add(path[size:])

    def tails(self, path: c.Path) -> set[c.Path]:
        """What follows `path` in the paths that start with it."""
        return self._tails.get(path, set())


def _close(assigned: list[p.Assign], read: set[c.Path]) -> None:
    """Add what the values of what is read are made from."""
    found = _Read(read)
    sources = [value_paths(node.value) for node in assigned]
    grows = True
    while grows:
        before = len(found.paths)
        for node, used in zip(assigned, sources, strict=True):
            if isinstance(node.value, p.Scaled):
                found.add((*node.value.scalers, node.path))
                continue
            tails = found.tails(node.path)
            if tails:
                if isinstance(node.value, p.Alias) and isinstance(node.value.term, c.Ref):
                    found.add([used[0] + tail for tail in tails if len(used[0] + tail) <= _LONGEST])
                found.add(used)
        grows = len(found.paths) > before
    read |= found.paths


def _values(program: p.Program) -> Iterator[p.Value | None]:
    """Every value that the program assigns or hands on."""
    for node in nodes(program):
        if isinstance(node, p.Assign):
            yield node.value
        elif isinstance(node, p.Invoke):
            yield from (argument.value for argument in node.arguments)


def _acts(node: p.Node) -> bool:
    """Whether a loop with `node` in it does anything that is seen outside."""
    if isinstance(node, p.Exit):
        return node.kind == "return"
    return not isinstance(node, (p.Branch, p.Loop, p.Attempt, p.Choice))


def _is_act(node: p.Node) -> bool:
    """Whether the scaler, gradients or code elsewhere are concerned, not just where execution goes."""
    return isinstance(node, (p.Event, p.Invoke))


def runs_hooks(node: p.Invoke) -> bool:
    """Whether the name of what is called says that it runs functions registered elsewhere."""
    last = node.receiver[-1] if node.method == "__call__" and node.receiver is not None else node.method
    return _HOOK.search(last.rpartition(":")[2]) is not None


def looks_like_optimizer(objects: Objects, path: c.Path) -> bool:
    """Whether `path` was made with parameters, or is named as optimizers are."""
    named = next((part for part in reversed(path) if not part.startswith("[")), "")
    return objects.owned(path) is not None or _OPTIMIZER.search(named.rpartition(":")[2]) is not None


def _read(node: p.Node, called: bool) -> Iterator[c.Path]:
    if isinstance(node, (p.Backward, p.Leak)):
        yield from (*node.scalers, *node.losses)
    elif isinstance(node, (p.Clip, p.Touch)):
        yield from node.params or ()
    elif isinstance(node, p.Invoke):
        if node.receiver is not None:
            yield node.receiver
        for argument in node.arguments if node.method in ("step", "unscale_") or called else ():
            yield from argument.handed
            yield from value_paths(argument.value)
