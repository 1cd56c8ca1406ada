"""Autograd functions that autocast does not know how to run: custom_fwd or custom_bwd is missing or misplaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Confidence, Edit, Fix, FixKind, Severity
from amplint.flow import walk
from amplint.flow.held import Held, objects_of
from amplint.flow.lift import last, names
from amplint.flow.precision.lattice import F32, is_certain, is_possible
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.values import Class, Tensor
from amplint.model import ir
from amplint.model.units import is_own
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence
from amplint_rules.regions.entered import is_function, seen

FWD, BWD = "custom_fwd", "custom_bwd"
#: Operators that refuse operands of two dtypes, and that autocast computes in low precision.
_PRODUCTS = frozenset(
    (
        *("mm", "matmul", "bmm", "addmm", "addmm_", "baddbmm", "addbmm", "einsum", "linear", "mv", "addmv"),
        *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("conv1d_input", "conv2d_input", "conv3d_input", "conv1d_weight", "conv2d_weight", "conv3d_weight"),
    )
)
_CASTS = frozenset(
    ("to", "type", "type_as", "float", "half", "bfloat16", "double", "autocast", "get_autocast_dtype",
     "is_autocast_enabled", "get_autocast_gpu_dtype")
)  # fmt: skip
#: Packages whose functions are no kernels.
_KNOWN = ("torch.", "builtins.", "__main__.", "math.", "numpy.", "typing.", "<")
#: Decorators that have nothing to do with autocast.
_OTHERS = (
    "staticmethod",
    "classmethod",
    "once_differentiable",
    "ignore",
    "unused",
    "disable",
    "no_grad",
    "override",
)
_WHICH = "which device_type, and whether the inputs are to be cast to float32, is for you to say"


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two methods of an autograd function, and what they are decorated with."""

    name: str
    forward: ir.Function
    backward: ir.Function

    def decorator(self, function: ir.Function, which: str) -> ir.Expr | None:
        """The decorator of a method that is custom_fwd or custom_bwd."""
        return decorated(function, which)


def check(ctx: Context) -> Iterable[Report]:
    """Report misplaced and missing decorators; a function without any where it runs in a region and cannot."""
    held = objects_of(ctx.model)
    found: dict[int, Report] = {}
    for klass in held.classes.by_name:
        pair = _pair(held, klass)
        if pair is None:
            continue
        for report in (*_misplaced(ctx, held, klass, pair), *_alone(ctx, pair), *_hand_written(ctx, pair)):
            assert isinstance(report.node, cst.CSTNode)
            found.setdefault(ctx.model.tree.number(report.node), report)
    yield from (found[site] for site in sorted(found))
    yield from _applied(ctx, held)


def _pair(held: Held, klass: str) -> _Pair | None:
    if not is_function(held.classes, klass):
        return None
    forward, backward = (
        held.functions.get(held.classes.method(klass, m) or "?") for m in ("forward", "backward")
    )
    if forward is None or backward is None or not {forward.owner, backward.owner} & {klass}:
        return None
    return _Pair(klass.rpartition(".")[2], forward, backward)


def decorated(function: ir.Function, which: str) -> ir.Expr | None:
    """The decorator of a function that is custom_fwd or custom_bwd."""
    return next((d for d in function.decorators if _is(d, which)), None)


def _is(decorator: ir.Expr, which: str) -> bool:
    expr = decorator.func if isinstance(decorator, ir.Call) else decorator
    return which in last(expr) or any(name.rpartition(".")[2] == which for name in names(expr))


def _is_decorated_otherwise(function: ir.Function) -> bool:
    """Whether a method has a decorator that may be anything."""
    plain = (d.func if isinstance(d, ir.Call) else d for d in function.decorators)
    return any(last(d) not in _OTHERS and FWD not in last(d) and BWD not in last(d) for d in plain)


def _casts_inputs(decorator: ir.Expr) -> bool:
    return isinstance(decorator, ir.Call) and any(
        arg.keyword == "cast_inputs" or arg.star for arg in decorator.args
    )


def _node(ctx: Context, expr: ir.Expr) -> cst.CSTNode:
    return ctx.model.tree.nodes[expr.site]


def _name(ctx: Context, function: ir.Function) -> cst.CSTNode:
    node = ctx.model.tree.nodes[function.site]
    return node.name if isinstance(node, cst.FunctionDef) else node


# -- decorators -----------------------------------------------------------------------------------------------------


