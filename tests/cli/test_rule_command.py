from __future__ import annotations

import json

import pytest

from amplint import registry
from amplint.finding import Severity
from amplint.rule import Rule

CLIP = Rule(
    "AMP201",
    "clip-before-unscale",
    "clipped while still scaled",
    Severity.ERROR,
    lambda _: (),
    fixable="safe",
)
STEP = Rule(
    "AMP203", "scaler-step-bypass", "steps past the scaler", Severity.ERROR, lambda _: (), preview=True
)


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "all_rules", lambda: (CLIP, STEP))
    monkeypatch.setattr(registry, "page", lambda rule: f"# {rule.name} ({rule.code})\n\nPage \u5931.\n")


@pytest.mark.parametrize("spelling", ["AMP201", "amp201", "clip-before-unscale"])
def test_a_rule_is_found_by_code_and_by_name(amplint, spelling: str) -> None:
    result = amplint("rule", spelling)
    assert result.exit_code == 0
    assert result.stdout == "# clip-before-unscale (AMP201)\n\nPage \u5931.\n"


def test_all_pages_are_printed_in_order_of_code(amplint) -> None:
    result = amplint("rule", "--all")
    assert result.stdout == (
        "# clip-before-unscale (AMP201)\n\nPage \u5931.\n\n# scaler-step-bypass (AMP203)\n\nPage \u5931.\n"
    )


def test_json_describes_one_rule_as_an_object(amplint) -> None:
    assert json.loads(amplint("rule", "AMP201", "--output-format", "json").stdout) == {
        "code": "AMP201",
        "name": "clip-before-unscale",
        "summary": "clipped while still scaled",
        "severity": "error",
        "confidence": "high",
        "fixable": "safe",
        "preview": False,
        "off_by_default": False,
        "page": "# clip-before-unscale (AMP201)\n\nPage \u5931.\n",
    }


def test_json_describes_all_rules_as_a_list(amplint) -> None:
    described = json.loads(amplint("rule", "--all", "--output-format", "json").stdout)
    assert [(each["code"], each["preview"]) for each in described] == [("AMP201", False), ("AMP203", True)]


@pytest.mark.parametrize(
    ("spelling", "suggestion"), [("AMP2011", "'AMP201'"), ("clip-before-unscaled", "'clip-before-unscale'")]
)
def test_an_unknown_rule_gets_a_suggestion(amplint, spelling: str, suggestion: str) -> None:
    result = amplint("rule", spelling)
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert spelling in result.stderr and f"did you mean {suggestion}?" in result.stderr


def test_a_family_is_not_a_rule(amplint) -> None:
    result = amplint("rule", "AMP2")
    assert result.exit_code == 2 and "several rules" in result.stderr


@pytest.mark.parametrize("args", [(), ("AMP201", "--all"), ("AMP201", "AMP203")])
def test_one_rule_or_all_of_them(amplint, args) -> None:
    result = amplint("rule", *args)
    assert result.exit_code == 2 and "Usage:" in result.stderr


def test_a_broken_installation_is_told_in_one_line(amplint, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> tuple[Rule, ...]:
        raise registry.NoRules("no rules found")

    monkeypatch.setattr(registry, "all_rules", none)
    for args in ["--all"], ["AMP201"]:
        result = amplint("rule", *args)
        assert (result.exit_code, result.stderr) == (2, "error: no rules found\n")


def test_a_rule_without_a_page_is_told_by_its_summary(amplint, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(rule: Rule) -> str:
        raise FileNotFoundError(rule.name)

    monkeypatch.setattr(registry, "page", missing)
    result = amplint("rule", "AMP201")
    assert result.exit_code == 0
    assert result.stdout == "# clip-before-unscale (AMP201)\n\nclipped while still scaled.\n"
