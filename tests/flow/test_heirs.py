"""Methods that a subclass replaces: what one object does goes together."""

from __future__ import annotations

from textwrap import dedent

from amplint.config import Settings
from amplint.project.link import Project
from amplint.registry import select_rules
from amplint.source import source_from_text
from amplint.work import Checker

BASE = """
import torch

class Base:
    def __init__(self, optimizer, parameters):
        self.optimizer, self.parameters = optimizer, parameters

    def update(self, loss):
        self.backward(loss)
        {before}
        self.step()

    def backward(self, loss):
        loss.backward()

    def step(self):
        self.optimizer.step()

class Scaled(Base):
    def __init__(self, optimizer, parameters):
        super().__init__(optimizer, parameters)
        self.scaler = torch.amp.GradScaler("cuda")

    def backward(self, loss):
        self.scaler.scale(loss).backward()
"""
STEP = """
    def step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()
"""


def found(before: str, *more: str) -> list[str]:
    text = BASE.format(before=before) + "".join(more)
    settings = Settings(select=("AMP2",), target="npu")
    checker = Checker(settings, select_rules(settings), Project())
    outcome = checker.check(source_from_text(text, "train.py"))
    assert not outcome.internal_errors
    return [finding.code for finding in outcome.findings]


def test_a_subclass_that_replaces_both_is_right():
    assert found("pass", STEP) == []


def test_a_subclass_that_scales_and_steps_as_its_base_is_wrong():
    assert found("pass") == ["AMP203"]


def test_a_clip_in_the_base_is_wrong_for_the_subclass():
    clip = "torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)"
    assert found(clip, STEP) == ["AMP201"]


def test_a_clip_in_a_method_that_the_subclass_replaces_is_right():
    unscale = dedent(
        """
        def clip(self):
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        """
    )
    more = STEP + "".join(f"    {line}\n" for line in unscale.splitlines())
    assert found("self.clip()", more) == []


def test_a_subclass_of_the_subclass_is_looked_at_too():
    worse = """
class Worse(Scaled):
    def step(self):
        self.optimizer.step()
"""
    assert found("pass", STEP, worse) == ["AMP203"]
