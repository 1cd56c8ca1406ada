"""The other methods: actions over a file, hints, lenses, commands, settings, several files."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio
from lsprotocol import types as t

from .conftest import capabilities, new_editor
from .test_pull import CLIP

pytestmark = pytest.mark.asyncio(loop_scope="module")

PORTS = """\
import torch

with torch.cuda.amp.autocast():
    pass

with torch.cuda.amp.autocast():
    pass

scaler = torch.cuda.amp.GradScaler()
"""
HALF = """\
import torch


def forward(linear, x: torch.Tensor):
    with torch.autocast("cuda", dtype=torch.float16):
        out = torch.nn.functional.linear(x, linear)
        total = out * 2
    return total
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def editor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "pyproject.toml").write_text("[tool.amplint]\n")
    (folder / "closed.py").write_text(PORTS)
    (folder / "fine.py").write_text("import torch\n")
    editor = new_editor(folder)
    editor.initialized = await editor.start(
        capabilities(), initialization_options={"inlayHints": True, "codeLens": True}
    )
    yield editor
    await editor.stop()


async def test_the_server_says_what_it_can_do(editor):
    can = editor.initialized.capabilities
    assert can.position_encoding == "utf-32"
    assert can.text_document_sync.change == t.TextDocumentSyncKind.Incremental
    assert can.diagnostic_provider.inter_file_dependencies
    assert can.diagnostic_provider.workspace_diagnostics
    assert can.code_action_provider.resolve_provider
    assert set(can.code_action_provider.code_action_kinds) == {
        "quickfix",
        "source.fixAll.amplint",
        "notebook.source.fixAll.amplint",
    }
    assert can.hover_provider and can.inlay_hint_provider and can.code_lens_provider
    assert "amplint.fixAll" in can.execute_command_provider.commands
    assert can.workspace.workspace_folders.supported


async def test_files_are_watched(editor):
    await editor.until(lambda: editor.registered)
    options = editor.registered[0].register_options
    watched = {each["globPattern"] for each in options["watchers"]}
    assert {"**/pyproject.toml", "**/amplint.toml", "**/*.py"} <= watched


async def test_fixing_all_of_a_rule_leaves_the_others(editor):
    uri = editor.open("rule.py", PORTS)
    first = (await editor.pull(uri)).items[0]
    title = "Fix all AMP101 (cuda-amp-autocast) in this file"
    (action,) = [each for each in await editor.actions(uri, first) if each.title == title]
    assert action.edit is None and action.command is None
    resolved = await editor.client.code_action_resolve_async(action)
    assert editor.applied(uri, resolved.edit).count("torch.autocast(") == 2
    assert "torch.cuda.amp.GradScaler" in editor.applied(uri, resolved.edit)


async def test_fixing_all_that_is_safe_makes_ports_and_no_repairs(editor):
    uri = editor.open("all.py", CLIP)
    (action,) = await editor.actions(uri, only=["source.fixAll"])
    assert action.kind == "source.fixAll.amplint"
    fixed = editor.applied(uri, (await editor.client.code_action_resolve_async(action)).edit)
    assert "cuda.amp" not in fixed
    assert "unscale_" not in fixed


async def test_only_the_kinds_that_the_client_asks_for_are_offered(editor):
    uri = editor.open("kinds.py", PORTS)
    first = (await editor.pull(uri)).items[0]
    assert {a.kind for a in await editor.actions(uri, first, only=["quickfix"])} == {"quickfix"}
    assert await editor.actions(uri, first, only=["source.organizeImports"]) == []
    assert {a.kind for a in await editor.actions(uri, first)} == {"quickfix", "source.fixAll.amplint"}


async def test_ignoring_writes_a_comment_with_a_reason(editor):
    uri = editor.open("ignore.py", PORTS)
    first = (await editor.pull(uri)).items[0]
    (action,) = [a for a in await editor.actions(uri, first) if a.title.startswith("Ignore")]
    text = editor.applied(uri, (await editor.client.code_action_resolve_async(action)).edit)
    assert "with torch.cuda.amp.autocast():  # amplint: ignore[AMP101] TODO: say why\n" in text
    editor.replace(uri, text)
    assert len(await editor.codes(uri)) == 2


async def test_commands_edit_through_the_client(editor):
    uri = editor.open("command.py", PORTS)
    finding = (await editor.pull(uri)).items[0]
    run = editor.client.workspace_execute_command_async
    editor.edits.clear()
    assert await run(t.ExecuteCommandParams("amplint.fixAll", [uri, "AMP101"]))
    assert await run(
        t.ExecuteCommandParams("amplint.ignore", [uri, finding.data["fingerprint"], "known to be slow"])
    )
    assert await run(t.ExecuteCommandParams("amplint.fixAll", [uri]))
    fixed, ignored, whole = (editor.applied(uri, each.edit) for each in editor.edits)
    assert "torch.cuda.amp" not in whole
    assert fixed.count("torch.autocast(") == 2
    assert "# amplint: ignore[AMP101] known to be slow\n" in ignored


