"""AMP901 to AMP903: suppressions that silence nothing, name no rule, or have expired."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from amplint import check_source, fix_source, registry
from amplint.config import Settings
from amplint.engine import model_of
from amplint.finding import Confidence
from amplint.model.module import ModuleModel
from amplint.registry import all_rules
from amplint.runner import run
from amplint.source import source_from_text
from amplint.verify import objection

HEADER = "import torch\n"
FOUND = "torch.amp.GradScaler()"
CLEAN = "torch.amp.GradScaler(d)"


def codes(text: str, **settings: Any) -> list[tuple[int, str]]:
    settings.setdefault("target", "npu")
    return [(f.start.row, f.code) for f in check_source(text, "train.py", **settings)]


def fixed(text: str, **settings: Any) -> str:
    """The text after removing suppressions, and nothing else."""
    return fix_source(text, "train.py", target="npu", fixable=("AMP9",), **settings)


def about(text: str, code: str = "AMP901") -> list[int]:
    return [row for row, other in codes(text) if other == code]


# Unused


@pytest.mark.parametrize(
    "line",
    [
        f"x = {CLEAN}  # amplint: ignore[AMP105]",
        f"x = {CLEAN}  # amplint: ignore[grad-scaler-default-device] why",
        f"x = {CLEAN}  # amplint: ignore[AMP10]",
        f"x = {CLEAN}  # amplint: ignore[AMP1]",
        f"x = {CLEAN}  # amplint: ignore[ALL]",
        f"x = {CLEAN}  # amplint: ignore",
        f"x = {CLEAN}  # noqa: AMP105",
        f"x = {CLEAN}  # noqa: E501,AMP105",
        f"x = {FOUND}  # amplint: ignore[AMP105, AMP104]",
        f"x = {FOUND}  # amplint: ignore[AMP105] # amplint: ignore[AMP104]",
        f"x = {CLEAN}  # amplint: ignore[AMP105] until=9999-12-31",
        "# amplint: ignore[AMP105]",
        "# amplint: disable[AMP105]",
        "# amplint: file-ignore[AMP105]",
    ],
)
def test_a_suppression_that_silences_nothing_is_found(line: str) -> None:
    assert about(f"{HEADER}{line}\n") == [2]


@pytest.mark.parametrize(
    "line",
    [
        f"x = {FOUND}  # amplint: ignore[AMP105]",
        f"x = {FOUND}  # amplint: ignore[AMP1]",
        f"x = {FOUND}  # amplint: ignore",
        f"x = {FOUND}  # noqa: AMP105",
        f"x = {FOUND}  # noqa: E501, AMP105",
        f"x = {FOUND}  # amplint: ignore[AMP105, AMP1]",
        f"x = {CLEAN}  # noqa",
        f"x = {CLEAN}  # noqa: E501",
        f"x = {CLEAN}  # noqa: XYZ105",
        f"x = {CLEAN}  # type: ignore",
        f"x = {CLEAN}  # amplint: AMP105 is none of our business here",
        f"x = {CLEAN}  # amplint: ignore[AMP4]",
        f"x = {CLEAN}  # amplint: ignore[AMP901]",
        "text = '# amplint: ignore[AMP105]'",
    ],
)
def test_a_suppression_that_is_needed_or_cannot_be_judged_is_silent(line: str) -> None:
    assert codes(f"{HEADER}{line}\n") == []


def test_all_suppressions_of_one_finding_count_as_used() -> None:
    text = (
        f"# amplint: file-ignore[AMP105]\n{HEADER}# amplint: disable[AMP1]\nx = {FOUND}  # amplint: ignore\n"
    )
    assert codes(text) == []


def test_a_disable_is_judged_by_what_it_silences_before_the_enable() -> None:
    text = f"{HEADER}# amplint: disable[AMP105]\ny = 1\n# amplint: enable[AMP105]\nx = {FOUND}\n"
    assert codes(text) == [(2, "AMP901"), (5, "AMP105")]


@pytest.mark.parametrize(
    "settings",
    [
        {"select": ["AMP2", "AMP9"]},
        {"select": ["AMP901"]},
        {"ignore": ("AMP105",)},
        {"per_file_ignores": (("train.py", ("AMP105",)),)},
    ],
)
@pytest.mark.parametrize("brackets", ["[AMP105]", "[AMP1]", "", "[ALL]"])
def test_a_suppression_of_a_rule_that_did_not_run_is_silent(settings: dict[str, Any], brackets: str) -> None:
    assert codes(f"{HEADER}x = {CLEAN}  # amplint: ignore{brackets}\n", **settings) == []


def test_one_code_is_judged_when_its_rule_is_all_that_ran() -> None:
    text = f"{HEADER}x = {CLEAN}  # amplint: ignore[AMP105]\ny = 1  # amplint: ignore[AMP1]\n"
    assert codes(text, select=["AMP105", "AMP901"]) == [(2, "AMP901")]


def test_a_suppression_of_a_finding_below_the_minimum_confidence_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = f"{HEADER}x = {FOUND}  # amplint: ignore[AMP105]\n"
    rules = tuple(replace(r, confidence=Confidence.LOW) if r.code == "AMP105" else r for r in all_rules())
    monkeypatch.setattr(registry, "all_rules", lambda: rules)
    assert codes(text) == []


def test_a_suppression_of_a_rule_that_failed_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> list[Any]:
        raise ValueError("broken")

    rules = tuple(replace(r, check=broken) if r.code == "AMP105" else r for r in all_rules())
    monkeypatch.setattr(registry, "all_rules", lambda: rules)
    text = f"{HEADER}x = {CLEAN}  # amplint: ignore[AMP105]\n"
    result = run([], Settings(target="npu"), stdin=source_from_text(text, "train.py"))
    assert (result.findings, len(result.internal_errors)) == ([], 1)


def test_a_suppression_does_not_silence_what_is_said_about_itself() -> None:
    assert about(f"{HEADER}x = 1  # amplint: ignore\n") == [2]
    assert about(f"{HEADER}x = 1  # amplint: ignore[AMP]\n") == [2]
    assert about(f"{HEADER}x = 1  # amplint: ignore[AMP105, AMP901]\n") == []


def test_a_file_ignore_silences_what_is_said_about_others() -> None:
    text = f"# amplint: file-ignore[AMP901]\n{HEADER}x = 1  # amplint: ignore[AMP105]\n"
    assert codes(text) == []


@pytest.mark.parametrize(
    "directive", ["ignore[AMP105", "ignor[AMP105]", "ignore[AMP105] until=tomorrow", "ignore[AMP105] until="]
)
def test_a_malformed_suppression_is_found_and_left_to_the_author(directive: str) -> None:
    text = f"{HEADER}x = {FOUND}  # amplint: {directive}\n"
    assert codes(text) == [(2, "AMP105"), (2, "AMP901")]
    assert fixed(text) == text


@pytest.mark.parametrize(
    "before, after",
    [
        ("x = 1  # amplint: ignore[AMP105] why", "x = 1"),
        ("x = 1  # amplint: ignore", "x = 1"),
        ("x = 1  # amplint: ignore[AMP105]  # type: ignore", "x = 1  # type: ignore"),
        ("x = 1  # type: ignore  # amplint: ignore[AMP105]", "x = 1  # type: ignore"),
        ("x = 1  # the first # amplint: ignore[AMP105] # noqa: E1", "x = 1  # the first # noqa: E1"),
        ("x = 1  # noqa: AMP105", "x = 1"),
        ("x = 1  # noqa: E501,AMP105", "x = 1  # noqa: E501"),
        ("x = 1  # noqa: AMP105, E501 reason", "x = 1  # noqa: E501 reason"),
        ("x = 1  # noqa: E501,AMP105,AMP104,W1", "x = 1  # noqa: E501,W1"),
        (f"x = {FOUND}  # amplint: ignore[AMP104, AMP105]", f"x = {FOUND}  # amplint: ignore[AMP105]"),
        (f"x = {FOUND}  # amplint: ignore[AMP105 AMP104] b", f"x = {FOUND}  # amplint: ignore[AMP105] b"),
        ("    # amplint: ignore[AMP105]\nx = 1", "x = 1"),
        ("x = 1\n# amplint: disable[AMP105]\ny = 2\n# amplint: enable[AMP105]", "x = 1\ny = 2"),
        ("x = f(  # amplint: ignore[AMP105]\n    1,\n)", "x = f(\n    1,\n)"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_fix_removes_what_silences_nothing(before: str, after: str, newline: str) -> None:
    text = f"{HEADER}{before}\n".replace("\n", newline)
    assert fixed(text) == f"{HEADER}{after}\n".replace("\n", newline)


def test_the_fix_works_on_the_last_line_without_a_newline() -> None:
    assert fixed(f"{HEADER}x = 1  # amplint: ignore[AMP105]") == f"{HEADER}x = 1"
    assert fixed(f"{HEADER}# amplint: ignore[AMP105]") == HEADER


def test_an_enable_that_ends_another_disable_too_stays() -> None:
    text = (
        f"{HEADER}# amplint: disable[AMP105]\nx = {FOUND}\n# amplint: disable[AMP105]\ny = 1\n"
        "# amplint: enable[AMP105]\n"
    )
    assert fixed(text) == text.replace(f"{FOUND}\n# amplint: disable[AMP105]\n", f"{FOUND}\n")


def test_a_suppression_that_another_fix_leaves_unused_does_not_speak_against_that_fix() -> None:
    (other, unused) = check_source(f"{HEADER}x = {FOUND}\ny = 1  # amplint: ignore[AMP104]\n", target="npu")
    assert (other.code, unused.code) == ("AMP105", "AMP901")
    model = model_of(source_from_text(HEADER, "train.py"), Settings())
    assert isinstance(model, ModuleModel)
    assert objection(model, model, [other], [unused], [other]) is None
    assert objection(model, model, [other, unused], [unused, unused], [other, unused]) is None
    assert objection(model, model, [unused], [unused], [unused]) is not None
    assert objection(model, model, [other], [other, unused], [other]) is not None


# Unknown


@pytest.mark.parametrize("word", ["AMP999", "E501", "clip-before", "XYZ1", "AMP10x"])
@pytest.mark.parametrize("kind", ["ignore", "disable", "enable", "file-ignore"])
def test_a_word_that_means_no_rule_is_found_where_it_stands(word: str, kind: str) -> None:
    (finding,) = check_source(f"x = 1\n# amplint: {kind}[{word}]\n", select=["AMP902"])
    assert (finding.code, finding.start.row, finding.start.column) == ("AMP902", 2, len(kind) + 13)


@pytest.mark.parametrize(
    "comment",
    [
        "amplint: ignore[AMP105]",
        "amplint: ignore[amp1]",
        "amplint: ignore[AMP4, AMP6]",
        "amplint: ignore[ALL]",
        "amplint: ignore",
        "amplint: skip[AMP999]",
        "noqa: AMP999",
        "noqa: E501",
    ],
)
def test_known_words_and_other_linters_codes_are_silent(comment: str) -> None:
    assert check_source(f"x = 1  # {comment}\n", select=["AMP902"]) == []


def test_the_nearest_rule_is_named_and_written_only_by_an_unsafe_fix() -> None:
    text = f"{HEADER}x = {FOUND}  # amplint: ignore[AMP105, grad-scaler-positonal]\n"
    (finding,) = check_source(text, select=["AMP902"])
    assert "did you mean `grad-scaler-positional`" in finding.message
    assert fixed(text, select=["AMP902"]) == text
    assert "[AMP105, grad-scaler-positional]" in fixed(text, select=["AMP902"], unsafe=True)


# Expired


@pytest.mark.parametrize("kind", ["ignore", "disable", "file-ignore"])
def test_an_expired_suppression_is_found_beside_what_it_silenced(kind: str) -> None:
    text = f"{HEADER}# amplint: {kind}[AMP105] until=2024-02-29\nx = {FOUND}\n"
    assert codes(text) == [(2, "AMP903"), (3, "AMP105")]
    assert fixed(text) == f"{HEADER}x = {FOUND}\n"


def test_an_expired_suppression_is_not_called_unused_as_well() -> None:
    assert codes(f"{HEADER}x = 1  # amplint: ignore[AMP105] until=2024-02-29\n") == [(2, "AMP903")]


@pytest.mark.parametrize("until", ["until=9999-12-31", "", "until=2024-02-30"])
def test_a_suppression_without_a_day_that_has_passed_is_silent(until: str) -> None:
    text = f"{HEADER}x = {FOUND}  # amplint: ignore[AMP105] {until}\n"
    assert "AMP903" not in [code for _, code in codes(text)]
