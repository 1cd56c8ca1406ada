"""What the dtype rules say of tests: less, since low precision is often what is tested."""

from __future__ import annotations

import pytest

from amplint.config import Settings
from amplint.project.link import Project
from amplint.registry import select_rules
from amplint.source import source_from_text
from amplint.work import Checker

SETTINGS = Settings(select=("AMP304", "AMP309"), target="npu", min_confidence="low")
TEXT = """\
import torch

def train(model, x):
    torch.softmax(x.half(), dim=-1)
    with torch.autocast("cuda"):
        loss = model(x)
        loss.backward()
"""


@pytest.mark.parametrize(
    ("name", "is_low"),
    [("train.py", False), ("latest/train.py", False), ("tests/train.py", True), ("a/test_it.py", True)],
)
def test_confidence_is_low_in_tests(name, is_low):
    rules = select_rules(SETTINGS)
    found = Checker(SETTINGS, rules, Project()).check(source_from_text(TEXT, name)).findings
    assert {finding.code for finding in found} == {"AMP304", "AMP309"}
    assert all((finding.confidence.value == "low") is is_low for finding in found)
