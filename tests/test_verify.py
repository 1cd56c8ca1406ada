from __future__ import annotations

from typing import Any

import pytest

from amplint.config import Settings
from amplint.engine import model_of
from amplint.finding import Confidence, Finding, Position, Severity, Span
from amplint.model.module import ModuleModel
from amplint.source import source_from_text
from amplint.verify import objection, unbound_names


def model(text: str) -> ModuleModel:
    made = model_of(source_from_text(text, "a.py"), Settings())
    assert isinstance(made, ModuleModel)
    return made


def finding(code: str, row: int = 1) -> Finding:
    place = Position(row, 1)
    return Finding(code, code, code, Severity.ERROR, Confidence.HIGH, "a.py", Span(0, 0), place, place)


def objects(before: str, after: str, was: Any = (), now: Any = (), fixed: Any = ()) -> str | None:
    return objection(
        model(before),
        model(after),
        [finding(c) for c in was],
        [finding(c) for c in now],
        [finding(c) for c in fixed],
    )


def test_a_text_that_cannot_be_parsed_any_more_is_not_right() -> None:
    assert objection(model("x = 1\n"), None, [], [], []) == "the result cannot be parsed"


def test_a_rewrite_that_binds_all_its_names_is_right() -> None:
    before = "from m import a\na()\n"
    assert objects(before, "import torch\ntorch.a()\n", ["AMP101"], [], ["AMP101"]) is None


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ("import a\na\n", "a\n", "a"),
        ("import a\na\n", "import a\nb\na\n", "b"),
        ("import a, b\nb.c, a.d\n", "b.c, a.d\n", "a, b"),
        ("import a\na\n", "def f():\n    import a\na\n", "a"),
        ("from m import a\ndef f(): a\n", "def f(): a\n", "a"),
        ("from m import *\na\n", "a\n", "a"),
    ],
)
def test_a_name_that_the_rewrite_leaves_unbound_is_named(before: str, after: str, lost: str) -> None:
    assert objects(before, after) == f"the result uses {lost} without binding it"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\n", "a\nprint(1)\n"),
        ("a, b\n", "a\n"),
        ("import a\na\n", "from m import *\na\n"),
        ("import a\na\n", "def f(a): return a\n"),
        ("import a\na\n", "try:\n    import a\nexcept ImportError:\n    a = None\na\n"),
        ("x = 1\n", "__name__, __file__\n"),
    ],
)
def test_what_was_unbound_before_or_is_bound_or_builtin_is_no_objection(before: str, after: str) -> None:
    assert objects(before, after) is None or "__file__" in after


def test_a_name_of_all_that_is_not_bound_any_more_is_named() -> None:
    before = "from m import a, b\n__all__ = ['a', 'b']\n"
    assert objects(before, "from m import b\n__all__ = ['a', 'b']\n") == (
        "the result exports a without binding it"
    )
    assert objects(before, "from m import b\n__all__ = ['b']\n") is None


def test_a_finding_that_is_still_there_is_an_objection() -> None:
    assert (
        objects("x\n", "x\n", ["AMP101"], ["AMP101"], ["AMP101"])
        == "a finding of AMP101 is still there after it"
    )


def test_a_finding_that_was_not_there_before_is_an_objection() -> None:
    assert objects("x\n", "x\n", ["AMP101"], ["AMP102"], ["AMP101"]) == "a finding of AMP102 is new after it"
    assert objects("x\n", "x\n", ["AMP101"] * 2, ["AMP101"] * 2, ["AMP101"]) is not None


def test_findings_that_were_there_before_or_went_too_are_no_objection() -> None:
    assert objects("x\n", "x\n", ["AMP101", "AMP102"], ["AMP102"], ["AMP101"]) is None
    assert objects("x\n", "x\n", ["AMP101", "AMP102"], [], ["AMP101"]) is None


def test_a_suppression_that_became_unused_is_no_objection() -> None:
    assert objects("x\n", "x\n", ["AMP101"], ["AMP901"], ["AMP101"]) is None
    assert objects("x\n", "x\n", ["AMP901"], ["AMP901"], ["AMP901"]) is not None


def test_without_a_tree_before_the_findings_alone_are_compared() -> None:
    assert objection(None, model("a\n"), [], [], []) is None


def test_unbound_names_are_those_that_nothing_in_the_file_binds() -> None:
    text = "import a\ndef f(b): c = b; return a, c, d, len\nclass C: e = 1; g = e\n"
    assert unbound_names(model(text)) == {"d"}
    assert unbound_names(model("from m import *\nx\n")) == frozenset()
