"""Functions to protocol programs: only protocol events and what guards them stay."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from amplint.flow import conditions as c
from amplint.flow import protocol as p
from amplint.flow import walk
from amplint.flow.gradients import Derived, clipped_by_call
from amplint.flow.leaks import Leaks
from amplint.flow.lift import last, names
from amplint.flow.measures import (
    Measures,
    asks_for_finite,
    changed_by_assignment,
    changed_by_call,
    first_argument,
    says_it_shows,
    shown,
)
from amplint.flow.objects import Objects, backward_losses
from amplint.model import ir

#: What a function does to gradients, or knows of their scale, that does more than read them.
_ACTS = frozenset({"backward", "unscale_", "step", "zero_grad", "get_scale", "_scale"})
_WINDOW = re.compile(r"accum|sync_grad|micro|is_last|boundary|need_update|do_update", re.IGNORECASE)
#: Loops over displays of at most this many elements are unrolled.
_UNROLLED = 6


class Slicer:
    """Makes the protocol program of each function of one file."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._lift = objects.lift
        self._derived = Derived(())
        self._owner: str | None = None
        self._measures = Measures(())
        self._leaks = Leaks((), objects)
        #: Tests for finite numbers around the statement at hand.
        self._checks = 0
        #: Tests for the end of an accumulation window around it.
        self._windows = 0
        self._helpers = self._find_helpers()

    def _find_helpers(self) -> dict[str, ir.Expr | None]:
        """Functions of this file that return a measurement of gradients; methods with whose, where that is known."""
        found: dict[str, ir.Expr | None] = {}
        for name, function in self._objects.functions.items():
            if name and _only_reads_gradients(function):
                measures = Measures(function.body)
                if measures.returned:
                    found[name] = _iterated(function, measures.owners.values())
        return found

    def _measured(self, call: ir.Call) -> tuple[ir.Expr | None] | None:
        """Whose gradients a call of such a function measures: what it is handed, or what the object holds."""
        called = self._objects.callee(call, self._owner) if self._helpers else None
        if called is None or called not in self._helpers:
            return None
        return (self._helpers[called] if self._objects.has_receiver(called) else first_argument(call),)

    def program(self, function: ir.Function) -> p.Program:
        """The program of one function, before what does not matter is dropped."""
        self._derived = Derived(function.body)
        self._owner = function.owner
        self._measures = Measures(function.body, self._measured)
        self._leaks = Leaks(function.body, self._objects)
        self._checks = self._windows = 0
        body = function.body
        if body and isinstance(body[-1], ir.Return):  # leaving at the end is no way of its own
            last = tuple(self._leaving(body[-1]))
            return (*self._block(body[:-1]), *last[:-1])
        return self._block(body)

    # -- statements -----------------------------------------------------------------------------------------

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
            yield from self._leaks.compared(stmt.test)
            test = self._lift.formula(stmt.test)
            self._checks += asks_for_finite(stmt.test)
            self._windows += _asks_for_window(stmt.test)
            yield p.Branch(test, self._block(stmt.body), self._block(stmt.orelse), stmt.site)
            self._checks -= asks_for_finite(stmt.test)
            self._windows -= _asks_for_window(stmt.test)
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
        if isinstance(stmt, ir.Return):
            yield from self._leaks.returned(stmt)
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
            yield p.Exit("return", stmt.site, self._windows > 0)
        elif isinstance(stmt, ir.Raise):
            yield p.Exit("raise", stmt.site)
        elif isinstance(stmt, ir.Jump):
            yield p.Exit(stmt.kind, stmt.site, self._windows > 0)
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
            changed = changed_by_assignment(target, stmt.value)
            if clipped is not None:
                yield self._clip(clipped, "assignment to .grad", stmt.site)
            elif self._derived.descales_by_assignment(target, stmt.value):
                yield p.Descale(stmt.site)
            elif changed is not None:
                yield self._touch(changed, "assignment to .grad", stmt.site, True)
            yield from self._store(target, stmt.value, stmt.site)

    def _augmented(self, stmt: ir.AugAssign) -> Iterator[p.Node]:
        yield from self._events(stmt.value)
        clipped = self._derived.clip_by_assignment(stmt.target, stmt.value, stmt.op)
        changed = changed_by_assignment(stmt.target, stmt.value, stmt.op)
        if clipped is not None:
            yield self._clip(clipped, "multiplication of .grad", stmt.site)
        elif self._derived.descales_by_assignment(stmt.target, stmt.value):
            yield p.Descale(stmt.site)
        elif changed is not None:
            yield self._touch(changed, "addition to .grad", stmt.site, True)
        yield from self._leaks.accumulated(stmt)
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
        scalers, _ = self._objects.factors(expr)
        if scalers:
            return p.Scaled(scalers)
        is_test = isinstance(expr, (ir.Compare, ir.Bool)) or (isinstance(expr, ir.Unary) and expr.op == "not")
        if is_test or (isinstance(expr, ir.Call) and self._lift.called(expr) is not None):
            formula = self._lift.formula(expr)
            return p.Flag(formula) if c.is_modelled(formula) else None
        path = self._lift.path(expr)
        term = c.Ref(path) if path is not None else self._lift.term(expr)
        if c.has_unknown(term) or (
            isinstance(term, c.Op) and term.name not in ("+", "-", "*", "/", "//", "%")
        ):
            return None
        return p.Alias(term)

    # -- loops ----------------------------------------------------------------------------------------------

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

    # -- expressions ----------------------------------------------------------------------------------------

    def _events(self, expr: ir.Expr) -> Iterator[p.Node]:
        if isinstance(expr, (ir.Name, ir.Const, ir.Lambda)):
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
        yield from self._leaks.shown(call)
        if call.site in self._measures.used:
            yield self._touch(self._measures.owners[call.site], f"{last(call.func)}", call.site, False)
        elif (owner := shown(call)) is not None:
            yield self._touch(owner, f"{last(call.func)}", call.site, False)
        elif says_it_shows(call) and self._objects.callee(call, self._owner) is None:
            yield p.Touch(None, last(call.func), call.site, False)
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
        changed = changed_by_call(call)
        if changed is not None:
            yield self._touch(changed, f"{last(call.func)}", call.site, True)
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

    def _touch(self, owner: ir.Expr | None, how: str, site: int, changes: bool) -> p.Touch:
        found = self._objects.parameters(owner) if owner is not None else None
        return p.Touch(found, how, site, changes)

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
            more_scalers, more_losses = self._objects.factors(loss)
            scalers.update(dict.fromkeys(more_scalers))
            losses.update(dict.fromkeys(more_losses))
        if isinstance(call.func, ir.Attr) and call.func.attr == "manual_backward" and not scalers:
            owner = self._lift.path(call.func.value)
            if owner is not None:
                yield p.ManualBackward(owner, call.site)
        if _takes_gradients(call):
            yield p.Backward(tuple(scalers), tuple(losses), call.site, _is_plain(call))
        elif scalers or losses:
            yield p.Backward(tuple(scalers), tuple(losses), call.site, False)

    def _gradients(self, loss: ir.Expr, site: int) -> p.Program:
        scalers, losses = self._objects.factors(loss)
        return (p.Backward(scalers, losses, site),)

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
            yield p.Invoke(receiver, func.attr, arguments, call.site, None, above, self._checks > 0)
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


