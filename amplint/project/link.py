"""Second phase: what the modules of one run say about one another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class ModuleIndex:
    """What other modules may want to know of one file; serialisable."""

    filename: str
    #: (dotted module as written, with leading dots when relative; the name taken, "*" for all), for imports of
    #: names and for attributes of imported modules.
    imports: tuple[tuple[str, str], ...]


class Project:
    """The linked modules of one run."""

    def __init__(self, modules: Iterable[ModuleIndex] = ()) -> None:
        #: Last part of a module's dotted name -> (importing file, module as written, name).
        self._imports: dict[str, list[tuple[str, str, str]]] = {}
        for module in modules:
            for origin, name in module.imports:
                last = origin.rpartition(".")[2]
                self._imports.setdefault(last, []).append((module.filename, origin, name))
        self._asked: dict[str, tuple[str, ...]] = {}

    def record(self) -> dict[str, tuple[str, ...]]:
        """A dictionary in which every later question about one file is noted with its answer."""
        self._asked = {}
        return self._asked

    def takers(self, filename: str, name: str) -> list[str]:
        """Files of the run that take `name` from the module in `filename`, as far as paths can tell.

        Absolute imports are matched by the end of the path, so a file may be named that means another module
        of the same name: this answers "may it be removed", where too many is the safe side.
        """
        found = self._takers(filename, name)
        self._asked[name] = tuple(found)
        return found

    def _takers(self, filename: str, name: str) -> list[str]:
        path = PurePosixPath(filename)
        parts = list(path.with_suffix("").parts)
        if parts and parts[-1] == "__init__":
            parts.pop()
        if not parts:
            return []
        found = []
        candidates = [*self._imports.get(parts[-1], []), *(self._imports.get("", []))]
        for importer, origin, taken in candidates:
            if taken in (name, "*") and importer != filename and _means(importer, origin, parts):
                found.append(importer)
        return sorted(set(found))


def _means(importer: str, origin: str, parts: list[str]) -> bool:
    """Whether `from origin import ..` in `importer` can mean the module at path `parts`."""
    level = len(origin) - len(origin.lstrip("."))
    wanted = [part for part in origin[level:].split(".") if part]
    if level:
        base = list(PurePosixPath(importer).parts)[:-level]
        return [*base, *wanted] == parts
    return bool(wanted) and parts[-len(wanted) :] == wanted
