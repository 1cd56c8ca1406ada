"""Gradients are clipped while they are still multiplied by the loss scale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Confidence, Fix, FixKind, Note, Severity
from amplint.flow.scaler import ClipBeforeUnscale, scaler_analysis
from amplint.model.units import is_own
from amplint.rule import Context, Report, Rule
from amplint.syntax.tree import Tree
from amplint_rules import shapes, statements
from amplint_rules.scaler import frameworks, protocol

_ELSEWHERE = (
    "the optimizer or the scaler has no name where the clip stands; call unscale_ before the clip by hand"
)
_ONE_LINE = "the clip shares its line with other statements; give it a line of its own first"
_OTHER_BLOCK = "unscale_ stands in another block or function; move the clip behind it"
_GUARD = "the clip also runs where nothing is scaled; call unscale_ under the condition of the step"
_HELPER = "the helper also runs where nothing is scaled (line {row}); call unscale_ where it is called"
_REPEATED = "the clip may run several times before the step; call unscale_ once before the first of them"
_SEVERAL = "several clips lead to this step; call unscale_ once before the first of them"
_LEFT = "the block can be left between the clip and unscale_; move it by hand"
_CONSTANTS = ("None", "True", "False")


def check(ctx: Context) -> Iterable[Report]:
    """Report each clip that a scaled backward reaches without an `unscale_` for the optimizer concerned."""
    found = scaler_analysis(ctx.model, ctx.project).clips_before_unscale
    for clip in found:
        site = protocol.own_site(clip.site, clip.entry)
        if site is not None:
            yield Report(
                protocol.node(ctx, site),
                _message(ctx, clip),
                confidence=clip.confidence,
                trace=_trace(ctx, clip),
                fix=partial(_checked_fix, ctx, clip, found),
            )

    yield from frameworks.raw_clips(ctx)


def _checked_fix(ctx: Context, clip: ClipBeforeUnscale, found: Sequence[ClipBeforeUnscale]) -> Fix | str:
    """The fix, where all that it depends on stands in this file."""
    sites = [clip.site, clip.backward, *clip.steps, *clip.late_unscales]
    sites.extend([clip.repair.site] if clip.repair.site is not None else [])
    away = next((site for site in sites if not is_own(site)), None)
    if away is not None:
        return protocol.in_another_file(ctx, away)
    return _fix(ctx, clip, [c for c in found if all(map(is_own, (c.site, *c.steps, *c.late_unscales)))])


def _message(ctx: Context, clip: ClipBeforeUnscale) -> str:
    if not clip.scaler:
        return (
            f"{clip.how} acts on gradients that manual_backward scaled (with fp16 precision); "
            "the framework unscales them only inside optimizer.step()"
        )
    where = " on some paths" if clip.confidence is Confidence.LOW else ""
    call = _protocol_call(ctx, clip)
    advice = f"; call {call[0]}.unscale_({call[1]}) first" if call is not None else ""
    scale = f"the loss scale of {clip.scaler}"
    return f"{clip.how} acts on gradients that are still multiplied by {scale}{where}{advice}"


def _trace(ctx: Context, clip: ClipBeforeUnscale) -> list[tuple[cst.CSTNode, str] | Note]:
    by = f" by {clip.scaler}" if clip.scaler else " by the framework's scaler"
    steps = [(clip.backward, f"the loss is scaled here{by}, and so are its gradients")]
    steps.append((clip.site, "clipped here, with no unscale_ on this path"))
    steps.extend((site, "unscaled only here") for site in clip.late_unscales)
    steps.extend((site, "the clipped gradients are consumed here") for site in clip.steps[:1])
    return protocol.trace(ctx, steps)


def _protocol_call(ctx: Context, clip: ClipBeforeUnscale) -> tuple[str, str] | None:
    """Scaler and optimizer as written in the `step` or `unscale_` calls, where all of them agree."""
    found: set[tuple[str, str]] = set()
    for site in clip.steps or clip.late_unscales:
        model, call = protocol.place(ctx, site)
        if protocol.in_library(ctx, site) or not (
            isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and call.args
        ):
            return None
        if call.args[0].star or call.args[0].keyword not in (None,):
            return None
        found.add((model.tree.code(call.func.value), model.tree.code(call.args[0].value)))
    return found.pop() if len(found) == 1 else None


# -- the repair ---------------------------------------------------------------------------------------------


def _fix(ctx: Context, clip: ClipBeforeUnscale, found: Sequence[ClipBeforeUnscale]) -> Fix | str:
    tree = ctx.model.tree
    if clip.repair.site is None:
        return clip.repair.reason
    anchor = _anchor(tree, clip)
    for other in found:
        if other is clip or not _share_the_call(clip, other):
            continue
        place = _anchor(tree, other)
        if tree.parent(place) is not tree.parent(anchor):
            if not _exclude_each_other(tree, place, anchor):
                return _SEVERAL
        elif tree.number(place) < tree.number(anchor):
            return _fix(ctx, other, found)  # the same edits: one call serves both
    if clip.repair.kind == "move":
        return _move(ctx, clip, anchor)
    call = _protocol_call(ctx, clip)
    step = tree.nodes[clip.repair.site]
    if not statements.can_stand_alone(anchor):
        return _ONE_LINE
    if call is None or not isinstance(step, cst.Call) or not _means_the_same(ctx, anchor, step, _names(step)):
        return _ELSEWHERE
    if clip.repair.repeated and not _runs_once(ctx, clip, anchor):
        return _REPEATED
    guard = _guard(ctx, anchor, clip) if clip.repair.kind == "guard" else ""
    if guard is None:
        return _no_guard(ctx, clip)
    return _insert(ctx, anchor, f"{call[0]}.unscale_({call[1]})", guard)


def _no_guard(ctx: Context, clip: ClipBeforeUnscale) -> str:
    if clip.repair.idle_call is None:
        return _GUARD
    tree = ctx.model.tree
    row = ctx.model.source.position(tree.span(tree.nodes[clip.repair.idle_call]).start).row
    return _HELPER.format(row=ctx.model.source.shown_row(row))


def _share_the_call(one: ClipBeforeUnscale, other: ClipBeforeUnscale) -> bool:
    """Whether one `unscale_` is what both clips lack: a second one before `update` raises."""
    if one.repair.site is None or other.repair.site is None:
        return False
    return one.repair == other.repair or not set(one.steps).isdisjoint(other.steps)


def _exclude_each_other(tree: Tree, one: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Whether the two stand in different arms of one `if`."""
    around = [one, *tree.ancestors(one)]
    inner = other
    for outer in tree.ancestors(other):
        if outer in around:
            mine = around[around.index(outer) - 1]
            return isinstance(outer, cst.If) and {mine, inner} == {outer.body, outer.orelse}
        inner = outer
    return False


