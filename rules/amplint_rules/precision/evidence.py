"""What the rules about dtypes share: what was seen of a file, and from something seen to a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from amplint.finding import Applicability, Confidence, Edit, Fix, FixKind, Note, Severity, Span
from amplint.flow.precision.analysis import Precision, precision_of
from amplint.flow.precision.lattice import LOW, UNKNOWN, Dtypes, is_certain, is_possible
from amplint.flow.precision.notes import Applied, Notes
from amplint.flow.precision.operators import CUDA
from amplint.flow.precision.values import Tensor, Value
from amplint.flow.usage import is_test
from amplint.model.module import ModuleModel
from amplint.model.units import is_library, is_own
from amplint.rule import Context, Report

#: Operators that move elements and compute nothing.
MOVES = (
    *(
        "view",
        "reshape",
        "flatten",
        "unflatten",
        "permute",
        "transpose",
        "swapaxes",
        "movedim",
        "t",
        "T",
        "mT",
    ),
    *(
        "getitem",
        "contiguous",
        "squeeze",
        "unsqueeze",
        "expand",
        "repeat",
        "detach",
        "clone",
        "chunk",
        "split",
    ),
    *(
        "unbind",
        "narrow",
        "select",
        "gather",
        "index_select",
        "cat",
        "stack",
        "narrow",
        "view_as",
        "expand_as",
    ),
)
_MOST_BEFORE = 24

#: What happens at a place, for a trace; nodes by their sites.
Step = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A place where something is wrong, in one of the ways in which execution comes there."""

    #: The place that is reported.
    site: int
    message: str
    trace: tuple[Step, ...] = ()
    confidence: Confidence = Confidence.HIGH
    #: Where `site` is in another file: the call of this file that leads there.
    entry: int | None = None
    severity: Severity | None = None
    fix: Callable[[], Fix | str] | None = None


def seen(ctx: Context, backend: str = CUDA) -> Precision:
    """What was seen of the file for one backend."""
    return precision_of(ctx.model, ctx.project, backend, ctx.settings.torch)


def notes(ctx: Context, backend: str = CUDA) -> Notes:
    """The same, without the files that it was looked at together with."""
    return seen(ctx, backend).notes


def reports(ctx: Context, suspects: Iterable[Suspect], why_no_fix: str) -> Iterator[Report]:
    """One report for each place: of several ways the one with the highest confidence, then the first.

    In tests low precision is often what is tested, and nothing that is trained there goes on.
    """
    in_test = is_test(ctx.model.filename)
    best: dict[int, Suspect] = {}
    for suspect in suspects:
        site = suspect.site if is_own(suspect.site) else suspect.entry
        if site is None:
            continue
        known = best.get(site)
        if known is None or suspect.confidence.rank > known.confidence.rank:
            best[site] = suspect
    for site, suspect in sorted(best.items()):
        is_here = is_own(suspect.site)
        reason = why_no_fix if is_here else elsewhere(ctx, suspect.site)
        yield Report(
            ctx.model.tree.nodes[site],
            suspect.message,
            severity=suspect.severity,
            confidence=Confidence.LOW if in_test else suspect.confidence,
            trace=trace(ctx, suspect.trace),
            fix=suspect.fix if suspect.fix is not None and is_here else lambda reason=reason: reason,  # type: ignore[misc]
        )


def place(ctx: Context, site: int) -> tuple[ModuleModel, cst.CSTNode]:
    """The module and the node at a site."""
    if is_own(site):
        return ctx.model, ctx.model.tree.nodes[site]
    return seen(ctx).files.place(site)


def node(ctx: Context, site: int) -> cst.CSTNode:
    """The node at a site."""
    return place(ctx, site)[1]


def code(ctx: Context, site: int) -> str:
    """What is written at a site."""
    model, found = place(ctx, site)
    return model.tree.code(found)


