"""`x.float()` as a statement of its own: tensors are not changed in place, so the cast is lost."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Edit, Fix, FixKind, Severity, Span
from amplint.flow.precision.lattice import is_certain
from amplint.flow.precision.values import Tensor
from amplint.model.names import Binding
from amplint.model.tensors import is_tensor
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.precision import evidence

#: Arguments of constructors that say where a tensor lies and of what dtype it is.
_MADE_SO = ("dtype", "device")


def check(ctx: Context) -> Iterable[Report]:
    """Report casts of variables and attributes that can only hold a tensor, where nobody takes the result."""
    for statement in ctx.model.tree.of_type(cst.Expr):
        call = statement.value
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
            continue
        method, owner = call.func.attr.value, call.func.value
        if method not in shapes.CASTS or not isinstance(owner, (cst.Name, cst.Attribute)):
            continue  # `torch.zeros(1).cuda()` starts CUDA
        if shapes.is_called_module(owner.value if isinstance(owner, cst.Name) else owner.attr.value):
            continue
        if (
            (is_tensor(ctx.model, owner) or _is_seen(ctx, owner))
            and not _is_probe(ctx, statement)
            and not _is_made_so(ctx, call, owner)
        ):
            text = ctx.model.tree.code(owner)
            yield Report(
                call,
                f"`{text}` is a tensor, which {method}() does not change: the one that it returns is dropped",
                fix=partial(_fix, ctx, call, owner),
            )


def _is_seen(ctx: Context, owner: cst.BaseExpression) -> bool:
    """Whether nothing but a float16 or bfloat16 tensor was seen here."""
    seen = evidence.notes(ctx).names.get(ctx.model.tree.number(owner))
    return seen is not None and isinstance(seen[0], Tensor) and is_certain(seen[0].dtypes)


def _is_made_so(ctx: Context, call: cst.Call, owner: cst.BaseExpression) -> bool:
    """Whether the tensor was made with the very dtype and device that it is converted to."""
    code = ctx.model.tree.code
    wanted = {code(arg.value) for arg in call.args}
    sources = ctx.model.values.sources(owner)
    return (
        bool(wanted)
        and bool(sources)
        and all(
            isinstance(source, cst.Call)
            and wanted <= {code(a.value) for a in source.args if a.keyword and a.keyword.value in _MADE_SO}
            for source in sources
        )
    )


def _is_probe(ctx: Context, statement: cst.CSTNode) -> bool:
    """Whether the statement stands where an exception is expected, to see whether the cast works."""
    child = statement
    for outer in ctx.model.tree.ancestors(statement):
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef)):
            return False
        if isinstance(outer, cst.Try) and child is outer.body:
            return True
        if isinstance(outer, cst.With) and any("aises" in ctx.model.tree.code(i.item) for i in outer.items):
            return True
        child = outer
    return False


def _fix(ctx: Context, call: cst.Call, owner: cst.BaseExpression) -> Fix | str:
    sources = ctx.model.values.sources(owner)
    if any(isinstance(source, Binding) and source.kind == "loop" for source in sources):
        return "a loop gives it its value, so a new one would not reach what is looped over"
    start = ctx.model.tree.span(call).start
    edit = Edit(Span(start, start), f"{ctx.model.tree.code(owner)} = ")
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, "keep the result", (edit,))


RULE = Rule(
    code="AMP307",
    name="discarded-cast",
    summary="the result of a cast is dropped, and the tensor stays what it is",
    severity=Severity.ERROR,
    check=check,
    words=tuple(f".{method}(" for method in shapes.CASTS),
    shape=shapes.discarded_cast,
    fixable="unsafe",
    module=__name__,
)
