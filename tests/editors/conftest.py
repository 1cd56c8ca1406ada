"""What real editors need to meet the server as a user's do: a project, `amplint` on the PATH, the documented set-up."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(__file__).parent / "sample"


@pytest.fixture
def project(tmp_path):
    """A copy of the sample, to be edited."""
    folder = tmp_path / "project"
    shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    (folder / "pyproject.toml").write_text("[tool.amplint]\n")
    return folder


@pytest.fixture
def environment(tmp_path):
    """An environment of a user who has installed nothing but this amplint."""
    programs = tmp_path / "bin"
    programs.mkdir()
    command = programs / "amplint"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m amplint "$@"\n')
    command.chmod(0o755)
    home = tmp_path / "home"
    (home / ".config").mkdir(parents=True)
    # What editors start in a login shell asks this, too.
    (home / ".profile").write_text(f"PATH={shlex.quote(str(programs))}:$PATH\n")
    given = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return {
        **given,
        "HOME": str(home),
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "rules")]),
    }


def documented(language: str) -> list[str]:
    """The blocks of code in a language in docs/editors.md: what is tested is what users are told."""
    text = (ROOT / "docs" / "editors.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def program(*names: str) -> str:
    """The path of an editor, from PATH or from beside the Python that runs the tests; skips without it."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    for name in names:
        if (found := shutil.which(name, path=beside)) is not None:
            return found
    pytest.skip(f"no {' or '.join(names)} here")
