"""The sample scripts, ported by `amplint fix` in both styles, on the simulated NPU: AMP really is on there."""

from __future__ import annotations

import functools
import json
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from .conftest import CHECKS, launch

SAMPLES = Path(__file__).parents[2] / "samples"

#: Sample -> its script and the arguments that leave nothing to chance on the device.
SCRIPTS = {
    "classification": ("train.py", ()),
    "gan": ("train_gan.py", ()),
    "transformer": ("train_lm.py", ("--dropout", "0")),
}
STYLES = ("torch", "shim")

#: Where the samples put their tensors. Choosing the device is not part of porting `torch.cuda.amp`.
PLACEMENT = 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'
ON_THE_ACCELERATOR = 'torch.accelerator.current_accelerator() or torch.device("cpu")'

#: Largest difference of a loss from the float32 run; the largest seen was 1.6e-4 (classification).
CLOSE = 1e-3


@functools.cache
def runs() -> dict[str, dict[str, Any]]:
    """`sample/float32` and `sample/STYLE` -> what `watch.py` saw; one process, as each takes torch's import."""
    with tempfile.TemporaryDirectory() as folder:
        places = {style: ported(Path(folder) / style, style) for style in STYLES}
        places["float32"] = SAMPLES  # without CUDA, so on the CPU and with AMP off
        commands = [
            f"{sample}/{name}={','.join([str(place / sample / script), *arguments])}"
            for sample, (script, arguments) in SCRIPTS.items()
            for name, place in places.items()
        ]
        run = launch(str(CHECKS / "watch.py"), *commands)
    assert run.returncode == 0, run.stdout + run.stderr
    result: dict[str, dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
    return result


def ported(folder: Path, style: str) -> Path:
    shutil.copytree(SAMPLES, folder, ignore=shutil.ignore_patterns("*.diff", "__pycache__"))
    (folder / "amplint.toml").write_text(f'style = "{style}"\ntorch = "2.7"\ntarget = "npu"\n')
    command = [sys.executable, "-m", "amplint", "fix", "--repair", str(folder)]
    fix = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert fix.returncode in (0, 1), fix.stdout + fix.stderr
    for file in folder.rglob("*.py"):
        text = file.read_text()
        assert "torch.cuda.amp" not in text
        file.write_text(text.replace(PLACEMENT, ON_THE_ACCELERATOR))
    return folder


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("sample", SCRIPTS)
class TestPorted:
    def test_it_trains_on_the_npu(self, sample, style):
        assert runs()[f"{sample}/{style}"]["devices"] == ["npu"]

    def test_layers_inside_autocast_compute_in_float16(self, sample, style):
        assert runs()[f"{sample}/{style}"]["inside"] == ["float16"]

    def test_the_scaler_is_enabled_and_no_step_but_the_first_ones_is_skipped(self, sample, style):
        scales = runs()[f"{sample}/{style}"]["scales"]
        assert scales
        assert None not in scales
        assert scales[-1] >= 1024

    def test_losses_are_finite_and_close_to_float32(self, sample, style):
        run, reference = runs()[f"{sample}/{style}"]["losses"], runs()[f"{sample}/float32"]["losses"]
        assert all(math.isfinite(loss) for loss in run)
        assert run != reference
        assert max(abs(a - b) for a, b in zip(run, reference, strict=True)) < CLOSE

    def test_both_styles_give_the_same_losses(self, sample, style):
        assert runs()[f"{sample}/{style}"]["losses"] == runs()[f"{sample}/torch"]["losses"]


@pytest.mark.parametrize("sample", SCRIPTS)
def test_unported_it_trains_in_float32_on_the_cpu(sample):
    run = runs()[f"{sample}/float32"]
    assert run["devices"] == ["cpu"]
    assert run["outside"] == ["float32"]
    assert run["inside"] == []
    assert set(run["scales"]) == {None}
