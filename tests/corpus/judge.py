"""Findings on real code against the verdicts of two readers.

    python tests/corpus/judge.py TREE [TREE ...] [--write-sample FILE]

Every AMP2, AMP3 and AMP8 finding and a fixed sample of 100 AMP1 findings of the trees must stand in verdicts.jsonl twice
(reader 1 and reader 2, who did not see the first verdict), both times as right. `--write-sample` lists what has to
be judged, with its place, for a reader. Exits 1 when a finding of the sample is unjudged or judged wrong. Slow: not
part of the test suite.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from amplint.config import load_settings
from amplint.finding import Finding
from amplint.runner import run

VERDICTS = Path(__file__).with_name("verdicts.jsonl")
#: How many AMP1 findings are judged; drawn by a hash, so that the draw is the same everywhere.
SAMPLE = 100
SEED = "amplint-2026"


def identity(tree: Path, finding: Finding) -> str:
    """One finding of one tree."""
    return f"{tree.name}:{finding.fingerprint}"


def findings(trees: list[Path]) -> Iterator[tuple[Path, Finding]]:
    """All findings of the default selection for target npu, at default confidence."""
    for tree in trees:
        settings = load_settings(tree, isolated=True, overrides={"target": "npu"})
        result = run([tree], settings, cwd=tree)
        for error in result.internal_errors:
            sys.exit(f"internal error in {tree.name}/{error.filename}: {error.message}")
        for finding in result.findings:
            yield tree, finding


def sample(trees: list[Path]) -> dict[str, tuple[Path, Finding]]:
    """What has to be judged."""
    found = {identity(tree, finding): (tree, finding) for tree, finding in findings(trees)}
    drawn = [key for key, (_, finding) in found.items() if finding.code.startswith("AMP1")]
    drawn.sort(key=lambda key: hashlib.sha256(f"{SEED}{key}".encode()).hexdigest())
    chosen = set(drawn[:SAMPLE])
    chosen |= {key for key, (_, f) in found.items() if f.code.startswith(("AMP2", "AMP3", "AMP8"))}
    return {key: found[key] for key in sorted(chosen)}


def describe(key: str, tree: Path, finding: Finding) -> dict[str, object]:
    """A line for a reader: the place and the claim, no code."""
    return {
        "fingerprint": key,
        "code": finding.code,
        "path": f"{tree.name}/{finding.filename}",
        "row": finding.start.row,
        "message": finding.message,
    }


def main() -> int:
    """Compare the sample with the verdicts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="+", type=Path)
    parser.add_argument("--write-sample", type=Path)
    options = parser.parse_args()
    chosen = sample([tree.resolve() for tree in options.trees])
    if options.write_sample is not None:
        lines = [json.dumps(describe(key, tree, finding)) for key, (tree, finding) in chosen.items()]
        options.write_sample.write_text("\n".join(lines) + "\n", encoding="utf-8")
    verdicts: dict[str, dict[int, dict[str, object]]] = defaultdict(dict)
    if VERDICTS.exists():
        for line in VERDICTS.read_text(encoding="utf-8").splitlines():
            verdict = json.loads(line)
            verdicts[verdict["fingerprint"]][verdict["reader"]] = verdict
    unjudged = [key for key in chosen if set(verdicts[key]) < {1, 2}]
    wrong = [key for key in chosen if any(v["verdict"] != "right" for v in verdicts[key].values())]
    for key in unjudged:
        tree, finding = chosen[key]
        print(f"unjudged {tree.name}/{finding.filename}:{finding.start.row} {finding.code} {finding.message}")
    for key in wrong:
        tree, finding = chosen[key]
        print(
            f"judged wrong {tree.name}/{finding.filename}:{finding.start.row} {finding.code} {finding.message}"
        )
    print(f"{len(chosen)} findings in the sample, {len(unjudged)} unjudged, {len(wrong)} judged wrong")
    return 1 if unjudged or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
