"""A GradScaler is made anew for each epoch or step, and forgets the scale that it had found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.finding import Confidence, Severity
from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.held import Held, objects_of
from amplint.flow.lift import last
from amplint.flow.placement import Loop, Place, Scene
from amplint.flow.usage import Usage, is_test, usage_of
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

#: Loops over these train something else each time, or begin anew on purpose.
_ANEW = re.compile(
    r"fold|seed|trial|stage|phase|task|client|worker|run|repeat|config|cfg|param|experiment|model|net|lr|"
    r"dataset|session|split|opt|dtype|enabled|device|amp|precision|scaler|attempt|retr|generation|search",
    re.IGNORECASE,
)
_PER_EPOCH = re.compile(r"epoch|iter|step|batch|loader", re.IGNORECASE)
_EPOCH_FUNCTION = re.compile(
    r"(^|_)(train|fit|run|do|training)_?(one_?)?(epoch|step|batch|iter|iteration)$|(^|_)(one|per|single)_epoch"
    r"|^epoch_?(train|step)|^(train|training)_?(one_?)(epoch|step|batch)"
    r"|^on_(train_)?(epoch|batch)_start$|^training_step$|^optimize_parameters$",
    re.IGNORECASE,
)
_EPOCH_PARAM = ("epoch", "epoch_idx", "epoch_index", "cur_epoch", "current_epoch", "i_epoch", "epoch_num")
_REASON = "make the scaler once, before the loop over the epochs, and hand it in"


@dataclass(frozen=True, slots=True)
class _Why:
    what: str
    site: int
    text: str
    confidence: Confidence


def check(ctx: Context) -> Iterable[Report]:
    """Report each constructor that runs again while the optimizer that the scaler serves lives on."""
    if is_test(ctx.model.filename):
        return
    held = objects_of(ctx.model)
    usage = usage_of(ctx.model, held)
    nodes = ctx.model.tree.nodes
    for scene in usage.scenes:
        for path, place, call in _made(held, scene):
            if held.lift.enabled(call) is False or not usage.may_scale(path):
                continue
            why = _why(held, usage, scene, path, place, call)
            if why is None:
                continue
            name = ctx.model.tree.code(nodes[_target(place).site])
            yield Report(
                nodes[call.site],
                f"`{name}` is made anew {why.what}, so the scale and the growth count that it has reached are lost "
                "each time",
                confidence=why.confidence,
                trace=[(nodes[why.site], why.text)],
                fix=lambda: _REASON,
            )


def _target(place: Place) -> ir.Expr:
    assert isinstance(place.stmt, ir.Assign)
    return place.stmt.targets[0]


def _made(held: Held, scene: Scene) -> Iterator[tuple[c.Path, Place, ir.Call]]:
    """`x = GradScaler(..)`, also in one arm of a conditional expression."""
    for place in scene.places:
        stmt = place.stmt
        if not isinstance(stmt, ir.Assign) or len(stmt.targets) != 1 or stmt.value is None:
            continue
        path = held.lift.path(stmt.targets[0])
        value = stmt.value
        arms = (value.body, value.orelse) if isinstance(value, ir.IfExp) else (value,)
        for arm in arms:
            if path is not None and "[" not in path[-1] and held.lift.constructs_scaler(arm):
                assert isinstance(arm, ir.Call)
                if not _keeps_old(held, path, place, value):
                    yield path, place, arm


def _keeps_old(held: Held, path: c.Path, place: Place, value: ir.Expr) -> bool:
    """Whether a scaler that is there already is kept: a test around mentions it, or the other arm is it."""
    tests = [test.test for test, _ in place.tests]
    tests.extend((value.test, value.orelse, value.body) if isinstance(value, ir.IfExp) else ())
    tests.extend(s.test for s, _ in place.around if isinstance(s, ir.While))
    written = path[-1].rpartition(":")[2]
    for expr in (e for test in tests for e in walk.inside(test)):
        if held.lift.path(expr) == path or (isinstance(expr, ir.Const) and expr.value == written):
            return True
        if isinstance(expr, (ir.Name, ir.Attr)) and _FIRST.search(last(expr)):
            return True
        if isinstance(expr, ir.Compare) and expr.op == "==" and _is_number(expr.right):
            return True  # `if epoch == 0`
    return False


_FIRST = re.compile(r"first|initiali[sz]ed|restart|reset", re.IGNORECASE)


def _is_number(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Const) and isinstance(expr.value, int) and not isinstance(expr.value, bool)


def _why(held: Held, usage: Usage, scene: Scene, path: c.Path, place: Place, call: ir.Call) -> _Why | None:
    if _escapes(held, usage, scene, path):
        return None
    steps = usage.steps_of(path)
    optimizers = [p for use in steps if use.call.args and (p := held.lift.path(use.call.args[0].value))]
    if place.loops:
        return _in_loop(held, scene, place, call, optimizers)
    if scene.name == "" or not (path[0].startswith(f"{scene.name}:") or path[0].endswith(".self")):
        return None
    if not optimizers or _makes(scene, optimizers) or _is_whole_run(scene):
        return None
    called = _is_called(held, usage, scene, optimizers, 0)
    if called is not None:
        text = f"this loop calls {_short(scene)} again and again"
        return _Why(f"by each call of {_short(scene)} in a loop", called.site, text, Confidence.HIGH)
    if any(held.callee(other, s.function.owner) == scene.name for s in usage.scenes for other, _ in s.calls):
        return None  # once, as far as this file shows
    return _by_name(scene, optimizers)


def _escapes(held: Held, usage: Usage, scene: Scene, path: c.Path) -> bool:
    """Whether the scaler is returned, kept somewhere else, or used by a function defined inside."""
    for place in scene.places:
        stmt = place.stmt
        kept: ir.Expr | None = None
        if (
            isinstance(stmt, ir.Return)
            or (
                isinstance(stmt, ir.Assign)
                and any(isinstance(t, (ir.Attr, ir.Subscript)) for t in stmt.targets)
            )
            or (isinstance(stmt, ir.Do) and any(isinstance(e, ir.Other) for e in walk.inside(stmt.value)))
        ):
            kept = stmt.value
        if kept is not None and any(found == path for found in _held_by(held, kept)):
            return True
        added = stmt.value if isinstance(stmt, ir.Do) and isinstance(stmt.value, ir.Call) else None
        adds = added is not None and last(added.func) == "append"
        if adds and added is not None and any(held.lift.path(arg.value) == path for arg in added.args):
            return True
    return any(
        held.lift.path(expr) == path
        for other in usage.scenes
        if other.name.startswith(f"{scene.name}.") and scene.name
        for expr in walk.expressions(other.function.body)
    )


def _held_by(held: Held, expr: ir.Expr) -> Iterator[c.Path]:
    """The paths that `expr` hands on, but not those that it only calls methods of."""
    path = held.lift.path(expr)
    if path is not None:
        yield path
    elif isinstance(expr, ir.Call):
        for arg in expr.args:
            yield from _held_by(held, arg.value)
    else:
        for part in walk.parts(expr):
            yield from _held_by(held, part)


def _in_loop(held: Held, scene: Scene, place: Place, call: ir.Call, optimizers: list[c.Path]) -> _Why | None:
    loop = place.loops[-1]
    bound = _bound(held, loop)
    if any(path in bound for path in scene.closure(*(arg.value for arg in call.args))):
        return None
    if _starts_anew(loop) or _makes_optimizer(scene, loop, optimizers):
        return None
    epochs = _is_epochs(loop)
    if not epochs and (not optimizers or _holds_epochs(scene, loop)):
        return None
    confidence = Confidence.HIGH if optimizers else Confidence.MEDIUM
    return _Why("in each round of a loop", loop.site, "this loop goes on with the same optimizer", confidence)


def _bound(held: Held, loop: Loop) -> set[c.Path]:
    targets = walk.inside(loop.target) if isinstance(loop, ir.For) else ()
    return {path for expr in targets if (path := held.lift.path(expr)) is not None}


def _words(loop: Loop) -> Iterator[str]:
    """The names in the head of a loop."""
    heads = (loop.target, loop.iterable) if isinstance(loop, ir.For) else (loop.test,)
    for expr in (e for head in heads for e in walk.inside(head)):
        if isinstance(expr, (ir.Name, ir.Attr)):
            yield last(expr)


def _is_epochs(loop: Loop) -> bool:
    return any(_PER_EPOCH.search(word) for word in _words(loop))


def _starts_anew(loop: Loop) -> bool:
    targets = [last(e) for e in walk.inside(loop.target)] if isinstance(loop, ir.For) else []
    if any(_ANEW.search(word) and not _PER_EPOCH.search(word) for word in targets):
        return True
    return not _is_epochs(loop) and any(_ANEW.search(word) for word in _words(loop))


def _holds_epochs(scene: Scene, loop: Loop) -> bool:
    """Whether a loop inside is one over epochs, so that this one is over whole trainings."""
    return any(
        isinstance(place.stmt, (ir.For, ir.While)) and loop in place.loops and _is_epochs(place.stmt)
        for place in scene.places
        if any(
            isinstance(inner.stmt, (ir.For, ir.While)) and place.stmt in inner.loops for inner in scene.places
        )
    )


def _makes_optimizer(scene: Scene, loop: Loop, optimizers: list[c.Path]) -> bool:
    """Whether the loop makes its own optimizer each time."""
    for path, found in scene.definitions.items():
        for definition in found:
            if loop not in definition.place.loops and definition.place.stmt is not loop:
                continue
            if path in optimizers or any(path == optimizer[: len(path)] for optimizer in optimizers):
                return True
            written = path[-1].rpartition(":")[2].lower()
            is_one = "optim" in written or written == "opt" or "model" in written.split("_")
            if is_one and isinstance(definition.value, ir.Call):
                return True
    return False


def _makes(scene: Scene, optimizers: list[c.Path]) -> bool:
    return any(
        definition.value is not None and not (isinstance(definition.value, (ir.Attr, ir.Subscript, ir.Name)))
        for optimizer in optimizers
        for definition in scene.definitions.get(optimizer, ())
    )


def _is_whole_run(scene: Scene) -> bool:
    """Whether the function goes over epochs itself."""
    loops = [place.stmt for place in scene.places if isinstance(place.stmt, (ir.For, ir.While))]
    return any("epoch" in word.lower() for loop in loops for word in _words(loop))


def _short(scene: Scene) -> str:
    return scene.name.rpartition(".")[2]


def _is_called(held: Held, usage: Usage, scene: Scene, optimizers: list[c.Path], depth: int) -> Loop | None:
    """A loop that calls the function each time with the same optimizer."""
    if depth > 3:
        return None
    for other in usage.scenes:
        for call, place in other.calls:
            if held.callee(call, other.function.owner) != scene.name:
                continue
            given = _given(held, scene, call, optimizers)
            if given is None:
                continue
            if not place.loops:
                is_part = other.name not in ("", scene.name) and not _makes(other, given)
                if is_part and not _is_whole_run(other):
                    found = _is_called(held, usage, other, given, depth + 1)
                    if found is not None:
                        return found
                continue
            loop = place.loops[-1]
            epochs = _is_epochs(loop) or bool(_EPOCH_FUNCTION.search(_short(scene)))
            if epochs and not _starts_anew(loop) and not _makes_optimizer(other, loop, given):
                return loop
    return None


def _given(held: Held, scene: Scene, call: ir.Call, optimizers: list[c.Path]) -> list[c.Path] | None:
    """The optimizers in terms of the caller; None where they cannot be told."""
    found: list[c.Path] = []
    bound = {param.name: value for param, value in held.bound(scene.name, call)}
    for path in optimizers:
        scope, _, name = path[0].partition(":")
        if scope == scene.name and name in bound:
            value = bound[name]
            outer = held.lift.path(value) if value is not None else None
            if outer is None:
                return None
            found.append((*outer, *path[1:]))
        elif path[0].endswith(".self") and isinstance(call.func, ir.Attr):
            receiver = held.lift.path(call.func.value)
            if receiver is None:
                return None
            found.append((*receiver, *path[1:]))
        else:
            found.append(path)
    return found


def _by_name(scene: Scene, optimizers: list[c.Path]) -> _Why | None:
    """A function whose name or parameter says that it is one epoch or one step of many."""
    loops = [place.stmt for place in scene.places if isinstance(place.stmt, (ir.For, ir.While))]
    params = {param.name: param for param in scene.function.params}
    own = [path for path in optimizers if path[0].startswith(f"{scene.name}:") or path[0].endswith(".self")]
    if not own:
        return None
    by_param = next((name for name in _EPOCH_PARAM if name in params), None)
    if _EPOCH_FUNCTION.search(_short(scene)):
        text = f"{_short(scene)} is one part of a training"
        return _Why(f"by each call of {_short(scene)}", scene.function.site, text, Confidence.HIGH)
    if by_param is None or not loops:
        return None
    text = f"{_short(scene)} is told which {by_param} it trains"
    return _Why(f"by each call of {_short(scene)}", scene.function.site, text, Confidence.MEDIUM)


RULE = Rule(
    code="AMP213",
    name="scaler-recreated",
    summary="a GradScaler is made anew for each epoch or step",
    severity=Severity.WARNING,
    check=check,
    words=("GradScaler",),
    shape=shapes.grad_scaler_odd_arguments,
    module=__name__,
)
