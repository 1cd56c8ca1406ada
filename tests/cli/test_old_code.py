"""`amplint check` in an old code base: the baseline, `--add-ignore`, and aliases that mean nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CLIP = """\
import torch
from torch.nn.utils import clip_grad_norm_


def train(model, loader, optimizer):
    scaler = torch.amp.GradScaler("npu")
    for x in loader:
        scaler.scale(model(x).mean()).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""
PORT = (
    "import torch\n\n\ndef forward(model, x):\n    with torch.cuda.amp.autocast():\n        return model(x)\n"
)
BASELINE = Path("amplint-baseline.json")
NOTHING_NEW = "1 finding is in the baseline.\nNo other findings in 1 file.\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configured project with one finding in src/clip.py, in a working directory that is no CI."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    Path("amplint.toml").write_text('select = ["AMP1", "AMP2", "AMP9"]\nstyle = "torch"\n')
    Path("src").mkdir()
    Path("src/clip.py").write_text(CLIP)
    return tmp_path


@pytest.fixture
def written(amplint) -> bytes:
    """The baseline of the project."""
    result = amplint("check", "--write-baseline")
    assert (result.exit_code, result.stderr) == (0, "")
    return BASELINE.read_bytes()


def entries() -> list[tuple[str, str]]:
    elements = json.loads(BASELINE.read_text())
    return [(each["path"], each["code"]) for each in elements if "code" in each]


# writing and hiding


def test_what_is_written_is_not_reported_again(amplint) -> None:
    result = amplint("check", "--write-baseline")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == NOTHING_NEW + "Wrote 1 finding to amplint-baseline.json (1 new, 0 gone).\n"
    assert entries() == [("src/clip.py", "AMP201")]
    result = amplint("check")
    assert (result.exit_code, result.stdout, result.stderr) == (0, NOTHING_NEW, "")
    assert amplint("check", "--no-baseline").exit_code == 1


def test_what_is_new_is_reported_and_fails(amplint, written) -> None:
    Path("src/port.py").write_text(PORT)
    result = amplint("check")
    assert result.exit_code == 1
    assert "AMP101" in result.stdout and "AMP201" not in result.stdout
    assert "1 finding is in the baseline.\n1 finding in 1 file (1 warning).\n" in result.stdout
    assert amplint("check", "--exit-zero").exit_code == 0
    assert amplint("check", "--fail-on", "error").exit_code == 0


@pytest.mark.parametrize("output_format", ["json", "jsonl", "concise", "text"])
def test_no_format_has_what_the_baseline_has(amplint, written, output_format: str) -> None:
    result = amplint("check", "-q", "--output-format", output_format)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == ("[]\n" if output_format == "json" else "")


def test_sarif_has_what_the_baseline_has_as_unchanged_and_accepted(amplint, written) -> None:
    Path("src/port.py").write_text(PORT)
    result = amplint("check", "-q", "--output-format", "sarif")
    assert (result.exit_code, result.stderr) == (1, "")
    results = json.loads(result.stdout)["runs"][0]["results"]
    assert [(each["ruleId"], each["baselineState"], each["suppressions"]) for each in results] == [
        (
            "AMP201",
            "unchanged",
            [{"kind": "external", "status": "accepted", "justification": "In the baseline of the project."}],
        ),
        ("AMP101", "new", []),
    ]


@pytest.mark.parametrize("option", [["--no-baseline"], []])
def test_sarif_without_a_baseline_has_no_states(amplint, option: list[str]) -> None:
    result = amplint("check", "-q", "--output-format", "sarif", *option)
    (only,) = json.loads(result.stdout)["runs"][0]["results"]
    assert only["ruleId"] == "AMP201" and not {"baselineState", "suppressions"} & only.keys()


def test_sarif_with_nothing_new_is_a_run_that_passes(amplint, written) -> None:
    result = amplint("check", "--output-format", "sarif", "--output-file", "out.sarif")
    assert (result.exit_code, result.stdout) == (0, NOTHING_NEW)
    (only,) = json.loads(Path("out.sarif").read_text())["runs"][0]["results"]
    assert only["baselineState"] == "unchanged" and "ruleIndex" in only


def test_files_given_alone_from_another_folder_are_compared_as_well(amplint, written, monkeypatch) -> None:
    assert amplint("check", "src/clip.py").exit_code == 0
    monkeypatch.chdir("src")
    assert amplint("check", "clip.py").exit_code == 0


