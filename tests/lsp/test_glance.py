"""First looks: what they leave out, and that they see what a whole check sees in the function at hand."""

from __future__ import annotations

import ast
import multiprocessing
import sys

import pytest

from amplint.config import Settings
from amplint.lsp import glance, worker
from amplint.lsp.messages import Unsaved
from amplint.lsp.moves import Change
from amplint.lsp.outline import outline_of
from amplint.lsp.settings import Scope
from amplint.source import source_from_text

CODE = '''\
import torch
from torch.cuda.amp import GradScaler, autocast

scaler = GradScaler()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x)

    def unused(self):
        """Nobody calls this."""
        with autocast():
            return 1


def clip(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def train(model, optimizer, loader):
    for x in loader:
        with autocast():
            loss = model(x).float().mean()
        scaler.scale(loss).backward()
        clip(model)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def other():
    with autocast():
        return Model()
'''


def look(before: str, after: str) -> glance.Glance | None:
    outline = outline_of(after, ast.parse(after))
    return glance.reduced(source_from_text(after, "m.py"), outline, Change(before, after))


def test_what_the_edited_function_does_not_use_is_left_out_row_by_row():
    after = CODE.replace("        clip(model)\n", "        clip(model)\n        print(loss)\n")
    seen = look(CODE, after)
    assert seen is not None
    rows, whole = seen.text.split("\n"), after.split("\n")
    assert len(rows) == len(whole)
    assert "def clip(model):" in rows and "        print(loss)" in rows
    assert not any("Nobody calls this" in row or "return Model()" in row for row in rows)
    assert rows[whole.index("        print(loss)")] == "        print(loss)"
    assert whole[seen.first - 1].startswith("def train") and whole[seen.last - 1].endswith("zero_grad()")


def test_an_edit_outside_of_functions_or_in_two_of_them_is_left_to_the_whole_check():
    assert look(CODE, CODE.replace("scaler = GradScaler()", "scaler = GradScaler(init_scale=2.0)")) is None
    assert (
        look(CODE, CODE.replace("(model, optimizer", "(net, optimizer").replace("return Model()", "pass"))
        is None
    )


@pytest.fixture
def state() -> worker.State:
    return worker.State(multiprocessing.get_context("spawn").Value("Q", 0, lock=False))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        clip(model)\n", ""),
        ("        clip(model)\n", "        scaler.unscale_(optimizer)\n        clip(model)\n"),
        ("        scaler.update()\n", ""),
        ("    with autocast():\n        return Model()", "    return Model()"),
        ("return self.layer(x)", "return x.half().sum()"),
        (
            "        scaler.scale(loss)",
            "        with autocast() and torch.no_grad():\n            pass\n        scaler.scale(loss)",
        ),
    ],
)
def test_a_first_look_finds_what_the_whole_check_finds(state, tmp_path, old, new):
    scope = Scope(str(tmp_path), Settings())
    before, after = (
        Unsaved(scope, "m.py", str(tmp_path / "m.py"), text) for text in (CODE, CODE.replace(old, new))
    )
    assert after.text != CODE
    worker.check(state, before)
    first = worker.glance(state, after)
    whole = worker.check(state, after)
    assert first is not None and first.provisional and not whole.provisional
    seen = look(CODE, after.text)
    assert seen is not None
    first_seen, whole_seen = (
        [
            (f.code, f.start, f.end, f.message)
            for f in checked.findings
            if seen.first <= f.start.row <= seen.last and f.code not in glance.WHOLE_FILE
        ]
        for checked in (first, whole)
    )
    assert first_seen == whole_seen


def test_nothing_is_said_at_first_sight_of_a_document_that_was_not_checked(state, tmp_path):
    assert worker.glance(state, Unsaved(Scope(str(tmp_path), Settings()), "m.py", None, CODE)) is None


def test_methods_of_classes_that_nothing_names_are_left_out():
    code = CODE + "\n\nclass Optimizer:\n    def step(self, x):\n        return x.half()\n"
    after = code.replace("        clip(model)\n", "        clip(model)\n        print(loss)\n")
    seen = look(code, after)
    assert seen is not None and "return x.half()" not in seen.text
    named = code.replace("    for x in loader:\n", "    optimizer = Optimizer()\n    for x in loader:\n")
    after = named.replace("        clip(model)\n", "        clip(model)\n        print(loss)\n")
    seen = look(named, after)
    assert seen is not None and "return x.half()" in seen.text


def test_the_makers_of_other_classes_are_not_looked_at_for_the_sake_of_super():
    code = CODE + "\n\nclass Other:\n    def __init__(self):\n        self.size = 5\n"
    seen = look(code, code.replace("Linear(2, 2)", "Linear(2, 4)"))
    assert seen is not None and "self.size" not in seen.text and "super()" in seen.text


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("        clip(model)\n", "        clip(model)  # here\n", True),
        ("        clip(model)\n", "        # before\n\n        clip(model)\n", True),
        ("        clip(model)\n", "\n        clip(model)\n", True),
        ("        clip(model)\n", "        clip(model)  # amplint: ignore[AMP201]\n", False),
        ("        clip(model)\n", "        clip(model)  # NOQA\n", False),
        ("        clip(model)\n", "        # clip(model)\n", False),
        ("        clip(model)\n", "        clip(model)\n        '# a string'\n", False),
        ("scaler = GradScaler()\n", "scaler = GradScaler()  # in no function\n", False),
        ("        return self.layer(x)\n", "        # a method\n        return self.layer(x)\n", True),
        ("        return Model()\n", "        return  # c\nModel()\n", False),
        ("        clip(model)\n", "        clip(model)  # mplint: ignore[AMP201]\n", True),
    ],
)
def test_comments_and_blanks_change_nothing_but_places(state, tmp_path, old, new, same):
    after = CODE.replace(old, new)
    outline = outline_of(after, ast.parse(after))
    assert glance.means_the_same(outline, Change(CODE, after)) is same
    documents = [Unsaved(Scope(str(tmp_path), Settings()), "m.py", None, text) for text in (CODE, after)]
    worker.check(state, documents[0])
    first = worker.glance(state, documents[1])
    whole = worker.check(state, documents[1])
    if same:
        assert first is not None
        assert [(f.code, f.start) for f in first.findings] == [(f.code, f.start) for f in whole.findings]


