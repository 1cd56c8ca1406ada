"""`amplint check --explain-flow FILE:LINE`: what the analyses believe there, of scalers and of dtypes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from amplint.cli import UserError
from amplint.config import Settings

if TYPE_CHECKING:
    from amplint.flow.explain import Explanation
    from amplint.flow.precision.explain import Line


def explain_flow(place: str, paths: Sequence[Path], settings: Settings) -> str:
    """The text for `FILE:LINE`; the files of `paths` are what the file's imports may mean.

    Raises `UserError` when there is no such place, or the file cannot be read or parsed.
    """
    from amplint.runner import explain_flow as explained
    from amplint.source import SourceError

    name, cell, row = _parsed(place)
    try:
        found = explained(Path(name), row, paths, settings, cwd=Path.cwd(), cell=cell)
    except SourceError as error:
        raise UserError(f"{error.filename}: {error.message}") from error
    return "\n".join([*_protocol(found, name, cell, row), *_dtypes(found.line)]) + "\n"


def _parsed(place: str) -> tuple[str, int | None, int]:
    """The file, the cell where it is a notebook, and the row. `UserError` for anything else."""
    from amplint.source import NOTEBOOK

    name, colon, line = place.rpartition(":")
    if not colon or not name or not line.isdecimal() or int(line) < 1:
        raise UserError("--explain-flow takes FILE:LINE, such as train.py:107, or NOTEBOOK:CELL:LINE")
    notebook, _, number = name.rpartition(":")
    number = number.removeprefix("cell ")  # as reports name it
    if notebook.endswith(NOTEBOOK) and number.isdecimal():
        return notebook, int(number), int(line)
    if name.endswith(NOTEBOOK):
        raise UserError(f"--explain-flow takes NOTEBOOK:CELL:LINE for notebooks, such as {name}:3:{line}")
    return name, None, int(line)


def _protocol(found: Explanation, name: str, cell: int | None, row: int) -> Iterator[str]:
    asked = f"{row}" if cell is None else f"cell {cell}:{row}"
    if found.reason:
        yield f"{name}:{asked}: {found.reason}"
        return
    yield f"{name}:{found.line_name}: {found.code.splitlines()[0]}"
    if found.line_name != asked:
        yield f"  (the first call from line {row} on that concerns a scaler)"
    yield from (f"  {root or 'the module'}: gave up, it takes too many steps" for root in found.gave_up)
    if not found.ways:
        yield "  no way was found that leads here"
    for number, way in enumerate(found.ways, 1):
        yield f"  {number}. from {way.root + '()' if way.root else 'the start of the module'}"
        yield from (f"       {scaler}" for scaler in way.scalers or ("no loss has been scaled",))
        yield from (f"       assuming {assumption}" for assumption in way.assumptions)


def _dtypes(line: Line | None) -> Iterator[str]:
    if line is None or not line.typed:
        return
    yield "  dtypes on this line:"
    for typed in line.typed:
        dtype = typed.cuda or "not known"
        if typed.npu != typed.cuda:
            dtype = f"{dtype} on CUDA, {typed.npu or 'not known'} on NPU"
        yield f"    {typed.code}: {dtype}" + (f" ({typed.origin})" if typed.origin else "")
    yield f"  autocast: {line.autocast}"
