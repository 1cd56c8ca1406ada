"""What docs/verifier.md and docs/json.md say of the verifier is what it does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import amplint.runtime
from amplint.runtime import closeup, history, invariance
from amplint.runtime.observed import KINDS, Observed, Step
from amplint.runtime.place import Place

RUNTIME = Path(amplint.runtime.__file__).parent
DOCS = Path(__file__).resolve().parents[2] / "docs"
ROW = re.compile(r"^\| ((?:AMP|RUN)\d{3}) \|([^|\n]+)\|([^|\n]+)\|$", re.MULTILINE)


def rows() -> dict[str, tuple[str, str]]:
    found = ROW.findall((DOCS / "verifier.md").read_text("utf-8"))
    assert len({code for code, _, _ in found}) == len(found)
    return {code: (shown.strip(), remedy.strip()) for code, shown, remedy in found}


def test_every_code_of_the_verifier_is_in_the_docs_with_what_to_do_and_no_other_is():
    emitted = set()
    for path in RUNTIME.glob("*.py"):
        if path.name != "observed.py":
            emitted |= set(re.findall(r'"((?:AMP|RUN)\d{3})"', path.read_text("utf-8")))
    documented = rows()
    assert set(documented) == set(KINDS) == emitted
    assert all(shown and remedy for shown, remedy in documented.values())
    mentioned = set(re.findall(r"(?:AMP|RUN)\d{3}", (DOCS / "verifier.md").read_text("utf-8")))
    assert mentioned == set(KINDS)


def test_codes_that_are_said_to_be_rules_of_the_linter_are_all_that_are():
    from amplint.registry import all_rules

    text = (DOCS / "verifier.md").read_text("utf-8")
    sentence = re.search(r"^(AMP[^.]*?) are rules of the linter, too", text, re.MULTILINE)
    assert sentence is not None
    shared = KINDS.keys() & {rule.code for rule in all_rules()}
    assert set(re.findall(r"AMP\d{3}", sentence[1])) == shared


@pytest.mark.parametrize(
    ("code", "figures"),
    [
        ("RUN101", [history._WARM_UP, f"{history._RATE * 100:g} %", history._WINDOW]),
        ("RUN102", [{4: "four"}[history._FALLS], f"{history._DECLINE:g}"]),
        ("RUN103", [history._IN_A_ROW, f"5 to {history._IN_A_ROW - 1}"]),
        ("RUN105", [{3: "three"}[history._BURST], history._SETTLED]),
        ("RUN106", [{3: "three"}[history._BAD_LOSSES]]),
        ("RUN202", [f"{closeup._NEAR_LIMIT:.0f}"]),
        ("RUN203", [closeup.StepCloseup._MEASURED]),
        ("AMP201", [invariance._NORMS, invariance._RATIO, f"{invariance._TOLERANCE * 100:g} %"]),
    ],
)
def test_thresholds_in_the_docs_are_those_of_the_code(code, figures):
    shown, _ = rows()[code]
    for figure in figures:
        assert re.search(rf"(?<![\w.]){re.escape(str(figure))}(?!\w)", shown), (code, figure)


def test_the_finding_of_a_run_in_the_docs_has_the_keys_of_the_record_in_their_order():
    text = (DOCS / "json.md").read_text("utf-8").partition("## Findings of a run")[2]
    shown = json.loads(text.partition("```json")[2].partition("```")[0])
    place = Place("/home/me/train.py", 15, 5, 15, 45)
    seen = Observed("AMP201", "", place, 0, 0, trace=(Step(place, ""),)).as_json("/home/me")
    assert list(shown) == list(seen)
    assert list(shown["trace"][0]) == list(seen["trace"][0])
    for key in (
        "name",
        "severity",
        "confidence",
        "filename",
        "cell",
        "url",
        "fix",
        "no_fix_reason",
        "figures",
    ):
        assert shown[key] == seen[key]
    assert shown["location"] == seen["location"]
    assert shown["end_location"] == seen["end_location"]
