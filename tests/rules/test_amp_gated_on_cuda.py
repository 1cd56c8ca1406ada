"""AMP108: AMP that depends on a condition which is true on CUDA only."""

from __future__ import annotations

import pytest
from amp_cases import codes, fix, found, reasons

SELECT = ["AMP108"]
HEADER = "import contextlib, torch\nfrom contextlib import nullcontext\n"


def rows(text: str) -> list[int]:
    return [row for row, _ in codes(HEADER + text, select=SELECT)]


@pytest.mark.parametrize(
    "test",
    [
        "device.type == 'cuda'",
        "'cuda' == device.type",
        "device == 'cuda'",
        "'cuda' in device",
        "'cuda' in str(device)",
        "device.startswith('cuda')",
        "torch.cuda.is_available()",
        "bool(torch.cuda.is_available())",
        "x.is_cuda",
        "use_amp and device.type == 'cuda'",
        "not (device.type != 'cuda')",
        "not 'cuda' not in device",
        "True if torch.cuda.is_available() else False",
        "not (cpu or device.type != 'cuda')",
    ],
)
def test_a_condition_that_only_cuda_meets_is_found(test: str) -> None:
    assert rows(f"r = torch.autocast(kind, enabled={test})\n") == [3]
    assert rows(f"s = torch.amp.GradScaler(kind, enabled={test})\n") == [3]


@pytest.mark.parametrize(
    "test",
    [
        "use_amp",
        "True",
        "device.type != 'cpu'",
        "device.type == 'npu'",
        "device.type in ('cuda', 'npu')",
        "'cuda' in ('cuda', 'npu')",
        "device.type == 'cuda' or device.type == 'npu'",
        "use_amp or torch.cuda.is_available()",
        "device.type != 'cuda'",
        "not torch.cuda.is_available()",
        "torch.cuda.is_bf16_supported()",
        "torch.npu.is_available()",
        "torch.accelerator.is_available()",
        "name.startswith('cuda', 3)",
        "is_cuda",
        "True if torch.cuda.is_available() else use_amp",
    ],
)
def test_a_condition_that_others_can_meet_is_silent(test: str) -> None:
    assert rows(f"r = torch.autocast(kind, enabled={test})\n") == []


@pytest.mark.parametrize(
    "call",
    [
        "torch.cuda.amp.autocast(torch.cuda.is_available())",
        "torch.cuda.amp.autocast(enabled=torch.cuda.is_available())",
        "torch.autocast('cuda', torch.float16, torch.cuda.is_available())",
        "torch.cuda.amp.GradScaler(enabled=torch.cuda.is_available())",
        "torch.autocast('cuda' if torch.cuda.is_available() else 'cpu')",
        "torch.autocast('cpu' if not torch.cuda.is_available() else 'cuda')",
        "torch.amp.GradScaler('cuda' if x.is_cuda else 'cpu')",
        "torch.amp.GradScaler() if torch.cuda.is_available() else None",
        "None if not torch.cuda.is_available() else torch.amp.GradScaler()",
        "torch.autocast('cuda') if kind == 'cuda' else nullcontext()",
        "torch.autocast('cuda') if kind == 'cuda' else torch.autocast('cpu')",
    ],
)
def test_every_way_to_depend_on_it_is_found(call: str) -> None:
    assert rows(f"y = {call}\n") == [3]


@pytest.mark.parametrize(
    "call",
    [
        "nullcontext() if kind == 'cpu' else torch.autocast(kind)",
        "torch.autocast('cuda') if kind == 'cuda' else torch.autocast(kind)",
        "torch.autocast('cuda') if kind == 'cuda' else torch.npu.amp.autocast()",
        "torch.autocast('npu' if torch.npu.is_available() else 'cpu')",
        "torch.autocast(device.type if device.type != 'mps' else 'cpu')",
        "make(enabled=torch.cuda.is_available())",
        "torch.zeros(3, device='cuda' if torch.cuda.is_available() else 'cpu')",
        "torch.autocast(kind, dtype=torch.float16 if torch.cuda.is_available() else torch.bfloat16)",
    ],
)
def test_what_works_elsewhere_and_what_is_no_amp_is_silent(call: str) -> None:
    assert rows(f"y = {call}\n") == []


def test_the_place_that_decides_is_reported_once_however_many_calls_depend_on_it() -> None:
    text = """
use_amp = torch.cuda.is_available()
kind = "cuda" if use_amp else "cpu"
scaler = torch.amp.GradScaler(kind, enabled=use_amp)
with torch.autocast(kind, enabled=use_amp):
    pass
"""
    assert rows(text) == [4, 5]


def test_where_everything_runs_is_no_matter_of_amp() -> None:
    text = "d = 'cuda' if torch.cuda.is_available() else 'cpu'\nr = torch.autocast(d)\n"
    assert rows(text) == [3]
    assert rows(f"{text}model.to(d)\n") == []
    compared = text.replace("torch.cuda.is_available()", "kind == 'cuda'")
    assert rows(f"{compared}model.to(d)\n") == [3]


