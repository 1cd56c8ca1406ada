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
def figures() -> dict[str, float]:
    """`sample/before`, `sample/after` and `sample/float32` -> what it printed."""
    run = launch(str(CHECKS / "reports.py"), str(REPORTS))
    assert run.returncode == 0, run.stdout + run.stderr
    found: dict[str, str] = json.loads(run.stdout.splitlines()[-1])
    return {name: float(figure) for name, figure in found.items()}


def test_every_report_has_a_before_and_an_after():
    assert set(figures()) == {f"{name}/{when}" for name in NAMES for when in ("before", "after", "float32")}


def test_the_summed_loss_stops_where_float16_cannot_count_on():
    assert figures()["summed_loss/before"] == 2048.0
    assert figures()["summed_loss/float32"] == 6000.0


def test_half_layer_norm_sees_no_spread_in_readings_that_were_rounded():
    assert figures()["half_layer_norm/before"] == 0.0
    assert figures()["half_layer_norm/float32"] == pytest.approx(1.0, abs=0.01)


def test_squares_of_an_enlarged_map_overflow_on_npu():
    assert math.isinf(figures()["upsampled_depth/before"])
    assert math.isfinite(figures()["upsampled_depth/float32"])


@pytest.mark.parametrize("name", NAMES)
def test_the_mended_figure_is_that_of_float32(name):
    assert figures()[f"{name}/after"] == pytest.approx(figures()[f"{name}/float32"], rel=CLOSE)
