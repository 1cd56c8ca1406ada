"""A checkpoint holds the model and the optimizer, and not the scaler, or what it holds of that is lost on loading."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from amplint.finding import Confidence, Severity
from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.dtypes import BF16
from amplint.flow.held import Held, objects_of
from amplint.flow.lift import last, names
from amplint.flow.placement import Place, Scene
from amplint.flow.regions import regions_of
from amplint.flow.usage import Usage, is_test, usage_of
from amplint.flow.verdicts import written
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

_SAVES = re.compile(r"save|dump|checkpoint|ckpt|snapshot", re.IGNORECASE)
_HELPERS = re.compile(
    r"^save_?(checkpoint|ckpt|state|model|training|train|snapshot|all|resume|latest)", re.IGNORECASE
)
_TRAINS = re.compile(r"train|epoch|step|fit|run", re.IGNORECASE)
_KEEPERS = re.compile(r"checkpoint|ckpt|saver|snapshot|keeper", re.IGNORECASE)
_OPTIMIZER = re.compile(r"optim|(^|_)opt(_|\d|$)|^opt", re.IGNORECASE)
_NO_OPTIMIZER = re.compile(r"sched|options?$|^opts$|optional|param|config|args|optical|state", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"sched|sampler|loader|ema|meter|timer|rng|logger|metric|tracker|warmup|stats", re.IGNORECASE
)
_SCALER = re.compile(r"scaler|(^|_)amp($|_)|loss_scale|precision", re.IGNORECASE)
_MODEL_STATE = re.compile(r"state_?dict|model_state|weights|(^|_)sd$")
_MODEL_KEY = re.compile(
    r"^(model|net|network|state_dict|weights|generator|discriminator|student|net_?[gd])(_state)?(_dict)?$"
)
_STATES = ("state_dict", "optim_state_dict", "full_optim_state_dict", "sharded_optim_state_dict")
#: Frameworks that save all that they know of.
_WHOLE = ("save_state", "register_for_checkpointing")
_REASON = (
    "save and restore the scaler where the optimizer is; checkpoints that have no such key must still be read: "
    "what to do with them is a choice"
)


@dataclass(frozen=True, slots=True)
class _Saved:
    """One place that saves an optimizer."""

    site: int
    optimizer: c.Path
    confidence: Confidence
    text: str
    trace: tuple[tuple[int, str], ...] = ()
    #: The class of this file that saves whatever it was handed.
    keeper: str | None = None


@dataclass(frozen=True, slots=True)
class _Serves:
    """A scaler and an optimizer that belong together, by the call at `site`."""

    scaler: c.Path
    optimizer: c.Path
    site: int


def check(ctx: Context) -> Iterable[Report]:
    """Report savings and loadings that leave the scaler of the optimizer out, and restored scalers thrown away."""
    model = ctx.model
    if is_test(model.filename):
        return
    held = objects_of(model)
    usage = usage_of(model, held)
    steps = [serves for serves in _serving(held, usage) if usage.may_scale(serves.scaler)]
    if not steps or _is_bf16(ctx):
        return
    yield from _replaced(ctx, held, usage)
    states = _States(held, usage)
    if states.unknown:
        return
    reported: set[tuple[c.Path, str]] = set()
    sites: set[int] = set()
    for scene in usage.scenes:
        for saved in _savings(held, usage, scene):
            if states.registries - ({saved.keeper} if saved.keeper is not None else set()):
                continue
            for use in _served(held, scene, saved.optimizer, steps):
                key = (held.identity(use.scaler), scene.name)
                if key in reported or saved.site in sites or states.keeps(use.scaler):
                    continue
                reported.add(key)
                sites.add(saved.site)
                yield _report(ctx, use, saved)
        for call, _ in scene.calls:
            found = _not_restored(held, scene, call, steps, states)
            if found is not None and (held.identity(found.scaler), "load") not in reported:
                reported.add((held.identity(found.scaler), "load"))
                yield _lost(ctx, found, call, states)


def _report(ctx: Context, use: _Serves, saved: _Saved) -> Report:
    nodes = ctx.model.tree.nodes
    scaler, optimizer = written(use.scaler), written(saved.optimizer)
    trace: list[tuple[cst.CSTNode, str]] = [(nodes[site], text) for site, text in saved.trace]
    trace.append((nodes[use.site], f"{scaler} scales for this optimizer"))
    return Report(
        nodes[saved.site],
        f"{saved.text} `{optimizer}` and not {scaler}: a resumed run starts with the initial scale again",
        confidence=saved.confidence,
        trace=trace,
        fix=lambda: _REASON,
    )


def _lost(ctx: Context, use: _Serves, call: ir.Call, states: _States) -> Report:
    nodes = ctx.model.tree.nodes
    scaler = written(use.scaler)
    return Report(
        nodes[call.site],
        f"the optimizer is restored and {scaler} is not, although its state is saved",
        trace=[(nodes[states.saved[0]], f"the state of {scaler} is saved here")],
        fix=lambda: _REASON,
    )


def _is_bf16(ctx: Context) -> bool:
    """Whether all that is computed in low precision is bfloat16, which needs no scale."""
    lower = [r for r in regions_of(ctx.model).all if r.enabled is not False and not r.inference]
    return bool(lower) and all(region.kinds == {BF16} for region in lower)


# -- what is known of the file as a whole --------------------------------------------------------------------


class _States:
    """Whose states one file saves and loads."""

    def __init__(self, held: Held, usage: Usage) -> None:
        self._held = held
        #: Sites of the calls of a scaler's state_dict().
        self.saved: list[int] = []
        self._keepers: set[c.Path] = set()
        self.loads_scaler = False
        #: Whether anything may save or load what this file does not name.
        self.unknown = False
        #: The classes (None: outside of any) that ask whatever they hold for its state.
        self.registries: set[str | None] = set()
        for scene in usage.scenes:
            for call, _ in scene.calls:
                self._note(scene, call)
        for scene in usage.scenes:
            for expr in walk.expressions(scene.function.body):
                is_dict = isinstance(expr, ir.Attr) and expr.attr == "__dict__" and self._is_self(expr.value)
                if is_dict or (isinstance(expr, (ir.Name, ir.Attr)) and last(expr) == "Accelerator"):
                    self.unknown = True

    def _note(self, scene: Scene, call: ir.Call) -> None:
        name = last(call.func)
        is_vars = names(call.func) == ("builtins.vars",)
        if name in _WHOLE or (is_vars and any(self._is_self(arg.value) for arg in call.args)):
            self.unknown = True
        if name in ("state_dict", "load_state_dict") and isinstance(call.func, ir.Attr):
            self._state(scene, call, call.func.value, name == "state_dict")
        elif _SAVES.search(name) or name in (
            "register",
            "add",
            "add_checkpointable",
            "load",
            "resume",
            "restore",
        ):
            for path in (p for arg in call.args for p in self._held.handed(arg.value)):
                if self._is_scaler(path):
                    self._keepers.add(self._held.identity(path))
                elif path[0].endswith(".self") and len(path) == 1:
                    self.unknown = True  # the whole object is saved

    def _is_self(self, expr: ir.Expr) -> bool:
        path = self._held.lift.path(expr)
        return path is not None and len(path) == 1 and path[0].endswith(".self")

    def _state(self, scene: Scene, call: ir.Call, receiver: ir.Expr, is_saved: bool) -> None:
        path = self._held.lift.path(receiver)
        if path is None:
            if _is_registry(receiver):
                self.registries.add(scene.function.owner)
            return
        if self._is_scaler(path):
            if is_saved:
                self.saved.append(call.site)
            else:
                self.loads_scaler = True
        elif _is_element(scene, path):
            self.registries.add(scene.function.owner)

    def _is_scaler(self, path: c.Path) -> bool:
        if self._held.is_scaler(path) or _SCALER.search(path[-1].rpartition(":")[2]):
            return True
        return self._held.concerns(path) and not path[-1].endswith(".self")

    def keeps(self, scaler: c.Path) -> bool:
        """Whether the file saves the scaler anywhere, or hands it to something that may."""
        if self.saved or self._keepers:
            return True
        return any(_KEEPERS.search(written(holder)) for holder in self._held.holders_of(scaler))


def _is_registry(receiver: ir.Expr) -> bool:
    """`getattr(self, name)`, `objects[key]`: any object's turn may come."""
    if isinstance(receiver, ir.Call) and names(receiver.func) == ("builtins.getattr",):
        return not (len(receiver.args) > 1 and isinstance(receiver.args[1].value, ir.Const))
    return isinstance(receiver, (ir.Subscript, ir.Walrus))