async def test_a_reason_that_is_none_is_refused(editor):
    uri = editor.open("reason.py", PORTS)
    finding = (await editor.pull(uri)).items[0]
    run = editor.client.workspace_execute_command_async
    arguments = [uri, finding.data["fingerprint"], " "]
    assert await run(t.ExecuteCommandParams("amplint.ignore", arguments)) is False
    assert any("reason is empty" in each.message for each in editor.client.messages)


async def test_hovering_over_a_name_shows_its_dtype_and_the_region(editor):
    uri = editor.open("half.py", HALF)
    text = await editor.hover(uri, 6, 17)
    assert "`out`: `float16`" in text
    assert "autocast here: on, float16 (line 5)" in text


async def test_hovering_in_a_training_step_shows_where_the_scaler_stands(editor):
    uri = editor.open("stand.py", CLIP)
    text = await editor.hover(uri, 12, 8)
    assert "its gradients are scaled (backward on line 11)" in text


async def hints(editor, uri, last=100):
    span = t.Range(t.Position(0, 0), t.Position(last, 0))
    found = await editor.client.text_document_inlay_hint_async(
        t.InlayHintParams(t.TextDocumentIdentifier(uri), span)
    )
    return [(each.position.line, each.label) for each in found]


async def test_inlay_hints_show_what_autocast_makes_of_names_and_what_is_scaled(editor):
    assert await hints(editor, editor.open("hints.py", HALF)) == [
        (5, "float16 (autocast)"),
        (6, "float16 (autocast)"),
    ]
    assert await hints(editor, editor.open("scaled.py", CLIP)) == [(10, "scaled")]
    layer = HALF.replace("linear, x: torch.Tensor", "x: torch.Tensor").replace(
        "torch.nn.functional.linear(x, linear)", "torch.nn.Linear(8, 8)(x)"
    )
    assert await hints(editor, editor.open("layer.py", layer)) == [
        (5, "float16 (autocast)"),
        (6, "float16 (autocast)"),
    ]


async def test_inlay_hints_are_for_the_part_that_is_asked_for(editor):
    assert await hints(editor, editor.open("part.py", HALF), last=6) == [(5, "float16 (autocast)")]


async def lenses(editor, uri):
    found = await editor.client.text_document_code_lens_async(t.CodeLensParams(t.TextDocumentIdentifier(uri)))
    return [(each.range.start.line, each.command.title) for each in found]


async def test_a_code_lens_says_whether_a_training_step_is_right(editor):
    assert await lenses(editor, editor.open("lens.py", CLIP)) == [(12, "clip before unscale")]
    right = CLIP.replace(
        "        torch.nn.utils", "        scaler.unscale_(optimizer)\n        torch.nn.utils"
    )
    assert await lenses(editor, editor.open("right.py", right)) == [(13, "scaler protocol ok")]


async def test_the_flow_at_a_line_can_be_asked_for(editor):
    uri = editor.open("flow.py", CLIP)
    run = editor.client.workspace_execute_command_async
    assert "its gradients are scaled" in await run(t.ExecuteCommandParams("amplint.explainFlow", [uri, 12]))


async def test_the_settings_in_force_can_be_asked_for(editor):
    uri = editor.open("settings.py", CLIP)
    run = editor.client.workspace_execute_command_async
    shown = await run(t.ExecuteCommandParams("amplint.showSettings", [uri]))
    assert shown["root"] == str(editor.folder)
    assert shown["soc"] == "910B"


async def workspace(editor, previous=()):
    found = await editor.client.workspace_diagnostic_async(
        t.WorkspaceDiagnosticParams([t.PreviousResultId(*each) for each in previous])
    )
    return {each.uri: each for each in found.items}


async def test_the_workspace_is_checked_as_it_is_in_the_editor(editor):
    opened = editor.open("closed.py", PORTS.replace("scaler", "grad_scaler"))
    other = editor.open("other.py", PORTS)
    found = await workspace(editor)
    assert [d.code for d in found[other].items] == ["AMP101", "AMP101", "AMP102"]
    assert found[opened].version == 1
    assert editor.uri("fine.py") not in found
    again = await workspace(editor, [(opened, found[opened].result_id)])
    assert again[opened].kind == "unchanged"
    editor.close(opened)
    closed = await workspace(editor)
    assert closed[opened].version is None
    assert [d.code for d in closed[opened].items] == ["AMP101", "AMP101", "AMP102"]


async def test_checking_the_workspace_shows_its_progress(editor):
    before = set(editor.client.progress_reports)
    run = editor.client.workspace_execute_command_async
    counts = await run(t.ExecuteCommandParams("amplint.checkWorkspace", []))
    assert counts["files"] >= 2
    (token,) = set(editor.client.progress_reports) - before
    kinds = [each.kind for each in editor.client.progress_reports[token]]
    assert kinds[0] == "begin" and kinds[-1] == "end" and "report" in kinds


