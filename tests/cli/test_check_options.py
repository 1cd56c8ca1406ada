"""`amplint check`: options that list, limit or hand on, and formats of one line each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amplint.finding import Applicability, Confidence, Edit, Fix, FixKind, InternalError, Severity, Span
from amplint.report import FORMATS
from amplint.runner import FileChange, RunResult
from amplint.source import SourceError, source_from_text

PORT = Fix(FixKind.PORT, Applicability.SAFE, "", (Edit(Span(0, 0), "x"),))
REPAIR = Fix(FixKind.REPAIR, Applicability.SAFE, "", (Edit(Span(0, 0), "x"),))

#: Clipped while scaled, unless two conditions that have nothing to do with each other are equal.
UNCORRELATED = """\
import torch
from torch.nn.utils import clip_grad_norm_


def train(model, loader, optimizer, first, second):
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        scaler.scale(model(x).mean()).backward()
        if first:
            scaler.unscale_(optimizer)
        if second:
            clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""


# --show-files


def test_the_files_of_a_run_are_listed_in_order_and_nothing_is_checked(amplint, run, finding) -> None:
    run.finds(finding())
    Path("src/pkg").mkdir(parents=True)
    for name in ("src/b.py", "src/pkg/a.py", "src/types.pyi", "src/notes.txt"):
        Path(name).touch()
    result = amplint("check", "--show-files", "src")
    assert (result.exit_code, result.stderr, run.calls) == (0, "", 0)
    assert result.stdout == "src/b.py\nsrc/pkg/a.py\nsrc/types.pyi\n"


def test_files_that_are_excluded_or_ignored_are_not_listed(amplint, run) -> None:
    for name in ("build", "third_party"):
        Path(name).mkdir()
        Path(name, "a.py").touch()
    Path("b.py").touch()
    Path("amplint.toml").write_text('extend-exclude = ["third_party"]\n')
    assert amplint("check", "--show-files").stdout == "b.py\n"
    assert amplint("check", "--show-files", "build").stdout == "build/a.py\n"
    assert amplint("check", "--show-files", "--force-exclude", "build").stdout == ""


def test_fix_lists_files_and_writes_none(amplint, run) -> None:
    Path("a.py").write_text("with autocast() and no_grad():\n    pass\n")
    assert amplint("fix", "--repair", "--show-files").stdout == "a.py\n"
    assert run.calls == 0


def test_listing_what_does_not_exist_is_2_and_lists_the_rest(amplint, run) -> None:
    Path("a.py").touch()
    result = amplint("check", "--show-files", "a.py", "gone.py")
    assert (result.exit_code, result.stdout) == (2, "a.py\n")
    assert result.stderr == "error: gone.py: does not exist\n"


def test_listing_nothing_is_a_warning(amplint, run) -> None:
    result = amplint("check", "--show-files")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "warning: no Python files or notebooks found\n"
    assert amplint("check", "--show-files", "-q").stderr == ""


# --show-settings


def test_the_settings_of_a_run_are_printed_with_its_options(amplint, run) -> None:
    Path("amplint.toml").write_text('soc = "950"\n')
    result = amplint("check", "--show-settings", "--target", "npu")
    assert (result.exit_code, run.calls) == (0, 0)
    lines = [line.split("  #") for line in result.stdout.splitlines()]
    shown = {setting.strip(): origin[0].strip() for setting, *origin in lines if origin}
    assert shown['target = "npu"'] == "command line"
    assert shown['soc = "950"'].endswith("amplint.toml")
    assert shown['style = "auto"'] == "default"


def test_without_options_the_settings_are_those_of_amplint_config(amplint, run) -> None:
    Path("amplint.toml").write_text('soc = "950"\nselect = ["AMP2"]\n')
    assert amplint("check", "--show-settings").stdout == amplint("config").stdout


def test_settings_that_cannot_be_used_are_not_printed(amplint, run) -> None:
    result = amplint("check", "--show-settings", "--select", "AMP2011")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "did you mean" in result.stderr


# --fail-on


