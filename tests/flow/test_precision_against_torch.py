"""What amplint claims of dtypes, against what torch does: on the CPU, the simulated NPU, and CUDA without values.

Programs over the operators of `facts/tensor_ops.tsv`, casts, modules, helpers and nested autocast regions are
executed with every variable looked at, and read by amplint with the rules of the same backend. Every dtype that it
claims, every "without dimensions", every number must be what torch has there (`precision_programs.py` has the
details). Beyond the random programs, every row of the table runs with operands of every dtype.

On CUDA, tensors are fake ones: torch dispatches, promotes and casts as ever, but no kernel computes, and no GPU is
needed. Only the rows of the table run there, without integers: some checks of operands are kernels' own.

Two things of torch are left out: float64 on the NPU, in whose place torch_npu gives float32, and parameters that a
region of one dtype casts inside a region of another, which get the dtype that the outer one has cached.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) != (2, 13),
    reason="the tables are those of torch 2.13",
)

RUNS = Path(__file__).parent / "precision_runs.py"
DEVICES = ("cpu", "npu", "cuda")
HAVE_KERNELS = DEVICES[:2]
#: Of which nothing is claimed: the width of complex numbers is not kept.
UNCLAIMED = {"view_as_real"}
#: Rows that run on no device here.
NOT_RUN = {"pin_memory", "tolist"}


@functools.cache
def outcomes(what: str, number: str) -> dict[str, dict[str, Any]]:
    """What was found on each device; all run at the same time."""
    started = {}
    for device in DEVICES if what == "rows" else HAVE_KERNELS:
        launcher = ["-m", "amplint.simnpu"] if device == "npu" else []
        command = [sys.executable, *launcher, str(RUNS), device, what, number]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        started[device] = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    found = {}
    for device, process in started.items():
        out, error = process.communicate()
        assert process.returncode == 0, error
        found[device] = json.loads(out.splitlines()[-1])
    return found


def agree(found: dict[str, Any], programs: int) -> None:
    assert not found["error"], found["error"]
    assert not found["mistakes"], "\n".join(found["mistakes"][:40])
    assert found["programs"] >= programs
    assert found["gave_up"] == 0
    # nearly everything is claimed, or the comparison says little
    assert found["claimed"] >= 0.95 * found["tensors"]
    assert found["shapes"] >= 0.75 * found["tensors"]


@pytest.mark.parametrize("device", HAVE_KERNELS)
def test_random_programs(device: str) -> None:
    agree(outcomes("programs", "80")[device], 70)


@pytest.mark.parametrize("device", DEVICES)
def test_every_row_of_the_table(device: str) -> None:
    agree(outcomes("rows", "few")[device], 6)


@pytest.mark.slow
@pytest.mark.parametrize("device", HAVE_KERNELS)
def test_many_random_programs(device: str) -> None:
    agree(outcomes("programs", "5000")[device], 5000)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_every_form_of_every_row(device: str) -> None:
    agree(outcomes("rows", "all")[device], 50)


@pytest.mark.slow
def test_every_row_is_executed_and_claimed() -> None:
    from .precision_calls import NOT_CALLED
    from .precision_programs import operators

    found = outcomes("rows", "all")
    ran = {op for device in DEVICES for op in found[device]["ran"]}
    claimed = {op for device in DEVICES for op in found[device]["ran_claimed"]}
    assert set(operators()) - NOT_CALLED - ran == NOT_RUN
    assert ran - claimed - {""} == UNCLAIMED
