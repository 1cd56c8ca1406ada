"""AMP112 and AMP114: the private parts of GradScaler, and odd arguments for it."""

from __future__ import annotations

import pytest
from amp_cases import codes, found, is_untouched, reasons

PRIVATE = ["AMP112"]
ODD = ["AMP114"]
HEADER = "import torch\nfrom torch.cuda.amp import GradScaler\n"


def private(text: str) -> list[int]:
    return [row for row, _ in codes(text, select=PRIVATE)]


def odd(text: str) -> list[int]:
    return [row for row, _ in codes(text, select=ODD)]


# Private parts


@pytest.mark.parametrize(
    "use",
    [
        "s._scale",
        "s._growth_tracker",
        "s._per_optimizer_states[id(o)]",
        "s._found_inf_per_device(o)",
        "s._check_inf_per_device(o)",
        "s._get_scale_async()",
        "getattr(s, '_scale')",
        "hasattr(s, '_scale')",
        "setattr(s, '_scale', x)",
    ],
)
@pytest.mark.parametrize(
    "made",
    [
        "s = GradScaler()",
        "s = torch.amp.GradScaler('npu')",
        "s = torch.GradScaler()",
        "s = GradScaler() if a else None",
    ],
)
def test_private_parts_of_a_scaler_are_found(made: str, use: str) -> None:
    assert private(f"{HEADER}{made}\n{use}\n") == [4]


@pytest.mark.parametrize("note", ["GradScaler", "Optional[GradScaler]", "GradScaler | None"])
def test_a_parameter_is_known_by_its_annotation(note: str) -> None:
    text = f"{HEADER}from typing import Optional\ndef f(s: {note}):\n    return s._scale\n"
    assert private(text) == [5]


@pytest.mark.parametrize(
    "statement",
    [
        "GradScaler._unscale_grads_ = patched",
        "torch.cuda.amp.GradScaler._unscale_grads_ = patched",
        "torch.amp.GradScaler._maybe_opt_step = patched",
        "setattr(GradScaler, '_unscale_grads_', patched)",
    ],
)
def test_replaced_methods_are_found(statement: str) -> None:
    (finding,) = found(f"{HEADER}{statement}\n", select=PRIVATE)
    assert "is replaced" in finding.message


def test_a_subclass_may_know_its_base_from_inside_but_others_may_not() -> None:
    text = HEADER + (
        "class Floor(GradScaler):\n    def update(self):\n        self._scale.clamp_(min=1)\n"
        "s = Floor()\ns._scale\n"
    )
    assert private(text) == [7]


@pytest.mark.parametrize(
    "text",
    [
        "s._scale",
        "def f(scaler):\n    return scaler._scale",
        "def f(scaler):\n    scaler.step(o)\n    scaler.update()\n    return scaler._scale",
        "s = make()\ns._scale",
        "s = GradScaler()\ns.get_scale()",
        "s = GradScaler()\ns._mine = 3",
        "s = GradScaler()\ngetattr(s, name)",
        "class A:\n    def f(self):\n        self._scale = 1",
        "class GradScaler:\n    def f(self):\n        return self._scale\ns = GradScaler()\ns._scale",
        "'s._scale'",
    ],
)
def test_other_objects_and_documented_parts_are_silent(text: str) -> None:
    header = HEADER if "class GradScaler" not in text else "import torch\n"
    assert private(f"{header}{text}\n") == []


@pytest.mark.parametrize(
    "evidence", ["s.unscale_(o)", "s.scale(loss).backward()", "s.scale(a + b).backward()"]
)
def test_what_is_used_as_a_scaler_is_one_with_less_confidence(evidence: str) -> None:
    text = f"def f(s, loss, o):\n    {evidence}\n    return s._found_inf_per_device(o)\n"
    (finding,) = found(text, select=PRIVATE)
    assert finding.confidence.value == "medium"
    assert private(f"def f(s):\n    {evidence}\ndef g(s):\n    return s._scale\n") == []


def test_an_attribute_is_judged_within_its_class() -> None:
    text = "class T:\n    def f(self):\n        self.s.unscale_(o)\n    def g(self):\n        self.s._scale\n"
    assert private(text) == [5]
    assert private(text.replace("def g", "pass\nclass U:\n    def g")) == []


@pytest.mark.parametrize(
    "imported",
    ["from mycorp import GradScaler", "class GradScaler:\n    pass", "from .scaler import GradScaler"],
)
def test_a_module_with_a_grad_scaler_of_its_own_is_silent(imported: str) -> None:
    text = f"{imported}\ndef f(s, loss, o):\n    s.unscale_(o)\n    return s._scale\n"
    assert private(text) == []


