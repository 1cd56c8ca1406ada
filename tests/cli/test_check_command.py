from __future__ import annotations

import json
from pathlib import Path

import pytest

from amplint.finding import InternalError, Severity
from amplint.registry import NoRules, UnknownRule
from amplint.runner import FileChange, FixMode, RunResult
from amplint.source import SourceError, source_from_bytes, source_from_text

BEFORE = source_from_text("clip(x)\n", "train.py")


def changed(*findings: object, files: int = 1) -> RunResult:
    sources = {"train.py": source_from_text("unscale()\nclip(x)\n", "train.py")}
    change = FileChange(BEFORE, "unscale()\nclip(x)\n", ())
    return RunResult(list(findings), changes=[change], sources=sources, files=files)  # type: ignore[arg-type]


# What is run


def test_without_paths_the_working_directory_is_checked(amplint, run) -> None:
    assert amplint("check").exit_code == 0
    assert run.paths == [Path(".")] and run.keywords["cwd"] == Path.cwd()
    assert run.keywords["stdin"] is None and run.keywords["fix"] == FixMode()


def test_paths_are_passed_on_in_one_run(amplint, run) -> None:
    amplint("check", "b.py", "a", "b.py")
    assert run.paths == [Path("b.py"), Path("a"), Path("b.py")] and run.calls == 1


def test_nothing_is_drawn_without_a_terminal(amplint, run) -> None:
    result = amplint("check")
    assert run.keywords["progress"] is None and "\x1b" not in result.output


@pytest.mark.parametrize(
    ("args", "mode"),
    [
        ((), FixMode()),
        (("--fix",), FixMode(ports=True, write=True)),
        (("--repair",), FixMode(ports=True, repairs=True, write=True)),
        (("--fix", "--repair"), FixMode(ports=True, repairs=True, write=True)),
        (("--fix", "--unsafe-fixes"), FixMode(ports=True, unsafe=True, write=True)),
        (("--unsafe-fixes",), FixMode(unsafe=True)),
        (("--diff",), FixMode(ports=True)),
        (("--diff", "--repair"), FixMode(ports=True, repairs=True)),
        (("--diff", "--fix"), FixMode(ports=True)),
    ],
)
def test_options_say_what_is_fixed_and_whether_it_is_written(amplint, run, args, mode: FixMode) -> None:
    amplint("check", *args)
    assert run.keywords["fix"] == mode


@pytest.mark.parametrize("args", [(), ("--repair",), ("--diff",), ("--unsafe-fixes",)])
def test_fix_is_check_with_fix(amplint, run, args) -> None:
    amplint("fix", "a.py", *args)
    fixed = run.paths, run.keywords
    amplint("check", "--fix", "a.py", *args)
    assert fixed == (run.paths, run.keywords)


# Settings


def test_options_become_settings(amplint, run) -> None:
    amplint(
        *("check", "--target", "npu", "--soc", "910A", "--style", "shim", "--torch", "2.3"),
        *("--min-confidence", "low", "--preview", "--force-exclude", "--exclude", "a,b", "--exclude", "c"),
    )
    settings = run.settings
    assert (settings.target, settings.soc, settings.style, settings.torch) == ("npu", "910A", "shim", (2, 3))
    assert (settings.min_confidence, settings.preview, settings.force_exclude) == ("low", True, True)
    assert settings.exclude == ("a", "b", "c")


def test_rules_are_named_with_commas_and_by_repeating_the_option(amplint, run) -> None:
    amplint(
        *("check", "--select", "AMP2, AMP101", "--select", "ALL", "--ignore", "AMP205,"),
        *("--extend-select", "bf16-with-grad-scaler"),
    )
    assert run.settings.select == ("AMP2", "AMP101", "ALL")
    assert run.settings.ignore == ("AMP205",)
    assert run.settings.extend_select == ("bf16-with-grad-scaler",)


def test_options_that_are_not_given_leave_the_configuration_alone(amplint, run) -> None:
    Path("amplint.toml").write_text(
        'select = ["AMP2"]\nignore = ["AMP205"]\nexclude = ["x"]\npreview = true\nforce-exclude = true\n'
        'target = "npu"\ntorch = "2.2"\nextend-select = ["AMP3"]\n'
    )
    amplint("check")
    settings = run.settings
    assert (settings.select, settings.ignore, settings.exclude) == (("AMP2",), ("AMP205",), ("x",))
    assert (settings.preview, settings.force_exclude, settings.target) == (True, True, "npu")
    assert (settings.torch, settings.extend_select) == ((2, 2), ("AMP3",))


