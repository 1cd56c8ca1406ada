"""What one run of the protocol saw: clips, and possible mistakes with what speaks against them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from amplint.flow import conditions as c


@dataclass(slots=True)
class ClipRecord:
    """What was seen at one clip from one root."""

    #: Scaler -> site of the backward, for each scaled and not unscaled state.
    scaled: dict[c.Path, int] = field(default_factory=dict)
    unscaled: bool = False
    unknown: bool = False
    #: Reached without a scaler having run its backward.
    idle: bool = False
    #: The calls by which it was reached so, where it stands in a function that was called.
    idle_calls: dict[int, None] = field(default_factory=dict)
    #: Scalers that are disabled in some execution.
    off: dict[c.Path, None] = field(default_factory=dict)
    #: The same gradients came here more than once.
    repeated: bool = False
    #: Site of the step -> the optimizer, for steps that consumed what was clipped.
    steps: dict[int, c.Path] = field(default_factory=dict)
    #: Sites of `unscale_` calls that came too late.
    late_unscales: dict[int, c.Path] = field(default_factory=dict)
    #: Some execution was followed by another backward, or by the end, without a step.
    unconsumed: bool = False
    #: The function ended with the clipped gradients still there.
    left: bool = False
    #: The call by which code of another file was entered from which it was reached so.
    entry: int | None = None


@dataclass(frozen=True, slots=True)
class Mistake:
    """A call that breaks the protocol in some execution."""

    #: What is wrong; see `scaler.KINDS`.
    kind: str
    #: Where it is reported.
    site: int
    scaler: c.Path
    optimizer: c.Path | None
    #: (site, what happened there), in the order in which it happened.
    trace: tuple[tuple[int, str], ...]
    detail: str = ""
    #: The call where it shows, which may be another one than that reported.
    shows_at: int = 0
    #: The call by which code of another file was entered, where it happened there.
    entry: int | None = None


@dataclass(slots=True)
class Sighting:
    """What was seen of one possible mistake at one place."""

    mistake: Mistake | None = None
    #: It does not rest on two tests that may be one: it shows in every execution, or leaves no other way.
    is_certain: bool = False
    #: The same call was right in another execution.
    fine: bool = False
    #: It was reached with the scaler out of sight.
    unknown: bool = False


@dataclass(slots=True)
class Recording:
    """All that one root showed."""

    clips: dict[int, ClipRecord] = field(default_factory=dict)
    #: Scaler -> optimizers that it unscales or steps.
    optimizers: dict[c.Path, dict[c.Path, None]] = field(default_factory=dict)
    #: (kind, site at which it is judged) -> what was seen there.
    sightings: dict[tuple[str, int], Sighting] = field(default_factory=dict)
    #: Scalers whose scale is updated.
    updated: dict[c.Path, None] = field(default_factory=dict)
    imprecise: bool = False
    #: The call by which the code at hand was entered, where it is in another file.
    entry: int | None = None

    def clip(self, site: int) -> ClipRecord:
        """The record of one clip."""
        return self.clips.setdefault(site, ClipRecord())

    def at(self, kind: str, site: int) -> Sighting:
        """What was seen of one kind of mistake at one place."""
        return self.sightings.setdefault((kind, site), Sighting())

    def saw(self, mistake: Mistake, judged: int, *, is_certain: bool = True) -> None:
        """Note a mistake; the first execution that shows it is the one that is told."""
        sighting = self.at(mistake.kind, judged)
        if sighting.mistake is None or (is_certain and not sighting.is_certain):
            sighting.mistake = replace(mistake, entry=self.entry)
        sighting.is_certain |= is_certain
