"""The samples of field reports: amplint reports each before it was mended, and nothing after."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint import check_source
from amplint.finding import Finding
from amplint.registry import find_rule

REPORTS = Path(__file__).parents[2] / "samples" / "reports"

#: Sample -> the code of its mistake, and what is written where it is.
EXPECTED = {
    "summed_loss": ("AMP301", "total = total + gap[step] * gap[step]"),
    "half_layer_norm": ("AMP303", "scaled = self.norm(x)"),
    "upsampled_depth": ("AMP801", "return F.interpolate(depth, "),
}


def findings(sample: str, when: str) -> list[Finding]:
    text = (REPORTS / sample / f"{when}.py").read_text()
    return list(check_source(text, f"{when}.py", target="npu"))


@pytest.mark.parametrize("sample", EXPECTED)
def test_the_mistake_is_reported_where_it_is(sample: str) -> None:
    code, written = EXPECTED[sample]
    if find_rule(code) is None:
        pytest.skip(f"{code} is not there yet")
    lines = (REPORTS / sample / "before.py").read_text().splitlines()
    row = next(number for number, line in enumerate(lines, 1) if written in line)
    assert (code, row) in {(f.code, f.start.row) for f in findings(sample, "before")}


@pytest.mark.parametrize("sample", EXPECTED)
def test_nothing_is_reported_once_it_is_mended(sample: str) -> None:
    assert [(f.code, f.start.row) for f in findings(sample, "after")] == []
