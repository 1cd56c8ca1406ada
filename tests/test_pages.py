"""Every rule's page is documentation and test in one: its examples do what it says they do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

import pytest

from amplint import check_source, fix_source
from amplint.registry import all_rules, page
from amplint.rule import Rule

#: Families whose pages need no particular number of examples: they are about the run, not about code.
FEW_EXAMPLES = ("AMP9",)
#: Section -> the styles whose result it shows.
FIXED = {"Fixed": ("auto",), "Fixed (torch)": ("torch",), "Fixed (shim)": ("shim",)}

_FENCE = re.compile(r"^(`{3,})(\w*)[^\n`]*\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^## (.+?)[ ]*$", re.MULTILINE)
_MARK = re.compile(r"[ ]*#((?: AMP\d{3})+)[ ]*$")


@dataclass
class Page:
    """A page taken apart."""

    title: str
    lead: str
    #: Section -> its Python blocks.
    blocks: dict[str, list[str]] = field(default_factory=dict)
    #: Section -> its words.
    words: dict[str, str] = field(default_factory=dict)


def read(text: str) -> Page:
    blocks: list[str] = []

    def store(match: re.Match[str]) -> str:
        if match[2] != "python":
            return ""
        blocks.append(match[3])
        return f"\0{len(blocks) - 1}\0"

    head, *rest = _SECTION.split(_FENCE.sub(store, text))
    title, _, lead = head.partition("\n")
    made = Page(title, lead.strip())
    for name, body in zip(rest[::2], rest[1::2], strict=True):
        assert name not in made.blocks, f"two sections are called {name!r}"
        made.blocks[name] = [blocks[int(number)] for number in re.findall(r"\0(\d+)\0", body)]
        made.words[name] = re.sub(r"\0\d+\0", "", body).strip()
    return made


def unmark(block: str) -> tuple[str, list[tuple[int, str]]]:
    """The code without its marks, and (row, code) of every finding that they announce."""
    lines, expected = [], []
    for row, line in enumerate(block.split("\n"), 1):
        found = _MARK.search(line)
        if found is not None:
            expected.extend((row, code) for code in found[1].split())
            line = line[: found.start()]
        lines.append(line)
    return "\n".join(lines), expected


def selection(rule: Rule) -> list[str] | None:
    """The rule alone; what it says of the run depends on the rules that ran."""
    return None if rule.about_run else [rule.code]


def findings(rule: Rule, text: str) -> list[tuple[int, str]]:
    found = check_source(text, "train.py", select=selection(rule), target="npu")
    return [(f.start.row, f.code) for f in found if f.code == rule.code]


def fixed(rule: Rule, text: str, style: str) -> str:
    return fix_source(
        text,
        "train.py",
        select=selection(rule),
        fixable=(rule.code,),
        repair=True,
        unsafe=True,
        target="npu",
        style=style,
    )


@cache
def page_of(rule: Rule) -> Page:
    return read(page(rule))


def pages_with(section: str) -> list[object]:
    """(rule, block) for every Python block of a section, for parametrising."""
    cases: list[object] = []
    for rule in all_rules():
        try:
            blocks = page_of(rule).blocks.get(section, [])
        except FileNotFoundError:
            continue  # `test_a_rule_has_a_page` says so
        cases.extend(
            pytest.param(rule, block, id=f"{rule.code}-{number}") for number, block in enumerate(blocks, 1)
        )
    return cases


each_rule = pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)


@each_rule
def test_a_rule_has_a_page(rule: Rule) -> None:
    assert page(rule).endswith("\n")


@each_rule
def test_the_page_says_the_name_and_the_code_of_its_rule(rule: Rule) -> None:
    assert page_of(rule).title == f"# {rule.name} ({rule.code})"


@each_rule
def test_the_page_begins_with_what_the_rule_finds(rule: Rule) -> None:
    assert page_of(rule).lead


@each_rule
def test_the_page_has_its_sections_in_order(rule: Rule) -> None:
    allowed = ["Bad", "Good", *FIXED, "Why", "Fix safety", "Options"]
    sections = list(page_of(rule).blocks)
    assert [name for name in allowed if name in sections] == sections
    assert {"Bad", "Why", "Fix safety"} <= set(sections)


@each_rule
def test_the_page_explains_why(rule: Rule) -> None:
    words = page_of(rule).words
    assert words["Why"]
    assert words["Fix safety"]


@each_rule
def test_nothing_is_left_to_do_on_the_page_or_in_the_summary(rule: Rule) -> None:
    assert not re.search(r"\bTODO\b", f"{page(rule)}\n{rule.summary}")


@each_rule
def test_the_page_has_enough_examples(rule: Rule) -> None:
    blocks = page_of(rule).blocks
    few = rule.code.startswith(FEW_EXAMPLES)
    assert len(blocks["Bad"]) >= (1 if few else 2)
    assert len(blocks.get("Good", [])) >= (0 if few else 3)


@each_rule
def test_every_bad_example_marks_a_line(rule: Rule) -> None:
    for block in page_of(rule).blocks["Bad"]:
        assert rule.code in {code for _, code in unmark(block)[1]}


@each_rule
def test_only_bad_examples_are_marked(rule: Rule) -> None:
    for section, blocks in page_of(rule).blocks.items():
        if section != "Bad":
            assert [unmark(block)[1] for block in blocks] == [[] for _ in blocks]


@each_rule
def test_a_page_shows_one_result_per_style_and_none_without_a_fix(rule: Rule) -> None:
    found = page_of(rule)
    shown = [name for name in FIXED if name in found.blocks]
    assert all(len(found.blocks[name]) == 1 for name in shown)
    assert shown in ([], ["Fixed"], ["Fixed (torch)", "Fixed (shim)"])
    if not shown:
        text, _ = unmark(found.blocks["Bad"][0])
        if findings(rule, text) and not rule.code.startswith(FEW_EXAMPLES):
            assert fixed(rule, text, "auto") == text, (
                "the first Bad block has a fix that the page does not show"
            )


@pytest.mark.parametrize("rule, block", pages_with("Bad"))
def test_a_bad_example_is_flagged_on_exactly_its_marked_lines(rule: Rule, block: str) -> None:
    text, marked = unmark(block)
    assert findings(rule, text) == [(row, code) for row, code in marked if code == rule.code]


@pytest.mark.parametrize("rule, block", pages_with("Good"))
def test_a_good_example_is_silent(rule: Rule, block: str) -> None:
    assert findings(rule, block) == []


@pytest.mark.parametrize(
    "rule, block, style",
    [
        pytest.param(*case.values, style, id=f"{case.id}-{style}")  # type: ignore[attr-defined]
        for section, styles in FIXED.items()
        for case in pages_with(section)
        for style in styles
    ],
)
class TestFixed:
    def test_the_fix_of_the_first_bad_example_gives_it(self, rule: Rule, block: str, style: str) -> None:
        text, _ = unmark(page_of(rule).blocks["Bad"][0])
        assert fixed(rule, text, style) == block

    def test_it_is_silent(self, rule: Rule, block: str, style: str) -> None:
        assert findings(rule, block) == []

    def test_a_second_run_changes_nothing(self, rule: Rule, block: str, style: str) -> None:
        assert fixed(rule, block, style) == block
