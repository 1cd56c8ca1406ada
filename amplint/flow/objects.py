"""What the variables and attributes of one file hold: scalers, optimizers, parameters."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.bindings import Bindings, Module, value_paths
from amplint.flow.gradients import is_sharded
from amplint.flow.lift import names, scaled_by
from amplint.flow.protocol import Made, Value
from amplint.model import ir

__all__ = ["Objects", "backward_losses", "value_paths"]


class Objects(Bindings):
    """Flow-insensitive facts about one file."""

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self._made: dict[c.Path, Made | None] = {}
        self._shaped = tuple(dict.fromkeys(self._evidence()))
        self._declared = tuple(dict.fromkeys(self._annotated()))
        self._scalers = self._find_scalers()
        self.holders = self._find_holders()
        self._owners = self._find_owners()
        #: Functions without code of their own.
        self.placeholders = {name for name, f in self.functions.items() if _is_empty(f)}
        self.optimizers = tuple(path for path in self._bindings if self.owned(path) is not None)

    def _find_scalers(self) -> set[c.Path]:
        shaped = {self._find(path) for path in self._shaped}
        made: set[c.Path] = set()
        foreign: set[c.Path] = set()
        for path, bindings in self._bindings.items():
            for binding in bindings:
                kind = self._kind(binding.value)
                if kind == "scaler":
                    made.add(self._find(path))
                elif kind == "other":
                    foreign.add(self._find(path))
        made |= {self._find(path) for path in self._declared}
        foreign |= {self._find(path) for path in self._engines()}
        return made | (shaped - foreign)

    def _engines(self) -> Iterator[c.Path]:
        """Paths whose `step` takes no optimizer: DeepSpeed's engine has a `scale`, and holds its scaler itself."""
        for function in self.functions.values():
            for expr in walk.expressions(function.body):
                if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr) and expr.func.attr == "step":
                    path = self.lift.path(expr.func.value)
                    if path is not None and not expr.args:
                        yield path

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
        """Paths that behave as scalers do: `X.unscale_(O)`, `X.scale(loss)` of which a gradient is taken."""
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

    def factors(self, expr: ir.Expr) -> tuple[tuple[c.Path, ...], tuple[c.Path, ...]]:
        """The scalers that `expr` is scaled by, and the variables in it that may already be scaled."""
        scalers: dict[c.Path, None] = {}
        losses: dict[c.Path, None] = {}
        for source in scaled_by(expr):
            path = self.lift.path(source)
            if path is not None and _is_variable_of(expr, source):
                losses[path] = None
            elif path is not None and self.is_scaler(path):
                scalers[path] = None
        return tuple(scalers), tuple(losses)

    def made(self, path: c.Path) -> Made | None:
        """When the scaler at `path` exists and scales, by all places of this file that make it."""
        rep = self._find(path)
        if rep not in self._made:
            self._made[rep] = self._made_anywhere(rep)
        return self._made[rep]

    def _made_anywhere(self, rep: c.Path) -> Made | None:
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

    # -- whose parameters -----------------------------------------------------------------------------------

    def parameters(self, expr: ir.Expr, depth: int = 0) -> tuple[c.Path, ...] | None:
        """The modules (or lists of parameters) that `expr` gives the parameters of; None: not known."""
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
        """The modules whose parameters the optimizer at `optimizer` was made with; None: not known."""
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

    def made_from(self, path: c.Path) -> tuple[c.Path, ...]:
        """What the object at `path` was made from: the arguments of its constructor."""
        found: dict[c.Path, None] = {}
        for binding in self._bindings.get(self.home(path), ()):
            if isinstance(binding.value, ir.Call):
                for arg in binding.value.args:
                    inner = self.lift.path(arg.value)
                    if inner is not None and inner != path:
                        found[inner] = None
        return tuple(found)

    def is_sharded(self, path: c.Path) -> bool:
        """Whether `path` holds a module wrapped in FSDP."""
        return any(is_sharded(binding.value) for binding in self._bindings.get(self.home(path), ()))

    def identity(self, path: c.Path) -> c.Path:
        """The same for all names of one object."""
        return self._find(path)

    def is_made(self, scaler: c.Path) -> bool:
        """Whether this file makes the scaler that `scaler` holds."""
        rep = self._find(scaler)
        return any(
            self._find(path) == rep and any(self._kind(b.value) == "scaler" for b in bindings)
            for path, bindings in self._bindings.items()
        )

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
        known = (
            set(self._bindings)
            | set(self._parent)
            | set(self._parent.values())
            | set(self._shaped)
            | set(self._declared)
        )
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
        isinstance(e, ir.Call)
        and isinstance(e.func, ir.Attr)
        and e.func.value is source
        and e.func.attr == "scale"
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
