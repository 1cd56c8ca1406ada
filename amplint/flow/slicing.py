"""Functions to protocol programs: only protocol events and what guards them stay."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.flow import conditions as c
from amplint.flow import protocol as p
from amplint.flow import walk
from amplint.flow.gradients import Derived, clipped_by_call
from amplint.flow.lift import names, scaled_by
from amplint.flow.objects import Objects, backward_losses, value_paths
from amplint.model import ir

#: Loops over displays of at most this many elements are unrolled.
_UNROLLED = 6
#: Longest path that is followed through aliases (a list that holds itself would give ever longer ones).
_LONGEST = 8
_OPTIMIZER = re.compile(r"opt(im|$|_|\d|[A-Z])", re.IGNORECASE)


class Slicer:
    """Makes the protocol program of each function of one file."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._lift = objects.lift
        self._derived = Derived(())
        self._owner: str | None = None

    def program(self, function: ir.Function) -> p.Program:
        """The program of one function, before what does not matter is dropped."""
        self._derived = Derived(function.body)
        self._owner = function.owner
        return self._block(function.body)

    # -- statements ------------------------------------------------------------------------------------------

    def _block(self, block: ir.Block) -> p.Program:
        return tuple(node for stmt in block for node in self._statement(stmt))

    def _statement(self, stmt: ir.Stmt) -> Iterator[p.Node]:
        if isinstance(stmt, ir.Assign):
            yield from self._assign(stmt)
        elif isinstance(stmt, ir.AugAssign):
            yield from self._augmented(stmt)
        elif isinstance(stmt, ir.Do):
            yield from self._events(stmt.value)
        elif isinstance(stmt, ir.If):
            yield from self._events(stmt.test)
            test = self._lift.formula(stmt.test)
            yield p.Branch(test, self._block(stmt.body), self._block(stmt.orelse), stmt.site)
        elif isinstance(stmt, ir.For):
            yield from self._for(stmt)
        elif isinstance(stmt, ir.While):
            start = tuple(self._events(stmt.test))
            test = self._lift.formula(stmt.test)
            yield p.Loop(test, start, self._block(stmt.body), self._block(stmt.orelse), stmt.site)
        elif isinstance(stmt, ir.With):
            for context, target in stmt.items:
                yield from self._events(context)
                if target is not None:
                    yield from self._store(target, None, stmt.site)
            yield from self._block(stmt.body)
        else:
            yield from self._leaving(stmt)

    def _leaving(self, stmt: ir.Stmt) -> Iterator[p.Node]:
        for expr in walk.own(stmt):
            yield from self._events(expr)
        if isinstance(stmt, ir.Try):
            handlers = tuple(self._block(handler.body) for handler in stmt.handlers)
            body, final = self._block(stmt.body), self._block(stmt.final)
            yield p.Attempt(body, handlers, self._block(stmt.orelse), final, stmt.site)
        elif isinstance(stmt, ir.Match):
            arms = tuple(self._block(body) for _, body in stmt.cases)
            yield p.Choice(arms if stmt.exhaustive else (*arms, ()), stmt.site)
        elif isinstance(stmt, ir.Return):
            yield p.Exit("return", stmt.site)
        elif isinstance(stmt, ir.Raise):
            yield p.Exit("raise", stmt.site)
        elif isinstance(stmt, ir.Jump):
            yield p.Exit(stmt.kind, stmt.site)
        elif isinstance(stmt, ir.Assert):
            yield p.Branch(self._lift.formula(stmt.test), (), (p.Exit("raise", stmt.site),), stmt.site)
        elif isinstance(stmt, ir.Delete):
            yield from self._store(stmt.target, None, stmt.site)

    def _assign(self, stmt: ir.Assign) -> Iterator[p.Node]:
        if stmt.value is None:
            return
        yield from self._events(stmt.value)
        for target in stmt.targets:
            clipped = self._derived.clip_by_assignment(target, stmt.value)
            if clipped is not None:
                yield self._clip(clipped, "assignment to .grad", stmt.site)
            yield from self._store(target, stmt.value, stmt.site)

    def _augmented(self, stmt: ir.AugAssign) -> Iterator[p.Node]:
        yield from self._events(stmt.value)
        clipped = self._derived.clip_by_assignment(stmt.target, stmt.value, stmt.op)
        if clipped is not None:
            yield self._clip(clipped, "multiplication of .grad", stmt.site)
        whole = ir.Binary(stmt.op, stmt.target, stmt.value, stmt.site)
        yield from self._store(stmt.target, whole, stmt.site)

    def _store(self, target: ir.Expr, value: ir.Expr | None, site: int) -> Iterator[p.Node]:
        if isinstance(target, ir.Items):
            same = isinstance(value, ir.Items) and len(value.items) == len(target.items)
            values: Iterable[ir.Expr | None] = value.items if same and isinstance(value, ir.Items) else ()
            padded = [*values] or [None] * len(target.items)
            for item, part in zip(target.items, padded, strict=True):
                yield from self._store(item, part, site)
            return
        path = self._lift.path(target)
        if path is None:
            return
        if isinstance(value, ir.IfExp) and self._objects.made_by(value) is None:
            then, orelse = self._store(target, value.body, site), self._store(target, value.orelse, site)
            yield p.Branch(self._lift.formula(value.test), tuple(then), tuple(orelse), site)
            return
        yield p.Assign(path, self._value(value), site)

    def _value(self, expr: ir.Expr | None) -> p.Value | None:
        """What is known of the value of `expr`."""
        if expr is None:
            return None
        made = self._objects.made_by(expr) if not isinstance(expr, ir.Const) else None
        if made is not None:
            return made if c.is_modelled(made.present) and c.is_modelled(made.enabled) else None
        scalers, _ = self._factors(expr)
        if scalers:
            return p.Scaled(scalers)
        is_test = isinstance(expr, (ir.Compare, ir.Bool)) or (isinstance(expr, ir.Unary) and expr.op == "not")
        if is_test or (isinstance(expr, ir.Call) and self._lift.called(expr) is not None):
            formula = self._lift.formula(expr)
            return p.Flag(formula) if c.is_modelled(formula) else None
        path = self._lift.path(expr)
        term = c.Ref(path) if path is not None else self._lift.term(expr)
        if c.has_unknown(term) or (isinstance(term, c.Op) and term.name not in ("+", "-", "*", "/", "//", "%")):
            return None
        return p.Alias(term)

    def _factors(self, expr: ir.Expr) -> tuple[tuple[c.Path, ...], tuple[c.Path, ...]]:
        """The scalers that `expr` is scaled by, and the variables that may already be scaled."""
        scalers: dict[c.Path, None] = {}
        losses: dict[c.Path, None] = {}
        receivers = {
            id(e.func.value)
            for e in walk.inside(expr)
            if isinstance(e, ir.Call) and isinstance(e.func, ir.Attr) and e.func.attr == "scale"
        }
        for source in scaled_by(expr):
            path = self._lift.path(source)
            if path is not None and id(source) not in receivers:
                losses[path] = None
            elif path is not None and self._objects.is_scaler(path):
                scalers[path] = None
        return tuple(scalers), tuple(losses)

    # -- loops -----------------------------------------------------------------------------------------------

    def _for(self, stmt: ir.For) -> Iterator[p.Node]:
        yield from self._events(stmt.iterable)
        body, orelse = self._block(stmt.body), self._block(stmt.orelse)
        items = stmt.iterable.items if isinstance(stmt.iterable, ir.Items) else ()
        jumps = any(isinstance(s, ir.Jump) for s in walk.statements(stmt.body))
        if 0 < len(items) <= _UNROLLED and not jumps and not any(isinstance(i, ir.Star) for i in items):
            for item in items:
                yield from self._store(stmt.target, item, stmt.site)
                yield from body
            yield from orelse
            return
        start = tuple(self._each(stmt.target, stmt.iterable, stmt.site))
        yield p.Loop(None, start, body, orelse, stmt.site)

    def _each(self, target: ir.Expr, iterable: ir.Expr, site: int) -> Iterator[p.Node]:
        """What the loop variables hold at the start of each round."""
        sources: list[ir.Expr | None] = []
        if isinstance(target, ir.Items) and isinstance(iterable, ir.Call):
            called = names(iterable.func)
            if called == ("builtins.zip",):
                sources = [arg.value for arg in iterable.args]
            elif called == ("builtins.enumerate",) and iterable.args:
                sources = [None, iterable.args[0].value]
            elif isinstance(iterable.func, ir.Attr) and iterable.func.attr in ("items", "named_parameters"):
                values = ir.Attr(
                    iterable.func.value, "values" if iterable.func.attr == "items" else "parameters", site
                )
                sources = [None, ir.Call(values, (), site)]
        if isinstance(target, ir.Items) and len(sources) == len(target.items):
            for item, source in zip(target.items, sources, strict=True):
                if source is None:
                    yield from self._store(item, None, site)
                else:
                    yield from self._each(item, source, site)
            return
        path = self._lift.path(target)
        element = self._lift.element(iterable)
        if path is not None and element is not None:
            yield p.Assign(path, p.Alias(c.Ref(element)), site)
        else:
            yield from self._store(target, None, site)

    # -- expressions -----------------------------------------------------------------------------------------

    def _events(self, expr: ir.Expr) -> Iterator[p.Node]:
        if isinstance(expr, ir.Lambda):
            return
        if isinstance(expr, ir.Bool):
            yield from self._events(expr.left)
            right = tuple(self._events(expr.right))
            if right:
                test = self._lift.formula(expr.left)
                yield p.Branch(test if expr.op == "and" else c.negate(test), right, (), expr.site)
        elif isinstance(expr, ir.IfExp):
            yield from self._events(expr.test)
            body, orelse = tuple(self._events(expr.body)), tuple(self._events(expr.orelse))
            if body or orelse:
                yield p.Branch(self._lift.formula(expr.test), body, orelse, expr.site)
        elif isinstance(expr, ir.Comprehension):
            yield from self._comprehension(expr)
        elif isinstance(expr, ir.Call):
            yield from self._call(expr)
        elif isinstance(expr, ir.Walrus):
            yield from self._events(expr.value)
            yield from self._store(expr.target, expr.value, expr.site)
        else:
            for part in walk.parts(expr):
                yield from self._events(part)

    def _comprehension(self, expr: ir.Comprehension) -> Iterator[p.Node]:
        start: list[p.Node] = []
        for target, iterable, tests in expr.parts:
            start.extend(self._events(iterable))
            start.extend(self._each(target, iterable, expr.site))
            for test in tests:
                start.extend(self._events(test))
        body = tuple(node for element in expr.element for node in self._events(element))
        if body:
            yield p.Loop(None, tuple(start), body, (), expr.site)

    def _call(self, call: ir.Call) -> Iterator[p.Node]:
        for part in walk.parts(call):
            yield from self._events(part)
        clip = clipped_by_call(call)
        if clip is not None:
            params, how = clip
            found = self._objects.parameters(params) if params is not None else None
            yield p.Clip(found, how, call.site)
            return
        by_hand = self._derived.clip_of(call)
        if by_hand is not None:
            yield self._clip(by_hand, "in-place clipping of .grad", call.site)
            return
        if self._derived.descales(call):
            yield p.Descale(call.site)
            return
        if self._objects.callee(call, self._owner) is None:
            if self._is_sharded_clip(call):
                assert isinstance(call.func, ir.Attr)
                path = self._lift.path(call.func.value)
                yield p.Clip((path,) if path is not None else None, "clip_grad_norm_", call.site)
                return
            yield from self._backward(call)
        yield from self._invoke(call)

    def _clip(self, owner: ir.Expr, how: str, site: int) -> p.Clip:
        path = self._lift.path(owner)
        return p.Clip((path,) if path is not None else None, how, site)

    def _is_sharded_clip(self, call: ir.Call) -> bool:
        if not isinstance(call.func, ir.Attr) or call.func.attr != "clip_grad_norm_":
            return False
        path = self._lift.path(call.func.value)
        return path is not None and self._objects.is_sharded(path)

    def _backward(self, call: ir.Call) -> Iterator[p.Node]:
        scalers: dict[c.Path, None] = {}
        losses: dict[c.Path, None] = {}
        for loss in backward_losses(call):
            if isinstance(loss, ir.IfExp):
                test = self._lift.formula(loss.test)
                arms = tuple(self._gradients(arm, call.site) for arm in (loss.body, loss.orelse))
                yield p.Branch(test, arms[0], arms[1], call.site)
                continue
            more_scalers, more_losses = self._factors(loss)
            scalers.update(dict.fromkeys(more_scalers))
            losses.update(dict.fromkeys(more_losses))
        if isinstance(call.func, ir.Attr) and call.func.attr == "manual_backward" and not scalers:
            owner = self._lift.path(call.func.value)
            if owner is not None:
                yield p.ManualBackward(owner, call.site)
        if scalers or losses:
            yield p.Backward(tuple(scalers), tuple(losses), call.site)

    def _gradients(self, loss: ir.Expr, site: int) -> p.Program:
        scalers, losses = self._factors(loss)
        return (p.Backward(scalers, losses, site),) if scalers or losses else ()

    def _invoke(self, call: ir.Call) -> Iterator[p.Node]:
        func = call.func
        called = names(func)
        local = self._objects.classes.local(called)
        function = local if local in self._objects.functions else None
        if called and function is None and all(called):
            if called[0].startswith(("builtins.", "torch.", "numpy.", "math.")):
                return
            if local in self._objects.classes.by_name:
                return
        arguments = tuple(self._argument(arg) for arg in call.args)
        if isinstance(func, ir.Attr) and function is None:
            above = self._super_of(func.value)
            receiver = self._lift.path(func.value)
            yield p.Invoke(receiver, func.attr, arguments, call.site, None, above)
        else:
            yield p.Invoke(self._lift.path(func), "__call__", arguments, call.site, function)

    def _super_of(self, expr: ir.Expr) -> str | None:
        is_super = isinstance(expr, ir.Call) and names(expr.func) == ("builtins.super",)
        return self._owner if is_super else None

    def _argument(self, arg: ir.Arg) -> p.Argument:
        functions = {
            local: None
            for expr in walk.inside(arg.value)
            if (local := self._function_value(expr)) is not None
        }
        handed = tuple(dict.fromkeys(self._objects.handed(arg.value)))
        value = self._value(arg.value) if not arg.star else None
        return p.Argument(arg.keyword, arg.star, value, handed, tuple(functions))

    def _function_value(self, expr: ir.Expr) -> str | None:
        local = self._objects.classes.local(names(expr))
        if local in self._objects.functions:
            return local
        if isinstance(expr, ir.Attr) and self._owner in self._objects.classes.by_name:
            path = self._lift.path(expr)
            if path is not None and path[:-1] == (self._lift.self_root(self._owner),):
                return self._objects.classes.method(self._owner, expr.attr)
        return None


