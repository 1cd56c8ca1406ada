"""What GitHub's runner, GitLab, JUnit readers and people who read a workflow's summary get."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from amplint.finding import Applicability, Fix, FixKind, InternalError, Note, Position, Severity
from amplint.report import github, gitlab, junit, markdown
from amplint.report.frame import Look
from amplint.runner import FixMode, RunResult
from amplint.source import SourceError, source_from_text

SOURCE = source_from_text("scale()\nclip(x)\nstep()\n", "pkg/train.py")
TRACE = (Note("pkg/loss.py", Position(1, 3), "scaled here"),)
FAILED = RunResult(
    problems=[SourceError("gone.py", "does not exist")],
    internal_errors=[InternalError("train.py", "KeyError: 'x'", "AMP201", "Traceback:\n  x\x1b\n")],
)

# GitHub


def annotations(*findings: Any) -> list[str]:
    return github.render(RunResult(list(findings)), Look()).splitlines()


def unescaped(line: str) -> tuple[str, dict[str, str], str]:
    """A command as the runner reads it: name, properties, message."""
    name, listed, message = re.fullmatch(r"::(\w+) (.*?)::(.*)", line).groups()  # type: ignore[union-attr]

    def plain(text: str) -> str:
        for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            text = text.replace(code, character)
        return text

    return (
        name,
        {key: plain(value) for key, _, value in (p.partition("=") for p in listed.split(","))},
        plain(message),
    )


def test_an_annotation_for_github(finding) -> None:
    assert annotations(finding(SOURCE, "clip(x)")) == [
        "::error file=pkg/train.py,line=2,endLine=2,col=1,endColumn=8,title=AMP201 clip-before-unscale"
        "::pkg/train.py:2:1: AMP201 clipped while still scaled"
    ]


@pytest.mark.parametrize(
    ("severity", "command"),
    [(Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.INFO, "notice")],
)
def test_the_command_follows_the_severity(finding, severity: Severity, command: str) -> None:
    assert annotations(finding(SOURCE, "clip", severity=severity))[0].startswith(f"::{command} ")


def test_the_steps_of_a_trace_are_further_lines_of_the_message(finding) -> None:
    (line,) = annotations(finding(SOURCE, "clip(x)", trace=TRACE))
    assert line.endswith("AMP201 clipped while still scaled%0A1. pkg/loss.py:1: scaled here")


def test_there_are_no_columns_over_several_rows(finding) -> None:
    (line,) = annotations(finding(SOURCE, "clip(x)\nstep()"))
    assert "line=2,endLine=3,title=" in line


def test_what_would_end_a_property_or_a_command_is_escaped(finding) -> None:
    source = source_from_text("clip\n", "a:b,c%d.py")
    (line,) = annotations(finding(source, "clip", message="100% :: of, it"))
    assert "file=a%3Ab%2Cc%25d.py," in line and line.endswith("AMP201 100%25 :: of, it")
    name, properties, message = unescaped(line)
    assert (name, properties["file"]) == ("error", "a:b,c%d.py")
    assert message == "a:b,c%d.py:1:1: AMP201 100% :: of, it"


def test_a_message_cannot_begin_a_command_of_its_own(finding) -> None:
    lines = annotations(finding(SOURCE, "clip", message="x\n::set-env name=PATH::y\r::z"))
    assert len(lines) == 1 and "x\\n::set-env" in lines[0]


def test_failures_are_annotations_too() -> None:
    assert github.render(FAILED, Look()).splitlines() == [
        "::error file=gone.py,line=1,title=amplint::gone.py: does not exist",
        "::error file=train.py,title=amplint%3A internal error::AMP201 in train.py: KeyError: 'x'",
    ]


# GitLab


def test_an_issue_for_gitlab_has_the_documented_fields(finding) -> None:
    found = [finding(SOURCE, "clip(x)", fingerprint="0123"), finding(SOURCE, "step()", fingerprint="4567")]
    items = json.loads(gitlab.render(RunResult(found)))
    assert items[0] == {
        "description": "AMP201: clipped while still scaled",
        "check_name": "clip-before-unscale",
        "fingerprint": "0123",
        "severity": "critical",
        "location": {"path": "pkg/train.py", "lines": {"begin": 2, "end": 2}},
    }
    assert len({item["fingerprint"] for item in items}) == 2


@pytest.mark.parametrize(
    ("severity", "word"), [(Severity.ERROR, "critical"), (Severity.WARNING, "major"), (Severity.INFO, "info")]
)
def test_severities_are_words_of_gitlab(finding, severity: Severity, word: str) -> None:
    assert (
        json.loads(gitlab.render(RunResult([finding(SOURCE, "clip", severity=severity)])))[0]["severity"]
        == word
    )


def test_nothing_found_is_an_empty_list_for_gitlab() -> None:
    assert gitlab.render(RunResult()) == "[]\n"


# JUnit


def suites(result: RunResult) -> list[ElementTree.Element]:
    text = junit.render(result, "1.2.3")
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n') and text.isascii()
    return list(ElementTree.fromstring(text))


def test_a_file_is_a_suite_and_a_finding_a_failure(finding) -> None:
    other = source_from_text("clip\n", "a.py")
    found = [
        finding(other, "clip", no_fix_reason="two optimizers"),
        finding(SOURCE, "clip(x)", fingerprint="0123456789", trace=TRACE, url="https://example.org"),
        finding(SOURCE, "step()"),
    ]
    first, second = suites(RunResult(found))
    assert (first.get("name"), first.get("tests"), first.get("failures"), first.get("errors")) == (
        "a.py",
        "1",
        "1",
        "0",
    )
    assert (second.get("name"), second.get("tests"), second.get("failures")) == ("pkg/train.py", "2", "2")
    assert [suite.get("id") for suite in (first, second)] == ["0", "1"]
    case = second.find("testcase")
    assert case is not None
    assert case.attrib == {
        "name": "AMP201 clip-before-unscale 01234567",
        "classname": "pkg.train",
        "time": "0",
    }
    failure = case.find("failure")
    assert failure is not None
    assert failure.attrib == {"type": "AMP201", "message": "pkg/train.py:2:1: clipped while still scaled"}
    assert failure.text == (
        "pkg/train.py:2:1: error, high confidence: clipped while still scaled\n"
        "  1. pkg/loss.py:1: scaled here\n  https://example.org"
    )
    assert "no fix: two optimizers" in first.findtext("testcase/failure", "")


def test_a_fix_is_told_to_readers_of_junit(finding, edit) -> None:
    fix = Fix(FixKind.PORT, Applicability.SAFE, "unscale first", (edit(SOURCE, "clip", "clop"),))
    (suite,) = suites(RunResult([finding(SOURCE, "clip", fix=fix)]))
    assert "fix (port, safe): unscale first" in suite.findtext("testcase/failure", "")


def test_a_suite_has_what_the_schemas_of_ant_and_jenkins_demand_in_their_order(finding) -> None:
    (suite,) = suites(RunResult([finding(SOURCE, "clip")]))
    assert [child.tag for child in suite] == ["properties", "testcase", "system-out", "system-err"]
    assert set(suite.attrib) == {
        *("name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors", "time")
    }
    assert len(suite.findall("properties/property")) == 1  # Jenkins: at least one; Ant: the element


def test_nothing_found_is_one_test_that_passed() -> None:
    (suite,) = suites(RunResult(files=2))  # a report without a test is a failure to Jenkins
    (case,) = suite.findall("testcase")
    assert list(case) == [] and suite.get("failures") == "0"


def test_failures_of_amplint_are_errors_in_junit() -> None:
    first, second = suites(FAILED)
    assert (first.get("name"), first.get("errors"), first.get("failures")) == ("gone.py", "1", "0")
    error = second.find("testcase/error")
    assert (
        error is not None and error.get("message") == "KeyError: 'x'" and error.text == "Traceback:\n  x\\x1b"
    )


def test_characters_that_xml_has_not_are_escaped(finding) -> None:
    source = source_from_text("clip\n", "odd\udcff.py")
    (suite,) = suites(RunResult([finding(source, "clip", message='\x1b \udc80 \ufffe <&"> \U0001f600 失')]))
    failure = suite.find("testcase/failure")
    assert failure is not None and suite.get("name") == "odd\\udcff.py"
    assert failure.get("message") == 'odd\\udcff.py:1:1: \\x1b \\udc80 \\ufffe <&"> \U0001f600 失'


# Markdown


def nowhere(finding: object) -> None:
    return None


def test_a_summary_in_markdown(finding) -> None:
    found = [
        finding(SOURCE, "clip(x)", url="https://example.org/r"),
        finding(SOURCE, "step()", code="AMP101", name="old", severity=Severity.WARNING),
        finding(SOURCE, "scale()", url="https://example.org/r"),
    ]
    text = markdown.render(RunResult(found, files=1), FixMode(), markdown.blob_link("https://h/o/n/blob/c0"))
    assert text.splitlines() == [
        "## amplint",
        "",
        "3 findings in 1 file (2 errors, 1 warning).",
        "",
        "",
        "| rule | severity | findings |",
        "|---|---|---:|",
        "| [AMP201 clip-before-unscale](https://example.org/r) | error | 2 |",
        "| AMP101 old | warning | 1 |",
        "",
        "| place | rule | finding |",
        "|---|---|---|",
        "| [pkg/train.py:2](https://h/o/n/blob/c0/pkg/train.py#L2) | [AMP201](https://example.org/r)"
        " | clipped while still scaled |",
        "| [pkg/train.py:3](https://h/o/n/blob/c0/pkg/train.py#L3) | AMP101 | clipped while still scaled |",
        "| [pkg/train.py:1](https://h/o/n/blob/c0/pkg/train.py#L1) | [AMP201](https://example.org/r)"
        " | clipped while still scaled |",
    ]


def test_nothing_found_in_markdown_is_a_sentence() -> None:
    assert (
        markdown.render(RunResult(files=2), FixMode(), nowhere) == "## amplint\n\nNo findings in 2 files.\n"
    )


def test_a_message_makes_no_markup(finding) -> None:
    message = "a|b `c` <img> _d_ [e](f)\n## g \\|"
    text = markdown.render(RunResult([finding(SOURCE, "clip", message=message)]), FixMode(), nowhere)
    assert text.splitlines()[-1] == (
        "| pkg/train.py:2 | AMP201 | a\\|b \\`c\\` \\<img\\> \\_d\\_ \\[e\\](f)\\\\n\\#\\# g \\\\\\| |"
    )


def test_links_are_percent_encoded_and_only_into_the_repository(finding) -> None:
    link = markdown.blob_link("https://h/o/n/blob/c0/")
    several = finding(source_from_text("clip(\n)\n", "my pkg/a#b.py"), "clip(\n)")
    assert link(several) == "https://h/o/n/blob/c0/my%20pkg/a%23b.py#L1-L2"
    for name in ("/abs/a.py", "../a.py", "-", "C:/a.py"):
        assert link(finding(source_from_text("clip\n", name), "clip")) is None


def test_a_long_summary_ends_with_what_it_leaves_out(finding) -> None:
    found = [finding(SOURCE, "clip", message=f"{number} " + "失" * 1000) for number in range(300)]
    text = markdown.render(RunResult(found), FixMode(), nowhere)
    rows = text.count("| pkg/train.py:2 |")
    assert 100 < rows < 300 and len(text) <= markdown.LIMIT
    assert text.endswith(f"\nLeft out for want of room: {300 - rows} more findings in 1 file.\n")


def test_failures_are_listed_in_markdown_up_to_a_number() -> None:
    problems = [SourceError(f"{number}.py", "does not exist") for number in range(200)]
    text = markdown.render(RunResult(problems=problems), FixMode(), nowhere)
    assert "- 0.py: does not exist\n" in text and "... and 150 more" in text and "199.py" not in text
