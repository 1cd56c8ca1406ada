"""Classes of libraries whose scaler no code of the run shows."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from amplint import check_source, facts
from amplint.config import Settings
from amplint.runner import run


def codes(text: str) -> list[tuple[str, int]]:
    found = check_source(dedent(text), "train.py", select=["AMP2"])
    return [(f.code, f.start.row) for f in found]


@pytest.mark.parametrize("row", facts.table("libraries"), ids=lambda row: row["name"])
def test_what_stands_for_a_library_defines_the_class(row: dict[str, str]) -> None:
    text = facts.library(row["file"])
    compile(text, row["file"], "exec")
    assert f"class {row['definition']}:" in text


NATIVE = """\
    import torch
    from {module} import {name} as NativeScaler

    def train(model, loader, optimizer):
        scaler = NativeScaler()
        for x, y in loader:
            loss = model(x, y)
            optimizer.zero_grad()
            {body}
"""
KINDS = [
    ("timm.utils", "NativeScaler", "need_update"),
    ("util.misc", "NativeScalerWithGradNormCount", "update_grad"),
]


@pytest.mark.parametrize(("module", "name", "last"), KINDS)
def test_a_wrapper_that_does_it_all_is_right(module: str, name: str, last: str) -> None:
    body = "scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())"
    assert codes(NATIVE.format(module=module, name=name, body=body)) == []


@pytest.mark.parametrize(("module", "name", "last"), KINDS)
def test_a_clip_behind_its_step(module: str, name: str, last: str) -> None:
    body = """scaler(loss, optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"""
    assert codes(NATIVE.format(module=module, name=name, body=body)) == [("AMP208", 10)]


@pytest.mark.parametrize(("module", "name", "last"), KINDS)
def test_a_plain_step_with_what_it_scaled(module: str, name: str, last: str) -> None:
    body = f"""scaler(loss, optimizer, {last}=False)
            optimizer.step()"""
    assert codes(NATIVE.format(module=module, name=name, body=body)) == [("AMP203", 10)]


def test_a_class_of_the_project_comes_first(tmp_path: Path) -> None:
    body = """scaler(loss, optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"""
    (tmp_path / "util").mkdir()
    (tmp_path / "util/__init__.py").write_text("")
    (tmp_path / "util/misc.py").write_text(
        "class NativeScalerWithGradNormCount:\n    def __call__(self, *a): pass\n"
    )
    text = NATIVE.format(module="util.misc", name="NativeScalerWithGradNormCount", body=body)
    (tmp_path / "train.py").write_text(dedent(text))
    assert run([tmp_path], Settings(select=("AMP2",)), cwd=tmp_path).findings == []


FABRIC = """\
    import torch
    from {module} import Fabric

    def train(model, loader, optimizer):
        fabric = Fabric({options})
        model, optimizer = fabric.setup(model, optimizer)
        for x, y in loader:
            optimizer.zero_grad()
            loss = model(x, y)
            {body}
            optimizer.step()
"""


@pytest.mark.parametrize("module", ["lightning.fabric", "lightning", "lightning_fabric"])
def test_a_clip_past_fabric(module: str) -> None:
    body = """fabric.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"""
    assert codes(FABRIC.format(module=module, options='precision="16-mixed"', body=body)) == [("AMP201", 11)]
    assert codes(FABRIC.format(module=module, options='precision="bf16-mixed"', body=body)) == []
    assert codes(FABRIC.format(module=module, options="", body=body)) == []
    own = """fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)"""
    assert codes(FABRIC.format(module=module, options='precision="16-mixed"', body=own)) == []


def test_a_backward_past_fabric() -> None:
    assert codes(
        FABRIC.format(module="lightning", options='precision="16-mixed"', body="loss.backward()")
    ) == [("AMP203", 10)]
