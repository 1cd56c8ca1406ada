"""Which variables and attributes of one file are one object, and which of them never change.

Variables that are plainly handed on (`self.scaler = scaler`, an argument to a function of this file) count as
one object; what is known of one of them is known of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.classes import Classes
from amplint.flow.lift import Lift, names
from amplint.flow.protocol import Alias, Flag, Made, Value
from amplint.model import ir


@dataclass(frozen=True, slots=True)
class Binding:
    """One assignment of a path: the value (None where it is not a plain one), and under which tests."""

    value: ir.Expr | None
    function: str
    guards: tuple[c.Formula, ...]
    in_loop: bool


class Module(Protocol):
    """What is read of a module, or of several that are looked at together."""

    @property
    def functions(self) -> Mapping[str, ir.Function]:
        """Qualname -> function, in the order of the text."""

    @property
    def classes(self) -> Mapping[str, ir.Class]:
        """Qualname -> class, in the order of the text."""


class Bindings:
    """Who holds the same object, in one file."""

    def __init__(self, module: Module) -> None:
        self.functions: dict[str, ir.Function] = dict(module.functions)
        self.classes = Classes(module.classes)
        self.lift = Lift(self.classes, self.functions)
        self._bindings: dict[c.Path, list[Binding]] = {}
        self._parent: dict[c.Path, c.Path] = {}
        self._instance: dict[c.Path, str | None] = {}
        self._calls: dict[str, list[ir.Call]] = {}
        self.as_values: set[str] = set()
        #: What `home` and `_find` have answered; kept once all is unified.
        self._homes: dict[c.Path, c.Path] = {}
        self._found: dict[c.Path, c.Path] = {}
        self._is_unified = False
        self._bind_all()
        self._unify_all()
        self._is_unified = True
        self._class_of = self._find_classes()
        self.stable = self._stable()

    # -- bindings -------------------------------------------------------------------------------------------

    def _bind_all(self) -> None:
        for name, function in self.functions.items():
            self._bind_block(function.body, name, (), False)
        for name, klass in self.classes.by_name.items():
            root = self.lift.self_root(name)
            for stmt in klass.body:
                if isinstance(stmt, ir.Assign):
                    for target in stmt.targets:
                        if isinstance(target, ir.Name):
                            self._bind((root, target.id), Binding(stmt.value, "", (), False))

    def _bind(self, path: c.Path, binding: Binding) -> None:
        self._bindings.setdefault(path, []).append(binding)

    def _bind_block(
        self, block: ir.Block, function: str, guards: tuple[c.Formula, ...], in_loop: bool
    ) -> None:
        for stmt in block:
            if isinstance(stmt, ir.If):
                test = self.lift.formula(stmt.test)
                self._bind_block(stmt.body, function, (*guards, test), in_loop)
                self._bind_block(stmt.orelse, function, (*guards, c.negate(test)), in_loop)
                continue
            if isinstance(stmt, ir.Assign) and stmt.value is not None:
                for target in stmt.targets:
                    self._bind_target(target, stmt.value, function, guards, in_loop)
            elif isinstance(stmt, (ir.AugAssign, ir.Delete)):
                self._bind_target(stmt.target, None, function, guards, in_loop)
            elif isinstance(stmt, ir.With):
                for context, bound in stmt.items:
                    if bound is not None:
                        self._bind_target(bound, context, function, guards, in_loop)
            elif isinstance(stmt, ir.For):
                self._bind_target(stmt.target, None, function, guards, True)
            looping = in_loop or isinstance(stmt, (ir.For, ir.While))
            unknown = () if isinstance(stmt, ir.With) else (c.truth(c.Unknown()),)
            for inner in walk.blocks(stmt):
                self._bind_block(inner, function, (*guards, *unknown), looping)

    def _bind_target(
        self,
        target: ir.Expr,
        value: ir.Expr | None,
        function: str,
        guards: tuple[c.Formula, ...],
        in_loop: bool,
    ) -> None:
        if isinstance(target, ir.Items):
            parts = self._unpacked(target, value)
            for item, part in zip(target.items, parts, strict=True):
                self._bind_target(item, part, function, guards, in_loop)
            return
        path = self.lift.path(target)
        if path is not None:
            self._bind(path, Binding(value, function, guards, in_loop))

    def _unpacked(self, target: ir.Items, value: ir.Expr | None) -> list[ir.Expr | None]:
        size = len(target.items)
        if isinstance(value, ir.Call):
            value = self._result(self.classes.local(names(value.func)))
        items = value.items if isinstance(value, ir.Items) else ()
        if len(items) == size and not any(isinstance(item, ir.Star) for item in (*items, *target.items)):
            return list(items)
        return [None] * size

    def _result(self, function: str | None) -> ir.Expr | None:
        """What a function of this file returns, where it returns in one place."""
        found = self.functions.get(function) if function else None
        if found is None:
            return None
        results = [s.value for s in walk.statements(found.body) if isinstance(s, ir.Return)]
        return results[0] if len(results) == 1 else None

    # -- one object under several names ---------------------------------------------------------------------

    def instance(self, path: c.Path) -> str | None:
        """The class of this file whose instance `path` holds."""
        if path in self._instance:
            return self._instance[path]
        self._instance[path] = None
        found: str | None = None
        if len(path) == 1 and path[0].endswith(".self"):
            return None
        for binding in self._bindings.get(self.home(path), ()):
            klass = self._constructed(binding.value)
            if klass is not None and not self.lift.is_scaler_class(self.classes.full_name(klass)):
                found = klass
        self._instance[path] = found
        return found

    def _constructed(self, value: ir.Expr | None) -> str | None:
        if isinstance(value, ir.IfExp):
            return self._constructed(value.body) or self._constructed(value.orelse)
        return self.classes.klass(names(value.func)) if isinstance(value, ir.Call) else None

    def home(self, path: c.Path) -> c.Path:
        """`path` with the instance it starts from replaced by the class's own `self`."""
        found = self._homes.get(path)
        if found is None:
            found = self._home(path)
            if self._is_unified:
                self._homes[path] = found
        return found

    def _home(self, path: c.Path) -> c.Path:
        for size in range(1, len(path)):
            klass = self.instance(path[:size])
            if klass is not None:
                return self.home((self.lift.self_root(klass), *path[size:]))
        return path

    def _find(self, path: c.Path) -> c.Path:
        found = self._found.get(path)
        if found is not None:
            return found
        found = self.home(path)
        while (above := self._parent.get(found, found)) != found:
            found = above
        if self._is_unified:
            self._found[path] = found
        return found

    def possible_classes(self, path: c.Path) -> tuple[str, ...]:
        """The classes of this file that `path` may be an instance of, under any of the object's names."""
        own = self.instance(path)
        return (own,) if own is not None else tuple(self._class_of.get(self._find(path), ()))

    def _find_classes(self) -> dict[c.Path, dict[str, None]]:
        found: dict[c.Path, dict[str, None]] = {}
        for path in self._bindings:
            klass = self.instance(path)
            if klass is not None:
                found.setdefault(self._find(path), {})[klass] = None
        return found

    def _unify(self, left: c.Path | None, right: c.Path | None) -> None:
        if left is None or right is None:
            return
        a, b = self._find(left), self._find(right)
        if a != b:
            self._parent[b] = a

    def _unify_all(self) -> None:
        for path in list(self._bindings):
            for binding in self._bindings[path]:
                for source in self._sources(binding.value):
                    self._unify(path, source)
        for function in self.functions.values():
            for expr in walk.expressions(function.body):
                if isinstance(expr, ir.Call):
                    self._call(expr, function)

    def _sources(self, value: ir.Expr | None) -> Iterator[c.Path]:
        """The paths that `value` hands on as they are."""
        if isinstance(value, (ir.IfExp, ir.Bool)):
            left, right = (
                (value.body, value.orelse) if isinstance(value, ir.IfExp) else (value.left, value.right)
            )
            yield from self._sources(left)
            yield from self._sources(right)
        elif isinstance(value, ir.Call) and self.classes.local(names(value.func)) in self.functions:
            yield from self._sources(self._result(self.classes.local(names(value.func))))
        elif value is not None and not isinstance(value, ir.Call):
            path = self.lift.path(value)
            if path is not None:
                yield path

    def _call(self, call: ir.Call, caller: ir.Function) -> None:
        for arg in call.args:
            for expr in walk.inside(arg.value):
                local = self.classes.local(names(expr))
                if local in self.functions:
                    self.as_values.add(local)
        called = self.callee(call, caller.owner)
        if called is None:
            return
        self._calls.setdefault(called, []).append(call)
        for param, value in self.bound(called, call):
            if value is not None:
                self._unify((f"{called}:{param.name}",), self.lift.path(value))

    def callee(self, call: ir.Call, owner: str | None) -> str | None:
        """The function of this file that a call reaches, as far as its text alone tells."""
        local = self.classes.local(names(call.func))
        if local in self.functions:
            return local
        if local in self.classes.by_name:
            return self.classes.method(local, "__init__")
        path = self.lift.path(call.func)
        if path is None:
            return None
        whole = self.instance(path)
        if whole is not None:
            return self.classes.method(whole, "__call__")
        if len(path) < 2:
            return None
        if owner in self.classes.by_name and path[:-1] == (self.lift.self_root(owner),):
            return self.classes.method(owner, path[-1])
        klass = self.instance(path[:-1])
        return self.classes.method(klass, path[-1]) if klass is not None else None

    def has_receiver(self, called: str) -> bool:
        """Whether the first parameter of `called` is the object that it is called on."""
        function = self.functions[called]
        return function.owner is not None and not function.is_static and bool(function.params)

    def bound(self, called: str, call: ir.Call) -> list[tuple[ir.Param, ir.Expr | None]]:
        """The parameters of `called` with what `call` hands to them (None: nothing, or not to be told)."""
        params = list(self.functions[called].params[1 if self.has_receiver(called) else 0 :])
        found: dict[str, ir.Expr] = {}
        plain = [p for p in params if not p.keyword_only and not p.star]
        for index, arg in enumerate(call.args):
            if arg.star:
                break
            if arg.keyword is not None:
                found[arg.keyword] = arg.value
            elif index < len(plain):
                found[plain[index].name] = arg.value
        return [(param, found.get(param.name)) for param in params if not param.star]

    # -- values that do not change --------------------------------------------------------------------------

    def _stable(self) -> dict[c.Path, Value]:
        found: dict[c.Path, Value] = {}
        for path, bindings in self._bindings.items():
            only = bindings[0]
            if len(path) == 1 and self._is_param(path[0]):
                continue  # it held something else before
            if len(bindings) == 1 and not only.in_loop and not only.guards and only.value is not None:
                value = self._value(only.value)
                if value is not None and self._is_fixed(path, value):
                    found[path] = value
        for called, calls in self._calls.items():
            if called not in self.as_values:
                found.update(self._stable_params(called, calls))
        return found

    def _value(self, expr: ir.Expr) -> Value | None:
        if isinstance(expr, (ir.Compare, ir.Bool)) or (isinstance(expr, ir.Unary) and expr.op == "not"):
            return Flag(self.lift.formula(expr))
        term = self.lift.term(expr)
        if isinstance(term, (c.Ref, c.Lit)) or (
            isinstance(term, c.Op) and term.name in ("+", "-", "*", "//")
        ):
            return Alias(term)
        return None

    def _is_fixed(self, path: c.Path, value: Value) -> bool:
        """Whether nothing that `value` reads is ever assigned again."""
        read = value_paths(value)
        return not any(p[: len(path)] == path or self._changes(p) for p in read)

    def _changes(self, path: c.Path) -> bool:
        for size in range(1, len(path) + 1):
            bindings = self._bindings.get(path[:size], ())
            is_param = len(path[:1][0].split(":")) == 2 and self._is_param(path[0])
            if len(bindings) > (0 if is_param and size == 1 else 1) or any(b.in_loop for b in bindings):
                return True
        return False

    def _is_param(self, root: str) -> bool:
        scope, _, name = root.partition(":")
        function = self.functions.get(scope)
        return function is not None and any(p.name == name for p in function.params)

    def _stable_params(self, called: str, calls: list[ir.Call]) -> Iterator[tuple[c.Path, Value]]:
        """Parameters that get the same variable from every call in this file."""
        given: dict[str, set[c.Path | None]] = {}
        for call in calls:
            for param, arg in self.bound(called, call):
                given.setdefault(param.name, set()).add(self.lift.path(arg))
        for name, paths in given.items():
            path = next(iter(paths))
            root = f"{called}:{name}"
            if len(paths) == 1 and path is not None and path[0] != root and (root,) not in self._bindings:
                yield (root,), Alias(c.Ref(path))


def value_paths(value: Value | None) -> list[c.Path]:
    """Every path that `value` reads."""
    if isinstance(value, Alias):
        return list(c.term_paths(value.term))
    if isinstance(value, Flag):
        return list(c.formula_paths(value.formula))
    if isinstance(value, Made):
        return [*c.formula_paths(value.present), *c.formula_paths(value.enabled)]
    return [*value.scalers, *value.losses] if value is not None else []
