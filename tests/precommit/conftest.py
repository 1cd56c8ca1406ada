"""A throw-away git repository whose commits go through pre-commit."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Variables of the surrounding run that would change what git, pre-commit or amplint do.
_FOREIGN = ("GIT_", "PRE_COMMIT", "SKIP", "CI", "GITHUB_", "GITLAB_", "PYTHONDONTWRITEBYTECODE")


class Repository:
    """A git repository in which `commit` does what somebody does at a prompt: stage everything, commit."""

    def __init__(self, path: Path, home: Path) -> None:
        self.path = path
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)
        } | {
            "PRE_COMMIT_HOME": str(home),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "rules"))),
            # modules are compiled once, and not for each commit
            "PYTHONPYCACHEPREFIX": str(home.parent.parent / "bytecode"),
        }
        path.mkdir()
        self.run("git", "init", "--quiet")
        self.run("git", "config", "user.name", "n")
        self.run("git", "config", "user.email", "n@example.org")

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program in the repository; its stderr is part of its stdout."""
        done = subprocess.run(
            command,
            cwd=self.path,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout
        return done

    def pre_commit(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run pre-commit in the repository."""
        return self.run(sys.executable, "-m", "pre_commit", *arguments, check=check)

    def write(self, **files: str) -> None:
        """Write Python files, named without their suffix."""
        for name, text in files.items():
            (self.path / f"{name}.py").write_text(text)

    def read(self, name: str) -> str:
        """The text of a Python file, named without its suffix."""
        return (self.path / f"{name}.py").read_text()

    def commit(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Stage everything and commit; return code 1 when a hook stops it."""
        self.run("git", "add", "--all")
        return self.run("git", "commit", "--message", "m", *options, check=False)

    def commits(self) -> int:
        """How many commits there are."""
        return int(self.run("git", "rev-list", "--count", "--all").stdout)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "project", tmp_path / "home")


@pytest.fixture(scope="session")
def manifest() -> dict[str, dict[str, Any]]:
    """The hooks that this repository offers, by id."""
    yaml = pytest.importorskip("yaml", reason="pre-commit is not installed")
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    return {hook["id"]: hook for hook in hooks}


@pytest.fixture
def install(repository: Repository, manifest: dict[str, dict[str, Any]]) -> Callable[..., None]:
    """Install hooks of the manifest as they are, but with the amplint under test instead of one from PyPI."""
    import json

    def with_hooks(*ids: str) -> None:
        hooks = []
        for name in ids:
            hook = dict(manifest[name]) | {"language": "system"}
            program, *arguments = shlex.split(hook["entry"])
            assert program == "amplint"
            hook["entry"] = shlex.join([sys.executable, "-m", "amplint", *arguments])
            del hook["minimum_pre_commit_version"]  # of a repository, not of a hook of one's own
            hooks.append(hook)
        config = {"repos": [{"repo": "local", "hooks": hooks}]}
        (repository.path / ".pre-commit-config.yaml").write_text(json.dumps(config))  # YAML has all of JSON
        repository.pre_commit("install")

    return with_hooks