def _is_element(scene: Scene, path: c.Path) -> bool:
    """Whether a path is the variable of a loop or comprehension, or what some key finds."""
    if path[-1] == "[]":
        return not _is_plural(path[-2] if len(path) > 1 else "")
    if len(path) != 1:
        return False
    name = path[0].rpartition(":")[2]
    if "comprehension>" in path[0] or "lambda>" in path[0]:
        return not _OPTIMIZER.search(name)
    return any(
        isinstance(found.place.stmt, ir.For) and not _OPTIMIZER.search(name)
        for found in scene.definitions.get(path, ())
    )


def _is_plural(name: str) -> bool:
    return bool(re.search(r"model|net|optim|sched", name, re.IGNORECASE))


def _is_optimizer(held: Held, path: c.Path) -> bool:
    if any(held.owned(origin) is not None for origin in held.origins(path)):
        return True
    name = path[-1].rpartition(":")[2]
    if name.startswith("[") and len(path) > 1:
        name = path[-2].rpartition(":")[2]
    return bool(_OPTIMIZER.search(name)) and not _NO_OPTIMIZER.search(name) and not held.is_scaler(path)


# -- which scaler an optimizer has ---------------------------------------------------------------------------


def _serving(held: Held, usage: Usage) -> Iterator[_Serves]:
    """`scaler.step(optimizer)`, and functions of other files that are handed both."""
    for use in usage.of("step"):
        stepped = held.lift.path(use.call.args[0].value) if use.call.args else None
        if stepped is not None:
            yield _Serves(use.scaler, stepped, use.call.site)
    for scene in usage.scenes:
        for call, _ in scene.calls:
            if held.callee(call, scene.function.owner) is not None or not _TRAINS.search(last(call.func)):
                continue
            given = [p for arg in call.args for p in held.handed(arg.value)]
            scalers = [p for p in given if held.is_scaler(p)]
            optimizers = [p for p in given if _is_optimizer(held, p)]
            if len(scalers) == len(optimizers) == 1:
                yield _Serves(scalers[0], optimizers[0], call.site)


