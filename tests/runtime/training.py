"""Small training loops for the verifier's tests, and the places in them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from amplint.runtime.observed import Observed
from amplint.runtime.verify import Verifier

_TOO_OLD = "before 2.3 PyTorch has neither a GradScaler nor float16 regions for the CPU"
IS_TOO_OLD = not hasattr(torch.amp, "GradScaler")
needs_cpu_scaler = pytest.mark.skipif(IS_TOO_OLD, reason=_TOO_OLD)


class _Missing:
    """In the place of a scaler: skips the test that uses it."""

    def __getattr__(self, name: str) -> Any:
        pytest.skip(_TOO_OLD)


class Net(nn.Module):
    """A norm between two matrix products."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.norm(self.first(x))))


def fp16() -> torch.autocast:
    if IS_TOO_OLD:
        pytest.skip(_TOO_OLD)
    return torch.autocast("cpu", dtype=torch.float16)


def scaler(init_scale: float = 1024.0, **options: Any) -> Any:
    if IS_TOO_OLD:
        return _Missing()
    return torch.amp.GradScaler("cpu", init_scale=init_scale, **options)


def setup(seed: int = 0, lr: float = 1e-2, **options: Any) -> tuple[Net, torch.optim.Optimizer, Any]:
    torch.manual_seed(seed)
    model = Net()
    return model, torch.optim.SGD(model.parameters(), lr=lr), scaler(**options)


def batch(size: int = 4) -> torch.Tensor:
    return torch.randn(size, 8)


def loss_of(output: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(output.float(), torch.ones(output.shape))


def row_of(function: Callable[..., Any], mark: str) -> int:
    """The row of this file that `# <- mark` stands on, inside `function`."""
    lines, first = inspect.getsourcelines(function)
    rows = [first + index for index, line in enumerate(lines) if line.rstrip().endswith(f"# <- {mark}")]
    assert len(rows) == 1, (mark, rows)
    return rows[0]


def only(run: Verifier, code: str) -> Observed:
    """The finding of a run, which must be its only one."""
    assert [each.code for each in run.findings] == [code], [(e.code, e.step, e.message) for e in run.findings]
    return run.findings[0]