@pytest.mark.parametrize(
    "text, rows",
    [
        ("from apex.amp._amp_state import _amp_state\n_amp_state.x\n", [1]),
        ("from apex.amp import _amp_state as state\nstate.x\n", [1]),
        ("import apex\napex.amp._amp_state.loss_scalers[0]\n", [2]),
        ("from apex import amp\namp._amp_state.x\n", [2]),
        ("from ._amp_state import _amp_state\n_amp_state.x\n", []),
        ("from apex import amp\namp.state_dict()\n", []),
        ("import trainer\ntrainer._amp_state\n", []),
    ],
)
def test_the_state_of_apex_is_found_where_it_enters(text: str, rows: list[int]) -> None:
    assert private(text) == rows


def test_private_parts_have_no_fix() -> None:
    text = f"{HEADER}s = GradScaler()\ns._scale\n"
    assert is_untouched(text, select=PRIVATE)
    assert len(reasons(text, select=PRIVATE)) == 1


# Odd arguments


@pytest.mark.parametrize(
    "arguments",
    [
        "init_scale=1",
        "init_scale=1.0",
        "init_scale=0.5",
        "init_scale=-2.0",
        "1.0",
        "init_scale=2**25",
        "init_scale=2.0 ** 32",
        "init_scale=1e9",
        "1024.0, growth_interval=5",
        "growth_interval=1",
        "65536.0, 2.0, 0.5, 20",
        "growth_factor=1.0",
        "growth_factor=0.5, backoff_factor=2.0",
        "65536.0, 0.5, 2.0",
        "backoff_factor=1.0",
        "init_scale=1.0, enabled=use_amp",
        "init_scale=1.0, **options",
    ],
)
def test_an_odd_number_is_found(arguments: str) -> None:
    assert odd(f"{HEADER}s = GradScaler({arguments})\n") == [3]


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "init_scale=2.0**16",
        "init_scale=2.0**24",
        "init_scale=128.",
        "init_scale=2",
        "growth_interval=100",
        "growth_interval=10**9",
        "growth_interval=int(1e9)",
        "init_scale=scale",
        "init_scale=True",
        "True",
        "use_amp",
        "1024.0, 2.0, 0.5, 2000",
        "growth_factor=1.5, backoff_factor=0.8",
        "init_scale=1.0, enabled=False",
        "1.0, 2.0, 0.5, 2000, False",
        "*args",
        "*args, 1.0",
        "init_scale=1 / 0",
        "init_scale=10.0 ** 1000",
    ],
)
def test_other_numbers_and_what_is_no_number_are_silent(arguments: str) -> None:
    assert odd(f"{HEADER}s = GradScaler({arguments})\n") == []


@pytest.mark.parametrize(
    "call, is_odd",
    [
        ("torch.amp.GradScaler('npu', 1.0)", True),
        ("torch.amp.GradScaler('npu', init_scale=1.0)", True),
        ("torch.amp.GradScaler(1.0)", False),  # lands in device, AMP110 says so
        ("torch_npu.npu.amp.GradScaler(1.0)", True),
        ("torch.distributed.fsdp.ShardedGradScaler(init_scale=1.0)", True),
        ("torch.distributed.fsdp.ShardedGradScaler(1.0, 1.0)", False),  # the order depends on the release
        ("mycorp.GradScaler(init_scale=1.0)", False),
        ("functools.partial(GradScaler, init_scale=1.0)", False),
    ],
)
def test_parameters_are_those_of_the_class(call: str, is_odd: bool) -> None:
    header = f"{HEADER}import functools, torch_npu, torch.distributed.fsdp, mycorp\n"
    assert odd(f"{header}s = {call}\n") == ([4] if is_odd else [])


def test_swapped_factors_are_one_finding_and_two_mistakes_are_two() -> None:
    (finding,) = found(f"{HEADER}s = GradScaler(growth_factor=0.5, backoff_factor=2.0)\n", select=ODD)
    assert "swapped" in finding.message
    assert len(found(f"{HEADER}s = GradScaler(init_scale=1.0, growth_interval=5)\n", select=ODD)) == 2


def test_it_is_of_medium_confidence() -> None:
    text = f"{HEADER}s = GradScaler(init_scale=1.0)\n"
    assert found(text, select=ODD, min_confidence="high") == []
