"""amplint against its peers, in one run on one machine.

    python benchmarks/peers.py timm=PATH transformers=PATH [--repeat 3] [--skip torchfix:transformers] [--json FILE]

PATH is a folder of unpacked sources (`pip download --no-deps PACKAGE` and unzip). Every tool is installed into a
virtual environment of its own under `--work` (kept between runs). For each tool and tree: CPU seconds (the tool and
its children), wall seconds and peak memory of the largest process, as medians of the repeats; torchfix and fixit, which
take minutes, run once. Then what one file costs in which there is nothing to look at, as in a pre-commit hook. Prints
a Markdown table and the ratios that matter.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
PINS = {
    "amplint": [str(HERE)],
    "ruff": ["ruff==0.17.6"],
    "torchfix": ["torchfix==0.7.0"],
    "fixit": ["fixit==2.2.1"],
}


#: Repeats of what takes a fraction of a second.
_SMALL_REPEAT = 15
_NOTHING = "one plain file"
_ONE_FILE = "amplint, no cache"


@dataclass(frozen=True, slots=True)
class Measurement:
    """Medians over the repeats of one command on one tree."""

    tool: str
    tree: str
    cpu: float
    wall: float
    #: Peak resident memory of the largest single process, in MB.
    memory: float


def commands(tree: Path, cache: Path) -> dict[str, tuple[str, list[str]]]:
    """Label -> (environment, command line with {bin} for its folder of programs)."""
    amplint = [
        "{bin}/amplint",
        "check",
        "--isolated",
        "--target",
        "npu",
        "--output-format",
        "json",
        "--exit-zero",
    ]
    return {
        "ruff --select ALL": (
            "ruff",
            [
                "{bin}/ruff",
                "check",
                "--select",
                "ALL",
                "--no-cache",
                "--isolated",
                "--exit-zero",
                "--statistics",
                str(tree),
            ],
        ),
        "amplint cold, 2 workers": ("amplint", [*amplint, "--no-cache", "-j", "2", str(tree)]),
        "amplint cold, 1 process": ("amplint", [*amplint, "--no-cache", "-j", "1", str(tree)]),
        "amplint warm": ("amplint", [*amplint, "--cache-dir", str(cache), str(tree)]),
        "torchfix": ("torchfix", ["{bin}/torchfix", "--select", "ALL", "-j", "2", str(tree)]),
        "fixit": ("fixit", ["{bin}/fixit", "--quiet", "lint", str(tree)]),
    }


def environment(work: Path, tool: str) -> Path:
    """The folder of programs of a tool's own virtual environment, made on first use."""
    home = work / tool
    bin_folder = home / ("Scripts" if os.name == "nt" else "bin")
    if not (home / "ready").exists():
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([bin_folder / "python", "-m", "pip", "install", "--quiet", *PINS[tool]], check=True)
        (home / "ready").touch()
    elif tool == "amplint":  # the checkout may have changed since
        install = [
            str(bin_folder / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--force-reinstall",
            str(HERE),
        ]
        subprocess.run(install, check=True)
    return bin_folder


def once(command: Sequence[str]) -> tuple[float, float, float]:
    """CPU seconds, wall seconds and peak memory in MB of one run; raises when the command cannot be started."""
    script = (
        "import json,resource,subprocess,sys,time;s=time.perf_counter();"
        "subprocess.run(sys.argv[1:],stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL);w=time.perf_counter()-s;"
        "u=resource.getrusage(resource.RUSAGE_CHILDREN);print(json.dumps([u.ru_utime+u.ru_stime,w,u.ru_maxrss/1024]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command], capture_output=True, text=True, check=True
    )
    cpu, wall, memory = json.loads(done.stdout)
    return cpu, wall, memory


def measure(label: str, tree_name: str, command: Sequence[str], repeat: int) -> Measurement:
    """Medians of `repeat` runs."""
    runs = [once(command) for _ in range(repeat)]
    cpu, wall, memory = (statistics.median(values) for values in zip(*runs, strict=True))
    return Measurement(label, tree_name, cpu, wall, memory)


def small_runs(bin_folder: Path, work: Path) -> list[Measurement]:
    """One file in which nothing passes the gate, beside the import of click alone."""
    file = work / "nothing.py"
    file.write_text("import os\n\nprint(os.sep)\n", encoding="utf-8")
    python = str(bin_folder / "python")
    check = [str(bin_folder / "amplint"), "check", "--isolated", "--no-cache", str(file)]
    return [
        measure('python -c "import click"', _NOTHING, [python, "-c", "import click"], _SMALL_REPEAT),
        measure(_ONE_FILE, _NOTHING, check, _SMALL_REPEAT),
    ]


def table(found: Sequence[Measurement]) -> str:
    """A Markdown table of everything measured."""
    lines = ["| tree | tool | CPU s | wall s | peak MB |", "|---|---|---:|---:|---:|"]
    lines += [f"| {m.tree} | {m.tool} | {m.cpu:.2f} | {m.wall:.2f} | {m.memory:.0f} |" for m in found]
    return "\n".join(lines)


def ratios(found: Sequence[Measurement]) -> list[str]:
    """The comparisons that the project holds itself to."""
    by_key = {(m.tool, m.tree): m for m in found}
    lines = []
    for tree in dict.fromkeys(m.tree for m in found):
        cold, one = (
            by_key.get(("amplint cold, 2 workers", tree)),
            by_key.get(("amplint cold, 1 process", tree)),
        )
        ruff, torchfix = by_key.get(("ruff --select ALL", tree)), by_key.get(("torchfix", tree))
        if cold and ruff:
            lines.append(
                f"{tree}: cold, 2 workers, is {cold.wall / ruff.wall:.1f} times the wall time of ruff --select ALL"
            )
        if one and torchfix:
            lines.append(f"{tree}: torchfix takes {torchfix.cpu / one.cpu:.0f} times the CPU of a cold run")
    click, small = by_key.get(('python -c "import click"', _NOTHING)), by_key.get((_ONE_FILE, _NOTHING))
    if click and small:
        lines.append(f"{_NOTHING}: {small.cpu / click.cpu:.1f} times the CPU of importing click")
    return lines


def main() -> int:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="+", metavar="NAME=PATH")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--skip", action="append", default=[], metavar="TOOL[:TREE]")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "amplint-peers")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    found: list[Measurement] = []
    for given in options.trees:
        name, _, path = given.partition("=")
        tree = Path(path).resolve()
        cache = options.work / "cache" / name
        for label, (tool, command) in commands(tree, cache).items():
            if tool in options.skip or f"{tool}:{name}" in options.skip:
                continue
            folder = environment(options.work, tool)
            line = [part.replace("{bin}", str(folder)) for part in command]
            if label == "amplint warm":
                once(line)
            repeat = 1 if tool in ("torchfix", "fixit") else options.repeat
            found.append(measure(label, name, line, repeat))
            print(f"{found[-1]}", file=sys.stderr, flush=True)
    found += small_runs(environment(options.work, "amplint"), options.work)
    print(f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} CPUs\n")
    print(table(found))
    print()
    print("\n".join(ratios(found)))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(m) for m in found], indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