def test_code_on_stdin_is_compared_under_its_name(amplint, written) -> None:
    code = CLIP.replace("import torch\n", "import torch\n\n", 1).encode()
    assert amplint("check", "-", "--stdin-filename", "src/clip.py", stdin=code).exit_code == 0
    assert amplint("check", "-", "--stdin-filename", "src/other.py", stdin=code).exit_code == 1
    assert amplint("check", "-", stdin=b"x = 1\n").exit_code == 0
    assert BASELINE.read_bytes() == written


def test_the_cache_keeps_what_the_baseline_hides(amplint, written) -> None:
    assert Path(".amplint_cache").is_dir()
    for _ in range(2):
        assert amplint("check").exit_code == 0
        assert amplint("check", "--no-baseline").exit_code == 1


def test_writing_again_changes_nothing(amplint, written) -> None:
    Path("src/clip.py").write_text("\n\n" + CLIP)
    assert amplint("check", "--write-baseline").exit_code == 0
    assert BASELINE.read_bytes() == written


def test_writing_for_a_part_keeps_the_rest(amplint, written) -> None:
    Path("src/port.py").write_text(PORT)
    assert amplint("check", "src/port.py", "--write-baseline").exit_code == 0
    assert entries() == [("src/clip.py", "AMP201"), ("src/port.py", "AMP101")]
    assert amplint("check", "--select", "AMP1", "--write-baseline").exit_code == 0
    assert entries() == [("src/clip.py", "AMP201"), ("src/port.py", "AMP101")]


def test_another_name_is_given_or_configured(amplint, project) -> None:
    assert amplint("check", "--write-baseline", "known.json", "src").exit_code == 0
    assert not BASELINE.exists() and amplint("check").exit_code == 1
    assert amplint("check", "--baseline", "known.json").exit_code == 0
    with open("amplint.toml", "a") as file:
        file.write('baseline = "known.json"\n')
    assert amplint("check", "src").exit_code == 0
    assert json.loads(amplint("config", "--output-format", "json").stdout)["settings"]["baseline"] == {
        "value": str(project / "known.json"),
        "source": str(project / "amplint.toml"),
    }


def test_only_a_name_that_ends_in_json_is_taken_for_the_file(amplint) -> None:
    assert amplint("check", "--write-baseline", "src/clip.py").exit_code == 0
    assert Path("src/clip.py").read_text() == CLIP
    assert entries() == [("src/clip.py", "AMP201")]


def test_an_isolated_run_reads_only_a_baseline_that_is_named(amplint, written) -> None:
    assert amplint("check", "--isolated", "--select", "AMP201").exit_code == 1
    assert amplint("check", "--isolated", "--select", "AMP201", "--baseline", str(BASELINE)).exit_code == 0


def test_a_syntax_error_can_be_known_and_hides_nothing_else(amplint) -> None:
    Path("src/old.py").write_text("print 'a'\n")
    assert amplint("check", "--write-baseline").exit_code == 0
    assert entries() == [("src/clip.py", "AMP201"), ("src/old.py", "AMP900")]
    Path("src/clip.py").write_text("oh no\n" + CLIP)
    result = amplint("check")
    assert result.exit_code == 1 and "AMP900" in result.stdout and "gone" not in result.stdout
    assert entries() == [("src/clip.py", "AMP201"), ("src/old.py", "AMP900")]


# what is gone


def test_a_run_over_everything_takes_out_what_is_gone(amplint, written) -> None:
    Path("src/clip.py").write_text("x = 1\n")
    result = amplint("check")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "No findings in 1 file.\nUpdated amplint-baseline.json: 1 finding is gone.\n"
    assert entries() == []
    assert amplint("check").stdout == "No findings in 1 file.\n"


def test_a_file_that_was_removed_is_gone(amplint, written) -> None:
    Path("src/clip.py").unlink()
    assert "1 finding is gone" in amplint("check").stdout
    assert entries() == []


def test_in_ci_and_for_a_part_it_is_only_told(amplint, written, monkeypatch) -> None:
    Path("src/clip.py").write_text("x = 1\n")
    told = (
        "1 finding of amplint-baseline.json is gone (src/clip.py: AMP201 in train):"
        " `amplint check --prune-baseline` takes what is gone out of it.\n"
    )
    assert amplint("check", "src/clip.py").stdout == "No findings in 1 file.\n" + told
    monkeypatch.setenv("CI", "true")
    assert amplint("check").stdout == "No findings in 1 file.\n" + told
    result = amplint("check", "--output-format", "json")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "[]\n", told)
    assert BASELINE.read_bytes() == written
    assert "Updated" in amplint("check", "--prune-baseline").stdout
    assert entries() == []