def test_the_configuration_nearest_to_the_first_path_counts(amplint, run) -> None:
    Path("amplint.toml").write_text('soc = "910A"\n')
    Path("inner").mkdir()
    Path("inner/amplint.toml").write_text('soc = "950"\n')
    amplint("check", "inner", "other")
    assert run.settings.soc == "950"
    amplint("check", "other", "inner")
    assert run.settings.soc == "910A"
    amplint("check", "-", "--stdin-filename", "inner/train.py", stdin=b"")
    assert run.settings.soc == "950"


def test_an_isolated_run_reads_no_configuration(amplint, run) -> None:
    Path("amplint.toml").write_text("broken")
    assert amplint("check", "--isolated").exit_code == 0
    assert run.settings.root is None


def test_a_configuration_can_be_named(amplint, run) -> None:
    Path("other.toml").write_text('soc = "950"\n')
    assert amplint("check", "--config", "other.toml").exit_code == 0
    assert run.settings.soc == "950"


def test_the_configuration_may_ask_for_json(amplint, run) -> None:
    Path("amplint.toml").write_text('output-format = "json"\n')
    assert amplint("check").stdout == "[]\n"
    assert amplint("check", "--output-format", "text").stdout == "No findings in 1 file.\n"


def test_no_cache_is_accepted(amplint, run) -> None:
    assert amplint("check", "--no-cache").exit_code == 0


# A user's mistakes


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("selct = []", "did you mean 'select'"),
        ("select = 1", "select: expected a list"),
        ("[", "not valid TOML"),
        ('output-format = "htm"', "output-format: "),
    ],
)
def test_a_broken_configuration_is_one_line_and_exit_2(amplint, run, toml: str, message: str) -> None:
    Path("amplint.toml").write_text(toml)
    result = amplint("check")
    assert result.exit_code == 2 and run.calls == 0 and result.stdout == ""
    assert message in result.stderr and result.stderr.count("\n") == 1 and "amplint.toml" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--torch", "new"), "expected a version"),
        (("--target", "tpu"), "'tpu' is not one of"),
        (("--config", "missing.toml"), "no such configuration file"),
        (("--config", "x.toml", "--isolated"), "isolated"),
        (("--select", ""), "--select names no rule"),
        (("a.py", ""), "a path is empty"),
        (("-", "a.py"), "stands alone"),
        (("--stdin-filename", "a.py"), "goes with the path -"),
        (("--diff", "--output-format", "json"), "takes stdout"),
        (("-", "--fix", "--output-format", "json"), "takes stdout"),
    ],
)
def test_wrong_usage_is_told_without_a_traceback(amplint, run, args, message: str) -> None:
    result = amplint("check", *args)
    assert result.exit_code == 2 and run.calls == 0 and result.stdout == ""
    assert message in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "error", [UnknownRule("unknown rule 'AMP21O'; did you mean 'AMP210'?"), NoRules("no rules found")]
)
def test_an_unknown_rule_and_a_broken_installation_are_told_in_one_line(amplint, run, error) -> None:
    run.error = error
    result = amplint("check", "--select", "AMP21O", "--exit-zero")
    assert result.exit_code == 2
    assert result.stderr == f"error: {error}\n"


# Exit codes


def test_nothing_left_is_0_and_a_finding_is_1_whatever_its_severity(amplint, run, finding) -> None:
    assert amplint("check").exit_code == 0
    for severity in Severity:
        run.finds(finding(severity=severity))
        assert amplint("check").exit_code == 1


def test_exit_zero_forgives_findings_but_no_failures(amplint, run, finding) -> None:
    run.finds(finding())
    assert amplint("check", "--exit-zero").exit_code == 0
    run.result.internal_errors.append(InternalError("train.py", "KeyError: 1", "AMP201"))
    assert amplint("check", "--exit-zero").exit_code == 2


def test_a_file_that_cannot_be_read_is_2_and_told_on_stderr(amplint, run, finding) -> None:
    run.finds(finding())
    run.result.problems.append(SourceError("gone.py", "does not exist"))
    result = amplint("check")
    assert result.exit_code == 2
    assert result.stderr == "error: gone.py: does not exist\n"
    assert "AMP201" in result.stdout, "one broken file does not stop the others"


def test_fixed_files_without_findings_are_0(amplint, run) -> None:
    run.result = changed()
    assert amplint("check", "--fix").exit_code == 0


def test_no_files_are_a_warning(amplint, run) -> None:
    run.result = RunResult()
    result = amplint("check", "src")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "warning: no Python files or notebooks found\n"
    assert amplint("check", "src", "-q").stderr == ""


# Output


def test_findings_and_summary_are_on_stdout(amplint, run, finding) -> None:
    run.finds(finding())
    result = amplint("check")
    assert result.stderr == ""
    assert result.stdout.startswith("train.py:2:1: AMP201 clip-before-unscale  clipped while still scaled\n")
    assert result.stdout.endswith("\n1 finding in 1 file (1 error).\n")


