"""What editors send as settings: what is wrong is told, and the rest counts."""

from __future__ import annotations

import pytest

from amplint.lsp.settings import read_editor_settings


@pytest.mark.parametrize(
    ("key", "value", "noun"),
    [
        ("select", {"AMP1": True}, "a list of texts"),
        ("select", [["AMP1"]], "a list of texts"),
        ("ignore", 5, "a list of texts"),
        ("target", ["npu"], "a text"),
        ("minConfidence", {}, "a text"),
        ("preview", "yes", "true or false"),
        ("debounce", True, "a number"),
    ],
)
def test_a_value_of_the_wrong_shape_is_told_and_passed_over(key, value, noun):
    found = read_editor_settings({key: value, "soc": "950"})
    assert found.problems == (f"{key}: expected {noun}",)
    assert found.overrides == (("soc", "950"),)
    assert hash(found) is not None


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("target", "tpu", "target: unknown value 'tpu'"),
        ("select", ["AMPX"], "select: unknown rule 'AMPX'"),
        ("torch", "new", "torch: expected a version"),
    ],
)
def test_a_value_that_means_nothing_is_told_and_passed_over(key, value, problem):
    found = read_editor_settings({key: value, "soc": "950"})
    (told,) = found.problems
    assert told.startswith(problem)
    assert found.overrides == (("soc", "950"),)


def test_lists_may_be_texts():
    assert read_editor_settings({"select": "AMP1,AMP2"}).overrides == (("select", "AMP1,AMP2"),)
    assert read_editor_settings({"select": ["AMP1"]}).overrides == (("select", ("AMP1",)),)
