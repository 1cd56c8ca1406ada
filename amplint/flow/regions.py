"""The autocast regions of one file: for which devices, in which dtypes, and what is computed in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from amplint import facts
from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.dtypes import BF16, DEFAULT, FP16, UNKNOWN, Choice, assigned, choices
from amplint.flow.held import Held, is_inference, objects_of, stops_gradients
from amplint.flow.lift import last, names
from amplint.flow.remembered import Remembered
from amplint.model import ir

if TYPE_CHECKING:
    from amplint.model.module import ModuleModel

#: Class -> (its parameters in positional order, its device where that is fixed).
_AUTOCASTS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "torch.autocast": (("device_type", "dtype", "enabled", "cache_enabled"), ""),
    "torch.cuda.amp.autocast": (("enabled", "dtype", "cache_enabled"), "cuda"),
    "torch.cpu.amp.autocast": (("enabled", "dtype", "cache_enabled"), "cpu"),
    "torch.npu.amp.autocast": (("enabled", "dtype", "cache_enabled"), "npu"),
    "torch_npu.npu.amp.autocast": (("enabled", "dtype", "cache_enabled"), "npu"),
    "torch.npu.amp.autocast_mode.autocast": (("enabled", "dtype", "cache_enabled"), "npu"),
    "torch_npu.npu.amp.autocast_mode.autocast": (("enabled", "dtype", "cache_enabled"), "npu"),
}
_DEFAULTS = {"cuda": FP16, "npu": FP16, "cpu": BF16}
#: These change what a region without a dtype computes in.
_SETTERS = ("set_autocast_gpu_dtype", "set_autocast_dtype", "set_autocast_cpu_dtype")
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Region:
    """One place where an autocast region is made."""

    site: int
    function: str
    #: "cuda", "npu", "cpu"...; "" is any.
    devices: tuple[str, ...]
    dtypes: tuple[Choice, ...]
    #: Where the region lowers anything; None: not known.
    enabled: c.Formula
    #: Gradients are off in it.
    inference: bool
    #: It keeps the low-precision copies of weights until it is left.
    cached: bool = True

    @property
    def kinds(self) -> frozenset[str]:
        """The dtypes that it can have; "" among them where that is not all."""
        return frozenset(choice.kind for choice in self.dtypes)


@dataclass(frozen=True, slots=True)
class Loss:
    """`loss.backward()` of something that was computed in a region."""

    call: ir.Call
    function: str
    regions: tuple[Region, ...]
    #: The tests around the call.
    guard: c.Formula


class Regions:
    """All regions of one file, and the losses that come from them."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self._by_site: dict[int, Region] = {}
        self._guards = {placed.call.site: placed.guard for placed in held.calls}
        self._sets_default = any(last(placed.call.func) in _SETTERS for placed in held.calls)
        for placed in held.calls:
            region = self._region(placed.call, placed.function, placed.inference)
            if region is not None:
                self._by_site[region.site] = region
        for name, function in held.functions.items():
            for decorator in function.decorators:
                if isinstance(decorator, ir.Call):
                    region = self._region(decorator, name, is_inference(function))
                    if region is not None:
                        self._by_site[region.site] = region

    @cached_property
    def all(self) -> tuple[Region, ...]:
        """The regions in the order of the text, those that a `with` makes under `no_grad` marked so."""
        entered: dict[int, bool] = {}
        for name, function in self.held.functions.items():
            for stmt, inference in _withs(function.body, is_inference(function)):
                for item, _ in stmt.items:
                    for region in self.made_by(item, name):
                        entered[region.site] = entered.get(region.site, True) and inference
        return tuple(
            replace(region, inference=entered.get(site, region.inference))
            for site, region in sorted(self._by_site.items())
        )

    def _region(self, call: ir.Call, function: str, inference: bool) -> Region | None:
        args = call.args
        called = names(call.func)
        if called == ("functools.partial",) and args and not args[0].star:
            called, args = names(args[0].value), args[1:]
        known = [found for name in called if (found := _AUTOCASTS.get(facts.aliases().get(name, name)))]
        if not known or len(known) != len(called):
            return None
        given: dict[str, ir.Expr] = {}
        unknown = False
        for index, arg in enumerate(args):
            unknown = unknown or bool(arg.star)
            if arg.keyword is not None:
                given[arg.keyword] = arg.value
            elif index < len(known[0][0]):
                given[known[0][0][index]] = arg.value
        device = given.get("device_type")
        devices = (known[0][1],) if known[0][1] else tuple(dict.fromkeys(self._devices(device)))
        dtypes = [Choice(DEFAULT, True, call.site)]
        if unknown and "dtype" not in given:
            dtypes = [Choice(UNKNOWN, True, call.site)]
        if "dtype" in given:
            dtypes = [*choices(self.held, given["dtype"])]
        enabled = given.get("enabled")
        return Region(
            call.site,
            function,
            devices,
            tuple(self._settled(dtypes, devices)),
            self.held.lift.formula(enabled) if enabled is not None else True,
            inference,
            "cache_enabled" not in given or self.held.lift.formula(given["cache_enabled"]) is True,
        )

    def _settled(self, dtypes: list[Choice], devices: tuple[str, ...]) -> Iterator[Choice]:
        """`dtypes` with the default replaced by what it is on the devices."""
        for choice in dtypes:
            if choice.kind != DEFAULT:
                yield choice
                continue
            for device in devices:
                found = _DEFAULTS.get(device, UNKNOWN)
                # a device from a variable is mostly an accelerator, sometimes the CPU
                for kind in (FP16, BF16) if device == "" else (found,):
                    sure = len(devices) == 1 and device != ""
                    guard = choice.guard if sure else c.both(choice.guard, c.truth(c.Unknown()))
                    yield replace(choice, kind=UNKNOWN if self._sets_default else kind, guard=guard)

    def _devices(self, expr: ir.Expr | None, depth: int = 0) -> Iterator[str]:
        if isinstance(expr, ir.Const) and isinstance(expr.value, str):
            yield expr.value.partition(":")[0]
        elif isinstance(expr, ir.IfExp) and depth < _DEEPEST:
            yield from self._devices(expr.body, depth + 1)
            yield from self._devices(expr.orelse, depth + 1)
        elif isinstance(expr, ir.Call) and names(expr.func) in (("torch.device",), ("builtins.str",)):
            yield from self._devices(expr.args[0].value if expr.args else None, depth + 1)
        elif isinstance(expr, ir.Attr) and expr.attr == "type" and depth < _DEEPEST:
            yield from self._devices(expr.value, depth + 1)
        else:
            path = self.held.lift.path(expr) if depth < _DEEPEST else None
            found = list(assigned(self.held, path)) if path is not None else []
            for value, _ in found:
                yield from self._devices(value, depth + 1) if value is not None else ("",)
            if not found:
                yield ""

    # -- where they are entered -----------------------------------------------------------------------------

    def made_by(self, expr: ir.Expr | None, owner: str, depth: int = 0) -> Iterator[Region]:
        """The regions that entering `expr` may enter."""
        if expr is None or depth > _DEEPEST:
            return
        if expr.site in self._by_site:
            yield self._by_site[expr.site]
        elif isinstance(expr, (ir.IfExp, ir.Bool)):
            for part in walk.parts(expr)[-2:]:
                yield from self.made_by(part, owner, depth + 1)
        elif isinstance(expr, ir.Call):
            called = self._function(expr, owner)
            for result in self.held.results(called) if called is not None else ():
                yield from self.made_by(result, called or "", depth + 1)
            function = self.held.functions.get(called) if called is not None else None
            if function is not None and is_context_manager(function):
                for item in _around_yield(function.body):
                    yield from self.made_by(item, function.qualname, depth + 1)
            if isinstance(expr.func, (ir.Name, ir.Attr)) and called is None:
                yield from self.made_by(expr.func, owner, depth + 1)
        elif isinstance(expr, ir.Lambda):
            yield from self.made_by(expr.body, owner, depth + 1)
        elif isinstance(expr, (ir.Name, ir.Attr)) and not names(expr):
            path = self.held.lift.path(expr)
            for value, _ in assigned(self.held, path) if path is not None else ():
                yield from self.made_by(value, owner, depth + 1)

    def guard(self, site: int) -> c.Formula:
        """The tests around a call, in the function that it stands in."""
        return self._guards.get(site, True)

    def _function(self, call: ir.Call, owner: str) -> str | None:
        function = self.held.functions.get(owner)
        return self.held.callee(call, function.owner if function is not None else None)

    # -- losses ---------------------------------------------------------------------------------------------

    @cached_property
    def losses(self) -> tuple[Loss, ...]:
        """Every `loss.backward()` whose loss is made from what regions computed."""
        self._results: dict[str, tuple[Region, ...]] = {}
        for _ in range(3):
            before = dict(self._results)
            self._found: list[Loss] = []
            for name, function in self.held.functions.items():
                self._results[name] = tuple(dict.fromkeys(_Function(self, function).run()))
            if self._results == before:
                break
        places = {placed.call.site: placed for placed in self.held.calls}
        return tuple(
            replace(loss, guard=places[loss.call.site].guard)
            for loss in self._found
            if loss.call.site in places and not places[loss.call.site].inference
        )

    def result_of(self, call: ir.Call, owner: str) -> tuple[Region, ...]:
        """The regions that a function of this file computes its result in."""
        called = self._function(call, owner)
        if called is None:
            path = self.held.lift.path(call.func)
            klass = self.held.module_class(path) if path is not None else None
            called = self.held.classes.method(klass, "forward") if klass is not None else None
        elif called.endswith("__init__"):
            return ()
        if called is None:
            return ()
        found = self._results.get(called, ())
        return tuple(r for r in found if not (r.function == called and self._is_off(r, called, call)))

    def _is_off(self, region: Region, called: str, call: ir.Call) -> bool:
        """Whether a call never comes to the region, or finds it disabled."""
        guard = c.both(region.enabled, self._guards.get(region.site, True))
        return self.held.never(guard, called, call)

    def note(self, call: ir.Call, function: str, found: tuple[Region, ...]) -> None:
        """A backward of something computed in `found`."""
        self._found.append(Loss(call, function, found, True))


