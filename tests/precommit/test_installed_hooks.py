"""The hooks as people get them: pre-commit installs them from a repository, with what PyPI has."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from amplint import __version__

from .conftest import ROOT, Repository
from .test_hooks import CLIPPED, CUDA_ONLY, MENDED

pytest.importorskip("pre_commit", reason="pre-commit is not installed")
pytestmark = pytest.mark.slow

TAG = f"v{__version__}"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a tag that has this checkout in it."""
    folder = tmp_path_factory.mktemp("published")
    repository = Repository(folder / "amplint", folder / "home")
    leave_out = shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, repository.path, ignore=leave_out, dirs_exist_ok=True)
    assert repository.commit().returncode == 0
    repository.run("git", "tag", TAG)
    return repository.path


@pytest.fixture
def project(tmp_path: Path) -> Repository:
    """A repository that finds no amplint but the one that pre-commit installs."""
    project = Repository(tmp_path / "project", tmp_path / "home")
    del project.environment["PYTHONPATH"]
    return project


def test_a_tagged_repository_stops_fixes_and_passes(project, published):
    hooks = [{"id": name} for name in ("amplint-fix", "amplint", "amplint-project")]
    config = {"repos": [{"repo": str(published), "rev": TAG, "hooks": hooks}]}
    (project.path / ".pre-commit-config.yaml").write_text(json.dumps(config))
    project.pre_commit("install")
    project.write(train=CUDA_ONLY)

    stopped = project.commit()
    assert stopped.returncode == 1 and project.commits() == 0
    assert "files were modified by this hook" in stopped.stdout
    assert "torch.autocast(AMP_DEVICE" in project.read("train")

    passed = project.commit()
    assert passed.returncode == 0, passed.stdout
    assert passed.stdout.count("Passed") == 3 and project.commits() == 1

    project.write(train=CLIPPED)
    assert project.commit().stdout.count("AMP201 clip-before-unscale") == 3
    project.write(train=MENDED)
    assert project.commit().returncode == 0


def test_the_hooks_can_be_tried_without_a_configuration(project, published):
    project.write(train=CUDA_ONLY)
    project.run("git", "add", "--all")
    tried = project.pre_commit("try-repo", str(published), "amplint", "--all-files", check=False)
    assert tried.returncode == 1 and "train.py:2:28: AMP101 cuda-amp-autocast" in tried.stdout
    assert project.read("train") == CUDA_ONLY


def test_autoupdate_finds_the_newest_tag(project, published):
    config = project.path / ".pre-commit-config.yaml"
    config.write_text(f"repos:\n- repo: {published}\n  rev: old\n  hooks:\n  - id: amplint\n")
    project.pre_commit("autoupdate")
    assert f"rev: {TAG}\n" in config.read_text()