def test_a_file_on_disk_is_checked_again_when_it_or_what_it_uses_changed(state, tmp_path):
    (tmp_path / "tools.py").write_text(
        "from torch.nn.utils import clip_grad_norm_\n\n\ndef clip(model):\n    pass\n"
    )
    path = tmp_path / "train.py"
    path.write_text("from tools import clip\n" + CODE.replace("def clip(", "def other_clip("))
    scope = Scope(str(tmp_path), Settings())
    paths = worker.files(state, scope)
    worker.learn(state, scope, worker.index(state, scope, paths))
    train = next(each for each in paths if each.endswith("train.py"))
    assert worker.recall(state, scope, paths) == {}
    before = {each: worker.check_file(state, scope, each) for each in paths}
    assert "AMP201" not in {finding.code for finding in before[train].findings}
    assert worker.recall(state, scope, paths) == before
    (tmp_path / "tools.py").write_text(
        "from torch.nn.utils import clip_grad_norm_\n\n\ndef clip(model):\n"
        "    clip_grad_norm_(model.parameters(), 1.0)\n"
    )
    worker.learn(state, scope, worker.index(state, scope, paths))
    assert worker.recall(state, scope, paths) == {}
    assert "AMP201" in {finding.code for finding in worker.check_file(state, scope, train).findings}
    (tmp_path / "amplint-baseline.json").write_text("{}")
    path.unlink()
    assert train not in worker.recall(state, scope, paths)


def test_who_calls_a_method_of_another_class_is_not_looked_at():
    code = CODE + (
        "\n\nclass Penalty(torch.autograd.Function):\n"
        "    @staticmethod\n    def backward(ctx, grad):\n        return grad\n"
        "\n\ndef penalized(model, x):\n    Penalty.apply(x).backward()\n"
    )
    seen = look(code, code.replace("        return grad\n", "        return 2 * grad\n"))
    assert seen is not None
    assert "Penalty.apply" in seen.text and "scaler.scale(loss).backward()" not in seen.text


@pytest.mark.parametrize("end", ["  # a\u2028b", "  # \x85", "  # \x1c", "\x0c"])
def test_only_rows_of_python_are_left_out(end):
    code = CODE.replace("            return 1\n", f"            return 1{end}\n")
    after = code.replace("        clip(model)\n", "        clip(model)\n        print(loss)\n")
    seen = look(code, after)
    assert seen is not None
    assert seen.text.split("\n").index("        print(loss)") == after.split("\n").index(
        "        print(loss)"
    )
    assert after.split("\n")[seen.first - 1].startswith("def train")


@pytest.mark.parametrize("row", ["\n", "        \n", "        # a comment\n", "        print(loss)\n"])
def test_a_row_put_in_above_a_finding_moves_it(state, tmp_path, row):
    scope = Scope(str(tmp_path), Settings())
    code = CODE.replace(
        "        clip(model)\n", "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    )
    before = Unsaved(scope, "m.py", None, code)
    at = code.index("        torch.nn.utils.clip_grad_norm_")
    after = Unsaved(scope, "m.py", None, code[:at] + row + code[at:])
    worker.check(state, before)
    first, whole = worker.glance(state, after), worker.check(state, after)
    places = [
        [(f.code, f.start, [note.start for note in f.trace]) for f in checked.findings]
        for checked in (first, whole)
    ]
    assert places[0] == places[1] and "AMP201" in {f.code for f in whole.findings}


def test_files_with_the_same_text_have_findings_of_their_own(state, tmp_path):
    scope = Scope(str(tmp_path), Settings(per_file_ignores=(("b.py", ("AMP1",)),), root=tmp_path))
    code = CODE.replace(
        "        clip(model)\n", "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    )
    found = {
        name: worker.check(state, Unsaved(scope, name, str(tmp_path / name), code)).findings
        for name in ("a.py", "b.py")
    }
    assert {note.filename for f in found["b.py"] for note in f.trace} == {"b.py"}
    assert "AMP101" in {f.code for f in found["a.py"]} and "AMP101" not in {f.code for f in found["b.py"]}


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python knows that syntax")
def test_syntax_that_only_the_whole_check_can_parse_has_no_first_look(state, tmp_path):
    scope = Scope(str(tmp_path), Settings())
    before, after = (Unsaved(scope, "m.py", None, f"type X = int\n{CODE}{more}") for more in ("", "# x\n"))
    assert not worker.check(state, before).broken
    assert worker.glance(state, after) is None


def test_files_that_are_gone_are_forgotten(state, tmp_path):
    scope = Scope(str(tmp_path), Settings())
    for name, text in (("tools.py", CODE), ("train.py", "from tools import clip\n")):
        (tmp_path / name).write_text(text)
    worker.learn(state, scope, worker.index(state, scope, worker.files(state, scope)))
    assert state.scope(scope).project.index("tools.py") is not None
    (tmp_path / "tools.py").unlink()
    worker.learn(state, scope, worker.index(state, scope, worker.files(state, scope)))
    assert state.scope(scope).project.index("tools.py") is None
    assert state.scope(scope).project.index("train.py") is not None
