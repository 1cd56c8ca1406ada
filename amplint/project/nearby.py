"""Files on disk that the imports of a few files lead to: what pre-commit and editors hand over is no whole project."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

#: A run of more files than this is taken to be whole.
MOST_GIVEN = 64
#: Files that are taken in at most, and imports that are followed from one to the next.
_MOST = 48
_DEEPEST = 3
#: What stands at the root of a project; imports do not lead out of it.
_ROOTS = (".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg")
_HIGHEST = 12

Imports = Sequence[tuple[str, str]]


class Nearby:
    """The files beside a run that its imports lead to, found layer by layer."""

    def __init__(self) -> None:
        self._roots: dict[Path, tuple[Path, ...]] = {}
        self._is_file: dict[Path, bool] = {}

    def of(self, imports: Mapping[Path, Imports]) -> Iterator[list[Path]]:
        """Layers of new files; `imports` has to know what those of one layer import before the next is asked for."""
        known = dict.fromkeys(imports)
        layer = list(imports)
        left = _MOST
        for _ in range(_DEEPEST):
            taken = (
                pair for importer in layer for pair in ((importer, i) for i in imports.get(importer, ()))
            )
            paths = (
                path for importer, (origin, name) in taken for path in self._files(importer, origin, name)
            )
            layer = [path for path in dict.fromkeys(paths) if path not in known][:left]
            if not layer:
                return
            known.update(dict.fromkeys(layer))
            left -= len(layer)
            yield layer

    def _files(self, importer: Path, origin: str, name: str) -> list[Path]:
        """The files that `from origin import name` reads: packages on the way, the module, perhaps a submodule."""
        dotted = origin.lstrip(".")
        level = len(origin) - len(dotted)
        parts = dotted.split(".") if dotted else []
        wanted = [*parts, name] if name != "*" else parts
        if level:
            roots: tuple[Path, ...] = (importer.parents[level - 1],) if level <= len(importer.parents) else ()
        else:
            roots = self._search(importer.parent)
        for root in roots:
            found = self._below(root, parts, wanted)
            if found:
                return found
        return []

    def _below(self, root: Path, parts: list[str], wanted: list[str]) -> list[Path]:
        found = []
        folder = root
        is_module = not parts
        for i, part in enumerate(wanted):
            module, package = folder / f"{part}.py", folder / part / "__init__.py"
            path = next((p for p in (package, module) if self._exists(p)), None)
            if path is not None:
                found.append(path)
                is_module = is_module or i == len(parts) - 1
            folder /= part
            if path == module:
                break
        if not parts and self._exists(root / "__init__.py"):
            found.append(root / "__init__.py")
        return found if is_module else []

    def _exists(self, path: Path) -> bool:
        found = self._is_file.get(path)
        if found is None:
            found = self._is_file[path] = os.path.isfile(path)
        return found

    def _search(self, folder: Path) -> tuple[Path, ...]:
        """Where absolute imports of a script in `folder` may lead: from it up to the root of the project."""
        found = self._roots.get(folder)
        if found is None:
            climbed: list[Path] = []
            for parent in (folder, *folder.parents[:_HIGHEST]):
                climbed.append(parent)
                if any(os.path.exists(parent / name) for name in _ROOTS):
                    climbed.append(parent / "src")
                    break
            else:
                climbed = climbed[:1]
            found = self._roots[folder] = tuple(climbed)
        return found
