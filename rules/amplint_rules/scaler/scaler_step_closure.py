"""`scaler.step` is given a closure, a method in place of an optimizer, or an optimizer that needs a closure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.finding import Confidence, Severity
from amplint.flow import walk
from amplint.flow.bindings import Binding
from amplint.flow.held import Held, objects_of
from amplint.flow.lift import last, names
from amplint.flow.usage import Usage, Use, usage_of
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

#: Optimizers whose `step` evaluates the loss again, or wants to.
_CLOSURE_CLASSES = ("LBFGS", "SAM", "ASAM", "GSAM", "FSAM", "FriendlySAM", "LookSAM", "ESAM", "WSAM")
#: The halves of SAM's step, and step itself.
_STEP_METHODS = ("first_step", "second_step", "step")
#: An optimizer that unscales by itself.
_OWN_SCALING = ("_step_supports_amp_scaling", "grad_scaler")
_DEEPEST = 5
_REASON = (
    "run this optimizer without a scaler, in float32 or bfloat16, or unscale by hand: which one, is a choice"
)


@dataclass(frozen=True, slots=True)
class _Found:
    message: str
    confidence: Confidence
    #: (site, what happens there)
    trace: tuple[tuple[int, str], ...] = ()


def check(ctx: Context) -> Iterable[Report]:
    """Report each call of `step` of a scaler that cannot work with what it is given."""
    held = objects_of(ctx.model)
    usage = usage_of(ctx.model, held)
    nodes = ctx.model.tree.nodes
    for use in usage.of("step"):
        if not usage.may_scale(use.scaler, use.call) or usage.is_subclass(use.scaler):
            continue
        found = next(_mistakes(ctx, held, usage, use), None)
        if found is not None:
            yield Report(
                nodes[use.call.site],
                found.message,
                confidence=found.confidence,
                trace=[(nodes[site], text) for site, text in found.trace],
                fix=lambda: _REASON,
            )


def _mistakes(ctx: Context, held: Held, usage: Usage, use: Use) -> Iterator[_Found]:
    code = ctx.model.tree.code
    nodes = ctx.model.tree.nodes
    call = use.call
    assert isinstance(call.func, ir.Attr)
    scaler = code(nodes[call.func.value.site])
    positional = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
    optimizer = next((a.value for a in call.args if a.keyword == "optimizer"), next(iter(positional), None))
    for arg in call.args:
        if arg.keyword == "closure":
            yield _Found(
                f"{scaler}.step takes no closure: it raises as soon as the scaler is enabled",
                Confidence.HIGH,
            )
    if optimizer is None or _scales_itself(held, optimizer):
        return
    if len(positional) > 1 and not call.args[0].star:
        kind, site = _closure(held, positional[1], 0)
        written = code(nodes[positional[1].site])
        if kind is not None:
            yield _Found(
                f"{scaler}.step hands `{written}` on as a closure: the gradients that it computes are never "
                "unscaled, and the optimizer steps with them",
                kind,
                ((site, "the closure is made here"),),
            )
    for value, site in _values(held, optimizer, 0):
        text = _method(held, value)
        if text:
            yield _Found(
                f"{scaler}.step needs an optimizer, and `{code(nodes[optimizer.site])}` is {text}",
                Confidence.HIGH,
                ((site, "it comes from here"),) if site != optimizer.site else (),
            )
    made = _closure_class(held, use, optimizer)
    if made is not None:
        name, site, confidence = made
        yield _Found(
            f"`{code(nodes[optimizer.site])}` is {name}, whose step evaluates the loss again: through {scaler}.step "
            "it gets no closure, or one whose gradients stay scaled",
            confidence,
            ((site, f"the optimizer is {name}"),),
        )


# -- closures ------------------------------------------------------------------------------------------------


def _closure(held: Held, expr: ir.Expr, depth: int) -> tuple[Confidence | None, int]:
    """How sure `expr` is a function, and where it is made."""
    nothing = (None, expr.site)
    if depth > _DEEPEST:
        return nothing
    if isinstance(expr, ir.Lambda) or names(expr) == ("functools.partial",):
        return Confidence.HIGH, expr.site
    local = held.classes.local(names(expr))
    if local is not None and local in held.functions:
        return Confidence.HIGH, held.functions[local].site
    if isinstance(expr, ir.IfExp):
        found = [_closure(held, part, depth + 1) for part in (expr.body, expr.orelse)]
        return next((one for one in found if one[0] is not None), nothing)
    if isinstance(expr, ir.Call):
        if names(expr.func) == ("functools.partial",):
            return Confidence.HIGH, expr.site
        called = held.classes.local(names(expr.func))
        if called in held.functions:
            results = [_closure(held, result, depth + 1) for result in held.results(called)]
            return next((one for one in results if one[0] is not None), nothing)
        return nothing
    if _is_own_method(held, expr):
        return Confidence.HIGH, expr.site
    path = held.lift.path(expr)
    if path is None:
        return nothing
    if held.is_param(path) and not held.values(path):
        return _handed(held, path[0], expr)
    values = [binding.value for binding in held.values(path)]
    known = [_closure(held, value, depth + 1) for value in values if value is not None]
    return next((one for one in known if one[0] is not None), nothing)


def _handed(held: Held, root: str, expr: ir.Expr) -> tuple[Confidence | None, int]:
    """A parameter: a closure by its name, or by what calls in this file hand over."""
    scope, _, name = root.partition(":")
    given, _ = held.given((root,))
    for value in given:
        kind, site = _closure(held, value, 1) if held.lift.path(value) != (root,) else (None, 0)
        if kind is not None:
            return kind, site
    param = next(p for p in held.functions[scope].params if p.name == name)
    if "closure" not in name.lower() or param.star:
        return None, expr.site
    return (Confidence.LOW if param.default is not None else Confidence.MEDIUM), expr.site


def _is_own_method(held: Held, expr: ir.Expr) -> bool:
    """`self.evaluate`, a method of the class around."""
    path = held.lift.path(expr)
    if path is None or len(path) != 2 or not path[0].endswith(".self"):
        return False
    klass = path[0].removesuffix(".self")
    method = held.classes.method(klass, path[1]) if klass in held.classes.by_name else None
    return method is not None and not held.functions[method].decorators and not held.values(path)


# -- what stands in the optimizer's place --------------------------------------------------------------------


def _values(held: Held, expr: ir.Expr, depth: int) -> Iterator[tuple[ir.Expr, int]]:
    """What `expr` can be: itself, and for a variable what it is assigned, or the items of the loop over it."""
    yield expr, expr.site
    path = held.lift.path(expr)
    if path is None or len(path) > 1 or depth > _DEEPEST or not isinstance(expr, ir.Name):
        return
    function = held.functions.get(expr.scope or "")
    for stmt in walk.statements(function.body) if function is not None else ():
        goes_over = (
            stmt.iterable if isinstance(stmt, ir.For) and held.lift.path(stmt.target) == path else None
        )
        if isinstance(goes_over, ir.Items):
            yield from ((item, item.site) for item in goes_over.items)
    for binding in held.values(path):
        if binding.value is not None and not isinstance(binding.value, ir.Call):
            yield from _values(held, binding.value, depth + 1)


def _method(held: Held, expr: ir.Expr) -> str:
    """What is wrong with `expr` as an optimizer, "" for nothing."""
    if isinstance(expr, ir.Lambda):
        return "a function"
    if isinstance(expr, ir.Call):
        if names(expr.func) == ("functools.partial",):
            return "a function"
        if isinstance(expr.func, ir.Attr) and expr.func.attr in _STEP_METHODS and not names(expr.func):
            return f"what {expr.func.attr}() returns"
        return ""
    local = held.classes.local(names(expr))
    if local is not None and local in held.functions:
        return "a function"
    if not isinstance(expr, ir.Attr) or names(expr):
        return ""
    is_method = expr.attr in _optimizer_methods(held) and not _is_field(held, expr)
    return f"the method {expr.attr}" if is_method or expr.attr in _STEP_METHODS else ""


def _optimizer_methods(held: Held) -> set[str]:
    """Methods of the optimizers that this file defines."""
    return {
        method
        for klass in held.classes.by_name
        if _is_optimizer_class(held, klass)
        for method, qualname in held.classes.by_name[klass].methods
        if not any("property" in last(decorator) for decorator in held.functions[qualname].decorators)
    }


def _is_field(held: Held, expr: ir.Attr) -> bool:
    path = held.lift.path(expr)
    return path is not None and bool(held.values(path))


def _is_optimizer_class(held: Held, klass: str) -> bool:
    bases = held.classes.foreign(klass)
    return any(
        name.startswith("torch.optim.") or name.endswith("Optimizer") for base in bases for name in base
    )


def _scales_itself(held: Held, optimizer: ir.Expr) -> bool:
    """Whether the optimizer may be one that does without unscaling: by its class, or because it is fused."""
    for klass in held.classes.by_name.values():
        if any(
            isinstance(target, (ir.Name, ir.Attr)) and last(target) in _OWN_SCALING
            for stmt in klass.body
            if isinstance(stmt, ir.Assign)
            for target in stmt.targets
        ):
            return True
    for call in (b.value for b in _bindings(held, optimizer) if isinstance(b.value, ir.Call)):
        if any(arg.keyword == "fused" for arg in call.args):
            return True
    return any(
        isinstance(stmt, ir.Assign) and any(last(target) in _OWN_SCALING for target in stmt.targets)
        for function in held.functions.values()
        for stmt in walk.statements(function.body)
    )


def _bindings(held: Held, optimizer: ir.Expr) -> Iterator[Binding]:
    path = held.lift.path(optimizer)
    for origin in held.origins(path) if path is not None else ():
        yield from held.values(origin)


def _closure_class(held: Held, use: Use, optimizer: ir.Expr) -> tuple[str, int, Confidence] | None:
    """The class of an optimizer that cannot be stepped without a closure, where it is made, and how sure."""
    made = [
        (call, found)
        for call in (_made(held, b.value) for b in _bindings(held, optimizer))
        if call is not None
        for found in [_needs_closure(held, call)]
    ]
    wrong = [(call, found) for call, found in made if found is not None]
    if not wrong:
        return None
    call, confidence = wrong[0]
    if len(wrong) < len(made):
        confidence = Confidence.LOW
    return last(call.func), call.site, confidence or Confidence.LOW


def _made(held: Held, value: ir.Expr | None) -> ir.Call | None:
    """The call that makes the optimizer, looked up in a function of this file that returns it."""
    if not isinstance(value, ir.Call):
        return None
    called = held.classes.local(names(value.func))
    if called in held.functions:
        results = held.results(called)
        return results[0] if len(results) == 1 and isinstance(results[0], ir.Call) else None
    return value


def _needs_closure(held: Held, call: ir.Call) -> Confidence | None:
    """How sure the class that is called needs a closure for each step."""
    if last(call.func) not in _CLOSURE_CLASSES:
        return None
    if any(name.startswith("torch.optim.") for name in names(call.func)):
        return Confidence.HIGH
    klass = held.classes.klass(names(call.func))
    if klass is None:
        return Confidence.MEDIUM
    step = held.classes.method(klass, "step")
    if step is None:
        return None
    params = [p for p in held.functions[step].params if p.name == "closure"]
    demands = bool(params) and (
        params[0].default is None
        or any(isinstance(stmt, (ir.Assert, ir.Raise)) for stmt in walk.statements(held.functions[step].body))
    )
    return Confidence.HIGH if demands else None


RULE = Rule(
    code="AMP210",
    name="scaler-step-closure",
    summary="a closure, or an optimizer that needs one, is stepped through a GradScaler",
    severity=Severity.ERROR,
    check=check,
    words=(".scale", "unscale_", "GradScaler"),
    shape=shapes.scaler_step,
    module=__name__,
)