def _misplaced(ctx: Context, held: Held, klass: str, pair: _Pair) -> Iterator[Report]:
    wrong = pair.decorator(pair.backward, FWD)
    if wrong is not None:
        yield Report(
            _node(ctx, wrong),
            f"custom_fwd decorates the backward of {pair.name}: it takes the autocast state from where backward is "
            "called, and not that of the forward pass as custom_bwd does",
            severity=Severity.WARNING,
            fix=partial(_renamed, ctx, wrong, FWD, BWD),
        )
    wrong = pair.decorator(pair.forward, BWD)
    if wrong is not None:
        yield Report(
            _node(ctx, wrong),
            f"custom_bwd decorates the forward of {pair.name}: it looks for an autocast state that only custom_fwd "
            "keeps (AttributeError)",
            fix=partial(_renamed, ctx, wrong, BWD, FWD),
        )
    both = pair.decorator(pair.forward, FWD), pair.decorator(pair.backward, BWD)
    if (
        held.classes.method(klass, "setup_context") is not None
        and both[0] is not None
        and both[1] is not None
    ):
        yield Report(
            _node(ctx, both[0]),
            f"{pair.name} has a setup_context, so its forward gets no ctx: custom_fwd keeps the autocast state on the "
            "first input, and custom_bwd does not find it (AttributeError)",
            trace=[
                (_node(ctx, both[0]), "the state is kept here"),
                (_node(ctx, both[1]), "and looked for here"),
            ],
            fix=lambda: "give forward the ctx and drop setup_context: that is another signature",
        )


def _alone(ctx: Context, pair: _Pair) -> Iterator[Report]:
    fwd, bwd = pair.decorator(pair.forward, FWD), pair.decorator(pair.backward, BWD)
    if bwd is not None and fwd is None and pair.decorator(pair.forward, BWD) is None:
        yield Report(
            _node(ctx, bwd),
            f"the backward of {pair.name} has custom_bwd, its forward no custom_fwd, which keeps the autocast state "
            "that custom_bwd restores (AttributeError)",
            confidence=Confidence.LOW if _is_decorated_otherwise(pair.forward) else None,
            fix=lambda: f"decorate forward with custom_fwd; {_WHICH}",
        )
    elif (
        fwd is not None
        and bwd is None
        and pair.decorator(pair.backward, FWD) is None
        and _uses_saved(pair.backward)
    ):
        yield Report(
            _name(ctx, pair.backward),
            f"the forward of {pair.name} has custom_fwd, its backward no custom_bwd: what it computes runs in "
            "whatever autocast state backward is called in",
            severity=Severity.WARNING,
            confidence=Confidence.LOW
            if _casts(pair.backward) or _is_decorated_otherwise(pair.backward)
            else Confidence.MEDIUM,
            trace=[(_node(ctx, fwd), "the forward pass keeps the autocast state for custom_bwd")],
            fix=lambda: "decorate backward with custom_bwd, with the device_type of custom_fwd",
        )


def _renamed(ctx: Context, decorator: ir.Expr, wrong: str, right: str) -> Fix | str:
    node = ctx.model.tree.nodes[decorator.site]
    func = node.func if isinstance(node, cst.Call) else node
    by_hand = f"decorate it with {right} by hand"
    if isinstance(func, cst.Attribute):
        name = ctx.model.tree.code(func.value) + "." + right
        is_known = func.attr.value == wrong
    else:
        name = right
        is_known = (
            isinstance(func, cst.Name)
            and func.value == wrong
            and bool(ctx.model.names.scope_of(node).lookup(right))
        )
    if not is_known or right == FWD:
        return by_hand
    kept = (
        [a for a in node.args if a.keyword is None or a.keyword.value != "cast_inputs"]
        if isinstance(node, cst.Call)
        else []
    )
    given = ", ".join(ctx.model.tree.code(a).rstrip(", ") for a in kept)
    text = f"{name}({given})" if kept else name
    return Fix(
        FixKind.REPAIR,
        Applicability.UNSAFE,
        f"Decorate it with {right}",
        (Edit(ctx.model.tree.span(node), text),),
    )


# -- what the methods compute ---------------------------------------------------------------------------------------


def _calls(function: ir.Function) -> Iterator[str]:
    return (last(e.func) for e in walk.expressions(function.body) if isinstance(e, ir.Call))


def _products(function: ir.Function) -> bool:
    """Whether a method multiplies matrices or convolves."""
    return any(name in _PRODUCTS for name in _calls(function)) or any(
        isinstance(e, ir.Binary) and e.op == "@" for e in walk.expressions(function.body)
    )


