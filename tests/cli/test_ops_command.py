"""`amplint ops FILE`: what runs in a region, and where CUDA and NPU differ."""

from __future__ import annotations

import json

import pytest

DECODER = """\
import torch
import torch.nn.functional as F


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x):
        depth = self.conv(x)
        return F.interpolate(depth, scale_factor=2, mode="bilinear")


def error(x, target):
    decoder = Decoder()
    with torch.autocast("npu", dtype=torch.float16):
        gap = decoder(x) - target.half()
        return F.softmax(gap, dim=-1)
"""


@pytest.fixture
def listed(amplint, tmp_path, monkeypatch):
    """What is printed for a file with this text."""
    monkeypatch.chdir(tmp_path)

    def ask(text: str = DECODER, *options: str):
        (tmp_path / "decoder.py").write_text(text)
        return amplint("ops", "--isolated", *options, "decoder.py")

    return ask


def rows(text: str) -> list[list[str]]:
    """The rows of the table, by words."""
    return [line.split() for line in text.splitlines() if line[:1].isdigit() and "operators," not in line]


def test_what_differs_comes_first_and_says_why(listed):
    result = listed()
    assert result.exit_code == 0
    assert result.stdout.startswith('decoder.py:17: torch.autocast("npu", dtype=torch.float16) (float16)\n')
    assert [(row[0], row[1]) for row in rows(result.stdout)] == [
        ("12", "interpolate"),
        ("18", "sub"),
        ("11", "module"),
        ("18", "to"),
        ("19", "softmax"),
    ]
    first, second = rows(result.stdout)[:2]
    assert first[2:] == ["float16", "float32", "float16", "autocast's", "lists", "differ"]
    assert second[2:] == [
        "float32",
        "(float16),",
        "float16",
        "float32",
        "float16",
        "its",
        "operands",
        "differ",
    ]
    assert "5 operators, 2 of another dtype on NPU than on CUDA" in result.stdout


def test_nothing_but_differences_is_printed_where_that_is_asked_for(listed):
    assert [row[1] for row in rows(listed(DECODER, "--differences").stdout)] == ["interpolate", "sub"]


def test_json_has_the_same(listed):
    result = json.loads(listed(DECODER, "--output-format", "json").stdout)
    (region,) = result["regions"]
    assert (result["file"], region["line"], region["dtypes"]) == ("decoder.py", 17, ["float16"])
    first = region["operators"][0]
    assert first["code"] == 'F.interpolate(depth, scale_factor=2, mode="bilinear")'
    assert (first["line"], first["cuda"], first["npu"]) == (12, ["float32"], ["float16"])
    assert first["differs"] and first["by_itself"]
    assert region["operators"][1]["npu_operands"] == [["float16"], ["float16"]]


def test_a_region_for_cuda_is_looked_at_as_it_will_be_on_npu(listed):
    text = DECODER.replace('torch.autocast("npu", ', "torch.cuda.amp.autocast(")
    assert [row[1] for row in rows(listed(text, "--differences").stdout)] == ["interpolate", "sub"]


def test_the_lists_are_those_of_the_release_that_is_named(listed):
    text = DECODER.replace(
        "F.interpolate(depth, scale_factor=2, mode=", "F.rms_norm(depth, (4,), eps=1e-6) #"
    )
    assert [row[1] for row in rows(listed(text, "--differences").stdout)] == ["rms_norm", "sub"]
    older = listed(text, "--torch", "2.11", "--differences").stdout
    assert "5 operators, none of another dtype on NPU than on CUDA" in older


def test_what_runs_in_a_helper_of_another_file_is_listed_under_its_name(listed, tmp_path):
    (tmp_path / "helper.py").write_text(
        'import torch\n\ndef wide(x):\n    return torch.nn.functional.interpolate(x.half(), mode="bilinear")\n'
    )
    text = (
        "import torch\nfrom helper import wide\n\n\ndef run(x):\n"
        "    with torch.autocast('npu', dtype=torch.float16):\n        return wide(x)\n"
    )
    assert [row[:2] for row in _all_rows(listed(text, "--differences").stdout)] == [
        ["helper.py:4", "interpolate"]
    ]


def _all_rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.startswith(("helper.py",))]


def test_a_file_without_a_region_says_so(listed):
    result = listed("x = 1\n")
    assert result.exit_code == 0
    assert result.stdout == "decoder.py: nothing was found that runs in an autocast region\n"


def test_a_file_that_cannot_be_parsed_is_refused(listed):
    result = listed("def f(:\n")
    assert result.exit_code == 2
    assert "cannot be parsed" in result.stderr


def test_a_release_that_is_none_is_refused(listed):
    result = listed(DECODER, "--torch", "new")
    assert result.exit_code == 2
    assert "torch" in result.stderr
