"""The page of a record: self-contained, and right for runs of any length and with any values."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest

from amplint.runtime.page import page, read_runs, write_page


def run_lines(steps, **more):
    head = {"event": "run", "schema": 1, "argv": ["train <a>.py"], "rank": 0, "world_size": 1, "torch": "2"}
    return [head, *steps, *more.get("rest", ())]


def step(number, loss=1.0, scale=1024.0, skipped=False, norm=0.5):
    return {
        "event": "step",
        "step": number,
        "optimizer": 0,
        "loss": loss,
        "grad_norm": norm,
        "scale": scale,
        "skipped": skipped,
    }


def drawings(text):
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def test_the_page_needs_nothing_from_outside():
    text = page(run_lines([step(0), step(1)]))
    assert not re.search(r"https?:|<script|<link|@import|url\(", text)


def test_loss_norm_and_scale_are_drawn_and_skipped_steps_are_marked():
    first = {
        "event": "nonfinite",
        "step": 3,
        "pass": "backward",
        "module": "blocks.2",
        "parameter": "blocks.2.w",
    }
    text = page(run_lines([step(n, skipped=n in (3, 5)) for n in range(10)], rest=[first]))
    curves = drawings(text)
    assert len(curves) == 3
    for curve in curves:
        kinds = [shape.get("class") for shape in curve]
        assert (kinds.count("skip"), kinds.count("first"), kinds.count("curve")) == (2, 1, 1)
    assert "step 3, backward pass: module blocks.2, parameter blocks.2.w" in text


@pytest.mark.parametrize(
    "values", [["nan", 1.0], ["inf", "-inf"], [0.0, 0.0], [None, 2.0], [1e38, 1e-38], [-1.0, -1.0]]
)
def test_any_value_of_a_record_can_be_drawn(values):
    text = page(run_lines([step(n, loss=value, norm=value, scale=value) for n, value in enumerate(values)]))
    assert all("nan" not in ET.tostring(curve, "unicode") for curve in drawings(text))


def test_an_empty_record_and_a_single_step_make_a_page():
    assert "None." in page([])
    assert len(drawings(page(run_lines([step(0)])))) == 3


def test_a_long_run_is_thinned_out_without_losing_its_spike():
    steps = [step(n, loss=100.0 if n == 77_777 else 1.0) for n in range(100_000)]
    text = page(run_lines(steps))
    assert len(text) < 300_000
    (points,) = [shape.get("points") for shape in drawings(text)[0] if shape.get("class") == "curve"]
    heights = [float(point.split(",")[1]) for point in points.split()]
    assert min(heights) == 10.0


def test_what_comes_from_the_record_is_escaped():
    found = {
        "code": "AMP201",
        "name": "clip-before-unscale",
        "message": "<b>&",
        "severity": "error",
        "filename": "<x>.py",
        "location": {"row": 1, "column": 1},
        "step": 0,
        "module": "<m>",
    }
    text = page(run_lines([step(0)], rest=[{"event": "finding", "finding": found}]))
    assert "<b>&" not in text and "<x>" not in text and "<m>" not in text and "<a>" not in text
    assert "&lt;b&gt;&amp;" in text


def test_the_last_run_of_a_record_is_shown(tmp_path):
    record = tmp_path / "rank0.jsonl"
    lines = [*run_lines([step(0)]), {**run_lines([])[0], "argv": ["second"]}]
    record.write_text("\n".join(map(json.dumps, lines)) + '\n{"broken\n[1]\n')
    assert len(read_runs(str(record))) == 2
    write_page(str(record))
    assert "<h1>second</h1>" in (tmp_path / "rank0.html").read_text()
