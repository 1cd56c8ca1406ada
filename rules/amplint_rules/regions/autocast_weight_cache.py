"""Weights that change, or a pass without gradients, while an autocast region keeps copies of the weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from amplint.finding import Confidence, Severity
from amplint.flow import conditions as c
from amplint.flow.lift import last, names
from amplint.flow.precision.names import MODULE_NAME
from amplint.flow.regions import backward_of
from amplint.flow.spans import Event, Span, Spans, spans_of
from amplint.flow.steps import optimizer_steps
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes
from amplint_rules.regions.entered import COMPUTES, entered, written

_CHOICE = (
    "enter the region for each forward pass, call torch.clear_autocast_cache() in between, or give it "
    "cache_enabled=False: that is a choice"
)
#: torch keeps copies with gradients from here on, whatever the mode (pytorch#165068).
_KEEPS_GRADIENTS = (2, 11)
#: Methods that write other weights into a model, and that step an optimizer in two phases.
_SWAPS = re.compile(
    r"^(?:average_parameters|copy_to|apply_shadow|(?:swap|use|load|restore)_(?:\w+_)?(?:param(?:eter)?s|weights|shadow|ema))$"
)
_STEPS = re.compile(r"^(?:first|second|ascent|descent)_step$")
#: Methods by which a tensor is changed in place.
_IN_PLACE = ("copy_", "lerp_", "mul_", "add_", "sub_", "addcdiv_", "zero_", "fill_", "normal_")
_PARAMETER = re.compile(r"^p$|param|weight|^w$", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"opt|sched|scaler|loader|sampler|logger|loss|criterion"
    r"|^_?(?:get|build|make|create|load|save|update|init|freeze|set|eval|evaluate|train|test|compute|log|run|is|has)_",
    re.IGNORECASE,
)
#: Methods that a variable has if it holds a module.
_OF_MODULES = ("parameters", "named_parameters", "train", "eval", "named_modules", "modules")
#: Stands for whatever a loss was computed with.
_LOSS: c.Path = ("<loss>",)


def check(ctx: Context) -> Iterable[Report]:
    """Report changes between two passes in one region, and passes with gradients after one without."""
    spans = spans_of(ctx.model)
    held = spans.regions.held
    steps = frozenset(placed.call.site for placed in optimizer_steps(held))
    modules = frozenset(
        path
        for placed in held.calls
        if isinstance(placed.call.func, ir.Attr) and placed.call.func.attr in _OF_MODULES
        if (path := held.lift.path(placed.call.func.value)) is not None
    )
    found: dict[int, Report] = {}
    for span in spans.all:
        for report in _Reading(ctx, spans, span, steps, modules).reports():
            found.setdefault(ctx.model.tree.number(_node(report)), report)
    yield from (found[site] for site in sorted(found))


def _node(report: Report) -> cst.CSTNode:
    assert isinstance(report.node, cst.CSTNode)
    return report.node


@dataclass(slots=True)
class _Reading:
    """One span, read in order."""

    ctx: Context
    spans: Spans
    span: Span
    #: Steps of optimizers.
    steps: frozenset[int]
    #: Variables that hold modules.
    modules: frozenset[c.Path]
    #: What was computed with, and since the cache was emptied last: the first pass without and with gradients.
    used: dict[c.Path, Event] = field(default_factory=dict)
    without: dict[c.Path, Event] = field(default_factory=dict)
    changes: list[tuple[Event, c.Path | None]] = field(default_factory=list)

    def reports(self) -> Iterator[Report]:
        """What is wrong in it."""
        for event in self.span.events:
            if self._clears(event):
                self.used.clear()
                self.without.clear()
                self.changes.clear()
                continue
            changed = self._changed(event)
            if changed is not None:
                if self.used:
                    self.changes.append((event, changed or None))
                continue
            key = self._key(event)
            if key is None or not event.innermost.cached or not self.spans.is_on(event):
                continue
            if event.off == "inference_mode":
                continue  # nothing is kept there
            yield from self._stale(event, key)
            yield from self._lost(event, key)
            self.used.setdefault(key, event)
            if event.no_grad:
                self.without.setdefault(key, event)

    def _clears(self, event: Event) -> bool:
        return isinstance(event.expr, ir.Call) and last(event.expr.func) == "clear_autocast_cache"

    def _key(self, event: Event) -> c.Path | None:
        """The module that an event computes with; a loss stands for whatever it was computed with."""
        call, path = event.expr, event.path
        if not isinstance(call, ir.Call):
            return None
        if backward_of(call) is not None and not event.no_grad:
            return _LOSS
        is_forward = event.callee is None or event.callee.endswith(".forward")
        if path is None or names(call.func) or not is_forward or not call.args:
            return None
        if path[-1] in COMPUTES and len(path) > 1:
            path = path[:-1]
        name = path[-1].rpartition(":")[2]
        local = self.spans.regions.held.lift.path(call.func)
        is_module = event.callee is not None or local in self.modules or self._is_layer(call)
        is_named = bool(MODULE_NAME.search(name)) and not _NO_MODEL.search(name)
        return path if is_module or is_named else None

    def _is_layer(self, call: ir.Call) -> bool:
        held = self.spans.regions.held
        path = held.lift.path(call.func)
        return path is not None and any(
            isinstance(b.value, ir.Call) and any(n.startswith("torch.nn.") for n in names(b.value.func))
            for b in held.values(path)
        )

    def _changed(self, event: Event) -> c.Path | None:
        """The module whose weights an event changes, () for one that is not known; None where it changes none."""
        if isinstance(event.expr, ir.Name):  # `p -= step`, which torch refuses where gradients are recorded
            return () if event.no_grad and _PARAMETER.search(event.expr.id) else None
        if isinstance(event.expr, ir.Attr):
            is_data = event.expr.attr == "data" and bool(_PARAMETER.search(last(event.expr.value)))
            return () if is_data else None
        call, func = event.expr, event.expr.func
        if call.site in self.steps or self._is_scaler_step(call):
            return ()
        if not isinstance(func, ir.Attr) or names(func) or event.path is None:
            return None
        on = event.path[:-1]
        written = on[-1].rpartition(":")[2] if on else ""
        if func.attr == "load_state_dict":
            return on if on and not _NO_MODEL.search(written) else None
        if event.callee is None and (
            _SWAPS.search(func.attr) or (_STEPS.search(func.attr) and "opt" in written)
        ):
            return ()
        if func.attr in _IN_PLACE and event.callee is None:
            receiver = func.value
            if isinstance(receiver, ir.Attr) and receiver.attr == "data":
                receiver = receiver.value
            elif not event.no_grad:
                return None  # torch refuses to change a leaf in place otherwise
            return () if _PARAMETER.search(last(receiver)) else None
        return None

    def _is_scaler_step(self, call: ir.Call) -> bool:
        func = call.func
        return (
            isinstance(func, ir.Attr)
            and func.attr == "step"
            and len(call.args) == 1
            and (path := self.spans.regions.held.lift.path(func.value)) is not None
            and self.spans.regions.held.is_scaler(path)
        )

    def _stale(self, event: Event, key: c.Path) -> Iterator[Report]:
        """A pass of a module that has changed since the first one."""
        first = self.used.get(key)
        if first is None or first.excludes(event) or (key == _LOSS and first.site != event.site):
            return
        for change, whose in self.changes:
            if change.excludes(event) or change.excludes(first) or not self._concerns(change, whose, key):
                continue
            nodes = self.ctx.model.tree.nodes
            what = "the model" if key == _LOSS else f"`{written(key)}`"
            yield Report(
                nodes[change.site],
                "weights change here while the autocast region goes on, which keeps low-precision copies from before: "
                f"the next pass of {what} does not see the change",
                trace=[
                    *entered(self.ctx, change),
                    (nodes[first.site], "the weights have been cast, and the copies are kept"),
                    (nodes[change.site], "the weights change, the copies do not"),
                    (nodes[event.site], "the old copies are used again"),
                ],
                fix=lambda: _CHOICE,
            )

    def _concerns(self, change: Event, whose: c.Path | None, key: c.Path) -> bool:
        """Whether a change may be one of a module's weights, as far as the file tells."""
        if key == _LOSS:
            return True
        if whose is not None:
            return whose == key[: len(whose)]
        if change.site not in self.steps:
            return True
        # of two optimizers, the one that has this module's parameters
        held = self.spans.regions.held
        path = held.lift.path(change.expr.func.value) if isinstance(change.expr.func, ir.Attr) else None  # type: ignore[union-attr]
        own = {
            part for o in held.origins(path or ()) for owned in held.owned(o) or () for part in _parts(owned)
        }
        others = {part for o in held.optimizers for owned in held.owned(o) or () for part in _parts(owned)}
        mine = set(_parts(key))
        return not own or not own.isdisjoint(mine) or others.isdisjoint(mine)

    def _lost(self, event: Event, key: c.Path) -> Iterator[Report]:
        """A pass with gradients after one of the same module without."""
        first = self.without.get(key)
        if key == _LOSS or event.no_grad or first is None or first.excludes(event):
            return
        trains = any(word in self.ctx.model.source.text for word in ("backward", "training_step"))
        nodes = self.ctx.model.tree.nodes
        is_old = self.ctx.settings.torch < _KEEPS_GRADIENTS
        yield Report(
            nodes[event.site],
            f"`{written(key)}` computes with gradients here after a pass without in the same autocast region: before "
            "torch 2.11 the copies of its weights that the region keeps have none, and the weights get no gradient",
            severity=Severity.WARNING if is_old else Severity.INFO,
            confidence=Confidence.MEDIUM if is_old and trains else Confidence.LOW,
            trace=[
                *entered(self.ctx, event),
                (nodes[first.site], "the weights are cast without gradients, and the copies kept"),
                (nodes[event.site], "the same copies are used again"),
            ],
            fix=lambda: _CHOICE,
        )


def _parts(path: c.Path) -> tuple[str, ...]:
    return tuple(part.rpartition(":")[2] for part in path if not part.endswith((".self", "()")))


RULE = Rule(
    code="AMP313",
    name="autocast-weight-cache",
    summary="weights change, or a pass ran without gradients, while an autocast region keeps copies of the weights",
    severity=Severity.ERROR,
    check=check,
    words=("autocast",),
    shape=shapes.autocast_weight_cache,
    module=__name__,
)
