"""Two ranks over gloo: what they agree on is silent, what they do not is found by rank 0."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch.distributed

from amplint.runtime import verify
from amplint.runtime.page import read_runs

ROOT = Path(verify.__file__).resolve().parents[2]

TRAIN = """
    import os, sys
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    fault = sys.argv[1] if len(sys.argv) > 1 else ""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    if not fault:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0 if fault == "scale" and rank else 1024.0)
    dtype = torch.bfloat16 if fault == "dtype" and rank else torch.float16
    for step in range(26):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype, enabled=fault != "dtype" or rank == 0):
            output = model(torch.randn(4, 8))
        loss = nn.functional.mse_loss(output.float(), torch.ones(4, 1))
        if fault == "skip" and rank and step == 7:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if fault == "leaves" and rank and step == 23:
            break
        scaler.step(optimizer)
        scaler.update()
    dist.barrier()
    dist.destroy_process_group()
    print("rank", rank, "trained")
"""

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed")


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "train.py").write_text(textwrap.dedent(TRAIN))

    def start(fault: str):
        record = folder / (fault or "none")
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0"]
        command = [
            *(command[:-1]),
            "--rdzv-backend=c10d",
            "--rdzv-endpoint=localhost:0",
            "-m",
            "amplint",
            "run",
            f"--record={record}",
            "train.py",
            *([fault] if fault else []),
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return process, record

    # all at once: most of the time goes into importing torch in ten processes
    started = {fault: start(fault) for fault in ("", "skip", "scale", "dtype", "leaves")}
    ended = {}
    for fault, (process, record) in started.items():
        out, err = process.communicate(timeout=300)
        ended[fault] = (process.returncode, out, err, record)
    return ended


def found(ended, rank):
    runs = read_runs(str(ended[3] / f"rank{rank}.jsonl"))
    return [line["finding"] for line in runs[-1] if line["event"] == "finding"]


def test_data_parallel_training_on_two_ranks_is_silent_and_leaves_a_record_each(train):
    code, out, err, _ = train[""]
    assert code == 0, err
    assert sorted(line for line in out.splitlines() if "trained" in line) == ["rank 0 trained", "rank 1 trained"]
    assert found(train[""], 0) == found(train[""], 1) == []
    assert "no findings in 26 optimizer steps" in err


def test_a_rank_that_skips_a_step_by_itself_is_found_at_that_step(train):
    assert train["skip"][0] == 0, train["skip"][2]
    (finding,) = found(train["skip"], 0)
    assert (finding["code"], finding["step"]) == ("AMP220", 7)
    assert "rank 1 skips this step and rank 0 takes it" in finding["message"]


def test_ranks_with_another_scale_are_found_at_the_first_step(train):
    (finding,) = found(train["scale"], 0)
    assert (finding["code"], finding["step"]) == ("AMP220", 0)
    assert "1024 on rank 0 and 512 on rank 1" in finding["message"]


def test_ranks_that_compute_in_another_dtype_are_found(train):
    (finding,) = [each for each in found(train["dtype"], 0) if each["code"] == "AMP322"]
    assert finding["step"] == 0


def test_a_rank_that_leaves_early_is_found_at_the_step_it_does_not_take(train):
    assert train["leaves"][0] == 0, train["leaves"][2]
    (finding,) = found(train["leaves"], 0)
    assert (finding["code"], finding["step"]) == ("AMP220", 23)
