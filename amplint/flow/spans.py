"""What happens while an autocast region is entered, in order: the calls of the file, those of its functions inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.held import stops_gradients
from amplint.flow.lift import last, names
from amplint.flow.regions import Region, Regions, is_context_manager, regions_of
from amplint.flow.remembered import Remembered
from amplint.model import ir

if TYPE_CHECKING:
    from amplint.model.module import ModuleModel

_DEEPEST = 5
#: Events of one region that are kept.
_MOST = 3000
#: What calls its first argument, or the closure that it is given.
_CALLERS = ("checkpoint", "step")
_GRADIENTS_ON = ("torch.enable_grad", "torch.autograd.enable_grad")


@dataclass(frozen=True, slots=True)
class Event:
    """A call, an assignment to an attribute, or one in place to a variable, while a region is entered."""

    expr: ir.Call | ir.Attr | ir.Name
    #: The function that it stands in.
    function: str
    #: The regions that are entered, outermost first.
    regions: tuple[Region, ...]
    #: What switches gradients off: "no_grad", "inference_mode", or "" where nothing does.
    off: str
    #: The calls that lead from the function with the region to it.
    calls: tuple[ir.Call, ...]
    #: (`if`, arm) around it.
    arms: tuple[tuple[int, int], ...]
    #: What the call is called on or what is assigned to, seen from the function with the region; None: not to be told.
    path: c.Path | None
    #: The function of this file that it calls.
    callee: str | None = None

    @property
    def no_grad(self) -> bool:
        """Whether gradients are off."""
        return bool(self.off)

    @property
    def site(self) -> int:
        """Where it stands."""
        return self.expr.site

    @property
    def innermost(self) -> Region:
        """The region that counts."""
        return self.regions[-1]

    def excludes(self, other: Event) -> bool:
        """Whether the two stand in different arms of one `if`."""
        arms = dict(self.arms)
        return any(arms.get(test, arm) != arm for test, arm in other.arms)


@dataclass(frozen=True, slots=True)
class Span:
    """One place where a region is entered that is inside no other of the same function."""

    function: str
    events: tuple[Event, ...]
    #: The `with`; None for a decorator.
    stmt: ir.With | None = None


@dataclass(frozen=True, slots=True)
class _At:
    """Where the walk stands."""

    function: ir.Function
    regions: tuple[Region, ...]
    off: str
    calls: tuple[ir.Call, ...] = ()
    arms: tuple[tuple[int, int], ...] = ()
    #: Root of a path in this function -> what it is in the function with the region.
    roots: tuple[tuple[str, c.Path], ...] = ()


@dataclass(slots=True)
class Spans:
    """The spans of one file."""

    regions: Regions
    all: tuple[Span, ...] = ()
    _events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Walk through every function."""
        self.all = tuple(span for f in self.regions.held.functions.values() for span in self._of(f))

    def _of(self, function: ir.Function) -> Iterator[Span]:
        around = self._around(function)
        if around:
            yield Span(function.qualname, self._run(function.body, function, around))
            return
        for stmt, off in self._entered(function.body, function.qualname, ""):
            yield Span(function.qualname, self._run((stmt,), function, (), off), stmt)

    def _entered(self, block: ir.Block, owner: str, off: str) -> Iterator[tuple[ir.With, str]]:
        """Each `with` that enters a region and is in no other such one, and whether gradients are off around it."""
        for stmt in block:
            inner = off
            if isinstance(stmt, ir.With):
                made = (r for item, _ in stmt.items for r in self.regions.made_by(item, owner))
                pushed = (r for inner in stmt.body for r in self._pushed(inner, owner))
                if any(True for _ in (*made, *pushed)):
                    yield stmt, off
                    continue
                inner = next((found for item, _ in stmt.items if (found := _switch(item))), off)
            for part in walk.blocks(stmt):
                yield from self._entered(part, owner, inner)

    def _around(self, function: ir.Function) -> tuple[Region, ...]:
        found = tuple(r for decorator in function.decorators for r in self.regions.made_by(decorator, ""))
        return found[:1]

    def _run(
        self, block: ir.Block, function: ir.Function, around: tuple[Region, ...], off: str = ""
    ) -> tuple[Event, ...]:
        self._events = []
        self._block(block, _At(function, around, _decorated(function) or off))
        return tuple(self._events)

    # -- statements -----------------------------------------------------------------------------------------

    def _block(self, block: ir.Block, at: _At) -> None:
        for stmt in block:
            if len(self._events) > _MOST:
                return
            self._statement(stmt, at)
            at = self._stacked(stmt, at)
            if isinstance(stmt, ir.If) and not stmt.orelse and _leaves(stmt.body):
                at = _in_arm(at, stmt.site, 1)

    def _statement(self, stmt: ir.Stmt, at: _At) -> None:
        if isinstance(stmt, ir.With):
            self._with(stmt, at)
            return
        for expr in walk.own(stmt)[:1] if isinstance(stmt, (ir.Assign, ir.For)) else walk.own(stmt):
            self._expression(expr, at)
        if isinstance(stmt, (ir.Assign, ir.AugAssign)):
            for target in stmt.targets if isinstance(stmt, ir.Assign) else (stmt.target,):
                for part in target.items if isinstance(target, ir.Items) else (target,):
                    if isinstance(part, ir.Attr):
                        self._note(part, part.value, at)
                    elif isinstance(part, ir.Name) and isinstance(stmt, ir.AugAssign):
                        self._note(part, part, at)
        if isinstance(stmt, ir.If):
            for arm, body in enumerate((stmt.body, stmt.orelse)):
                self._block(body, _in_arm(at, stmt.site, arm))
        elif isinstance(stmt, ir.Match):
            for arm, (_, body) in enumerate(stmt.cases):
                self._block(body, _in_arm(at, stmt.site, arm))
        elif isinstance(stmt, (ir.For, ir.While)):
            for _ in range(2):  # what one round leaves behind is met by the next
                self._block(stmt.body, at)
            self._block(stmt.orelse, at)
        else:
            for body in walk.blocks(stmt):
                self._block(body, at)

    def _stacked(self, stmt: ir.Stmt, at: _At) -> _At:
        """Where the walk stands behind `stack.enter_context(region)`, which may stand in a branch."""
        region = next(self._pushed(stmt, at.function.qualname), None)
        if region is None:
            return at
        return _At(at.function, (*at.regions, region), at.off, at.calls, at.arms, at.roots)

    def _pushed(self, stmt: ir.Stmt, owner: str) -> Iterator[Region]:
        if isinstance(stmt, ir.If):
            for block in (stmt.body, stmt.orelse):
                for inner in block:
                    yield from self._pushed(inner, owner)
        value = stmt.value if isinstance(stmt, (ir.Do, ir.Assign)) else None
        if isinstance(value, ir.Call) and last(value.func) == "enter_context" and value.args:
            yield from self.regions.made_by(value.args[0].value, owner)

    def _with(self, stmt: ir.With, at: _At) -> None:
        after: list[tuple[ir.Block, _At]] = []
        for item, _ in stmt.items:
            if at.regions:
                self._expression(item, at, enters=True)
            regions = tuple(self.regions.made_by(item, at.function.qualname))
            region = next((r for r in regions if r.enabled is not False), regions[0] if regions else None)
            off = _switch(item) or at.off
            if isinstance(item, ir.Call) and any(name in _GRADIENTS_ON for name in names(item.func)):
                off = ""
            around = at.regions if region is None else (*at.regions, region)
            at = _At(at.function, around, off, at.calls, at.arms, at.roots)
            if region is None and at.regions and isinstance(item, ir.Call):
                after.extend(self._enter(item, at))
        self._block(stmt.body, at)
        for block, where in reversed(after):
            self._block(block, where)

    def _enter(self, item: ir.Call, at: _At) -> Iterator[tuple[ir.Block, _At]]:
        """Run what a context manager of this file does on entering; gives what it does on leaving."""
        held = self.regions.held
        called = held.callee(item, at.function.owner)
        klass = held.classes.klass(names(item.func))
        if klass is not None:
            for name in ("__enter__", "__exit__"):
                method = held.classes.method(klass, name)
                if method is None or method not in held.functions or len(at.calls) >= _DEEPEST:
                    continue
                inner = self._inside(held.functions[method], item, at)
                if name == "__enter__":
                    self._block(held.functions[method].body, inner)
                else:
                    yield held.functions[method].body, inner
        elif called in held.functions and called is not None and is_context_manager(held.functions[called]):
            function = held.functions[called]
            inner = self._inside(function, item, at)
            split = next((i for i, s in enumerate(function.body) if _yields(s)), len(function.body))
            self._block(function.body[:split], inner)
            yield function.body[split:], inner

    # -- expressions ----------------------------------------------------------------------------------------

    def _expression(self, expr: ir.Expr, at: _At, enters: bool = False) -> None:
        if not at.regions:
            return
        for part in walk.parts(expr):
            self._expression(part, at)
        if isinstance(expr, ir.Call):
            self._call(expr, at, enters)

    def _call(self, call: ir.Call, at: _At, enters: bool) -> None:
        held = self.regions.held
        called = held.callee(call, at.function.owner)
        on = call.func
        forward = self._forward(call) if called is None else None
        self._note(call, on, at, called or forward)
        if enters or len(at.calls) >= _DEEPEST:
            return
        if called is None and forward is None and last(call.func) in _CALLERS and call.args:
            called = held.classes.local(names(call.args[0].value))
        for target in (called, forward):
            function = held.functions.get(target) if target is not None else None
            active = {at.function.qualname, *(held.callee(one, None) for one in at.calls)}
            if function is not None and target not in active and not is_context_manager(function):
                self._block(function.body, self._inside(function, call, at))

    def _forward(self, call: ir.Call) -> str | None:
        """The `forward` of the module of this file that is called."""
        held = self.regions.held
        func = call.func
        if isinstance(func, ir.Attr) and func.attr == "forward":
            func = func.value
        path = held.lift.path(func) if isinstance(func, (ir.Name, ir.Attr)) and not names(func) else None
        klass = held.module_class(path) if path is not None else None
        return held.classes.method(klass, "forward") if klass is not None else None

    def _inside(self, function: ir.Function, call: ir.Call, at: _At) -> _At:
        held = self.regions.held
        roots = dict(at.roots)
        if function.owner in held.classes.by_name and function.owner is not None:
            path = self._path(_receiver(call, function), at)
            roots[held.lift.self_root(function.owner)] = path if path is not None else (f"?{call.site}",)
        for param, value in held.bound(function.qualname, call):
            given = self._path(value, at)
            variable = held.lift.variable(function.qualname, param.name)
            roots[variable] = given if given is not None else (f"{variable}?{call.site}",)
        return _At(
            function,
            (*at.regions, *self._around(function)),
            _decorated(function) or at.off,
            (*at.calls, call),
            at.arms,
            tuple(roots.items()),
        )

    def _path(self, expr: ir.Expr | None, at: _At) -> c.Path | None:
        path = self.regions.held.lift.path(expr)
        if path is None:
            return None
        root = dict(at.roots).get(path[0])
        return (*root, *path[1:]) if root is not None else path

    def _note(
        self, expr: ir.Call | ir.Attr | ir.Name, on: ir.Expr, at: _At, callee: str | None = None
    ) -> None:
        if at.regions:
            path = self._path(on, at)
            self._events.append(
                Event(expr, at.function.qualname, at.regions, at.off, at.calls, at.arms, path, callee)
            )

    # -- questions ------------------------------------------------------------------------------------------

    def is_on(self, event: Event) -> bool:
        """Whether the region that counts may be enabled where something happens."""
        region = event.innermost
        guards = [self.regions.guard(call.site) for call in (*event.calls, event.expr)]
        return region.enabled is not False and self.regions.held.may_be(
            region.enabled, self.regions.guard(region.site), *guards
        )


