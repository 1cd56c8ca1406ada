"""Parameters in low precision that an optimizer owns which a scaler steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.dtypes import BF16, FP16, choices
from amplint.flow.held import CHAINED, WRAPPERS, Held, Placed
from amplint.flow.lift import last, names
from amplint.flow.protocol import Made
from amplint.flow.remembered import Remembered
from amplint.flow.verdicts import written
from amplint.model import ir

_CASTS = {"half": FP16, "bfloat16": BF16}
#: Names after which nothing is certain: adapters are float32, gradients are handled by other means.
_ELSEWHERE = (
    "_unscale_grads_",
    "get_peft_model",
    "PeftModel",
    "add_adapter",
    "LoraConfig",
    "cast_training_params",
    "upcast_trainable",
    "master_params",
    "prepare_model_for_kbit_training",
    "FP16_Optimizer",
    "copy_to_master",
)
_ASIDE = ("eval", "valid", "test", "infer", "predict", "sample", "save", "export", "generate", "encode")


@dataclass(frozen=True, slots=True)
class Cast:
    """Where parameters that a scaler's optimizer owns become float16 or bfloat16."""

    site: int
    kind: str
    #: The module as written.
    model: str
    optimizer: int
    #: The `step` or `unscale_`.
    step: int
    #: Where the scalers are made that step it.
    scalers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Change:
    site: int
    kind: str
    guard: c.Formula
    function: str
    #: The variable that is cast, or given what is.
    module: c.Path = ()
    #: Only a part of the module is cast.
    part: bool = False


_FOUND: Remembered[Held, tuple[Cast, ...]] = Remembered("parameters")


def low_precision_parameters(held: Held) -> tuple[Cast, ...]:
    """Every such cast of one file; computed once."""
    found = _FOUND.get(held)
    if found is None:
        found = _FOUND[held] = tuple(dict.fromkeys(_find(held)))
    return found


def _find(held: Held) -> Iterator[Cast]:
    if any(name in _ELSEWHERE for name in _identifiers(held)):
        return
    seen: set[tuple[int, str]] = set()
    for placed in held.calls:
        func = placed.call.func
        if not (isinstance(func, ir.Attr) and func.attr in ("step", "unscale_") and placed.call.args):
            continue
        scaler, optimizer = held.lift.path(func.value), held.lift.path(placed.call.args[0].value)
        if scaler is None or optimizer is None or not held.is_scaler(scaler):
            continue
        made = held.scaler_made(scaler) or _made_in_loop(held, scaler)
        if made is None:
            continue
        sites = tuple(_scaler_sites(held, scaler))
        if any(_is_sharded(held, site) for site in sites):
            continue
        for origin in held.origins(optimizer):
            for module in _owned(held, origin):
                for change in _changes(held, module, _functions(held, origin)):
                    if (change.site, change.kind) in seen or _is_later(change, placed):
                        continue
                    if change.part and _is_choosy(held, origin):
                        continue
                    # where the parameters are cast, the scaler must be on
                    if not held.implies(change.guard, made.enabled):
                        continue
                    seen.add((change.site, change.kind))
                    yield Cast(
                        change.site,
                        change.kind,
                        written(change.module),
                        _made_at(held, origin),
                        placed.call.site,
                        sites,
                    )


def _is_later(change: _Change, step: Placed) -> bool:
    """Whether a cast comes behind the step, as for a checkpoint."""
    return change.function == step.function and change.site > step.call.site


def _functions(held: Held, path: c.Path) -> set[str]:
    """The functions in which `path` is assigned."""
    return {binding.function for binding in held.values(path)}


def _is_choosy(held: Held, optimizer: c.Path) -> bool:
    """Whether parts of modules are frozen in this file, or the optimizer may have some of the parameters only."""
    for function in held.functions.values():
        for stmt in walk.statements(function.body):
            for target in stmt.targets if isinstance(stmt, ir.Assign) else ():
                if isinstance(target, ir.Attr) and target.attr == "requires_grad":
                    return True
        for expr in walk.expressions(function.body):
            if isinstance(expr, ir.Call):
                method = last(expr.func)
                if (method == "requires_grad_" and not _is_true(expr)) or "freeze" in method.lower():
                    return True
                if any(arg.keyword == "requires_grad" for arg in expr.args):
                    return True
    for name in _functions(held, optimizer):
        body = held.functions[name].body
        for stmt in walk.statements(body):
            if isinstance(stmt, ir.For) and _asks_parameters(stmt.iterable):
                return True
        for expr in walk.expressions(body):
            if isinstance(expr, ir.Comprehension):
                if any(tests and _asks_parameters(iterable) for _, iterable, tests in expr.parts):
                    return True
            elif isinstance(expr, ir.Call) and names(expr.func) == ("builtins.filter",):
                return True
    return False


