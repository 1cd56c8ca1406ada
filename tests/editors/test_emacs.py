"""Emacs with eglot, set up as docs/editors.md says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .conftest import documented, program
from .scenario import is_as_it_should_be

pytestmark = pytest.mark.slow


def test_the_scenario(environment, project, tmp_path):
    emacs = program("emacs")
    start = ["--batch", "--eval", "(package-initialize)"]  # as an Emacs that is not in batch does by itself
    if subprocess.run([emacs, *start, "--eval", "(require 'eglot)"], capture_output=True).returncode:
        pytest.skip("this Emacs has no eglot")
    (set_up,) = documented("elisp")
    init = tmp_path / "init.el"
    init.write_text(set_up)
    seen_file = tmp_path / "seen.json"
    scenario = Path(__file__).with_name("emacs.el")
    subprocess.run(
        [emacs, *start, "-l", str(init), "-l", str(scenario)],
        env={**environment, "SEEN": str(seen_file)},
        cwd=project,
        timeout=200,
        check=True,
        capture_output=True,
    )
    seen = json.loads(seen_file.read_text())
    is_as_it_should_be(seen)
    found = {(each["at"], each["text"]) for each in seen["diagnostics"]}
    clip = next(text for at, text in found if at == "nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
    assert "still multiplied by the loss scale" in clip
    assert {at for at, _ in found} >= {"GradScaler", "autocast"}
