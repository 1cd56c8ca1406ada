"""What is in the baseline of a project does not show in the editor."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import pytest_asyncio
from lsprotocol import types as t

from .conftest import ROOT, capabilities, new_editor
from .test_methods import PORTS
from .test_pull import CLIP

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def editor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "amplint.toml").write_text("")
    (folder / "ports.py").write_text(PORTS)
    (folder / "clip.py").write_text(CLIP)
    run = "from amplint.cli import main; main()"
    path = os.pathsep.join([str(ROOT), str(ROOT / "rules")])
    subprocess.run(
        [sys.executable, "-c", run, "check", ".", "--write-baseline"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        check=True,
    )
    assert (folder / "amplint-baseline.json").exists()
    editor = new_editor(folder)
    await editor.start(capabilities(), initialization_options={"codeLens": True})
    yield editor
    await editor.stop()


async def test_known_findings_are_left_out_and_new_ones_shown(editor):
    uri = editor.open("ports.py", PORTS)
    assert await editor.codes(uri) == []
    editor.replace(uri, "\n# moved down\n" + PORTS + "\nbackup = torch.cuda.amp.GradScaler()\n")
    (new,) = (await editor.pull(uri)).items
    assert (new.code, new.range.start.line) == ("AMP102", 12)


async def test_a_first_look_leaves_known_findings_out(editor):
    uri = editor.open("clip.py", CLIP)
    assert await editor.codes(uri) == []
    editor.edit(uri, (11, 0), (11, 0), "        print(loss)\n")
    assert await editor.codes(uri) == []
    editor.edit(uri, (15, 0), (15, 0), "        scaler.update()\n")
    assert await editor.codes(uri) == ["AMP211"]
    await editor.actions(uri)
    assert await editor.codes(uri) == ["AMP211"]


async def test_the_workspace_is_without_known_findings(editor):
    (editor.folder / "new.py").write_text("import torch\n\nscaler = torch.cuda.amp.GradScaler()\n")
    changed = [t.FileEvent(editor.uri("new.py"), t.FileChangeType.Created)]
    editor.client.workspace_did_change_watched_files(t.DidChangeWatchedFilesParams(changed))
    found = await editor.client.workspace_diagnostic_async(t.WorkspaceDiagnosticParams([]))
    assert {each.uri for each in found.items if each.items} >= {editor.uri("new.py")}
    closed = editor.uri("ports.py")
    editor.close(closed)
    found = await editor.client.workspace_diagnostic_async(t.WorkspaceDiagnosticParams([]))
    assert not [each for each in found.items if each.uri == closed and each.items]


async def test_a_code_lens_still_says_what_is_wrong(editor):
    uri = editor.open("clip.py", CLIP)
    asked = t.CodeLensParams(t.TextDocumentIdentifier(uri))
    (lens,) = await editor.client.text_document_code_lens_async(asked)
    assert lens.command.title == "clip before unscale"


async def test_an_editor_may_show_known_findings(editor):
    uri = editor.open("ports.py", PORTS)
    settings = {"amplint": {"baseline": False, "codeLens": True}}
    editor.client.workspace_did_change_configuration(t.DidChangeConfigurationParams(settings))
    assert await editor.codes(uri) == ["AMP101", "AMP101", "AMP102"]
    settings["amplint"]["baseline"] = True
    editor.client.workspace_did_change_configuration(t.DidChangeConfigurationParams(settings))
    assert await editor.codes(uri) == []


async def test_a_baseline_that_changes_or_breaks_is_read_again(editor):
    uri = editor.open("ports.py", PORTS)
    assert await editor.codes(uri) == []
    file = editor.folder / "amplint-baseline.json"
    changed = [t.FileEvent(file.as_uri(), t.FileChangeType.Changed)]
    file.write_text('[\n{"amplint-baseline": 1}\n]\n')
    editor.client.workspace_did_change_watched_files(t.DidChangeWatchedFilesParams(changed))
    assert await editor.codes(uri) == ["AMP101", "AMP101", "AMP102"]
    file.write_text("[")
    editor.client.workspace_did_change_watched_files(t.DidChangeWatchedFilesParams(changed))
    assert await editor.codes(uri) == ["AMP101", "AMP101", "AMP102"]
    assert any("amplint-baseline.json: not valid JSON" in each.message for each in editor.client.messages)