def _served(held: Held, scene: Scene, optimizer: c.Path, steps: list[_Serves]) -> Iterator[_Serves]:
    """The scaler that steps what is saved, where it is the same object or lives in the same place."""
    seen: set[c.Path] = set()
    for use in steps:
        if held.identity(use.scaler) in seen:
            continue
        same = held.identity(use.optimizer) == held.identity(optimizer)
        if same or (_is_near(held, scene, use.scaler) and use.optimizer[-1:] == optimizer[-1:]):
            seen.add(held.identity(use.scaler))
            yield use


def _is_near(held: Held, scene: Scene, scaler: c.Path) -> bool:
    """Whether a function can reach the scaler: an attribute of its class, its own variable, or one around it."""
    owner = scene.function.owner
    if owner in held.classes.by_name and scaler[0] == held.lift.self_root(owner):
        return True
    scope = scaler[0].rpartition(":")[0]
    return ":" in scaler[0] and (scope == "" or f"{scene.name}.".startswith(f"{scope}."))


# -- what saves ----------------------------------------------------------------------------------------------


def _savings(held: Held, usage: Usage, scene: Scene) -> Iterator[_Saved]:
    yield from _checkpoints(held, scene)
    yield from _helpers(held, scene)
    yield from _keepers(held, usage, scene)


def _receiver(held: Held, expr: ir.Expr) -> c.Path | None:
    """Whose state a call of `state_dict` gives."""
    if not isinstance(expr, ir.Call) or last(expr.func) not in _STATES:
        return None
    if last(expr.func) != "state_dict":
        given = [a.value for a in expr.args if a.keyword in (None, "optim")]
        paths = [p for value in given if (p := held.lift.path(value)) is not None and _is_optimizer(held, p)]
        return paths[0] if paths else None
    return held.lift.path(expr.func.value) if isinstance(expr.func, ir.Attr) else None


