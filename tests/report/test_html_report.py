"""The HTML report: one file, which every browser and a screen reader can do something with."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from amplint.finding import Applicability, Fix, FixKind, InternalError, Note, Position, Severity
from amplint.runner import FixMode, RunResult
from amplint.source import SourceError, source_from_bytes, source_from_text

pytest.importorskip("jinja2")

from amplint.report.html import render

SOURCE = source_from_text("scale()\nclip(x)\nstep()\n", "pkg/train.py")
#: Elements without an end.
_VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """What a page is made of; elements that are not closed in their order are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)
            self.words.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.words[tag][-1] += data

    def values(self, name: str) -> list[str]:
        return [str(attributes[name]) for _, attributes in self.elements if name in attributes]


def page(*findings: Any, cwd: Path = Path(), **fields: Any) -> Page:
    values: dict[str, Any] = {"sources": {SOURCE.filename: SOURCE}, "files": 1} | fields
    return Page(render(RunResult(list(findings), **values), FixMode(), cwd))


def test_a_finding_has_its_place_its_rule_its_message_and_its_code(finding) -> None:
    shown = page(finding(SOURCE, "clip(x)", url="https://example.org/rules/clip"))
    (article,) = shown.words["article"]
    assert "pkg/train.py:2:1" in article and "AMP201 clip-before-unscale (error)" in article
    assert "clipped while still scaled" in article
    assert shown.words["pre"] == ["\n  1 | scale()\n> 2 | clip(x)\n    | ^^^^^^^ error\n  3 | step()\n"]
    assert '<span class="hit">&gt; 2 | clip(x)</span>' in shown.text
    assert "https://example.org/rules/clip" in shown.values("href")


def test_findings_are_grouped_by_file(finding) -> None:
    other = source_from_text("clip(y)\n", "other.py")
    shown = page(
        finding(other, "clip(y)"),
        finding(SOURCE, "clip(x)"),
        finding(SOURCE, "step()"),
        sources={each.filename: each for each in (SOURCE, other)},
    )
    assert shown.words["h2"] == ["other.py", "pkg/train.py"]
    assert [text.count("clipped while") for text in shown.words["section"]] == [1, 2]
    assert {"#file-1", "#file-2"} <= set(shown.values("href"))


def test_the_rules_are_counted_commonest_first(finding) -> None:
    port = {"code": "AMP301", "name": "sums", "severity": Severity.WARNING}
    shown = page(
        finding(SOURCE, "scale()", **port), finding(SOURCE, "clip(x)"), finding(SOURCE, "step()", **port)
    )
    assert [cell for row in shown.words["tr"][1:] for cell in row.split("\n") if cell] == [
        "AMP301 sumswarning2",
        "AMP201 clip-before-unscaleerror1",
    ]


def test_a_trace_is_a_list_with_rows_of_code_of_other_files_too(finding, tmp_path: Path) -> None:
    (tmp_path / "loss.py").write_text("\n    scaler.scale(loss)  # <here>\n")
    trace = (
        Note("loss.py", Position(2, 5), "scaled here"),
        Note("pkg/train.py", Position(2, 1), "clipped here"),
        Note("gone.py", Position(1, 1), "read there"),
    )
    shown = page(finding(SOURCE, "clip(x)", trace=trace), cwd=tmp_path)
    assert shown.words["li"][1:] == [
        "loss.py:2: scaled herescaler.scale(loss)  # <here>",
        "pkg/train.py:2: clipped hereclip(x)",
        "gone.py:1: read there",
    ]


def test_a_fix_is_shown_as_a_diff(finding, edit) -> None:
    fix = Fix(FixKind.REPAIR, Applicability.SAFE, "Unscale first", (edit(SOURCE, "clip", "u()\nclip"),))
    shown = page(finding(SOURCE, "clip(x)", fix=fix))
    assert "Fix (repair, safe): Unscale first" in shown.words["article"][0]
    assert '<span class="added">  + u()</span>' in shown.text
    assert 'class="removed"' not in shown.text


def test_a_row_that_begins_with_a_sign_is_not_taken_for_a_change(finding, edit) -> None:
    source = source_from_text("-one\nclip(x)\n+two\n", "a.py")
    fix = Fix(FixKind.PORT, Applicability.SAFE, "m", (edit(source, "clip", "cut"),))
    shown = page(finding(source, "clip(x)", fix=fix), sources={"a.py": source})
    kinds = re.findall(r'<span(?: class="(\w*)")?>(.*)</span>', shown.text.split("What the fix changes")[1])
    assert kinds == [("", "1   -one"), ("removed", "2 - clip(x)"), ("added", "  + cut(x)"), ("", "3   +two")]


