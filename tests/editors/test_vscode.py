"""VS Code (code-server, in a headless browser) with the packaged extension.

Needs `npm ci && npm run package` in editors/vscode, and code-server, node and chromium on the PATH. With the
environment variable SCREENSHOTS, pictures are left in that folder.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from .conftest import ROOT, program
from .scenario import is_as_it_should_be

pytestmark = pytest.mark.slow

EXTENSION = ROOT / "editors" / "vscode"
SETTINGS = {
    "amplint.inlayHints": True,
    "chat.disableAIFeatures": True,
    "editor.minimap.enabled": False,
    "extensions.autoCheckUpdates": False,
    "extensions.autoUpdate": False,
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "workbench.editorAssociations": {"*.ipynb": "jupyter-notebook"},
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.startupEditor": "none",
}


@contextmanager
def code_server(environment, home, project, more):
    """The address of a code-server that has the extension and shows the project."""
    package = EXTENSION / "dist" / "amplint.vsix"
    if not package.exists():
        pytest.skip("the extension has not been packaged: npm run package, in editors/vscode")
    command = [
        program("code-server"),
        f"--user-data-dir={home / 'data'}",
        f"--extensions-dir={home / 'extensions'}",
    ]
    settings = home / "data" / "User" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({**SETTINGS, **more}))
    subprocess.run(
        [*command, "--install-extension", str(package)],
        env=environment,
        check=True,
        capture_output=True,
        timeout=120,
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    quiet = ["--auth=none", "--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, *quiet, f"--bind-addr={address}", str(project)],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_for(f"http://{address}/healthz", process)
            yield f"http://{address}/?folder={project}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=30)


def wait_for(address, process):
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail("code-server did not start")


@pytest.fixture
def play(environment, project, tmp_path):
    """Let a script of the extension's tests use VS Code; gives what was seen."""
    if not (EXTENSION / "node_modules" / "playwright-core").is_dir():
        pytest.skip("no playwright-core: npm ci, in editors/vscode")
    node, browser = program("node"), program("chromium", "chromium-browser", "google-chrome")
    seen = tmp_path / "seen.json"

    def run(script, settings=None):
        with code_server(environment, tmp_path / "code", project, settings or {}) as address:
            of_driver = {"URL": address, "PROJECT": str(project), "SEEN": str(seen), "CHROMIUM": browser}
            subprocess.run(
                [node, str(EXTENSION / "test" / script)],
                env={**environment, **of_driver},
                check=True,
                timeout=300,
            )
        return json.loads(seen.read_text())

    return run


def test_the_scenario(play):
    seen = play("scenario.mjs")
    is_as_it_should_be(seen)
    assert seen["squiggles"] >= 1
    assert seen["status"] == "amplint 5"
    clip = next(each for each in seen["problems"] if "AMP201" in each)
    assert "still multiplied by the loss scale" in clip and "[Ln 18, Col 9]" in clip
    assert any("AMP101" in each for each in seen["problems"])
    assert any("logitsfloat16 (autocast)" in each for each in seen["hints"])
    assert "torch.autocast(AMP_DEVICE" in seen["preview"]
    assert seen["after_port"] == seen["after_fix_all"]
    assert seen["editors_after_port"] == 1


def test_commands_and_fixes_on_saving(play, project, environment):
    """With an amplint that is in the environment of the project only."""
    (project / "other.py").write_text("import torch  # more\n\nwith torch.cuda.amp.autocast():\n    pass\n")
    amplint = Path(environment["PATH"].split(os.pathsep)[0], "amplint")
    python = project / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    amplint.unlink()
    seen = play("commands.mjs", {"editor.codeActionsOnSave": {"source.fixAll.amplint": "explicit"}})
    assert "problem" not in seen, seen["problem"]
    assert "float16" in seen["explained"]
    assert seen["said"] == "amplint: 6 findings in 2 files."
    assert seen["other"] == "1"
    assert seen["opened"] == "amplint 1"  # not once more when it is open
    assert "torch.autocast(" in (project / "other.py").read_text()


@pytest.fixture
def notebook(project):
    """The sample as a notebook in the project."""
    sample = (project / "train.py").read_text().partition("\n\n\ndef train")
    body = textwrap.dedent(sample[2].partition("-> None:\n")[2])
    made, trained = body.split("for _ in", 1)
    sources = [sample[0], "%matplotlib inline\n" + made.rstrip(), "for _ in" + trained.rstrip()]
    cells = [{"cell_type": "markdown", "metadata": {}, "source": ["# Training"]}]
    for number, source in enumerate(sources, 1):
        rows = source.splitlines(keepends=True)
        outputs = [{"name": "stdout", "output_type": "stream", "text": ["done\n"]}] if number == 3 else []
        cells.append(
            {
                "cell_type": "code",
                "execution_count": number,
                "metadata": {},
                "outputs": outputs,
                "source": rows,
            }
        )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    made = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}
    (project / "train.ipynb").write_text(json.dumps(made, indent=1) + "\n")
    return made


def sources_of(text):
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"]]


def test_a_notebook(play, notebook):
    """Its cells are checked as one module, and a fix changes the cell that it is about."""
    seen = play("notebook.mjs")
    assert "problem" not in seen, seen["problem"]
    clip = next(each for each in seen["problems"] if "AMP201" in each)
    assert "still multiplied by the loss scale" in clip
    assert "the loss is scaled here by scaler" in seen["hover"]
    before, fixed, undone, all_fixed = (
        sources_of(seen[key]) for key in ("before", "after_fix", "after_undo", "after_fix_all")
    )
    assert undone == before
    assert fixed[:3] == before[:3]
    assert fixed[3] == before[3].replace("    nn.utils", "    scaler.unscale_(optimizer)\n    nn.utils", 1)
    assert "torch.cuda.amp" not in "".join(all_fixed) and "unscale_" not in "".join(all_fixed)
    assert "%matplotlib inline\n" in all_fixed[2]
    outputs = [json.loads(seen[key])["cells"][3]["outputs"] for key in ("before", "after_fix_all")]
    assert outputs[0] == outputs[1] == notebook["cells"][3]["outputs"]


def test_a_notebook_is_fixed_on_saving(play, notebook):
    on_saving = {"notebook.source.fixAll.amplint": "explicit"}
    seen = play("notebook_saved.mjs", {"notebook.codeActionsOnSave": on_saving})
    assert "problem" not in seen, seen["problem"]
    saved = sources_of(seen["saved"])
    assert "torch.accelerator" in saved[1] and "# saved" in saved[2] and len(saved) == len(notebook["cells"])