def _asks_parameters(expr: ir.Expr) -> bool:
    return any(
        isinstance(e, ir.Attr) and e.attr in ("parameters", "named_parameters") for e in walk.inside(expr)
    )


def _owned(held: Held, optimizer: c.Path) -> tuple[c.Path, ...]:
    """The modules whose parameters the optimizer has, which a function of this file may have made."""
    found = held.owned(optimizer)
    values = [binding.value for binding in held.values(optimizer)]
    if found is not None or len(values) != 1 or not isinstance(values[0], ir.Call):
        return found or ()
    called = held.lift.called(values[0])
    results = held.results(called) if called is not None else ()
    if len(results) == 1 and isinstance(results[0], ir.Call) and results[0].args:
        made = names(results[0].func)
        if any(name.startswith("torch.optim.") and "lr_scheduler" not in name for name in made):
            return held.parameters(results[0].args[0].value) or ()
    return ()


def _identifiers(held: Held) -> Iterator[str]:
    for function in held.functions.values():
        for expr in walk.expressions(function.body):
            if isinstance(expr, ir.Attr):
                yield expr.attr
            elif isinstance(expr, ir.Name):
                yield expr.id


def _scaler_sites(held: Held, scaler: c.Path) -> Iterator[int]:
    for path in held.origins(scaler):
        values = [binding.value for binding in held.values(path)]
        if held.is_param(path):
            values.extend(held.given(path)[0])
        for value in values:
            for expr in walk.inside(value) if value is not None else ():
                if held.lift.constructs_scaler(expr):
                    yield expr.site


def _made_in_loop(held: Held, scaler: c.Path) -> Made | None:
    """The scaler that each round of a loop makes and switches on, under no test; None where it may be another."""
    found = [binding for path in held.origins(scaler) for binding in held.values(path)]
    if len(found) != 1 or not found[0].in_loop:
        return None
    if any(guard != c.truth(c.Unknown()) for guard in found[0].guards):  # that is the loop itself
        return None
    made = held.made_by(found[0].value)
    return made if made == Made(True, True) else None


def _is_sharded(held: Held, site: int) -> bool:
    return any(
        "Sharded" in name
        for placed in held.calls
        if placed.call.site == site
        for name in names(placed.call.func)
    )


def _made_at(held: Held, optimizer: c.Path) -> int:
    return next(b.value.site for b in held.values(optimizer) if isinstance(b.value, ir.Call))


# -- what becomes of a module ---------------------------------------------------------------------------------


def _changes(held: Held, module: c.Path, near: set[str]) -> list[_Change]:
    """The casts of `module`, or of a part of it; none where some of it may be cast back or frozen."""
    family = _family(held, module)
    found: dict[_Change, None] = {}
    # a method that exports the model may cast it as well; those that make it, or its optimizer, come first
    for path in family:
        near = near | _functions(held, path) | ({path[0].partition(":")[0]} if ":" in path[0] else set())
    for path in family:
        for binding in held.values(path):
            if binding.value is not None:
                guard = c.both(*binding.guards)
                for change in _made_so(held, binding.value, guard, binding.function, 0):
                    found[replace(change, module=path)] = None
    for placed in held.calls:
        func = placed.call.func
        if not isinstance(func, ir.Attr):
            continue
        cast = held.lift.path(func.value)
        if cast is None or not any(_is_part(held, cast, member) for member in family):
            continue
        if func.attr == "requires_grad_" and not _is_true(placed.call):
            return []
        if func.attr in ("float", "double", "to", "type", "bfloat16", "half"):
            casts = _casts_to(held, placed.call)
            if casts is None:
                return []
            if placed.function in near and not placed.inference and not _is_aside(placed):
                part = held.home(cast) not in family
                for kind, guard in casts:
                    guard = c.both(placed.guard, guard)
                    found[_Change(placed.call.site, kind, guard, placed.function, cast, part)] = None
    if _is_frozen(held, family):
        return []
    by_site: dict[int, set[str]] = {}
    for change in found:
        by_site.setdefault(change.site, set()).add(change.kind)
    # two casts to different dtypes: which of them counts is not known
    agree = len({frozenset(kinds) for kinds in by_site.values()}) == 1
    return list(found) if agree else []


