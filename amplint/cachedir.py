"""The folder of the cache: where it is, how amplint knows it for its own, and how it is removed."""

from __future__ import annotations

import os
import re
from pathlib import Path

from amplint.config import Settings

#: Name of the folder, in that of the configuration or else the working directory, unless `cache-dir` is set.
FOLDER = ".amplint_cache"

#: The file that marks it (https://bford.info/cachedir/): backups pass it by, and only with it is it removed.
TAG = "CACHEDIR.TAG"
SIGNATURE = "Signature: 8a477f597d28d172789f06886806bc55"
#: The line of the marker that tells this cache from that of another program.
CREATED = "# created by amplint"
#: Names of what is kept in it, half-written files included.
_OURS = re.compile(r"[0-9a-f]{24}\.json(\w*\.tmp)?")
#: Keeps git from looking into it.
_IGNORE = ".gitignore"


def cache_folder(settings: Settings, cwd: Path) -> Path:
    """Where a run in `cwd` keeps its cache; the folder need not exist."""
    return settings.cache_dir or (settings.root or cwd) / FOLDER


def claim(folder: Path) -> None:
    """Create a cache folder with its marker; one that exists already only gets the marker. OSError as it comes."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / TAG).exists():
        (folder / TAG).write_text(f"{SIGNATURE}\n{CREATED}\n", encoding="utf-8")
    if is_new:
        (folder / _IGNORE).write_text("*\n", encoding="utf-8")


def is_ours(folder: Path) -> bool:
    """Whether a folder, no link to one, carries the marker that amplint writes."""
    tag = folder / TAG
    if folder.is_symlink() or tag.is_symlink() or not tag.is_file():
        return False
    try:
        lines = tag.read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    return lines[:1] == [SIGNATURE] and CREATED in lines


def remove(folder: Path) -> bool:
    """Remove what amplint keeps in a cache folder, and the folder when it is empty then; whether it was.

    Somebody's `cache-dir` may be a folder with other things in it, and these stay. The marker goes last, so
    that an interrupted removal can be repeated. ValueError when the folder is not ours, OSError when
    something cannot be removed.
    """
    if not is_ours(folder):
        raise ValueError(f"{folder} was not created by amplint")
    with os.scandir(folder) as listing:
        names = {entry.name for entry in listing}
    ours = {name for name in names if _OURS.fullmatch(name)}
    ignore = folder / _IGNORE
    if names == {*ours, TAG, _IGNORE} and ignore.is_file() and ignore.read_bytes() == b"*\n":
        ours.add(_IGNORE)
    for name in (*sorted(ours), TAG):
        os.unlink(folder / name)
    if names != {*ours, TAG}:
        return False
    folder.rmdir()
    return True
