"""Check and fix real notebooks, and say where a promise about them is broken.

    python tests/corpus/notebooks.py FOLDER [FOLDER ...] [--style shim] [--target npu]

For each notebook, in a copy: reading and writing it gives the same bytes; checking does not touch it; a fix (repairs
and unsafe ones included) changes nothing but the sources of cells, byte for byte; the result is valid for nbformat if
the notebook was; every other part of it, outputs and metadata among them, is equal; a second run changes nothing. Exits
1 and lists what broke, if anything. Needs nbformat. Not part of the test suite.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

from amplint.config import Settings
from amplint.notebook.document import _source_places
from amplint.runner import FixMode, run
from amplint.source import Source, SourceError, read_source

FIX = FixMode(ports=True, repairs=True, unsafe=True, write=True)


def is_valid(data: bytes) -> bool:
    """Whether nbformat accepts a notebook as it stands."""
    try:
        nbformat.validate(nbformat.reads(data.decode("utf-8"), as_version=nbformat.NO_CONVERT))
    except Exception:
        return False
    return True


def between_sources(raw: str) -> list[str]:
    """What stands in a file around the sources of its cells."""
    parts, end = [], 0
    for place in _source_places(raw):
        if place is not None:
            parts.append(raw[end : place.start])
            end = place.end
    return [*parts, raw[end:]]


def cells(data: bytes) -> list[dict[str, Any]]:
    """The cells of a notebook of format 4 or 3."""
    content = nbformat.reader.reads(data.decode("utf-8"))
    sheets = content.get("worksheets", [content])
    return [cell for sheet in sheets for cell in sheet["cells"]]


def without_source(cell: dict[str, Any]) -> dict[str, Any]:
    """All of a cell but its code."""
    return {key: value for key, value in cell.items() if key not in ("source", "input")}


def broken_promises(path: Path, settings: Settings, counts: Counter[str]) -> Iterator[str]:
    """What is wrong with how one notebook is treated; it is changed."""
    before = path.read_bytes()
    try:
        source = read_source(path, path.name)
    except SourceError as error:
        counts["not read"] += 1
        yield from [] if "not a notebook" in error.message else [f"cannot be read: {error.message}"]
        return
    assert source.cells is not None
    counts["cells of Python"] += len(source.cells.cells)
    counts["magics"] += sum(len(cell.replaced) for cell in source.cells.cells if not cell.is_broken)
    counts["cells that cannot be parsed"] += len(source.cells.problems)
    if source.encode(source.text) != before:
        yield "reading and writing it gives other bytes"
    found = run([path], settings, cwd=path.parent)
    counts["findings"] += len(found.findings)
    if path.read_bytes() != before:
        yield "checking changed it"
    yield from (f"internal error: {error.message}" for error in found.internal_errors)
    fixed = run([path], settings, cwd=path.parent, fix=FIX)
    yield from (f"internal error: {error.message}" for error in fixed.internal_errors)
    yield from (str(problem) for problem in fixed.problems)
    after = path.read_bytes()
    if (after != before) != bool(fixed.changes):
        yield "what the run says of changes is not true"
    if after == before:
        return
    counts["fixed"] += 1
    yield from wrong_after_fix(before, after, source, counts)
    run([path], settings, cwd=path.parent, fix=FIX)
    if path.read_bytes() != after:
        yield "a second run changes it again"


def wrong_after_fix(before: bytes, after: bytes, source: Source, counts: Counter[str]) -> Iterator[str]:
    """What a fix did that it must not."""
    if is_valid(before):
        counts["valid before and after"] += 1
        if not is_valid(after):
            yield "no valid notebook after the fix"
    else:
        counts["fixed, not valid before"] += 1
    if between_sources(before.decode("utf-8")) != between_sources(after.decode("utf-8")):
        yield "bytes outside the sources of cells changed"
    old, new = cells(before), cells(after)
    if [without_source(cell) for cell in old] != [without_source(cell) for cell in new]:
        yield "outputs or metadata changed"
    known = {cell.number for cell in source.cells.cells} if source.cells is not None else set()
    touched = [number for number, (a, b) in enumerate(zip(old, new, strict=True), 1) if a != b]
    counts["touched cells"] += len(touched)
    counts["cells of fixed notebooks"] += len(old)
    if not set(touched) <= known:
        yield "a cell changed that is no Python"


def main() -> int:
    """Go through the folders."""
    parser = argparse.ArgumentParser(description="Check the promises about notebooks over folders of them.")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--style", default="torch")
    parser.add_argument("--target", default="npu")
    options = parser.parse_args()
    settings = Settings(style=options.style, target=options.target, torch=(2, 8), respect_gitignore=False)
    counts: Counter[str] = Counter()
    bad = 0
    for folder in options.folders:
        for original in sorted(folder.rglob("*.ipynb")):
            counts["notebooks"] += 1
            with tempfile.TemporaryDirectory() as place:
                path = Path(place, original.name)
                shutil.copyfile(original, path)
                for broken in broken_promises(path, settings, counts):
                    bad += 1
                    print(f"{original}: {broken}")
    print(", ".join(f"{name}: {number}" for name, number in counts.items()))
    print(f"{bad} broken promises" if bad else "every promise holds")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