def _asks_for_window(test: ir.Expr) -> bool:
    """Whether a test looks for the end of a window of micro-steps."""
    for expr in walk.inside(test):
        if isinstance(expr, ir.Binary) and expr.op == "%":
            return True
        if isinstance(expr, (ir.Name, ir.Attr)) and _WINDOW.search(last(expr)):
            return True
    return False


def _takes_gradients(call: ir.Call) -> bool:
    """Whether the call is a `backward` of something."""
    func = call.func
    if isinstance(func, ir.Attr) and func.attr == "backward":
        return not (isinstance(func.value, ir.Call) and names(func.value.func) == ("builtins.super",))
    return False


def _is_plain(call: ir.Call) -> bool:
    """Whether the call is a tensor's `backward` or torch's, not that of an engine that may scale the loss."""
    if "torch.autograd.backward" in names(call.func):
        return True
    return all(arg.keyword is not None and not arg.star for arg in call.args)


def _only_reads_gradients(function: ir.Function) -> bool:
    attributes = {e.attr for e in walk.expressions(function.body) if isinstance(e, ir.Attr)}
    return "grad" in attributes and attributes.isdisjoint(_ACTS)


def _iterated(function: ir.Function, elements: Iterable[ir.Expr | None]) -> ir.Expr | None:
    """What a function loops over to get these elements, where it is one thing."""
    wanted = {element.id for element in elements if isinstance(element, ir.Name)}
    loops = [(s.target, s.iterable) for s in walk.statements(function.body) if isinstance(s, ir.For)]
    for expr in walk.expressions(function.body):
        if isinstance(expr, ir.Comprehension):
            loops.extend((target, iterable) for target, iterable, _ in expr.parts)
    found = [
        iterable
        for target, iterable in loops
        if any(isinstance(part, ir.Name) and part.id in wanted for part in walk.inside(target))
    ]
    return found[0] if len(found) == 1 else None
