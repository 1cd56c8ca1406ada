"""A rank decides by its own loss to skip a backward that the other ranks take part in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.finding import Confidence, Severity
from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.held import Held, objects_of
from amplint.flow.lift import last, names, without_scale
from amplint.flow.objects import backward_losses
from amplint.flow.placement import Place, Scene
from amplint.flow.usage import usage_of
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

_CHECKS = ("isnan", "isinf", "isfinite")
#: Whatever is called so makes the ranks agree, or may.
_AGREES = re.compile(
    r"reduce|gather|broadcast|barrier|synchron|sync_|_sync|collective|consensus|any_rank|across|vote",
    re.IGNORECASE,
)
_DISTRIBUTED = (
    "torch.distributed",
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed",
    "apex.parallel",
    "horovod",
    "deepspeed",
    "fairscale",
)
_ENDS = ("exit", "_exit", "abort", "set_trace", "breakpoint", "quit", "kill")
#: Variables and operators that are looked through; `x = x or y` leads back to itself.
_DEEPEST = 12
_STRATEGIES = re.compile(r"^(ddp|fsdp)", re.IGNORECASE)
_REASON = "make the ranks agree first (all_reduce the flag with MAX), or leave the skip to the scaler: that is a choice"


@dataclass(frozen=True, slots=True)
class _Skip:
    """A test, what is run or not run by it, and the backward that is left out."""

    test: ir.Expr
    site: int
    #: The statement that leaves, where there is one.
    left: int | None
    what: str
    #: Site of the call that takes the gradient; None where the framework does it.
    backward: int | None
    loss: str


def check(ctx: Context) -> Iterable[Report]:
    """Report each test of a rank's own loss that leaves out a backward."""
    if not any(word in ctx.model.source.text for word in ("backward", "training_step")):
        return
    held = objects_of(ctx.model)
    nodes = ctx.model.tree.nodes
    distributed = _distributed(ctx, held)
    for scene in usage_of(ctx.model, held).scenes:
        reported: set[int] = set()
        for skip in _skips(held, scene):
            if skip.site in reported:
                continue
            reported.add(skip.site)
            trace = [(nodes[skip.left], f"{skip.what} here")] if skip.left is not None else []
            if skip.backward is not None:
                trace.append((nodes[skip.backward], "this backward is left out"))
            if distributed is not None:
                text = f"`{skip.loss}` is this rank's own: it skips by itself, and the others wait for its gradients"
                trace.append((nodes[distributed], "several ranks train together"))
            else:
                text = f"the step is skipped by the value of `{skip.loss}`; with several ranks each decides by itself"
            yield Report(
                nodes[skip.test.site],
                text,
                severity=Severity.ERROR if distributed is not None else Severity.INFO,
                confidence=Confidence.HIGH if distributed is not None else Confidence.LOW,
                trace=trace,
                fix=lambda: _REASON,
            )


def _distributed(ctx: Context, held: Held) -> int | None:
    """Where the file shows that it trains on several ranks."""
    for placed in held.calls:
        if any(name.startswith(_DISTRIBUTED) for name in names(placed.call.func)):
            return placed.call.site
        for arg in placed.call.args:
            value = arg.value
            written = value.value if isinstance(value, ir.Const) and arg.keyword == "strategy" else None
            if isinstance(written, str) and _STRATEGIES.search(written):
                return value.site
    return None


