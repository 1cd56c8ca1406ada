"""Diagnostics that are pushed to clients that cannot ask for them."""

from __future__ import annotations

import pytest
import pytest_asyncio

from .conftest import capabilities, new_editor

pytestmark = pytest.mark.asyncio(loop_scope="module")

BAD = "import torch\n\nwith torch.cuda.amp.autocast():\n    pass\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def editor(tmp_path_factory):
    editor = new_editor(tmp_path_factory.mktemp("project"))
    await editor.start(capabilities(pull=False), initialization_options={"debounce": 1})
    yield editor
    await editor.stop()


async def test_an_opened_document_is_checked_without_being_asked(editor):
    uri = editor.open("opened.py", BAD)
    assert [d.code for d in await editor.pushed(uri)] == ["AMP101"]


async def test_results_follow_the_versions_of_the_document(editor):
    uri = editor.open("edited.py", BAD)
    await editor.pushed(uri)
    editor.edit(uri, (2, 0), (3, 8), "")
    assert await editor.pushed(uri) == []
    editor.edit(uri, (2, 0), (2, 0), "with torch.cuda.amp.autocast():\n    pass\n")
    assert [d.code for d in await editor.pushed(uri)] == ["AMP101"]
    versions = [p.version for p in editor.published[uri]]
    assert versions == sorted(versions)


async def test_closing_a_document_takes_its_diagnostics_away(editor):
    uri = editor.open("closed.py", BAD)
    await editor.pushed(uri)
    editor.close(uri)
    await editor.until(lambda: not editor.published[uri][-1].diagnostics)
