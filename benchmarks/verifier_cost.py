"""What observing a training run costs: time per step, and waits for the device.

    python benchmarks/verifier_cost.py [--pairs 40] [--width 256] [--batch 4] [--json FILE]

A transformer of 12 layers is trained on one CPU thread, in float16 with a GradScaler. Stretches of eight steps
without (A) and with the verifier (B) alternate as A B B A A B B A ..., so that a machine that slows down or speeds up
favours neither; three steps after each change are not timed. A stretch counts with the median CPU time of its steps,
and each pair of neighbours gives one ratio B / A; reported are the median of the ratios and an interval around it by
the sign test, which assumes nothing about their distribution. What neighbours without the verifier differ by shows
how much of a single ratio is noise. One observed step in 50 is a close one, as `amplint run` has by default: the time
spent in the verifier's own handlers, measured in a stretch of its own, has them in it.

Waits of the host for the device are counted exactly, by the simulated NPU in a process of its own, in steps that are
not close: with the verifier, without it, and what remains after its one copy every 20 steps, which must be nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from amplint.runtime import anchors, verify

ROOT = Path(__file__).resolve().parent.parent
LAYERS = 12
#: The first steps of a run are close ones.
WARM_UP = 4
#: The verifier copies what it noted once in so many steps.
COPY_EVERY = 20
#: One step in so many is a close one.
CLOSE_EVERY = 50
#: Steps of a stretch, and steps after a change that are not timed: Python specialises its code anew.
STRETCH, UNTIMED = 8, 3


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

    def __init__(self, width: int, batch: int, device: str = "cpu") -> None:
        torch.manual_seed(0)
        self.device = device
        self.model = nn.Sequential(
            nn.Embedding(256, width),
            *(Block(width) for _ in range(LAYERS)),
            nn.LayerNorm(width),
            nn.Linear(width, 256),
        ).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4)
        self.scaler = torch.amp.GradScaler(device, init_scale=1024.0)
        self.batch = batch

    def run(self, steps: int) -> None:
        """Train for some steps."""
        for _ in range(steps):
            self.optimizer.zero_grad()
            tokens = torch.randint(256, (self.batch, 33)).to(self.device)
            with torch.autocast(self.device, dtype=torch.float16):
                logits = self.model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()


def median_and_interval(values: list[float], coverage: float = 0.95) -> tuple[float, float, float, float]:
    """Median, both ends of its interval by the sign test, and the interval's coverage.

    The interval is the narrowest pair of order statistics that covers at least `coverage`; few values may not
    get there, and then it is that of the smallest and the largest.
    """
    ordered = sorted(values)
    count = len(ordered)
    cut, outside = 0, 2 * 0.5**count
    tail = outside
    while cut + 1 < count // 2:
        tail += 2 * math.comb(count, cut + 1) * 0.5**count
        if tail > 1 - coverage:
            break
        cut, outside = cut + 1, tail
    return statistics.median(ordered), ordered[cut], ordered[count - 1 - cut], 1 - outside


class Switch:
    """A verifier that can be taken off the loop, with all that it put on it, and on again."""

    def __init__(self, loop: Loop) -> None:
        self._verifier = verify.Verifier(models=(loop.model,))
        self._verifier.start()
        loop.run(WARM_UP)
        self._is_on = True

    def turn(self, on: bool) -> None:
        """Observe from now on, or no more."""
        if on != self._is_on:
            (anchors.attach if on else anchors.detach)(self._verifier)
            (self._verifier._forward.attach if on else self._verifier._forward.detach)()
            self._is_on = on

    def close(self) -> None:
        """End the observation; SystemExit if it found something."""
        self.turn(True)
        self._verifier.close()
        if self._verifier.findings:
            raise SystemExit(f"the loop has findings: {[each.code for each in self._verifier.findings]}")


def stretch(loop: Loop) -> tuple[float, float]:
    """Medians over the steps of a stretch: CPU seconds of the process, seconds of the clock."""
    times = []
    for _ in range(STRETCH):
        cpu, clock = time.process_time(), time.perf_counter()
        loop.run(1)
        times.append((time.process_time() - cpu, time.perf_counter() - clock))
    return statistics.median(t[0] for t in times), statistics.median(t[1] for t in times)


def cost(loop: Loop, pairs: int) -> dict[str, float]:
    """What the verifier adds to a step, in percent."""
    switch = Switch(loop)
    taken: list[tuple[bool, float, float]] = []
    for number in range(pairs):
        for observed in (False, True) if number % 2 == 0 else (True, False):
            switch.turn(observed)
            loop.run(UNTIMED)
            taken.append((observed, *stretch(loop)))
    switch.close()
    result: dict[str, float] = {}
    for name, index in (("cpu", 1), ("clock", 2)):
        times = [(each[0], each[index]) for each in taken]
        ratios = []
        for number in range(pairs):
            pair = dict(times[2 * number : 2 * number + 2])
            ratios.append((pair[True] / pair[False] - 1) * 100)
        middle, low, high, covered = median_and_interval(ratios)
        result[f"added_{name}_percent"] = middle
        result[f"added_{name}_low"] = low
        result[f"added_{name}_high"] = high
        result["interval_coverage"] = covered
        # A B B A A B B A: the A of one pair and of the next stand side by side at every second seam
        neighbours = zip(times[1::2], times[2::2], strict=False)
        noise = [abs(b / a - 1) * 100 for (one, a), (other, b) in neighbours if not one and not other]
        result[f"noise_{name}_percent"] = statistics.median(noise) if noise else math.nan
        result[f"step_{name}_ms"] = statistics.median(t for seen, t in times if not seen) * 1000
    result["pairs"] = pairs
    return result


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
    loop.run(WARM_UP)
    observed.spent = 0
    begin = time.process_time()
    loop.run(steps)
    total = time.process_time() - begin
    observed.close()
    return {
        "handlers_us": observed.spent / steps / 1000,
        "handlers_percent": observed.spent / total / 1e7,
    }


def count_waits(steps: int) -> dict[str, float]:
    """Waits per step on the simulated NPU, which this process must have."""
    from amplint import simnpu

    loop = Loop(32, 2, "npu")
    loop.run(WARM_UP)
    result: dict[str, float] = {}
    for name in ("without", "with"):
        verifier = verify.Verifier(verify.Options(every=1 << 20), models=(loop.model,))
        if name == "with":
            verifier.start()
            loop.run(COPY_EVERY)  # the close ones, and on to a step after a copy
        simnpu.reset_counts()
        loop.run(steps)
        result[f"waits_{name}"] = simnpu.sync_count() / steps
        result[f"operators_{name}"] = sum(simnpu.op_counts().values()) / steps
        if name == "with":
            verifier.close()
    added = result["waits_with"] - result["waits_without"] - 1 / COPY_EVERY
    result["waits_added_besides_copies"] = round(added, 9)
    return result


def waits(steps: int) -> dict[str, float]:
    """`count_waits` in a process that has a simulated NPU."""
    command = [sys.executable, "-W", "ignore", "-m", "amplint.simnpu", __file__, "--count-waits", str(steps)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(ended.stderr)
    counted: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return counted


def main() -> None:
    """Measure and print; exit code 1 if the verifier waits for the device besides its copies."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--count-waits", type=int, metavar="STEPS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pairs < 1:
        parser.error("--pairs is 1 or more")
    torch.set_num_threads(1)
    if options.count_waits:
        print(json.dumps(count_waits(options.count_waits)))
        return
    result = waits(2 * COPY_EVERY)
    loop = Loop(options.width, options.batch)
    result.update(cost(loop, options.pairs))
    result.update(handlers(loop, CLOSE_EVERY))
    for name, value in result.items():
        print(f"{name:28} {value:10.3f}")
    print(
        f"the verifier adds {result['added_cpu_percent']:.2f} % to a step ({result['added_cpu_low']:.2f} to"
        f" {result['added_cpu_high']:.2f}, {result['interval_coverage']:.0%} by the sign test,"
        f" {options.pairs} pairs) and {result['waits_added_besides_copies']:g} waits besides one per {COPY_EVERY} steps"
    )
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if result["waits_added_besides_copies"]:
        raise SystemExit("the verifier waits for the device")


if __name__ == "__main__":
    main()