def _skips(held: Held, scene: Scene) -> Iterator[_Skip]:
    backwards = [(call, place, loss) for call, place in scene.calls for loss in _losses(call)]
    for place in scene.places:
        stmt = place.stmt
        if not isinstance(stmt, ir.If):
            continue
        found = _test(scene, stmt.test)
        if found is None:
            continue
        tested, bad = found
        if _agree(held, scene, stmt, tested):
            continue
        skipped, taken = (stmt.body, stmt.orelse) if bad else (stmt.orelse, stmt.body)
        leaves = _leaves(skipped)
        loss = _loss_name(scene, tested)
        if loss is None:
            continue
        own = _own_backward(scene, taken, backwards, tested)
        if own is not None and not _raises(skipped) and not any(map(_losses_in, walk.statements(skipped))):
            yield _Skip(stmt.test, stmt.site, None, "", own, loss)
        elif leaves is not None:
            what = leaves.kind if isinstance(leaves, ir.Jump) else "return"
            later = _later_backward(scene, place, backwards, tested)
            if later is not None:
                yield _Skip(stmt.test, stmt.site, leaves.site, what, later, loss)
            elif _is_framework_step(held, scene) and _returns_nothing(leaves):
                yield _Skip(stmt.test, stmt.site, leaves.site, what, None, loss)


def _losses(call: ir.Call) -> Iterator[ir.Expr]:
    """The losses that a call takes the gradient of, also through a wrapper that is called like a scaler."""
    for loss in backward_losses(call):
        yield without_scale(loss)
    name = last(call.func).lower()
    if "scaler" in name and "grad" not in name.replace("grad_scaler", "") and len(call.args) >= 2:
        yield without_scale(call.args[0].value)


# -- the test ------------------------------------------------------------------------------------------------


def _test(scene: Scene, test: ir.Expr, depth: int = 0) -> tuple[ir.Expr, bool] | None:
    """What is tested for being finite, and whether the test holds where it is not."""
    if depth > _DEEPEST:
        return None
    bad = True
    while True:
        if isinstance(test, ir.Unary) and test.op == "not":
            bad, test = not bad, test.operand
        elif isinstance(test, ir.Bool):
            for part in (test.left, test.right):
                found = _test(scene, part, depth + 1)
                if found is not None:
                    agreeing = found[1] is (test.op == "or")
                    return (found[0], found[1] is bad) if agreeing or test.op == "or" else None
            return None
        elif isinstance(test, ir.Call) and last(test.func) in (*_CHECKS, "any", "all", "item", "bool"):
            name = last(test.func)
            if name in _CHECKS:
                inner = test.args[0].value if test.args else None
                if inner is None and isinstance(test.func, ir.Attr):
                    inner = test.func.value
                return (inner, bad is (name != "isfinite")) if inner is not None else None
            if test.args and (names(test.func) or isinstance(test.func, ir.Name)):
                test = test.args[0].value
            elif isinstance(test.func, ir.Attr):
                test = test.func.value
            else:
                return None
        elif isinstance(test, ir.Compare) and test.op == "!=" and _same(scene, test):
            return test.left, bad
        elif isinstance(test, ir.Binary) and test.op in ("|", "+"):
            return _test(scene, ir.Bool("or", test.left, test.right, test.site), depth + 1) if bad else None
        elif isinstance(test, ir.Compare) and test.op == ">" and _is_zero(test.right):
            test = test.left
            if isinstance(test, ir.Call) and last(test.func) == "sum" and isinstance(test.func, ir.Attr):
                test = test.func.value
        elif isinstance(test, (ir.Name, ir.Attr)):
            path = scene.held.lift.path(test)
            values = [d for d in scene.definitions.get(path, ()) if d.value is not None] if path else []
            if len(values) != 1 or values[0].grows or not values[0].place.site < test.site:
                return None
            value = values[0].value
            assert value is not None
            found = _test(scene, value, depth + 1) if not isinstance(value, (ir.Name, ir.Attr)) else None
            return (found[0], found[1] is bad) if found is not None else None
        else:
            return None


def _same(scene: Scene, test: ir.Compare) -> bool:
    """`x != x`, which holds for nan."""
    left, right = scene.held.lift.term(test.left), scene.held.lift.term(test.right)
    return left == right and not c.has_unknown(left)


def _is_zero(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Const) and expr.value == 0


def _loss_name(scene: Scene, tested: ir.Expr) -> str | None:
    """The variable that is tested, where it is a loss by its name."""
    for path in scene.reads(tested):
        written = path[-1].rpartition(":")[2]
        if "loss" in written.lower() or written in ("cost", "nll", "objective"):
            return written
    return None


