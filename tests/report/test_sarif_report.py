from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amplint.finding import (
    Applicability,
    Confidence,
    Fix,
    FixKind,
    InternalError,
    Note,
    Position,
    Severity,
    Span,
)
from amplint.registry import all_rules, page
from amplint.report.sarif import Driver, render
from amplint.rule import Rule
from amplint.runner import RunResult
from amplint.source import Source, SourceError, source_from_text

SOURCE = source_from_text("scale()\nclip(x)\nstep()\n", "pkg/train.py")
DRIVER = Driver("1.2.3", all_rules(), page)


def run_of(result: RunResult, cwd: Path = Path(), driver: Driver = DRIVER) -> dict[str, Any]:
    log = json.loads(render(result, driver, cwd))
    assert log["version"] == "2.1.0" and log["$schema"].endswith("/sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    return run


def results(*findings: Any, source: Source = SOURCE, cwd: Path = Path()) -> list[dict[str, Any]]:
    return run_of(RunResult(list(findings), sources={source.filename: source}), cwd)["results"]


def region(result: dict[str, Any]) -> tuple[int, ...]:
    place = result["locations"][0]["physicalLocation"]["region"]
    return tuple(place[key] for key in ("startLine", "startColumn", "endLine", "endColumn"))


def test_nothing_found_is_a_run_without_results_that_succeeded() -> None:
    run = run_of(RunResult(files=3))
    assert run["results"] == [] and run["artifacts"] == []
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]


def test_a_result_names_its_rule_by_code_and_by_index(finding) -> None:
    run = run_of(
        RunResult([finding(SOURCE, "clip(x)", fingerprint="0123")], sources={SOURCE.filename: SOURCE})
    )
    (result,) = run["results"]
    assert result["ruleId"] == run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "AMP201"
    assert result["message"] == {"text": "clipped while still scaled"}
    assert result["partialFingerprints"] == {"amplintFinding/v1": "0123"}
    assert result["properties"]["confidence"] == "high"
    assert region(result) == (2, 1, 2, 8)


@pytest.mark.parametrize(
    ("severity", "level"), [(Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.INFO, "note")]
)
def test_levels_follow_severities(finding, severity: Severity, level: str) -> None:
    assert results(finding(SOURCE, "clip", severity=severity))[0]["level"] == level


def test_a_rule_of_the_driver_has_everything_that_code_scanning_shows() -> None:
    driver = run_of(RunResult())["tool"]["driver"]
    assert (driver["name"], driver["version"], driver["semanticVersion"]) == ("amplint", "1.2.3", "1.2.3")
    rules = {rule["id"]: rule for rule in driver["rules"]}
    assert set(rules) == {rule.code for rule in all_rules()}
    rule = rules["AMP201"]
    assert rule["name"] == "clip-before-unscale"
    assert rule["shortDescription"]["text"].endswith(".")
    assert rule["fullDescription"]["text"].startswith("Finds gradient clipping that acts on gradients which")
    assert rule["help"]["markdown"].startswith("# clip-before-unscale (AMP201)")
    assert rule["helpUri"] in rule["help"]["text"]
    assert rule["defaultConfiguration"] == {"level": "error"}
    assert rule["properties"]["precision"] == rule["properties"]["confidence"] == "high"
    assert rule["properties"]["problem.severity"] == "error"
    assert "scaler" in rule["properties"]["tags"]
    assert rules["AMP215"]["defaultConfiguration"] == {"level": "note", "enabled": False}


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_the_descriptions_of_a_rule_keep_to_the_limits_of_github(rule: Rule) -> None:
    (described,) = run_of(RunResult(), driver=Driver("1", [rule], page))["tool"]["driver"]["rules"]
    assert 0 < len(described["shortDescription"]["text"]) <= 1024
    assert 0 < len(described["fullDescription"]["text"]) <= 1024
    assert len(described["name"]) <= 255


def test_a_rule_without_a_page_is_described_by_its_summary() -> None:
    rule = Rule("XYZ1", "odd", "is odd", Severity.INFO, lambda ctx: [], preview=True)

    def no_page(rule: Rule) -> str:
        raise FileNotFoundError

    (described,) = run_of(RunResult(), driver=Driver("1", [rule], no_page))["tool"]["driver"]["rules"]
    assert described["fullDescription"]["text"] == "is odd."
    assert described["defaultConfiguration"] == {"level": "note", "enabled": False}
    assert "preview" in described["properties"]["tags"]