def _is_part(held: Held, path: c.Path, module: c.Path) -> bool:
    home = held.home(path)
    return home[: len(module)] == module


def _family(held: Held, module: c.Path) -> tuple[c.Path, ...]:
    """The variables that hold `module`: where it comes from, and the parameters it is directly handed to."""
    found: dict[c.Path, None] = {}
    stack = [module]
    while stack and len(found) < 40:
        current = held.home(stack.pop())
        if current in found:
            continue
        found[current] = None
        values = [binding.value for binding in held.values(current)]
        if held.is_param(current):
            values.extend(held.given(current)[0])
        for value in values:
            stack.extend(_passed_on(held, value, 0))
    return tuple(found)


def _passed_on(held: Held, value: ir.Expr | None, depth: int) -> Iterator[c.Path]:
    """The paths that `value` is the module of: through wrappers, chains and functions of this file."""
    if value is None or depth > 6:
        return
    path = held.lift.path(value)
    if path is not None:
        yield path
    elif isinstance(value, (ir.IfExp, ir.Bool)):
        for part in walk.parts(value)[-2:]:
            yield from _passed_on(held, part, depth + 1)
    elif isinstance(value, ir.Call):
        func = value.func
        called = held.lift.called(value)
        if called is not None and called in held.functions:
            for result in held.results(called):
                if not isinstance(result, ir.Items):
                    yield from _passed_on(held, result, depth + 1)
        elif isinstance(func, ir.Attr) and func.attr in CHAINED and not names(func):
            yield from _passed_on(held, func.value, depth + 1)
        elif last(func) in WRAPPERS and value.args:
            yield from _passed_on(held, value.args[0].value, depth + 1)


def _made_so(held: Held, value: ir.Expr, guard: c.Formula, function: str, depth: int) -> Iterator[_Change]:
    """The casts in a value that a variable is given."""
    if depth > 6:
        return
    if isinstance(value, ir.IfExp):
        test = held.lift.formula(value.test)
        yield from _made_so(held, value.body, c.both(guard, test), function, depth + 1)
        yield from _made_so(held, value.orelse, c.both(guard, c.negate(test)), function, depth + 1)
        return
    if not isinstance(value, ir.Call):
        return
    func = value.func
    klass = held.classes.klass(names(func))
    if klass is not None:
        for change in _layers(held, klass, guard, depth + 1):
            yield replace(change, part=True)
        return
    called = held.lift.called(value)
    if called is not None and called in held.functions:
        for result in held.results(called):
            yield from _made_so(held, result, guard, called, depth + 1)
        return
    if isinstance(func, ir.Attr) and func.attr in CHAINED and not names(func):
        casts = _casts_to(held, value) if func.attr in ("to", "half", "bfloat16") else []
        if held.lift.path(func.value) is None:  # else the call is met on its own
            for kind, where in casts or ():
                yield _Change(value.site, kind, c.both(guard, where), function)
        yield from _made_so(held, func.value, guard, function, depth + 1)
        return
    if last(func) in WRAPPERS and value.args:
        yield from _made_so(held, value.args[0].value, guard, function, depth + 1)
        return
    for keyword in _dtype_keywords(value):
        for choice in choices(held, keyword):
            if choice.kind in (FP16, BF16):
                yield _Change(value.site, choice.kind, c.both(guard, choice.guard), function)
    if any(name.startswith("torch.nn.") for name in names(func)):
        for arg in value.args:
            if arg.keyword is None:
                parts = arg.value.items if isinstance(arg.value, ir.Items) else (arg.value,)
                for part in parts:
                    inner = part.value if isinstance(part, ir.Star) else part
                    yield from _made_so(held, inner, guard, function, depth + 1)


def _dtype_keywords(call: ir.Call) -> Iterator[ir.Expr]:
    """The dtype that a layer, a parameter or a pretrained model is made with."""
    called = names(call.func)
    is_layer = any(name.startswith("torch.nn.") and name.rpartition(".")[2][:1].isupper() for name in called)
    loads = last(call.func) in ("from_pretrained", "from_config", "from_single_file")
    if called == ("torch.nn.Parameter",):
        inner = call.args[0].value if call.args else None
        called_inner = names(inner.func) if isinstance(inner, ir.Call) else ()
        if isinstance(inner, ir.Call) and any(name.startswith("torch.") for name in called_inner):
            frozen = any(arg.keyword == "requires_grad" for arg in call.args)
            yield from (arg.value for arg in inner.args if arg.keyword == "dtype" and not frozen)
        return
    for arg in call.args:
        if arg.keyword in (("torch_dtype", "dtype") if loads else ("dtype",)) and (is_layer or loads):
            yield arg.value


