"""The GradScaler protocol where its parts stand in several files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from amplint.config import Settings
from amplint.finding import Finding
from amplint.runner import FixMode, run

PROTOCOL = Settings(select=("AMP2",))

CLIPPING = """\
import torch


def bound(params, limit):
    torch.nn.utils.clip_grad_norm_(params, limit)
"""
TRAIN = """\
from pkg.clipping import bound


def train(model, optimizer, scaler, loss):
    scaler.scale(loss).backward()
    bound(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
WRAPPER = """\
import torch


class Scaler:
    def __init__(self):
        self._scaler = torch.amp.GradScaler("cuda")

    def __call__(self, loss, optimizer, parameters, last=True):
        self._scaler.scale(loss).backward()
        if not last:
            return
        self._scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        self._scaler.step(optimizer)
        self._scaler.update()
"""
BASE = """\
import torch


class Base:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), 0.1)
        self.scaler = torch.amp.GradScaler("cuda")

    def backward(self, loss):
        self.scaler.scale(loss).backward()

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()
"""

STEP = """\
def step(scaler, optimizer, loss):
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
HALF_LAYER = """\
import torch
from stepping import step


def train(loader):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4).half())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        step(scaler, optimizer, model(x).float().mean())
"""


def found(folder: Path, files: Mapping[str, str], **options: object) -> list[Finding]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    result = run([folder], PROTOCOL, cwd=folder, **options)  # type: ignore[arg-type]
    assert not result.internal_errors
    return result.findings


def places(findings: list[Finding]) -> list[tuple[str, int, str]]:
    return [(finding.filename, finding.start.row, finding.code) for finding in findings]


def test_a_clip_in_an_imported_function_is_reported_at_its_call(tmp_path):
    findings = found(tmp_path, {"pkg/__init__.py": "", "pkg/clipping.py": CLIPPING, "train.py": TRAIN})
    assert places(findings) == [("train.py", 6, "AMP201")]
    steps = [(note.filename, note.start.row) for note in findings[0].trace]
    assert steps == [("train.py", 5), ("pkg/clipping.py", 5), ("train.py", 7)]
    assert findings[0].fix is None
    assert findings[0].no_fix_reason == "a part of it stands in another file (pkg/clipping.py:5)"


def test_a_function_that_a_package_hands_on_is_followed(tmp_path):
    train = TRAIN.replace("pkg.clipping", "pkg")
    files = {
        "pkg/__init__.py": "from .clipping import bound\n",
        "pkg/clipping.py": CLIPPING,
        "train.py": train,
    }
    assert places(found(tmp_path, files)) == [("train.py", 6, "AMP201")]


def test_a_relative_import_is_followed(tmp_path):
    train = TRAIN.replace("pkg.clipping", ".clipping")
    files = {"pkg/__init__.py": "", "pkg/clipping.py": CLIPPING, "pkg/train.py": train}
    assert places(found(tmp_path, files)) == [("pkg/train.py", 6, "AMP201")]


def test_a_wrapper_that_unscales_itself_is_silent(tmp_path):
    train = """\
from wrapper import Scaler


def train(model, optimizer, losses, every):
    scaler = Scaler()
    for i, loss in enumerate(losses):
        scaler(loss, optimizer, model.parameters(), last=(i + 1) % every == 0)
        if (i + 1) % every == 0:
            optimizer.zero_grad()
"""
    assert found(tmp_path, {"wrapper.py": WRAPPER, "train.py": train}) == []


def test_a_wrapper_that_unscales_on_every_micro_step_shows_in_its_users_loop(tmp_path):
    early = WRAPPER.replace("        if not last:\n            return\n", "").replace(
        "        self._scaler.step(optimizer)\n        self._scaler.update()\n",
        "        if last:\n            self._scaler.step(optimizer)\n            self._scaler.update()\n",
    )
    train = """\
from wrapper import Scaler


def train(model, optimizer, losses, every):
    scaler = Scaler()
    for i, loss in enumerate(losses):
        scaler(loss, optimizer, model.parameters(), last=(i + 1) % every == 0)
"""
    assert ("train.py", 7, "AMP205") in places(found(tmp_path, {"wrapper.py": early, "train.py": train}))


def test_methods_of_a_base_class_elsewhere_are_followed(tmp_path):
    train = """\
from base import Base


class Trainer(Base):
    def fit(self, losses):
        for loss in losses:
            self.backward(loss)
            self.clip()
            self.step()
            self.optimizer.zero_grad()
        print(self.scaler.get_scale())
