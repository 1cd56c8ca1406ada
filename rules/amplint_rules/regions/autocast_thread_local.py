"""Work that is handed to other threads inside an autocast region, which does not reach them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from amplint.finding import Confidence, Severity
from amplint.flow import walk
from amplint.flow.lift import last, names
from amplint.flow.precision.names import MODULE_NAME
from amplint.flow.spans import Event, Spans, spans_of
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.regions.entered import COMPUTES, entered

_CHOICE = "enter the region in the function that the thread runs; its device and dtype have to be handed over"
_THREADS = ("threading.Thread", "threading.Timer", "_thread.start_new_thread", "asyncio.to_thread")
_POOLS = (
    "concurrent.futures.ThreadPoolExecutor",
    "concurrent.futures.thread.ThreadPoolExecutor",
    "multiprocessing.pool.ThreadPool",
    "multiprocessing.dummy.Pool",
)
#: Methods of pools -> where the function stands among the arguments.
_METHODS = {
    "submit": 0,
    "map": 0,
    "apply": 0,
    "apply_async": 0,
    "map_async": 0,
    "imap": 0,
    "imap_unordered": 0,
    "starmap": 0,
    "starmap_async": 0,
    "run_in_executor": 1,
}
#: Operators that a region would have computed in low precision.
_LOWERED = (
    "linear",
    "matmul",
    "bmm",
    "mm",
    "einsum",
    "conv1d",
    "conv2d",
    "conv3d",
    "scaled_dot_product_attention",
)
_LOADS = re.compile(r"load|fetch|read|save|write|log|download|upload|prefetch|collate|dataset", re.IGNORECASE)
_DEEPEST = 3


def check(ctx: Context) -> Iterable[Report]:
    """Report each thread that is given a model to run while a region is entered."""
    spans = spans_of(ctx.model)
    nodes = ctx.model.tree.nodes
    reported: set[int] = set()
    for span in spans.all:
        for event in span.events:
            if event.site in reported or not isinstance(event.expr, ir.Call) or not spans.is_on(event):
                continue
            for run in _handed(spans, event):
                found = _computes(spans, run, event.function)
                if found is None or run.site in reported:
                    continue
                reported.update((event.site, run.site))
                yield Report(
                    nodes[event.site],
                    f"`{ctx.model.tree.code(nodes[run.site])}` runs in another thread, where the autocast region is "
                    "not entered: it computes in the dtype of the weights",
                    confidence=Confidence.HIGH
                    if spans.regions.held.classes.local(names(run))
                    else Confidence.MEDIUM,
                    trace=[*entered(ctx, event), (nodes[found.site], "this runs outside the region")],
                    fix=lambda: _CHOICE,
                )
                break


def _handed(spans: Spans, event: Event) -> Iterator[ir.Expr]:
    """What a call hands to another thread to be run."""
    call = event.expr
    assert isinstance(call, ir.Call)
    held = spans.regions.held
    named = names(call.func)
    given = {arg.keyword: arg.value for arg in call.args if arg.keyword is not None}
    plain = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
    if any(name in _THREADS for name in named):
        if named[0].endswith(("Thread", "Timer")):
            if "target" in given or "function" in given:
                yield given.get("target") or given["function"]
            elif len(plain) > 1:
                yield plain[1]
        elif plain:
            yield plain[0]
    elif (thread := held.classes.klass(named)) is not None:
        if any(base in _THREADS for bases in held.classes.foreign(thread) for base in bases):
            yield call.func
    elif isinstance(call.func, ir.Attr) and not named:
        if call.func.attr == "start" and not call.args:
            yield from _started(spans, call.func.value)
        position = _METHODS.get(call.func.attr)
        if position is not None and len(plain) > position and _is_pool(spans, call.func):
            yield plain[position]


def _started(spans: Spans, thread: ir.Expr) -> Iterator[ir.Expr]:
    """What a thread that is started was made to run; it may be one of a list."""
    held = spans.regions.held
    path = held.lift.path(thread)
    made = [binding.value for binding in held.values(path)] if path is not None else []
    for function in held.functions.values():
        for stmt in walk.statements(function.body):
            if isinstance(stmt, ir.For) and path is not None and held.lift.path(stmt.target) == path:
                over = held.lift.path(stmt.iterable)
                made.extend(b.value for b in (held.values(over) if over is not None else ()))
    for value in made:
        if isinstance(value, ir.Comprehension):
            value = value.element[0]
        if isinstance(value, ir.Call) and any(name in _THREADS for name in names(value.func)):
            yield from (arg.value for arg in value.args if arg.keyword == "target")


def _is_pool(spans: Spans, func: ir.Attr) -> bool:
    held = spans.regions.held
    if func.attr == "run_in_executor":
        return True
    if isinstance(func.value, ir.Call):
        return any(name in _POOLS for name in names(func.value.func))
    path = held.lift.path(func.value)
    made = [binding.value for binding in held.values(path)] if path is not None else []
    if path is not None and held.is_param(path):
        made.extend(held.given(path)[0])
    if any(isinstance(m, ir.Call) and any(n in _POOLS for n in names(m.func)) for m in made):
        return True
    return any(
        isinstance(item, ir.Call)
        and any(n in _POOLS for n in names(item.func))
        and held.lift.path(target) == path
        for function in held.functions.values()
        for stmt in walk.statements(function.body)
        if isinstance(stmt, ir.With)
        for item, target in stmt.items
        if target is not None
    )


# -- what runs there ------------------------------------------------------------------------------------------------


def _computes(spans: Spans, run: ir.Expr, owner: str, depth: int = 0) -> ir.Expr | None:
    """Where what a thread runs computes with a model and no region of its own."""
    held = spans.regions.held
    if isinstance(run, ir.Lambda):
        return next((e for e in walk.inside(run.body) if _is_model(spans, e)), None)
    if isinstance(run, ir.Call) and names(run.func) == ("functools.partial",) and run.args:
        return _computes(spans, run.args[0].value, owner, depth)
    called = held.callee(ir.Call(run, (), run.site), held.functions[owner].owner)
    thread = held.classes.klass(names(run))
    if thread is not None:
        called = held.classes.method(thread, "run")
    function = held.functions.get(called or "?")
    if function is None:
        path = held.lift.path(run)
        if path is None or names(run):
            return None
        if held.is_param(path) or held.values(path) or len(path) > 1:
            is_module = held.module_class(path) is not None or _is_named(_named(run))
            return run if is_module else None
        return None
    return _in(spans, function, depth)


def _in(spans: Spans, function: ir.Function, depth: int) -> ir.Expr | None:
    regions = spans.regions
    if depth > _DEEPEST or any(True for d in function.decorators for _ in regions.made_by(d, "")):
        return None
    return _in_block(spans, function.body, function, depth)


def _in_block(spans: Spans, block: ir.Block, function: ir.Function, depth: int) -> ir.Expr | None:
    held = spans.regions.held
    for stmt in block:
        if isinstance(stmt, ir.With) and any(
            True for item, _ in stmt.items for _ in spans.regions.made_by(item, function.qualname)
        ):
            continue
        if isinstance(stmt, ir.With) and any(
            "autocast" in last(e) for i, _ in stmt.items for e in walk.inside(i)
        ):
            continue
        for expr in (e for whole in walk.own(stmt) for e in walk.inside(whole)):
            if not isinstance(expr, ir.Call):
                continue
            called = held.functions.get(held.callee(expr, function.owner) or "?")
            if called is not None and called.qualname != function.qualname:
                if _in(spans, called, depth + 1) is not None:
                    return expr
            elif _is_model(spans, expr):
                return expr
        for part in walk.blocks(stmt):
            found = _in_block(spans, part, function, depth)
            if found is not None:
                return found
    return None


def _is_model(spans: Spans, expr: ir.Expr) -> bool:
    """Whether a call computes with weights."""
    if not isinstance(expr, ir.Call) or not expr.args:
        return False
    named = names(expr.func)
    if named:
        return any(n.startswith("torch.") and n.rpartition(".")[2] in _LOWERED for n in named)
    held = spans.regions.held
    path = held.lift.path(expr.func)
    return path is not None and (held.module_class(path) is not None or _is_named(_named(expr.func)))


def _named(func: ir.Expr) -> str:
    """The name of the module that a call is of: `nets` of `nets[0](x)`, `encoder` of `encoder.encode(x)`."""
    if isinstance(func, ir.Attr) and func.attr in COMPUTES:
        func = func.value
    return last(func.value if isinstance(func, ir.Subscript) else func)


def _is_named(name: str) -> bool:
    return bool(MODULE_NAME.search(name) or name == "module") and not _LOADS.search(name)


RULE = Rule(
    code="AMP315",
    name="autocast-thread-local",
    summary="work that is handed to another thread does not run in the autocast region",
    severity=Severity.WARNING,
    check=check,
    words=("autocast",),
    shape=shapes.autocast_thread_local,
    module=__name__,
)
