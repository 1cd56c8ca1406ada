"""`amplint check --output-file PATH`: the report in a file, the summary on stdout."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from amplint.report import FORMATS
from amplint.runner import FileChange, RunResult
from amplint.source import source_from_text

LEFT = "1 finding in 1 file (1 error).\n"


def test_the_file_gets_the_report_and_stdout_the_summary(amplint, run, finding) -> None:
    run.finds(finding())
    result = amplint("check", "--output-format", "json", "--output-file", "out.json")
    assert (result.exit_code, result.stdout, result.stderr) == (1, LEFT, "")
    assert json.loads(Path("out.json").read_text())[0]["code"] == "AMP201"
    assert os.listdir() == ["out.json"]


@pytest.mark.parametrize("output_format", FORMATS)
def test_every_format_is_the_same_in_a_file(amplint, run, finding, output_format: str) -> None:
    run.finds(finding())
    shown = amplint("check", "--output-format", output_format).stdout
    amplint("check", "--output-format", output_format, "--output-file", "out")
    assert Path("out").read_bytes() == shown.encode()


def test_quiet_leaves_nothing_on_stdout_and_statistics_are_added(amplint, run, finding) -> None:
    run.finds(finding())
    assert amplint("check", "-q", "--output-file", "out").stdout == ""
    result = amplint("check", "--statistics", "--output-format", "json", "--output-file", "out")
    assert result.stdout == f"1  AMP201 clip-before-unscale\n{LEFT}" and result.stderr == ""


def test_an_existing_file_is_replaced_and_keeps_its_mode(amplint, run, finding) -> None:
    run.finds(finding())
    Path("out").write_text("old " * 10_000)
    Path("out").chmod(0o640)
    amplint("check", "--output-format", "concise", "--output-file", "out")
    assert Path("out").read_text().startswith("train.py:2:1: AMP201")
    assert Path("out").stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.name != "posix", reason="links and devices")
def test_links_are_followed_and_devices_written_to(amplint, run, finding) -> None:
    run.finds(finding())
    Path("real").write_text("")
    Path("link").symlink_to("real")
    amplint("check", "--output-format", "concise", "--output-file", "link")
    assert Path("link").is_symlink() and "AMP201" in Path("real").read_text()
    assert amplint("check", "--output-file", "/dev/null").exit_code == 1
    assert not Path("/dev/null").is_file()


def test_what_utf_8_has_no_bytes_for_is_escaped(amplint, run, finding) -> None:
    run.finds(finding(message="\udc80 失"))
    amplint("check", "--output-format", "concise", "--output-file", "out")
    assert "\\udc80 失" in Path("out").read_text("utf-8")


def test_a_diff_or_fixed_code_keeps_stdout(amplint, run, finding) -> None:
    run.result = RunResult(
        [finding()], changes=[FileChange(source_from_text("a\n", "-"), "b\n", ())], files=1
    )
    options = ("--output-format", "json", "--output-file", "out")
    result = amplint("check", "--diff", *options)
    assert result.stdout.endswith("-a\n+b\n") and "1 finding left" in result.stderr
    result = amplint("fix", "-", *options, stdin=b"a\n")
    assert result.stdout == "b\n" and "1 finding left" in result.stderr
    assert json.loads(Path("out").read_text())[0]["code"] == "AMP201"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gone/out.json", "there is no folder gone"),
        (".", "needs the path of a file, not '.'"),
        ("", "needs the path of a file, not ''"),
        ("train.py", "would replace Python code"),
    ],
)
def test_a_path_that_cannot_be_meant_is_told_before_the_run(amplint, run, path: str, message: str) -> None:
    result = amplint("check", "--output-file", path)
    assert result.exit_code == 2 and run.calls == 0 and result.stdout == ""
    assert message in result.stderr and "Traceback" not in result.stderr
    assert os.listdir() == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions")
def test_a_folder_that_cannot_be_written_to_is_one_line(amplint, run, finding) -> None:
    run.finds(finding())
    Path("locked").mkdir(mode=0o500)
    result = amplint("check", "--output-file", "locked/out")
    assert result.exit_code == 2
    assert result.stderr == "error: --output-file locked/out: cannot be written: Permission denied\n"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(amplint, run, finding, monkeypatch) -> None:
    run.finds(finding())
    Path("out").write_text("old")

    def full(descriptor: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("amplint.source.os.write", full)
    result = amplint("check", "--output-file", "out")
    monkeypatch.undo()
    assert result.exit_code == 2
    assert result.stderr == "error: --output-file out: cannot be written: No space left on device\n"


def test_a_configured_format_counts_for_the_file(amplint, run, finding) -> None:
    run.finds(finding())
    Path("amplint.toml").write_text('output-format = "gitlab"\n')
    amplint("check", "--output-file", "out.json")
    assert json.loads(Path("out.json").read_text())[0]["check_name"] == "clip-before-unscale"


# In a real run

TRAIN = """\
import torch


def train(model, loader, loss_fn, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for images, labels in loader:
        loss = loss_fn(model(images), labels)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.mark.parametrize("output_format", ["sarif", "gitlab", "junit"])
def test_fingerprints_stay_when_lines_move(amplint, tmp_path, monkeypatch, output_format: str) -> None:
    monkeypatch.chdir(tmp_path)

    def fingerprints(text: str) -> list[str]:
        Path("train.py").write_text(text)
        amplint("check", "--isolated", "--no-cache", "--output-format", output_format, "--output-file", "out")
        report = Path("out").read_text()
        if output_format == "junit":
            from xml.etree import ElementTree

            cases = ElementTree.fromstring(report).iter("testcase")
            return sorted(f"{case.get('classname')} {case.get('name')}" for case in cases)
        found = json.loads(report)
        if output_format == "gitlab":
            return sorted(item["fingerprint"] for item in found)
        return sorted(json.dumps(result["partialFingerprints"]) for result in found["runs"][0]["results"])

    before = fingerprints(TRAIN)
    assert before and len(set(before)) == len(before)
    assert fingerprints("# moved\n\n\n" + TRAIN.replace("    for", "\n    # more\n    for")) == before


def test_the_fixes_of_a_sarif_report_are_those_of_amplint_fix(amplint, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    amplint(
        "check",
        "--isolated",
        "--no-cache",
        "--select",
        "AMP201",
        "--output-format",
        "sarif",
        "--output-file",
        "s",
    )
    (result,) = json.loads(Path("s").read_text())["runs"][0]["results"]
    ((replacement,),) = [each["artifactChanges"][0]["replacements"] for each in result["fixes"]]
    place = replacement["deletedRegion"]
    assert (place["startLine"], place["startColumn"]) == (place["endLine"], place["endColumn"])
    lines = TRAIN.splitlines(keepends=True)
    line, column = lines[place["startLine"] - 1], place["startColumn"] - 1
    lines[place["startLine"] - 1] = line[:column] + replacement["insertedContent"]["text"] + line[column:]
    amplint("fix", "--repair", "--isolated", "--no-cache", "--select", "AMP201", "train.py")
    assert Path("train.py").read_text() == "".join(lines)