_State = dict[c.Path, tuple[Region, ...]]


class _Function:
    """Which variables of one function are computed in which regions."""

    def __init__(self, regions: Regions, function: ir.Function) -> None:
        self._regions = regions
        self._function = function
        self._state: _State = {}
        self._returned: dict[Region, None] = {}
        self._noted: dict[int, tuple[ir.Call, dict[Region, None]]] = {}

    def run(self) -> Iterator[Region]:
        """Note every backward; gives the regions that what is returned was computed in."""
        around: tuple[Region, ...] = ()
        for decorator in self._function.decorators:
            around = (*around, *self._regions.made_by(decorator, ""))
        self._block(self._function.body, around, is_inference(self._function))
        for call, found in self._noted.values():
            self._regions.note(call, self._function.qualname, tuple(found))
        yield from self._returned

    def _block(self, block: ir.Block, around: tuple[Region, ...], inference: bool) -> None:
        for stmt in block:
            inner, off = around, inference
            if isinstance(stmt, ir.With):
                for item, _ in stmt.items:
                    entered = tuple(self._regions.made_by(item, self._function.qualname))
                    inner = entered or inner
                    off = off or stops_gradients(item)
            self._statement(stmt, around, inference)
            if isinstance(stmt, (ir.If, ir.Match)):
                self._branches(walk.blocks(stmt), inner, off, isinstance(stmt, ir.If) or stmt.exhaustive)
            elif isinstance(stmt, (ir.For, ir.While)):
                for _ in range(2):  # what a loop carries round is known the second time
                    self._branches((stmt.body,), inner, off, False)
                self._block(stmt.orelse, inner, off)
            elif isinstance(stmt, ir.Try):
                self._block(stmt.body, inner, off)
                self._branches(tuple(h.body for h in stmt.handlers), inner, off, False)
                self._block((*stmt.orelse, *stmt.final), inner, off)
            else:
                for part in walk.blocks(stmt):
                    self._block(part, inner, off)

    def _branches(
        self, blocks: tuple[ir.Block, ...], around: tuple[Region, ...], inference: bool, complete: bool
    ) -> None:
        before = self._state
        after: list[_State] = [] if complete else [before]
        for block in blocks:
            self._state = dict(before)
            self._block(block, around, inference)
            if not (block and isinstance(block[-1], (ir.Return, ir.Raise))):
                after.append(self._state)
        merged: _State = {}
        for state in after:
            for path, found in state.items():
                merged[path] = tuple(dict.fromkeys((*merged.get(path, ()), *found)))
        self._state = merged

    def _statement(self, stmt: ir.Stmt, around: tuple[Region, ...], inference: bool) -> None:
        if isinstance(stmt, (ir.Assign, ir.AugAssign)) and stmt.value is not None:
            found = () if inference else self._computed(stmt.value, around)
            targets = stmt.targets if isinstance(stmt, ir.Assign) else (stmt.target,)
            for target in targets:
                for part in target.items if isinstance(target, ir.Items) else (target,):
                    self._bind(part, found, isinstance(stmt, ir.AugAssign))
        if inference:
            return
        if isinstance(stmt, ir.Do) and isinstance(stmt.value, ir.Call):
            func = stmt.value.func
            if isinstance(func, ir.Attr) and func.attr == "append" and stmt.value.args:
                self._bind(func.value, self._computed(stmt.value.args[0].value, around), True)
        if isinstance(stmt, ir.Return) and stmt.value is not None:
            self._returned.update(dict.fromkeys(self._computed(stmt.value, around)))
        for expr in (e for whole in walk.own(stmt) for e in walk.inside(whole)):
            if isinstance(expr, ir.Call):
                loss = backward_of(expr)
                found = self._computed(loss, around) if loss is not None else ()
                if found:
                    self._noted.setdefault(expr.site, (expr, {}))[1].update(dict.fromkeys(found))

    def _bind(self, target: ir.Expr, found: tuple[Region, ...], keeps: bool) -> None:
        path = self._regions.held.lift.path(target)
        if path is None:
            return
        before = self._state.get(path, ()) if keeps or path[-1].startswith("[") else ()
        self._state[path] = tuple(dict.fromkeys((*before, *found)))

    def _computed(self, expr: ir.Expr, around: tuple[Region, ...]) -> tuple[Region, ...]:
        """The regions in which `expr`, or something it is made from, was computed with gradients."""
        found: dict[Region, None] = {}
        stack = [expr]
        while stack:
            current = stack.pop()
            if isinstance(current, ir.Call):
                if last(current.func) in ("detach", "item", "no_grad", "tolist"):
                    continue
                inner = self._regions.result_of(current, self._function.qualname)
                found.update(dict.fromkeys(inner))
                if not names(current.func) or not names(current.func)[0].startswith("builtins."):
                    found.update(dict.fromkeys(around))
            path = self._regions.held.lift.path(current)
            if path is not None:
                for size in range(1, len(path) + 1):
                    found.update(dict.fromkeys(self._state.get(path[:size], ())))
            stack.extend(walk.parts(current))
        return tuple(found)


