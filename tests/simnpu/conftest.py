"""Starts programs on the simulated NPU. Each end-to-end test is a process of its own: a device cannot be undone."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

CHECKS = Path(__file__).parent / "checks"

collect_ignore_glob = ["checks/*"]


def torch_is_new_enough() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    from importlib.metadata import version

    return tuple(int(part) for part in version("torch").split("+")[0].split(".")[:2]) >= (2, 10)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch_is_new_enough():
        for item in items:
            if Path(item.path).parent == Path(__file__).parent and "without_torch" not in item.name:
                item.add_marker(pytest.mark.skip(reason="the simulated NPU needs torch 2.10 or newer"))


def launch(
    *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python -m amplint.simnpu ARGUMENTS`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
    command = [sys.executable, "-m", "amplint.simnpu", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@functools.cache
def outcome(file: str, options: Sequence[str] = ()) -> dict[str, str | None]:
    """Name of each check in `checks/FILE` -> its traceback, or None; one process for all of them."""
    run = launch(*options, str(CHECKS / "run.py"), str(CHECKS / file))
    assert run.returncode == 0, run.stdout + run.stderr
    result: dict[str, str | None] = json.loads(run.stdout.splitlines()[-1])
    return result


def names(file: str) -> list[str]:
    """The checks in `checks/FILE`, without importing it."""
    import ast

    tree = ast.parse((CHECKS / file).read_text("utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
