"""What amplint costs when one file is committed: the program alone, and behind pre-commit.

    python benchmarks/one_file.py [ROUNDS]

Needs amplint and pre-commit in the environment of this Python, with compiled modules (`pip install .`, not `-e`).
Every round runs every command once, in turn; printed are the medians of the wall time, and the fastest runs. Nothing
outside a temporary folder is written.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PLAIN = "import os\n\n\ndef main(path):\n    return os.listdir(path)\n"

TRAINING = """\
import torch


def train(model, loader, optimizer, scaler, device):
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.float16):
            loss = torch.nn.functional.mse_loss(model(images), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        scaler.step(optimizer)
        scaler.update()
"""

_CHECK = (sys.executable, "-m", "amplint", "check", "--force-exclude")
_HOOKS = {"nothing": ("true",), "amplint": _CHECK}


def main(rounds: int) -> None:
    """Measure, and print a table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"PRE_COMMIT_HOME": f"{folder}/home", "PYTHONSAFEPATH": "1"}
        project = _project(folder / "project")
        pre_commit = (sys.executable, "-m", "pre_commit", "run", "--files", "train.py", "--hook-stage")
        commands: dict[str, tuple[str, ...]] = {
            "python -c pass": (sys.executable, "-c", "pass"),
            'python -c "import click"': (sys.executable, "-c", "import click"),
            "amplint check, nothing to look at, no cache": (*_CHECK, "--no-cache", "plain.py"),
            "amplint check, nothing to look at, cached": (*_CHECK, "plain.py"),
            "amplint check, a training loop, no cache": (*_CHECK, "--no-cache", "train.py"),
            "amplint check, a training loop, cached": (*_CHECK, "train.py"),
            "pre-commit run, a hook that does nothing": (*pre_commit, "manual"),
            "pre-commit run, amplint, edited": (*pre_commit, "pre-push"),
            "pre-commit run, amplint, cached": (*pre_commit, "pre-push"),
        }
        before = {"pre-commit run, amplint, edited": lambda number: _edit(project, number)}
        print(f"{'':46} {'median':>8} {'fastest':>8}")
        for label, times in _measured(commands, before, project, rounds).items():
            print(f"{label:46} {statistics.median(times):7.3f}s {min(times):7.3f}s")


def _project(folder: Path) -> Path:
    """A repository with two files, and hooks for two stages."""
    folder.mkdir()
    (folder / "plain.py").write_text(PLAIN)
    (folder / "train.py").write_text(TRAINING)
    stages = {"nothing": "manual", "amplint": "pre-push"}
    hooks = [
        {
            "id": name,
            "name": name,
            "entry": shlex.join(entry),
            "language": "system",
            "types": ["python"],
            "require_serial": True,
            "stages": [stages[name]],
        }
        for name, entry in _HOOKS.items()
    ]
    config = {"repos": [{"repo": "local", "hooks": hooks}]}
    (folder / ".pre-commit-config.yaml").write_text(json.dumps(config))
    for step in ("init", "add --all"):
        subprocess.run(["git", *step.split()], cwd=folder, check=True, capture_output=True)
    return folder


def _edit(project: Path, number: int) -> None:
    (project / "train.py").write_text(f"{TRAINING}\n# {number}\n")


def _measured(
    commands: dict[str, tuple[str, ...]],
    before: dict[str, Callable[[int], None]],
    folder: Path,
    rounds: int,
) -> dict[str, list[float]]:
    """Seconds of each command in each round but the first, which warms up."""
    times: dict[str, list[float]] = {label: [] for label in commands}
    for number in range(rounds + 1):
        for label, command in commands.items():
            if label in before:
                before[label](number)
            start = time.perf_counter()
            run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if number:
                times[label].append(time.perf_counter() - start)
            if run.returncode:
                sys.exit(f"{label}: exit code {run.returncode}\n{run.stdout}{run.stderr}")
    return times


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
