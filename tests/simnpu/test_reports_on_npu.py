"""The samples of field reports on the simulated NPU: the figure is wrong before and right after."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path

import pytest

from .conftest import CHECKS, launch

REPORTS = Path(__file__).parents[2] / "samples" / "reports"
NAMES = ("summed_loss", "half_layer_norm", "upsampled_depth")
#: How far the mended figure may be from float32's; the largest difference seen was 1e-4.
CLOSE = 1e-3


@functools.cache
def figures() -> dict[str, tuple[float, float]]:
    """`sample/before` and `sample/after` -> what it printed with AMP, and in float32."""
    run = launch(str(CHECKS / "reports.py"), str(REPORTS))
    assert run.returncode == 0, run.stdout + run.stderr
    found: dict[str, list[str]] = json.loads(run.stdout.splitlines()[-1])
    return {name: (float(amp), float(full)) for name, (amp, full) in found.items()}


def test_every_report_has_a_before_and_an_after():
    assert set(figures()) == {f"{name}/{when}" for name in NAMES for when in ("before", "after")}


def test_the_summed_loss_stops_where_float16_cannot_count_on():
    assert figures()["summed_loss/before"] == (2048.0, 6000.0)


def test_half_layer_norm_sees_no_spread_in_readings_that_were_rounded():
    assert figures()["half_layer_norm/before"][0] == 0.0
    assert figures()["half_layer_norm/before"][1] == pytest.approx(1.0, abs=0.01)


def test_squares_of_an_enlarged_map_overflow_on_npu_only():
    amp, full = figures()["upsampled_depth/before"]
    assert math.isinf(amp)
    assert math.isfinite(full)


@pytest.mark.parametrize("name", NAMES)
def test_the_mended_figure_is_that_of_float32(name):
    amp, full = figures()[f"{name}/after"]
    assert amp == pytest.approx(full, rel=CLOSE)
    assert full == pytest.approx(figures()[f"{name}/before"][1], rel=1e-6)
