"""Conditions that tell CUDA from everything else, and the AMP calls that depend on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from amplint.model.device_tests import cuda_test
from amplint.model.names import Binding, string_value
from amplint.port.device import calls_of, device_arguments
from amplint.rule import Context

_SCALERS = ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler")
_NEW = ("torch.autocast", "torch.amp.GradScaler")
_AMP = ("torch.autocast", "torch.cuda.amp.autocast", *_SCALERS)
#: Where `enabled` stands among the positional arguments, where it is ever passed so.
_ENABLED = {"torch.cuda.amp.autocast": 0, "torch.autocast": 2}

#: What decides, and the AMP call that depends on it.
_Gate = tuple[cst.BaseExpression, cst.Call]


def gates(ctx: Context) -> Iterator[tuple[cst.BaseExpression, cst.Call, str]]:
    """Each condition (where it is written), an AMP call that depends on it, and what is called."""
    named = {id(call): name for call, name in calls_of(ctx, _AMP)}
    for node, call in (*_enabled(ctx), *_device_types(ctx), *_choices(ctx, named), *_branches(ctx, named)):
        yield node, call, named.get(id(call), _AMP[0])


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
    """`"cuda" if "cuda" in device else "cpu"` as device type.

    Left out is a variable that says what is available and is used beyond AMP: it is where everything runs.
    """
    arguments = list(device_arguments(ctx, _NEW, position=0))
    given = {id(arg.value) for _, _, arg in arguments}
    for call, _, arg in arguments:
        for source in ctx.model.values.sources(arg.value, choices=True):
            if not isinstance(source, Binding) and isinstance(source, cst.IfExp):
                test = cuda_test(ctx.model, source.test)
                if test is None or _arm(source, test.positive) != "cuda":
                    continue
                asks = "is_available" in ctx.model.tree.code(test.node)
                if not (asks and isinstance(arg.value, cst.Name) and _is_used_beyond(ctx, arg.value, given)):
                    yield source, call


def _is_used_beyond(ctx: Context, name: cst.Name, given: set[int]) -> bool:
    """Whether a variable is used as anything but one of the `given` arguments."""
    owner = ctx.model.names.scope_of(name).owner(name.value)
    return any(
        reference.root.value == name.value
        and reference.scope.owner(name.value) is owner
        and id(reference.node) not in given
        and not isinstance(ctx.model.tree.parent(reference.node), cst.AssignTarget)
        for reference in ctx.model.names.references
    )


def _arm(choice: cst.IfExp, positive: bool) -> str | None:
    return string_value(choice.body if positive else choice.orelse)


def _choices(ctx: Context, named: Mapping[int, str]) -> Iterator[_Gate]:
    """`GradScaler() if torch.cuda.is_available() else None`."""
    for choice in ctx.model.tree.of_type(cst.IfExp):
        test = cuda_test(ctx.model, choice.test)
        if test is not None:
            mine, other = (choice.body, choice.orelse) if test.positive else (choice.orelse, choice.body)
            if isinstance(mine, cst.Call) and id(mine) in named and not _is_amp(other, named):
                yield test.node, mine


def _branches(ctx: Context, named: Mapping[int, str]) -> Iterator[_Gate]:
    """`if torch.cuda.is_available(): scaler = GradScaler()`, and regions of which the other arm has none."""
    for branch in ctx.model.tree.of_type(cst.If):
        test = cuda_test(ctx.model, branch.test)
        if test is None:
            continue
        orelse = branch.orelse.body if isinstance(branch.orelse, cst.Else) else None
        mine, other = (branch.body, orelse) if test.positive else (orelse, branch.body)
        if mine is None or (other is None and branch.orelse is not None):
            continue
        if other is not None and any(_is_amp(value, named) for value in _made(other, True)):
            continue
        for value in _made(mine, other is not None):
            if isinstance(value, cst.Call) and id(value) in named:
                if other is not None or not _made_beside(ctx, branch, named, named[id(value)]):
                    yield test.node, value
                break


def _made_beside(ctx: Context, branch: cst.If, named: Mapping[int, str], name: str) -> bool:
    """Whether statements before or behind a branch make the same thing, for other devices perhaps."""
    last = name.rpartition(".")[2]
    block = ctx.model.tree.parent(branch)
    siblings = block.body if isinstance(block, (cst.IndentedBlock, cst.Module)) else ()
    return any(
        _is_amp(node, named) and named[id(node)].endswith(last)
        for sibling in siblings
        if sibling is not branch
        for node in ctx.model.tree.within(sibling)
        if isinstance(node, cst.Call)
    )


def _made(suite: cst.BaseSuite, regions: bool) -> Iterator[cst.BaseExpression]:
    """What the statements of one arm assign, return or, if asked for `regions`, enter."""
    for statement in suite.body:
        if isinstance(statement, cst.With) and regions:
            yield from (item.item for item in statement.items)
        for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
            if isinstance(small, (cst.Assign, cst.AnnAssign, cst.Return)) and small.value is not None:
                yield small.value


def _is_amp(node: cst.BaseExpression, named: Mapping[int, str]) -> bool:
    """Whether the other arm has AMP too, other than for the CPU."""
    if not isinstance(node, cst.Call) or id(node) not in named:
        return False
    return not any(string_value(arg.value) == "cpu" for arg in node.args)
