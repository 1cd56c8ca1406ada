"""`amplint clean`: remove the cache."""

from __future__ import annotations

import os
from pathlib import Path

import click

from amplint.cli import UserError, emit
from amplint.config import ConfigError, load_settings


@click.command(short_help="Remove the cache.")
@click.argument("path", metavar="[PATH]", default=".", type=click.Path(exists=True))
@click.option("--cache-dir", metavar="PATH", help="The cache to remove, if it is not the configured one.")
@click.option("--isolated", is_flag=True, help="Read no configuration.")
@click.option("--config", metavar="FILE", help="Configuration to use instead of the nearest one.")
def clean(path: str, cache_dir: str | None, isolated: bool, config: str | None) -> None:
    """Remove the cache of runs over PATH, by default the working directory.

    That is the folder that cache-dir names, and .amplint_cache beside the configuration or in PATH. A
    folder without the marker that amplint puts into its caches is left alone, and so are other files in
    one that has it.
    """
    from amplint.cachedir import is_ours, remove

    folders = _candidates(path, cache_dir, isolated, config)
    existing = [folder for folder in folders if os.path.lexists(folder)]
    foreign = [folder for folder in existing if not is_ours(folder)]
    for folder in existing:
        if folder in foreign:
            continue
        try:
            gone = remove(folder)
        except OSError as error:
            raise UserError(f"{_shown(folder)} cannot be removed: {error.strerror}") from error
        what = "" if gone else "the cache in "
        rest = "" if gone else "; there is something else in this folder, which stays"
        emit(f"removed {what}{_shown(folder)}{rest}\n")
    if foreign:
        names = ", ".join(map(_shown, foreign))
        raise UserError(f"{names}: left alone, because amplint's marker (CACHEDIR.TAG) is not in it")
    if not existing:
        emit(f"nothing to remove: there is no {' and no '.join(map(_shown, folders))}\n")


def _candidates(path: str, cache_dir: str | None, isolated: bool, config: str | None) -> list[Path]:
    """Where the cache of a run over `path` can be. UserError when the configuration cannot be used."""
    from amplint.cachedir import FOLDER, cache_folder

    file = None if config is None else Path(config)
    overrides = {"cache-dir": cache_dir}
    try:
        settings = load_settings(Path(path), isolated=isolated, config_file=file, overrides=overrides)
    except ConfigError as error:
        raise UserError(str(error)) from error
    folders = [cache_folder(settings, Path.cwd())]
    if cache_dir is None:
        above = [] if settings.root is None else [settings.root]
        here = [Path(path)] if os.path.isdir(path) else []
        folders += [folder / FOLDER for folder in (*above, *here)]
    return list(dict.fromkeys(Path(os.path.abspath(folder)) for folder in folders))


def _shown(folder: Path) -> str:
    from amplint.discover import display_name

    return display_name(folder, Path.cwd())
