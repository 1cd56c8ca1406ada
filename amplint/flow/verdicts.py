"""From what the runs of the protocol saw to what can be said with confidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from amplint.finding import Confidence
from amplint.flow import conditions as c
from amplint.flow import protocol as p
from amplint.flow.objects import Objects
from amplint.flow.pruning import nodes
from amplint.flow.sightings import Mistake, Recording, Sighting
from amplint.flow.state import FRAMEWORK, PLAIN
from amplint.flow.surroundings import Surroundings

#: Kinds of mistakes, each with what it means.
KINDS = {
    "touch": "scaled gradients are read or changed where their scale matters",
    "bypass": "the optimizer steps itself with gradients that a scaler scaled",
    "no-update": "a step (or unscale_) that no update follows",
    "repeated-unscale": "unscale_ twice for one optimizer before an update",
    "update-without-step": "an update before which nothing was unscaled or stepped",
    "unscaled-backward": "gradients of a loss that is not scaled reach the scaler's step",
    "clip-after-step": "gradients are clipped or unscaled once they have been used",
    "wrong-optimizer": "unscale_ of one object and step of another with the same parameters",
    "repeated-update": "several updates in one iteration",
    "leak": "the value of the scaled loss is shown, summed up or returned",
    "zero-grad": "gradients are zeroed between backward and step",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """A mistake in the use of a scaler; places are sites of the file's tree."""

    #: One of `KINDS`.
    kind: str
    site: int
    #: Scaler and optimizer as written, "" where they have no name here.
    scaler: str
    optimizer: str
    #: (site, what happens there), in order.
    trace: tuple[tuple[int, str], ...]
    confidence: Confidence
    #: Which form of the mistake it is.
    detail: str = ""
    #: The call where it shows, where that is another one than that reported.
    shows_at: int = 0
    #: Where `site` is in another file: the call by which it is reached.
    entry: int | None = None

    @property
    def sites(self) -> tuple[int, ...]:
        """Every place that has to do with it."""
        return (self.site, *(site for site, _ in self.trace))


#: Kinds whose verdict rests on the tests around the calls; that a call is right at first says nothing there.
_BY_GUARDS = ("repeated-unscale", "update-without-step", "no-update")


def written(path: c.Path | None) -> str:
    """A path as people write it; "" for what has no name."""
    if path is None or path in (FRAMEWORK, PLAIN) or path[0].startswith("<optimizer at"):
        return ""
    root = "self" if path[0].endswith(".self") else path[0].rpartition(":")[2]
    return "".join([root, *(part if part.startswith("[") else f".{part}" for part in path[1:])])


class Verdicts:
    """Judges what was seen of mistakes in one file."""

    def __init__(
        self, objects: Objects, programs: Mapping[str, p.Program], surroundings: Surroundings
    ) -> None:
        self._objects = objects
        self._surroundings = surroundings
        self._updated = {
            scaler
            for program in programs.values()
            for node in nodes(program)
            if isinstance(node, p.Invoke) and node.method == "update" and node.receiver is not None
            for scaler in [self._objects.identity(node.receiver)]
        }

    def of(self, recordings: Mapping[str, Recording]) -> tuple[Violation, ...]:
        """Every mistake, once; the most confident account of it counts."""
        found: dict[tuple[str, int], Violation] = {}
        for _, recording in sorted(recordings.items(), key=lambda item: item[0] == ""):
            bypassed = {m.optimizer for m in self._mistakes(recording, "bypass") if m.detail != "twice"}
            for (kind, _), sighting in recording.sightings.items():
                mistake = sighting.mistake
                if mistake is None or sighting.unknown:
                    continue
                if kind in ("no-update", "never-updated") and mistake.optimizer in bypassed:
                    continue
                confidence = self._confidence(mistake, sighting)
                if confidence is None:
                    continue
                if recording.imprecise:  # two tests of one thing may have been taken for two
                    doubtful = sighting.fine and kind not in _BY_GUARDS
                    confidence = Confidence.LOW if doubtful else _at_most_medium(confidence)
                violation = Violation(
                    "no-update" if kind == "never-updated" else kind,
                    mistake.site,
                    written(mistake.scaler),
                    written(mistake.optimizer),
                    mistake.trace,
                    confidence,
                    mistake.detail,
                    mistake.shows_at,
                    mistake.entry,
                )
                key = (violation.kind, violation.site)
                if key not in found or found[key].confidence.rank < confidence.rank:
                    found[key] = violation
        return tuple(found[key] for key in sorted(found, key=lambda key: (key[1], key[0])))

    @staticmethod
    def _mistakes(recording: Recording, kind: str) -> Iterator[Mistake]:
        for (found, _), sighting in recording.sightings.items():
            if found == kind and sighting.mistake is not None:
                yield sighting.mistake

    def _confidence(self, mistake: Mistake, sighting: Sighting) -> Confidence | None:
        kind, fine = mistake.kind, sighting.fine
        if kind == "touch":
            sure = Confidence.HIGH if mistake.detail.startswith("changed") else Confidence.MEDIUM
            return Confidence.LOW if fine else sure
        if kind == "bypass":
            if mistake.detail == "checked" or (fine and self._surroundings.is_alternative(mistake.site)):
                return Confidence.LOW
            return Confidence.MEDIUM if mistake.detail == "unscaled" else self._by_origin(mistake)
        if kind == "no-update":
            return Confidence.HIGH if sighting.is_certain or not fine else Confidence.LOW
        if kind == "never-updated":
            return self._never_updated(mistake)
        if kind in ("repeated-unscale", "update-without-step"):
            return Confidence.HIGH if self._runs_each_time(mistake) else Confidence.LOW
        if kind == "unscaled-backward":
            return Confidence.LOW if fine else self._by_origin(mistake)
        if kind in ("clip-after-step", "zero-grad"):
            return Confidence.LOW if fine else Confidence.HIGH
        if kind == "repeated-update":
            return Confidence.HIGH if mistake.detail == "nothing" else Confidence.MEDIUM
        return Confidence.MEDIUM if kind == "leak" else Confidence.HIGH

    def _by_origin(self, mistake: Mistake) -> Confidence:
        """High where this file makes the scaler; whoever hands it in may know more than the file shows."""
        return Confidence.HIGH if self._objects.is_made(mistake.scaler) else Confidence.MEDIUM

    def _never_updated(self, mistake: Mistake) -> Confidence | None:
        """A step in a function, and no update in the whole file."""
        scaler = mistake.scaler
        if self._objects.identity(scaler) in self._updated or self._objects.holders_of(scaler):
            return None
        called_step = mistake.trace[0][1].startswith("step")
        return Confidence.MEDIUM if called_step and self._objects.is_made(scaler) else None

    def _runs_each_time(self, mistake: Mistake) -> bool:
        """Whether the call runs as often as the backward does, whatever else is tested around it."""
        backward = mistake.shows_at or mistake.trace[0][0]
        guards = self._surroundings.varying(mistake.site)
        return guards <= self._surroundings.varying(backward)


def _at_most_medium(confidence: Confidence) -> Confidence:
    return Confidence.MEDIUM if confidence is Confidence.HIGH else confidence
