"""What is installed, read off the folders where that is possible: `importlib.metadata` loads `email` and `zipfile`.

It is asked all the same where something else than folders may hold distributions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder


def entry_points(group: str) -> list[tuple[str, str]]:
    """(name, module) of every entry point in `group`, in order of name."""
    if _folders_only():
        found = {name: module for text in _texts(group) for name, module in _in_group(text, group)}
    else:
        from importlib import metadata

        found = {entry.name: entry.value for entry in metadata.entry_points(group=group)}
    return sorted(found.items())


def version(package: str) -> str:
    """The version of an installed distribution (its name in lower case, without dashes), or ""."""
    if _folders_only():
        for _, name in _folders():
            found, _, rest = name.partition("-")
            if found.lower() == package and rest.endswith(".dist-info"):
                return rest.removesuffix(".dist-info")
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def own_code() -> str:
    """What tells amplint's code and its rules from those of another commit with the same version.

    The digests that the installer wrote, or sizes and times of the files where there are none, as in a checkout.
    """
    parts = _recorded(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if not parts:
        from importlib.util import find_spec

        for package in ("amplint", "amplint_rules"):
            spec = find_spec(package)
            for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
                parts.extend(_times(folder))
    return "\n".join(sorted(parts))


def _recorded(folder: str) -> list[str]:
    """The rows about amplint's files in the RECORD of the distribution in a folder of the path."""
    for path, name in _folders():
        if (
            os.path.abspath(path) == folder
            and name.lower().startswith("amplint-")
            and name.endswith(".dist-info")
        ):
            try:
                with open(os.path.join(path, name, "RECORD"), encoding="utf-8") as file:
                    rows = file.read().splitlines()
            except (OSError, ValueError):
                continue
            return [
                row for row in rows if row.startswith(("amplint/", "amplint_rules/")) and "sha256=" in row
            ]
    return []


def _times(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir():
                    if entry.name != "__pycache__":
                        yield from _times(entry.path)
                else:
                    found = entry.stat()
                    yield f"{entry.path} {found.st_size} {found.st_mtime_ns}"
    except OSError:
        return


def _folders_only() -> bool:
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    return finders == [PathFinder] and not any(os.path.isfile(path) for path in sys.path)


def _folders() -> Iterator[tuple[str, str]]:
    """(folder of the path, folder of a distribution in it), in the order of the path."""
    for path in dict.fromkeys(sys.path):
        try:
            names = os.listdir(path or ".")
        except OSError:
            continue
        yield from ((path, name) for name in sorted(names) if name.endswith((".dist-info", ".egg-info")))


def _texts(group: str) -> Iterator[str]:
    """The files that name the group; of those that say different things, the first on the path comes last."""
    for path, name in reversed(list(_folders())):
        try:
            with open(os.path.join(path, name, "entry_points.txt"), encoding="utf-8") as file:
                text = file.read()
        except (OSError, ValueError):
            continue
        if group in text:
            yield text


def _in_group(text: str, group: str) -> Iterator[tuple[str, str]]:
    inside = False
    for row in text.splitlines():
        line = row.strip()
        if line.startswith("["):
            inside = line == f"[{group}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, module = line.partition("=")
            yield name.strip(), module.partition("[")[0].strip()
