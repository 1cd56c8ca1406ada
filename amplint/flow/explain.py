"""What the analysis of the GradScaler protocol believes at one line: for readers who doubt a finding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amplint.finding import Position, Span
from amplint.flow import conditions as c
from amplint.flow import protocol as p
from amplint.flow.precision.explain import Line
from amplint.flow.pruning import nodes
from amplint.flow.scaler import prepare, scaler_analysis
from amplint.flow.state import FRAMEWORK, PLAIN, Phase, State, merge
from amplint.flow.typestate import GaveUp
from amplint.flow.verdicts import written
from amplint.model.units import is_elsewhere, is_own

if TYPE_CHECKING:
    from amplint.model.linked import Elsewhere
    from amplint.model.module import ModuleModel

_KINDS = {
    "scaled": "its gradients are scaled",
    "off": "it is disabled; its gradients are plain",
    "zeroed": "its gradients were zeroed before a step used them",
    "gone": "its gradients have been used or zeroed",
    "unknown": "out of sight: code that is not followed was handed it, and may have called it",
}
_OPERATORS = {"eq": "==", "gt": ">", "in": "in", "is": "is"}


@dataclass(frozen=True, slots=True)
class Way:
    """One way in which execution comes to the line."""

    #: The function that it began in.
    root: str
    #: Tests that it takes for true.
    assumptions: tuple[str, ...]
    #: Where each scaler stands, in words.
    scalers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is believed at one line."""

    #: What is on the line (or the next that concerns a scaler), as code; "" where nothing is.
    code: str = ""
    row: int = 0
    #: The row for its reader: `12`, or `cell 3:4`.
    line_name: str = ""
    ways: tuple[Way, ...] = ()
    #: Functions that took too many steps.
    gave_up: tuple[str, ...] = ()
    #: Why there is nothing to say of a scaler.
    reason: str = ""
    #: What is believed of the dtypes on the line.
    line: Line | None = None


def explain(model: ModuleModel, row: int, elsewhere: Elsewhere | None = None) -> Explanation:
    """What the analysis believes when execution comes to a row of a file."""
    prepared = prepare(model, elsewhere)
    if prepared is None:
        return Explanation(reason="nothing in this file scales a loss or steps a scaler")
    rows: dict[int, int] = {}
    for name, program in prepared.programs.items():
        if not is_elsewhere(name):
            rows.update((node.site, _row(model, node.site)) for node in nodes(program) if _is_call(node))
    later = sorted({found for found in rows.values() if found >= row})
    function = _function_at(model, row)
    sites = [site for site, found in rows.items() if later and found == later[0]]
    if not sites or _function_at(model, later[0]) != function:
        where = f"{function}()" if function else "the module's own code"
        return Explanation(reason=f"nothing on this line, or behind it in {where}, concerns a scaler")
    prepared.typestate.watched = frozenset(sites)
    ways: dict[Way, None] = {}
    gave_up = []
    for root in prepared.roots:
        try:
            prepared.typestate.run(root)
        except GaveUp:
            gave_up.append(root)
            continue
        states = prepared.typestate.seen.get(min(sites), [])
        ways.update((_way(root, state, model), None) for state in merge(states))
    first = model.tree.nodes[min(sites)]
    shown = model.source.place(Position(later[0], 1)).line
    return Explanation(model.tree.code(first), later[0], shown, tuple(ways), tuple(gave_up))


@dataclass(frozen=True, slots=True)
class Steps:
    """Where a scaler steps, and what its loss and gradients are, for those who annotate code."""

    #: (the function, the call of `scaler.step`), the first call of each function that has one.
    steps: tuple[tuple[str, Span], ...] = ()
    #: What holds a scaled loss, or makes scaled gradients.
    scaled: tuple[Span, ...] = ()
    #: Functions that took too many steps to analyse.
    gave_up: int = 0


