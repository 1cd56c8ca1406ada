"""Two ranks over gloo: what they agree on is silent, what they do not is found by rank 0."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch.distributed

from amplint.runtime import verify
from amplint.runtime.page import read_runs

from .training import needs_cpu_scaler

ROOT = Path(verify.__file__).resolve().parents[2]

LOOP = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()


def train(fault):
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    if not fault:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0 if fault == "scale" and rank else 1024.0)
    for step in range(26):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=fault != "dtype" or rank == 0):
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
"""

SOUND = (
    LOOP
    + """
train("")
dist.destroy_process_group()
sys.stdout.write(f"rank {rank} trained\\n")  # in one piece: two ranks write to one pipe
"""
)

FAULTS = (
    LOOP
    + """
from amplint.runtime import verify

for fault in ("skip", "scale", "dtype", "leaves"):
    with verify.watch(record=os.path.join(sys.argv[1], fault)):
        train(fault)
dist.destroy_process_group()
"""
)

pytestmark = [
    pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed"),
    needs_cpu_scaler,
]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


@pytest.fixture(scope="module")
def faults(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "train.py").write_text(textwrap.dedent(FAULTS))
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    started = [
        subprocess.Popen(
            [sys.executable, "train.py", str(folder)],
            cwd=folder,
            env=environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port),
        )
        for rank in range(2)
    ]
    assert [process.wait(timeout=300) for process in started] == [0, 0]
    return folder


def found(record: Path, rank: int = 0) -> list[dict]:
    return [
        line["finding"]
        for line in read_runs(str(record / f"rank{rank}.jsonl"))[-1]
        if line["event"] == "finding"
    ]


def test_data_parallel_training_under_torchrun_is_silent_and_leaves_a_record_per_rank(tmp_path):
    (tmp_path / "train.py").write_text(SOUND)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d"]
    command = [sys.executable, *torchrun, "--rdzv-endpoint=localhost:0", "-m", "amplint", "run"]
    ended = subprocess.run(
        [*command, "--record=seen", "train.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    trained = sorted(line for line in ended.stdout.splitlines() if "trained" in line)
    assert trained == ["rank 0 trained", "rank 1 trained"]
    assert found(tmp_path / "seen", 0) == found(tmp_path / "seen", 1) == []
    assert ended.stderr.count("no findings in 26 optimizer steps") == 1


def test_a_rank_that_skips_a_step_by_itself_is_found_at_that_step(faults):
    (finding,) = found(faults / "skip")
    assert (finding["code"], finding["step"]) == ("AMP220", 7)
    assert "rank 1 skips this step and rank 0 takes it" in finding["message"]


def test_ranks_with_another_scale_are_found_at_the_first_step(faults):
    (finding,) = found(faults / "scale")
    assert (finding["code"], finding["step"]) == ("AMP220", 0)
    assert "1024 on rank 0 and 512 on rank 1" in finding["message"]


def test_ranks_that_compute_in_another_dtype_are_found(faults):
    (finding,) = found(faults / "dtype")
    assert (finding["code"], finding["step"]) == ("AMP322", 0)


def test_a_rank_that_leaves_early_is_found_at_the_step_it_does_not_take(faults):
    (finding,) = found(faults / "leaves")
    assert (finding["code"], finding["step"]) == ("AMP220", 23)
