"""Second phase: what the modules of one run say about one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplint.project.resolve import Resolution, Resolver


@dataclass(frozen=True, slots=True)
class ModuleIndex:
    """What other modules may want to know of one file; serialisable."""

    filename: str
    #: (dotted module as written, with leading dots when relative; the name taken, "*" for all), for imports of
    #: names and for attributes of imported modules.
    imports: tuple[tuple[str, str], ...]


class Project:
    """The linked modules of one run. Nothing is linked before something is asked; links are not pickled."""

    def __init__(self, modules: Iterable[ModuleIndex] = (), folder: str = "") -> None:
        """Take all files of a run, those that import nothing too: what an import means depends on them.

        Names of files are posix paths, absolute or relative to `folder`; "" where it is not known.
        """
        self._modules = modules
        self._folder = folder
        self._resolver: Resolver | None = None
        self._asked: dict[str, tuple[str, ...]] = {}

    @cached_property
    def _imports(self) -> dict[str, Sequence[tuple[str, str]]]:
        return {module.filename: module.imports for module in self._modules}

    def __getstate__(self) -> dict[str, object]:
        return {"_imports": self._imports, "_folder": self._folder, "_resolver": None, "_asked": {}}

    def record(self) -> dict[str, tuple[str, ...]]:
        """A dictionary in which every later question about one file is noted with its answer."""
        self._asked = {}
        return self._asked

    def holds(self, filename: str, asked: Mapping[str, tuple[str, ...]]) -> bool:
        """Whether all that was noted of questions about `filename` would be answered the same today."""
        return all(self._answer(filename, question) == answer for question, answer in asked.items())

    def takers(self, filename: str, name: str) -> list[str]:
        """Files of the run that take `name` from the module in `filename`, as far as paths and imports tell.

        First those that do so themselves, then those that get it from them, by name. A file may be among them that
        takes it from elsewhere: this answers "may it be removed", where too many is the safe side.
        """
        return list(self._ask(filename, name))

    def meaning(self, filename: str, origin: str, name: str = "*") -> Resolution:
        """What `from origin import name` in `filename` means; "*" for the module `origin` itself."""
        from amplint.project.resolve import Resolution

        reason, *candidates = self._ask(filename, f"{origin} {name}")
        return Resolution(tuple(candidates), reason)

    def _ask(self, filename: str, question: str) -> tuple[str, ...]:
        answer = self._asked[question] = self._answer(filename, question)
        return answer

    def _answer(self, filename: str, question: str) -> tuple[str, ...]:
        """The answer to a name (takers) or to a module and a name with a space between (meaning)."""
        from amplint.project.resolve import Resolver

        if self._resolver is None:
            self._resolver = Resolver(self._imports, self._folder)
        resolver = self._resolver
        if filename not in self._imports:
            resolver = Resolver({**self._imports, filename: ()}, self._folder)
        origin, space, name = question.rpartition(" ")
        if not space:
            return _takers(resolver, filename, name)
        found = resolver.name(filename, origin, name)
        return (found.reason, *found.candidates)


def _takers(resolver: Resolver, filename: str, name: str) -> tuple[str, ...]:
    found = {filename: False}
    layer = [filename]
    while layer:
        taking = {taker for file in layer for taker in resolver.takers(file, name)}
        layer = sorted(taking - found.keys())
        found.update(dict.fromkeys(layer, False))
    return tuple(found)[1:]
