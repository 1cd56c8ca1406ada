"""Check every file of real source trees, one at a time, and say what that brought to light.

    python tests/corpus/many_files.py TREE [TREE ...] [--slowest 5]

For each file: no exception and no internal error; the tree that LibCST makes prints as the text it came from, or
can be lined up with it, so that every node has a place; the text encodes to the bytes of the file. Prints counts
and the slowest files (CPU), and exits 1 if something failed. A crash of the process itself names the file at hand on the
last line of the output. Slow: not part of the test suite.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from amplint.config import Settings
from amplint.discover import discover
from amplint.project.link import Project
from amplint.registry import select_rules
from amplint.source import Source, SourceError, read_source
from amplint.syntax.parse import parse
from amplint.syntax.pause import no_garbage_collection
from amplint.syntax.positions import PositionsLost
from amplint.syntax.syntax_error import SyntaxProblem
from amplint.syntax.tree import Tree
from amplint.work import NO_FIX, Checker


@dataclass
class Tally:
    """What was seen so far."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    #: (seconds, file), the time of check and round trip apart.
    checks: list[tuple[float, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def round_trip(source: Source, tally: Tally) -> None:
    """Whether bytes, text and parsed tree agree."""
    if source.encode(source.text) != source.data:
        tally.failures.append(f"{source.filename}: the text does not encode to the bytes of the file")
    with no_garbage_collection():
        module = parse(source)
        if isinstance(module, SyntaxProblem):
            tally.counts["not parsed"] += 1
            return
        if module.code == source.text:
            tally.counts["printed as they are"] += 1
            return
        try:
            tree = Tree(module, source.text)
            spans = [tree.span(node) for node in tree.nodes]
        except PositionsLost as error:
            tally.counts["fixes refused: cannot be lined up"] += 1
            print(f"    {source.filename}: {error}")
            return
    tally.counts["lined up"] += 1
    if any(not 0 <= span.start <= span.end <= len(source.text) for span in spans):
        tally.failures.append(f"{source.filename}: a node lies outside the text")


def examine(path: Path, checker: Checker, tally: Tally) -> None:
    """One file."""
    try:
        source = read_source(path, str(path))
    except SourceError as error:
        tally.counts[f"no text: {error.message}"] += 1
        return
    start = time.process_time()
    outcome = checker.run(source, NO_FIX)
    tally.checks.append((time.process_time() - start, source.filename))
    tally.failures += [f"{error.filename}: {error.message}" for error in outcome.internal_errors]
    tally.findings.update(finding.code for finding in outcome.findings)
    round_trip(source, tally)


def main() -> int:
    """Examine every file of the trees on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="+", type=Path)
    parser.add_argument("--slowest", type=int, default=5, metavar="N")
    options = parser.parse_args()
    faulthandler.enable()
    settings = Settings(select=("ALL",), target="npu", respect_gitignore=False)
    checker = Checker(settings, select_rules(settings), Project())
    tally = Tally()
    files = discover(options.trees, settings, Path.cwd()).files
    for number, path in enumerate(files):
        print(f"\r{number} of {len(files)} {path}\x1b[K", end="", file=sys.stderr, flush=True)
        try:
            examine(path, checker, tally)
        except Exception as error:  # the others are of interest all the same
            tally.failures.append(f"{path}: {type(error).__name__}: {error}")
    print(file=sys.stderr)
    for text in tally.failures:
        print(f"FAILED {text}")
    for text, count in tally.counts.most_common():
        print(f"    {count} {text}")
    print(f"    findings: {dict(sorted(tally.findings.items()))}")
    for seconds, name in sorted(tally.checks, reverse=True)[: options.slowest]:
        print(f"    {seconds:.2f} s {name}")
    total = sum(seconds for seconds, _ in tally.checks)
    print(f"{len(files)} files, {total:.0f} s of CPU for checks, {len(tally.failures)} failures")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
