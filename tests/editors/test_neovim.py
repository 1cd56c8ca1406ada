"""Neovim, set up as docs/editors.md says, with the server."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

from .conftest import documented, program
from .scenario import is_as_it_should_be

pytestmark = pytest.mark.slow


def in_terminal(command, environment, folder):
    """Run a program in a terminal of 120 columns and 40 lines, since Neovim draws only what can be seen."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    with subprocess.Popen(
        command, stdin=its, stdout=its, stderr=its, env=environment, cwd=folder, start_new_session=True
    ) as process:
        os.close(its)
        deadline = time.monotonic() + 150
        try:
            while process.poll() is None and time.monotonic() < deadline:
                if select.select([ours], [], [], 0.2)[0]:
                    os.read(ours, 65536)
        except OSError:  # the terminal was closed: the program has ended
            pass
        finally:
            if process.poll() is None and time.monotonic() >= deadline:
                process.kill()
            os.close(ours)


@pytest.fixture
def neovim(environment):
    """Run Neovim, set up, with a file and a script."""
    nvim = program("nvim")
    version = subprocess.run([nvim, "--version"], capture_output=True, text=True, check=True).stdout.split()[
        1
    ]
    if tuple(int(part) for part in version.lstrip("v").split(".")[:2]) < (0, 11):
        pytest.skip(f"Neovim {version} has no vim.lsp.config")
    server, start, on_save = documented("lua")
    configuration = Path(environment["HOME"], ".config", "nvim")
    (configuration / "lsp").mkdir(parents=True)
    (configuration / "lsp" / "amplint.lua").write_text(server)
    (configuration / "init.lua").write_text(start + on_save)

    def run(script, file, seen):
        in_terminal(
            [nvim, file.name, "-c", f"luafile {script}"],
            {**environment, "SEEN": str(seen), "TERM": "xterm-256color"},
            file.parent,
        )
        return json.loads(seen.read_text())

    return run


def test_the_scenario(neovim, project, tmp_path):
    seen = neovim(Path(__file__).with_name("neovim.lua"), project / "train.py", tmp_path / "seen.json")
    is_as_it_should_be(seen)
    assert seen["root"] == str(project)
    assert seen["pulls"]
    found = {(each["code"], each["line"], each["severity"]) for each in seen["diagnostics"]}
    assert found >= {("AMP102", 5, "WARN"), ("AMP101", 5, "WARN"), ("AMP201", 18, "ERROR")}
    (clip,) = [each for each in seen["diagnostics"] if each["code"] == "AMP201"]
    assert clip["text"] == "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    assert "still multiplied by the loss scale" in clip["message"]
    assert {"line": 18, "highlight": "DiagnosticUnderlineError"} in seen["squiggles"]

    assert {"line": 15, "label": "float16 (autocast)"} in seen["hints"]
    shown = "\n".join(seen["screen"])
    assert "logits float16 (autocast) = model(images)" in shown
    assert "clip_grad_norm_ acts on gradients" in shown

    assert [each["code"] for each in seen["left"]] == ["AMP201"]


def test_everything_safe_is_fixed_before_a_file_is_saved(neovim, project, tmp_path):
    script = tmp_path / "save.lua"
    script.write_text(
        "vim.wait(20000, function() return #vim.diagnostic.get(0) > 0 end, 20)\n"
        "vim.cmd('silent write')\n"
        "vim.fn.writefile({ vim.json.encode({ modified = vim.bo.modified }) }, vim.env.SEEN)\n"
        "vim.cmd('qall!')\n"
    )
    seen = neovim(script, project / "train.py", tmp_path / "seen.json")
    assert seen == {"modified": False}
    text = (project / "train.py").read_text()
    assert "torch.cuda.amp" not in text
    assert "torch.autocast(" in text