def test_a_finding_of_a_rule_that_is_not_in_the_driver_has_no_index(finding) -> None:
    (result,) = results(finding(SOURCE, "clip", code="XYZ999"))
    assert result["ruleId"] == "XYZ999" and "ruleIndex" not in result


@pytest.mark.parametrize(
    ("line", "columns"),
    [
        ("clip(x)", (1, 8)),
        ("'失败'; clip(x)", (7, 14)),
        ("'\U0001f600'; clip(x)", (7, 14)),
        ("\tclip(x)", (2, 9)),
    ],
)
def test_columns_count_utf_16_code_units(finding, line: str, columns: tuple[int, int]) -> None:
    source = source_from_text(f"pass\r\n{line}\r\n", "train.py")
    run = run_of(RunResult([finding(source, "clip(x)")], sources={"train.py": source}))
    assert run["columnKind"] == "utf16CodeUnits"
    assert region(run["results"][0]) == (2, columns[0], 2, columns[1])


def test_rows_may_end_in_a_lone_carriage_return(finding) -> None:
    source = source_from_text("pass\r\U0001f600 = clip(x)\r", "train.py")
    run = run_of(RunResult([finding(source, "clip(x)")], sources={"train.py": source}))
    assert run["newlineSequences"] == ["\r\n", "\n", "\r"]
    assert region(run["results"][0]) == (2, 6, 2, 13)


def test_a_trace_is_a_code_flow_and_related_locations_in_other_files_too(finding, tmp_path: Path) -> None:
    (tmp_path / "loss.py").write_text("'\U0001f600'; scale()\n", encoding="utf-8")
    trace = (
        Note("loss.py", Position(1, 6), "scaled here"),
        Note("gone.py", Position(7, 3), "passed on here"),
        Note("pkg/train.py", Position(2, 1), "clipped here"),
    )
    (result,) = results(finding(SOURCE, "clip(x)", trace=trace), cwd=tmp_path)
    ((flow,),) = [each["threadFlows"] for each in result["codeFlows"]]
    steps = [step["location"] for step in flow["locations"]]
    assert [step["message"]["text"] for step in steps] == ["scaled here", "passed on here", "clipped here"]
    places = [step["physicalLocation"] for step in steps]
    assert [place["artifactLocation"]["uri"] for place in places] == ["loss.py", "gone.py", "pkg/train.py"]
    assert [place["region"] for place in places] == [
        {"startLine": 1, "startColumn": 7},
        {"startLine": 7},
        {"startLine": 2, "startColumn": 1},
    ]
    assert result["relatedLocations"] == [{"id": number, **step} for number, step in enumerate(steps, 1)]


def test_without_a_trace_there_is_no_code_flow(finding) -> None:
    (result,) = results(finding(SOURCE, "clip"))
    assert result.keys().isdisjoint({"codeFlows", "relatedLocations", "fixes"})


def applied(text: str, replacements: list[dict[str, Any]]) -> str:
    """What a reader of SARIF makes of a text: lines and UTF-16 columns."""
    lines = [line.encode("utf-16-le") for line in text.splitlines(keepends=True)] + [b""]
    offsets = [sum(map(len, lines[:number])) for number in range(len(lines))]
    data = b"".join(lines)
    for each in reversed(replacements):
        place = each["deletedRegion"]
        start = offsets[place["startLine"] - 1] + 2 * (place["startColumn"] - 1)
        end = offsets[place["endLine"] - 1] + 2 * (place["endColumn"] - 1)
        data = data[:start] + each["insertedContent"]["text"].encode("utf-16-le") + data[end:]
    return data.decode("utf-16-le")


def test_a_fix_can_be_applied_by_whoever_reads_the_report(finding, edit) -> None:
    source = source_from_text("scale()\n'\U0001f600'; clip(x); y = 1\nstep()\n", "train.py")
    edits = (
        edit(source, "step()\n", ""),
        edit(source, "clip(x)", "unscale('失\U0001f600')"),
        edit(source, "y", "zz"),
    )
    fix = Fix(FixKind.REPAIR, Applicability.UNSAFE, "unscale first", edits)
    (result,) = results(finding(source, "clip(x)", fix=fix), source=source)
    ((change,),) = [each["artifactChanges"] for each in result["fixes"]]
    assert change["artifactLocation"]["uri"] == "train.py"
    assert (
        applied(source.text, change["replacements"])
        == "scale()\n'\U0001f600'; unscale('失\U0001f600'); zz = 1\n"
    )
    assert result["fixes"][0]["description"]["text"].startswith("unscale first (look")
    assert result["fixes"][0]["properties"] == {"kind": "repair", "applicability": "unsafe"}


