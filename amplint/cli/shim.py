"""`amplint shim`: the runtime shim as a file of one's own."""

from __future__ import annotations

import os
from pathlib import Path

import click

from amplint.cli import UserError, emit
from amplint.source import SourceError, write_file


@click.command(short_help="Copy the runtime shim into a project.")
@click.option("--vendor", metavar="PATH", help="Write the shim to this file, such as pkg/_amp.py.")
@click.option("--force", is_flag=True, help="Overwrite a file with another content.")
@click.pass_context
def shim(ctx: click.Context, vendor: str | None, force: bool) -> None:
    """Copy the runtime shim into a project, as one file that does not depend on amplint.

    With `style = "shim"`, fixes make code import GradScaler and autocast from amplint.runtime. A project
    that does not want amplint at run time keeps a copy and names it in its configuration:

    \b
        [tool.amplint]
        style = "shim"
        shim-module = "pkg._amp"
    """
    if vendor is None:
        emit(ctx.get_help() + "\n")
        return
    if not vendor:
        raise click.UsageError("--vendor needs the path of a file")
    target = Path(os.path.realpath(vendor))
    content = shim_source()
    existing = _existing(target, vendor)
    if existing == content:
        emit(f"{vendor} is up to date\n")
        return
    if existing is not None and not force:
        raise UserError(f"{vendor} exists and differs from the shim; --force overwrites it")
    try:
        write_file(target, content)
    except SourceError as error:
        raise UserError(f"{vendor} {error.message}") from error
    emit(f"wrote {vendor}\n{_hint(Path(vendor))}\n")


def shim_source() -> bytes:
    """The file amplint/runtime/__init__.py, read as data: importing it would import torch."""
    from importlib.resources import files

    return (files("amplint") / "runtime" / "__init__.py").read_bytes()


def _existing(target: Path, shown: str) -> bytes | None:
    """What the target holds, None when there is no such file yet. UserError when it cannot be a file."""
    if target.is_dir():
        raise UserError(f"{shown} is a folder; name the file to write in it")
    if not target.parent.is_dir():
        raise UserError(f"the folder of {shown} does not exist; create it first")
    if target.exists() and not target.is_file():
        raise UserError(f"{shown} is not a regular file")
    try:
        return target.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{shown} cannot be read: {error.strerror}") from error


def _hint(vendored: Path) -> str:
    """The configuration that makes fixes import the copy, as far as its folders tell how it is imported."""
    parts = [vendored.stem]
    folder = Path(os.path.abspath(vendored)).parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    name = ".".join(parts)
    if not all(part.isidentifier() for part in parts):
        name = "the name that it is imported by"
    return f'to have fixes import it, set in [tool.amplint]: style = "shim", shim-module = "{name}"'