def test_an_attribute_is_followed_within_its_class() -> None:
    text = """
class T:
    def __init__(self, device):
        self.amp = device.type == "cuda"
    def step(self):
        return torch.autocast(self.kind, enabled=self.amp)
"""
    assert rows(text) == [6]
    assert rows(text + "    def on(self, amp):\n        self.amp = amp\n") == []


@pytest.mark.parametrize(
    "text, expected",
    [
        ("s = None\nif torch.cuda.is_available():\n    s = torch.amp.GradScaler()\n", [4]),
        ("if x.is_cuda:\n    s = torch.amp.GradScaler()\nelse:\n    s = None\n", [3]),
        ("if not x.is_cuda:\n    s = None\nelse:\n    s = torch.amp.GradScaler()\n", [3]),
        ("if x.is_cuda:\n    with torch.autocast('cuda'):\n        f()\nelse:\n    f()\n", [3]),
        ("def f(d):\n    if d == 'cuda':\n        return torch.autocast(d)\n    return nullcontext()\n", [4]),
        # nothing else is there to run without AMP
        ("if torch.cuda.is_available():\n    with torch.autocast('cuda'):\n        test()\n", []),
        ("if torch.cuda.is_available():\n    main(torch.amp.GradScaler())\n", []),
        (
            "def f(d):\n    if d == 'cuda':\n        return torch.autocast('cuda')\n    return torch.autocast(d)\n",
            [],
        ),
        ("r = torch.autocast(d)\nif d == 'cuda':\n    r = torch.autocast(d, torch.float16)\n", []),
        ("if x.is_cuda:\n    s = torch.amp.GradScaler()\nelse:\n    s = torch.amp.GradScaler(d)\n", []),
        ("if not torch.cuda.is_available():\n    raise SystemExit\ns = torch.amp.GradScaler()\n", []),
        ("if d == 'npu':\n    s = a()\nelif d == 'cuda':\n    s = torch.amp.GradScaler()\n", []),
        ("if d == 'cuda':\n    s = torch.amp.GradScaler()\nelif d == 'npu':\n    s = a()\n", []),
        ("if use_amp:\n    s = torch.amp.GradScaler()\n", []),
    ],
)
def test_branches_are_found_where_the_other_arm_goes_without_amp(text: str, expected: list[int]) -> None:
    assert rows(text) == expected


def test_a_function_that_thinks_of_the_npu_is_silent() -> None:
    text = """
def f(device, x):
    if hasattr(torch, "npu"):
        kind = "npu"
    else:
        kind = "cuda" if "cuda" in device else "cpu"
    return torch.autocast(kind)
"""
    assert rows(text) == []


def test_a_region_that_protects_float32_is_said_to_protect_nothing() -> None:
    text = f"{HEADER}r = torch.autocast('cuda' if x.is_cuda else 'cpu', enabled=False)\n"
    (finding,) = found(text, select=SELECT)
    assert "an NPU region around it stays on" in finding.message


def test_the_trace_shows_what_depends_on_the_condition() -> None:
    text = f"{HEADER}amp = torch.cuda.is_available()\ns = torch.amp.GradScaler(d, enabled=amp)\n"
    (finding,) = found(text, select=SELECT)
    assert [(note.start.row, note.message) for note in finding.trace] == [
        (4, "GradScaler depends on it here")
    ]


def test_under_transfer_to_npu_it_is_for_information() -> None:
    text = (
        f"from torch_npu.contrib import transfer_to_npu\n{HEADER}s = torch.autocast(d, enabled=x == 'cuda')\n"
    )
    (finding,) = found(text, select=SELECT)
    assert finding.severity.value == "info"


@pytest.mark.parametrize(
    "before, after",
    [
        ("device.type == 'cuda'", "device.type == runtime.device_type()"),
        ("use_amp and 'cuda' in device", "use_amp and runtime.device_type() in device"),
        ('device.startswith("cuda")', "device.startswith(runtime.device_type())"),
    ],
)
def test_the_fix_asks_for_the_accelerator(before: str, after: str) -> None:
    text = f"import torch\ns = torch.amp.GradScaler(kind, enabled={before})\n"
    expected = f"from amplint import runtime\nimport torch\ns = torch.amp.GradScaler(kind, enabled={after})\n"
    assert fix(text, select=SELECT, style="shim") == expected
    assert fix(text, select=SELECT, style="shim", unsafe=False) == text


def test_availability_is_asked_of_torch_accelerator_where_it_exists() -> None:
    text = "import torch\ns = torch.autocast(kind, enabled=torch.cuda.is_available())\n"
    assert fix(text, select=SELECT) == text.replace("cuda.is_av", "accelerator.is_av")
    assert fix(text, select=SELECT, torch=(2, 5)) == text
    assert any("from torch 2.6 on" in reason for reason in reasons(text, select=SELECT, torch=(2, 5)))


def test_is_cuda_has_no_fix_but_the_reason() -> None:
    text = "import torch\ns = torch.autocast(kind, enabled=x.is_cuda)\n"
    assert fix(text, select=SELECT) == text
    assert len(reasons(text, select=SELECT)) == 1