def _switch(expr: ir.Expr) -> str:
    """What switches gradients off where `expr` is entered or decorates; "" for nothing."""
    if not stops_gradients(expr):
        return ""
    named = names(expr.func if isinstance(expr, ir.Call) else expr)
    return "inference_mode" if any(name.endswith("inference_mode") for name in named) else "no_grad"


def _decorated(function: ir.Function) -> str:
    return next((found for decorator in function.decorators if (found := _switch(decorator))), "")


def _in_arm(at: _At, test: int, arm: int) -> _At:
    return _At(at.function, at.regions, at.off, at.calls, (*at.arms, (test, arm)), at.roots)


def _leaves(block: ir.Block) -> bool:
    return bool(block) and isinstance(block[-1], (ir.Return, ir.Raise, ir.Jump))


def _yields(stmt: ir.Stmt) -> bool:
    return any(isinstance(e, ir.Other) and e.kind == "Yield" for e in walk.expressions((stmt,)))


def _receiver(call: ir.Call, function: ir.Function) -> ir.Expr | None:
    """What `self` is in a method that a call reaches; None: not to be told."""
    is_module = function.qualname.endswith((".forward", ".__call__")) and last(call.func) != "forward"
    if is_module:
        return call.func
    return call.func.value if isinstance(call.func, ir.Attr) else None


_FOUND: Remembered[ModuleModel, Spans] = Remembered("spans")


def spans_of(model: ModuleModel) -> Spans:
    """The spans of one file, found once and shared by all rules."""
    found = _FOUND.get(model)
    if found is None:
        found = _FOUND[model] = Spans(regions_of(model))
    return found
