"""What people see who commit: the hooks of the manifest, run by pre-commit on `git commit`."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from .conftest import ROOT, Repository

pytest.importorskip("pre_commit", reason="pre-commit is not installed")

CUDA_ONLY = """\
import torch
from torch.cuda.amp import autocast


def forward(model, batch):
    with autocast():
        return model(batch)
"""

CLIPPED = """\
import torch


def train(model, loader, optimizer, scaler):
    for x, y in loader:
        optimizer.zero_grad()
        scaler.scale(model(x, y)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""

MENDED = CLIPPED.replace("        torch.nn", "        scaler.unscale_(optimizer)\n        torch.nn")

#: The loss is scaled in one file and clipped in another: neither has a finding of its own.
SCALING = """\
def backward(scaler, optimizer, loss):
    scaler.scale(loss).backward()
"""

UNSCALING = f"{SCALING}    scaler.unscale_(optimizer)\n"

LOOP = """\
import torch

from scaling import backward


def train(model, loader, optimizer, scaler):
    for x, y in loader:
        optimizer.zero_grad()
        backward(scaler, optimizer, model(x, y))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.fixture
def start(repository: Repository, install: Callable[..., None]) -> Callable[..., None]:
    """Begin a repository with some files, committed before any hook was there, and then install hooks."""

    def begin(*hooks: str, **files: str) -> None:
        repository.write(**files)
        (repository.path / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\n')
        assert repository.commit("--allow-empty").returncode == 0
        install(*hooks)
        assert repository.commit("--no-verify").returncode == 0

    return begin


def test_a_commit_is_stopped_by_a_finding_fixed_by_the_hook_and_passes_the_second_time(repository, start):
    start("amplint-fix", "amplint")
    repository.write(train=CUDA_ONLY)
    before = repository.commits()

    stopped = repository.commit()
    assert stopped.returncode == 1 and repository.commits() == before
    assert "files were modified by this hook" in stopped.stdout
    assert "Fixed 2 findings in 1 file: 2 AMP101 (cuda-amp-autocast)." in stopped.stdout
    fixed = repository.read("train")
    assert "torch.autocast(AMP_DEVICE" in fixed and "torch.cuda.amp" not in fixed

    passed = repository.commit()
    assert passed.returncode == 0 and repository.commits() == before + 1
    assert repository.run("git", "show", "HEAD:train.py").stdout == fixed


@pytest.mark.slow
def test_the_check_alone_stops_a_commit_and_changes_nothing(repository, start):
    start("amplint")
    repository.write(train=CUDA_ONLY)
    stopped = repository.commit()
    assert stopped.returncode == 1
    assert "train.py:2:28: AMP101 cuda-amp-autocast" in stopped.stdout
    assert "modified by this hook" not in stopped.stdout
    assert repository.read("train") == CUDA_ONLY


def test_the_fix_hook_leaves_a_repair_to_people_and_stops_the_commit_until_it_is_made(repository, start):
    start("amplint-fix")
    repository.write(train=CLIPPED)
    stopped = repository.commit()
    assert stopped.returncode == 1 and "AMP201 clip-before-unscale" in stopped.stdout
    assert repository.read("train") == CLIPPED
    repository.write(train=MENDED)
    assert repository.commit().returncode == 0


@pytest.mark.slow
def test_a_commit_without_findings_passes_and_leaves_nothing_behind(repository, start):
    start("amplint-fix", "amplint", "amplint-project")
    repository.write(train=MENDED)
    assert repository.commit().returncode == 0
    assert repository.run("git", "status", "--porcelain").stdout == ""
    tracked = repository.run("git", "ls-files").stdout.split()
    assert not [name for name in tracked if "cache" in name]


@pytest.mark.slow
def test_no_hook_runs_for_files_that_are_no_python(repository, start):
    start("amplint-fix", "amplint", "amplint-project", train=CLIPPED)
    (repository.path / "notes.txt").write_text("from torch.cuda.amp import autocast\n")
    passed = repository.commit()
    assert passed.returncode == 0 and passed.stdout.count("(no files to check)Skipped") == 3


@pytest.mark.slow
def test_a_script_without_a_suffix_is_checked(repository, start):
    start("amplint")
    script = repository.path / "train"
    script.write_text(f"#!/usr/bin/env python3\n{CLIPPED}")
    script.chmod(0o755)
    stopped = repository.commit()
    assert stopped.returncode == 1 and "train:9:9: AMP201" in stopped.stdout


def test_what_is_excluded_stays_excluded_although_pre_commit_names_it(repository, start):
    start("amplint-fix", "amplint")
    (repository.path / "amplint.toml").write_text('extend-exclude = ["old.py"]\n')
    repository.write(old=CUDA_ONLY)
    assert repository.commit().returncode == 0
    assert repository.read("old") == CUDA_ONLY


def test_a_file_alone_is_seen_with_the_files_that_it_imports(repository, start):
    start("amplint", scaling=SCALING, loop="")
    repository.write(loop=LOOP)
    stopped = repository.commit()
    assert stopped.returncode == 1
    assert "loop.py:10:9: AMP201" in stopped.stdout
    assert "scaling.py:2: the loss is scaled here" in stopped.stdout


@pytest.mark.slow
def test_a_file_alone_is_checked_again_when_what_it_imports_changed(repository, start):
    start("amplint", scaling=UNSCALING, loop=LOOP)
    only_loop = ("run", "--files", "loop.py")
    assert repository.pre_commit(*only_loop).returncode == 0
    repository.write(scaling=SCALING)
    again = repository.pre_commit(*only_loop, check=False)
    assert again.returncode == 1 and "loop.py:10:9: AMP201" in again.stdout


@pytest.mark.slow
def test_only_the_hook_for_the_project_sees_what_a_change_does_elsewhere(repository, start):
    start("amplint", "amplint-project", scaling=UNSCALING, loop=LOOP)
    repository.write(scaling=SCALING)
    stopped = repository.commit()
    assert stopped.returncode == 1
    single, whole = stopped.stdout.split("amplint (whole project)")
    assert "Passed" in single and "Failed" not in single
    assert "Failed" in whole and "loop.py:10:9: AMP201" in whole


@pytest.mark.slow
def test_the_hook_for_the_project_takes_what_was_mended_out_of_the_baseline(repository, start):
    start("amplint-project", train=CLIPPED)
    repository.run(sys.executable, "-m", "amplint", "check", "--write-baseline", ".")
    repository.write(train=CLIPPED + "\n\nMORE = 1\n")
    assert repository.commit().returncode == 0
    repository.write(train=MENDED)
    stopped = repository.commit()
    assert stopped.returncode == 1 and "files were modified by this hook" in stopped.stdout
    assert "Updated amplint-baseline.json: 1 finding is gone." in stopped.stdout
    assert repository.commit().returncode == 0


@pytest.mark.slow
def test_findings_in_the_baseline_stop_no_commit_and_new_ones_do(repository, start):
    start("amplint", old=CUDA_ONLY)
    repository.run(sys.executable, "-m", "amplint", "check", "--write-baseline", ".")
    repository.write(old=CUDA_ONLY + "\n\nMORE = 1\n")
    assert repository.commit().returncode == 0
    repository.write(new=CUDA_ONLY)
    stopped = repository.commit()
    assert stopped.returncode == 1 and "new.py:2:28: AMP101" in stopped.stdout
    assert "old.py" not in stopped.stdout


@pytest.mark.parametrize("name", ["amplint", "amplint-fix", "amplint-project"])
def test_a_hook_loads_no_more_than_the_gate_needs_for_files_with_nothing_to_look_at(
    name, repository, manifest
):
    repository.write(plain="import os\n\n\ndef main(path):\n    return os.listdir(path)\n")
    command = [*manifest[name]["entry"].split()[1:], "plain.py"]
    code = f"from amplint.cli import main\ntry:\n    main({command!r})\nexcept SystemExit as end:\n    print(end.code)"
    code += "\nimport sys\nprint(*sys.modules)"
    code_of_exit, loaded = repository.run(sys.executable, "-c", code).stdout.splitlines()[-2:]
    assert code_of_exit in ("0", "None")
    packages = {module.split(".")[0] for module in loaded.split()}
    assert packages.isdisjoint({"libcst", "rich", "jinja2", "torch", "multiprocessing"})


def test_the_manifest_is_valid(repository):
    repository.pre_commit("validate-manifest", str(ROOT / ".pre-commit-hooks.yaml"))


def test_each_hook_runs_in_one_process_at_a_time(manifest):
    assert manifest.keys() == {"amplint", "amplint-fix", "amplint-project"}
    assert all(hook["require_serial"] for hook in manifest.values())
    assert [name for name, hook in manifest.items() if not hook.get("pass_filenames", True)] == [
        "amplint-project"
    ]
