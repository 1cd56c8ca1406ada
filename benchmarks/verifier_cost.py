"""What observing a training run costs: time per step and waits for the device.

    python benchmarks/verifier_cost.py [--steps 60] [--pairs 15] [--width 256] [--batch 4] [--json FILE]

A transformer of 12 layers is trained on the CPU in float16 with a GradScaler. Stretches of steps alternate between
observed and not observed; each pair gives a ratio of process CPU times, and the median of the ratios is reported with
its quartiles. Beside it stands the CPU time spent inside the verifier's handlers, in steps that include a close one.

Waits are counted by an op-level mode as calls that bring a value of the device to the host (`item`, `tolist` through a
copy, `nonzero`), in runs of the same steps with and without the verifier; the copy every 20 steps is told apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from amplint.runtime import verify

WAITS = ("aten._local_scalar_dense", "aten.nonzero", "aten.is_nonzero", "aten.equal")


class Block(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, width] to the same."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Loop:
    """A training loop that can be run a stretch at a time."""

    def __init__(self, width: int, batch: int) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Embedding(256, width),
            *(Block(width) for _ in range(12)),
            nn.LayerNorm(width),
            nn.Linear(width, 256),
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        self.batch = batch

    def run(self, steps: int) -> None:
        """Train for some steps."""
        for _ in range(steps):
            self.optimizer.zero_grad()
            tokens = torch.randint(256, (self.batch, 33))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = self.model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()


class Counter(TorchDispatchMode):
    """Counts calls that make the host wait for a value, and bulk copies of the verifier."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0
        self.ops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count, then run the op."""
        self.ops += 1
        self.waits += str(func).startswith(WAITS)
        return func(*args, **(kwargs or {}))


def seconds(loop: Loop, steps: int) -> float:
    """Process CPU seconds of a stretch."""
    begin = time.process_time()
    loop.run(steps)
    return time.process_time() - begin


def cost(loop: Loop, steps: int, pairs: int) -> dict[str, float]:
    """Ratios of neighbouring stretches, and what the unobserved ones differ by among themselves."""
    ratios, noise, base = [], [], []
    loop.run(2 * steps)
    before = seconds(loop, steps)
    for _ in range(pairs):
        observed = verify.Verifier(models=(loop.model,))
        observed.start()
        loop.run(4)  # the first steps are looked at closely; that is paid once per run
        during = seconds(loop, steps)
        observed.close()
        after = seconds(loop, steps)
        ratios.append(during / ((before + after) / 2))
        noise.append(after / before)
        base.append(after)
        before = after
    quartiles = statistics.quantiles(ratios, n=4)
    return {
        "step_ms": statistics.median(base) / steps * 1000,
        "added_percent": (statistics.median(ratios) - 1) * 100,
        "lower_quartile": (quartiles[0] - 1) * 100,
        "upper_quartile": (quartiles[2] - 1) * 100,
        "noise_percent": (statistics.median(noise) - 1) * 100,
    }


class Timed(verify.Verifier):
    """Adds up the CPU time spent in its own handlers, copies into the device's buffer included."""

    spent = 0

    def tell(self, event: str, *arguments: Any) -> None:
        """Handle an event, timed."""
        begin = time.thread_time_ns()
        super().tell(event, *arguments)
        self.spent += time.thread_time_ns() - begin


def handlers(loop: Loop, steps: int) -> dict[str, float]:
    """Microseconds per step inside the verifier: less noisy than a difference, and free of what torch does."""
    observed = Timed(models=(loop.model,))
    observed.start()
    loop.run(4)
    observed.spent = 0
    begin = time.process_time()
    loop.run(steps)
    total = time.process_time() - begin
    observed.close()
    return {
        "handlers_us": observed.spent / steps / 1000,
        "handlers_percent": observed.spent / total / 1e7,
    }


def waits(loop: Loop, steps: int) -> dict[str, float]:
    """Waits and ops per step, with and without the verifier, in steps that are not looked at closely."""
    found = {}
    for name in ("without", "with"):
        observed = verify.Verifier(verify.Options(every=1 << 20), models=(loop.model,))
        if name == "with":
            observed.start()
            loop.run(20)
        with Counter() as counter:
            loop.run(steps)
        if name == "with":
            observed.close()
        found[f"waits_{name}"] = counter.waits / steps
        found[f"ops_{name}"] = counter.ops / steps
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=60, help="steps per stretch")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    loop = Loop(options.width, options.batch)
    result = {**cost(loop, options.steps, options.pairs), **handlers(loop, 50), **waits(loop, 20)}
    for name, value in result.items():
        print(f"{name:16} {value:10.3f}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
