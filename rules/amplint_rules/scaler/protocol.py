"""What the rules about the GradScaler protocol share: from a violation to a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import libcst as cst

from amplint.finding import Fix, Note, Severity
from amplint.flow.scaler import scaler_analysis
from amplint.flow.verdicts import Violation
from amplint.model.module import ModuleModel
from amplint.model.units import is_library, is_own
from amplint.rule import Context, Report
from amplint_rules import statements

Message = Callable[[Context, Violation], str]
Repair = Callable[[Context, Violation], Fix | str]


def reports(ctx: Context, kind: str, message: Message, fix: Repair) -> Iterator[Report]:
    """A report for each violation of one kind."""
    return (report for report, _ in reported(ctx, kind, message, fix))


def reported(ctx: Context, kind: str, message: Message, fix: Repair) -> Iterable[tuple[Report, Violation]]:
    """The same, each with its violation."""
    analysis = scaler_analysis(ctx.model, ctx.project)
    for violation in analysis.of(kind):
        site = own_site(violation.site, violation.entry)
        if site is None:
            continue
        away = [s for s in (*violation.sites, violation.shows_at) if not is_own(s)]
        report = Report(
            node(ctx, site),
            message(ctx, violation),
            confidence=violation.confidence,
            trace=trace(ctx, violation.trace),
            fix=partial(fix, ctx, violation) if not away else partial(in_another_file, ctx, away[0]),
        )
        yield report, violation


def own_site(site: int, entry: int | None) -> int | None:
    """Where a mistake is reported: at its site, or at the call that leads to it in another file."""
    return site if is_own(site) else entry


def in_another_file(ctx: Context, site: int) -> str:
    """Why there is no fix where a part of the mistake is elsewhere."""
    if in_library(ctx, site):
        return "a part of it happens in a library"
    note = step(ctx, site, "")
    assert isinstance(note, Note)
    return f"a part of it stands in another file ({note.filename}:{note.start.row})"


def trace(ctx: Context, steps: Iterable[tuple[int, str]]) -> list[tuple[cst.CSTNode, str] | Note]:
    """The steps of a trace, without those that readers could not open."""
    return [step(ctx, site, text) for site, text in steps if not in_library(ctx, site)]


def in_library(ctx: Context, site: int) -> bool:
    """Whether a site is in what stands for a library, which readers cannot open."""
    return is_library(place(ctx, site)[0].filename)


def step(ctx: Context, site: int, text: str) -> tuple[cst.CSTNode, str] | Note:
    """A step of a trace, which may lead into another file."""
    model, found = place(ctx, site)
    if model is ctx.model:
        return found, text
    return Note(model.filename, model.source.position(model.tree.span(found).start), text)


def place(ctx: Context, site: int) -> tuple[ModuleModel, cst.CSTNode]:
    """The module and the node at a site."""
    if is_own(site):
        return ctx.model, ctx.model.tree.nodes[site]
    linked = scaler_analysis(ctx.model, ctx.project).linked
    assert linked is not None
    return linked.place(site)


def with_severity(report: Report, severity: Severity) -> Report:
    """The same report with another severity than the rule's."""
    return replace(report, severity=severity)


def node(ctx: Context, site: int) -> cst.CSTNode:
    """The node at a site."""
    return place(ctx, site)[1]


def statement(ctx: Context, site: int) -> cst.CSTNode:
    """The statement around a site."""
    return ctx.model.tree.statement(node(ctx, site))


def owner(ctx: Context, site: int) -> str:
    """What the method called at `site` is called on, as written; "" where it is no such call."""
    model, call = place(ctx, site)
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
        return model.tree.code(call.func.value)
    return ""


def code(ctx: Context, site: int) -> str:
    """What is written at a site."""
    model, found = place(ctx, site)
    return model.tree.code(found)


def scaler_at(ctx: Context, site: int) -> str:
    """The scaler in a call of one of its methods, or in `scaler.scale(loss).backward()`, as written."""
    call = node(ctx, site)
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
        return ""
    if call.func.attr.value in ("step", "unscale_", "update", "scale"):
        return ctx.model.tree.code(call.func.value)
    inner = call.func.value
    if (
        isinstance(inner, cst.Call)
        and isinstance(inner.func, cst.Attribute)
        and inner.func.attr.value == "scale"
    ):
        return ctx.model.tree.code(inner.func.value)
    return ""


def scaler_of(violation: Violation) -> str:
    """The scaler of a violation in a message."""
    return violation.scaler or "the scaler"


