"""Fix copies of real source trees and prove what `amplint fix` promises of every file.

    python tests/corpus/fix_trees.py TREE [TREE ...] [--repair] [--style torch|shim] [--torch 2.7]

For each tree: no internal error and no dropped fix; every changed file parses; pyflakes finds no undefined name
that it did not find before; files without an applied fix are byte-equal; a second run changes nothing. Exits 1
and says what failed otherwise. Slow: not part of the test suite.
"""

from __future__ import annotations

import argparse
import ast
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

from pyflakes.checker import Checker
from pyflakes.messages import UndefinedName

from amplint.config import load_settings
from amplint.runner import FixMode, RunResult, run


def undefined_names(data: bytes) -> Counter[str]:
    """Names that pyflakes calls undefined in a file, with how often."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(data)
    found = Checker(tree).messages
    return Counter(m.message_args[0] for m in found if isinstance(m, UndefinedName))


def fixed(root: Path, options: argparse.Namespace, *, write: bool) -> RunResult:
    """Run the fixes over `root`."""
    overrides = {"torch": options.torch, "style": options.style, "target": "npu"}
    settings = load_settings(root, isolated=True, overrides=overrides)
    mode = FixMode(ports=True, repairs=options.repair, write=write)
    return run([root], settings, fix=mode, cwd=root)


def broken(before: bytes, after: bytes) -> str | None:
    """What is wrong with a changed file, or None."""
    try:
        lost = undefined_names(after) - undefined_names(before)
    except (SyntaxError, ValueError) as error:
        return f"does not parse: {error}"
    return f"undefined names: {sorted(lost)}" if lost else None


def examine(tree: Path, options: argparse.Namespace) -> list[str]:
    """Everything that `amplint fix` did wrong in a copy of `tree`."""
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / tree.name
        shutil.copytree(tree, root, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        for path in root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                path.chmod(0o644)
        before = {p: p.read_bytes() for p in root.rglob("*.py") if p.is_file() and not p.is_symlink()}
        result = fixed(root, options, write=True)
        failures += [f"{e.filename}: {e.message}" for e in result.internal_errors]
        failures += [f"{p.filename}: {p.message}" for p in result.problems]
        changed = {change.source.filename for change in result.changes}
        for path, data in before.items():
            name = path.relative_to(root).as_posix()
            now = path.read_bytes()
            if name in changed:
                problem = broken(data, now)
                if problem is not None:
                    failures.append(f"{name}: {problem}")
            elif now != data:
                failures.append(f"{name}: changed although no fix was applied to it")
        again = fixed(root, options, write=False)
        failures += [f"{change.source.filename}: a second run changes it again" for change in again.changes]
        applied = Counter(f.code for change in result.changes for f in change.fixed)
        left = Counter(f.no_fix_reason for f in result.findings if f.fix is None)
        print(
            f"{tree.name}: {result.files} files, {len(changed)} changed, fixed {dict(sorted(applied.items()))}"
        )
        for reason, count in left.most_common():
            print(f"    {count} left: {reason}")
    return failures


def main() -> int:
    """Examine every tree named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="+", type=Path)
    parser.add_argument("--repair", action="store_true")
    parser.add_argument("--style", default="auto")
    parser.add_argument("--torch", default="2.7")
    options = parser.parse_args()
    failures = [f"{tree.name}/{text}" for tree in options.trees for text in examine(tree, options)]
    for text in failures:
        print(f"FAILED {text}")
    print(f"{len(failures)} failures in {len(options.trees)} trees")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