def test_a_fix_that_is_never_to_be_applied_is_left_out(finding, edit) -> None:
    fix = Fix(FixKind.PORT, Applicability.DISPLAY, "perhaps", (edit(SOURCE, "clip", "clop"),))
    assert "fixes" not in results(finding(SOURCE, "clip", fix=fix))[0]


def test_the_reason_why_there_is_no_fix_is_kept(finding) -> None:
    assert results(finding(SOURCE, "clip", no_fix_reason="two optimizers"))[0]["properties"] == {
        "confidence": "high",
        "noFixReason": "two optimizers",
    }


@pytest.mark.parametrize(
    ("filename", "uri"),
    [
        ("pkg/train.py", "pkg/train.py"),
        ("my pkg/tr%ain#1.py", "my%20pkg/tr%25ain%231.py"),
        ("失/a:b?.py", "%E5%A4%B1/a%3Ab%3F.py"),
        ("odd\udcff.py", "odd%FF.py"),
        ("../other/train.py", "../other/train.py"),
    ],
)
def test_uris_are_percent_encoded_and_relative_to_the_root(finding, filename: str, uri: str) -> None:
    source = source_from_text(SOURCE.text, filename)
    run = run_of(RunResult([finding(source, "clip")], sources={filename: source}))
    location = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location == {"uri": uri, "uriBaseId": "%SRCROOT%", "index": 0}
    assert run["artifacts"][0]["location"] == {"uri": uri, "uriBaseId": "%SRCROOT%"}
    assert "%SRCROOT%" in run["originalUriBaseIds"]


def test_an_absolute_path_is_a_file_uri(finding, tmp_path: Path) -> None:
    source = source_from_text(SOURCE.text, (tmp_path / "a b.py").as_posix())
    (result,) = results(finding(source, "clip"), source=source)
    location = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location == {"uri": (tmp_path / "a b.py").as_uri(), "index": 0}


def test_the_report_does_not_say_where_it_was_made(finding, tmp_path: Path) -> None:
    result = RunResult([finding(SOURCE, "clip")], sources={SOURCE.filename: SOURCE})
    assert render(result, DRIVER, tmp_path) == render(result, DRIVER, Path())


def test_failures_are_notifications_of_a_run_that_did_not_succeed() -> None:
    result = RunResult(
        internal_errors=[InternalError("train.py", "KeyError: 'x'", "AMP201"), InternalError("b.py", "died")],
        problems=[SourceError("gone.py", "does not exist")],
    )
    run = run_of(result)
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    first, second, third = invocation["toolExecutionNotifications"]
    assert first["message"]["text"] == "internal error in amplint: AMP201: KeyError: 'x'"
    assert run["tool"]["driver"]["rules"][first["associatedRule"]["index"]]["id"] == "AMP201"
    assert second["message"]["text"] == "internal error in amplint: died" and "associatedRule" not in second
    assert third["message"]["text"] == "does not exist"
    places = [
        each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in (first, second, third)
    ]
    assert places == ["train.py", "b.py", "gone.py"]


def test_messages_hold_neither_links_nor_half_characters(finding) -> None:
    (result,) = results(finding(SOURCE, "clip", message="x[0](y) and \udc80 and a[1]"))
    assert result["message"]["text"] == "x\\[0](y) and \\udc80 and a[1]"


def test_a_finding_about_a_whole_file_is_at_its_first_column(finding) -> None:
    source = source_from_text("", "broken.py")
    whole = finding(
        SOURCE, "clip", filename="broken.py", span=Span(0, 0), start=Position(1, 1), end=Position(1, 1)
    )
    assert region(results(whole, source=source)[0]) == (1, 1, 1, 1)


def test_confidence_is_that_of_the_finding(finding) -> None:
    assert results(finding(SOURCE, "clip", confidence=Confidence.LOW))[0]["properties"]["confidence"] == "low"
