"""AMP that is switched on by a comparison with "cuda" is silently off on every other accelerator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Edit, Fix, FixKind, Severity
from amplint.model.device_tests import cuda_test
from amplint.model.guards import guard, names_others
from amplint.model.names import Binding, string_value
from amplint.port.device import calls_of, device_arguments, device_edits, severity
from amplint.port.edits import CannotEdit
from amplint.port.spelling import Spelling
from amplint.rule import Context, Report, Rule

_SCALERS = ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler")
_NEW = ("torch.autocast", "torch.amp.GradScaler")
_AMP = ("torch.autocast", "torch.cuda.amp.autocast", *_SCALERS)
#: Where `enabled` stands among the positional arguments, where it is ever passed so.
_ENABLED = {"torch.cuda.amp.autocast": 0, "torch.autocast": 2}

#: What decides, and the AMP call that depends on it.
_Gate = tuple[cst.BaseExpression, cst.Call]


def check(ctx: Context) -> Iterable[Report]:
    """Report the conditions that AMP calls depend on, each once."""
    calls = {id(call): name for call, name in calls_of(ctx, _AMP)}
    seen: set[int] = set()
    for node, call in (*_enabled(ctx), *_device_types(ctx), *_choices(ctx, calls), *_branches(ctx, calls)):
        if id(node) in seen or _serves_others(ctx, node) or guard(ctx.model, call) is not None:
            continue
        seen.add(id(node))
        short = calls.get(id(call), "autocast").rpartition(".")[2]
        text = " ".join(ctx.model.tree.code(node).split())
        yield Report(
            node,
            f"`{text}` decides on {short}, and tells CUDA from everything else: on NPU it is silently off",
            severity=severity(ctx),
            trace=[(call, f"{short} depends on it here")],
            fix=partial(_fix, ctx, node),
        )


def _enabled(ctx: Context) -> Iterator[_Gate]:
    """`enabled=device.type == "cuda"`."""
    for call, name in calls_of(ctx, _AMP):
        position = 0
        for arg in call.args:
            is_enabled = arg.keyword is not None and arg.keyword.value == "enabled"
            if arg.keyword is None and not arg.star:
                is_enabled = _ENABLED.get(name) == position
                position += 1
            test = cuda_test(ctx.model, arg.value) if is_enabled else None
            if test is not None and test.positive:
                yield test.node, call


def _device_types(ctx: Context) -> Iterator[_Gate]:
    """`"cuda" if "cuda" in device else "cpu"` as device type."""
    for call, _, arg in device_arguments(ctx, _NEW, position=0):
        for source in ctx.model.values.sources(arg.value, choices=True):
            if not isinstance(source, Binding) and isinstance(source, cst.IfExp):
                test = cuda_test(ctx.model, source.test)
                if test is not None and _arm(source, test.positive) == "cuda":
                    yield source, call


def _arm(choice: cst.IfExp, positive: bool) -> str | None:
    return string_value(choice.body if positive else choice.orelse)


def _choices(ctx: Context, calls: dict[int, str]) -> Iterator[_Gate]:
    """`GradScaler() if torch.cuda.is_available() else None`."""
    for choice in ctx.model.tree.of_type(cst.IfExp):
        test = cuda_test(ctx.model, choice.test)
        if test is not None:
            mine, other = (choice.body, choice.orelse) if test.positive else (choice.orelse, choice.body)
            if isinstance(mine, cst.Call) and id(mine) in calls and not _is_amp(other, calls):
                yield test.node, mine


def _branches(ctx: Context, calls: dict[int, str]) -> Iterator[_Gate]:
    """`if torch.cuda.is_available(): scaler = GradScaler()`, and regions of which the other arm has none."""
    for branch in ctx.model.tree.of_type(cst.If):
        test = cuda_test(ctx.model, branch.test)
        if test is None:
            continue
        orelse = branch.orelse.body if isinstance(branch.orelse, cst.Else) else None
        mine, other = (branch.body, orelse) if test.positive else (orelse, branch.body)
        if mine is None or (other is None and branch.orelse is not None):
            continue
        if other is not None and any(_is_amp(value, calls) for value in _made(other, True)):
            continue
        for value in _made(mine, other is not None):
            if isinstance(value, cst.Call) and id(value) in calls:
                yield test.node, value
                break


def _made(suite: cst.BaseSuite, regions: bool) -> Iterator[cst.BaseExpression]:
    """What the statements of one arm assign, return or, if asked for `regions`, enter."""
    for statement in suite.body:
        if isinstance(statement, cst.With) and regions:
            yield from (item.item for item in statement.items)
        for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
            if isinstance(small, (cst.Assign, cst.AnnAssign, cst.Return)) and small.value is not None:
                yield small.value


def _is_amp(node: cst.BaseExpression, calls: dict[int, str]) -> bool:
    """Whether the other arm has AMP too, other than for the CPU."""
    if not isinstance(node, cst.Call) or id(node) not in calls:
        return False
    return not any(string_value(arg.value) == "cpu" for arg in node.args)


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
    fixable="unsafe",
    module=__name__,
)