def _checkpoints(held: Held, scene: Scene) -> Iterator[_Saved]:
    """The states of an optimizer and of something else in what one function saves or returns."""
    for place in scene.places:
        for value, site, act in _acts(scene, place):
            exprs = list(_contents(held, scene, value, place))
            if any(_is_open(e) for e in exprs):
                continue
            optimizers = [
                (p, e) for e in exprs if (p := _receiver(held, e)) is not None and _is_optimizer(held, p)
            ]
            others = any(_is_of_model(held, e) for e in exprs)
            alone = bool(optimizers) and _is_state_itself(held, value)
            if not optimizers or not (others or (alone and _saves_model(held, scene))):
                continue
            if _is_handed_out(held, scene, value, site):
                continue
            optimizer, call = optimizers[0]
            where = _display(scene, value, place, call)
            at = where if where is not None else site
            trace = [(call.site, "the state of the optimizer")]
            if at != site:
                trace.append((site, act))
            text = "this checkpoint has"
            yield _Saved(at, optimizer, Confidence.HIGH, text, tuple(trace))


def _acts(scene: Scene, place: Place) -> Iterator[tuple[ir.Expr, int, str]]:
    """What is saved by a statement, where, and how."""
    for whole in walk.own(place.stmt):
        for call in walk.inside(whole):
            if isinstance(call, ir.Call) and _SAVES.search(last(call.func)) and not _is_model_only(call):
                for arg in call.args:
                    if not arg.star:
                        yield arg.value, call.site, "it is saved here"
    stmt = place.stmt
    if isinstance(stmt, ir.Return) and stmt.value is not None:
        short = scene.name.rpartition(".")[2]
        if (
            short == "state_dict"
            or _SAVES.search(short)
            or re.search(r"(get|make|build|collect).*state", short)
        ):
            yield stmt.value, stmt.site, "it is returned here"


def _is_model_only(call: ir.Call) -> bool:
    return last(call.func) in ("save_pretrained", "save_weights", "load_checkpoint", "checkpoint")


def _contents(held: Held, scene: Scene, value: ir.Expr, place: Place) -> Iterator[ir.Expr]:
    """Everything inside a value, and what the variables and keys of the dictionary that it is were given."""
    yield from walk.inside(value)
    path = held.lift.path(value)
    seen: set[c.Path] = set()
    stack = [path] if path is not None else []
    stack.extend(p for e in walk.inside(value) if (p := held.lift.path(e)) is not None)
    while stack and len(seen) < 100:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        for other, found in scene.definitions.items():
            is_key = (
                len(other) == len(current) + 1 and other[: len(current)] == current and other[-1][:1] == "["
            )
            if other != current and not is_key:
                continue
            for definition in found:
                if definition.value is None or definition.place.site > place.site:
                    continue
                yield from walk.inside(definition.value)
                if other == current or is_key:
                    inner = definition.value
                    if not isinstance(inner, ir.Call) or last(inner.func) in ("dict", "deepcopy"):
                        stack.extend(p for e in walk.inside(inner) if (p := held.lift.path(e)) is not None)


def _is_open(expr: ir.Expr) -> bool:
    """Whether a dictionary takes in entries that cannot be seen."""
    if isinstance(expr, ir.Items) and expr.kind == "dict":
        return any(isinstance(item, ir.Star) for item in expr.items)
    if isinstance(expr, ir.Call) and names(expr.func) == ("builtins.dict",):
        return any(arg.star for arg in expr.args)
    return False


def _is_model(held: Held, call: ir.Call) -> bool:
    path = _receiver(held, call)
    if path is None:
        return isinstance(call.func, ir.Attr)  # `(model.module if .. else model).state_dict()`
    name = path[-1].rpartition(":")[2]
    return not (_is_optimizer(held, path) or _NO_MODEL.search(name) or held.is_scaler(path))


def _is_of_model(held: Held, expr: ir.Expr) -> bool:
    """Whether a part of a checkpoint is a model: by what makes its state, by a variable's name or by its key."""
    if isinstance(expr, ir.Call):
        return last(expr.func) in _STATES and _is_model(held, expr)
    if isinstance(expr, ir.Name):
        return bool(_MODEL_STATE.search(expr.id)) and "optim" not in expr.id
    if isinstance(expr, ir.Items) and expr.kind == "dict":
        pairs = zip(expr.items[::2], expr.items[1::2], strict=False)
        return any(
            isinstance(key, ir.Const) and isinstance(key.value, str) and _MODEL_KEY.search(key.value)
            for key, value in pairs
            if not isinstance(value, ir.Const)
        )
    return False


