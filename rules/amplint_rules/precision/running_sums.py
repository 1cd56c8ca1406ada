"""Running sums as they are written: what is added to, where it begins, and how often the loop around runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from amplint.finding import Confidence
from amplint.syntax.tree import Tree

#: What loops run over that are long: bfloat16 stalls after 256 equal additions, float16 after 2048.
_MANY = re.compile(
    r"load|dataset|batch|stream|sampler|\bdata\b|_dl\b|\bdl\b|iterator|prefetch", re.IGNORECASE
)
_SEVERAL = re.compile(r"step|iter|epoch|seq|token|sample|frame|length|time|chunk|micro|accum", re.IGNORECASE)
_FEW = re.compile(
    r"layer|block|head|level|scale|expert|stage|group|depth|feat|module|net|loss|output", re.IGNORECASE
)
_ZEROS = re.compile(r"(^|\.)(zeros|zeros_like|new_zeros)$")
_MANY_ROUNDS, _FEW_ROUNDS = 256, 64


@dataclass(frozen=True, slots=True)
class RunningSum:
    """A statement that adds to something that lasts."""

    #: What is added to, as it is written.
    total: str
    statement: cst.CSTNode
    loop: cst.For | cst.While | None
    is_attribute: bool


def running_sum(tree: Tree, node: cst.CSTNode) -> RunningSum | None:
    """The running sum that an addition is, if it is one that begins with nothing."""
    total = _total(tree, node)
    if total is None:
        return None
    statement = tree.statement(node)
    loop = _loop(tree, node)
    written = tree.code(total)
    if isinstance(total, cst.Name):
        if loop is None or not _begins_empty(tree, loop, written, within=_function(tree, node)):
            return None
        outer = _outermost_after_start(tree, loop, written)
        return (
            None
            if _feeds_back(tree, outer, statement, written)
            else RunningSum(written, statement, outer, False)
        )
    if isinstance(total, cst.Attribute) and isinstance(total.value, cst.Name):
        klass = next((a for a in tree.ancestors(node) if isinstance(a, cst.ClassDef)), None)
        if klass is None or not _begins_empty(tree, None, written, within=klass):
            return None
        return RunningSum(written, statement, loop, True)
    return None


def _total(tree: Tree, node: cst.CSTNode) -> cst.BaseExpression | None:
    """`total` in `total += x`, `total = total + x` and `total.add_(x)`."""
    if isinstance(node, cst.AugAssign):
        return node.target
    if isinstance(node, cst.Call):
        if not isinstance(node.func, cst.Attribute):
            return None
        if node.func.attr.value == "add_" and len(node.args) == 1:
            return node.func.value
        return _assigned(tree, node, node.func.value) if node.func.attr.value == "add" else None
    if isinstance(node, cst.BinaryOperation):
        return _assigned(tree, node, node.left) or _assigned(tree, node, node.right)
    return None


def _assigned(tree: Tree, node: cst.CSTNode, operand: cst.BaseExpression) -> cst.BaseExpression | None:
    above = tree.parent(node)
    if isinstance(above, cst.Assign) and len(above.targets) == 1:
        target = above.targets[0].target
        if tree.code(target) == tree.code(operand):
            return target
    return None


def _function(tree: Tree, node: cst.CSTNode) -> cst.CSTNode:
    return next((a for a in tree.ancestors(node) if isinstance(a, cst.FunctionDef)), tree.module)


def _loop(tree: Tree, node: cst.CSTNode) -> cst.For | cst.While | None:
    for above in tree.ancestors(node):
        if isinstance(above, (cst.For, cst.While)):
            return above
        if isinstance(above, (cst.FunctionDef, cst.Lambda)):
            return None
    return None


def _starts(tree: Tree, written: str, within: cst.CSTNode) -> list[cst.Assign]:
    """The assignments to what is written, in a function or class."""
    return [
        node
        for node in tree.within(within)
        if isinstance(node, cst.Assign) and any(_is_target(tree, t.target, written) for t in node.targets)
    ]


def _is_target(tree: Tree, target: cst.BaseExpression, written: str) -> bool:
    if isinstance(target, (cst.Tuple, cst.List)):
        return any(tree.code(e.value) == written for e in target.elements)
    return tree.code(target) == written


def _begins_empty(tree: Tree, loop: cst.CSTNode | None, written: str, within: cst.CSTNode) -> bool:
    return any(
        _is_empty(tree, start, written)
        for start in _starts(tree, written, within)
        if loop is None or not tree.inside(start, loop)
    )


def _is_empty(tree: Tree, start: cst.Assign, written: str) -> bool:
    """Whether an assignment sets nothing: 0, None, or a tensor of zeros."""
    value: cst.BaseExpression = start.value
    target = next(t.target for t in start.targets if _is_target(tree, t.target, written))
    if isinstance(target, cst.Tuple):
        if not isinstance(value, cst.Tuple) or len(value.elements) != len(target.elements):
            return False
        at = next(i for i, e in enumerate(target.elements) if tree.code(e.value) == written)
        value = value.elements[at].value
    if isinstance(value, (cst.Integer, cst.Float)):
        return (
            float(value.value.replace("_", "")) == 0 if value.value[:2] not in ("0x", "0b", "0o") else False
        )
    if isinstance(value, cst.Name):
        return value.value == "None"
    while (
        isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and not _is_zeros(tree, value)
    ):
        value = value.func.value
    return isinstance(value, cst.Call) and _is_zeros(tree, value)


def _is_zeros(tree: Tree, call: cst.Call) -> bool:
    name = tree.code(call.func)
    if _ZEROS.search(name):
        return True
    first = call.args[0].value if call.args else None
    return name.endswith("tensor") and isinstance(first, (cst.Integer, cst.Float)) and float(first.value) == 0


def _outermost_after_start(tree: Tree, loop: cst.For | cst.While, written: str) -> cst.For | cst.While:
    """The outermost loop around that the sum outlasts."""
    found = loop
    for above in tree.ancestors(loop):
        if isinstance(above, (cst.FunctionDef, cst.Lambda)):
            break
        if isinstance(above, (cst.For, cst.While)):
            if any(_is_empty(tree, s, written) for s in _starts(tree, written, above)):
                break
            found = above
    return found


def _feeds_back(tree: Tree, loop: cst.CSTNode, statement: cst.CSTNode, written: str) -> bool:
    """Whether what is computed in the loop depends on the sum so far, as a hidden state does."""
    for node in tree.within(loop):
        if isinstance(node, (cst.Assign, cst.AugAssign)):
            own = tree.statement(node) is statement
            uses = [n for n in tree.within(node.value) if isinstance(n, cst.Name) and n.value == written]
            if len(uses) > (1 if own and isinstance(node, cst.Assign) else 0) and not _is_read_out(
                tree, uses
            ):
                return True
    return False


def _is_read_out(tree: Tree, uses: list[cst.Name]) -> bool:
    """Whether names are only divided or read as numbers, for a log."""
    for use in uses:
        above = tree.parent(use)
        if isinstance(above, cst.Attribute) and above.attr.value in ("item", "detach", "cpu"):
            continue
        if isinstance(above, cst.BinaryOperation) and isinstance(above.operator, cst.Divide):
            continue
        return False
    return True


def rounds(tree: Tree, loop: cst.For | cst.While | None) -> Confidence | None:
    """How sure it is that a loop runs so often that sums of low precision values stall; None: it does not."""
    if loop is None:
        return Confidence.MEDIUM
    around = [loop, *(a for a in tree.within(loop) if isinstance(a, (cst.For, cst.While)) and a is not loop)]
    found = [_rounds(tree, each) for each in around[:1]]
    return found[0]


def _rounds(tree: Tree, loop: cst.For | cst.While) -> Confidence | None:
    if isinstance(loop, cst.While):
        return Confidence.MEDIUM
    return over(tree, loop.iter)


def over(tree: Tree, iterable: cst.BaseExpression) -> Confidence | None:
    """The same for what a loop, or a comprehension, goes over."""
    written = tree.code(iterable)
    if isinstance(iterable, (cst.Tuple, cst.List)):
        return None
    if isinstance(iterable, cst.Call) and tree.code(iterable.func) == "range":
        last = iterable.args[0 if len(iterable.args) == 1 else 1].value if iterable.args else None
        if isinstance(last, cst.Integer):
            count = int(last.value.replace("_", ""), 0)
            return (
                Confidence.HIGH if count > _MANY_ROUNDS else Confidence.LOW if count > _FEW_ROUNDS else None
            )
    if _MANY.search(written):
        return Confidence.HIGH
    if _FEW.search(written):
        return Confidence.LOW
    return Confidence.MEDIUM if _SEVERAL.search(written) else Confidence.LOW
