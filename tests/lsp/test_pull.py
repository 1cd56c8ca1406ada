"""Diagnostics that the client asks for, what can be done about them, and hovers."""

from __future__ import annotations

import pytest
import pytest_asyncio
from lsprotocol import types as t

from .conftest import capabilities, new_editor

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIP = """\
import torch
from torch.cuda.amp import GradScaler, autocast

scaler = GradScaler()


def train(model, optimizer, loader):
    for x in loader:
        with autocast():
            loss = model(x).float().mean()
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def editor(tmp_path_factory):
    editor = new_editor(tmp_path_factory.mktemp("project"))
    await editor.start(capabilities())
    yield editor
    await editor.stop()


async def test_a_finding_is_a_diagnostic_with_everything_that_an_editor_shows(editor):
    uri = editor.open("clip.py", CLIP)
    found = {str(d.code): d for d in (await editor.pull(uri)).items}
    clip = found["AMP201"]
    assert clip.range == t.Range(t.Position(11, 8), t.Position(11, 63))
    assert clip.severity == t.DiagnosticSeverity.Error
    assert clip.source == "amplint"
    assert clip.code_description.href.endswith("/rules/clip-before-unscale")
    steps = [(each.location.uri, each.location.range.start.line) for each in clip.related_information]
    assert (uri, 10) in steps
    assert list(found["AMP101"].tags) == [t.DiagnosticTag.Deprecated]
    assert clip.tags is None


async def test_what_did_not_change_is_not_sent_again(editor):
    uri = editor.open("same.py", CLIP)
    first = await editor.pull(uri)
    again = await editor.pull(uri, first.result_id)
    assert again.kind == "unchanged"
    editor.replace(uri, CLIP + "\n")
    assert (await editor.pull(uri, first.result_id)).kind == "full"


async def test_a_fix_is_offered_with_its_edit_and_mends_the_finding(editor):
    uri = editor.open("fix.py", CLIP)
    clip = next(d for d in (await editor.pull(uri)).items if d.code == "AMP201")
    fix = (await editor.actions(uri, clip))[0]
    assert fix.kind == "quickfix"
    assert fix.is_preferred
    mended = editor.applied(uri, fix.edit)
    assert "scaler.unscale_(optimizer)\n        torch.nn.utils.clip" in mended
    editor.replace(uri, mended)
    assert "AMP201" not in await editor.codes(uri)


async def test_hovering_over_a_finding_shows_its_trace_and_the_page_of_its_rule(editor):
    uri = editor.open("hover.py", CLIP)
    text = await editor.hover(uri, 11, 20)
    assert "clip-before-unscale" in text
    assert "line 11:" in text
    assert "## Why" in text
    assert await editor.hover(uri, 1, 0) == ""


@pytest.mark.parametrize("data", [{"rule": ["a"]}, {"rule": 3}, {"ignore": {}}, {"uri": 3}])
async def test_an_action_of_somebody_else_comes_back_as_it_is(editor, data):
    uri = editor.open("strange.py", CLIP)
    action = t.CodeAction(title="x", data={"uri": uri, **data})
    assert (await editor.client.code_action_resolve_async(action)).edit is None
