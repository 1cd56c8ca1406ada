"""The verifier on the simulated NPU: no waits for the device, and what only another device shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from amplint.runtime import verify

ROOT = Path(verify.__file__).resolve().parents[2]

SCRIPT = """
    import json
    import torch
    from torch import nn
    from amplint import simnpu
    from amplint.runtime import verify

    def train(steps, scaler, fault=None, every=50, warm_up=20):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 1)).to("npu")
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        region = "cuda" if fault == "region" else "npu"
        for step in range(warm_up + steps):
            if step == warm_up:
                simnpu.reset_counts()
            optimizer.zero_grad()
            x = torch.randn(4, 8).to("npu")
            with torch.autocast(region, dtype=torch.float16):
                output = model(x)
            loss = nn.functional.mse_loss(output.float(), torch.zeros(4, 1, device="npu"))
            scaler.scale(loss).backward()
            if fault == "clip":
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.unscale_(optimizer)
            if fault != "clip":
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        return simnpu.sync_count()

    new = lambda *device: torch.amp.GradScaler(*device, init_scale=1024.0)
    result = {"plain": train(20, new("npu"))}
    with verify.watch(every=1000) as run:
        result["observed"] = train(20, new("npu"))
    result["silent"] = [each.code for each in run.findings]
    with verify.watch() as run:
        train(4, new("npu"), "clip", warm_up=0)
    result["clip"] = [(each.code, each.step) for each in run.findings]
    with verify.watch() as run:
        scaler = new()
        train(4, scaler, warm_up=0)
    result["scaler"] = [(each.code, each.step) for each in run.findings]
    with verify.watch() as run:
        train(4, new("npu"), "region", warm_up=0)
    result["region"] = [(each.code, each.step) for each in run.findings]
    with verify.watch() as run:
        model = nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        model.to("npu")  # gets other parameters here
        scaler = new("npu")
        with torch.autocast("npu", dtype=torch.float16):
            output = model(torch.randn(4, 8).to("npu"))
        scaler.scale(output.float().square().mean()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        try:
            scaler.step(optimizer)
        except AssertionError:
            pass
    result["moved"] = [(each.code, each.place.line.strip(), each.message) for each in run.findings]
    print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 10):
        pytest.skip("the simulated NPU needs torch 2.10")
    script = tmp_path_factory.mktemp("npu") / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    ended = subprocess.run(
        [sys.executable, "-m", "amplint.simnpu", str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "switched itself off; the run goes on" not in ended.stderr, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_twenty_steps_wait_once_more_for_the_device_than_without_the_verifier(result):
    assert result["observed"] == result["plain"] + 1


def test_a_correct_loop_on_the_npu_is_silent(result):
    assert result["silent"] == []


def test_a_clip_before_unscale_is_found_on_the_npu(result):
    assert result["clip"] == [["AMP201", 0]]


def test_a_scaler_for_cuda_on_the_npu_is_found(result):
    assert ["AMP105", 0] in result["scaler"]


def test_a_region_for_cuda_on_the_npu_is_found(result):
    assert ["AMP104", 0] in result["region"]


def test_an_optimizer_made_before_the_model_moved_is_found_with_the_clip_of_scaled_gradients(result):
    clip, step = sorted(result["moved"])
    assert clip[:2] == ["AMP201", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"]
    assert step[:2] == ["AMP224", "scaler.step(optimizer)"]
    assert "its parameters are on cpu, and those of the model that have gradients on npu" in step[2]


def test_a_sample_written_for_cuda_is_watched_under_transfer_to_npu(tmp_path):
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 10):
        pytest.skip("the simulated NPU needs torch 2.10")
    sample = Path(__file__).resolve().parents[2] / "samples" / "transformer" / "train_lm.py"
    row = next(
        row
        for row, line in enumerate(sample.read_text().splitlines(), 1)
        if "nn.utils.clip_grad_norm_" in line
    )
    command = [sys.executable, "-W", "ignore", "-m", "amplint.simnpu", "--transfer", "-m", "amplint", "run"]
    ended = subprocess.run(
        [*command, sample.name, "--steps", "8"],
        cwd=sample.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert f"train_lm.py:{row}:13: AMP201 clip-before-unscale (step 0)" in ended.stderr
    assert "1 finding in 2 optimizer steps" in ended.stderr
