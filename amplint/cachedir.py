"""The folder of the cache: where it is, how amplint knows it for its own, and how it is removed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from amplint.config import Settings

#: Name of the folder, in that of the configuration or else the working directory, unless `cache-dir` is set.
FOLDER = ".amplint_cache"

#: The file that marks it (https://bford.info/cachedir/): backups pass it by, and only with it is it removed.
TAG = "CACHEDIR.TAG"
SIGNATURE = "Signature: 8a477f597d28d172789f06886806bc55"
#: The line of the marker that tells this cache from that of another program.
CREATED = "# created by amplint"


def cache_folder(settings: Settings, cwd: Path) -> Path:
    """Where a run in `cwd` keeps its cache; the folder need not exist."""
    return settings.cache_dir or (settings.root or cwd) / FOLDER


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


def remove(folder: Path) -> None:
    """Remove a cache folder; the marker goes last, so that an interrupted removal can be repeated.

    ValueError when the folder is not ours, OSError when something in it cannot be removed.
    """
    if not is_ours(folder):
        raise ValueError(f"{folder} was not created by amplint")
    with os.scandir(folder) as listing:
        entries = [entry for entry in listing if entry.name != TAG]
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    os.unlink(folder / TAG)
    folder.rmdir()