def _layers(held: Held, klass: str, guard: c.Formula, depth: int) -> Iterator[_Change]:
    """The layers of a module class of this file that are made in low precision."""
    init = held.classes.method(klass, "__init__")
    root = held.lift.self_root(klass)
    function = held.functions.get(init) if init is not None else None
    if function is None or depth > 6:
        return
    for stmt in walk.statements(function.body):
        for target in stmt.targets if isinstance(stmt, ir.Assign) else ():
            path = held.lift.path(target)
            if path is not None and len(path) > 1 and path[0] == root and init is not None:
                for binding in held.values(path):
                    if binding.value is not None and binding.function == init:
                        inner = c.both(guard, *binding.guards)
                        yield from _made_so(held, binding.value, inner, init, depth + 1)
    for placed in held.calls:
        func = placed.call.func
        if placed.function == init and isinstance(func, ir.Attr) and func.attr in (*_CASTS, "to"):
            path = held.lift.path(func.value)
            if path is not None and path[0] == root:
                for kind, where in _casts_to(held, placed.call) or ():
                    yield _Change(placed.call.site, kind, c.both(guard, placed.guard, where), init or "")


def _casts_to(held: Held, call: ir.Call) -> list[tuple[str, c.Formula]] | None:
    """The low dtypes that a conversion gives a module's parameters, and where; None where it may undo one."""
    method = last(call.func)
    if method in _CASTS:
        return [(_CASTS[method], True)]
    if method in ("float", "double"):
        return None
    for index, arg in enumerate(call.args):
        if arg.star:
            return None
        if arg.keyword not in (None, "dtype") or (index > 1 and not arg.keyword):
            continue
        found = choices(held, arg.value)
        low = [(choice.kind, choice.guard) for choice in found if choice.kind in (FP16, BF16)]
        known = all(choice.kind and c.is_modelled(choice.guard) for choice in found)
        if low and known:
            return low
        if any(choice.kind for choice in found) or "dtype" in _text(arg.value):
            return None
        if _text(arg.value).endswith("_type") and "device" not in _text(arg.value):
            return None
    return []


def _text(expr: ir.Expr) -> str:
    return last(expr).lower()


def _is_aside(placed: Placed) -> bool:
    """Whether the cast stands in a function that evaluates, saves or exports."""
    name = placed.function.rpartition(".")[2].lower()
    return any(word in name for word in _ASIDE)


def _is_frozen(held: Held, family: tuple[c.Path, ...]) -> bool:
    """Whether `requires_grad = False` is set on a module of `family` or on a part of it."""
    frozen = _FROZEN.get(held)
    if frozen is None:
        frozen = _FROZEN[held] = tuple(dict.fromkeys(_frozen(held)))
    return any(_is_part(held, path, member) for path in frozen for member in family)


_FROZEN: Remembered[Held, tuple[c.Path, ...]] = Remembered("frozen")


def _frozen(held: Held) -> Iterator[c.Path]:
    """What `requires_grad` is set on, and what is handed to something that freezes."""
    for function in held.functions.values():
        for stmt, loops in _nested(function.body, ()):
            if not isinstance(stmt, ir.Assign):
                continue
            for target in stmt.targets:
                if isinstance(target, ir.Attr) and target.attr == "requires_grad":
                    path = held.lift.path(target.value)
                    if path is not None:
                        yield path
                    yield from (
                        p for loop in loops for e in walk.inside(loop) if (p := held.lift.path(e)) is not None
                    )
        for expr in walk.expressions(function.body):
            # handed to something that freezes
            if isinstance(expr, ir.Call) and "freeze" in last(expr.func).lower():
                for arg in expr.args:
                    for inner in walk.inside(arg.value):
                        found = held.lift.path(inner)
                        if found is not None:
                            yield found


def _nested(block: ir.Block, loops: tuple[ir.Expr, ...]) -> Iterator[tuple[ir.Stmt, tuple[ir.Expr, ...]]]:
    for stmt in block:
        yield stmt, loops
        inner = (*loops, stmt.iterable) if isinstance(stmt, ir.For) else loops
        for part in walk.blocks(stmt):
            yield from _nested(part, inner)


def _is_true(call: ir.Call) -> bool:
    return not call.args or (isinstance(call.args[0].value, ir.Const) and call.args[0].value.value is True)