@pytest.mark.parametrize(
    "args",
    [
        ("--no-prune-baseline",),
        ("--select", "AMP1"),
        ("--ignore", "AMP201"),
        ("--min-confidence", "high"),
        ("--target", "npu"),
        ("--exclude", "clip.py"),
        ("--diff",),
        ("--no-baseline",),
        ("--isolated", "--select", "AMP201"),
    ],
)
def test_runs_that_see_less_write_nothing(amplint, written, args: tuple[str, ...]) -> None:
    Path("src/clip.py").write_text("x = 1\n")
    amplint("check", *args)
    assert BASELINE.read_bytes() == written


def test_runs_that_failed_write_nothing(amplint, written) -> None:
    Path("src/clip.py").write_text("x = 1\n")
    assert amplint("check", ".", "gone.py").exit_code == 2
    assert BASELINE.read_bytes() == written
    Path("src/clip.py").unlink()
    assert amplint("check", ".", "gone.py").exit_code == 2
    assert BASELINE.read_bytes() == written


def test_a_function_that_is_renamed_is_followed(amplint, written) -> None:
    Path("src/clip.py").write_text(CLIP.replace("def train", "def fit"))
    assert "findings moved to other names" in amplint("check").stdout
    assert json.loads(BASELINE.read_text())[0]["within"] == "fit"
    assert amplint("check").stdout == NOTHING_NEW


# fixing


def test_fixes_are_made_of_what_is_known_too_and_the_baseline_follows(amplint) -> None:
    text = PORT.replace("autocast():", "autocast() and torch.no_grad():")
    Path("amplint.toml").write_text('select = ["AMP1", "AMP2", "AMP308"]\nstyle = "torch"\n')
    Path("src/port.py").write_text(text)
    amplint("check", "--write-baseline")
    assert entries() == [("src/clip.py", "AMP201"), ("src/port.py", "AMP101"), ("src/port.py", "AMP308")]
    result = amplint("fix", "src/port.py")
    assert result.exit_code == 0, result.output
    assert "torch.cuda" not in Path("src/port.py").read_text()
    assert entries() == [("src/clip.py", "AMP201"), ("src/port.py", "AMP308")]
    assert amplint("check").exit_code == 0


def test_a_diff_of_what_is_known_does_not_fail(amplint) -> None:
    Path("src/port.py").write_text(PORT)
    amplint("check", "--write-baseline")
    result = amplint("fix", "--diff")
    assert result.exit_code == 0 and "+" in result.stdout
    Path("src/more.py").write_text(PORT)
    assert amplint("fix", "--diff").exit_code == 1


# what cannot be


@pytest.mark.parametrize("args", [(), ("--write-baseline",), ("--prune-baseline",)])
def test_a_broken_baseline_is_2_and_stays(amplint, args) -> None:
    BASELINE.write_text("[\n<<<<<<< HEAD\n")
    result = amplint("check", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {BASELINE.absolute()}: not valid JSON")
    assert BASELINE.read_text() == "[\n<<<<<<< HEAD\n"
    assert amplint("check", "--no-baseline").exit_code == 1


def test_a_baseline_that_is_named_and_missing_is_2(amplint) -> None:
    result = amplint("check", "--baseline", "none.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no such baseline" in result.stderr


def test_a_baseline_in_a_folder_that_does_not_exist_cannot_be_written(amplint) -> None:
    result = amplint("check", "--write-baseline", "no/b.json")
    assert result.exit_code == 2 and "cannot be written" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--write-baseline", "--diff"), "--write-baseline writes"),
        (("-", "--write-baseline"), "not code on stdin"),
        (("--write-baseline", "--no-baseline"), "--no-baseline goes with"),
        (("--write-baseline", "--add-ignore", "x"), "exclude each other"),
        (("--add-ignore", "x", "--diff"), "--add-ignore writes"),
        (("-", "--add-ignore", "x"), "not code on stdin"),
        (("--add-ignore", "src"), "'src' is a path, and the reason comes before the paths"),
        (("--write-baseline", "known.txt"), "the name of a baseline ends in .json"),
        (("--add-ignore", " "), "the reason is empty"),
        (("--add-ignore", "a\nb"), "one line"),
        (("--add-ignore", "a # noqa"), "another directive"),
        (("--add-ignore", "until=tomorrow x"), "is not a date"),
        (("--add-ignore", "until=2020-01-01 x"), "has passed"),
        (("--add-ignore", "until=2999-01-01"), "the reason is empty"),
    ],
)
def test_wrong_usage_writes_nothing(amplint, run, args, message: str) -> None:
    result = amplint("check", *args)
    assert (result.exit_code, result.stdout, run.calls) == (2, "", 0)
    assert message in result.stderr and "Traceback" not in result.stderr