# -- dropping what does not matter -------------------------------------------------------------------------------


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
        self.matters = self._mattering()
        self._scaled_losses = any(
            isinstance(value, p.Scaled) for program in programs.values() for value in _values(program)
        )
        self._slim = {name: self._prune(program, None) for name, program in programs.items()}
        self._relevant = self._find_relevant()

    def result(self) -> dict[str, p.Program]:
        """The programs with what matters only."""
        return {name: self._prune(program, self._relevant) for name, program in self._slim.items()}

    def _find_callers(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = {}
        for name, program in self._programs.items():
            for node in nodes(program):
                if isinstance(node, p.Invoke):
                    for callee in self._callees(node):
                        found.setdefault(callee, {})[name] = None
        return {callee: tuple(callers) for callee, callers in found.items()}

    def _mattering(self) -> set[str]:
        """Functions that contain an event, themselves or in what they call."""
        found = {
            name for name, program in self._programs.items() if any(map(self._is_event, nodes(program)))
        }
        stack = list(found)
        while stack:
            for caller in self.callers.get(stack.pop(), ()):
                if caller not in found:
                    found.add(caller)
                    stack.append(caller)
        return found

    def _callees(self, node: p.Invoke) -> Iterator[str]:
        """Functions that the call may reach."""
        objects, classes = self._objects, self._objects.classes
        found: list[str | None] = [node.function]
        if node.above is not None:
            found.append(classes.above(node.above, node.method))
        elif node.receiver is not None:
            if len(node.receiver) == 1 and node.receiver[0].endswith(".self"):
                family = [k for k in classes.by_name if objects.lift.self_root(k) == node.receiver[0]]
            else:
                family = objects.possible_classes(node.receiver)
            found.extend(classes.method(klass, node.method) for klass in family)
            whole = objects.possible_classes((*node.receiver, node.method))
            found.extend(classes.method(klass, "__call__") for klass in whole)
        yield from dict.fromkeys(name for name in found if name is not None)

    def _is_event(self, node: p.Node) -> bool:
        if isinstance(node, p.Backward):
            return True
        if isinstance(node, (p.ManualBackward, p.Clip, p.Descale)):
            return True
        return isinstance(node, p.Invoke) and (self._is_protocol(node) or self._touches(node))

    def _is_protocol(self, node: p.Invoke) -> bool:
        """Whether a scaler or an optimizer is asked to do something."""
        if node.receiver is None or node.method not in ("unscale_", "step", "update", "zero_grad"):
            return False
        if node.method in ("unscale_", "zero_grad") or self._objects.is_scaler(node.receiver):
            return True
        return node.method == "step" and looks_like_optimizer(self._objects, node.receiver)

    def _touches(self, node: p.Invoke) -> bool:
        if node.receiver is not None and self._objects.is_scaler(node.receiver):
            return False
        paths = [path for argument in node.arguments for path in argument.handed]
        if node.receiver is not None and self._runs_code_elsewhere(node.receiver, node.method):
            paths.append(node.receiver)
        return any(self._objects.concerns(path) for path in paths) or any(a.functions for a in node.arguments)

    def _runs_code_elsewhere(self, receiver: c.Path, method: str) -> bool:
        """Whether the call may reach a method of `receiver` that this file does not show."""
        if len(receiver) > 1 or not receiver[0].endswith(".self"):
            return True
        family = [k for k in self._objects.classes.by_name if self._objects.lift.self_root(k) == receiver[0]]
        is_open = any(self._objects.classes.is_open(klass) for klass in family)
        return is_open and not self._objects.is_assigned((*receiver, method))

    def _keeps(self, node: p.Invoke) -> bool:
        return self._is_event(node) or any(callee in self.matters for callee in self._callees(node))

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
            return p.Backward(node.scalers, (), node.site) if node.scalers else None
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

    def reaching(self, kinds: tuple[type, ...]) -> set[str]:
        """Functions that contain a node of one of `kinds`, themselves or in what they call."""
        found = {name for name, prog in self._programs.items() if any(isinstance(n, kinds) for n in nodes(prog))}
        stack = list(found)
        while stack:
            for caller in self.callers.get(stack.pop(), ()):
                if caller not in found:
                    found.add(caller)
                    stack.append(caller)
        return found

    def _find_relevant(self) -> Relevance:
        tested: set[c.Path] = set()
        wide: set[c.Path] = set()
        read: set[c.Path] = set()
        assigned: list[p.Assign] = []
        for program in self._slim.values():
            for node in nodes(program):
                if isinstance(node, p.Assign):
                    assigned.append(node)
                elif isinstance(node, p.Branch) and any(map(_is_act, nodes((*node.then, *node.orelse)))):
                    _note(node.test, tested, wide)
                else:
                    called = isinstance(node, p.Invoke) and any(f in self.matters for f in self._callees(node))
                    read.update(_read(node, called))
        for node in assigned:
            if isinstance(node.value, p.Made):
                _note(node.value.present, tested, wide)
                _note(node.value.enabled, tested, wide)
        _close(assigned, tested, wide)
        read |= tested
        _close(assigned, read, wide)
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


def _close(assigned: list[p.Assign], read: set[c.Path], wide: set[c.Path]) -> None:
    """Add what the values of what is read are made from."""
    grows = True
    while grows:
        before = len(read)
        for node in assigned:
            size = len(node.path)
            tails = {r[size:] for r in read if r[:size] == node.path}
            if isinstance(node.value, p.Scaled):
                read.update((*node.value.scalers, node.path))
            elif tails:
                sources = value_paths(node.value)
                read.update(sources)
                if isinstance(node.value, p.Alias) and isinstance(node.value.term, c.Ref):
                    read.update(sources[0] + tail for tail in tails if len(sources[0] + tail) <= _LONGEST)
        grows = len(read) > before


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
    return isinstance(node, (p.Backward, p.ManualBackward, p.Clip, p.Descale, p.Invoke))


def looks_like_optimizer(objects: Objects, path: c.Path) -> bool:
    """Whether `path` was made with parameters, or is named as optimizers are."""
    return objects.owned(path) is not None or _OPTIMIZER.search(path[-1].rpartition(":")[2]) is not None


def _read(node: p.Node, called: bool) -> Iterator[c.Path]:
    if isinstance(node, p.Backward):
        yield from (*node.scalers, *node.losses)
    elif isinstance(node, p.Clip):
        yield from node.params or ()
    elif isinstance(node, p.Invoke):
        if node.receiver is not None:
            yield node.receiver
        for argument in node.arguments if node.method in ("step", "unscale_") or called else ():
            yield from argument.handed
            yield from value_paths(argument.value)
