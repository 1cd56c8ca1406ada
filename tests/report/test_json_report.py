from __future__ import annotations

import json

import pytest

from amplint.finding import Applicability, Confidence, Fix, FixKind, Note, Position, Severity
from amplint.report.json import render, render_lines
from amplint.runner import RunResult
from amplint.source import source_from_text

SOURCE = source_from_text("scale()\nclip(x)\nstep()\n", "pkg/train.py")


def rendered(*findings: object, source=SOURCE) -> list[dict[str, object]]:
    return json.loads(render(RunResult(list(findings), sources={source.filename: source})))  # type: ignore[arg-type]


def test_nothing_found_is_an_empty_list() -> None:
    assert render(RunResult()) == "[]\n"


def test_a_finding_has_exactly_these_keys_and_values(finding, edit) -> None:
    fix = Fix(
        FixKind.REPAIR, Applicability.UNSAFE, "unscale first", (edit(SOURCE, "clip(x)\n", "unscale()\n"),)
    )
    trace = (Note("pkg/loss.py", Position(1, 3), "scaled here"),)
    reported = finding(
        SOURCE,
        "clip(x)",
        confidence=Confidence.MEDIUM,
        trace=trace,
        fix=fix,
        fingerprint="0123",
        url="https://example.org",
    )
    assert rendered(reported) == [
        {
            "code": "AMP201",
            "name": "clip-before-unscale",
            "message": "clipped while still scaled",
            "severity": "error",
            "confidence": "medium",
            "fingerprint": "0123",
            "filename": "pkg/train.py",
            "cell": None,
            "location": {"row": 2, "column": 1},
            "end_location": {"row": 2, "column": 8},
            "url": "https://example.org",
            "trace": [
                {
                    "filename": "pkg/loss.py",
                    "cell": None,
                    "location": {"row": 1, "column": 3},
                    "message": "scaled here",
                }
            ],
            "fix": {
                "kind": "repair",
                "applicability": "unsafe",
                "message": "unscale first",
                "edits": [
                    {
                        "filename": "pkg/train.py",
                        "cell": None,
                        "location": {"row": 2, "column": 1},
                        "end_location": {"row": 3, "column": 1},
                        "content": "unscale()\n",
                    }
                ],
            },
            "no_fix_reason": None,
        }
    ]


def test_keys_come_in_the_documented_order(finding) -> None:
    assert list(rendered(finding(SOURCE, "clip"))[0]) == [
        "code",
        "name",
        "message",
        "severity",
        "confidence",
        "fingerprint",
        "filename",
        "cell",
        "location",
        "end_location",
        "url",
        "trace",
        "fix",
        "no_fix_reason",
    ]


def test_without_a_fix_there_is_the_reason(finding) -> None:
    (item,) = rendered(finding(SOURCE, "clip", no_fix_reason="two optimizers"))
    assert item["fix"] is None and item["no_fix_reason"] == "two optimizers"


@pytest.mark.parametrize("severity", Severity)
def test_severities_are_words(finding, severity: Severity) -> None:
    assert rendered(finding(SOURCE, "clip", severity=severity))[0]["severity"] == severity.value


def test_a_finding_without_a_source_is_reported_nevertheless(finding) -> None:
    assert json.loads(render(RunResult([finding(SOURCE, "clip")])))[0]["code"] == "AMP201"


def test_edits_count_rows_of_crlf_files_and_columns_in_code_points(finding, edit) -> None:
    source = source_from_text("# \U0001f600\u0301\r\n\U0001f600 = clip(x)\r\n", "train.py")
    fix = Fix(FixKind.PORT, Applicability.SAFE, "", (edit(source, "clip(x)\r\n", ""),))
    (item,) = rendered(finding(source, "clip", fix=fix), source=source)
    assert item["location"] == {"row": 2, "column": 5}
    (only,) = item["fix"]["edits"]  # type: ignore[index]
    assert (only["location"], only["end_location"]) == ({"row": 2, "column": 5}, {"row": 3, "column": 1})


def test_surrogates_and_other_characters_are_escaped_and_come_back(finding) -> None:
    message = "\udc80 \u5931 \x1b \U0001f600"
    text = render(RunResult([finding(SOURCE, "clip", message=message)]))
    assert text.isascii()
    assert json.loads(text)[0]["message"] == message


def test_findings_keep_their_order(finding) -> None:
    items = rendered(finding(SOURCE, "scale"), finding(SOURCE, "clip"), finding(SOURCE, "step"))
    assert [item["location"]["row"] for item in items] == [1, 2, 3]  # type: ignore[index]


def test_lines_are_the_elements_of_the_list(finding, edit) -> None:
    fix = Fix(FixKind.PORT, Applicability.SAFE, "", (edit(SOURCE, "clip(x)", "cut(x)"),))
    findings = [finding(SOURCE, "clip", fix=fix), finding(SOURCE, "step", message="a\nb \u2028 \udc80")]
    result = RunResult(findings, sources={SOURCE.filename: SOURCE})
    text = render_lines(result)
    assert [json.loads(line) for line in text.splitlines()] == json.loads(render(result))
    assert text.isascii() and text.endswith("}\n")


def test_no_lines_are_written_for_nothing_found() -> None:
    assert render_lines(RunResult()) == ""