def _runs_once(ctx: Context, clip: ClipBeforeUnscale, anchor: cst.CSTNode) -> bool:
    """Whether what stands before `anchor` runs once for each step, however often the clip does."""
    tree, names = ctx.model.tree, ctx.model.names
    if any(names.scope_of(tree.nodes[step]) is not names.scope_of(anchor) for step in clip.steps):
        return False
    for outer in tree.ancestors(anchor):
        if isinstance(outer, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            break
        if isinstance(outer, (cst.For, cst.While)) and not tree.inside(tree.nodes[clip.backward], outer):
            return False
    return True


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


def _names(step: cst.Call) -> tuple[cst.BaseExpression, ...]:
    """What the scaler and the optimizer of a `step` or `unscale_` are called."""
    assert isinstance(step.func, cst.Attribute)
    return step.func.value, step.args[0].value


def _means_the_same(
    ctx: Context, anchor: cst.CSTNode, there: cst.CSTNode, parts: Iterable[cst.CSTNode]
) -> bool:
    """Whether every name in `parts`, which stand at `there`, is bound to the same thing before `anchor`."""
    tree, names = ctx.model.tree, ctx.model.names
    scope, origin = names.scope_of(anchor), names.scope_of(there)
    for node in (node for part in parts for node in tree.within(part)):
        if isinstance(node, cst.Call):
            return False
        if not isinstance(node, cst.Name) or _is_attribute_name(tree, node) or node.value in _CONSTANTS:
            continue
        name = node.value
        if scope is origin or scope.owner(name) is origin.owner(name):
            start, end = sorted((tree.number(anchor), tree.number(there)))
            bound = [tree.number(binding.node) for binding in origin.lookup(name)]
            if not bound or any(start < number < end for number in bound):
                return False
        elif not (name == "self" and scope.parent is origin.parent and name in scope.bindings):
            return False
    return True


def _is_attribute_name(tree: Tree, node: cst.Name) -> bool:
    above = tree.parent(node)
    return isinstance(above, cst.Attribute) and above.attr is node


def _guard(ctx: Context, anchor: cst.CSTNode, clip: ClipBeforeUnscale) -> str | None:
    """The test under which the step runs and the clip does not; "" for none, None when it is not plain."""
    tree = ctx.model.tree
    if len(clip.steps) != 1:
        return None
    statement = tree.statement(tree.nodes[clip.steps[0]])
    block = tree.parent(statement)
    if block is tree.parent(anchor):
        return None if statements.can_leave_between(tree, anchor, statement) else ""
    branch = tree.parent(block) if block is not None else None
    if (
        not isinstance(branch, cst.If)
        or branch.body is not block
        or tree.parent(branch) is not tree.parent(anchor)
        or statements.can_leave_between(tree, anchor, branch)
        or any(isinstance(node, (cst.Call, cst.NamedExpr)) for node in tree.within(branch.test))
        or not _means_the_same(ctx, anchor, branch, (branch.test,))
    ):
        return None
    return tree.code(branch.test)


def _insert(ctx: Context, anchor: cst.CSTNode, call: str, guard: str) -> Fix:
    if guard:
        deeper = "\t" if "\t" in statements.indent(ctx, anchor) else ctx.model.tree.module.default_indent
        edit = statements.inserted_before(ctx, anchor, f"if {guard}:\n{deeper}{call}")
    else:
        edit = statements.inserted_before(ctx, anchor, call)
    return Fix(FixKind.REPAIR, Applicability.SAFE, f"Call {call} before clipping", (edit,))


def _move(ctx: Context, clip: ClipBeforeUnscale, anchor: cst.CSTNode) -> Fix | str:
    tree = ctx.model.tree
    if not statements.can_stand_alone(anchor):
        return _ONE_LINE
    assert clip.repair.site is not None
    unscale = tree.nodes[clip.repair.site]
    statement = tree.statement(unscale)
    if (
        not isinstance(unscale, cst.Call)
        or not isinstance(statement, cst.SimpleStatementLine)
        or not statements.can_stand_alone(statement)
        or tree.parent(statement) is not tree.parent(anchor)
    ):
        return _OTHER_BLOCK
    if statements.can_leave_between(tree, anchor, statement):
        return _LEFT
    if not _means_the_same(ctx, anchor, unscale, _names(unscale)):
        return _ELSEWHERE
    edits = statements.moved_before(ctx, statement, anchor)
    safety = Applicability.SAFE if clip.repair.safe else Applicability.UNSAFE
    return Fix(FixKind.REPAIR, safety, f"Move {tree.code(unscale)} before the clip", edits)


RULE = Rule(
    code="AMP201",
    name="clip-before-unscale",
    summary="gradients are clipped while they are still multiplied by the loss scale",
    severity=Severity.ERROR,
    check=check,
    words=(".scale", "caler", "unscale_", "manual_backward", *shapes.OWNERS),
    shape=shapes.clip_before_unscale,
    fixable="sometimes",
    module=__name__,
)
