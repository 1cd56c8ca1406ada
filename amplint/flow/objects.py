"""What the variables and attributes of one file hold, without regard to order: scalers, optimizers, parameters.

Variables that are plainly handed on (`self.scaler = scaler`, an argument to a function of this file) count as one
object; what is known of one of them is known of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.classes import Classes
from amplint.flow.gradients import is_sharded
from amplint.flow.lift import Lift, names, scaled_by
from amplint.flow.protocol import Alias, Flag, Made, Value
from amplint.model import ir
from amplint.model.module import ModuleModel


@dataclass(frozen=True, slots=True)
class _Binding:
    """One assignment of a path: the value (None where it is not a plain one), and under which tests."""

    value: ir.Expr | None
    function: str
    guards: tuple[c.Formula, ...]
    in_loop: bool


class Objects:
    """Flow-insensitive facts about one file."""

    def __init__(self, model: ModuleModel) -> None:
        self.functions: dict[str, ir.Function] = {}
        for name in model.function_names:
            found = model.function(name)
            if found is not None:
                self.functions[name] = found
        self.classes = Classes(model)
        self.lift = Lift(self.classes, self.functions)
        self._bindings: dict[c.Path, list[_Binding]] = {}
        self._parent: dict[c.Path, c.Path] = {}
        self._instance: dict[c.Path, str | None] = {}
        self._calls: dict[str, list[ir.Call]] = {}
        self.as_values: set[str] = set()
        self._bind_all()
        self._unify_all()
        self._class_of = self._find_classes()
        self.stable = self._stable()
        self._scalers = self._find_scalers()
        self.holders = self._find_holders()
        self._owners = self._find_owners()
        self.placeholders = {name for name, f in self.functions.items() if _is_empty(f)}
        self.optimizers = tuple(path for path in self._bindings if self.owned(path) is not None)

    # -- bindings --------------------------------------------------------------------------------------------

    def _bind_all(self) -> None:
        for name, function in self.functions.items():
            self._bind_block(function.body, name, (), False)
        for name, klass in self.classes.by_name.items():
            root = self.lift.self_root(name)
            for stmt in klass.body:
                if isinstance(stmt, ir.Assign):
                    for target in stmt.targets:
                        if isinstance(target, ir.Name):
                            self._bind((root, target.id), _Binding(stmt.value, "", (), False))

    def _bind(self, path: c.Path, binding: _Binding) -> None:
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
            self._bind(path, _Binding(value, function, guards, in_loop))

    def _unpacked(self, target: ir.Items, value: ir.Expr | None) -> list[ir.Expr | None]:
        size = len(target.items)
        if isinstance(value, ir.Call):
            value = self._result(self.classes.local(names(value.func)))
        if isinstance(value, ir.Items) and len(value.items) == size:
            if not any(isinstance(item, ir.Star) for item in (*value.items, *target.items)):
                return list(value.items)
        return [None] * size

    def _result(self, function: str | None) -> ir.Expr | None:
        """What a function of this file returns, where it returns in one place."""
        found = self.functions.get(function) if function else None
        if found is None:
            return None
        results = [s.value for s in walk.statements(found.body) if isinstance(s, ir.Return)]
        return results[0] if len(results) == 1 else None

    # -- one object under several names ----------------------------------------------------------------------

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
            if klass is not None and not self.lift.is_scaler_class(f"__main__.{klass}"):
                found = klass
        self._instance[path] = found
        return found

    def _constructed(self, value: ir.Expr | None) -> str | None:
        if isinstance(value, ir.IfExp):
            return self._constructed(value.body) or self._constructed(value.orelse)
        return self.classes.klass(names(value.func)) if isinstance(value, ir.Call) else None

    def home(self, path: c.Path) -> c.Path:
        """`path` with the instance it starts from replaced by the class's own `self`."""
        for size in range(1, len(path)):
            klass = self.instance(path[:size])
            if klass is not None:
                return self.home((self.lift.self_root(klass), *path[size:]))
        return path

    def _find(self, path: c.Path) -> c.Path:
        path = self.home(path)
        while (above := self._parent.get(path, path)) != path:
            path = above
        return path

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
            left, right = (value.body, value.orelse) if isinstance(value, ir.IfExp) else (value.left, value.right)
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
        for param, arg in self.bound(called, call):
            if arg is not None:
                self._unify((f"{called}:{param.name}",), self.lift.path(arg))

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

    # -- values that do not change ---------------------------------------------------------------------------

    def _stable(self) -> dict[c.Path, Value]:
        found: dict[c.Path, Value] = {}
        for path, bindings in self._bindings.items():
            only = bindings[0]
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
        if isinstance(term, (c.Ref, c.Lit)) or (isinstance(term, c.Op) and term.name in ("+", "-", "*", "//")):
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

    # -- scalers ---------------------------------------------------------------------------------------------

    def _find_scalers(self) -> set[c.Path]:
        shaped = {self._find(path) for path in self._evidence()}
        made: set[c.Path] = set()
        foreign: set[c.Path] = set()
        for path, bindings in self._bindings.items():
            for binding in bindings:
                kind = self._kind(binding.value)
                if kind == "scaler":
                    made.add(self._find(path))
                elif kind == "other":
                    foreign.add(self._find(path))
        made |= {self._find(path) for path in self._annotated()}
        return made | (shaped - foreign)

    def _kind(self, value: ir.Expr | None) -> str:
        """Whether `value` makes a scaler, something that is none, or cannot be told."""
        if isinstance(value, (ir.IfExp, ir.Bool)):
            parts = (value.body, value.orelse) if isinstance(value, ir.IfExp) else (value.left, value.right)
            kinds = {self._kind(part) for part in parts}
            return "scaler" if "scaler" in kinds else ("other" if "other" in kinds else "")
        if self.lift.constructs_scaler(value):
            return "scaler"
        if isinstance(value, ir.Call) and names(value.func):
            called = names(value.func)
            last = called[0].rpartition(".")[2]
            if all(called) and (self.classes.klass(called) or last[:1].isupper()):
                return "other"
        return ""

    def _evidence(self) -> Iterator[c.Path]:
        """Paths that behave as a scaler does: `X.unscale_(O)`, and `X.scale(loss)` of which a gradient is taken."""
        for function in self.functions.values():
            held: dict[c.Path, list[c.Path]] = {}
            for stmt in walk.statements(function.body):
                if isinstance(stmt, (ir.Assign, ir.AugAssign)) and stmt.value is not None:
                    targets = stmt.targets if isinstance(stmt, ir.Assign) else (stmt.target,)
                    for target in targets:
                        path = self.lift.path(target)
                        if path is not None:
                            held.setdefault(path, []).extend(self._products(stmt.value))
            for expr in walk.expressions(function.body):
                if isinstance(expr, ir.Call):
                    yield from self._call_evidence(expr, held)

    def _products(self, expr: ir.Expr) -> Iterator[c.Path]:
        for source in scaled_by(expr):
            path = self.lift.path(source)
            if path is not None and not _is_variable_of(expr, source):
                yield path

    def _call_evidence(self, call: ir.Call, held: dict[c.Path, list[c.Path]]) -> Iterator[c.Path]:
        if isinstance(call.func, ir.Attr) and call.func.attr == "unscale_" and call.args:
            path = self.lift.path(call.func.value)
            if path is not None:
                yield path
        for loss in backward_losses(call):
            for source in scaled_by(loss):
                path = self.lift.path(source)
                if path is None:
                    continue
                if _is_variable_of(loss, source):
                    yield from held.get(path, ())
                else:
                    yield path

    def _annotated(self) -> Iterator[c.Path]:
        for function in self.functions.values():
            for param in function.params:
                if param.annotation is not None and self._means_scaler(param.annotation):
                    yield (self.lift.variable(function.qualname, param.name),)
            for stmt in walk.statements(function.body):
                if isinstance(stmt, ir.Assign) and stmt.annotation is not None:
                    path = self.lift.path(stmt.targets[0])
                    if path is not None and self._means_scaler(stmt.annotation):
                        yield path

    def _means_scaler(self, annotation: ir.Expr) -> bool:
        return any(self.lift.is_scaler_class(name) for e in walk.inside(annotation) for name in names(e))

    def is_scaler(self, path: c.Path) -> bool:
        """Whether `path` holds a GradScaler."""
        return self._find(path) in self._scalers

    def made(self, path: c.Path) -> Made | None:
        """When the scaler at `path` exists and scales, by all places of this file that make it."""
        rep = self._find(path)
        present: list[c.Formula] = []
        enabled: list[c.Formula] = []
        for other, bindings in self._bindings.items():
            if self._find(other) != rep:
                continue
            for binding in bindings:
                found = self.made_by(binding.value)
                if found is None:
                    if not any(True for _ in self._sources(binding.value)):
                        return None
                    continue
                guard = c.both(*binding.guards)
                present.append(c.both(guard, found.present))
                enabled.append(c.both(guard, found.present, found.enabled))
        if not present:
            return None
        result = Made(c.either(*present), c.either(*enabled))
        if not (c.is_modelled(result.present) and c.is_modelled(result.enabled)):
            return None
        fixed = not any(self._changes(p) for p in value_paths(result))
        return result if fixed else None

    def made_by(self, value: ir.Expr | None) -> Made | None:
        """When `value` is a new scaler, and when that scales; None for anything but a scaler or None."""
        if isinstance(value, ir.Const) and value.value is None:
            return Made(False, False)
        if isinstance(value, ir.IfExp):
            body, orelse = self.made_by(value.body), self.made_by(value.orelse)
            if body is None or orelse is None:
                return None
            test = self.lift.formula(value.test)
            rest = c.negate(test)
            present = c.either(c.both(test, body.present), c.both(rest, orelse.present))
            return Made(present, c.either(c.both(test, body.enabled), c.both(rest, orelse.enabled)))
        if isinstance(value, ir.Call) and self.lift.constructs_scaler(value):
            enabled = self.lift.enabled(value)
            return Made(True, enabled) if enabled is not None else None
        return None

    def _find_holders(self) -> dict[c.Path, tuple[c.Path, ...]]:
        """Scaler -> the objects outside this file's view that were handed it and may use it later."""
        found: dict[c.Path, dict[c.Path, None]] = {}
        for function in self.functions.values():
            for stmt in walk.statements(function.body):
                targets = stmt.targets if isinstance(stmt, ir.Assign) else ()
                for expr in (e for whole in walk.own(stmt) for e in walk.inside(whole)):
                    if isinstance(expr, ir.Call) and self.callee(expr, function.owner) is None:
                        for scaler in self._handed_scalers(expr):
                            for holder in self._keepers(expr, targets):
                                found.setdefault(scaler, {})[holder] = None
        return {scaler: tuple(paths) for scaler, paths in found.items()}

    def _handed_scalers(self, call: ir.Call) -> Iterator[c.Path]:
        for arg in call.args:
            for path in self.handed(arg.value):
                if self.is_scaler(path):
                    yield self._find(path)

    def _keepers(self, call: ir.Call, targets: tuple[ir.Expr, ...]) -> Iterator[c.Path]:
        if isinstance(call.func, ir.Attr) and not names(call.func):
            path = self.lift.path(call.func.value)
            if path is not None and not path[-1].endswith(".self"):
                yield path
        if names(call.func) and names(call.func)[0].startswith("builtins."):
            return
        for target in targets:
            path = self.lift.path(target)
            if path is not None and not self.is_scaler(path):
                yield path

    def holders_of(self, scaler: c.Path) -> tuple[c.Path, ...]:
        """The objects that were handed `scaler` and whose methods may use it."""
        return self.holders.get(self._find(scaler), ())

    def handed(self, expr: ir.Expr) -> Iterator[c.Path]:
        """The paths that whoever gets `expr` gets hold of."""
        path = self.lift.path(expr)
        if path is not None:
            yield path
        elif isinstance(expr, (ir.Items, ir.Star, ir.IfExp, ir.Bool, ir.Comprehension)):
            for part in walk.parts(expr):
                yield from self.handed(part)
        elif isinstance(expr, ir.Lambda):
            for inner in walk.inside(expr.body):
                found = self.lift.path(inner)
                if found is not None:
                    yield found
        elif isinstance(expr, ir.Call) and names(expr.func) == ("functools.partial",):
            for arg in expr.args:
                yield from self.handed(arg.value)

    # -- whose parameters ------------------------------------------------------------------------------------

    def parameters(self, expr: ir.Expr, depth: int = 0) -> tuple[c.Path, ...] | None:
        """The modules (or lists of parameters) that `expr` gives the parameters of; None if that is not known."""
        if depth > 6:
            return None
        path = self.lift.path(expr)
        if path is not None:
            bindings = self._bindings.get(path, ())
            if len(bindings) == 1 and bindings[0].value is not None and not bindings[0].in_loop:
                inner = self.parameters(bindings[0].value, depth + 1)
                return inner if inner is not None else (path,)
            return (path,)
        if isinstance(expr, ir.Call):
            return self._call_parameters(expr, depth)
        if isinstance(expr, ir.Items):
            parts: tuple[ir.Expr, ...] = expr.items
            if expr.kind == "dict":
                keys = zip(expr.items[::2], expr.items[1::2], strict=False)
                parts = tuple(v for k, v in keys if isinstance(k, ir.Const) and k.value == "params")
            return self._all_parameters(parts, depth)
        if isinstance(expr, ir.Binary) and expr.op == "+":
            return self._all_parameters((expr.left, expr.right), depth)
        if isinstance(expr, ir.Star):
            return self.parameters(expr.value, depth + 1)
        if isinstance(expr, ir.Comprehension):
            return self._all_parameters(tuple(part[1] for part in expr.parts[:1]), depth)
        return None

    def _call_parameters(self, expr: ir.Call, depth: int) -> tuple[c.Path, ...] | None:
        func = expr.func
        if isinstance(func, ir.Attr) and func.attr in ("parameters", "named_parameters"):
            path = self.lift.path(func.value)
            if path is not None and path[-1] == "module":
                path = path[:-1]
            return (path,) if path else None
        called = names(func)
        if called in (("builtins.list",), ("builtins.tuple",), ("builtins.iter",)) and expr.args:
            return self.parameters(expr.args[0].value, depth + 1)
        if called == ("builtins.filter",) and len(expr.args) == 2:
            return self.parameters(expr.args[1].value, depth + 1)
        if called == ("itertools.chain",):
            return self._all_parameters(tuple(arg.value for arg in expr.args), depth)
        return None

    def _all_parameters(self, parts: tuple[ir.Expr, ...], depth: int) -> tuple[c.Path, ...] | None:
        found: dict[c.Path, None] = {}
        for part in parts:
            inner = self.parameters(part, depth + 1)
            if inner is None:
                return None
            found.update(dict.fromkeys(inner))
        return tuple(found) or None

    def owned(self, optimizer: c.Path) -> tuple[c.Path, ...] | None:
        """The modules whose parameters the optimizer at `optimizer` was made with; None if that is not known."""
        bindings = self._bindings.get(self.home(optimizer), ())
        made = [b.value for b in bindings if not (isinstance(b.value, ir.Const) and b.value.value is None)]
        if len(made) != 1 or not isinstance(made[0], ir.Call):
            return None
        call = made[0]
        for arg in call.args:
            if arg.keyword in (None, "params") and not arg.star:
                found = self.parameters(arg.value)
                return found if _is_optimizer(call) else None
        return None

    def is_sharded(self, path: c.Path) -> bool:
        """Whether `path` holds a module wrapped in FSDP."""
        return any(is_sharded(binding.value) for binding in self._bindings.get(self.home(path), ()))

    def is_shared(self, scaler: c.Path) -> bool:
        """Whether code elsewhere can reach the scaler: a global, or handed in by a caller."""
        return scaler[0].startswith(":") or self._is_param(scaler[0])

    def default(self, expr: ir.Expr) -> Value | None:
        """What a parameter holds that is not handed anything."""
        return self._value(expr)

    def is_assigned(self, path: c.Path) -> bool:
        """Whether this file gives `path` a value."""
        return self.home(path) in self._bindings

    def is_manual(self, klass: str) -> bool:
        """Whether `klass` is a LightningModule that optimises by hand."""
        flags = self._bindings.get((self.lift.self_root(klass), "automatic_optimization"), ())
        off = any(isinstance(b.value, ir.Const) and b.value.value is False for b in flags)
        return off and self.classes.is_lightning(klass)

    def concerns(self, path: c.Path) -> bool:
        """Whether `path` is a scaler, something that holds one, or something that was handed one."""
        path = self.home(path)
        if path in self._owners or self._find(path) in self._scalers:
            return True
        klass = self.instance(path)
        return klass is not None and (self.lift.self_root(klass),) in self._owners

    def _find_owners(self) -> set[c.Path]:
        known = set(self._bindings) | set(self._parent) | set(self._parent.values()) | set(self._evidence()) | set(self._annotated())
        found: set[c.Path] = set()
        for path in map(self.home, known):
            if self._find(path) in self._scalers:
                found.update(path[:size] for size in range(1, len(path) + 1))
        for holders in self.holders.values():
            found.update(self.home(holder) for holder in holders)
        return found


