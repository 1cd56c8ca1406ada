"""Check real source trees in several ways that must give the same, and say where they do not.

    python tests/corpus/equality.py TREE [TREE ...] [--target npu] [--select ALL] [--min-confidence low] [--way WAY ...]

For each tree: with the gate and without it (every file parsed), in one process and in two, with an empty cache and
with a full one, and each file parsed in pieces, as the language server does. Compares findings, their fixes, internal errors and problems. Exits 1 and shows the first
differences if there are any. Slow: not part of the test suite.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

from amplint import engine, gate
from amplint.config import Settings
from amplint.lsp.outline import outline_of
from amplint.model.module import ModuleModel
from amplint.rule import Rule
from amplint.runner import RunResult, run
from amplint.source import Source
from amplint.syntax.pieces import Pieces
from amplint.syntax.syntax_error import SyntaxProblem, parsed_only

WAYS = ("one process", "two processes", "empty cache", "full cache", "no gate", "in pieces")
_admit = gate.admit
_model_of = engine.model_of


def admit_all(source: Source, rules: Sequence[Rule]) -> gate.Admission:
    """What the gate says, but for the rules that it rules out."""
    seen = _admit(source, rules)
    return gate.Admission(tuple(rules), seen.problem, seen.outline)


def in_pieces(source: Source, settings: Settings) -> ModuleModel | SyntaxProblem:
    """The model of a file that is parsed definition by definition where it can be."""
    tree = parsed_only(source.text)[1] if source.cells is None else None
    pieced = Pieces().parse(source.text, outline_of(source.text, tree).starts(source)) if tree else None
    return _model_of(source, settings, pieced)


def lines(result: RunResult) -> list[str]:
    """Everything that a run says, one thing on each line."""
    found = []
    for finding in result.findings:  # how edits of imports merge is known only where fixes are applied
        fix = None if finding.fix is None else replace(finding.fix, imports=())
        found.append(repr(replace(finding, fix=fix)))
    found += [repr((error.filename, error.message)) for error in result.internal_errors]
    return found + [str(problem) for problem in result.problems]


def differences(tree: Path, options: argparse.Namespace) -> int:
    """How many of the ways give something else than the plain one."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = Settings(
            select=tuple(options.select) if options.select else None,
            target=options.target,
            min_confidence=options.min_confidence,
            respect_gitignore=False,
            cache_dir=Path(folder),
        )

        def plain(jobs: int = 1, use_cache: bool = False) -> RunResult:
            return run([tree], chosen, cwd=tree, jobs=jobs, use_cache=use_cache)

        def without_gate() -> RunResult:
            with mock.patch.object(gate, "admit", admit_all):
                return plain()

        def pieces() -> RunResult:
            with mock.patch.object(
                engine, "model_of", lambda source, settings, pieced=None: in_pieces(source, settings)
            ):
                return plain()

        looks: tuple[Callable[[], RunResult], ...] = (
            plain,
            lambda: plain(jobs=2),
            lambda: plain(use_cache=True),
            lambda: plain(use_cache=True),
            without_gate,
            pieces,
        )
        ways = dict(zip(WAYS, looks, strict=True))
        wanted: list[str] | None = None
        wrong = 0
        for way in options.way or ways:
            look = ways[way]
            start = time.monotonic()
            result = look()
            found = lines(result)
            seconds = time.monotonic() - start
            print(
                f"{tree.name}: {way}: {result.files} files, {len(found)} findings and faults, {seconds:.1f} s",
                flush=True,
            )
            wanted = found if wanted is None else wanted
            if found != wanted:
                wrong += 1
                only = [f"    only here: {line}" for line in found if line not in set(wanted)]
                missing = [f"    missing here: {line}" for line in wanted if line not in set(found)]
                print("\n".join(line[:400] for line in (*only[:5], *missing[:5])) or "    in another order")
    return wrong


def main() -> int:
    """Compare on every tree named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="+", type=Path)
    parser.add_argument("--target", default="npu", choices=("auto", "cuda", "npu"))
    parser.add_argument("--select", action="append", metavar="RULES")
    parser.add_argument(
        "--way", action="append", choices=WAYS, help="only these ways, the first to compare with"
    )
    parser.add_argument("--min-confidence", default="medium", choices=("low", "medium", "high"))
    options = parser.parse_args()
    wrong = sum(differences(tree.resolve(), options) for tree in options.trees)
    print(f"{wrong} differences in {len(options.trees)} trees")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
