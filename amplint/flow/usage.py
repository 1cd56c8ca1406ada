"""How the scalers of one file are used: which of their methods are called where, and whether they may scale."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.held import Held
from amplint.flow.lift import SCALERS, names
from amplint.flow.placement import Place, Scene, scenes
from amplint.flow.remembered import Remembered
from amplint.model import ir

if TYPE_CHECKING:
    from amplint.model.module import ModuleModel


_TEST = re.compile(r"(^|/)(tests?|testing|benchmarks?)/|(^|/)(test_[^/]*|[^/]*_test|conftest)\.py$")


@dataclass(frozen=True, slots=True)
class Use:
    """`scaler.method(..)` at one place."""

    scaler: c.Path
    method: str
    call: ir.Call
    place: Place
    scene: Scene


class Usage:
    """Calls of scalers' methods, and the scenes that they stand in."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self.scenes = scenes(held)
        self._by_name = {scene.name: scene for scene in self.scenes}
        self.uses: tuple[Use, ...] = tuple(use for scene in self.scenes for use in self._of(scene))

    def _of(self, scene: Scene) -> Iterator[Use]:
        for call, place in scene.calls:
            if isinstance(call.func, ir.Attr):
                path = self.held.lift.path(call.func.value)
                if path is not None and self.held.is_scaler(path):
                    yield Use(path, call.func.attr, call, place, scene)

    @cached_property
    def _guards(self) -> dict[int, c.Formula]:
        return {placed.call.site: placed.guard for placed in self.held.calls}

    def guard(self, call: ir.Call) -> c.Formula:
        """The tests around a call, earlier ones that leave the function included."""
        return self._guards.get(call.site, True)

    def scene(self, function: str) -> Scene:
        """The scene of one function."""
        return self._by_name[function]

    def of(self, *methods: str) -> Iterator[Use]:
        """The calls of any of `methods` of any scaler."""
        return (use for use in self.uses if use.method in methods)

    def steps_of(self, scaler: c.Path) -> tuple[Use, ...]:
        """The calls of `step` of one scaler, under all of its names."""
        wanted = self.held.identity(scaler)
        return tuple(u for u in self.of("step") if self.held.identity(u.scaler) == wanted)

    def may_scale(self, scaler: c.Path, call: ir.Call | None = None) -> bool:
        """Whether the scaler can be there and enabled, where `call` stands."""
        guard = self.guard(call) if call is not None else True
        made = self.held.scaler_made(scaler)
        enabled: c.Formula = c.both(made.present, made.enabled) if made is not None else True
        return self.held.may_be(guard, enabled, c.Atom("enabled", c.Ref(scaler)))

    def is_subclass(self, scaler: c.Path) -> bool:
        """Whether the scaler is of a class of this file, or of one that torch does not have."""
        wanted = self.held.identity(scaler)
        for scene in self.scenes:
            for path, found in scene.definitions.items():
                if self.held.identity(path) != wanted:
                    continue
                for value in (d.value for d in found if d.value is not None):
                    calls = (e for e in walk.inside(value) if self.held.lift.constructs_scaler(e))
                    if any(name not in SCALERS for e in calls for name in names(e.func)):  # type: ignore[union-attr]
                        return True
        return False


def is_test(filename: str) -> bool:
    """Whether a file is a test or a benchmark by its name: what it trains is nothing that goes on."""
    return _TEST.search(filename.replace("\\", "/")) is not None


_FOUND: Remembered[ModuleModel, Usage] = Remembered("usage")


def usage_of(model: ModuleModel, held: Held) -> Usage:
    """How one file uses its scalers, found once and shared by all rules."""
    found = _FOUND.get(model)
    if found is None:
        found = _FOUND[model] = Usage(held)
    return found
