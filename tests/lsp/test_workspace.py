"""Several folders with settings of their own, scans that are stopped, and a worker process that dies."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
import pytest_asyncio
from lsprotocol import types as t

from .conftest import capabilities, new_editor
from .test_methods import PORTS
from .test_pull import CLIP

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def editor(tmp_path_factory):
    """An editor with two folders, which says other things of the second one."""
    root = tmp_path_factory.mktemp("roots")
    for name, configuration in (
        ("one", '[tool.amplint]\nignore = ["AMP101"]\n'),
        ("two", "[tool.amplint]\n"),
    ):
        (root / name / "inner").mkdir(parents=True)
        (root / name / "pyproject.toml").write_text(configuration)
        (root / name / "ports.py").write_text(PORTS)
    (root / "two" / "inner" / "amplint.toml").write_text('ignore = ["AMP102"]\n')
    editor = new_editor(root)
    editor.settings = {}
    editor.client.protocol.fm.features.pop(t.WORKSPACE_CONFIGURATION)

    @editor.client.feature(t.WORKSPACE_CONFIGURATION)
    def configuration(params: t.ConfigurationParams) -> list[dict[str, object] | None]:
        assert {item.section for item in params.items} == {"amplint"}
        return [editor.settings.get((item.scope_uri or "").rpartition("/")[2]) for item in params.items]

    can = capabilities()
    can.workspace.configuration = True
    folders = [t.WorkspaceFolder((root / name).as_uri(), name) for name in ("one", "two")]
    await editor.start(can, workspace_folders=folders)
    yield editor
    await editor.stop()


async def configure(editor, **settings: object) -> None:
    """Change what the editor says of its folders ("" for all of them), and wait until that has been taken in."""
    before = editor.refreshes
    editor.settings = settings
    editor.client.workspace_did_change_configuration(t.DidChangeConfigurationParams(None))
    await editor.until(lambda: editor.refreshes > before)


async def test_each_folder_has_its_configuration_and_so_has_one_inside(editor):
    assert await editor.codes(editor.open("one/ports.py", PORTS)) == ["AMP102"]
    assert await editor.codes(editor.open("two/ports.py", PORTS)) == ["AMP101", "AMP101", "AMP102"]
    assert await editor.codes(editor.open("two/inner/more.py", PORTS)) == ["AMP101", "AMP101"]


async def test_each_folder_may_have_settings_of_its_own_in_the_editor(editor):
    one, two = editor.open("one/a.py", PORTS), editor.open("two/a.py", PORTS)
    await configure(editor, **{"": {"select": ["AMP1"]}, "two": {"select": ["AMP101"]}})
    assert await editor.codes(one) == ["AMP102"]
    assert await editor.codes(two) == ["AMP101", "AMP101"]
    run = editor.client.workspace_execute_command_async
    shown = await run(t.ExecuteCommandParams("amplint.showSettings", [two]))
    assert (Path(shown["folder"]).name, list(shown["select"])) == ("two", ["AMP101"])
    await configure(editor, **{"": {"select": ["AMP1"]}})
    assert await editor.codes(two) == ["AMP101", "AMP101", "AMP102"]
    await configure(editor, **{"": {"debounce": 150}})


async def test_names_in_reports_are_relative_to_the_folder(editor):
    uri = editor.open("two/inner/clip.py", CLIP)
    clip = next(d for d in (await editor.pull(uri)).items if d.code == "AMP201")
    assert {each.location.uri for each in clip.related_information} == {uri}


async def test_a_folder_may_come_and_go(editor):
    third = editor.folder / "three"
    third.mkdir()
    (third / "amplint.toml").write_text('select = ["AMP102"]\n')
    inside = editor.open("three/ports.py", PORTS)
    run = editor.client.workspace_execute_command_async
    show = t.ExecuteCommandParams("amplint.showSettings", [editor.open("three/deep/a.py", PORTS)])
    assert Path((await run(show))["folder"]).name == "deep"  # of no folder of the editor's
    folder = t.WorkspaceFolder(third.as_uri(), "three")
    for added, removed, name in (([folder], [], "three"), ([], [folder], "deep")):
        before = editor.refreshes
        event = t.WorkspaceFoldersChangeEvent(added=added, removed=removed)
        editor.client.workspace_did_change_workspace_folders(t.DidChangeWorkspaceFoldersParams(event))
        await editor.until(lambda before=before: editor.refreshes > before)
        assert Path((await run(show))["folder"]).name == name
        assert await editor.codes(inside) == ["AMP102"]


async def test_a_document_of_another_scheme_is_no_file_of_the_project(editor):
    """Such as the text of an older revision, which some editors open beside the file."""
    other = "revision:///old/train.py"
    editor.client.text_document_did_open(
        t.DidOpenTextDocumentParams(t.TextDocumentItem(other, "python", 1, CLIP))
    )
    (found,) = [d for d in (await editor.pull(other)).items if d.code == "AMP201"]
    assert {each.location.uri for each in found.related_information} == {other}


async def test_a_scan_of_all_folders_stops_when_the_user_says_so(editor):
    for number in range(30):
        (editor.folder / "two" / f"many_{number}.py").write_text(CLIP)
    changed = [
        t.FileEvent(editor.uri(f"two/many_{number}.py"), t.FileChangeType.Created) for number in range(30)
    ]
    editor.client.workspace_did_change_watched_files(t.DidChangeWatchedFilesParams(changed))
    run = editor.client.workspace_execute_command_async
    whole = await run(t.ExecuteCommandParams("amplint.checkWorkspace", []))
    assert whole["files"] > 30
    known = set(editor.client.progress_reports)
    published = sum(map(len, editor.published.values()))
    scan = asyncio.ensure_future(run(t.ExecuteCommandParams("amplint.checkWorkspace", [])))

    async def token() -> str:
        while not (new := set(editor.client.progress_reports) - known):
            await asyncio.sleep(0.005)
        return new.pop()

    cancelled = await asyncio.wait_for(token(), 30)
    editor.client.window_work_done_progress_cancel(t.WorkDoneProgressCancelParams(cancelled))
    assert await asyncio.wait_for(scan, 30) is None
    reports = editor.client.progress_reports[cancelled]
    assert reports[-1].kind == "end"
    assert reports[-2].percentage < 100  # of the folder that it was at
    assert sum(map(len, editor.published.values())) == published  # nothing of half a scan is shown


def workers(process: int) -> list[int]:
    """The processes that a server started, without Python's own helper."""
    listed = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    found = [int(number) for number in listed]
    return [n for n in found if b"resource_tracker" not in Path(f"/proc/{n}/cmdline").read_bytes()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the worker below /proc")
async def test_when_the_worker_dies_a_new_one_answers_and_nothing_stale_is_shown(editor):
    uri = editor.open("two/dies.py", PORTS)
    assert await editor.codes(uri) == ["AMP101", "AMP101", "AMP102"]
    before = workers(editor.client._server.pid)
    assert before
    for process in before:
        os.kill(process, signal.SIGKILL)
    editor.replace(uri, "import torch\n\nscaler = torch.cuda.amp.GradScaler()\n")
    assert await editor.codes(uri) == ["AMP102"]
    assert await editor.actions(uri)
    editor.replace(uri, PORTS)
    assert await editor.codes(uri) == ["AMP101", "AMP101", "AMP102"]
    assert not set(before) & set(workers(editor.client._server.pid))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the worker below /proc")
async def test_a_worker_that_dies_at_work_is_replaced_for_the_next_text(editor):
    long = "\n\n".join(CLIP.replace("train", f"train_{number}") for number in range(40))
    uri = editor.open("two/at_work.py", long)
    request = asyncio.ensure_future(editor.pull(uri))
    await asyncio.sleep(0.3)
    for process in workers(editor.client._server.pid):
        os.kill(process, signal.SIGKILL)
    answered = await asyncio.wait_for(request, 60)
    assert not answered.items or {str(d.code) for d in answered.items} >= {"AMP201"}
    editor.replace(uri, CLIP)
    assert "AMP201" in await editor.codes(uri)
