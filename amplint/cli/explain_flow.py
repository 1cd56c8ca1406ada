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

    name, colon, line = place.rpartition(":")
    if not colon or not name or not line.isdecimal() or int(line) < 1:
        raise UserError("--explain-flow takes FILE:LINE, such as train.py:107")
    row = int(line)
    try:
        found = explained(Path(name), row, paths, settings, cwd=Path.cwd())
    except SourceError as error:
        raise UserError(f"{error.filename}: {error.message}") from error
    return "\n".join([*_protocol(found, name, row), *_dtypes(found.line)]) + "\n"


def _protocol(found: Explanation, name: str, row: int) -> Iterator[str]:
    if found.reason:
        yield f"{name}:{row}: {found.reason}"
        return
    yield f"{name}:{found.row}: {found.code.splitlines()[0]}"
    if found.row != row:
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
