"""Notebooks: the cells are one module, and each shows what is found in it."""

from __future__ import annotations

import json

import attrs
import pytest
import pytest_asyncio
from lsprotocol import types as t

from .conftest import after, capabilities, new_editor

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETUP = "%matplotlib inline\nimport torch\nscaler = torch.cuda.amp.GradScaler()"
STEP = """\
!nvidia-smi
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).float().mean()
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()"""


class Notebook:
    """A notebook in an editor; cells are named by what they are called in their URIs."""

    def __init__(self, editor, name: str, cells: dict[str, str | None]) -> None:
        self.editor = editor
        self.uri = editor.uri(name)
        self.version = 1
        self.order = list(cells)
        self.texts = {cell: text for cell, text in cells.items() if text is not None}
        for cell in self.texts:
            editor.versions[self.cell(cell)] = 1
        editor.client.notebook_document_did_open(
            t.DidOpenNotebookDocumentParams(
                t.NotebookDocument(self.uri, "jupyter-notebook", 1, [self._cell(c) for c in cells]),
                [self._item(cell) for cell in self.texts],
            )
        )

    def cell(self, cell: str) -> str:
        """The URI of a cell."""
        return self.uri.replace("file:", "vscode-notebook-cell:") + f"#{cell}%3D"

    def _cell(self, cell: str) -> t.NotebookCell:
        kind = t.NotebookCellKind.Code if cell in self.texts else t.NotebookCellKind.Markup
        return t.NotebookCell(kind, self.cell(cell))

    def _item(self, cell: str) -> t.TextDocumentItem:
        return t.TextDocumentItem(self.cell(cell), "python", 1, self.texts[cell])

    def _change(self, change: t.NotebookDocumentCellChanges) -> None:
        self.version += 1
        self.editor.client.notebook_document_did_change(
            t.DidChangeNotebookDocumentParams(
                t.VersionedNotebookDocumentIdentifier(self.version, self.uri),
                t.NotebookDocumentChangeEvent(cells=change),
            )
        )

    def write(self, cell: str, text: str) -> None:
        """Replace the text of a cell."""
        uri = self.cell(cell)
        self.texts[cell] = text
        self.editor.versions[uri] += 1
        content = t.NotebookDocumentCellContentChanges(
            t.VersionedTextDocumentIdentifier(self.editor.versions[uri], uri),
            [t.TextDocumentContentChangeWholeDocument(text)],
        )
        self._change(t.NotebookDocumentCellChanges(text_content=[content]))

    def splice(self, start: int, gone: int, cells: dict[str, str]) -> None:
        """Put cells in the place of others."""
        closed = [cell for cell in self.order[start : start + gone] if cell not in cells]
        new = [cell for cell in cells if cell not in self.order]
        self.texts.update(cells)
        self.order[start : start + gone] = list(cells)
        for cell in new:
            self.editor.versions[self.cell(cell)] = 1
        self._change(
            t.NotebookDocumentCellChanges(
                structure=t.NotebookDocumentCellChangeStructure(
                    t.NotebookCellArrayChange(start, gone, [self._cell(cell) for cell in cells]),
                    did_open=[self._item(cell) for cell in new],
                    did_close=[t.TextDocumentIdentifier(self.cell(cell)) for cell in closed],
                )
            )
        )

    async def codes(self, cell: str) -> list[str]:
        """Codes of the findings of a cell, when the notebook as it is has been checked."""
        await self.editor.actions(self.cell(cell))  # is answered then
        return [str(d.code) for d in await self.found(cell)]

    async def found(self, cell: str) -> list[t.Diagnostic]:
        """The diagnostics pushed for the newest version of a cell."""
        return await self.editor.pushed(self.cell(cell))

    def applied(self, edit: t.WorkspaceEdit) -> dict[str, str]:
        """The cells that an edit changes, after it."""
        names = {self.cell(cell): cell for cell in self.texts}
        changed = {}
        for change in edit.document_changes:
            cell = names[change.text_document.uri]
            assert change.text_document.version == self.editor.versions[change.text_document.uri]
            changed[cell] = after(self.texts[cell], change.edits)
        return changed

    def close(self) -> None:
        """Close it."""
        cells = [t.TextDocumentIdentifier(self.cell(cell)) for cell in self.order if cell in self.texts]
        self.editor.client.notebook_document_did_close(
            t.DidCloseNotebookDocumentParams(t.NotebookDocumentIdentifier(self.uri), cells)
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def editor(tmp_path_factory):
    editor = new_editor(tmp_path_factory.mktemp("project"))
    # lsprotocol 2025.0.0 cannot read what notebooks a server wants; what it is does not matter here
    wanted = attrs.fields(t.NotebookDocumentFilterWithCells).notebook.type
    editor.client.protocol._converter.register_structure_hook(wanted, lambda given, _: given)
    can = capabilities()
    can.notebook_document = t.NotebookDocumentClientCapabilities(
        t.NotebookDocumentSyncClientCapabilities(dynamic_registration=False)
    )
    editor.initialized = await editor.start(
        can, initialization_options={"debounce": 1, "inlayHints": True, "codeLens": True}
    )
    yield editor
    await editor.stop()


async def test_the_server_asks_for_the_python_cells_of_notebooks(editor):
    sync = editor.initialized.capabilities.notebook_document_sync
    assert [cell.language for cell in sync.notebook_selector[0].cells] == ["python"]
    assert sync.save


async def test_findings_are_pushed_for_the_cell_that_they_are_in(editor):
    book = Notebook(editor, "pushed.ipynb", {"text": None, "setup": SETUP, "step": STEP})
    (scaler,) = await book.found("setup")
    assert (scaler.code, scaler.range.start) == ("AMP102", t.Position(2, 9))
    clip = next(d for d in await book.found("step") if d.code == "AMP201")
    assert clip.range == t.Range(t.Position(5, 4), t.Position(5, 59))
    assert not (await editor.pull(book.cell("step"))).items


async def test_a_trace_leads_through_other_cells(editor):
    book = Notebook(editor, "traced.ipynb", {"setup": SETUP, "scale": STEP[12:190], "rest": ""})
    head, tail = STEP.partition("    scaler.step")[0], "scaler.step(optimizer)\nscaler.update()\n"
    book.write("scale", head.partition("\n")[2].replace("for x in loader:", "if True:"))
    book.write("rest", tail)
    assert "AMP201" in await book.codes("scale")
    clip = next(d for d in await book.found("scale") if d.code == "AMP201")
    places = {(each.location.uri, each.location.range.start.line) for each in clip.related_information}
    assert (book.cell("scale"), 3) in places
    hover = await editor.hover(book.cell("scale"), 4, 6)
    assert "line 4: " in hover
    step = [place for place in places if place[0] == book.cell("rest")]
    assert step == [(book.cell("rest"), 0)]
    assert "traced.ipynb, cell 3, line 1: " in hover


async def test_a_fix_and_fixes_of_all_cells_are_edits_of_cells(editor):
    old = "with torch.cuda.amp.autocast():\n    pass"
    book = Notebook(editor, "fixed.ipynb", {"setup": SETUP, "one": old, "two": f"%%time\n{old}\n"})
    (found,) = await book.found("two")
    fix, rule, *_ = await editor.actions(book.cell("two"), found, only=["quickfix"])
    one = book.applied(fix.edit)  # a constant for the device goes where torch is imported
    assert one["two"] == "%%time\nwith torch.autocast(AMP_DEVICE, dtype=torch.float16):\n    pass\n"
    assert one["setup"].startswith("%matplotlib inline\nimport torch\n")
    assert rule.title == "Fix all AMP101 (cuda-amp-autocast) in this notebook"
    resolved = await editor.client.code_action_resolve_async(rule)
    ported = book.applied(resolved.edit)
    assert "cuda.amp" not in ported["one"] + ported["two"]
    assert "torch.cuda.amp.GradScaler()" in ported["setup"]
    (everything,) = await editor.actions(book.cell("one"), only=["notebook.source.fixAll"])
    fixed = book.applied((await editor.client.code_action_resolve_async(everything)).edit)
    assert fixed["setup"].startswith("%matplotlib inline\nimport torch\n")
    assert not any("cuda.amp" in text for text in fixed.values())
    assert set(fixed) == {"setup", "one", "two"}


async def test_a_finding_in_a_cell_can_be_ignored(editor):
    book = Notebook(editor, "ignored.ipynb", {"first": "import torch", "setup": SETUP})
    (found,) = await book.found("setup")
    action = next(a for a in await editor.actions(book.cell("setup"), found) if a.title.startswith("Ignore"))
    edited = book.applied((await editor.client.code_action_resolve_async(action)).edit)
    assert edited["setup"].endswith("GradScaler()  # amplint: ignore[AMP102] TODO: say why")
    book.write("setup", edited["setup"])
    assert await book.codes("setup") == []


async def test_hovers_hints_and_lenses_are_those_of_the_cell(editor):
    book = Notebook(editor, "shown.ipynb", {"setup": SETUP, "step": STEP})
    cell = book.cell("step")
    assert "its gradients are scaled (backward on line 5 of cell 2)" in await editor.hover(cell, 6, 5)

    async def hints(name: str) -> list[tuple[int, int, str]]:
        span = t.Range(t.Position(0, 0), t.Position(100, 0))
        asked = t.InlayHintParams(t.TextDocumentIdentifier(book.cell(name)), span)
        found = await editor.client.text_document_inlay_hint_async(asked)
        return [(each.position.line, each.position.character, each.label) for each in found]

    assert (4, 33, "scaled") in await hints("step")
    assert await hints("setup") == []
    asked = t.CodeLensParams(t.TextDocumentIdentifier(cell))
    (lens,) = await editor.client.text_document_code_lens_async(asked)
    assert (lens.range.start.line, lens.command.title) == (6, "clip before unscale")
    run = editor.client.workspace_execute_command_async
    told = await run(t.ExecuteCommandParams("amplint.explainFlow", lens.command.arguments))
    assert "its gradients are scaled" in told


async def test_cells_that_are_added_moved_and_removed_change_what_is_found(editor):
    mend = "scaler.unscale_(optimizer)"
    head, _, tail = STEP.partition("    torch.nn")
    head = head.partition("\n")[2].replace("for x in loader:", "if True:")
    tail = "torch.nn" + tail.replace("\n    ", "\n")
    book = Notebook(editor, "moved.ipynb", {"setup": SETUP, "head": head, "tail": tail})
    assert "AMP201" in await book.codes("tail")
    book.splice(2, 0, {"mend": mend})
    assert await book.codes("tail") == []
    book.splice(2, 2, {"tail": tail, "mend": mend})  # the other way round
    assert "AMP201" in await book.codes("tail")
    book.write("mend", "with torch.cuda.amp.autocast():\n    pass")
    assert await book.codes("mend") == ["AMP101"]
    book.splice(3, 1, {})
    await editor.until(lambda: not editor.published[book.cell("mend")][-1].diagnostics)


async def test_in_a_cell_that_cannot_be_parsed_earlier_findings_stay(editor):
    old = "with torch.cuda.amp.autocast():\n    pass\n"
    book = Notebook(editor, "broken.ipynb", {"setup": SETUP, "one": old, "two": old})
    assert await book.codes("one") == ["AMP101"]
    book.write("one", old + "x = (")
    assert sorted(await book.codes("one")) == ["AMP101", "AMP900"]
    assert await book.codes("two") == ["AMP101"]
    kept = next(d for d in await book.found("one") if d.code == "AMP101")
    assert kept.data["fix"] is None
    book.write("one", "x = 1")
    assert await book.codes("one") == []


async def test_closing_a_notebook_takes_its_diagnostics_away(editor):
    book = Notebook(editor, "closed.ipynb", {"setup": SETUP})
    assert await book.found("setup")
    book.close()
    await editor.until(lambda: not editor.published[book.cell("setup")][-1].diagnostics)


async def test_the_workspace_is_checked_with_what_is_in_open_notebooks(editor):
    book = Notebook(editor, "workspace.ipynb", {"setup": SETUP})
    await book.found("setup")
    found = await editor.client.workspace_diagnostic_async(t.WorkspaceDiagnosticParams([]))
    assert not [each for each in found.items if "ipynb" in each.uri]  # pushed, not pulled
    uri = editor.open("beside.py", "import torch\n\nwith torch.cuda.amp.autocast():\n    pass\n")
    assert await editor.codes(uri) == ["AMP101"]


async def test_findings_in_a_notebook_that_is_not_open_are_at_rows_of_its_file(editor):
    rows = ["import torch\n", "scaler = torch.cuda.amp.GradScaler()\n"]
    cell = {"cell_type": "code", "metadata": {}, "source": rows, "outputs": [], "execution_count": None}
    book = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    text = json.dumps(book, indent=1)
    (editor.folder / "on_disk.ipynb").write_text(text)
    changed = [t.FileEvent(editor.uri("on_disk.ipynb"), t.FileChangeType.Created)]
    editor.client.workspace_did_change_watched_files(t.DidChangeWatchedFilesParams(changed))
    found = await editor.client.workspace_diagnostic_async(t.WorkspaceDiagnosticParams([]))
    (report,) = [each for each in found.items if each.uri == editor.uri("on_disk.ipynb")]
    (finding,) = report.items
    assert finding.message.endswith("(cell 1, line 2)")
    assert "GradScaler" in text.split("\n")[finding.range.start.line]