def backward_of(call: ir.Call) -> ir.Expr | None:
    """`loss` where `call` is `loss.backward()` or `torch.autograd.backward(loss)`."""
    if names(call.func) == ("torch.autograd.backward",) and call.args:
        return call.args[0].value
    func = call.func
    if not isinstance(func, ir.Attr) or func.attr != "backward" or names(func):
        return None
    positional = [arg for arg in call.args if arg.keyword not in ("retain_graph", "create_graph")]
    if positional or (isinstance(func.value, ir.Name) and func.value.id in ("self", "super")):
        return None
    return func.value


def is_context_manager(function: ir.Function) -> bool:
    """Whether a generator is a context manager by `contextlib.contextmanager`."""
    return any(
        last(decorator) in ("contextmanager", "asynccontextmanager") for decorator in function.decorators
    )


def _around_yield(block: ir.Block) -> Iterator[ir.Expr]:
    """What is entered around a `yield`."""
    for stmt in walk.statements(block):
        if isinstance(stmt, ir.With) and any(
            isinstance(e, ir.Other) and e.kind == "Yield" for e in walk.expressions(stmt.body)
        ):
            yield from (item for item, _ in stmt.items)


def _withs(block: ir.Block, inference: bool) -> Iterator[tuple[ir.With, bool]]:
    for stmt in block:
        inner = inference
        if isinstance(stmt, ir.With):
            inner = inner or any(stops_gradients(item) for item, _ in stmt.items)
            yield stmt, inner
        for part in walk.blocks(stmt):
            yield from _withs(part, inner)


_FOUND: Remembered[ModuleModel, Regions] = Remembered("regions")


def regions_of(model: ModuleModel) -> Regions:
    """The autocast regions of one file, found once and shared by all rules."""
    found = _FOUND.get(model)
    if found is None:
        found = _FOUND[model] = Regions(objects_of(model))
    return found
