"""`amplint check --explain-flow FILE:LINE`: what the protocol's analysis believes there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from amplint.cli import UserError
from amplint.config import Settings


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
    if found.reason:
        return f"{name}:{row}: {found.reason}\n"
    text = [f"{name}:{found.row}: {found.code.splitlines()[0]}"]
    if found.row != row:
        text.append(f"  (the first call from line {row} on that concerns a scaler)")
    text.extend(f"  {root or 'the module'}: gave up, it takes too many steps" for root in found.gave_up)
    if not found.ways:
        text.append("  no way was found that leads here")
    for number, way in enumerate(found.ways, 1):
        text.append(f"  {number}. from {way.root + '()' if way.root else 'the start of the module'}")
        text.extend(f"       {scaler}" for scaler in way.scalers or ("no loss has been scaled",))
        text.extend(f"       assuming {assumption}" for assumption in way.assumptions)
    return "\n".join(text) + "\n"
