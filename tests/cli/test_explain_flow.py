"""`amplint check --explain-flow FILE:LINE`: what the analysis believes, in words."""

from __future__ import annotations

import pytest

TRAIN = """\
import torch


def train(model, optimizer, scaler, loss, use_amp):
    if use_amp:
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
    else:
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.fixture
def explained(amplint, tmp_path, monkeypatch):
    """What is printed for a row of a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)

    def ask(place: str):
        return amplint("check", "--isolated", "--explain-flow", place)

    return ask


def test_each_way_to_the_line_is_told_with_what_it_assumes(explained):
    result = explained("train.py:10")
    assert result.exit_code == 0
    assert "train.py:10: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)" in result.stdout
    assert "scaler: its gradients are scaled (backward on line 6)" in result.stdout
    assert "scaler: unscale_ has run for optimizer" in result.stdout
    assert "no scaler: gradients of a loss that is not scaled (line 9)" in result.stdout
    assert "assuming use_amp is true" in result.stdout
    assert "assuming use_amp is false" in result.stdout


def test_a_line_without_a_call_stands_for_the_next_one(explained):
    assert "train.py:6: scaler.scale(loss).backward()" in explained("train.py:5").stdout
    assert "the first call from line 5 on" in explained("train.py:5").stdout


def test_a_line_behind_the_last_call_says_so(explained, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN + "    print(loss)\n")
    assert "nothing on this line" in explained("train.py:13").stdout


def test_a_file_without_a_scaler_says_so(explained, tmp_path):
    (tmp_path / "plain.py").write_text("x = 1\n")
    assert "nothing in this file scales a loss" in explained("plain.py:1").stdout


@pytest.mark.parametrize("place", ["train.py", "train.py:", "train.py:x", ":3", "train.py:0", "train.py:-1"])
def test_what_is_no_place_is_refused(explained, place):
    result = explained(place)
    assert result.exit_code == 2
    assert "FILE:LINE" in result.stderr


def test_a_line_behind_the_end_is_refused(explained):
    result = explained("train.py:1000")
    assert result.exit_code == 2
    assert "train.py: there is no line 1000, the last one is " in result.stderr


def test_a_file_that_is_not_there_is_refused(explained):
    result = explained("gone.py:3")
    assert result.exit_code == 2
    assert "gone.py" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_file_that_cannot_be_parsed_is_refused(explained, tmp_path):
    (tmp_path / "broken.py").write_text("def f(:\n")
    result = explained("broken.py:1")
    assert result.exit_code == 2
    assert "cannot be parsed" in result.stderr


NORM = """\
import torch
import torch.nn.functional as F


def rescale(x):
    with torch.autocast("cuda", dtype=torch.float16):
        h = torch.mm(x, x)
        return F.interpolate(h[None, None], scale_factor=2)


def scores(x):
    half = x.half()
    return half + 1


rescale(torch.rand(4, 4))
"""


@pytest.fixture
def told(amplint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "norm.py").write_text(NORM)
    return lambda row: amplint("check", "--isolated", "--explain-flow", f"norm.py:{row}").stdout


def test_dtypes_are_told_with_where_they_come_from(told):
    text = told(7)
    assert "x: float32" in text
    assert (
        "h: float16 (matmul" in text or "h: float16 (mm gives float16 in the autocast region, line 7)" in text
    )
    assert "autocast: on, float16 (line 6)" in text


def test_where_cuda_and_npu_differ_both_are_told(told):
    assert "interpolate(): float32 on CUDA, float16 on NPU" in told(8)


def test_what_is_not_known_of_the_region_is_said(told):
    assert "half: float16 (half makes it float16, line 12)" in told(13)
    assert "autocast: not known" in told(13)


def test_a_line_without_tensors_says_nothing_of_dtypes(told):
    assert "dtypes" not in told(1)
