"""Runs functions of the files at hand over abstract values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from amplint.cancel import checkpoint
from amplint.flow import walk
from amplint.flow.classes import Classes
from amplint.flow.lift import last, names
from amplint.flow.precision import library, methods, modules, numbers
from amplint.flow.precision import names as known
from amplint.flow.precision.functions import iterated
from amplint.flow.precision.lattice import ANY, BOOL, F32, LOW, UNKNOWN, Dtypes, is_possible
from amplint.flow.precision.notes import Applied, Notes
from amplint.flow.precision.operators import Ambient, Rules
from amplint.flow.precision.relevance import Relevance
from amplint.flow.precision.state import Object, State, joined
from amplint.flow.precision.values import (
    BY_AUTOCAST,
    NONE,
    TOP,
    Class,
    Device,
    Dtype,
    Either,
    Frame,
    Function,
    LambdaValue,
    Lib,
    Many,
    Mapping_,
    Method,
    Number,
    Partial,
    Py,
    Ref,
    Region,
    Sequence_,
    Tensor,
    Top,
    Value,
    alternatives,
    either,
    element_of,
    join,
    join_all,
    tensors_in,
)
from amplint.model import ir
from amplint.model.units import is_elsewhere, is_own

_DEEPEST = 10
_ROUNDS = 3
#: How often one function is run, in different contexts.
_MOST_RUNS = 24
#: Expressions that are evaluated for one file, and from one of its entry points.
BUDGET = 24_000
_ENTRY_BUDGET = 12_000
_LONGEST = 8

_OPERATORS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "//": "floor_divide",
    "%": "remainder",
    "**": "pow",
    "@": "matmul",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
}
_MODULE = "torch.nn.Module"
_CONTEXTS = re.compile(r"contextmanager")
_CHANGES_DTYPE = re.compile(
    r"half|cast|convert|fp16|bf16|precision|dtype|amp\b|quant|fp8|shard", re.IGNORECASE
)


class OutOfSteps(Exception):
    """The file takes too many steps."""


@dataclass(slots=True)
class Call:
    """A function that is being run."""

    function: ir.Function
    frame: Frame
    me: Value | None = None
    returned: list[tuple[Value, State]] = field(default_factory=list)
    yielded: list[Value] = field(default_factory=list)
    #: Where `break` and `continue` of the loops around left, innermost last.
    loops: list[tuple[list[State], list[State]]] = field(default_factory=list)


class Files(Protocol):
    """The files that one is looked at together with, as far as they were asked for."""

    classes: dict[str, ir.Class]

    def resolve(self, name: str, function: str) -> str | None:
        """The qualname of the function or class that a qualified name denotes in a function, if it is at hand."""


Arguments = tuple[tuple[Value, ...], tuple[tuple[str, Value], ...]]


class Machine:
    """Runs the functions of one file, and of those that it is looked at together with."""

    def __init__(
        self,
        functions: Mapping[str, ir.Function],
        classes: Classes,
        rules: Rules,
        default: Dtypes = frozenset((F32,)),
        files: Files | None = None,
        budget: int = BUDGET,
        assumed: Mapping[str, bool] | None = None,
        relevance: Relevance | None = None,
    ) -> None:
        self._files = files
        #: Tests of switches (`args.fp16`), as written, that are taken to hold or not.
        self.assumed = dict(assumed or {})
        self.functions = functions
        self.classes = classes
        self.relevance = relevance if relevance is not None else Relevance(functions, classes)
        self.rules = rules
        self.default = default
        self.notes = Notes()
        self.state = State()
        self._left = budget
        self._budget = self._granted = min(_ENTRY_BUDGET, budget)
        self._calls: list[Call] = []
        self._entry: int | None = None
        #: What the region around is where the outermost function begins.
        self.around: Ambient = Ambient()
        self._memo: dict[Any, Value] = {}
        self._nests: dict[str, bool] = {}
        #: Module code of other files that was run for its constants.
        self._loaded: set[str] = set()

    # -- where execution stands -----------------------------------------------------------------------------

    @property
    def call(self) -> Call:
        """The function that is being run."""
        return self._calls[-1]

    @property
    def frame(self) -> Frame:
        """Its frame."""
        return self._calls[-1].frame if self._calls else ()

    @property
    def ambient(self) -> Ambient:
        """What autocast does here, for the backend at hand."""
        for region in reversed(self.state.regions):
            if region.device == "-":
                continue
            if (
                region.device in ("", self.rules.backend)
                or {region.device, self.rules.backend} == known.ACCELERATORS
            ):
                return Ambient(region.enabled, region.dtypes, region.site)
            if region.device == "?":
                return Ambient(None, frozenset(("float16", "bfloat16")), region.site)
        return self.around

    def dtypes_around(self, device: str) -> Dtypes:
        """The dtypes of the innermost region of a device here, which a region without a dtype takes over."""
        return next((r.dtypes for r in reversed(self.state.regions) if r.device == device), frozenset())

    def refill(self) -> None:
        """Begin at another entry point, with as many steps as the first one had, as long as there are any left."""
        self._calls.clear()
        self._left -= self._granted - max(self._budget, 0)
        self._budget = self._granted = min(_ENTRY_BUDGET, self._left)

    def _saw(self, site: int, value: Value) -> None:
        self.notes.saw(site, value, self.ambient, self.call.function.qualname)

    def note(
        self,
        op: str,
        site: int,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
        result: Value,
        form: str = "",
    ) -> None:
        """Note that an operator ran."""
        entry = None if is_own(site) else self._entry
        if not is_own(site) and entry is None:
            return
        function = self._calls[-1].function.qualname if self._calls else ""
        self.notes.note(
            Applied(
                op,
                site,
                tuple(args),
                tuple(keywords.items()),
                result,
                self.ambient,
                function,
                entry,
                self.state.no_grad,
                form,
            )
        )

    # -- running functions ----------------------------------------------------------------------------------

    def run_module(self, name: str = "") -> None:
        """Run the code of a module itself."""
        function = self.functions.get(name)
        if function is not None:
            self._run(function, (), None, {}, ())

    def invoke(
        self,
        qualname: str,
        me: Value | None,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
        site: int,
        outer: Frame = (),
    ) -> Value:
        """What a call of a function at hand gives."""
        function = self.functions.get(qualname)
        if function is None:
            return TOP
        if not self._may_show(qualname, me, args, keywords):
            self.notes.passed_over.add(qualname)
            return TOP
        count = self.notes.entered.get(qualname, 0)
        active = sum(call.function.qualname == qualname for call in self._calls)
        if len(self._calls) > _DEEPEST or count > _MOST_RUNS or active > 1:
            self.notes.gave_up += 1
            self.notes.passed_over.add(qualname)
            return TOP
        key = self._memo_key(qualname, me, args, keywords)
        if key is not None and key in self._memo:
            return self._memo[key]
        found = self._entered(function, me, args, keywords, site, outer)
        if key is not None and not any(True for _ in _refs(found)):
            self._memo[key] = found
        return found

    def _may_show(
        self, qualname: str, me: Value | None, args: Sequence[Value], keywords: Mapping[str, Value]
    ) -> bool:
        """Whether running a function can show anything: it may see low precision, make it, or make what has it."""
        if not self._calls or self._matters(args, keywords) or qualname.endswith("__init__"):
            return True
        if me is not None and self.call.me == me and self.call.function.qualname.endswith("__init__"):
            return True  # a constructor that has another method set the attributes
        if self.relevance.makes_low(qualname) or self.relevance.builds(qualname):
            return True
        if not isinstance(me, Ref):
            return False
        thing = self.state.heap.get(me.key)
        return self.is_module(me) or thing is None or any(_may_be_low(value) for _, value in thing.fields)

    def _memo_key(
        self, qualname: str, me: Value | None, args: Sequence[Value], keywords: Mapping[str, Value]
    ) -> Any:
        """What decides what a call does, where objects have no part in it."""
        given = (*args, *keywords.values())
        if me is not None or any(isinstance(v, (Function, LambdaValue, Partial)) for v in given):
            return None
        if any(True for v in given for _ in _refs(v)):
            return None
        return (qualname, tuple(args), tuple(keywords.items()), self.ambient, self.state.no_grad)

    def _entered(
        self,
        function: ir.Function,
        me: Value | None,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
        site: int,
        outer: Frame,
    ) -> Value:
        bound = self._bound(function, me, args, keywords)
        frame = (*self.frame[-_DEEPEST:], site)
        before = self._entry
        if self._calls and is_own(site):
            self._entry = site
        regions = self.state.regions
        no_grad = self.state.no_grad
        outermost = not self._calls
        if outermost:
            self._calls.append(Call(function, (), me))  # what decorators evaluate belongs to some function
        self._decorate(function, bound)
        if outermost:
            self._calls.clear()
        try:
            return self._run(function, frame, me, bound, outer)
        finally:
            self._entry = before
            self.state.regions = regions
            self.state.no_grad = no_grad

    def _decorate(self, function: ir.Function, bound: dict[str, Value]) -> None:
        """Enter what the decorators of a function enter."""
        for decorator in function.decorators:
            named = names(decorator.func if isinstance(decorator, ir.Call) else decorator)
            if any(name in known.NO_GRAD for name in named):
                self.state.no_grad = True
            elif any("custom_fwd" in name for name in named):
                cast = isinstance(decorator, ir.Call) and any(
                    a.keyword == "cast_inputs" for a in decorator.args
                )
                if cast and isinstance(decorator, ir.Call):
                    self._cast_inputs(decorator, bound)
                    self._enter(Region(self.rules.backend, frozenset(), False, decorator.site))
            elif isinstance(decorator, ir.Call) and any(known.is_autocast(name) for name in named):
                around, self.state.regions = self.state.regions, ()  # it was made where the function was
                value = self.value(decorator)
                self.state.regions = around
                if isinstance(value, Region):
                    self._enter(value)

    def _cast_inputs(self, decorator: ir.Call, bound: dict[str, Value]) -> None:
        """Cast arguments as `custom_fwd(cast_inputs=..)` does in a region."""
        given = next(self.value(a.value) for a in decorator.args if a.keyword == "cast_inputs")
        wanted = given.dtypes if isinstance(given, Dtype) else ANY
        if self.ambient.enabled is False:
            return
        for name, value in bound.items():
            if isinstance(value, Tensor):
                kept = value.dtypes if self.ambient.enabled is None else frozenset()
                why = "custom_fwd casts it"
                bound[name] = replace(value, dtypes=wanted | kept, origin=decorator.site, why=why)

    def _run(
        self, function: ir.Function, frame: Frame, me: Value | None, bound: Mapping[str, Value], outer: Frame
    ) -> Value:
        self.notes.entered[function.qualname] = self.notes.entered.get(function.qualname, 0) + 1
        call = Call(function, frame, me)
        self._calls.append(call)
        variables = self.state.variables
        for name, value in bound.items():
            variables[frame, function.qualname, name] = value
        if outer != frame:
            for key, value in list(variables.items()):
                if key[0] == outer and outer and key[1] != function.qualname:
                    variables[(frame, key[1], key[2])] = value
        try:
            is_alive = self._block(function.body)
        finally:
            self._calls.pop()
        ends = [*call.returned, (NONE, self.state)] if is_alive else call.returned
        if frame and not self._defines(function):  # nobody asks for its variables any more
            for _, state in ends:
                state.variables = {k: v for k, v in state.variables.items() if k[0] != frame}
        if call.yielded:
            after = joined(state for _, state in ends)
            self.state = after if after is not None else self.state
            return Many(join_all(call.yielded))
        if not ends:
            return TOP
        after = joined(state for _, state in ends)
        assert after is not None
        self.state = after
        return join_all(value for value, _ in ends)

    def _defines(self, function: ir.Function) -> bool:
        """Whether there are functions inside a function."""
        found = self._nests.get(function.qualname)
        if found is None:
            found = any(isinstance(stmt, ir.Define) for stmt in walk.statements(function.body))
            self._nests[function.qualname] = found
        return found

    def _bound(
        self, function: ir.Function, me: Value | None, args: Sequence[Value], keywords: Mapping[str, Value]
    ) -> dict[str, Value]:
        given = list(args)
        if me is not None and not function.is_static:
            given.insert(0, me)
        left = dict(keywords)
        found: dict[str, Value] = {}
        for param in function.params:
            if param.star == "*":
                found[param.name] = Sequence_(tuple(given))
                given = []
            elif param.star == "**":
                found[param.name] = Mapping_(tuple(left.items()))
                left = {}
            elif given and not param.keyword_only:
                found[param.name] = given.pop(0)
            elif param.name in left:
                found[param.name] = left.pop(param.name)
            elif param.default is not None and "**" not in left:
                found[param.name] = self._default(function, param.default)
            else:
                found[param.name] = TOP
        return found

    def _default(self, function: ir.Function, expr: ir.Expr) -> Value:
        return self.value(expr)

    def unknown_arguments(self, function: ir.Function, skip: int = 0) -> dict[str, Value]:
        """Arguments of which nothing is known but annotations and defaults."""
        found: dict[str, Value] = {}
        for param in function.params[skip:]:
            if param.star:
                continue
            note = param.annotation
            noted = tuple(n for e in walk.inside(note) for n in names(e)) if note is not None else ()
            if param.default is not None:
                value = self._default(function, param.default)
                found[param.name] = (
                    TOP
                    if value == NONE or (isinstance(value, Py) and isinstance(value.value, bool))
                    else value
                )
            elif noted == ("torch.Tensor",) or noted == ("torch", "torch.Tensor"):
                found[param.name] = Tensor(ANY)
            elif "builtins.float" in noted or "builtins.int" in noted:
                found[param.name] = Number()
        return found

    # -- statements -----------------------------------------------------------------------------------------

    def _block(self, block: ir.Block) -> bool:
        """Run statements; False where execution does not come to the end."""
        checkpoint()
        return all(self._statement(stmt) for stmt in block)

    def _statement(self, stmt: ir.Stmt) -> bool:
        if isinstance(stmt, ir.Assign):
            if stmt.value is not None:
                value = self.value(stmt.value)
                for target in stmt.targets:
                    self._assign(target, value)
        elif isinstance(stmt, ir.AugAssign):
            self._augment(stmt)
        elif isinstance(stmt, ir.Do):
            self._do(stmt)
        elif isinstance(stmt, ir.Return):
            value = NONE if stmt.value is None else self.value(stmt.value)
            self.call.returned.append((value, self.state))
            return False
        elif isinstance(stmt, ir.If):
            return self._if(stmt)
        elif isinstance(stmt, (ir.For, ir.While)):
            return self._loop(stmt)
        elif isinstance(stmt, ir.With):
            return self._with(stmt)
        elif isinstance(stmt, ir.Try):
            return self._try(stmt)
        elif isinstance(stmt, ir.Match):
            self.value(stmt.subject)
            return self._branches([body for _, body in stmt.cases], stmt.exhaustive)
        elif isinstance(stmt, ir.Raise):
            return False
        elif isinstance(stmt, ir.Jump):
            if self.call.loops:
                self.call.loops[-1][stmt.kind == "continue"].append(self.state)
            return False
        elif isinstance(stmt, ir.Assert):
            self.value(stmt.test)
        elif isinstance(stmt, ir.Define) and stmt.kind == "def":
            name = stmt.qualname.rpartition(".")[2]
            scope = self.call.function.qualname
            if scope not in ("",) and not is_elsewhere(scope):
                self.state.variables[self.frame, scope, name] = Function(stmt.qualname, None, self.frame)
        return True

    def _do(self, stmt: ir.Do) -> None:
        value = self.value(stmt.value)
        expr = stmt.value
        if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
            # what is changed in place is known from now on
            if expr.func.attr in ("append", "extend", "add", "insert", "update", "setdefault") and expr.args:
                self._grow(expr)
            elif expr.func.attr in known.CASTS and isinstance(value, Ref):
                self._assign(expr.func.value, value, quietly=True)

    def _grow(self, expr: ir.Call) -> None:
        assert isinstance(expr.func, ir.Attr)
        owner = self.value(expr.func.value)
        added = self.value(expr.args[-1].value)
        if expr.func.attr == "extend":
            added = element_of(added)
        if isinstance(owner, Sequence_) and owner.kind == "list":
            grown: Value = Many(join_all([*owner.items, added]))
        elif isinstance(owner, Many):
            grown = Many(join(owner.element, added))
        elif isinstance(owner, Mapping_) and isinstance(added, Mapping_) and expr.func.attr == "update":
            grown = Mapping_(tuple({**dict(owner.items), **dict(added.items)}.items()), owner.rest)
        else:
            return
        self._assign(expr.func.value, grown, quietly=True)

    def _if(self, stmt: ir.If) -> bool:
        test = self.truth(stmt.test)
        if test is not None:
            self._narrow(stmt.test, test)
            return self._block(stmt.body if test else stmt.orelse)
        self._note_switch(stmt.test, walk.expressions(stmt.body))
        before = self.state
        after: list[State] = []
        for wanted, block in ((True, stmt.body), (False, stmt.orelse)):
            self.state = before.copy()
            self._narrow(stmt.test, wanted)
            if self._block(block):
                after.append(self.state)
        return self._go_on(after)

    def _note_switch(self, test: ir.Expr, guarded: Iterator[ir.Expr]) -> None:
        """Keep a test that decides whether something becomes low precision."""
        name = switch(test)
        if name and name not in self.notes.switches and any(_lowers(expr) for expr in guarded):
            self.notes.switches.append(name)

    def _branches(self, blocks: Sequence[ir.Block], complete: bool) -> bool:
        before = self.state
        after = [] if complete else [before.copy()]
        for block in blocks:
            self.state = before.copy()
            if self._block(block):
                after.append(self.state)
        return self._go_on(after)

    def _go_on(self, states: Sequence[State]) -> bool:
        found = joined(states)
        if found is None:
            return False
        self.state = found
        return True

    def _loop(self, stmt: ir.For | ir.While) -> bool:
        iterable = iterated(self, self.value(stmt.iterable)) if isinstance(stmt, ir.For) else None
        ends: list[State] = []
        items = self._unrolled(iterable)
        if isinstance(stmt, ir.For) and items is not None:
            for item in items:
                self._assign(stmt.target, item)
                breaks, continues = self._round(stmt.body)
                ends.extend(breaks)
                if not self._go_on(continues):
                    break
            else:
                ends.append(self.state)
            return self._go_on(ends)
        if isinstance(stmt, ir.While) and self.truth(stmt.test) is not True:
            ends.append(self.state.copy())  # a `for` is taken to run at least once
        for _ in range(_ROUNDS):
            entry = self.state.copy()
            if isinstance(stmt, ir.For):
                assert iterable is not None
                self._assign(stmt.target, element_of(iterable))
            else:
                self.value(stmt.test)
            breaks, continues = self._round(stmt.body)
            ends.extend(breaks)
            ends.extend(state.copy() for state in continues)
            if not self._go_on([entry, *continues]) or not continues:
                break
            if self.state.variables == entry.variables and self.state.heap == entry.heap:
                break
        if not self._go_on(ends):
            return False
        return self._block(stmt.orelse)

    def _unrolled(self, iterable: Value | None) -> list[Value] | None:
        """The items of a short sequence whose items differ."""
        if not isinstance(iterable, Sequence_) or len(iterable.items) > _LONGEST:
            return None
        return list(iterable.items)

    def _round(self, body: ir.Block) -> tuple[list[State], list[State]]:
        """Run the body of a loop once: the states in which it is left, and those in which it goes on."""
        self.call.loops.append(([], []))
        alive = self._block(body)
        breaks, continues = self.call.loops.pop()
        if alive:
            continues = [*continues, self.state]
        return breaks, continues

    def _with(self, stmt: ir.With) -> bool:
        regions, no_grad = self.state.regions, self.state.no_grad
        for item, target in stmt.items:
            value = self._context(item)
            if target is not None:
                self._assign(target, value)
        alive = self._block(stmt.body)
        for call in self._calls[-1:]:
            for _, state in call.returned:
                state.regions, state.no_grad = regions, no_grad
            for loop in call.loops[-1:]:
                for state in (*loop[0], *loop[1]):
                    state.regions, state.no_grad = regions, no_grad
        self.state.regions, self.state.no_grad = regions, no_grad
        return alive

    def _context(self, item: ir.Expr) -> Value:
        value = self.value(item)
        for one in alternatives(value):
            if isinstance(one, Region):
                self._enter(one)
                break
        named = names(item.func) if isinstance(item, ir.Call) else names(item)
        if any(name in known.NO_GRAD for name in named):
            self.state.no_grad = True
        elif isinstance(value, (Top, Ref)) and known.MAY_ENTER.search(_written(item)):
            self._enter(Region("?", frozenset(), None, item.site))
        return value

    def _enter(self, region: Region) -> None:
        self.state.regions = (*self.state.regions, region)

    def _try(self, stmt: ir.Try) -> bool:
        before = self.state.copy()
        after: list[State] = []
        alive = self._block(stmt.body)
        if alive and self._block(stmt.orelse):
            after.append(self.state)
        for handler in stmt.handlers:
            self.state = before.copy()
            if self._block(handler.body):
                after.append(self.state)
        if not self._go_on(after):
            return False
        return self._block(stmt.final)

    # -- assignments ----------------------------------------------------------------------------------------

    def _assign(self, target: ir.Expr, value: Value, quietly: bool = False) -> None:
        if isinstance(target, ir.Name):
            self.state.variables[self._variable(target)] = value
            if not quietly:
                self._saw(target.site, value)
        elif isinstance(target, ir.Attr):
            owner = self.value(target.value)
            self._set_attribute(target, owner, value)
        elif isinstance(target, ir.Items):
            self._unpack(target.items, value)
        elif isinstance(target, ir.Subscript):
            self._set_item(target, value)
        elif isinstance(target, ir.Star):
            self._assign(target.value, Many(element_of(value)))

    def _variable(self, target: ir.Name) -> tuple[Frame, str, str]:
        scope = target.scope if target.scope is not None else ""
        is_module = scope == "" or (is_elsewhere(scope) and "." not in scope)
        return ((), scope, target.id) if is_module else (self.frame, scope, target.id)

    def _set_attribute(self, target: ir.Attr, owner: Value, value: Value) -> None:
        if isinstance(owner, Ref) and owner.key in self.state.heap:
            self.state.heap[owner.key] = self.state.heap[owner.key].with_field(target.attr, value)
        elif isinstance(owner, Tensor) and target.attr == "data" and isinstance(value, Tensor):
            self.note("set_data", target.site, (owner, value), {}, value)
            if "parameter" in owner.marks:
                self._retype(owner, value.dtypes)
            self._assign(target.value, replace(value, marks=owner.marks), quietly=True)
        elif isinstance(owner, Tensor) and target.attr == "grad":
            self.note("set_grad", target.site, (owner, value), {}, value)

    def _retype(self, parameter: Tensor, dtypes: Dtypes) -> None:
        """What `p.data = ..` makes of the modules that the parameter may belong to: some of them, one by one."""
        same = (parameter.dtypes, parameter.origin)
        for key, thing in list(self.state.heap.items()):
            if (thing.params, thing.origin) == same:
                self.state.heap[key] = replace(thing, params=thing.params | dtypes)
            for name, value in thing.fields:
                if (
                    isinstance(value, Tensor)
                    and "parameter" in value.marks
                    and value.dtypes == parameter.dtypes
                ):
                    grown = replace(value, dtypes=value.dtypes | dtypes)
                    self.state.heap[key] = self.state.heap[key].with_field(name, grown)

    def _unpack(self, targets: Sequence[ir.Expr], value: Value) -> None:
        items: Sequence[Value] | None = None
        if isinstance(value, Sequence_) and len(value.items) == len(targets):
            items = value.items
        elif isinstance(value, Either) and all(
            isinstance(v, Sequence_) and len(v.items) == len(targets) for v in value.values
        ):
            rows = [v.items for v in value.values if isinstance(v, Sequence_)]
            items = [join_all(column) for column in zip(*rows, strict=True)]
        for index, target in enumerate(targets):
            if isinstance(target, ir.Star):
                self._assign(target, value)
            else:
                self._assign(target, items[index] if items is not None else element_of(value))

    def _set_item(self, target: ir.Subscript, value: Value) -> None:
        owner = self.value(target.value)
        index = self.value(target.index)
        if isinstance(owner, Tensor):
            self.note("setitem", target.site, (owner, index, value), {}, owner)
            return
        if isinstance(owner, Mapping_):
            if isinstance(index, Py):
                items = {**dict(owner.items), index.value: value}
                grown: Value = Mapping_(tuple(items.items()), owner.rest)
            else:
                grown = Mapping_(owner.items, value if owner.rest is None else join(owner.rest, value))
        elif isinstance(owner, (Many, Sequence_)):
            grown = Many(join(element_of(owner), value) if not _is_empty(owner) else value)
        else:
            return
        self._assign(target.value, grown, quietly=True)

    def _augment(self, stmt: ir.AugAssign) -> None:
        owner = self.value(stmt.target)
        value = self.value(stmt.value)
        op = _OPERATORS.get(stmt.op, "")
        if isinstance(owner, Tensor):
            result: Value = replace(owner, site=stmt.site, op=op)
            if op:
                self.note(op, stmt.site, (owner, value), {}, result, "augmented")
        else:
            result = self.binary(stmt.op, owner, value, stmt.site)
        if isinstance(owner, (Sequence_, Many)) and isinstance(value, (Sequence_, Many)):
            result = Many(join(element_of(owner), element_of(value))) if not _is_empty(owner) else value
        self._assign(stmt.target, result)

    # -- tests ----------------------------------------------------------------------------------------------

    def truth(self, expr: ir.Expr) -> bool | None:
        """Whether a test holds; None where it may or may not."""
        if isinstance(expr, ir.Unary) and expr.op == "not":
            found = self.truth(expr.operand)
            return None if found is None else not found
        if isinstance(expr, ir.Bool):
            left = self.truth(expr.left)
            if left is (expr.op == "or"):
                return left
            right = self.truth(expr.right)
            return right if left is not None or right is (expr.op == "or") else None
        found = truth_of(self.value(expr))
        return self.assumed.get(switch(expr)) if found is None and self.assumed else found

    def _narrow(self, test: ir.Expr, wanted: bool) -> None:
        """What a test says of the dtype of a variable where it holds."""
        if isinstance(test, ir.Unary) and test.op == "not":
            self._narrow(test.operand, not wanted)
            return
        if isinstance(test, ir.Bool) and wanted == (test.op == "and"):
            self._narrow(test.left, wanted)
            self._narrow(test.right, wanted)
            return
        if not isinstance(test, ir.Compare):
            return
        if (
            isinstance(test.left, ir.Attr)
            and test.left.attr == "dtype"
            and test.op in ("==", "!=", "is", "is not", "in")
        ):
            variable, other = self.value(test.left.value), self.value(test.right)
            said = _dtypes_of(other)
            if isinstance(variable, Tensor) and said:
                holds = wanted == (test.op in ("==", "is", "in"))
                kept = variable.dtypes & said if holds else variable.dtypes - said
                is_exact = isinstance(other, Sequence_) or len(said) == 1
                if kept and (holds or (is_exact and UNKNOWN not in variable.dtypes)):
                    self._assign(test.left.value, replace(variable, dtypes=kept), quietly=True)
        elif test.op in ("is", "is not") and isinstance(test.right, ir.Const) and test.right.value is None:
            value = self.value(test.left)
            if isinstance(value, Either) and isinstance(test.left, (ir.Name, ir.Attr)):
                is_none = wanted == (test.op == "is")
                kept_values = [v for v in value.values if (v == NONE) == is_none]
                if kept_values:
                    self._assign(test.left, either(kept_values), quietly=True)

    # -- expressions ----------------------------------------------------------------------------------------

    def value(self, expr: ir.Expr) -> Value:
        """What an expression stands for."""
        self._budget -= 1
        if self._budget < 0:
            raise OutOfSteps
        found: Value = _VALUES[type(expr)](self, expr)
        return found

    def _name(self, expr: ir.Name) -> Value:
        found = self.state.variables.get(self._variable(expr))
        if found is None and not names(expr):
            found = self._from_outside(expr)
        if found is None:
            found = self._named(expr)
        if isinstance(found, (Tensor, Region, Either, Top)) and is_own(expr.site):
            self._saw(expr.site, found)
        return found

    def _from_outside(self, expr: ir.Name) -> Value | None:
        """A variable of an enclosing function or of a module."""
        scope = expr.scope
        if scope is None:
            return None
        for call in reversed(self._calls):
            found = self.state.variables.get((call.frame, scope, expr.id))
            if found is not None:
                return found
        if (scope == "" or is_elsewhere(scope)) and "." not in scope and scope not in self._loaded and scope:
            self._loaded.add(scope)
            self._constants(scope)
            return self.state.variables.get(((), scope, expr.id))
        return None

    def _constants(self, module: str) -> None:
        """Evaluate what another module assigns to its names."""
        function = self.functions.get(module)
        if function is None:
            return
        for stmt in function.body:
            if isinstance(stmt, ir.Assign) and isinstance(
                stmt.value, (ir.Const, ir.Attr, ir.Unary, ir.Binary)
            ):
                self._statement(stmt)

    def _named(self, expr: ir.Name | ir.Attr) -> Value:
        found = [self._denoted(name) for name in names(expr)]
        return either(found) if found else TOP

    def _denoted(self, name: str) -> Value:
        local = self.classes.local((name,))
        if local is not None:
            if local in self.classes.by_name:
                return Class(local)
            if local in self.functions:
                return Function(local)
            owner, _, attr = local.rpartition(".")
            if owner not in self.classes.by_name:
                return TOP
            method = self.classes.method(owner, attr)
            if method is not None:
                return Function(method)
            field_ = self._class_field(owner, attr)
            return field_ if field_ != TOP else Method(Class(owner), attr)
        dtype = known.dtype_named(name)
        if dtype is not None:
            return Dtype(frozenset((dtype,)))
        number = known.NUMBERS.get(name)
        return Py(number) if number is not None else Lib(known.canonical(name))

    def _attribute(self, expr: ir.Attr) -> Value:
        if names(expr):
            return self._named(expr)
        owner = self.value(expr.value)
        found = self.attribute(owner, expr.attr, expr)
        if isinstance(found, Tensor) and is_own(expr.site):
            self._saw(expr.site, found)
        return found

    def attribute(self, owner: Value, name: str, expr: ir.Attr) -> Value:
        """An attribute of a value."""
        if isinstance(owner, Either):
            return either([self.attribute(one, name, expr) for one in owner.values])
        if isinstance(owner, Ref):
            return self._field(owner, name, expr)
        if isinstance(owner, Class):
            method = self.classes.method(owner.qualname, name)
            return Function(method) if method is not None else self._class_field(owner.qualname, name)
        return methods.attribute(self, owner, name, expr)

    def _field(self, owner: Ref, name: str, expr: ir.Attr) -> Value:
        thing = self.state.heap.get(owner.key)
        if thing is not None and is_put_off(thing):
            if name in known.MODULE_METHODS and self.classes.method(thing.cls, name) is None:
                return TOP
            thing = self.made(owner)
        if thing is None:
            return TOP
        found = thing.get(name)
        if found is not None:
            return found
        if thing.is_own:
            method = self.classes.method(thing.cls, name)
            if method is not None:
                function = self.functions[method]
                if any(last(d) in ("property", "cached_property") for d in function.decorators):
                    return self.invoke(method, owner, (), {}, expr.site)
                is_class = any(last(d) == "classmethod" for d in function.decorators)
                return Function(method, Class(thing.cls) if is_class else owner)
            field_ = self._class_field(thing.cls, name)
            if field_ != TOP:
                return field_
        return methods.module_attribute(self, owner, thing, name, expr)

    def _class_field(self, klass: str, name: str) -> Value:
        for each in self.classes.order(klass):
            for stmt in self.classes.by_name[each].body:
                if isinstance(stmt, ir.Assign) and stmt.value is not None:
                    for target in stmt.targets:
                        if isinstance(target, ir.Name) and target.id == name:
                            return self.value(stmt.value)
        return TOP

    def _binary(self, expr: ir.Binary) -> Value:
        return self.binary(expr.op, self.value(expr.left), self.value(expr.right), expr.site)

    def binary(self, op: str, left: Value, right: Value, site: int) -> Value:
        """Arithmetic."""
        folded = numbers.fold(op, left, right)
        if folded is not None:
            return folded
        if isinstance(left, (Sequence_, Many)) and op == "*" and numbers.is_number(right):
            return Many(element_of(left))
        if isinstance(left, (Sequence_, Many)) and isinstance(right, (Sequence_, Many)) and op == "+":
            if isinstance(left, Sequence_) and isinstance(right, Sequence_):
                return Sequence_((*left.items, *right.items), left.kind)
            return Many(join(element_of(left), element_of(right)))
        operands = [t for v in (left, right) for t in tensors_in(v) if not isinstance(v, (Sequence_, Many))]
        name = _OPERATORS.get(op)
        if not operands or name is None:
            return TOP
        return self.operate(name, (left, right), {}, site, "operator")

    def operate(
        self, op: str, args: Sequence[Value], keywords: Mapping[str, Value], site: int, form: str = ""
    ) -> Value:
        """Run an operator of the table, and note it."""
        plain = tuple(_one(value) for value in args)
        result = self.rules.apply(op, plain, keywords, self.ambient, self.default)
        result = self._dated(op, result, plain, site)
        self.note(op, site, plain, keywords, result, form)
        return result

    def _dated(self, op: str, result: Value, args: Sequence[Value], site: int) -> Value:
        """A result with where it comes from."""
        if isinstance(result, Sequence_):
            return Sequence_(tuple(self._dated(op, item, args, site) for item in result.items), result.kind)
        if isinstance(result, Many):
            return Many(self._dated(op, result.element, args, site))
        if not isinstance(result, Tensor):
            return result
        source = next(
            (t for a in args for t in tensors_in(a) if t.origin is not None and t.dtypes & result.dtypes),
            None,
        )
        operands = [t for a in args for t in tensors_in(a)]
        is_new = (
            bool(operands) and not any(t.dtypes == result.dtypes for t in operands) and result.dtypes != ANY
        )
        marks = frozenset(known.kept_marks(op, operands))
        if self.ambient.enabled and is_new:
            why = f"{op} gives {_said(result.dtypes)} {BY_AUTOCAST}"
            return replace(result, origin=site, why=why, op=op, site=site, marks=marks)
        if source is None:
            return replace(result, op=op, site=site, marks=marks)
        return replace(result, origin=source.origin, why=source.why, op=op, site=site, marks=marks)

    def _unary(self, expr: ir.Unary) -> Value:
        value = self.value(expr.operand)
        if expr.op == "not":
            found = truth_of(value)
            return Number("bool") if found is None else Py(not found, expr.site)
        folded = numbers.negated(value, expr.site) if expr.op == "-" else None
        if folded is not None:
            return folded
        if isinstance(value, Tensor):
            return self.operate("neg", (value,), {}, expr.site) if expr.op == "-" else value
        return value if isinstance(value, Number) else TOP

    def _bool(self, expr: ir.Bool) -> Value:
        left = self.value(expr.left)
        known = truth_of(left)
        if known is (expr.op == "or"):
            return left
        right = self.value(expr.right)
        return right if known is not None else join(left, right)

    def _compare(self, expr: ir.Compare) -> Value:
        left, right = self.value(expr.left), self.value(expr.right)
        if expr.op in ("==", "!=", "<", "<=", ">", ">=") and (tensors_in(left) or tensors_in(right)):
            shapes = {t.is_scalar for t in (*tensors_in(left), *tensors_in(right))}
            scalar = False if False in shapes else True if shapes == {True} else None
            return Tensor(frozenset((BOOL,)), scalar)
        return numbers.compared(expr.op, left, right)

    def _if_expression(self, expr: ir.IfExp) -> Value:
        test = self.truth(expr.test)
        if test is not None:
            return self.value(expr.body if test else expr.orelse)
        self._note_switch(expr.test, walk.inside(expr.body))
        return join(self.value(expr.body), self.value(expr.orelse))

    def _subscript(self, expr: ir.Subscript) -> Value:
        owner = self.value(expr.value)
        index = self.value(expr.index)
        return either([self._item(one, index, expr) for one in alternatives(owner)])

    def _item(self, owner: Value, index: Value, expr: ir.Subscript) -> Value:
        is_slice = isinstance(expr.index, ir.Other) and expr.index.kind == "Slice"
        if isinstance(owner, Tensor):
            marks = frozenset(known.kept_marks("getitem", [owner]))
            found = replace(owner, is_scalar=None, op="getitem", site=expr.site, marks=marks)
            self.note("getitem", expr.site, (owner, index), {}, found)
            return found
        if isinstance(owner, Sequence_):
            if (
                isinstance(index, Py)
                and isinstance(index.value, int)
                and -len(owner.items) <= index.value < len(owner.items)
            ):
                return owner.items[index.value]
            return owner if is_slice else element_of(owner)
        if isinstance(owner, Many):
            return owner if is_slice else owner.element
        if isinstance(owner, Mapping_):
            values: dict[Any, Value] = dict(owner.items)
            if isinstance(index, Py):
                return values.get(index.value, owner.rest if owner.rest is not None else TOP)
            return join_all([*values.values(), owner.rest if owner.rest is not None else TOP])
        if isinstance(owner, Ref):
            return methods.module_item(self, owner, index)
        return TOP

    def _items(self, expr: ir.Items) -> Value:
        if expr.kind == "dict":
            items: dict[Any, Value] = {}
            rest: Value | None = None
            pairs = iter(expr.items)
            for key in pairs:
                if isinstance(key, ir.Star):
                    more = self.value(key.value)
                    if isinstance(more, Mapping_):
                        items.update(dict(more.items))
                        rest = more.rest or rest
                    else:
                        rest = TOP
                    continue
                name, value = self.value(key), self.value(next(pairs))
                if isinstance(name, Py):
                    items[name.value] = value
                else:
                    rest = value if rest is None else join(rest, value)
            return Mapping_(tuple(items.items()), rest)
        if any(isinstance(item, ir.Star) for item in expr.items):
            parts: list[Value] = []
            for item in expr.items:
                value = self.value(item.value) if isinstance(item, ir.Star) else self.value(item)
                if isinstance(item, ir.Star) and isinstance(value, Sequence_):
                    parts.extend(value.items)
                elif isinstance(item, ir.Star):
                    return Many(join_all([*parts, element_of(value)]))
                else:
                    parts.append(value)
            return Sequence_(tuple(parts), expr.kind)
        return Sequence_(tuple(self.value(item) for item in expr.items), expr.kind)

    def _comprehension(self, expr: ir.Comprehension) -> Value:
        before = dict(self.state.variables)
        rows: list[Value] | None = None
        if len(expr.parts) == 1 and not expr.parts[0][2] and expr.kind in ("list", "generator"):
            target, iterable, _ = expr.parts[0]
            over = iterated(self, self.value(iterable))
            items = self._unrolled(over)
            if items is not None:
                rows = []
                for item in items:
                    self._assign(target, item)
                    rows.append(self.value(expr.element[0]))
                self.state.variables = before
                return Sequence_(tuple(rows), "list")
            self._assign(target, element_of(over))
        else:
            for target, iterable, tests in expr.parts:
                self._assign(target, element_of(self.value(iterable)))
                for test in tests:
                    self.value(test)
        values = [self.value(part) for part in expr.element]
        self.state.variables = before
        if expr.kind == "dict":
            return Mapping_((), values[-1])
        return Many(values[-1])

    def _walrus(self, expr: ir.Walrus) -> Value:
        value = self.value(expr.value)
        self._assign(expr.target, value)
        return value

    def _lambda(self, expr: ir.Lambda) -> Value:
        return LambdaValue(expr, expr.site, self.frame)

    def _other(self, expr: ir.Other) -> Value:
        found = [self.value(part) for part in expr.parts]
        if expr.kind in ("Yield", "From") and self._calls:
            self.call.yielded.append(found[0] if found else NONE)
        if expr.kind == "Await" and found:
            return found[0]
        if expr.kind == "text" or expr.kind.endswith("String"):
            return Number() if expr.kind == "Float" else Lib("builtins.str instance")
        return TOP

    # -- calls ----------------------------------------------------------------------------------------------

    def _call_expression(self, expr: ir.Call) -> Value:
        func = self._callee(expr)
        args, keywords = self._arguments(expr)
        return either([self.apply(one, args, keywords, expr) for one in alternatives(func)])

    def _callee(self, expr: ir.Call) -> Value:
        func = expr.func
        if isinstance(func, ir.Attr) and not names(func):
            if isinstance(func.value, ir.Call) and names(func.value.func) == ("builtins.super",):
                return self._super(func.attr)
            owner = self.value(func.value)
            return either([self._method(one, func) for one in alternatives(owner)])
        return self.value(func)

    def _method(self, owner: Value, func: ir.Attr) -> Value:
        if isinstance(owner, (Ref, Class)):
            found = self.attribute(owner, func.attr, func)
            return found if found != TOP else Method(owner, func.attr)
        return Method(owner, func.attr)

    def _super(self, name: str) -> Value:
        function = self.call.function
        me = self.call.me
        if me is None:
            first = function.params[0].name if function.params else ""
            me = self.state.variables.get((self.frame, function.qualname, first))
        klass = function.owner
        if isinstance(me, Ref) and klass in self.classes.by_name and klass is not None:
            above = self.classes.above(klass, name)
            if above is not None:
                return Function(above, me)
            return Lib(f"super.{name}")
        return Lib(f"super.{name}")

    def _arguments(self, expr: ir.Call) -> tuple[list[Value], dict[str, Value]]:
        args: list[Value] = []
        keywords: dict[str, Value] = {}
        is_open = False
        for arg in expr.args:
            value = self.value(arg.value)
            if arg.star == "*":
                if isinstance(value, Sequence_):
                    args.extend(value.items)
                else:
                    args.append(element_of(value))
                    is_open = True  # nobody knows where what is behind it goes
            elif arg.star == "**":
                if isinstance(value, Mapping_):
                    keywords.update({str(k): v for k, v in value.items})
                    if value.rest is not None:
                        keywords["**"] = TOP
                else:
                    keywords["**"] = TOP
            elif arg.keyword is not None:
                keywords[arg.keyword] = value
            else:
                args.append(TOP if is_open else value)
        return args, keywords

    def apply(
        self, func: Value, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
    ) -> Value:
        """What calling a value gives."""
        if isinstance(func, Function):
            return self._call_function(func, args, keywords, expr)
        if isinstance(func, Class):
            return self._instance(func.qualname, args, keywords, expr)
        if isinstance(func, LambdaValue):
            node: ir.Lambda = func.node
            for name, value in zip(node.params, args, strict=False):
                self.state.variables[self.frame, node.scope, name] = value
            return self.value(node.body)
        if isinstance(func, Partial):
            return self.apply(func.func, [*func.args, *args], {**dict(func.keywords), **keywords}, expr)
        if isinstance(func, Ref):
            return self.call_object(func, args, keywords, expr)
        if isinstance(func, Lib):
            matters = self._matters(args, keywords)
            if matters or func.name.rpartition(".")[2][:1].isupper():
                found = self.elsewhere(func.name)
                if isinstance(found, Function) and matters:
                    return self._call_function(found, args, keywords, expr)
                if isinstance(found, Class):
                    return self._later(found, args, keywords, expr)
            return library.call(self, func.name, args, keywords, expr)
        if isinstance(func, Dtype) and names(expr.func) == ("builtins.float",):
            return library.call(self, "builtins.float", args, keywords, expr)
        if isinstance(func, Method):
            return methods.method(self, func, args, keywords, expr)
        return modules.call_unknown(self, func, args, keywords, expr)

    def elsewhere(self, name: str) -> Value | None:
        """The function or class of another file that a qualified name denotes here."""
        if self._files is None or not self._calls:
            return None
        found = self._files.resolve(name, self.call.function.qualname)
        if found is None:
            return None
        if len(self._files.classes) > len(self.classes.by_name):
            self.classes.add(self._files.classes)
        return Class(found) if found in self.classes.by_name else Function(found)

    def _matters(self, args: Sequence[Value], keywords: Mapping[str, Value]) -> bool:
        """Whether what is called may see low precision: in a region, or by what it is given."""
        if self.ambient.enabled:
            return True
        given = (*args, *keywords.values())
        return any(is_possible(t.dtypes) for v in given for t in tensors_in(v)) or any(
            isinstance(v, (Ref, Dtype)) for v in given
        )

    def _later(
        self, klass: Class, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
    ) -> Value:
        """An instance of a class of another file, which is made when something is done with it."""
        ref = Ref((*self.frame, expr.site))
        given = (("#args", Sequence_(tuple(args))), ("#keywords", Mapping_(tuple(keywords.items()))))
        self.state.heap[ref.key] = Object(
            klass.qualname,
            (*given, ("#call", LambdaValue(expr, expr.site, ()))),
            self.default,
            site=expr.site,
        )
        return ref

    def made(self, ref: Ref) -> Object | None:
        """An object, which is made now if that was put off."""
        thing = self.state.heap.get(ref.key)
        if thing is None or not is_put_off(thing):
            return thing
        args, keywords, call = (value for _, value in thing.fields[:3])
        assert (
            isinstance(args, Sequence_) and isinstance(keywords, Mapping_) and isinstance(call, LambdaValue)
        )
        self.state.heap[ref.key] = Object(thing.cls, (), self.default, is_own=True, site=thing.site)
        init = self.classes.method(thing.cls, "__init__")
        if init is not None:
            self.invoke(init, ref, args.items, {str(k): v for k, v in keywords.items}, call.site)
        else:
            self._data_fields(thing.cls, ref, args.items, {str(k): v for k, v in keywords.items})
        if thing.params != self.default:
            self.cast_module(ref, thing.params, thing.origin or call.site, thing.why)
        return self.state.heap.get(ref.key)

    def _call_function(
        self, func: Function, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
    ) -> Value:
        function = self.functions.get(func.qualname)
        if function is not None and any(_CONTEXTS.search(last(d)) for d in function.decorators):
            found = self._context_manager(function, func, args, keywords, expr.site)
            if found is not None:
                return found
        return self.invoke(func.qualname, func.me, args, keywords, expr.site, func.frame)

    def _context_manager(
        self,
        function: ir.Function,
        func: Function,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
        site: int,
    ) -> Value | None:
        """The region that a generator of `contextlib.contextmanager` enters around its yield."""
        if any(call.function is function for call in self._calls) or len(self._calls) > _DEEPEST:
            return None
        bound = self._bound(function, func.me, args, keywords)
        frame = (*self.frame, site)
        for name, value in bound.items():
            self.state.variables[frame, function.qualname, name] = value
        self._calls.append(Call(function, frame, func.me))
        try:
            for stmt in walk.statements(function.body):
                if isinstance(stmt, ir.With) and any(_is_yield(e) for e in walk.expressions(stmt.body)):
                    for item, _ in stmt.items:
                        for one in alternatives(self.value(item)):
                            if isinstance(one, Region):
                                return one
        finally:
            self._calls.pop()
        return None

    def _instance(
        self, klass: str, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
    ) -> Value:
        """A new instance of a class at hand."""
        if known.is_namedtuple(self, klass):
            return TOP
        ref = Ref((*self.frame, expr.site))
        self.state.heap[ref.key] = Object(klass, (), self.default, is_own=True, site=expr.site)
        init = self.classes.method(klass, "__init__")
        if init is not None:
            self.invoke(init, ref, args, keywords, expr.site)
        else:
            self._data_fields(klass, ref, args, keywords)
        return ref

    def _data_fields(
        self, klass: str, ref: Ref, args: Sequence[Value], keywords: Mapping[str, Value]
    ) -> None:
        """Fields of a dataclass."""
        given = list(args)
        for each in reversed(self.classes.order(klass)):
            for stmt in self.classes.by_name[each].body:
                if (
                    isinstance(stmt, ir.Assign)
                    and stmt.annotation is not None
                    and isinstance(stmt.targets[0], ir.Name)
                ):
                    name = stmt.targets[0].id
                    if given:
                        value = given.pop(0)
                    elif name in keywords:
                        value = keywords[name]
                    else:
                        value = self.value(stmt.value) if stmt.value is not None else TOP
                    self.state.heap[ref.key] = self.state.heap[ref.key].with_field(name, value)

    def call_object(
        self, ref: Ref, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
    ) -> Value:
        """What calling an object gives."""
        thing = self.state.heap.get(ref.key)
        if thing is not None and is_put_off(thing):
            if not (self._matters(args, keywords) or is_possible(thing.params)):
                return TOP
            thing = self.made(ref)
        if thing is None:
            return TOP
        if thing.is_own:
            method = self.classes.method(thing.cls, "__call__") or self.classes.method(thing.cls, "forward")
            if method is not None:
                return self.invoke(method, ref, args, keywords, expr.site)
        return modules.call_module(self, ref, thing, args, keywords, expr)

    # -- modules --------------------------------------------------------------------------------------------

    def cast_module(
        self,
        ref: Ref,
        dtypes: Dtypes,
        site: int,
        why: str,
        seen: frozenset[Any] = frozenset(),
        keeps: Dtypes = frozenset(),
    ) -> None:
        """Change the dtype of all parameters and buffers of a module, but of those that are all of the kept dtypes."""
        thing = self.state.heap.get(ref.key)
        if thing is None or ref.key in seen or (thing.params and thing.params <= keeps):
            return
        if is_put_off(thing):
            self.state.heap[ref.key] = replace(thing, params=dtypes, origin=site, why=why)
            return
        seen = seen | {ref.key}
        fields = []
        for name, value in thing.fields:
            if isinstance(value, Tensor) and value.marks & known.IN_MODULE and not value.dtypes <= keeps:
                cast = frozenset(
                    d for one in value.dtypes for d in (dtypes if known.is_floating(one) else (one,))
                )
                value = replace(value, dtypes=cast, origin=site, why=why)
            fields.append((name, value))
            for inner in _refs(value):
                self.cast_module(inner, dtypes, site, why, seen, keeps)
        thing = self.state.heap[ref.key]
        self.state.heap[ref.key] = replace(thing, fields=tuple(fields), params=dtypes, origin=site, why=why)

    def parameters_of(self, ref: Ref, seen: frozenset[Any] = frozenset()) -> Iterator[Tensor]:
        """The parameters of a module, one for each part that has its own dtype."""
        thing = self.state.heap.get(ref.key)
        if thing is None or ref.key in seen:
            return
        if is_put_off(thing):
            yield Tensor(thing.params, False, thing.origin, thing.why, marks=frozenset(("parameter",)))
            return
        seen = seen | {ref.key}
        has_own = False
        for _, value in thing.fields:
            for tensor in tensors_in(value):
                if "parameter" in tensor.marks:
                    has_own = True
                    yield tensor
            for inner in _refs(value):
                has_own = True
                yield from self.parameters_of(inner, seen)
        if not has_own and known.has_parameters(thing.cls):
            op, site = ("deepcopy", thing.site) if thing.is_copy else ("", None)
            yield Tensor(
                thing.params, False, thing.origin, thing.why, op, site, marks=frozenset(("parameter",))
            )

    def is_module(self, ref: Ref) -> bool:
        """Whether an object is a torch module."""
        thing = self.state.heap.get(ref.key)
        if thing is None:
            return False
        if not thing.is_own and not is_put_off(thing):
            return thing.cls.startswith("torch.nn.") or thing.cls == known.UNKNOWN_MODULE
        return any(known.is_module_class(name) for bases in self.classes.foreign(thing.cls) for name in bases)

    def escapes(self, value: Value, to: str) -> None:
        """A module was handed to code that is not looked into, which may cast it."""
        if isinstance(value, Ref) and self.is_module(value) and _CHANGES_DTYPE.search(to):
            self.cast_module(value, ANY, 0, "")


def switch(test: ir.Expr) -> str:
    """What identifies the test of a switch wherever it is asked: `args.fp16`, `precision == "fp16"`; "" for others."""
    if isinstance(test, ir.Name):
        return test.id
    if isinstance(test, ir.Attr):
        owner = switch(test.value)
        return f"{owner}.{test.attr}" if owner else ""
    if isinstance(test, ir.Compare) and test.op == "==" and isinstance(test.right, ir.Const):
        owner = switch(test.left)
        return f"{owner} == {test.right.value!r}" if owner else ""
    return ""


def _lowers(expr: ir.Expr) -> bool:
    """Whether an expression names a cast to low precision, or a low dtype."""
    if isinstance(expr, ir.Call):
        return last(expr.func) in ("half", "bfloat16")
    return isinstance(expr, (ir.Name, ir.Attr)) and any(known.dtype_named(n) in LOW for n in names(expr))


def _may_be_low(value: Value) -> bool:
    if isinstance(value, Dtype):
        return True
    return isinstance(value, Ref) or any(is_possible(t.dtypes) for t in tensors_in(value))


def is_put_off(thing: Object) -> bool:
    """Whether an object is made only when something is done with it."""
    return bool(thing.fields) and thing.fields[0][0] == "#args"


def _refs(value: Value) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, Sequence_):
        for item in value.items:
            yield from _refs(item)
    elif isinstance(value, Many):
        yield from _refs(value.element)
    elif isinstance(value, Either):
        for item in value.values:
            yield from _refs(item)


def _is_empty(value: Value) -> bool:
    return isinstance(value, Sequence_) and not value.items


def _is_yield(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Other) and expr.kind == "Yield"


def _one(value: Value) -> Value:
    """An operand without alternatives, where tensors are among them."""
    if isinstance(value, Either):
        found = tensors_in(value)
        if found:
            others = [v for v in value.values if not isinstance(v, Tensor)]
            is_number = all(numbers.is_number(v) or v == NONE for v in others)
            return join_all(found) if is_number else join_all([*found, TOP])
        if all(isinstance(v, (Py, Number)) for v in value.values):
            return Number()
        return TOP
    return value


def _said(dtypes: Dtypes) -> str:
    known = sorted(d for d in dtypes if d != UNKNOWN)
    return " or ".join(known) or "another dtype"


def _dtypes_of(value: Value) -> Dtypes:
    if isinstance(value, Dtype) and UNKNOWN not in value.dtypes:
        return value.dtypes
    if isinstance(value, Sequence_) and value.items:
        found = [_dtypes_of(item) for item in value.items]
        return frozenset().union(*found) if all(len(each) == 1 for each in found) else frozenset()
    return frozenset()


def truth_of(value: Value) -> bool | None:
    """The truth of a value, where it is known."""
    if isinstance(value, Py):
        return bool(value.value)
    if isinstance(value, (Ref, Function, Class, Dtype, Device, LambdaValue, Method, Partial)):
        return True
    if isinstance(value, Sequence_):
        return bool(value.items)
    if isinstance(value, Either):
        found = {truth_of(one) for one in value.values}
        return found.pop() if len(found) == 1 else None
    return None


def _written(expr: ir.Expr) -> str:
    """The names in an expression, for guesses about what it is."""
    return " ".join(
        [
            *names(expr.func if isinstance(expr, ir.Call) else expr),
            *(last(e) for e in walk.inside(expr) if last(e)),
        ]
    )


_VALUES: dict[type, Any] = {
    ir.Name: Machine._name,
    ir.Attr: Machine._attribute,
    ir.Const: lambda machine, expr: Py(expr.value, expr.site),
    ir.Call: Machine._call_expression,
    ir.Binary: Machine._binary,
    ir.Unary: Machine._unary,
    ir.Bool: Machine._bool,
    ir.Compare: Machine._compare,
    ir.IfExp: Machine._if_expression,
    ir.Subscript: Machine._subscript,
    ir.Items: Machine._items,
    ir.Star: lambda machine, expr: machine.value(expr.value),
    ir.Comprehension: Machine._comprehension,
    ir.Walrus: Machine._walrus,
    ir.Lambda: Machine._lambda,
    ir.Other: Machine._other,
}
