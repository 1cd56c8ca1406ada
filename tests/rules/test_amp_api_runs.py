"""Ported code runs, and computes what it computed before."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from amp_cases import code, fix

torch = pytest.importorskip("torch")
if not hasattr(torch, "accelerator"):
    pytest.skip("the ports are written for torch 2.7 and newer", allow_module_level=True)

TRAINING = """
    import torch
    from torch.cuda import amp
    from torch.cuda.amp import GradScaler, autocast as mixed, custom_bwd, custom_fwd

    class Twice(torch.autograd.Function):
        @staticmethod
        @custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            seen.append(x.dtype)
            return x * 2

        @staticmethod
        @custom_bwd
        def backward(ctx, grad):
            return grad * 2

    seen = []

    @mixed(True)
    def predict(model, x):
        return model(x)

    def train(use_amp=True):
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = GradScaler(1024.0, enabled=use_amp)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            with amp.autocast(use_amp):
                out = model(torch.ones(2, 8))
                seen.append(out.dtype)
                loss = Twice.apply(out).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        seen.append(predict(model, torch.ones(1, 8)).dtype)
        return losses, scaler.get_scale(), scaler.is_enabled()
"""


def run(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "train"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, "train.py", "exec"), names)
        names["result"] = names["train"]()
    return names


@pytest.mark.parametrize("style", ["torch", "shim"])
def test_without_an_accelerator_the_numbers_stay(style: str) -> None:
    if torch.accelerator.is_available():
        pytest.skip("needs a machine without an accelerator")
    before, after = run(code(TRAINING)), run(fix(TRAINING, style=style))
    assert after["result"] == before["result"]
    assert after["result"][2] is False
    assert after["seen"] == before["seen"]


def test_on_an_accelerator_everything_is_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    # the CPU stands for an accelerator: its autocast has float16, its scaler works
    def cpu(check_available: bool = False) -> Any:
        return torch.device("cpu")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", cpu)
    after = run(fix(TRAINING, style="torch"))
    assert after["result"][1:] == (1024.0, True)
    assert after["seen"] == [torch.float16, torch.float32] * 3 + [torch.float16]


def test_a_switch_stays_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cpu")
    )
    text = fix("""
    import torch
    from torch.cuda.amp import autocast
    def train():
        x = torch.ones(2, 2)
        with autocast(True):
            on = (x @ x).dtype
        with autocast(False):
            off = (x @ x).dtype
        with autocast(True, torch.bfloat16):
            brain = (x @ x).dtype
        return on, off, brain
    """)
    assert run(text)["result"] == (torch.float16, torch.float32, torch.bfloat16)


def test_a_stored_callable_can_still_be_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cpu")
    )
    text = fix("""
    import functools
    import torch
    region = torch.cuda.amp.autocast
    off = functools.partial(torch.cuda.amp.autocast, enabled=False)
    def train():
        x = torch.ones(2, 2)
        with region():
            on = (x @ x).dtype
            with off():
                return on, (x @ x).dtype
    """)
    assert run(text)["result"] == (torch.float16, torch.float32)


@pytest.mark.parametrize(
    "imported, use",
    [
        ("from torch.cuda import amp", "amp.autocast()"),
        ("import torch.cuda.amp as amp", "amp.grad_scaler.GradScaler()"),
        ("import torch.cuda.amp", "torch.cuda.amp.custom_bwd(print)"),
        ("from torch.cuda.amp import autocast", "autocast()"),
        ("from torch.cuda.amp import autocast_mode", "autocast_mode.autocast(enabled=False)"),
    ],
)
@pytest.mark.parametrize("style", ["torch", "shim"])
def test_no_name_is_lost(imported: str, use: str, style: str) -> None:
    text = fix(f"{imported}\ndef train():\n    return {use}\n", style=style)
    assert "torch.cuda" not in text
    assert run(text)["result"] is not None


def test_a_repaired_with_enters_both_contexts() -> None:
    text = fix(
        """
    import torch
    def train():
        x = torch.ones(2, 2, requires_grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16) and torch.no_grad():
            y = x @ x
        return y.dtype, y.requires_grad
    """,
        repair=True,
    )
    assert run(text)["result"] == (torch.bfloat16, False)