def _foreign(function: ir.Function) -> bool:
    """Whether a method hands tensors to a kernel of another package."""
    return any(
        isinstance(e, ir.Call)
        and len(e.args) > 1
        and any(not name.startswith(_KNOWN) for name in names(e.func))
        for e in walk.expressions(function.body)
    )


def _uses_saved(function: ir.Function) -> bool:
    """Whether a method takes out tensors that the other one saved."""
    return any(
        isinstance(e, ir.Attr) and e.attr in ("saved_tensors", "saved_variables")
        for e in walk.expressions(function.body)
    )


def _casts(function: ir.Function) -> bool:
    return any(name in _CASTS for name in _calls(function))


def _hand_written(ctx: Context, pair: _Pair) -> Iterator[Report]:
    """A cross entropy by hand whose exponentials autocast does not lift: they are written into their input."""
    fwd = pair.decorator(pair.forward, FWD)
    if fwd is None or _casts_inputs(fwd) or _casts(pair.forward):
        return
    exponential = next((e for e in walk.expressions(pair.forward.body) if _is_unlifted(e)), None)
    if exponential is None or not {"log", "sum"} <= set(_calls(pair.forward)):
        return
    yield Report(
        _node(ctx, fwd),
        f"{pair.name} computes a logarithm of a sum of exponentials by hand, and custom_fwd without cast_inputs leaves "
        "its input low precision: give it cast_inputs=torch.float32",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        trace=[(_node(ctx, exponential), "autocast does not lift what is written into an existing tensor")],
        fix=lambda: (
            "cast_inputs=torch.float32 costs a float32 copy of the input, which in-place code may be there to avoid"
        ),
    )


def _is_unlifted(expr: ir.Expr) -> bool:
    if not isinstance(expr, ir.Call):
        return False
    return last(expr.func) == "exp_" or (
        last(expr.func) == "exp" and any(a.keyword == "out" for a in expr.args)
    )


# -- where it runs --------------------------------------------------------------------------------------------------


def _applied(ctx: Context, held: Held) -> Iterator[Report]:
    found: dict[str, tuple[Confidence, _Pair, Applied]] = {}
    for applied in seen(ctx).of("function.apply"):
        klass = applied.args[0].qualname if isinstance(applied.args[0], Class) else ""
        pair = _pair(held, klass)
        if (
            pair is None
            or not applied.ambient.enabled
            or any(pair.decorator(f, w) for f in (pair.forward, pair.backward) for w in (FWD, BWD))
        ):
            continue
        sure = _confidence(pair, applied)
        if sure is not None and (klass not in found or sure.rank > found[klass][0].rank):
            found[klass] = sure, pair, applied
    for sure, pair, applied in found.values():
        site = applied.site if is_own(applied.site) else applied.entry
        trace = [(applied.ambient.site, "the autocast region"), (site, "the function is applied in it")]
        yield Report(
            _name(ctx, pair.forward),
            f"{pair.name} is applied in an autocast region and has neither custom_fwd nor custom_bwd: its forward "
            "multiplies in low precision, and its backward meets tensors of both dtypes outside the region",
            severity=Severity.WARNING,
            confidence=sure,
            trace=evidence.trace(ctx, [(s, text) for s, text in trace if s is not None]),
            fix=lambda: f"decorate forward with custom_fwd and backward with custom_bwd; {_WHICH}",
        )


def _confidence(pair: _Pair, applied: Applied) -> Confidence | None:
    if _casts(pair.forward) or _casts(pair.backward):
        return None
    tensors = [value for value in applied.args[1:] if isinstance(value, Tensor)]
    if tensors and all(is_certain(t.dtypes) for t in tensors) and len(tensors) == len(applied.args) - 1:
        return None  # everything is in one dtype already
    mixes = any(is_certain(t.dtypes, (F32,)) for t in tensors)
    if _products(pair.backward) and _products(pair.forward) and _uses_saved(pair.backward):
        return Confidence.HIGH if mixes else Confidence.MEDIUM
    is_foreign = _uses_saved(pair.backward) and _foreign(pair.forward) and _foreign(pair.backward)
    if is_foreign:
        return Confidence.MEDIUM if mixes and any(is_possible(t.dtypes) for t in tensors) else Confidence.LOW
    return Confidence.LOW if _products(pair.backward) else None


RULE = Rule(
    code="AMP311",
    name="function-without-custom-fwd",
    summary="an autograd.Function has custom_fwd and custom_bwd in the wrong place, or is run under autocast without",
    severity=Severity.ERROR,
    check=check,
    words=("custom_fwd", "custom_bwd", "autocast"),
    shape=shapes.function_without_custom_fwd,
    fixable="sometimes",
    module=__name__,
)
