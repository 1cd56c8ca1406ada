"""What one file's variables and attributes hold, worked out once for all rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.bindings import Binding
from amplint.flow.lift import last, names
from amplint.flow.objects import Objects
from amplint.flow.protocol import Alias, Flag, Made
from amplint.flow.remembered import Remembered
from amplint.model import ir

if TYPE_CHECKING:
    from amplint.model.module import ModuleModel

#: Aliases and flags are replaced by what they stand for at most this many times.
_DEEPEST = 6
#: What may stand in a chain between a module and the variable that holds it.
CHAINED = ("to", "cuda", "npu", "cpu", "half", "bfloat16", "train", "eval", "compile", "requires_grad_")
#: What gives back its first argument, wrapped.
WRAPPERS = (
    "DistributedDataParallel",
    "DataParallel",
    "compile",
    "convert_sync_batchnorm",
    "prepare",
    "DDP",
    "FSDP",
    "FullyShardedDataParallel",
)
_NO_GRADIENTS = (
    "torch.no_grad",
    "torch.inference_mode",
    "torch.autograd.no_grad",
    "torch.autograd.inference_mode",
)


@dataclass(frozen=True, slots=True)
class Placed:
    """A call, and where it stands."""

    call: ir.Call
    function: str
    #: The tests around it.
    guard: c.Formula
    #: Under `no_grad`, or in a function that is decorated with it.
    inference: bool


class Held(Objects):
    """`Objects`, and questions that several rules ask about values, guards and calls."""

    @cached_property
    def calls(self) -> tuple[Placed, ...]:
        """Every call of the file with the tests around it, function by function."""
        return tuple(
            placed
            for name, function in self.functions.items()
            for placed in self._placed(function.body, name, (), is_inference(function))
        )

    def _placed(
        self, block: ir.Block, function: str, guards: tuple[c.Formula, ...], inference: bool
    ) -> Iterator[Placed]:
        for stmt in block:
            for expr in walk.own(stmt):
                yield from self._calls_in(expr, function, guards, inference)
            if isinstance(stmt, ir.If):
                test = self.lift.formula(stmt.test)
                yield from self._placed(stmt.body, function, (*guards, test), inference)
                yield from self._placed(stmt.orelse, function, (*guards, c.negate(test)), inference)
                if _leaves(stmt.body) and not stmt.orelse:
                    guards = (*guards, c.negate(test))
                continue
            inner = inference or (
                isinstance(stmt, ir.With) and any(stops_gradients(item) for item, _ in stmt.items)
            )
            for part in walk.blocks(stmt):
                yield from self._placed(part, function, guards, inner)

    def _calls_in(
        self, expr: ir.Expr, function: str, guards: tuple[c.Formula, ...], inference: bool
    ) -> Iterator[Placed]:
        if isinstance(expr, ir.IfExp):
            test = self.lift.formula(expr.test)
            yield from self._calls_in(expr.test, function, guards, inference)
            yield from self._calls_in(expr.body, function, (*guards, test), inference)
            yield from self._calls_in(expr.orelse, function, (*guards, c.negate(test)), inference)
            return
        if isinstance(expr, ir.Call):
            yield Placed(expr, function, c.both(*guards), inference)
        for part in walk.parts(expr):
            yield from self._calls_in(part, function, guards, inference)

    # -- values ---------------------------------------------------------------------------------------------

    def values(self, path: c.Path) -> tuple[Binding, ...]:
        """Every assignment to `path` in this file."""
        return tuple(self._bindings.get(self.home(path), ()))

    def is_param(self, path: c.Path) -> bool:
        """Whether `path` is a parameter of a function of this file."""
        return len(path) == 1 and ":" in path[0] and self._is_param(path[0])

    def given(self, path: c.Path) -> tuple[tuple[ir.Expr, ...], bool]:
        """What a parameter is given (by calls in this file, and by default), and whether that is all."""
        scope, _, name = path[0].partition(":")
        param = next(p for p in self.functions[scope].params if p.name == name)
        found = () if param.default is None else (param.default,)
        calls = self._calls.get(scope, [])
        complete = bool(calls) and scope not in self.as_values and not param.star
        for call in calls:
            handed = {p.name: value for p, value in self.bound(scope, call)}.get(name)
            found = (*found, *((handed,) if handed is not None else ()))
            complete = complete and (handed is not None or param.default is not None)
        return found, complete

    def origins(self, path: c.Path) -> tuple[c.Path, ...]:
        """`path` and the variables that it got its value from, through assignments and arguments."""
        found: dict[c.Path, None] = {}
        stack = [path]
        while stack and len(found) < 40:
            current = self.home(stack.pop())
            if current in found:
                continue
            found[current] = None
            sources: list[ir.Expr | None] = [binding.value for binding in self.values(current)]
            if self.is_param(current):
                sources.extend(self.given(current)[0])
            for source in sources:
                stack.extend(self._sources(source))
        return tuple(found)

    def resolved(self, path: c.Path) -> c.Path:
        """`path` with what never changes followed to where it is assigned."""
        for _ in range(_DEEPEST):
            found = self._term(path)
            if self.values(path) or not isinstance(found, c.Ref) or found.path == path:
                break
            path = found.path
        return path

    def module_class(self, path: c.Path) -> str | None:
        """The class of this file whose instance `path` holds, maybe moved to a device or wrapped."""
        for origin in self.origins(path):
            values = [binding.value for binding in self.values(origin)]
            if self.is_param(origin):
                values.extend(self.given(origin)[0])
            for value in values:
                while isinstance(value, ir.Call):
                    klass = self.classes.klass(names(value.func))
                    if klass is not None:
                        return klass
                    if isinstance(value.func, ir.Attr) and value.func.attr in CHAINED:
                        value = value.func.value
                    elif last(value.func) in WRAPPERS and value.args:
                        value = value.args[0].value
                    else:
                        break
        return None

    def results(self, function: str) -> tuple[ir.Expr, ...]:
        """What a function of this file returns."""
        body = self.functions[function].body
        returned = [s.value for s in walk.statements(body) if isinstance(s, ir.Return)]
        return tuple(value for value in returned if value is not None)

    def constant(self, expr: ir.Expr | None, depth: int = 0) -> c.Lit | None:
        """The one literal that `expr` is, also as a parameter that every call of this file gives the same."""
        if isinstance(expr, ir.Const):
            return c.Lit(expr.value)
        path = self.lift.path(expr)
        if path is None or depth > _DEEPEST or not self.is_param(path) or self.values(path):
            return None
        given, complete = self.given(path)
        found = {self.constant(value, depth + 1) for value in given}
        return found.pop() if complete and len(found) == 1 else None

    def never(self, guard: c.Formula, called: str, call: ir.Call) -> bool:
        """Whether the tests of `guard`, in the function that is called, cannot hold in this call of it."""
        known: dict[c.Path, c.Term] = {}
        for param, arg in self.bound(called, call):
            literal = self.constant(arg if arg is not None else param.default)
            if literal is not None and not any(a.star for a in call.args):
                known[(f"{called}:{param.name}",)] = literal
        if not known:
            return False

        def settle(atom: c.Atom) -> c.Formula:
            left = c.rewrite_term(atom.left, lambda path: known.get(path, c.Ref(path)))
            return c.rebuild(
                atom, left, c.rewrite_term(atom.right, lambda path: known.get(path, c.Ref(path)))
            )

        return c.evaluate(c.rewrite(guard, settle), {}) is False

    # -- formulas -------------------------------------------------------------------------------------------

    def expand(self, formula: c.Formula) -> c.Formula:
        """`formula` in terms of what never changes: flags and aliases are replaced by what they stand for."""
        for _ in range(_DEEPEST):
            after = c.rewrite(formula, self._expanded)
            if after == formula:
                break
            formula = after
        return formula

    def _expanded(self, atom: c.Atom) -> c.Formula:
        if atom.kind in ("truth", "none") and isinstance(atom.left, c.Ref) and self.is_scaler(atom.left.path):
            made = self.made(atom.left.path)
            if made is not None:
                return made.present if atom.kind == "truth" else c.negate(made.present)
        if atom.kind == "truth" and isinstance(atom.left, c.Ref):
            held = self.stable.get(self.home(atom.left.path))
            if isinstance(held, Flag):
                return held.formula
        left, right = c.rewrite_term(atom.left, self._term), c.rewrite_term(atom.right, self._term)
        if atom.kind == "in" and isinstance(right, c.Ref):
            right = self._display(right)
            if isinstance(right, c.Op) and right.name == "tuple":
                return c.compare("in", left, right)
        return c.rebuild(atom, left, right)

    def _term(self, path: c.Path) -> c.Term:
        for size in range(len(path), 0, -1):
            held = self.stable.get(self.home(path[:size]))
            if isinstance(held, Alias):
                if size == len(path):
                    return held.term
                if isinstance(held.term, c.Ref):
                    return c.Ref((*held.term.path, *path[size:]))
        return c.Ref(self.home(path))

    def _display(self, ref: c.Ref) -> c.Term:
        """The keys of a dictionary, or the items of a list, that is written out where it is assigned."""
        found = self.values(ref.path)
        value = found[0].value if len(found) == 1 else None
        if not isinstance(value, ir.Items):
            return ref
        items = value.items[::2] if value.kind == "dict" else value.items
        return c.Op("tuple", tuple(self.lift.term(item) for item in items))

    def implies(self, premise: c.Formula, conclusion: c.Formula) -> bool:
        """Whether `conclusion` is certain wherever `premise` holds, and that can be."""
        wanted = self.expand(conclusion)
        ways = c.assume(self.expand(premise), True, {})
        return bool(ways) and all(c.evaluate(wanted, known) is True for known in ways)

    def may_be(self, *formulas: c.Formula) -> bool:
        """Whether all of `formulas` can hold together, as far as is known."""
        return bool(c.assume(self.expand(c.both(*formulas)), True, {}))

    # -- scalers --------------------------------------------------------------------------------------------

    def scaler_made(self, path: c.Path) -> Made | None:
        """When the scaler at `path` exists and scales, wherever it was handed over from."""
        found = self.made(path)
        if found is not None:
            return found
        if self.is_param(path) and not self.values(path):
            args, complete = self.given(path)
            made = [self.made_by(arg) or self._made_at(arg) for arg in args]
            known = [m for m in made if m is not None]
            if complete and len(known) == len(made) == 1:
                return known[0]
        return None

    def _made_at(self, arg: ir.Expr) -> Made | None:
        path = self.lift.path(arg)
        return self.made(path) if path is not None else None

    def constructors(self) -> Iterator[Placed]:
        """Every place where a GradScaler is made."""
        return (placed for placed in self.calls if self.lift.constructs_scaler(placed.call))


def stops_gradients(expr: ir.Expr) -> bool:
    """Whether entering `expr` (or decorating with it) turns gradients off."""
    func = expr.func if isinstance(expr, ir.Call) else expr
    return any(name in _NO_GRADIENTS for name in names(func))


def is_inference(function: ir.Function) -> bool:
    """Whether a function is decorated with `no_grad` or `inference_mode`."""
    return any(stops_gradients(decorator) for decorator in function.decorators)


def _leaves(block: ir.Block) -> bool:
    return bool(block) and isinstance(block[-1], (ir.Return, ir.Raise, ir.Jump))


_FOUND: Remembered[ModuleModel, Held] = Remembered("held")


def objects_of(model: ModuleModel) -> Held:
    """What one file's variables hold, made once and shared by all rules."""
    found = _FOUND.get(model)
    if found is None:
        found = _FOUND[model] = Held(model)
    return found