def _is_empty(function: ir.Function) -> bool:
    """Whether a function only has a docstring, `pass`, `...` or `raise NotImplementedError`."""
    return all(
        isinstance(stmt, ir.Raise) or (isinstance(stmt, ir.Do) and isinstance(stmt.value, ir.Const))
        for stmt in function.body
    )


def _is_optimizer(call: ir.Call) -> bool:
    """Whether a class (of torch.optim, or one that takes `x.parameters()`) is instantiated."""
    if any(name.startswith("torch.optim.") for name in names(call.func)):
        return not any(name.startswith("torch.optim.lr_scheduler") for name in names(call.func))
    last = call.func.attr if isinstance(call.func, ir.Attr) else getattr(call.func, "id", "")
    takes = any(
        isinstance(e, ir.Attr) and e.attr in ("parameters", "named_parameters")
        for arg in call.args[:1]
        for e in walk.inside(arg.value)
    )
    return takes and (last[:1].isupper() or "optim" in last.lower())


def _is_variable_of(whole: ir.Expr, source: ir.Expr) -> bool:
    """Whether `source` (from `scaled_by(whole)`) is a variable in it, not the receiver of a `.scale(..)`."""
    return not any(
        isinstance(e, ir.Call) and isinstance(e.func, ir.Attr) and e.func.value is source and e.func.attr == "scale"
        for e in walk.inside(whole)
    )


def backward_losses(call: ir.Call) -> tuple[ir.Expr, ...]:
    """The losses of which `call` takes gradients into `.grad`."""
    func = call.func
    if isinstance(func, ir.Attr):
        if func.attr in ("backward", "manual_backward"):
            own = () if isinstance(func.value, ir.Name) and func.value.id == "self" else (func.value,)
            return (*own, *(arg.value for arg in call.args[:1]))
    elif isinstance(func, ir.Name) and func.id == "backward":
        return tuple(arg.value for arg in call.args[:1])
    return ()


def value_paths(value: Value | None) -> list[c.Path]:
    """Every path that `value` reads."""
    if isinstance(value, Alias):
        return list(c.term_paths(value.term))
    if isinstance(value, Flag):
        return list(c.formula_paths(value.formula))
    if isinstance(value, Made):
        return [*c.formula_paths(value.present), *c.formula_paths(value.enabled)]
    return [*value.scalers, *value.losses] if value is not None else []
