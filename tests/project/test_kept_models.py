"""Models of files are kept for those that use them; what was found of them is found anew."""

from __future__ import annotations

from amplint.config import Settings
from amplint.project.link import ModuleIndex, Project
from amplint.registry import select_rules
from amplint.source import Source, source_from_text
from amplint.work import NO_FIX, Checker, digest, extract

SETTINGS = Settings(select=("AMP201",), target="npu")
LOOP = """\
import torch
from helper import backward

def train(model, loader, optimizer, scaler):
    for x in loader:
        optimizer.zero_grad()
        backward(scaler, optimizer, model(x).mean())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""
SCALES = "def backward(scaler, optimizer, loss):\n    scaler.scale(loss).backward()\n"
UNSCALES = SCALES + "    scaler.unscale_(optimizer)\n"


def index(source: Source) -> ModuleIndex:
    seen = extract(source, select_rules(SETTINGS))
    return ModuleIndex(source.filename, seen.imports or (), digest(source.data))


def test_what_depends_on_another_file_is_asked_again_when_that_changed():
    project = Project()
    checker = Checker(SETTINGS, select_rules(SETTINGS), project)
    loop = source_from_text(LOOP, "loop.py")
    for helper, codes in [(SCALES, ["AMP201"]), (UNSCALES, []), (SCALES, ["AMP201"])]:
        other = source_from_text(helper, "helper.py")
        project.unsaved["helper.py"] = other
        project.update([index(loop), index(other)])
        for _ in range(2):
            outcome = checker.check(loop)
            assert [finding.code for finding in outcome.findings] == codes
            assert "=helper.py" in outcome.asked


def test_a_model_is_made_once():
    project = Project()
    checker = Checker(SETTINGS, select_rules(SETTINGS), project)
    other = source_from_text(SCALES, "helper.py")
    project.unsaved["helper.py"] = other
    project.update([index(source_from_text(LOOP, "loop.py")), index(other)])
    checker.run(other, NO_FIX)
    used = project.model("helper.py")
    assert used is not None
    assert checker.model(other) is used
