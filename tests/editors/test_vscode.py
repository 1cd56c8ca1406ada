"""VS Code (code-server, in a headless browser) with the packaged extension.

Needs `npm ci && npm run package` in editors/vscode, and code-server, node and chromium on the PATH. With the
environment variable SCREENSHOTS, pictures are left in that folder.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager

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
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.startupEditor": "none",
}


@contextmanager
def code_server(environment, home, project):
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
    settings.write_text(json.dumps(SETTINGS))
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


def test_the_scenario(environment, project, tmp_path):
    if not (EXTENSION / "node_modules" / "playwright-core").is_dir():
        pytest.skip("no playwright-core: npm ci, in editors/vscode")
    node, browser = program("node"), program("chromium", "chromium-browser", "google-chrome")
    seen_file = tmp_path / "seen.json"
    home = tmp_path / "code"
    with code_server(environment, home, project) as address:
        subprocess.run(
            [node, str(EXTENSION / "test" / "scenario.mjs")],
            env={
                **environment,
                "URL": address,
                "PROJECT": str(project),
                "SEEN": str(seen_file),
                "CHROMIUM": browser,
            },
            check=True,
            timeout=300,
        )
    seen = json.loads(seen_file.read_text())
    is_as_it_should_be(seen)
    assert seen["squiggles"] >= 1
    assert seen["status"].strip() == "amplint 5"
    clip = next(each for each in seen["problems"] if "AMP201" in each)
    assert "still multiplied by the loss scale" in clip and "[Ln 18, Col 9]" in clip
    assert any("AMP101" in each for each in seen["problems"])
    assert any("logitsfloat16 (autocast)" in each for each in seen["hints"])
    assert "torch.autocast(AMP_DEVICE" in seen["preview"]
    assert seen["after_port"] == seen["after_fix_all"]
    assert seen["editors_after_port"] == 1