def _agree(held: Held, scene: Scene, stmt: ir.If, tested: ir.Expr) -> bool:
    """Whether the ranks may have made what is tested the same for all."""
    closure = scene.closure(stmt.test, tested)
    for expr in scene.origins(stmt.test, tested):
        if isinstance(expr, (ir.Name, ir.Attr)) and _AGREES.search(last(expr)):
            return True
    for call, place in scene.calls:
        if not _AGREES.search(last(call.func)):
            continue
        handed = (held.lift.path(e) for arg in call.args for e in walk.inside(arg.value))
        if any(s is stmt for s, _ in place.around):
            return True
        if place.site <= stmt.site and any(path in closure for path in handed):
            return True
    return False


# -- what is skipped -----------------------------------------------------------------------------------------


def _leaves(block: ir.Block) -> ir.Jump | ir.Return | None:
    """The statement by which a block leaves the iteration or the function."""
    found = block[-1] if block else None
    if not isinstance(found, (ir.Jump, ir.Return)) or _raises(block):
        return None
    if any(_losses_in(stmt) for stmt in walk.statements(block)):
        return None  # it takes part in the backward in another way
    return found


def _losses_in(stmt: ir.Stmt) -> bool:
    return any(
        isinstance(expr, ir.Call) and any(True for _ in _losses(expr))
        for whole in walk.own(stmt)
        for expr in walk.inside(whole)
    )


def _raises(block: ir.Block) -> bool:
    """Whether a block ends the program."""
    for stmt in walk.statements(block):
        if isinstance(stmt, (ir.Raise, ir.Assert)):
            return True
        call = stmt.value if isinstance(stmt, ir.Do) else None
        if isinstance(call, ir.Call) and last(call.func) in _ENDS:
            return True
    return False


_Backward = tuple[ir.Call, Place, ir.Expr]


def _is_of(scene: Scene, tested: ir.Expr, loss: ir.Expr) -> bool:
    """Whether the tested value and the differentiated one are computed from one another."""
    lift = scene.held.lift
    mine, theirs = lift.path(loss), [p for p in (lift.path(e) for e in walk.inside(tested)) if p is not None]
    below = scene.closure(loss)
    if any(path in below for path in theirs):
        return True
    return mine is not None and mine in scene.closure(tested)


def _own_backward(scene: Scene, taken: ir.Block, backwards: list[_Backward], tested: ir.Expr) -> int | None:
    """A backward of the tested loss that runs in only one arm."""
    for call, where, loss in backwards:
        inside = any(where.stmt is stmt for stmt in walk.statements(taken))
        if inside and _is_of(scene, tested, loss):
            return call.site
    return None


def _later_backward(scene: Scene, place: Place, backwards: list[_Backward], tested: ir.Expr) -> int | None:
    """A backward of the tested loss behind the test, in the same round of the loop around it."""
    loops = place.loops
    for call, where, loss in backwards:
        if where.site <= place.site or where.excludes(place) or not _is_of(scene, tested, loss):
            continue
        if where.loops[: len(loops)] == loops:
            return call.site
    return None


def _is_framework_step(held: Held, scene: Scene) -> bool:
    """`training_step` of a LightningModule, whose backward the framework runs."""
    owner = scene.function.owner
    return (
        owner is not None
        and scene.name.rpartition(".")[2] == "training_step"
        and held.classes.is_lightning(owner)
    )


def _returns_nothing(leaves: ir.Stmt) -> bool:
    return isinstance(leaves, ir.Return) and (
        leaves.value is None or (isinstance(leaves.value, ir.Const) and leaves.value.value is None)
    )


RULE = Rule(
    code="AMP220",
    name="rank-local-nonfinite-skip",
    summary="a rank skips a backward by its own loss, which the others wait for",
    severity=Severity.ERROR,
    check=check,
    words=("isnan", "isinf", "isfinite", "!= loss"),
    shape=shapes.rank_local_nonfinite_skip,
    module=__name__,
)