def elsewhere(ctx: Context, site: int) -> str:
    """Why there is no fix where the place is in another file."""
    model, found = place(ctx, site)
    return f"the place is in another file ({model.filename}:{model.source.position(model.tree.span(found).start).row})"


def trace(ctx: Context, steps: Sequence[Step]) -> list[tuple[cst.CSTNode, str] | Note]:
    """Steps in order, each once; those in other files as notes."""
    found: list[tuple[cst.CSTNode, str] | Note] = []
    for site, text in dict.fromkeys(steps):
        model, at = place(ctx, site)
        if model is ctx.model:
            found.append((at, text))
        elif not is_library(model.filename):
            found.append(Note(model.filename, model.source.position(model.tree.span(at).start), text))
    return found


def origin(value: Value) -> tuple[Step, ...]:
    """Where a tensor got its dtype, as the first step of a trace."""
    if isinstance(value, Tensor) and value.origin is not None and value.why:
        return ((value.origin, value.why),)
    return ()


def lowest(values: Iterable[Value]) -> Tensor | None:
    """The first tensor among values that is certainly float16 or bfloat16, else the first that may be."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    certain = next((t for t in tensors if is_certain(t.dtypes)), None)
    return certain or next((t for t in tensors if is_possible(t.dtypes)), None)


def confidence(
    dtypes: Dtypes, wanted: Iterable[str] = LOW, high: Confidence = Confidence.HIGH
) -> Confidence | None:
    """How sure it is that a value has one of the wanted dtypes: `high`, low where it may, None where nothing says so.

    Where it is certain for the wanted dtypes and another low one (float16 or bfloat16 by a variable), one step less.
    """
    wanted = frozenset(wanted)
    if is_certain(dtypes, wanted):
        return high
    if is_certain(dtypes, wanted | LOW) and is_possible(dtypes, wanted):
        return Confidence.MEDIUM if high is Confidence.HIGH else Confidence.LOW
    return Confidence.LOW if is_possible(dtypes, wanted) else None


def trains(ctx: Context) -> bool:
    """Whether something in the file is trained: a backward, an optimizer, a step of a framework's trainer."""
    found = notes(ctx)
    if any(a.op == "backward" or a.op.startswith(("torch.optim.", "optimizer.")) for a in found.applied):
        return True
    return any(
        name.rpartition(".")[2] in ("training_step", "train_step", "manual_backward")
        for name in ctx.model.function_names
    )


def before(ctx: Context, value: Value, *through: str) -> Iterator[Applied]:
    """The operators that made a tensor, nearest first, going on through those of the named operators."""
    found = notes(ctx)
    left, seen = [value], set[int]()
    while left:
        for applied in found.made(left.pop(0)):
            if id(applied) in seen or len(seen) > _MOST_BEFORE:
                continue
            seen.add(id(applied))
            yield applied
            if applied.op in through:
                left.extend(applied.args)


def leaves_region(ctx: Context, value: Tensor) -> bool:
    """Whether a tensor is low precision because of an autocast region in which it was computed."""
    if value.origin is None:
        return False
    ways = notes(ctx).by_site.get(value.origin, ())
    return any(a.ambient.enabled and a.op != "to" for a in ways)


def as_float32(ctx: Context, site: int, message: str, safe: bool = False) -> Fix | str:
    """A fix that gives the call at `site` what it is called on, or its first argument, as float32."""
    model, call = place(ctx, site)
    if model is not ctx.model or not isinstance(call, cst.Call):
        return "cast the operand to float32 first"
    first = call.args[0] if call.args else None
    operand: cst.BaseExpression
    if isinstance(call.func, cst.Attribute) and _is_tensor_method(ctx, site, call):
        operand = call.func.value
    elif first is None or first.star or (first.keyword is not None and first.keyword.value != "input"):
        return "cast the operand to float32 first"
    else:
        operand = first.value
    span = model.tree.span(operand)
    edits = [Edit(Span(span.end, span.end), ".float()")]
    if not operand.lpar and not isinstance(operand, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)):
        edits = [Edit(Span(span.start, span.start), "("), Edit(Span(span.end, span.end), ").float()")]
    applicability = Applicability.SAFE if safe else Applicability.UNSAFE
    return Fix(FixKind.REPAIR, applicability, message, tuple(edits))