@pytest.mark.parametrize(
    ("level", "failing"),
    [
        ("error", {"error"}),
        ("warning", {"error", "warning"}),
        ("info", {"error", "warning", "info"}),
        ("never", set()),
    ],
)
@pytest.mark.parametrize("severity", Severity)
def test_findings_below_a_severity_are_reported_and_do_not_fail(
    amplint, run, finding, level: str, failing: set[str], severity: Severity
) -> None:
    run.finds(finding(severity=severity))
    result = amplint("check", "--fail-on", level)
    assert "AMP201" in result.stdout
    assert result.exit_code == (1 if severity.value in failing else 0)


def test_one_severe_finding_among_others_fails(amplint, run, finding) -> None:
    run.finds(finding(severity=Severity.INFO), finding(severity=Severity.ERROR))
    assert amplint("check", "--fail-on", "error").exit_code == 1


def test_a_diff_fails_for_what_it_fixes(amplint, run, finding) -> None:
    change = FileChange(source_from_text("a\n", "a.py"), "b\n", (finding(severity=Severity.WARNING),))
    run.result = RunResult(changes=[change], files=1)
    assert amplint("check", "--diff").exit_code == 1
    assert amplint("check", "--diff", "--fail-on", "warning").exit_code == 1
    assert amplint("check", "--diff", "--fail-on", "error").exit_code == 0
    assert amplint("check", "--diff", "--fail-on", "never").exit_code == 0


def test_what_was_fixed_does_not_fail(amplint, run, finding) -> None:
    change = FileChange(source_from_text("a\n", "a.py"), "b\n", (finding(),))
    run.result = RunResult(changes=[change], files=1)
    assert amplint("fix", "--fail-on", "error").exit_code == 0


def test_failures_are_2_whatever_findings_may_be(amplint, run) -> None:
    run.result.internal_errors.append(InternalError("train.py", "KeyError: 1", "AMP201"))
    assert amplint("check", "--fail-on", "never").exit_code == 2
    run.result = RunResult(problems=[SourceError("gone.py", "does not exist")])
    assert amplint("check", "--fail-on", "never").exit_code == 2


# --jobs and the cache


@pytest.mark.parametrize(("args", "jobs"), [((), 0), (("-j", "3"), 3), (("--jobs", "0"), 0), (("-j1",), 1)])
def test_the_number_of_processes_is_handed_on(amplint, run, args, jobs: int) -> None:
    amplint("check", *args)
    assert run.keywords["jobs"] == jobs


def test_the_cache_is_used_unless_it_is_switched_off(amplint, run) -> None:
    amplint("check")
    assert run.keywords["use_cache"] is True
    amplint("check", "--no-cache")
    assert run.keywords["use_cache"] is False


def test_the_folder_of_the_cache_is_a_setting(amplint, run) -> None:
    Path("amplint.toml").write_text('cache-dir = "configured"\n')
    amplint("check")
    assert run.settings.cache_dir == Path.cwd() / "configured"
    amplint("check", "--cache-dir", "given")
    assert run.settings.cache_dir == Path.cwd() / "given"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--jobs", "-1"), "'--jobs'"),
        (("--jobs", "many"), "'--jobs'"),
        (("--cache-dir", ""), "cache-dir: expected a path"),
        (("--fail-on", "fatal"), "'--fail-on'"),
        (("--show-files", "--show-settings"), "exclude each other"),
        (("--show-files", "-"), "not code on stdin"),
        (("--diff", "--output-format", "jsonl"), "takes stdout"),
        (("-", "--fix", "--output-format", "jsonl"), "takes stdout"),
        (("--output-format", "yaml"), "'yaml' is not one of"),
    ],
)
def test_wrong_usage_is_told_without_a_traceback(amplint, run, args, message: str) -> None:
    result = amplint("check", *args)
    assert result.exit_code == 2 and run.calls == 0 and result.stdout == ""
    assert message in result.stderr and "Traceback" not in result.stderr


# --min-confidence, in a real run


