"""What the analyses believe of places in a document: for hovers, inlay hints and code lenses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from amplint.finding import Finding, Span
from amplint.lsp.messages import Annotation, Unsaved

if TYPE_CHECKING:
    from amplint.flow.explain import Explanation
    from amplint.flow.precision.explain import Named
    from amplint.model.module import ModuleModel
    from amplint.project.link import Project

_PROTOCOL = "AMP2"


def describe(model: ModuleModel, project: Project, document: Unsaved, offset: int) -> Annotation | None:
    """The innermost name at an offset: its dtype on CUDA and NPU, autocast there, and where the scaler stands."""
    from amplint.flow.explain import explain
    from amplint.flow.precision.explain import named

    torch = document.scope.settings.torch
    here = [n for n in named(model, project, torch, Span(offset, offset)) if n.typed.cuda or n.typed.npu]
    parts = []
    span = Span(offset, offset)
    if here:
        innermost = min(here, key=lambda each: each.span.end - each.span.start)
        span = innermost.span
        parts.append(_dtype(innermost))
    row = model.source.position(min(offset, len(model.source.text))).row
    explained = explain(model, row, project)
    if explained.row == row:
        parts.extend(_scalers(explained))
    return Annotation(span, "\n\n".join(parts)) if parts else None


def _dtype(name: Named) -> str:
    typed = name.typed
    dtype = f"`{typed.cuda or 'not known'}`"
    if typed.npu != typed.cuda:
        dtype += f" on CUDA, `{typed.npu or 'not known'}` on NPU"
    lines = [f"`{typed.code}`: {dtype}" + (f" ({typed.origin})" if typed.origin else "")]
    if name.autocast:
        lines.append(f"autocast here: {name.autocast}")
    return "\n\n".join(lines)


def _scalers(explained: Explanation) -> Iterator[str]:
    for way in explained.ways:
        came = f"from `{way.root}()`" if way.root else "from the start of the module"
        assumed = f", assuming {', '.join(way.assumptions)}" if way.assumptions else ""
        state = "; ".join(way.scalers) or "no loss has been scaled"
        yield f"loss scaling, {came}{assumed}: {state}"


def explanation(model: ModuleModel, project: Project, document: Unsaved, row: int) -> str:
    """What is believed at a row, in Markdown."""
    from amplint.flow.explain import explain
    from amplint.flow.precision.explain import line

    found = explain(model, row, project)
    typed = line(model, row, project, document.scope.settings.torch)
    parts = [found.reason] if found.reason else list(_scalers(found))
    for each in typed.typed:
        other = f" on CUDA, `{each.npu or 'not known'}` on NPU" if each.npu != each.cuda else ""
        origin = f" ({each.origin})" if each.origin else ""
        parts.append(f"`{each.code}`: `{each.cuda or 'not known'}`{other}{origin}")
    if typed.autocast:
        parts.append(f"autocast: {typed.autocast}")
    return "\n\n".join(parts)


def hints(model: ModuleModel, project: Project, document: Unsaved, within: Span) -> list[Annotation]:
    """What autocast makes of names that are assigned to, and where a loss or its gradients are scaled."""
    from amplint.flow.explain import steps
    from amplint.flow.precision.explain import named

    found: dict[int, Annotation] = {}
    for each in named(model, project, document.scope.settings.torch, within, npu=False):
        if each.is_lowered and _is_assigned(model, each.span):
            detail = "\n\n".join(filter(None, (each.typed.origin, f"autocast here: {each.autocast}")))
            found[each.span.end] = Annotation(each.span, f"{each.typed.cuda} (autocast)", detail)
    for span in steps(model, project).scaled:
        if within.start <= span.end <= within.end and span.end not in found:
            found[span.end] = Annotation(
                span, "scaled", "holds (or makes gradients of) a loss times its scale"
            )
    return [found[end] for end in sorted(found)]


def _is_assigned(model: ModuleModel, span: Span) -> bool:
    """Whether a name stands where a statement begins, before a single `=`."""
    start = model.source.line_starts[model.source.position(span.start).row - 1]
    before = model.source.text[start : span.start]
    behind = model.source.text[span.end : span.end + 20].lstrip(" \t")
    return not before.strip() and behind.startswith("=") and not behind.startswith("==")


def lenses(model: ModuleModel, project: Project, findings: Sequence[Finding]) -> list[Annotation]:
    """For each function that steps a scaler: what is wrong with its use of it, or that all is right."""
    from amplint.flow.explain import steps

    known = steps(model, project)
    made = []
    for name, step in known.steps:
        around = _extent(model, name)
        wrong = [
            f for f in findings if f.code.startswith(_PROTOCOL) and around.start <= f.span.start <= around.end
        ]
        if wrong:
            names = dict.fromkeys(f.name.replace("-", " ") for f in wrong)
            made.append(Annotation(step, ", ".join(names), "\n".join(f.message for f in wrong)))
        elif known.gave_up:
            made.append(Annotation(step, "scaler protocol: too many paths to follow"))
        else:
            made.append(Annotation(step, "scaler protocol ok"))
    return made


def _extent(model: ModuleModel, name: str) -> Span:
    """The span of a function; of the module's own code, of all of it."""
    function = model.function(name) if name else None
    if function is None:
        return Span(0, len(model.source.text))
    return model.tree.span(model.tree.nodes[function.site])