def _is_tensor_method(ctx: Context, site: int, call: cst.Call) -> bool:
    """Whether an operator was called as a method: no module, and no function of a library."""
    is_module = any(a.form.startswith("module") for a in notes(ctx).by_site.get(site, ()))
    return not is_module and not any(ctx.model.names.resolve(call.func))


def said(dtypes: Dtypes) -> str:
    """Dtypes in words: "float16", "float16 or bfloat16"."""
    return " or ".join(sorted(d for d in dtypes if d != UNKNOWN and d in LOW)) or "half precision"


def operands(applied: Applied) -> tuple[Tensor, ...]:
    """The tensors that an operator ran on."""
    return applied.tensors


def in_optimizer(ctx: Context, applied: Applied) -> bool:
    """Whether an operator stands in a class that derives from torch's optimizers."""
    model, found = place(ctx, applied.site)
    around = next((n for n in model.tree.ancestors(found) if isinstance(n, cst.ClassDef)), None)
    return around is not None and any(
        name.startswith("torch.optim.") for base in around.bases for name in model.names.resolve(base.value)
    )


def upcast(ctx: Context, site: int, message: str, back: bool = True) -> Fix | str:
    """A fix that gives the call at `site` its first operand as float32, and casts the result back where `back` says so.

    The first operand is the receiver of a method, or the first argument of a function; a plain variable only, since
    it is named twice.
    """
    model, call = place(ctx, site)
    tree = model.tree
    if model is not ctx.model or not isinstance(call, cst.Call):
        return "cast the operand to float32 first"
    is_method = (
        isinstance(call.func, cst.Attribute)
        and not any(model.names.resolve(call.func))
        and not _is_module_call(ctx, site)
    )
    operand: cst.BaseExpression | None = None
    if is_method and isinstance(call.func, cst.Attribute):
        operand = call.func.value
    elif call.args and not call.args[0].star and call.args[0].keyword is None:
        operand = call.args[0].value
    if not isinstance(operand, (cst.Name, cst.Attribute)) or any(model.names.resolve(operand)):
        return "cast the operand to float32 first"
    text = tree.code(operand)
    end = tree.span(operand).end
    edits = [Edit(Span(end, end), ".float()")]
    if back:
        last = tree.span(call).end
        edits.append(Edit(Span(last, last), f".to({text}.dtype)"))
    return Fix(FixKind.REPAIR, Applicability.UNSAFE, message, tuple(edits))


def lift(ctx: Context, site: int, message: str, is_safe: bool = False) -> Fix | str:
    """A fix that gives the call at `site` its first operand as float32: the argument `input`, or the first one."""
    model, call = place(ctx, site)
    if model is not ctx.model or not isinstance(call, cst.Call):
        return "cast the operand to float32 first"
    plain = (a for a in call.args[:1] if not a.star and a.keyword is None)
    named = (a for a in call.args if a.keyword is not None and a.keyword.value == "input")
    given = next((a.value for a in (*plain, *named)), None)
    if given is None:
        return "cast the operand to float32 first"
    span = model.tree.span(given)
    is_simple = isinstance(given, (cst.Name, cst.Attribute, cst.Call, cst.Subscript))
    edits = [Edit(Span(span.end, span.end), ".float()" if is_simple else ").float()")]
    if not is_simple:
        edits.insert(0, Edit(Span(span.start, span.start), "("))
    return Fix(FixKind.REPAIR, Applicability.SAFE if is_safe else Applicability.UNSAFE, message, tuple(edits))


def _is_module_call(ctx: Context, site: int) -> bool:
    """Whether a module is called at a site, rather than a method of a tensor."""
    return any(applied.form.startswith("module ") for applied in notes(ctx).by_site.get(site, ()))
