"""Verdicts about the GradScaler protocol in one file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from amplint.finding import Confidence
from amplint.flow import conditions as c
from amplint.flow import protocol as p
from amplint.flow import walk
from amplint.flow.objects import Objects
from amplint.flow.pruning import Pruner, nodes
from amplint.flow.slicing import Slicer
from amplint.flow.state import FRAMEWORK
from amplint.flow.typestate import ClipRecord, GaveUp, Recording, Typestate
from amplint.model import ir
from amplint.model.module import ModuleModel


@dataclass(frozen=True, slots=True)
class Repair:
    """How the protocol could be put right, as far as the paths tell; the text decides the rest.

    `kind` is "insert" (`unscale_` before the clip), "guard" (the same under the step's condition), "move"
    (the `unscale_` at `site` to before the clip) or "none" (because of `reason`).
    """

    kind: str
    #: The step whose scaler and optimizer are meant, or the `unscale_` to move.
    site: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClipBeforeUnscale:
    """A clip that sees gradients still multiplied by the loss scale."""

    site: int
    #: The function that clips.
    how: str
    #: The scaler as written, "" for a framework's.
    scaler: str
    backward: int
    #: Steps that consume the clipped gradients.
    steps: tuple[int, ...]
    late_unscales: tuple[int, ...]
    confidence: Confidence
    repair: Repair


@dataclass(frozen=True, slots=True)
class ScalerAnalysis:
    """All verdicts about one file."""

    clips_before_unscale: tuple[ClipBeforeUnscale, ...] = ()
    #: Functions that took too many steps to analyse.
    gave_up: int = 0


_RESULTS: WeakKeyDictionary[ModuleModel, ScalerAnalysis] = WeakKeyDictionary()
_ORDER = (Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH)


def scaler_analysis(model: ModuleModel) -> ScalerAnalysis:
    """The verdicts about one file; computed once."""
    found = _RESULTS.get(model)
    if found is None:
        found = _RESULTS[model] = analyse(model)
    return found


def analyse(model: ModuleModel) -> ScalerAnalysis:
    """Slice every function of the file and run the protocol from each of them."""
    text = model.source.text
    if not any(word in text for word in (".scale(", "unscale_", "manual_backward")):
        return ScalerAnalysis()
    objects = Objects(model)
    slicer = Slicer(objects)
    pruner = Pruner(objects, {name: slicer.program(f) for name, f in objects.functions.items()})
    programs = pruner.result()
    clips = {n.site: n for program in programs.values() for n in nodes(program) if isinstance(n, p.Clip)}
    if not clips:
        return ScalerAnalysis()
    typestate = Typestate(objects, programs, pruner.matters)
    recordings: dict[str, Recording] = {}
    gave_up = 0
    clipping = pruner.reaching((p.Clip,))
    scaling = pruner.reaching((p.Backward, p.ManualBackward))
    for root in programs:
        if root in clipping and root in scaling:
            try:
                recordings[root] = typestate.run(root)
            except GaveUp:
                gave_up += 1
    half = _trains_in_half(objects.functions.values())
    verdicts = (_verdict(clip, recordings, half) for clip in clips.values())
    return ScalerAnalysis(tuple(v for v in verdicts if v is not None), gave_up)


def _verdict(clip: p.Clip, recordings: dict[str, Recording], half: bool) -> ClipBeforeUnscale | None:
    seen = {root: r.clips[clip.site] for root, r in recordings.items() if clip.site in r.clips}
    bad = {root: record for root, record in seen.items() if _is_bad(record)}
    if not bad:
        return None
    confidence = max(
        (_confidence(record, recordings[root].imprecise, half) for root, record in bad.items()),
        key=_ORDER.index,
    )
    idle = any(record.idle for record in bad.values()) or any(
        record.idle and not record.scaled and len(seen) > len(bad) + 1 for record in seen.values()
    )
    first = next((record for root, record in bad.items() if root), bad.get("", next(iter(bad.values()))))
    scaler, backward = next(iter(first.scaled.items()))
    steps = tuple(sorted({site for record in bad.values() for site in record.steps}))
    late = tuple(sorted({site for record in bad.values() for site in record.late_unscales}))
    return ClipBeforeUnscale(
        clip.site,
        clip.how,
        _written(scaler),
        backward,
        steps,
        late,
        confidence,
        _repair(list(bad.values()), confidence, idle),
    )


def _is_bad(record: ClipRecord) -> bool:
    return bool(
        record.scaled and not record.unknown and (record.steps or record.late_unscales or record.left)
    )


def _confidence(record: ClipRecord, imprecise: bool, half: bool) -> Confidence:
    if FRAMEWORK in record.scaled:
        return Confidence.MEDIUM if half and not record.unscaled else Confidence.LOW
    if record.unscaled:
        return Confidence.LOW
    seen = record.steps or record.late_unscales
    return Confidence.HIGH if seen and not imprecise else Confidence.MEDIUM


def _repair(records: list[ClipRecord], confidence: Confidence, idle: bool) -> Repair:
    optimizers = [{*record.steps.values(), *record.late_unscales.values()} for record in records]
    scalers = [record.scaled for record in records]
    late = sorted({site for record in records for site in record.late_unscales})
    steps = sorted({site for record in records for site in record.steps})
    if any(FRAMEWORK in record.scaled for record in records):
        return Repair(
            "none", reason="the framework unscales inside optimizer.step(); clip with its own method"
        )
    if confidence is Confidence.LOW:
        return Repair("none", reason="on other paths unscale_ has already run here")
    if any(len(found) > 1 for found in (*scalers, *optimizers)):
        return Repair(
            "none", reason="several scalers or optimizers are concerned; which to unscale is a choice"
        )
    if late:
        many = Repair("none", reason="several unscale_ calls come too late; which to move is a choice")
        return Repair("move", late[0]) if len(late) == 1 else many
    if not steps:
        return Repair("none", reason="the step that consumes these gradients is not in this file")
    if any(record.unconsumed for record in records):
        reason = "the clip also runs where no step follows; move it under the step's condition"
        return Repair("none", reason=reason)
    return Repair("guard" if idle else "insert", steps[0])


def _written(scaler: c.Path) -> str:
    if scaler == FRAMEWORK:
        return ""
    root = "self" if scaler[0].endswith(".self") else scaler[0].rpartition(":")[2]
    return "".join([root, *(part if part.startswith("[") else f".{part}" for part in scaler[1:])])


def _trains_in_half(functions: Iterable[ir.Function]) -> bool:
    """Whether the file asks a trainer for float16 ("16-mixed", `precision=16`)."""
    for function in functions:
        defaults = [q.default for q in function.params if q.default is not None]
        for expr in (*walk.expressions(function.body), *defaults):
            if isinstance(expr, ir.Const) and expr.value == "16-mixed":
                return True
            if isinstance(expr, ir.Call):
                for arg in expr.args:
                    value = arg.value.value if isinstance(arg.value, ir.Const) else None
                    if arg.keyword == "precision" and value in (16, "16"):
                        return True
    return False