def steps(model: ModuleModel, elsewhere: Elsewhere | None = None) -> Steps:
    """The places of the GradScaler protocol in a file."""
    prepared = prepare(model, elsewhere)
    if prepared is None:
        return Steps()
    found: dict[str, Span] = {}
    scaled: set[Span] = set()
    for name, program in prepared.whole.items():
        if is_elsewhere(name):
            continue
        for node in nodes(program):
            span = model.tree.span(model.tree.nodes[node.site])
            if isinstance(node, p.Invoke) and node.method == "step" and name in prepared.pruner.stepping:
                if node.receiver is not None and prepared.objects.is_scaler(node.receiver):
                    found.setdefault(name, span)
            elif (isinstance(node, p.Backward) and node.scalers) or (
                isinstance(node, p.Assign) and isinstance(node.value, p.Scaled) and node.value.scalers
            ):
                scaled.add(span)
    gave_up = scaler_analysis(model, elsewhere).gave_up
    return Steps(tuple(found.items()), tuple(sorted(scaled)), gave_up)


def _row(model: ModuleModel, site: int) -> int:
    return model.source.position(model.tree.span(model.tree.nodes[site]).start).row


def _is_call(node: p.Node) -> bool:
    return isinstance(node, (p.Event, p.Invoke))


def _function_at(model: ModuleModel, row: int) -> str:
    """The innermost function around a row, "" for the module's own code."""
    best = ("", 0)
    for name, function in model.functions.items():
        span = model.tree.span(model.tree.nodes[function.site])
        start, end = model.source.position(span.start).row, model.source.position(span.end).row
        if name and start <= row <= end and start > best[1]:
            best = (name, start)
    return best[0]


def _way(root: str, state: State, model: ModuleModel) -> Way:
    assumptions = sorted(_said(atom, value) for atom, value in state.known.items())
    scalers = [text for scaler, phase in state.scalers.items() for text in _told(scaler, phase, model)]
    return Way(root, tuple(assumptions), tuple(scalers))


def _told(scaler: c.Path, phase: Phase, model: ModuleModel) -> Iterator[str]:
    if scaler == PLAIN:
        yield f"no scaler: gradients of a loss that is not scaled (line {_line(model, phase.backward)})"
        return
    name = "the framework's scaler" if scaler == FRAMEWORK else written(scaler)
    since = f" (backward on line {_line(model, phase.backward)})" if phase.kind in ("scaled", "off") else ""
    yield f"{name}: {_KINDS.get(phase.kind, phase.kind)}{since}"
    for optimizer in phase.unscaled:
        yield f"{name}: unscale_ has run for {written(optimizer) or 'an optimizer'}"
    for optimizer, site in phase.spent:
        yield f"{name}: {written(optimizer) or 'an optimizer'} has stepped (line {_line(model, site)})"
    for call in phase.calls:
        yield (
            f"{name}: {call.method} for {written(call.optimizer) or 'an optimizer'} on line "
            f"{_line(model, call.site)}, and no update() since"
        )


def _line(model: ModuleModel, site: int) -> str:
    return model.source.shown_row(_row(model, site)) if is_own(site) else "of another file"


def _said(atom: c.Atom, value: bool) -> str:
    left, right = _term(atom.left), _term(atom.right)
    if atom.kind == "truth":
        return f"{left} is {'true' if value else 'false'}"
    if atom.kind == "none":
        return f"{left} is {'' if value else 'not '}None"
    if atom.kind == "enabled":
        return f"{left} is {'enabled' if value else 'disabled'}"
    text = f"{left} {_OPERATORS.get(atom.kind, atom.kind)} {right}"
    return text if value else f"not ({text})"


def _term(term: c.Term) -> str:
    if isinstance(term, c.Ref):
        return written(term.path) or "?"
    if isinstance(term, c.Lit):
        return repr(term.value)
    if isinstance(term, c.Op):
        parts = [_term(part) for part in term.args]
        if term.name == "call":
            return f"{parts[0]}({', '.join(parts[1:])})"
        if term.name == "[]" and len(parts) == 2:
            return f"{parts[0]}[{parts[1]}]"
        if term.name.endswith("="):
            return term.name.removesuffix("=") + ("=" if len(term.name) > 1 else "") + parts[0]
        if term.name.startswith("."):
            return parts[0] + term.name
        return (
            f" {term.name} ".join(parts)
            if len(parts) > 1
            else f"{term.name}{parts[0]}"
            if parts
            else term.name
        )
    return "?"