def optimizer_of(violation: Violation) -> str:
    """The optimizer of a violation in a message."""
    name = violation.optimizer or "the optimizer"
    return f"one of {name[:-2]}" if name.endswith("[]") else name


def calls_of(ctx: Context, scaler: str, method: str) -> list[int]:
    """Sites of the calls of one method of something written as `scaler`, in order."""
    last = scaler.rpartition(".")[2]
    found = []
    for call in ctx.model.tree.of_type(cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == method:
            written = ctx.model.tree.code(call.func.value)
            if written == scaler or written.rpartition(".")[2] == last:
                found.append(ctx.model.tree.number(call))
    return found


def backwards(ctx: Context) -> list[int]:
    """Sites of every call of a `backward`."""
    return [
        ctx.model.tree.number(call)
        for call in ctx.model.tree.of_type(cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "backward"
    ]


def makings(model: ModuleModel, first: cst.CSTNode) -> list[cst.CSTNode]:
    """An expression, and what the variables that it is made from are assigned or run over in the same function."""
    tree, names = model.tree, model.names
    scope = names.scope_of(first)
    pairs: list[tuple[cst.CSTNode, cst.CSTNode]] = [
        *((target.target, made.value) for made in tree.of_type(cst.Assign) for target in made.targets),
        *((loop.target, loop.iter) for loop in tree.of_type(cst.For)),
        *((made.target, made.value) for made in tree.of_type(cst.AugAssign)),
    ]
    local = [(target, value) for target, value in pairs if names.scope_of(target) is scope]
    found, seen = [first], {"self", "backward"}
    for node_ in found:
        used = _names(model, node_) - seen
        seen |= used
        found.extend(value for target, value in local if not used.isdisjoint(_names(model, target)))
    return found


def _names(model: ModuleModel, expr: cst.CSTNode) -> set[str]:
    return {part.value for part in model.tree.within(expr) if isinstance(part, cst.Name)}


def in_one_scope(ctx: Context, *sites: int) -> bool:
    """Whether names mean the same at all of these sites: they stand in one function."""
    return len({id(ctx.model.names.scope_of(node(ctx, site))) for site in sites}) == 1


def runs_through(ctx: Context, first: cst.CSTNode, last: cst.CSTNode) -> bool:
    """Whether `last` stands behind `first` in one block, and nothing between leaves it."""
    tree = ctx.model.tree
    return (
        statements.siblings(tree, first, last)
        and tree.number(first) < tree.number(last)
        and not statements.can_leave_between(tree, first, last)
    )


def beside(ctx: Context, inner: cst.CSTNode, other: cst.CSTNode) -> cst.CSTNode | None:
    """The statement around `inner`, or itself, that stands in the block of `other`."""
    tree = ctx.model.tree
    for outer in (inner, *tree.ancestors(inner)):
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef)):
            break
        if tree.parent(outer) is tree.parent(other):
            return outer
    return None


def is_updated_behind(ctx: Context, scaler: str, step: cst.CSTNode) -> bool:
    """Whether an `update` of the scaler surely follows a step, or stands in other functions only."""
    updates = calls_of(ctx, scaler, "update")
    scope = ctx.model.names.scope_of(step)
    here = [site for site in updates if ctx.model.names.scope_of(node(ctx, site)) is scope]
    if not here:
        return bool(updates)
    tree = ctx.model.tree
    return any(
        tree.number(step) < site
        and beside(ctx, step, statement(ctx, site)) is not None
        and not statements.can_leave_between(tree, step, statement(ctx, site))
        for site in here
    )


def rebinds_between(ctx: Context, moved: cst.CSTNode, first: cst.CSTNode) -> bool:
    """Whether a name in `moved` gets its value between `first` and there."""
    tree, names = ctx.model.tree, ctx.model.names
    start, end = tree.number(first), tree.number(moved)
    scope = names.scope_of(moved)
    return any(
        start < tree.number(binding.node) < end
        for part in tree.within(moved)
        if isinstance(part, cst.Name)
        for binding in scope.lookup(part.value)
    )


def outermost_loop_without(ctx: Context, site: int, other: cst.CSTNode) -> cst.CSTNode:
    """The statement at `site`, or the outermost loop or branch around it in which `other` does not stand."""
    tree = ctx.model.tree
    anchor = statement(ctx, site)
    for outer in tree.ancestors(anchor):
        if isinstance(outer, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            break
        if isinstance(outer, (cst.For, cst.While, cst.If)) and not tree.inside(other, outer):
            anchor = outer
    return anchor