def test_the_reason_why_there_is_no_fix_is_shown(finding) -> None:
    assert "No fix: two optimizers" in page(finding(SOURCE, "clip(x)", no_fix_reason="two optimizers")).text


def test_the_same_at_other_places_of_a_file_is_said_once(finding) -> None:
    port = {"code": "AMP101", "name": "cuda-amp-autocast"}
    shown = page(finding(SOURCE, "scale()", **port), finding(SOURCE, "step()", **port))
    assert len(shown.words["article"]) == 1 and "Also at 3:1." in shown.text


def test_nothing_of_the_code_is_taken_for_markup(finding) -> None:
    source = source_from_text("x = '<script>alert(1)</script>&amp;{{ x }}'\n", '"><b>.py')
    shown = page(finding(source, "x", message="<i>&lt;"), sources={source.filename: source})
    assert {tag for tag, _ in shown.elements}.isdisjoint({"script", "b", "i"})
    assert "<script>alert(1)</script>&amp;{{ x }}" in shown.words["pre"][0]
    assert '"><b>.py:1:1' in shown.words["h3"][0]


def test_the_page_loads_nothing(finding) -> None:
    shown = page(finding(SOURCE, "clip(x)", url="https://example.org/rule"))
    assert shown.values("src") == [] and not re.search(r"@import|url\(|<link|<script|<iframe", shown.text)


def test_the_page_can_be_used_without_eyes_or_mouse(finding) -> None:
    trace = (Note("pkg/train.py", Position(1, 1), "scaled here"),)
    shown = page(finding(SOURCE, "clip(x)", trace=trace), finding(SOURCE, "step()"))
    tags = [tag for tag, _ in shown.elements]
    assert dict(shown.elements)["html"] == {"lang": "en"}
    assert len(shown.words["title"]) == len(shown.words["h1"]) == len(shown.words["main"]) == 1
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h\d", tag)]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = shown.values("id")
    assert len(ids) == len(set(ids))
    referred = [href[1:] for href in shown.values("href") if href.startswith("#")]
    assert {*referred, *shown.values("aria-labelledby")} <= set(ids)
    assert all(attributes.get("tabindex") == "0" for tag, attributes in shown.elements if tag == "pre")
    assert shown.words["caption"] and all(
        attributes.get("scope") for tag, attributes in shown.elements if tag == "th"
    )


def contrast(one: str, other: str) -> float:
    """The contrast of two colors as WCAG 2 computes it, from 1 to 21."""

    def luminance(color: str) -> float:
        channels = [int(color[index : index + 2], 16) / 255 for index in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colors_can_be_read(scheme: str) -> None:
    style = page().text.partition("prefers-color-scheme: dark")[2 if scheme == "dark" else 0]
    colors = dict(re.findall(r"--(\w+): (#\w{6})", style))
    pairs = [(name, "back") for name in ("text", "soft", "error", "warning", "info")]
    pairs += [("text", name) for name in ("code", "hit", "added", "removed")]
    assert [pair for pair in pairs if contrast(colors[pair[0]], colors[pair[1]]) < 4.5] == []


def test_failures_are_on_the_page() -> None:
    shown = page(
        problems=[SourceError("gone.py", "does not exist")],
        internal_errors=[InternalError("a.py", "KeyError: 'x'", "AMP201", "")],
    )
    assert shown.words["li"] == ["gone.py: does not exist", "internal error in a.py: KeyError: 'x'"]


def test_nothing_found_is_a_page_that_says_so() -> None:
    assert "No findings in 1 file." in page().words["header"][0]
    assert "article" not in page().words


def test_the_page_is_the_same_each_time(finding) -> None:
    assert page(finding(SOURCE, "clip(x)")).text == page(finding(SOURCE, "clip(x)")).text


def test_places_in_notebooks_are_those_of_the_cell(finding) -> None:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n"]},
        {
            "cell_type": "code",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": ["scale()\n", "clip(x)"],
        },
    ]
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    source = source_from_bytes(notebook.encode(), "train.ipynb")
    trace = (Note("train.ipynb", source.position(source.text.index("scale")), "scaled here"),)
    shown = page(finding(source, "clip(x)", trace=trace), sources={source.filename: source})
    assert "train.ipynb:cell 2:2:1" in shown.words["h3"][0]
    assert shown.words["li"][-1] == "train.ipynb:cell 2:1: scaled herescale()"
    assert "> 2 | clip(x)" in shown.words["pre"][0]