def test_a_quiet_run_prints_findings_only(amplint, run, finding) -> None:
    assert amplint("check", "-q").output == ""
    run.finds(finding())
    assert "1 finding" not in amplint("check", "-q").output
    assert "AMP201" in amplint("check", "-q").stdout


def test_statistics_come_between_findings_and_summary(amplint, run, finding) -> None:
    run.finds(finding())
    run.result.statistics["functions"] = 7
    lines = amplint("check", "--statistics").stdout.splitlines()
    assert lines[-3:] == ["1  AMP201 clip-before-unscale", "7  functions", "1 finding in 1 file (1 error)."]


def test_json_is_all_that_is_on_stdout(amplint, run, finding) -> None:
    run.finds(finding())
    run.result.internal_errors.append(InternalError("train.py", "KeyError: 1", "AMP201"))
    result = amplint("check", "--output-format", "json", "--statistics")
    assert [item["code"] for item in json.loads(result.stdout)] == ["AMP201"]
    assert "1  AMP201 clip-before-unscale" in result.stderr and "internal error" in result.stderr


def test_json_with_fix_lists_what_remains(amplint, run, finding) -> None:
    run.result = changed(finding())
    result = amplint("check", "--fix", "--output-format", "json")
    assert result.exit_code == 1
    assert [item["location"]["row"] for item in json.loads(result.stdout)] == [2]


def test_diff_prints_a_diff_and_nothing_else_on_stdout(amplint, run, finding) -> None:
    run.result = changed(finding())
    result = amplint("check", "--diff")
    assert result.exit_code == 1
    assert result.stdout == "--- a/train.py\n+++ b/train.py\n@@ -1 +1,2 @@\n+unscale()\n clip(x)\n"
    assert "Would fix 0 findings in 1 file." in result.stderr
    assert "1 finding left in 1 file" in result.stderr


def test_a_diff_is_1_even_if_no_finding_would_remain(amplint, run) -> None:
    run.result = changed()
    assert amplint("check", "--diff").exit_code == 1
    assert amplint("check", "--diff", "--exit-zero").exit_code == 0
    assert amplint("check", "--diff", "-q").stderr == ""


def test_a_diff_keeps_bytes_that_are_no_utf8(amplint, run) -> None:
    source = source_from_bytes(b"# coding: latin-1\r\n# \xe9\r\nx\r\n", "a.py")
    run.result = RunResult(changes=[FileChange(source, source.text.replace("x", "\xe8"), ())], files=1)
    result = amplint("check", "--diff")
    assert b" # \xe9\r\n-x\r\n+\xe8\r\n" in result.stdout_bytes


# Code on stdin


def test_code_on_stdin_is_checked_under_its_name(amplint, run) -> None:
    amplint("check", "-", "--stdin-filename", "./pkg/train.py", stdin=b"x = 1\r\n")
    stdin = run.keywords["stdin"]
    assert (stdin.filename, stdin.text, stdin.path) == ("pkg/train.py", "x = 1\r\n", None)
    assert run.paths == []


def test_code_on_stdin_without_a_name_is_called_dash(amplint, run) -> None:
    amplint("check", "-", stdin=b"")
    assert run.keywords["stdin"].filename == "-"


def test_code_on_stdin_that_is_no_text_is_an_error(amplint, run) -> None:
    result = amplint("check", "-", stdin=b"\xff\xfe")
    assert result.exit_code == 2 and run.calls == 0
    assert result.stderr == "error: -: not a Python text file (UTF-16)\n"


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_fixed_code_comes_back_on_stdout_and_the_report_on_stderr(amplint, run, finding, newline) -> None:
    data = b"\xef\xbb\xbf# \xc3\xa9" + newline + b"clip(x)" + newline
    stdin = source_from_bytes(data, "-")
    run.result = RunResult(
        [finding()],
        changes=[FileChange(stdin, stdin.text.replace("clip", "cut"), ())],
        files=1,
    )
    result = amplint("fix", "-", stdin=data)
    assert result.stdout_bytes == data.replace(b"clip", b"cut")
    assert "AMP201" in result.stderr and result.exit_code == 1


def test_code_on_stdin_that_needs_no_fix_comes_back_as_it_was(amplint, run) -> None:
    Path("amplint.toml").write_text('output-format = "json"\n')
    result = amplint("fix", "-", stdin=b"x\r\n\xc3\xa9")
    assert (result.stdout_bytes, result.exit_code) == (b"x\r\n\xc3\xa9", 0)


def test_stdin_can_be_shown_as_a_diff(amplint, run) -> None:
    run.result = RunResult(changes=[FileChange(source_from_text("a\n", "-"), "b\n", ())], files=1)
    assert amplint("check", "-", "--diff", stdin=b"a\n").stdout.endswith("-a\n+b\n")