"""
    assert ("train.py", 8, "AMP201") in places(found(tmp_path, {"base.py": BASE, "train.py": train}))


def test_a_finding_goes_when_the_other_file_is_mended(tmp_path):
    files = {"pkg/__init__.py": "", "pkg/clipping.py": CLIPPING, "train.py": TRAIN}
    cached = {"use_cache": True}
    assert places(found(tmp_path, files, **cached)) == [("train.py", 6, "AMP201")]
    assert places(found(tmp_path, {}, **cached)) == [("train.py", 6, "AMP201")]
    measured = CLIPPING.replace("clip_grad_norm_(params, limit)", "clip_grad_norm_(params, float('inf'))")
    assert places(found(tmp_path, {"pkg/clipping.py": measured}, **cached)) == []
    assert places(found(tmp_path, {"pkg/clipping.py": CLIPPING}, **cached)) == [("train.py", 6, "AMP201")]


def test_files_that_import_one_another_come_to_an_end(tmp_path):
    text = "from {other} import {other}\n\n\ndef {name}(scaler, loss):\n    scaler.scale(loss).backward()\n    {other}(scaler, loss)\n"
    files = {"one.py": text.format(name="one", other="two"), "two.py": text.format(name="two", other="one")}
    assert found(tmp_path, files) == []


def test_what_is_fixed_in_one_file_does_not_change_what_another_is_checked_with(tmp_path):
    files = {"pkg/__init__.py": "", "pkg/clipping.py": CLIPPING, "train.py": TRAIN, "amp.py": WRAPPER}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    settings = Settings(select=("AMP1", "AMP2"), target="npu")
    result = run([tmp_path], settings, cwd=tmp_path, fix=FixMode(ports=True, write=True))
    assert ("train.py", 6, "AMP201") in places(result.findings)
    assert [change.source.filename for change in result.changes] == ["amp.py"]


LOOP = """\
def train(model, optimizer, scaler, losses, every):
    for i, loss in enumerate(losses):
        scaler(loss, optimizer, model.parameters(), last=(i + 1) % every == 0)
"""
MAIN = """\
from loop import train
from wrapper import Scaler


def main(model, optimizer, losses, args):
    scaler = Scaler()
    train(model, optimizer, scaler, losses, args.every)
"""


def early(wrapper: str) -> str:
    """The wrapper with `unscale_` and the clip on every micro-step."""
    return wrapper.replace("        if not last:\n            return\n", "").replace(
        "        self._scaler.step(optimizer)\n        self._scaler.update()\n",
        "        if last:\n            self._scaler.step(optimizer)\n            self._scaler.update()\n",
    )


def test_what_shows_only_where_a_scaler_is_handed_to_a_loop_in_a_third_file(tmp_path):
    files = {"wrapper.py": early(WRAPPER), "loop.py": LOOP, "main.py": MAIN}
    findings = found(tmp_path, files)
    assert places(findings) == [("main.py", 7, "AMP205")]
    assert findings[0].no_fix_reason == "a part of it stands in another file (wrapper.py:10)"
    assert found(tmp_path, {**files, "wrapper.py": WRAPPER}) == []


def test_what_shows_without_the_file_that_calls_the_loop_is_told_once(tmp_path):
    loop = f"from wrapper import Scaler\n\n\n{LOOP}".replace("scaler, losses, every):", "losses, every):")
    loop = loop.replace("    for i", "    scaler = Scaler()\n    for i")
    main = """\
from loop import train


def main(model, optimizer, losses, args, scaler):
    train(model, optimizer, losses, args.every)
    scaler.step(optimizer)
"""
    files = {"wrapper.py": early(WRAPPER), "loop.py": loop, "main.py": main}
    assert [p for p in places(found(tmp_path, files)) if p[2] == "AMP205"] == [("loop.py", 7, "AMP205")]


def test_a_clip_in_a_loop_that_does_not_know_the_scaler(tmp_path):
    wrapper = """\
import torch


class Scaler:
    def __init__(self):
        self._scaler = torch.amp.GradScaler("cuda")

    def run(self, loss):
        self._scaler.scale(loss).backward()

    def finish(self, optimizer):
        self._scaler.step(optimizer)
        self._scaler.update()
"""
    loop = """\
from torch.nn.utils import clip_grad_norm_


def train(model, optimizer, scaler, losses, every):
    for loss in losses:
        scaler.run(loss)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.finish(optimizer)
        optimizer.zero_grad()
"""
    findings = found(tmp_path, {"wrapper.py": wrapper, "loop.py": loop, "main.py": MAIN})
    assert places(findings) == [("main.py", 7, "AMP201")]


def test_half_parameters_that_an_imported_function_steps_are_found(tmp_path):
    findings = found(tmp_path, {"stepping.py": STEP, "train.py": HALF_LAYER})
    assert places(findings) == [("train.py", 6, "AMP219")]
    steps = [(note.filename, note.start.row) for note in findings[0].trace]
    assert steps == [("train.py", 6), ("train.py", 7), ("train.py", 8), ("stepping.py", 3)]


def test_half_parameters_of_an_optimizer_that_no_function_steps_are_not(tmp_path):
    step = STEP.replace("scaler.step(optimizer)", "optimizer.zero_grad()")
    assert "AMP219" not in {
        code for *_, code in places(found(tmp_path, {"stepping.py": step, "train.py": HALF_LAYER}))
    }
