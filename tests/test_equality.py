"""What a run says depends on the files alone: not on the gate, processes, order, hash seeds or how files are named."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplint import gate, pool, runner
from amplint.config import Settings
from amplint.finding import Finding
from amplint.rule import Rule
from amplint.runner import FixMode, RunResult, run
from amplint.source import Source

MODULES = ("amp_tools", "train", "losses", "pkg/__init__", "pkg/engine", "pkg/sub/scaling")
NAMES = ("autocast", "GradScaler", "scaler", "context", "step", "cast", "*")
PIECES = (
    "from torch.cuda.amp import autocast, GradScaler\n",
    "from torch.cuda.amp import *\n",
    "import torch.cuda.amp as amp\nscaler = amp.GradScaler()\n",
    "scaler = GradScaler(enabled=False)\n",
    "with autocast():\n    pass\n",
    "with torch.autocast('cuda') and torch.no_grad():\n    pass\n",
    "context = getattr(torch.cuda.amp, 'autocast')\n",
    "def cast(x):\n    x.half()\n    return x.half() + 1e-8\n",
    "def step(loss, opt, m):\n    scaler.scale(loss).backward()\n"
    "    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n    scaler.step(opt)\n    scaler.update()\n",
    "class T:\n    def __init__(self):\n        self.s = GradScaler()\n    def f(self, loss, opt):\n"
    "        self.s.scale(loss).backward()\n        self.s.step(opt)\n",
    "@torch.cuda.amp.custom_fwd\ndef f(ctx, x): return x\n",
    "x = 1  # amplint: ignore[AMP101] nothing here\n",
    "# amplint: file-ignore[AMP102] whole\n",
    "__all__ = ['autocast', 'scaler']\n",
    "print torch\n",
    "def broken(:\n",
    "x = 1\n",
)
ALL = Settings(select=("ALL",), target="npu")
STEADY = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
}


@st.composite
def module_texts(draw: st.DrawFn) -> str:
    origins = st.sampled_from(
        [name.replace("/", ".").removesuffix(".__init__") for name in MODULES] + [".", "..sub"]
    )
    imports = st.builds("from {} import {}\n".format, origins, st.sampled_from(NAMES))
    plain = st.builds(
        "import {0}\ny = {0}.scaler\n".format, origins.filter(lambda name: not name.startswith("."))
    )
    pieces = draw(st.lists(st.sampled_from(PIECES) | imports | plain, max_size=5))
    return draw(st.sampled_from(("import torch\n", "\ufeffimport torch\r\n", ""))) + "".join(pieces)


projects = st.dictionaries(st.sampled_from(MODULES), module_texts(), min_size=2)


@contextmanager
def written(project: dict[str, str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name, text in project.items():
            path = root / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        yield root


def shown(finding: Finding) -> Finding:
    """A finding as it is reported: how edits of imports merge is known only where fixes are applied."""
    return finding if finding.fix is None else replace(finding, fix=replace(finding.fix, imports=()))


def everything(result: RunResult) -> tuple[object, ...]:
    return (
        [shown(finding) for finding in result.findings],
        result.internal_errors,
        [str(problem) for problem in result.problems],
        [(change.source.filename, change.new_text) for change in result.changes],
        result.files,
    )


def checked(
    root: Path, paths: list[Path] | None = None, chosen: Settings = ALL, **options: object
) -> tuple[object, ...]:
    return everything(run(paths or [root], chosen, cwd=root, **options))  # type: ignore[arg-type]


def admit_all(source: Source, rules: list[Rule], real: object = gate.admit) -> gate.Admission:
    """What the gate says, but for the rules that it rules out."""
    seen = real(source, rules)  # type: ignore[operator]
    return gate.Admission(tuple(rules), seen.problem, seen.outline)


@settings(max_examples=40, **STEADY)
@given(project=projects)
def test_what_the_gate_keeps_from_the_parser_has_no_finding(project):
    with written(project) as root:
        for chosen in (ALL, Settings(target="npu"), Settings()):
            gated = checked(root, chosen=chosen)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(gate, "admit", admit_all)
                assert checked(root, chosen=chosen) == gated


@settings(max_examples=40, **STEADY)
@given(project=projects, data=st.data())
def test_neither_the_order_nor_the_way_of_naming_files_matters(project, data):
    with written(project) as root:
        wanted = checked(root)
        files = [root / f"{name}.py" for name in data.draw(st.permutations(sorted(project)))]
        assert checked(root, files) == wanted
        assert checked(root, [path.relative_to(root) for path in files]) == wanted
        assert checked(root, [*files, root, files[0]]) == wanted
        folders = sorted({path.parent for path in files}, key=lambda path: -len(path.parts))
        assert checked(root, [*folders, *files]) == wanted


@settings(max_examples=25, **STEADY)
@given(project=projects, edits=projects)
def test_a_warm_run_equals_a_cold_one_after_any_edit(project, edits):
    with tempfile.TemporaryDirectory() as cache, written(project) as root:
        chosen = Settings(select=("ALL",), target="npu", cache_dir=Path(cache))
        assert checked(root, chosen=chosen, use_cache=True) == checked(root)
        for name, text in edits.items():
            path = root / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        assert checked(root, chosen=chosen, use_cache=True) == checked(root)


@settings(max_examples=15, **STEADY)
@given(project=projects)
def test_fixing_gives_the_same_with_and_without_gate_and_in_any_order(project):
    mode = FixMode(ports=True, repairs=True, unsafe=True)
    with written(project) as root:
        wanted = checked(root, fix=mode)
        assert (
            checked(root, [root / f"{name}.py" for name in sorted(project, reverse=True)], fix=mode) == wanted
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gate, "admit", admit_all)
            assert checked(root, fix=mode) == wanted


def big_project() -> dict[str, str]:
    """More files than one process is started for, each importing from others."""
    found = {}
    for i in range(24):
        pieces = [PIECES[(i * 7 + k * 3) % len(PIECES)] for k in range(3)]
        found[f"m{i}"] = f"import torch\nfrom m{(i * 5 + 1) % 24} import {NAMES[i % len(NAMES)]}\n" + "".join(
            pieces
        )
    return found


@pytest.mark.parametrize(
    "mode", [FixMode(), FixMode(ports=True, repairs=True, unsafe=True)], ids=["check", "fix"]
)
def test_two_processes_give_what_one_gives(mode, monkeypatch):
    monkeypatch.setattr(runner, "_FEW_BYTES", 0)
    monkeypatch.setattr(pool, "_BATCH", 1500)
    with written(big_project()) as root:
        one = checked(root, fix=mode, jobs=1)
        assert one[0]
        assert checked(root, fix=mode, jobs=2) == one


def test_no_hash_seed_changes_a_word():
    command = [sys.executable, "-m", "amplint", "check", "--select", "ALL", "--target", "npu", "--no-cache"]
    with written(big_project()) as root:
        outputs = set()
        for seed in ("0", "4242"):
            for arguments in (["--output-format", "json"], ["--diff", "--repair", "--unsafe-fixes"]):
                environment = {**os.environ, "PYTHONHASHSEED": seed}
                done = subprocess.run(
                    [*command, *arguments], cwd=root, env=environment, capture_output=True, check=False
                )
                assert done.returncode == 1, done.stderr
                outputs.add(done.stdout)
    assert len(outputs) == 2  # one for each format