def _is_state_itself(held: Held, value: ir.Expr) -> bool:
    """`torch.save(optimizer.state_dict(), path)`: files of their own."""
    return _receiver(held, value) is not None


def _saves_model(held: Held, scene: Scene) -> bool:
    return any(
        last(call.func) in ("save_pretrained", "save_model")
        or (
            _SAVES.search(last(call.func))
            and any(
                isinstance(e, ir.Call) and _is_model_call(held, e)
                for a in call.args
                for e in walk.inside(a.value)
            )
        )
        for call, _ in scene.calls
    )


def _is_model_call(held: Held, call: ir.Call) -> bool:
    return last(call.func) == "state_dict" and _is_model(held, call)


def _is_handed_out(held: Held, scene: Scene, value: ir.Expr, site: int) -> bool:
    """Whether a dictionary is handed to code, before it is saved, that may add to it."""
    path = held.lift.path(value)
    if path is None:
        return False
    made = max((d.place.site for d in scene.definitions.get(path, ()) if d.place.site < site), default=0)
    for call, place in scene.calls:
        if not made < place.site < site:
            continue
        is_own = _SAVES.search(last(call.func)) or any(n.startswith("builtins.") for n in names(call.func))
        if not is_own and any(held.lift.path(arg.value) == path for arg in call.args):
            return True
        updated = held.lift.path(call.func.value) if isinstance(call.func, ir.Attr) else None
        if updated == path and last(call.func) == "update" and not _is_plain_update(call):
            return True
    return False


def _is_plain_update(call: ir.Call) -> bool:
    return all(not a.star and (a.keyword or isinstance(a.value, ir.Items)) for a in call.args)


def _display(scene: Scene, value: ir.Expr, place: Place, state: ir.Expr) -> int | None:
    """The dictionary display with the optimizer's state that a variable was assigned."""
    path = scene.held.lift.path(value)
    for definition in scene.definitions.get(path, ()) if path is not None else ():
        made = definition.value
        is_made = isinstance(made, ir.Items) or (isinstance(made, ir.Call) and last(made.func) == "dict")
        if made is not None and is_made and any(e is state for e in walk.inside(made)):
            return made.site
    return None


def _helpers(held: Held, scene: Scene) -> Iterator[_Saved]:
    """`save_checkpoint(model, optimizer, ..)` of another file."""
    for call, _ in scene.calls:
        if not _HELPERS.search(last(call.func)) or held.callee(call, scene.function.owner) is not None:
            continue
        if any(arg.star for arg in call.args):
            continue
        given = [p for arg in call.args for p in held.handed(arg.value)]
        optimizers = [p for p in given if _is_optimizer(held, p)]
        if not optimizers or len(given) < 2 or any(held.concerns(p) for p in given):
            continue
        receiver = held.lift.path(call.func.value) if isinstance(call.func, ir.Attr) else None
        if receiver is not None and receiver[0].endswith(".self") and len(receiver) == 1:
            continue  # a method that this file does not show may know the scaler
        yield _Saved(call.site, optimizers[0], Confidence.MEDIUM, f"{last(call.func)} is handed")


def _keepers(held: Held, usage: Usage, scene: Scene) -> Iterator[_Saved]:
    """`Checkpointer(model, optimizer=optimizer)`, and a class of this file that asks what it holds for states."""
    for place in scene.places:
        stmt = place.stmt
        if not isinstance(stmt, ir.Assign) or not isinstance(stmt.value, ir.Call) or len(stmt.targets) != 1:
            continue
        call = stmt.value
        klass = held.classes.klass(names(call.func))
        called = last(call.func)
        if not called[:1].isupper() or any(arg.star for arg in call.args):
            continue
        if klass is not None:
            if not _asks_for_states(held, usage, klass):
                continue
        elif not re.search(r"checkpoint(er|manager)?$|saver$", called, re.IGNORECASE) or "Callback" in called:
            continue
        given = [p for arg in call.args for p in _objects(held, scene, arg.value)]
        optimizers = [p for p in given if _is_optimizer(held, p)]
        keeper = held.lift.path(stmt.targets[0])
        if not optimizers or len(given) < 2 or keeper is None or any(held.concerns(p) for p in given):
            continue
        if _gets_scaler(held, usage, keeper):
            continue
        yield _Saved(call.site, optimizers[0], Confidence.HIGH, f"{called} keeps the state of", (), klass)