# --add-ignore


def test_what_is_left_is_silenced_by_comments(amplint) -> None:
    result = amplint("check", "--add-ignore", "until=2999-01-31 legacy, see #12")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "No findings in 1 file.\nSilenced findings by 1 comment in 1 file.\n"
    text = Path("src/clip.py").read_text()
    line = "clip_grad_norm_(model.parameters(), 1.0)"
    assert text == CLIP.replace(line, f"{line}  # amplint: ignore[AMP201] until=2999-01-31 legacy, see #12")
    again = amplint("check", "--add-ignore", "legacy")
    assert (again.exit_code, again.stdout) == (0, "No findings in 1 file.\n")
    assert Path("src/clip.py").read_text() == text


def test_what_the_baseline_has_gets_no_comment(amplint, written) -> None:
    Path("src/port.py").write_text(PORT)
    result = amplint("check", "--add-ignore", "legacy")
    assert result.exit_code == 0 and result.stdout.startswith(NOTHING_NEW.replace("1 file", "2 files"))
    assert Path("src/clip.py").read_text() == CLIP
    assert "# amplint: ignore[AMP101] legacy" in Path("src/port.py").read_text()


def test_what_no_comment_silences_is_left(amplint) -> None:
    Path("src/clip.py").write_text("x = 1  # amplint: ignore[AMP101] nothing\n")
    result = amplint("check", "--add-ignore", "legacy")
    assert result.exit_code == 1 and "AMP901" in result.stdout
    assert Path("src/clip.py").read_text() == "x = 1  # amplint: ignore[AMP101] nothing\n"


def test_a_reason_that_the_encoding_lacks_is_2_and_the_file_stays(amplint) -> None:
    Path("src/clip.py").write_text("# coding: latin-1\n" + CLIP)
    result = amplint("check", "--add-ignore", "später ☂")
    assert result.exit_code == 2 and "cannot be encoded" in result.stderr
    assert Path("src/clip.py").read_text() == "# coding: latin-1\n" + CLIP


# aliases


@pytest.mark.parametrize("command", ["check", "config"])
def test_an_alias_of_what_no_rule_knows_is_told_with_the_nearest_name(amplint, command: str) -> None:
    with open("amplint.toml", "a") as file:
        file.write('[aliases]\n"corp.half" = "torch.cuda.amp.autocst"\n"corp.scaler" = "corp.other"\n')
    result = amplint(command)
    where = Path("amplint.toml").absolute()
    assert result.stderr == (
        f"warning: {where}: aliases.corp.half: no rule knows 'torch.cuda.amp.autocst';"
        " did you mean 'torch.cuda.amp.autocast'?\n"
        f"warning: {where}: aliases.corp.scaler: no rule knows 'corp.other'\n"
    )
    assert result.exit_code == (1 if command == "check" else 0)


def test_aliases_of_names_modules_and_other_aliases_are_not_told(amplint) -> None:
    with open("amplint.toml", "a") as file:
        file.write(
            '[aliases]\n"corp.half" = "torch.cuda.amp.autocast"\n"corp.amp" = "torch.cuda.amp"\n'
            '"corp.again" = "corp.half"\n"corp.norm" = "torch.nn.LayerNorm"\n'
            '"corp.soft" = "torch.nn.functional.softmax"\n"corp.clip" = "torch.nn.utils.clip_grad_norm_"\n'
        )
    assert amplint("check").stderr == ""


def test_an_alias_of_an_alias_means_what_that_one_means(amplint) -> None:
    with Path("amplint.toml").open("a") as file:
        file.write(
            '[aliases]\n"corp.amp" = "torch.cuda.amp"\n"corp.half" = "corp.amp.autocast"\n'
            '"a.b" = "c.d"\n"c.d" = "a.b"\n'
        )
    warned = [row.partition("aliases.")[2] for row in amplint("check", "src").stderr.splitlines()]
    assert [row for row in warned if row] == ["a.b: no rule knows 'c.d'", "c.d: no rule knows 'a.b'"]


def test_a_run_without_rules_says_so(amplint) -> None:
    assert "note: no rule is selected" in amplint("check", "--select", "AMP7", "src").stderr
    assert amplint("check", "--select", "AMP7", "-q", "src").stderr == ""