async def test_findings_of_the_workspace_are_not_shown_twice_when_a_file_is_opened(editor):
    await editor.client.workspace_execute_command_async(t.ExecuteCommandParams("amplint.checkWorkspace", []))
    shown = editor.published[editor.uri("closed.py")]
    await editor.until(lambda: shown[-1].diagnostics)
    uri = editor.open("closed.py", PORTS)
    await editor.until(lambda: not shown[-1].diagnostics)
    assert (await editor.pull(uri)).items
    editor.close(uri)


async def test_a_change_of_the_configuration_is_taken_over(editor):
    uri = editor.open("configured.py", PORTS)
    assert "AMP101" in await editor.codes(uri)
    before = editor.refreshes
    (editor.folder / "pyproject.toml").write_text('[tool.amplint]\nignore = ["AMP101"]\n')
    changed = [t.FileEvent(editor.uri("pyproject.toml"), t.FileChangeType.Changed)]
    editor.client.workspace_did_change_watched_files(t.DidChangeWatchedFilesParams(changed))
    await editor.until(lambda: editor.refreshes > before)
    assert await editor.codes(uri) == ["AMP102"]
    (editor.folder / "pyproject.toml").write_text("[tool.amplint]\n")
    editor.client.workspace_did_change_watched_files(t.DidChangeWatchedFilesParams(changed))
    assert "AMP101" in await editor.codes(uri)


async def test_a_broken_configuration_is_told_and_mended(editor):
    uri = editor.open("broken.py", PORTS)
    (editor.folder / "pyproject.toml").write_text("[tool.amplint]\nselekt = []\n")
    changed = [t.FileEvent(editor.uri("pyproject.toml"), t.FileChangeType.Changed)]
    editor.client.workspace_did_change_watched_files(t.DidChangeWatchedFilesParams(changed))
    assert await editor.codes(uri) == []
    assert any("selekt" in each.message for each in editor.client.messages)
    (editor.folder / "pyproject.toml").write_text("[tool.amplint]\n")
    editor.client.workspace_did_change_watched_files(t.DidChangeWatchedFilesParams(changed))
    assert await editor.codes(uri) != []


async def test_the_editor_can_set_what_is_checked(editor):
    uri = editor.open("chosen.py", PORTS)
    settings = {"settings": {"amplint": {"select": ["AMP102"], "inlayHints": True, "codeLens": True}}}
    editor.client.workspace_did_change_configuration(t.DidChangeConfigurationParams(settings["settings"]))
    assert await editor.codes(uri) == ["AMP102"]
    back = {"amplint": {"inlayHints": True, "codeLens": True}}
    editor.client.workspace_did_change_configuration(t.DidChangeConfigurationParams(back))
    assert "AMP101" in await editor.codes(uri)


async def test_findings_across_files_follow_what_is_not_saved(editor):
    helper = (
        "import torch\n\n\ndef clip(model):\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    )
    train = CLIP.replace("import torch\n", "import torch\nfrom clipping import clip\n").replace(
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "clip(model)"
    )
    lib = editor.open("clipping.py", helper)
    (editor.folder / "clipping.py").write_text(helper)
    uri = editor.open("trains.py", train)
    assert "AMP201" in await editor.codes(uri)
    before = editor.refreshes
    editor.replace(lib, "def clip(model):\n    print(model)\n")
    await editor.pull(lib)
    await editor.until(lambda: editor.refreshes > before)
    assert "AMP201" not in await editor.codes(uri)


async def test_a_request_that_was_cancelled_is_answered_as_such(editor):
    uri = editor.open("cancelled.py", "\n\n".join(CLIP.replace("train", f"train_{i}") for i in range(30)))
    request = asyncio.ensure_future(editor.pull(uri))
    await asyncio.sleep(0.05)
    (number,) = list(editor.client.protocol._request_futures)
    editor.client.cancel_request(t.CancelParams(number))
    with pytest.raises(Exception, match="cancel"):
        await request
    assert await editor.codes(uri) != []


async def test_while_a_file_cannot_be_parsed_what_was_found_elsewhere_stays(editor):
    uri = editor.open("typing.py", PORTS)
    await editor.pull(uri)
    editor.edit(uri, (0, 0), (0, 0), "import os\nx = (\n")
    found = (await editor.pull(uri)).items
    assert {str(d.code) for d in found} == {"AMP900", "AMP101", "AMP102"}
    assert [d.range.start.line for d in found if d.code == "AMP101"] == [4, 7]
    moved = next(d for d in found if d.code == "AMP101")
    assert [a.title for a in await editor.actions(uri, moved, only=["quickfix"])] == [
        "Ignore AMP101 here, with a reason"
    ]
