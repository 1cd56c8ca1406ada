"""Copies the sample scripts, lets `amplint fix` rewrite the copies, and writes down what changed.

As a program, `python porting.py` rewrites `port.diff` (safe ports) and `repair.diff` (ports and
repairs) beside every sample. Read what it wrote before committing it: the tests compare with it.
"""

from __future__ import annotations

import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

SAMPLES = Path(__file__).parents[2] / "samples"

#: Sample folder -> the script in it that has `main`.
SCRIPTS = {"classification": "train.py", "gan": "train_gan.py", "transformer": "train_lm.py"}

#: File name of the checked-in diff -> the options of `amplint fix` that it shows.
DIFFS: dict[str, tuple[str, ...]] = {"port.diff": (), "repair.diff": ("--repair",)}


def sources(folder: Path) -> dict[str, str]:
    """The text of every Python file in `folder` by its relative path, line ends as they are."""
    files = sorted(folder.rglob("*.py"))
    return {file.relative_to(folder).as_posix(): file.read_bytes().decode() for file in files}


def copy(sample: str, target: Path) -> Path:
    """Writes the Python files of `sample`, and nothing else, into `target`."""
    for name, text in sources(SAMPLES / sample).items():
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    return target


def fix(folder: Path, *options: str, style: str = "torch") -> int:
    """Rewrites `folder` in place and returns the exit status, 0 or 1; raises RuntimeError on any other."""
    if style == "torch":
        options = ("--isolated", *options)
    else:
        (folder / "amplint.toml").write_text(f'style = "{style}"\n')
    command = [sys.executable, "-m", "amplint", "fix", *options, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"amplint fix ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.returncode


def diff(sample: str, folder: Path) -> str:
    """The unified diff from `sample` to its rewritten copy, as `git apply` and `patch -p1` read it."""
    before, after = sources(SAMPLES / sample), sources(folder)
    return "".join(
        line
        for name in sorted(before.keys() | after.keys())
        for line in difflib.unified_diff(
            before.get(name, "").splitlines(keepends=True),
            after.get(name, "").splitlines(keepends=True),
            fromfile=f"a/{name}",
            tofile=f"b/{name}",
        )
    )


def write_diffs() -> None:
    for sample in SCRIPTS:
        for file, options in DIFFS.items():
            with tempfile.TemporaryDirectory() as folder:
                rewritten = copy(sample, Path(folder))
                fix(rewritten, *options)
                (SAMPLES / sample / file).write_bytes(diff(sample, rewritten).encode())


if __name__ == "__main__":
    write_diffs()
