"""AMP that is switched on by a comparison with "cuda" is silently off on every other accelerator."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Edit, Fix, FixKind, Severity
from amplint.model.guards import guard, names_others
from amplint.port.device import device_edits, disables, severity
from amplint.port.edits import CannotEdit
from amplint.port.gating import gates
from amplint.port.spelling import Spelling
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes


def check(ctx: Context) -> Iterable[Report]:
    """Report the conditions that AMP calls depend on, each once."""
    seen: set[int] = set()
    for node, call, name in gates(ctx):
        if id(node) in seen or _serves_others(ctx, node) or guard(ctx.model, node) is not None:
            continue
        seen.add(id(node))
        short = name.rpartition(".")[2]
        effect = "an NPU region around it stays on" if disables(call) else "on NPU it is silently off"
        text = " ".join(ctx.model.tree.code(node).split())
        yield Report(
            node,
            f"`{text}` decides on {short} and tells CUDA from everything else: {effect}",
            severity=severity(ctx),
            trace=[(call, f"{short} depends on it here")],
            fix=partial(_fix, ctx, node),
        )


def _serves_others(ctx: Context, node: cst.BaseExpression) -> bool:
    """Whether other accelerators are thought of in the function (or, outside, the statement) around."""
    outer: cst.CSTNode = ctx.model.tree.statement(node)
    for around in ctx.model.tree.ancestors(node):
        if isinstance(around, cst.FunctionDef) or (isinstance(around, cst.If) and outer is not around):
            outer = around
        if isinstance(around, cst.FunctionDef):
            break
    return names_others(ctx.model.tree.code(outer))


def _fix(ctx: Context, node: cst.BaseExpression) -> Fix | str:
    """Ask for the accelerator's device type instead."""
    edits: list[Edit] = []
    tree = ctx.model.tree
    try:
        for inner in tree.within(node):
            if isinstance(inner, cst.SimpleString) and inner.evaluated_value == "cuda":
                device, more = device_edits(ctx, node)
                edits.extend((Edit(tree.span(inner), device), *more))
            elif isinstance(inner, cst.Call) and ctx.model.names.is_name(
                inner.func, "torch.cuda.is_available"
            ):
                spelling, scope = Spelling(ctx.model, ctx.settings), ctx.model.names.scope_of(inner)
                name, more = spelling.torch_name("torch.accelerator.is_available", (2, 6), scope)
                edits.extend((Edit(tree.span(inner.func), name), *more))
            elif isinstance(inner, cst.Attribute) and inner.attr.value == "is_cuda":
                return "is_cuda has no counterpart that means any accelerator"
    except CannotEdit as error:
        return str(error)
    if not edits:
        return "what decides is not written here"
    return Fix(FixKind.PORT, Applicability.UNSAFE, "ask for the accelerator instead of CUDA", tuple(edits))


RULE = Rule(
    code="AMP108",
    name="amp-gated-on-cuda",
    summary='autocast or the scaler is switched on by a comparison with "cuda", so it is off elsewhere',
    severity=Severity.WARNING,
    npu_severity=Severity.ERROR,
    check=check,
    words=("autocast", "GradScaler"),
    shape=shapes.amp_gated_on_cuda,
    fixable="unsafe",
    module=__name__,
)