@pytest.mark.parametrize(
    ("minimum", "confidence", "found"),
    [
        ("low", Confidence.LOW, True),
        ("medium", Confidence.LOW, False),
        ("high", Confidence.LOW, False),
        ("high", Confidence.HIGH, True),
    ],
)
def test_what_is_less_certain_is_left_out(
    amplint, tmp_path, monkeypatch, minimum: str, confidence: Confidence, found: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    text = UNCORRELATED if confidence is Confidence.LOW else UNCORRELATED.replace("if first:", "if False:")
    Path("train.py").write_text(text)
    args = (
        "check",
        "--no-cache",
        "--select",
        "AMP201",
        "--output-format",
        "json",
        "--min-confidence",
        minimum,
    )
    result = amplint(*args)
    assert [each["confidence"] for each in json.loads(result.stdout)] == [confidence.value] * found
    assert result.exit_code == int(found)


def test_a_low_confidence_is_left_out_unless_it_is_asked_for(amplint, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(UNCORRELATED)
    assert "AMP201" not in amplint("check", "--no-cache").stdout
    Path("amplint.toml").write_text('min-confidence = "low"\n')
    assert "AMP201" in amplint("check", "--no-cache").stdout


# Formats


def test_concise_is_a_line_for_each_finding_and_the_summary(amplint, run, finding) -> None:
    run.finds(finding(fix=REPAIR), finding(place="step()", code="AMP102", fix=PORT))
    result = amplint("check", "--output-format", "concise")
    assert result.stdout.splitlines()[:2] == [
        "train.py:2:1: AMP201 [+] clipped while still scaled",
        "train.py:3:1: AMP102 [*] clipped while still scaled",
    ]
    assert result.stdout.splitlines()[2] == "2 findings in 1 file (2 errors)."
    assert len(amplint("check", "--output-format", "concise", "-q").stdout.splitlines()) == 2


def test_jsonl_is_all_that_is_on_stdout(amplint, run, finding) -> None:
    run.finds(finding(), finding(place="step()"))
    result = amplint("check", "--output-format", "jsonl", "--statistics")
    rows = [json.loads(line)["location"]["row"] for line in result.stdout.splitlines()]
    assert rows == [2, 3] and result.exit_code == 1
    assert "2  AMP201 clip-before-unscale" in result.stderr


def test_jsonl_of_nothing_is_empty(amplint, run) -> None:
    assert amplint("check", "--output-format", "jsonl").output == ""


@pytest.mark.parametrize("output_format", FORMATS)
def test_every_format_can_be_configured(amplint, run, finding, output_format: str) -> None:
    run.finds(finding(fix=PORT))
    asked_for = amplint("check", "--output-format", output_format).stdout
    Path("amplint.toml").write_text(f'output-format = "{output_format}"\n')
    assert amplint("check").stdout == asked_for


@pytest.mark.parametrize("output_format", FORMATS)
def test_a_configured_format_does_not_get_between_a_diff_or_fixed_code(
    amplint, run, finding, output_format: str
) -> None:
    Path("amplint.toml").write_text(f'output-format = "{output_format}"\n')
    run.result = RunResult(changes=[FileChange(source_from_text("a\n", "-"), "b\n", ())], files=1)
    assert amplint("check", "--diff").stdout.endswith("-a\n+b\n")
    assert amplint("fix", "-", stdin=b"a\n").stdout == "b\n"


def test_fixed_code_from_stdin_keeps_a_concise_report(amplint, run, finding) -> None:
    run.result = RunResult([finding()], files=1)
    result = amplint("fix", "-", "--output-format", "concise", stdin=b"a\n")
    assert result.stdout == "a\n"
    assert result.stderr.startswith("train.py:2:1: AMP201 clipped")


def test_html_without_its_library_is_one_line_and_no_run(
    amplint, run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = amplint("check", "--output-format", "html")
    assert (result.exit_code, result.stdout, run.calls) == (2, "", 0)
    assert result.stderr == "error: --output-format html needs jinja2: pip install 'amplint[html]'\n"