def _objects(held: Held, scene: Scene, expr: ir.Expr) -> Iterator[c.Path]:
    """The objects handed over, also as the values of a dictionary."""
    path = held.lift.path(expr)
    if path is not None:
        yield path
        for definition in scene.definitions.get(path, ()):
            if isinstance(definition.value, ir.Items) and definition.value.kind == "dict":
                for value in definition.value.items[1::2]:
                    yield from held.handed(value)
        return
    yield from held.handed(expr)


def _asks_for_states(held: Held, usage: Usage, klass: str) -> bool:
    """Whether a class of this file collects the states of whatever it was given."""
    root = held.lift.self_root(klass)
    if any(use.scaler[0] == root for use in usage.uses):
        return False  # it trains itself
    for _, qualname in held.classes.by_name[klass].methods:
        scene = usage.scene(qualname)
        for call, _ in scene.calls:
            if last(call.func) == "state_dict" and isinstance(call.func, ir.Attr):
                path = held.lift.path(call.func.value)
                if path is not None and (path[0] == root or _is_element(scene, path) or path[-1] == "[]"):
                    return True
    return False


def _gets_scaler(held: Held, usage: Usage, keeper: c.Path) -> bool:
    """Whether the keeper is handed a scaler, or something that has one, later on."""
    wanted = held.identity(keeper)
    for scene in usage.scenes:
        for call, _ in scene.calls:
            receiver = held.lift.path(call.func.value) if isinstance(call.func, ir.Attr) else None
            near = receiver is not None and any(
                held.identity(receiver[:size]) == wanted for size in range(1, len(receiver) + 1)
            )
            given = [p for arg in call.args for p in held.handed(arg.value)]
            if near and any(held.concerns(p) or (p[0].endswith(".self") and len(p) == 1) for p in given):
                return True
        for path, found in scene.definitions.items():
            if len(path) > len(keeper) and held.identity(path[: len(keeper)]) == wanted:
                values = (p for d in found if d.value is not None for p in held.handed(d.value))
                if any(held.concerns(p) for p in values):
                    return True
    return False


# -- what is lost on loading ---------------------------------------------------------------------------------


def _not_restored(
    held: Held, scene: Scene, call: ir.Call, steps: list[_Serves], states: _States
) -> _Serves | None:
    """The scaler of an optimizer that is restored alone, although the scaler's state was saved."""
    if not states.saved or states.loads_scaler or states.registries or last(call.func) != "load_state_dict":
        return None
    path = held.lift.path(call.func.value) if isinstance(call.func, ir.Attr) else None
    if path is None or not _is_optimizer(held, path):
        return None
    return next(_served(held, scene, path, steps), None)


def _replaced(ctx: Context, held: Held, usage: Usage) -> Iterator[Report]:
    """`scaler.load_state_dict(..)`, and then `scaler = GradScaler()`."""
    nodes = ctx.model.tree.nodes
    for scene in usage.scenes:
        restored = [(use.scaler, use.place) for use in usage.of("load_state_dict") if use.scene is scene]
        for call, place in scene.calls:
            called = held.callee(call, scene.function.owner)
            for use in usage.of("load_state_dict") if called is not None and called != scene.name else ():
                if use.scene.name == called and use.scaler[0].endswith(".self"):
                    restored.append((use.scaler, place))
        for scaler, place in restored:
            for definition in scene.definitions.get(scaler, ()):
                later = definition.place
                size = len(later.around)
                if (
                    later.site <= place.site
                    or later.around != place.around[:size]
                    or definition.value is None
                ):
                    continue
                made = [e for e in walk.inside(definition.value) if held.lift.constructs_scaler(e)]
                if not made:
                    continue
                yield Report(
                    nodes[made[0].site],
                    f"{written(scaler)} was restored before, and is replaced here: the restored scale is lost",
                    trace=[(nodes[place.site], f"the state of {written(scaler)} is restored here")],
                    fix=lambda: "make the scaler first and restore its state then",
                )


RULE = Rule(
    code="AMP212",
    name="scaler-state-not-saved",
    summary="a checkpoint keeps the optimizer's state and loses the scaler's",
    severity=Severity.WARNING,
    check=check,
    words=(".scale", "unscale_", "GradScaler"),
    shape=shapes.scaler_state_not_saved,
    module=__name__,
)
