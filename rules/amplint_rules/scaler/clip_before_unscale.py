"""Gradients are clipped while they are still multiplied by the loss scale."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from amplint.finding import Applicability, Confidence, Edit, Fix, FixKind, Severity, Span
from amplint.flow.scaler import ClipBeforeUnscale, scaler_analysis
from amplint.rule import Context, Report, Rule
from amplint.syntax.tree import Tree

_ELSEWHERE = (
    "the optimizer or the scaler has no name where the clip stands; call unscale_ before the clip by hand"
)
_ONE_LINE = "the clip shares its line with other statements; give it a line of its own first"
_OTHER_BLOCK = "unscale_ stands in another block or function; move the clip behind it"
_GUARD = "the clip also runs where nothing is scaled; call unscale_ under the condition of the step"


def check(ctx: Context) -> Iterable[Report]:
    """Report each clip that a scaled backward reaches without an `unscale_` for the optimizer concerned."""
    nodes = ctx.model.tree.nodes
    for clip in scaler_analysis(ctx.model).clips_before_unscale:
        yield Report(
            nodes[clip.site],
            _message(ctx.model.tree, clip),
            confidence=clip.confidence,
            trace=_trace(ctx.model.tree, clip),
            fix=lambda clip=clip: _fix(ctx, clip),  # type: ignore[misc]  # binds this round's clip
        )


def _message(tree: Tree, clip: ClipBeforeUnscale) -> str:
    if not clip.scaler:
        return (
            f"{clip.how} acts on gradients that manual_backward scaled (with fp16 precision); "
            "the framework unscales them only inside optimizer.step()"
        )
    where = " on some paths" if clip.confidence is Confidence.LOW else ""
    call = _protocol_call(tree, clip)
    advice = f"; call {call[0]}.unscale_({call[1]}) first" if call is not None else ""
    scale = f"the loss scale of {clip.scaler}"
    return f"{clip.how} acts on gradients that are still multiplied by {scale}{where}{advice}"


def _trace(tree: Tree, clip: ClipBeforeUnscale) -> list[tuple[cst.CSTNode, str]]:
    by = f" by {clip.scaler}" if clip.scaler else " by the framework's scaler"
    steps = [(tree.nodes[clip.backward], f"the loss is scaled here{by}, and so are its gradients")]
    steps.append((tree.nodes[clip.site], "clipped here, with no unscale_ on this path"))
    steps.extend((tree.nodes[site], "unscaled only here") for site in clip.late_unscales)
    steps.extend((tree.nodes[site], "the clipped gradients are consumed here") for site in clip.steps[:1])
    return steps


def _protocol_call(tree: Tree, clip: ClipBeforeUnscale) -> tuple[str, str] | None:
    """Scaler and optimizer as written in the `step` or `unscale_` calls, where all of them agree."""
    found: set[tuple[str, str]] = set()
    for site in clip.steps or clip.late_unscales:
        call = tree.nodes[site]
        if not (isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and call.args):
            return None
        if call.args[0].star or call.args[0].keyword not in (None,):
            return None
        found.add((tree.code(call.func.value), tree.code(call.args[0].value)))
    return found.pop() if len(found) == 1 else None


# -- the repair ---------------------------------------------------------------------------------------------


def _fix(ctx: Context, clip: ClipBeforeUnscale) -> Fix | str:
    tree = ctx.model.tree
    if clip.repair.site is None:
        return clip.repair.reason
    anchor = _anchor(tree, clip)
    if not isinstance(anchor, cst.BaseCompoundStatement) and not _alone(anchor):
        return _ONE_LINE
    if clip.repair.kind == "move":
        return _move(ctx, anchor, tree.nodes[clip.repair.site])
    call = _protocol_call(tree, clip)
    step = tree.nodes[clip.repair.site]
    if call is None or not isinstance(step, cst.Call) or not _means_the_same(ctx, anchor, step):
        return _ELSEWHERE
    guard = _guard(tree, anchor, step) if clip.repair.kind == "guard" else ""
    if guard is None:
        return _GUARD
    return _insert(ctx, anchor, f"{call[0]}.unscale_({call[1]})", guard)


def _anchor(tree: Tree, clip: ClipBeforeUnscale) -> cst.CSTNode:
    """The statement before which to unscale: the clip's, or the outermost loop over parameters around it."""
    node = tree.nodes[clip.site]
    others = [tree.nodes[site] for site in (clip.backward, *clip.steps, *clip.late_unscales)]
    anchor = tree.statement(node)
    for outer in tree.ancestors(anchor):
        if isinstance(outer, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            break
        if isinstance(outer, (cst.For, cst.While)) and not any(tree.inside(other, outer) for other in others):
            anchor = outer
    return anchor


def _alone(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1


def _means_the_same(ctx: Context, anchor: cst.CSTNode, step: cst.Call) -> bool:
    """Whether every name in the step's scaler and optimizer is bound to the same thing before `anchor`."""
    tree, names = ctx.model.tree, ctx.model.names
    assert isinstance(step.func, cst.Attribute)
    here, there = names.scope_of(anchor), names.scope_of(step)
    for part in (step.func.value, step.args[0].value):
        for node in tree.within(part):
            if isinstance(node, cst.Call):
                return False
            if not isinstance(node, cst.Name) or _is_attribute_name(tree, node):
                continue
            name = node.value
            if here is there or here.owner(name) is there.owner(name):
                start, end = sorted((tree.number(anchor), tree.number(step)))
                bound = [tree.number(binding.node) for binding in there.lookup(name)]
                if not bound or any(start < number < end for number in bound):
                    return False
            elif not (name == "self" and here.parent is there.parent and name in here.bindings):
                return False
    return True


def _is_attribute_name(tree: Tree, node: cst.Name) -> bool:
    above = tree.parent(node)
    return isinstance(above, cst.Attribute) and above.attr is node


def _guard(tree: Tree, anchor: cst.CSTNode, step: cst.Call) -> str | None:
    """The test under which the step runs and the clip does not; "" for none, None when it is not plain."""
    statement = tree.statement(step)
    block = tree.parent(statement)
    if block is tree.parent(anchor):
        return ""
    branch = tree.parent(block) if block is not None else None
    if (
        not isinstance(branch, cst.If)
        or branch.body is not block
        or tree.parent(branch) is not tree.parent(anchor)
    ):
        return None
    if any(isinstance(node, (cst.Call, cst.NamedExpr)) for node in tree.within(branch.test)):
        return None
    return tree.code(branch.test)


def _line(ctx: Context, node: cst.CSTNode) -> Span:
    """The whole rows of a statement, with their indentation and the last newline."""
    text, span = ctx.model.tree.text, ctx.model.tree.span(node)
    start = span.start
    while start > 0 and text[start - 1] not in "\r\n":
        start -= 1
    end = span.end
    while end < len(text) and text[end] not in "\r\n":
        end += 1
    end += 2 if text[end : end + 2] == "\r\n" else 1 if end < len(text) else 0
    return Span(start, end)


def _insert(ctx: Context, anchor: cst.CSTNode, call: str, guard: str) -> Fix:
    newline = ctx.model.source.newline
    span = ctx.model.tree.span(anchor)
    indent = ctx.model.tree.text[_line(ctx, anchor).start : span.start]
    text = f"{call}{newline}{indent}"
    if guard:
        deeper = "\t" if "\t" in indent else ctx.model.tree.module.default_indent
        text = f"if {guard}:{newline}{indent}{deeper}{text}"
    message = f"Call {call} before clipping"
    return Fix(FixKind.REPAIR, Applicability.SAFE, message, (Edit(Span(span.start, span.start), text),))


def _move(ctx: Context, anchor: cst.CSTNode, unscale: cst.CSTNode) -> Fix | str:
    tree = ctx.model.tree
    statement = tree.statement(unscale)
    if (
        not isinstance(unscale, cst.Call)
        or not _alone(statement)
        or tree.parent(statement) is not tree.parent(anchor)
    ):
        return _OTHER_BLOCK
    if not _means_the_same(ctx, anchor, unscale):
        return _ELSEWHERE
    taken, start = _line(ctx, statement), _line(ctx, anchor).start
    line = tree.text[taken.start : taken.end]
    if not line.endswith(("\n", "\r")):
        line += ctx.model.source.newline
    edits = (Edit(Span(start, start), line), Edit(taken, ""))
    return Fix(FixKind.REPAIR, Applicability.SAFE, f"Move {tree.code(unscale)} before the clip", edits)


RULE = Rule(
    code="AMP201",
    name="clip-before-unscale",
    summary="gradients are clipped while they are still multiplied by the loss scale",
    severity=Severity.ERROR,
    check=check,
    words=("clip_grad", "adaptive_clip_grad", ".grad"),
    fixable="sometimes",
    module=__name__,
)
