"""The shim's devices, memory, random numbers, streams and backends: thin, and harmless without an accelerator."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import types
from typing import Any

import pytest
import torch
import torch.distributed as dist

from amplint import runtime as shim

from .conftest import SHIM

FORWARDED = [
    # name, arguments here, arguments there
    ("device_count", (), ()),
    ("current_device", (), ()),
    ("set_device", (3,), (3,)),
    ("synchronize", (), ()),
    ("synchronize", (1,), (1,)),
    ("memory_allocated", (), ()),
    ("memory_allocated", ("npu:1",), ("npu:1",)),
    ("max_memory_allocated", (0,), (0,)),
    ("reset_peak_memory_stats", (), ()),
    ("empty_cache", (), ()),
    ("manual_seed", (5,), (5,)),
    ("manual_seed_all", (5,), (5,)),
    ("get_rng_state", (1,), (1,)),
    ("set_rng_state", ("state",), ("state",)),
    ("current_stream", (), ()),
    ("Stream", (), (None, 0)),
    ("Stream", (1, -1), (1, -1)),
]


class Module(types.SimpleNamespace):
    """A device module that answers 4 to everything and writes down what it was asked."""

    def __init__(self) -> None:
        super().__init__(asked=[])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def answer(*arguments: Any) -> int:
            self.asked.append((name, arguments))
            return 4

        return answer


@pytest.fixture
def npu_module(monkeypatch, accelerator):
    """An accelerator called npu before 2.6: found by its module alone."""
    module = Module()
    monkeypatch.setattr(torch, "npu", module, raising=False)
    accelerator(None)
    return module


@pytest.mark.parametrize(("name", "given", "expected"), FORWARDED)
def test_calls_go_to_the_module_of_the_accelerator_in_every_release(name, given, expected, npu_module):
    result = getattr(shim, name)(*given)
    assert npu_module.asked[-1] == (name, expected)
    nothing = (
        "set_device",
        "synchronize",
        "reset_peak_memory_stats",
        "empty_cache",
        "manual_seed",
        "manual_seed_all",
        "set_rng_state",
    )
    assert result == (None if name in nothing else 4)


def test_from_2_6_on_the_accelerator_that_pytorch_reports_is_asked(monkeypatch, accelerator):
    module = Module()
    monkeypatch.setattr(torch, "npu", module, raising=False)
    accelerator(lambda check_available=False: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert shim.device_count() == 2
    assert module.asked == []


def test_without_an_accelerator_counts_and_sizes_are_0_and_nothing_happens(no_accelerator):
    assert shim.device_count() == shim.current_device() == 0
    assert shim.memory_allocated() == shim.max_memory_allocated("cuda:0") == 0
    for name in ("synchronize", "empty_cache", "reset_peak_memory_stats"):
        assert getattr(shim, name)() is None
    assert shim.set_device(7) is None


def test_without_an_accelerator_seeding_its_generators_leaves_the_cpu_alone(no_accelerator):
    before = torch.get_rng_state()
    shim.manual_seed(1)
    shim.manual_seed_all(1)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_an_accelerator_a_saved_random_state_comes_back(no_accelerator):
    state = shim.get_rng_state()
    first = torch.rand(3)
    shim.set_rng_state(state)
    assert torch.equal(torch.rand(3), first)


def test_without_an_accelerator_streams_have_run_already(no_accelerator):
    side = shim.Stream()
    with shim.stream(side):
        result = torch.ones(2) + 1
    side.wait_stream(shim.current_stream())
    side.synchronize()
    assert side.query()
    assert side.record_event("event") == "event"
    assert result.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("given", [None, "of no accelerator"])
def test_on_an_accelerator_what_is_no_stream_of_it_changes_nothing(given, npu_module):
    with shim.stream(None if given is None else shim._NoStream()):
        pass
    assert [name for name, _ in npu_module.asked if name == "stream"] == []


def test_a_stream_of_the_accelerator_is_entered(npu_module):
    npu_module.stream = lambda stream: contextlib.nullcontext(("entered", stream))
    with shim.stream("s") as entered:
        assert entered == ("entered", "s")


def test_without_an_accelerator_a_tensor_stays_where_it_is(no_accelerator):
    tensor = torch.ones(2)
    assert shim.pin_memory(tensor) is tensor


@pytest.mark.parametrize(
    ("kind", "ladder", "expected"), [("cuda", False, ()), ("npu", False, ("npu",)), ("npu", True, ())]
)
def test_pinning_names_the_device_where_cuda_would_be_the_default(
    kind, ladder, expected, monkeypatch, accelerator
):
    asked = []
    tensor = types.SimpleNamespace(pin_memory=lambda *device: asked.append(device))
    monkeypatch.setattr(shim, "_available_accelerator", lambda: kind)
    if not ladder:
        accelerator(None)
    elif not hasattr(torch, "accelerator"):
        monkeypatch.setattr(torch, "accelerator", types.SimpleNamespace(), raising=False)
    shim.pin_memory(tensor)
    assert asked == [expected]


@pytest.mark.parametrize(
    ("kind", "backend"), [("npu", "hccl"), ("xpu", "xccl"), (None, "gloo"), ("mlu", "cncl")]
)
def test_the_backend_is_that_of_the_device(kind, backend, monkeypatch):
    monkeypatch.setattr(shim, "_available_accelerator", lambda: kind)
    assert shim.dist_backend() == backend


@pytest.mark.parametrize(("has_nccl", "backend"), [(True, "nccl"), (False, "gloo")])
def test_cuda_without_nccl_gets_gloo(has_nccl, backend, monkeypatch):
    monkeypatch.setattr(shim, "_available_accelerator", lambda: "cuda")
    monkeypatch.setattr(dist, "is_nccl_available", lambda: has_nccl)
    assert shim.dist_backend() == backend


@pytest.mark.parametrize(("newer", "backend"), [(True, "own"), (False, "gloo")])
def test_an_unknown_device_gets_the_backend_that_pytorch_knows_of_where_it_can_be_asked(
    newer, backend, monkeypatch
):
    monkeypatch.setattr(shim, "_available_accelerator", lambda: "new")
    if newer:
        monkeypatch.setattr(dist, "get_default_backend_for_device", lambda kind: "own", raising=False)
    else:
        monkeypatch.delattr(dist, "get_default_backend_for_device", raising=False)
    assert shim.dist_backend() == backend


def test_a_vendored_copy_without_amplint_warns_that_nothing_is_verified(tmp_path):
    (tmp_path / "_amp.py").write_bytes(SHIM.read_bytes())
    hide = "import sys; sys.modules['amplint'] = None; import _amp; print(_amp.device_count())"
    ended = subprocess.run(
        [sys.executable, "-c", hide],
        cwd=tmp_path,
        env={**os.environ, "AMPLINT_VERIFY": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "amplint is not installed" in ended.stderr
