"""Gradients computed while the autocast region of the forward pass is still entered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Confidence, Edit, Fix, FixKind, Severity
from amplint.finding import Span as Place
from amplint.flow import walk
from amplint.flow.lift import last, names
from amplint.flow.regions import backward_of
from amplint.flow.spans import Event, Span, Spans, spans_of
from amplint.flow.usage import is_test
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes, statements
from amplint_rules.regions.entered import entered, is_function

#: What `backward` with arguments is called on: a tensor, or a framework's object.
_CALLED_ON = re.compile(r"loss|out|pred|logit|err|cost|energy|accelerat|fabric|engine", re.IGNORECASE)
#: Calls that may leave the region together with the backward: nothing in them computes with the model.
_AFTER = frozenset(
    (
        *("backward", "manual_backward", "scale", "step", "update", "unscale_", "zero_grad", "get_scale"),
        *("clip_grad_norm_", "clip_grad_value_", "parameters", "get_last_lr", "item", "detach", "cpu"),
        *("append", "print", "log", "info", "debug", "float", "int", "len", "round", "format", "no_sync"),
        *(
            "set_postfix",
            "set_description",
            "add_scalar",
            "synchronize",
            "empty_cache",
            "clear_autocast_cache",
        ),
    )
)


def check(ctx: Context) -> Iterable[Report]:
    """Report each backward inside a region that may be enabled."""
    spans = spans_of(ctx.model)
    found: dict[int, tuple[Confidence, Span, Event]] = {}
    for span in spans.all:
        for event in span.events:
            sure = _confidence(spans, event)
            known = found.get(event.site)
            if sure is not None and (known is None or sure.rank > known[0].rank):
                found[event.site] = (sure, span, event)
    compiled = _is_compiled(spans)
    for site, (sure, span, event) in sorted(found.items()):
        yield Report(
            ctx.model.tree.nodes[site],
            "gradients are computed inside the autocast region: what backward runs itself (custom functions, hooks, "
            "recomputation, compiled graphs) is autocast a second time; leave the region after the loss",
            severity=Severity.ERROR if compiled else None,
            confidence=Confidence.LOW if is_test(ctx.model.filename) else sure,
            trace=entered(ctx, event),
            fix=partial(_fix, ctx, spans, span, event),
        )


def _confidence(spans: Spans, event: Event) -> Confidence | None:
    """How sure it is that an event computes gradients in an enabled region; None where it does not."""
    if event.no_grad or not isinstance(event.expr, ir.Call) or event.callee is not None:
        return None
    held = spans.regions.held
    if is_function(held.classes, held.functions[event.function].owner):
        return None  # recomputation: its region is that of the forward pass
    is_penalty = names(event.expr.func) == ("torch.autograd.grad",)
    if not (is_penalty or _is_backward(event.expr)) or not spans.is_on(event):
        return None
    if is_penalty:  # inside a model it may have to be here
        return (
            Confidence.MEDIUM
            if not event.calls and _trains(held.functions[event.function])
            else Confidence.LOW
        )
    return Confidence.HIGH


def _is_backward(call: ir.Call) -> bool:
    if backward_of(call) is not None or names(call.func) == ("torch.autograd.backward",):
        return True
    func = call.func
    if not isinstance(func, ir.Attr) or names(func) or not call.args:
        return False
    on = last(func.value.func) if isinstance(func.value, ir.Call) else last(func.value)
    return func.attr == "manual_backward" or (func.attr == "backward" and bool(_CALLED_ON.search(on)))


def _trains(function: ir.Function) -> bool:
    """Whether a function is a training step rather than a part of a model."""
    called = {last(e.func) for e in walk.expressions(function.body) if isinstance(e, ir.Call)}
    return not called.isdisjoint(("backward", "zero_grad", "step", "manual_backward"))


def _is_compiled(spans: Spans) -> bool:
    held = spans.regions.held
    decorators = (d for f in held.functions.values() for d in f.decorators)
    called = (placed.call.func for placed in held.calls)
    plain = (d.func if isinstance(d, ir.Call) else d for d in decorators)
    return any(name == "torch.compile" for expr in (*plain, *called) for name in names(expr))


# -- the fix --------------------------------------------------------------------------------------------------------


def _fix(ctx: Context, spans: Spans, span: Span, event: Event) -> Fix | str:
    """The backward and what follows it, one step to the left: out of the `with`."""
    by_hand = "end the region before it by hand"
    is_own = span.stmt is not None and any(
        True for item, _ in span.stmt.items for _ in spans.regions.made_by(item, span.function)
    )
    if span.stmt is None or not is_own or event.calls:
        return f"the backward does not stand in the region's own `with`; {by_hand}"
    tree = ctx.model.tree
    block = tree.nodes[span.stmt.site]
    backward = tree.statement(tree.nodes[event.site])
    if not isinstance(block, cst.With) or tree.parent(backward) is not block.body:
        return f"the backward does not stand directly in the region's `with`; {by_hand}"
    body = list(block.body.body)
    at = next(i for i, stmt in enumerate(body) if stmt is backward)
    late = body[at:]
    if at == 0 or len(block.items) > 1 or not all(statements.can_stand_alone(stmt) for stmt in late):
        return f"the region holds more than the forward pass; {by_hand}"
    if any(called not in _AFTER for stmt in late for called in _called(ctx, stmt)):
        return f"what follows the backward may belong into the region; {by_hand}"
    start, end = statements.rows(ctx, late[0]).start, statements.rows(ctx, late[-1]).end
    outer, inner = statements.indent(ctx, block), statements.indent(ctx, backward)
    text = tree.text[start:end]
    if not inner.startswith(outer) or '"""' in text or "'''" in text:
        return f"its rows cannot be moved as they are; {by_hand}"
    edits = tuple(_unindented(text, start, outer, inner))
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, "Leave the region before the backward", edits)


def _called(ctx: Context, stmt: cst.CSTNode) -> Iterator[str]:
    for node in ctx.model.tree.within(stmt):
        if isinstance(node, cst.Call):
            yield (
                node.func.attr.value
                if isinstance(node.func, cst.Attribute)
                else ctx.model.tree.code(node.func)
            )
        elif isinstance(node, (cst.FunctionDef, cst.With)):
            yield "?"


def _unindented(text: str, start: int, outer: str, inner: str) -> Iterator[Edit]:
    for row in text.splitlines(keepends=True):
        if row.startswith(inner):
            yield Edit(Place(start, start + len(inner)), outer)
        start += len(row)


RULE = Rule(
    code="AMP309",
    name="backward-in-autocast",
    summary="gradients are computed inside the autocast region",
    severity=Severity.WARNING,
    check=check,
    words=("autocast",),
    shape=shapes.backward_in_autocast,
    fixable="sometimes",
    module=__name__,
)
