"""Break correct `unscale_` calls in real code and count how many of the breakages AMP201 sees.

    python tests/corpus/mutate_unscale.py CHECKOUTS...

`CHECKOUTS` hold one folder per repository, named OWNER+NAME (or the package's name). For each site of
`unscale_sites.tsv` two mutants are made: without the `unscale_` (A), and with the clip moved above it (B).
The original must be silent; nine of ten mutants must be found at default confidence. Exits 1 otherwise.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from amplint import check_source

SITES = Path(__file__).with_name("unscale_sites.tsv")
SHARE = 0.9

Block = list[ast.stmt]


def blocks(node: ast.AST) -> Iterator[Block]:
    """The blocks directly inside a statement or module."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block
    for handler in getattr(node, "handlers", ()):
        yield handler.body


def route(node: ast.AST, target: ast.AST) -> list[tuple[Block, int]]:
    """The blocks from `node` down to the statement that holds `target`, with the index taken in each."""
    for block in blocks(node):
        for index, stmt in enumerate(block):
            if any(inner is target for inner in ast.walk(stmt)):
                return [(block, index), *route(stmt, target)]
    return []


def rows(stmt: ast.stmt) -> tuple[int, int]:
    return stmt.lineno, stmt.end_lineno or stmt.lineno


def clip_at(tree: ast.Module, row: int) -> ast.Call:
    calls = [
        n for n in ast.walk(tree) if isinstance(n, ast.Call) and n.lineno <= row <= (n.end_lineno or n.lineno)
    ]
    clips = [n for n in calls if "clip" in ast.unparse(n.func)]
    return min(clips, key=lambda n: (n.end_lineno or n.lineno) - n.lineno)


def unscale_before(tree: ast.Module, clip: ast.Call) -> ast.Call:
    """The last `unscale_` call above the clip."""
    calls = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "unscale_"
    ]
    return max((n for n in calls if n.lineno < clip.lineno), key=lambda n: n.lineno)


def without(text: str, tree: ast.Module, call: ast.Call) -> str:
    """Mutant A: the statement of `call` is gone, or `pass` where it stood alone."""
    block, index = route(tree, call)[-1]
    first, last = rows(block[index])
    lines = text.splitlines(keepends=True)
    head = lines[first - 1]
    indent = head[: len(head) - len(head.lstrip())]
    lines[first - 1 : last] = [f"{indent}pass\n"] if len(block) == 1 else []
    return "".join(lines)


def swapped(text: str, tree: ast.Module, clip: ast.Call, unscale: ast.Call) -> str:
    """Mutant B: the statement with the clip stands before `unscale_`, but still behind the backward."""
    below, above = route(tree, clip), route(tree, unscale)
    level = max(i for i, (a, b) in enumerate(zip(below, above, strict=False)) if a[0] is b[0])
    block, source = below[level]
    target = block[above[level][1]]
    if block[source] is target:
        raise ValueError("the two stand in one statement")
    if any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in ast.walk(target)):
        inner, index = above[-1]
        target = inner[index]
    first, last = rows(block[source])
    lines = text.splitlines(keepends=True)
    moved = textwrap.dedent("".join(lines[first - 1 : last]))
    del lines[first - 1 : last]
    at = target.lineno - 1
    lines[at:at] = [textwrap.indent(moved, " " * target.col_offset)]
    return "".join(lines)


def found(text: str, name: str) -> bool:
    return any(finding.code == "AMP201" for finding in check_source(text, name, select=["AMP201"]))


def main(checkouts: list[Path]) -> int:
    total = seen = noisy = 0
    for line in SITES.read_text(encoding="utf-8").splitlines():
        repo, path, row = line.split("\t")
        places = [folder / repo.replace("/", "+") / path for folder in checkouts]
        text = next(place for place in places if place.is_file()).read_text(encoding="utf-8")
        tree = ast.parse(text)
        clip = clip_at(tree, int(row))
        unscale = unscale_before(tree, clip)
        mutants = {"A": without(text, tree, unscale), "B": swapped(text, tree, clip, unscale)}
        results = {name: found(mutant, path) for name, mutant in mutants.items()}
        loud = found(text, path)
        noisy += loud
        total += len(results)
        seen += sum(results.values())
        shown = " ".join(f"{name}:{'found' if hit else 'MISSED'}" for name, hit in results.items())
        print(f"{repo} {path}:{row} original:{'NOISY' if loud else 'silent'} {shown}")
    print(f"{seen} of {total} mutants found, {noisy} originals with findings")
    return 1 if noisy or not total or seen < SHARE * total else 0


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
