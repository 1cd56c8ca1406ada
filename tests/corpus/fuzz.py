"""Damage real source files at random, and prove what amplint promises of every text.

    python tests/corpus/fuzz.py TREE [TREE ...] [--minutes 10] [--seed 0] [--keep FOLDER] [--jobs 1]

Takes files of the trees that mention mixed precision (and some that do not), damages each, checks and fixes it in
both styles: no exception, no internal error, no dropped fix; what is fixed compiles and is left alone by a second
run; what has no fix stays as it is. Prints counts, writes each text that breaks a promise to FOLDER, and exits 1
if there was one. Slow: not part of the test suite.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fuzz"))

from mutations import failures, mutate

_WORDS = (b"autocast", b"GradScaler", b"cuda.amp", b"amplint:", b".half()", b"custom_fwd")
#: Larger files are cut down to this many lines around a word that matters, or nothing would get done.
_MAX_LINES = 300


def texts(trees: list[Path], random: Random) -> list[str]:
    """The sources to damage: all that mention mixed precision and one in fifty of the rest, shuffled."""
    found = []
    for tree in trees:
        for path in sorted(tree.rglob("*.py")):
            if not path.is_file():
                continue
            data = path.read_bytes()
            if any(word in data for word in _WORDS) or random.random() < 0.02:
                found.append(data.decode("utf-8", "replace"))
    random.shuffle(found)
    return found


def excerpt(text: str, random: Random) -> str:
    """A text as it is, or a part of a long one."""
    lines = text.splitlines(keepends=True)
    if len(lines) <= _MAX_LINES:
        return text
    hits = [i for i, line in enumerate(lines) if any(word in line.encode() for word in _WORDS)]
    middle = random.choice(hits or range(len(lines)))
    start = max(0, middle - random.randrange(_MAX_LINES))
    imports = [line for line in lines[:start] if line.startswith(("import ", "from ")) and "(" not in line]
    while start and lines[start][:1].isspace():
        start -= 1
    return "".join([*imports, *lines[start : start + _MAX_LINES]])


def main() -> int:
    """Run until the time is over."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="+", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), metavar="FOLDER")
    options = parser.parse_args()
    random = Random(options.seed)
    seeds = texts(options.trees, random)
    end = time.monotonic() + 60 * options.minutes
    kinds: Counter[str] = Counter()
    done = 0
    while time.monotonic() < end:
        text = mutate(excerpt(seeds[done % len(seeds)], random), random)
        style = random.choice(("torch", "shim"))
        torch = random.choice(((2, 7), (2, 7), (2, 4), (2, 1)))
        for failure in failures(text, style=style, torch=torch):
            kind = failure[:160]
            kinds[kind] += 1
            if kinds[kind] <= 3:
                options.keep.mkdir(parents=True, exist_ok=True)
                path = options.keep / f"seed{options.seed}-{done}.py"
                path.write_bytes(text.encode("utf-8", "surrogatepass"))
                print(f"FAILED {path} (style {style}, torch {torch[0]}.{torch[1]}): {failure}", flush=True)
        done += 1
    for kind, count in kinds.most_common():
        print(f"    {count} times: {kind}")
    print(f"{done} texts from {len(seeds)} files, {sum(kinds.values())} failures")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
