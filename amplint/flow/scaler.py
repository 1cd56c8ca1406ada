"""Verdicts about the GradScaler protocol in one file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from amplint.finding import Confidence
from amplint.flow import protocol as p
from amplint.flow import walk
from amplint.flow.entries import Entries
from amplint.flow.held import objects_of
from amplint.flow.objects import Objects
from amplint.flow.pruning import Pruner, nodes
from amplint.flow.remembered import Remembered
from amplint.flow.sightings import ClipRecord, Recording
from amplint.flow.slicing import Slicer
from amplint.flow.state import FRAMEWORK
from amplint.flow.surroundings import Surroundings
from amplint.flow.typestate import GaveUp, Typestate
from amplint.flow.verdicts import Verdicts, Violation, written
from amplint.model import ir
from amplint.model.units import UNIT, is_elsewhere, is_own

if TYPE_CHECKING:
    from amplint.model.linked import Elsewhere, Linked
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
    #: For "guard": a call by which a helper that clips is reached where nothing is scaled, if one is known.
    idle_call: int | None = None
    #: The same gradients may be clipped here more than once before they are consumed.
    repeated: bool = False
    #: Exactly one rewrite is right, as far as this file shows.
    safe: bool = True


@dataclass(frozen=True, slots=True)
class ClipBeforeUnscale:
    """A clip that sees gradients still multiplied by the loss scale."""

    site: int
    #: Where `site` is in another file: the call by which it is reached.
    entry: int | None
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
    #: Other mistakes, by where they are.
    violations: tuple[Violation, ...] = ()
    #: Functions that took too many steps to analyse.
    gave_up: int = 0
    #: The modules that were looked at, to which sites lead back; None where nothing was.
    linked: Linked | None = None

    def of(self, kind: str) -> tuple[Violation, ...]:
        """The mistakes of one kind (see `verdicts.KINDS`)."""
        return tuple(violation for violation in self.violations if violation.kind == kind)


_RESULTS: Remembered[ModuleModel, ScalerAnalysis] = Remembered("scaler")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_SCALES = re.compile(r"\.[\s\\]*scale[\s\\]*\(|manual_backward|[sS]caler")


def may_scale(names: Set[str]) -> bool:
    """Whether a file with these identifiers can take gradients of a scaled loss, or step a scaler."""
    differentiates = "backward" in names or "manual_backward" in names
    if differentiates and ("scale" in names or any(name.endswith("GradScaler") for name in names)):
        return True
    is_training = "zero_grad" in names or "optimizer" in names
    if is_training and any("scaler" in name.lower() for name in names):
        return True  # a wrapper from another file may do all the rest
    return "manual_backward" in names and "automatic_optimization" in names


def scaler_analysis(model: ModuleModel, elsewhere: Elsewhere | None = None) -> ScalerAnalysis:
    """The verdicts about one file, looked at with those that it uses; computed once."""
    found = _RESULTS.get(model)
    if found is None:
        found = _RESULTS[model] = analyse(model, elsewhere)
    return found


@dataclass(frozen=True, slots=True)
class Prepared:
    """A file that is ready to be run: its programs, and from where."""

    linked: Linked
    objects: Objects
    #: Programs as sliced, and with what matters only.
    whole: dict[str, p.Program]
    programs: dict[str, p.Program]
    pruner: Pruner
    typestate: Typestate
    roots: list[str]


def prepare(model: ModuleModel, elsewhere: Elsewhere | None = None) -> Prepared | None:
    """Slice every function of the file and of what it uses; None where no scaler can be concerned."""
    text = model.source.text
    if not _SCALES.search(text) or not may_scale(set(_IDENTIFIER.findall(text))):
        return None
    from amplint.model.linked import Linked  # loads LibCST, which the gate does without

    linked = Linked(model, elsewhere)
    objects = objects_of(model) if linked.is_alone else Objects(linked)
    slicer = Slicer(objects)
    whole = {name: slicer.program(f) for name, f in objects.functions.items()}
    pruner = Pruner(objects, whole)
    acting = pruner.scaling | pruner.stepping
    roots = [name for name in objects.functions if name in acting and not is_elsewhere(name)]
    if not roots:
        return None
    programs = pruner.result()
    typestate = Typestate(objects, programs, pruner.matters)
    return Prepared(linked, objects, whole, programs, pruner, typestate, roots)


def analyse(model: ModuleModel, elsewhere: Elsewhere | None = None) -> ScalerAnalysis:
    """Run the protocol from each function of the file, and judge what is seen."""
    prepared = prepare(model, elsewhere)
    if prepared is None:
        return ScalerAnalysis()
    linked = prepared.linked
    clips, violations, gave_up = _judged(prepared)
    away = [site for site, *rest in _places(clips, violations) if not any(map(is_own, (site, *rest)))]
    if away:  # what shows in the other files without this one is theirs to report
        told = _told(linked, away, elsewhere)
        clips = [c for c in clips if c.site not in away or (c.entry and ("clip", c.site) not in told)]
        violations = [
            v for v in violations if v.site not in away or (v.entry and (v.kind, v.site) not in told)
        ]
    measured = _beside(clips, prepared.programs)
    violations = [v for v in violations if not (v.kind == "touch" and v.site in measured)]
    return ScalerAnalysis(tuple(clips), tuple(violations), gave_up, linked)


def _judged(prepared: Prepared) -> tuple[list[ClipBeforeUnscale], list[Violation], int]:
    """Every mistake that shows, wherever it is, and how many functions took too many steps."""
    objects, pruner = prepared.objects, prepared.pruner
    whole, programs = prepared.whole, prepared.programs
    recordings = _recorded(prepared.typestate, prepared.roots)
    gave_up = len(prepared.roots) - len(recordings)
    half = any(FRAMEWORK in clip.scaled for r in recordings.values() for clip in r.clips.values())
    half = half and _may_train_in_half(objects.functions.values())
    entries = Entries(pruner, programs)
    clips = {
        node.site: (node, name)
        for name, program in programs.items()
        for node in nodes(program)
        if isinstance(node, p.Clip)
    }
    found: list[ClipBeforeUnscale] = []
    for clip, name in clips.values():
        verdict = _verdict(clip, entries.of(name), recordings, half)
        if verdict is not None and name in pruner.scaling:
            # not a helper: the call that leads to the clip leads to a backward as well
            verdict = replace(verdict, repair=replace(verdict.repair, idle_call=None))
        found.extend([verdict] if verdict is not None else [])
    verdicts = Verdicts(objects, whole, Surroundings(objects, whole))
    return found, list(verdicts.of(recordings)), gave_up


def _told(linked: Linked, sites: Iterable[int], elsewhere: Elsewhere | None) -> set[tuple[str, int]]:
    """The mistakes at these sites of other files that show where each of those files is looked at by itself.

    What only this file knows, such as the class of an object that it hands to a function, is left out of it.
    """
    wanted = {_address(linked, site): site for site in sites}
    found: set[tuple[str, int]] = set()
    for other in linked.others:
        prepared = prepare(other, elsewhere)
        if prepared is None:
            continue
        clips, violations, _ = _judged(prepared)
        shown = [("clip", clip.site) for clip in clips] + [(v.kind, v.site) for v in violations]
        for kind, site in shown:
            here = wanted.get(_address(prepared.linked, site))
            if here is not None:
                found.add((kind, here))
    return found


def _address(linked: Linked, site: int) -> tuple[str, int]:
    """The file of a site, and the site as that file itself numbers it."""
    return linked.place(site)[0].filename, site % UNIT


def _places(clips: Iterable[ClipBeforeUnscale], violations: Iterable[Violation]) -> Iterator[tuple[int, ...]]:
    """The sites that have to do with each mistake, the one that it is reported at first."""
    yield from ((clip.site, clip.backward) for clip in clips)
    yield from (violation.sites for violation in violations)


def _recorded(typestate: Typestate, roots: Iterable[str]) -> dict[str, Recording]:
    """What each function shows when it is run by itself, but for those that take too many steps."""
    found: dict[str, Recording] = {}
    for root in roots:
        try:
            found[root] = typestate.run(root)
        except GaveUp:
            continue
    return found


def _beside(clips: list[ClipBeforeUnscale], programs: Mapping[str, p.Program]) -> set[int]:
    """Sites where a function measures the gradients that it clips: the clip is the mistake to tell."""
    sites = {clip.site for clip in clips}
    found: set[int] = set()
    for program in programs.values():
        inner = list(nodes(program))
        if any(isinstance(node, p.Clip) and node.site in sites for node in inner):
            found.update(node.site for node in inner if isinstance(node, p.Touch))
    return found


def _verdict(
    clip: p.Clip, entries: dict[str, int | None], recordings: dict[str, Recording], half: bool
) -> ClipBeforeUnscale | None:
    seen = {root: r.clips[clip.site] for root, r in recordings.items() if clip.site in r.clips}
    bad = {root: record for root, record in seen.items() if _is_bad(record)}
    if not bad:
        return None
    confidence = max(
        (_confidence(record, recordings[root].imprecise, half) for root, record in bad.items()),
        key=lambda confidence: confidence.rank,
    )
    first = next((record for root, record in bad.items() if root), bad.get("", next(iter(bad.values()))))
    scaler, backward = next(iter(first.scaled.items()))
    steps = tuple(sorted({site for record in bad.values() for site in record.steps}))
    late = tuple(sorted({site for record in bad.values() for site in record.late_unscales}))
    return ClipBeforeUnscale(
        clip.site,
        first.entry,
        clip.how,
        written(scaler),
        backward,
        steps,
        late,
        confidence,
        _repair(bad, seen, entries, recordings, confidence),
    )


def _is_bad(record: ClipRecord) -> bool:
    return bool(
        record.scaled and not record.unknown and (record.steps or record.late_unscales or record.left)
    )


def _confidence(record: ClipRecord, imprecise: bool, half: bool) -> Confidence:
    if FRAMEWORK in record.scaled:
        return Confidence.MEDIUM if half and not record.unscaled else Confidence.LOW
    if record.unscaled or (imprecise and record.idle):  # two tests of one thing may have been taken for two
        return Confidence.LOW
    seen = record.steps or record.late_unscales
    return Confidence.HIGH if seen and not imprecise else Confidence.MEDIUM


_UNSCALED = "on other paths unscale_ has already run here"
_CHOICE = "several scalers or optimizers are concerned; which to unscale is a choice"


def _repair(
    bad: dict[str, ClipRecord],
    seen: dict[str, ClipRecord],
    entries: dict[str, int | None],
    recordings: dict[str, Recording],
    confidence: Confidence,
) -> Repair:
    records = list(bad.values())
    optimizers = [{*record.steps.values(), *record.late_unscales.values()} for record in records]
    scalers = [record.scaled for record in records]
    late = sorted({site for record in records for site in record.late_unscales})
    steps = sorted({site for record in records for site in record.steps})
    if any(FRAMEWORK in record.scaled for record in records):
        return Repair(
            "none", reason="the framework unscales inside optimizer.step(); clip with its own method"
        )
    entered = [seen[entry] for entry in entries if entry in seen]
    if confidence is Confidence.LOW or any(record.unscaled or record.unknown for record in entered):
        return Repair("none", reason=_UNSCALED)
    if any(len(found) > 1 for found in (*scalers, *optimizers)):
        return Repair("none", reason=_CHOICE)
    if late:
        many = Repair("none", reason="several unscale_ calls come too late; which to move is a choice")
        return Repair("move", late[0], safe=bool(steps)) if len(late) == 1 else many
    if not steps:
        return Repair("none", reason="the step that consumes these gradients is not in this file")
    if any(record.unconsumed for record in records):
        reason = "the clip also runs where no step follows; move it under the step's condition"
        return Repair("none", reason=reason)
    repeated = any(record.repeated for record in records)
    idle, call = _idle([*records, *entered], entries, recordings)
    return Repair("guard" if idle else "insert", steps[0], "", call, repeated)


def _idle(
    records: list[ClipRecord], entries: dict[str, int | None], recordings: dict[str, Recording]
) -> tuple[bool, int | None]:
    """Whether the clip also runs where its scaler has scaled nothing, and a call that leads there."""
    calls = [call for entry, call in entries.items() if entry not in recordings]
    calls.extend(call for record in records for call in record.idle_calls)
    scalers = {scaler for record in records for scaler in record.scaled}
    others = any(scaler not in scalers for record in records for scaler in record.off)
    idle = others or bool(calls) or any(record.idle for record in records)
    return idle, next((call for call in calls if call is not None), None)


def _may_train_in_half(functions: Iterable[ir.Function]) -> bool:
    """Whether a trainer may be asked for float16: where the file asks for a precision, for "16-mixed" or `16`."""
    asked: set[object] = set()
    for function in functions:
        defaults = [q.default for q in function.params if q.name == "precision" and q.default is not None]
        asked.update(expr.value for expr in defaults if isinstance(expr, ir.Const))
        for expr in walk.expressions(function.body):
            if isinstance(expr, ir.Call):
                named = [arg.value for arg in expr.args if arg.keyword == "precision"]
                asked.update(value.value for value in named if isinstance(value, ir.Const))
            elif isinstance(expr, ir.Const) and isinstance(expr.value, str) and expr.value.endswith("-mixed"):
                asked.add(expr.value)
    return not asked or not asked.isdisjoint(("16-mixed", 16, "16", "16-true"))
