"""A scaler that one module makes at its outermost level and others import."""

from __future__ import annotations

from textwrap import dedent

import pytest

from amplint.config import load_settings
from amplint.runner import run

SCALING = """\
import os
import torch

scaler = torch.amp.GradScaler(os.environ["DEVICE"])

def backward(loss):
    scaler.scale(loss).backward()
"""
LOOP = """\
import torch
{imports}

def train(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        {module}backward(model(x, y))
        {unscale}
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        {module}scaler.step(optimizer)
        {module}scaler.update()
"""
WAYS = [
    ("from scaling import backward, scaler", ""),
    ("from scaling import scaler, backward", ""),
    ("from scaling import scaler as scaler\nfrom scaling import backward", ""),
    ("import scaling", "scaling."),
    ("import scaling as s", "s."),
    ("from package import backward, scaler", ""),
]


def found(tmp_path, imports: str, module: str, unscale: str) -> list[str]:
    (tmp_path / "scaling.py").write_text(SCALING)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("from .parts import backward, scaler\n")
    (tmp_path / "package" / "parts.py").write_text(SCALING)
    (tmp_path / "loop.py").write_text(dedent(LOOP).format(imports=imports, module=module, unscale=unscale))
    settings = load_settings(tmp_path, isolated=True, overrides={"target": "npu", "select": ("AMP2",)})
    result = run([tmp_path], settings, cwd=tmp_path)
    assert not result.internal_errors
    return [finding.code for finding in result.findings]


@pytest.mark.parametrize(("imports", "module"), WAYS)
def test_it_is_the_same_scaler(tmp_path, imports, module):
    assert found(tmp_path, imports, module, f"{module}scaler.unscale_(optimizer)") == []


@pytest.mark.parametrize(("imports", "module"), WAYS)
def test_what_is_wrong_with_it_is_found(tmp_path, imports, module):
    assert found(tmp_path, imports, module, "pass") == ["AMP201"]
