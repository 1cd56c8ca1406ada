"""`amplint check --diff-base REV`, in real repositories."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from amplint.changes import Changes
from amplint.source import source_from_text

#: One finding: AMP201 at row 9, with steps at rows 8, 9 and 10.
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
    print("done")
"""


def git(*arguments: str, fails: bool = False) -> str:
    settings = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *settings, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stdout.strip()


def commit(**files: str) -> str:
    """Write and commit files (`train` is train.py); the new commit."""
    for name, text in files.items():
        Path(f"{name}.py").write_text(text)
    git("add", "--all")
    git("commit", "--allow-empty", "--message", "change")
    return git("rev-parse", "HEAD")


@pytest.fixture
def base(tmp_path, monkeypatch) -> str:
    """The first commit, with train.py in it, of a repository that is the working directory."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    git("init", "--initial-branch", "main")
    return commit(train=TRAIN)


@pytest.fixture
def found(amplint):
    """Places of the findings that are left with `--diff-base`."""

    def ask(revision: str, *paths: str) -> list[str]:
        options = ("--isolated", "--no-cache", "--select", "AMP201,AMP9", "--output-format", "json")
        result = amplint("check", *options, "--diff-base", revision, *paths)
        places = [
            f"{each['filename']}:{each['location']['row']}" for each in json.loads(result.stdout or "0")
        ]
        assert result.exit_code == bool(places), result.stderr
        return places

    return ask


def changed(old: str, new: str) -> str:
    assert TRAIN.count(old) == 1
    return TRAIN.replace(old, new)


def test_nothing_changed_is_nothing_reported(found, base) -> None:
    assert found(base) == [] and found("HEAD") == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_norm=1.0", "max_norm=2.0"),  # its own row
        ("scale(loss).backward()", "scale(loss / 2).backward()"),  # the first step
        ("scaler.step(optimizer)", "scaler.step( optimizer)"),  # the last one
    ],
)
def test_a_change_of_the_finding_or_of_a_step_counts(found, base, old: str, new: str) -> None:
    Path("train.py").write_text(changed(old, new))
    assert found(base) == ["train.py:9"]


@pytest.mark.parametrize(
    ("old", "new"),
    [('"done"', '"over"'), ("import torch\n", "# moved\n\nimport torch\n"), ("    print", "\n    print")],
)
def test_a_change_elsewhere_does_not(found, base, old: str, new: str) -> None:
    Path("train.py").write_text(changed(old, new))
    assert found(base) == []


@pytest.mark.parametrize("below", ["backward()\n", "labels)\n"])
def test_a_line_that_was_removed_between_the_steps_or_next_to_them_counts(found, base, below: str) -> None:
    unscaled = changed(below, f"{below}        scaler.unscale_(optimizer)\n")
    start = commit(train=unscaled)
    Path("train.py").write_text(TRAIN)
    assert found(start) == ["train.py:9"]


def test_a_line_that_was_removed_elsewhere_does_not_count(found, base) -> None:
    start = commit(train=changed('    print("done")\n', '    print("done")\n    print("over")\n'))
    Path("train.py").write_text(TRAIN)
    assert found(start) == []


def test_what_the_other_branch_changed_since_is_not_ours(found, base) -> None:
    git("checkout", "-b", "feature")
    commit(other="x = 1\n")
    git("checkout", "main")
    commit(train=changed("max_norm=1.0", "max_norm=3.0"))
    git("checkout", "feature")
    assert found("main") == []
    Path("train.py").write_text(changed("max_norm=1.0", "max_norm=2.0"))
    assert found("main") == ["train.py:9"]


def test_committed_staged_and_unstaged_changes_count(found, base) -> None:
    new = changed("max_norm=1.0", "max_norm=2.0")
    Path("train.py").write_text(new)
    assert found(base) == ["train.py:9"]
    git("add", "train.py")
    assert found(base) == ["train.py:9"]
    commit()
    assert found(base) == ["train.py:9"] and found("HEAD") == []


def test_a_new_file_counts_as_a_whole_tracked_or_not_or_ignored(found, base) -> None:
    Path("new.py").write_text(TRAIN)
    assert found(base) == ["new.py:9"]
    git("add", "new.py")
    assert found(base) == ["new.py:9"]
    Path(".gitignore").write_text("ignored.py\n")
    Path("ignored.py").write_text(TRAIN)
    assert found(base, "ignored.py") == ["ignored.py:9"]


def test_a_renamed_file_is_compared_with_what_it_was(found, base) -> None:
    git("mv", "train.py", "main loop.py")
    assert found(base) == []
    Path("main loop.py").write_text(changed('"done"', '"over"'))
    git("add", "--all")
    assert found(base) == []
    Path("main loop.py").write_text(changed("max_norm=1.0", "max_norm=2.0"))
    assert found(base) == ["main loop.py:9"]


@pytest.mark.skipif(os.name != "posix", reason="file names")
@pytest.mark.parametrize("name", ["tab\there.py", 'quo"te.py', "失.py", ":(glob)*.py", "-x.py", "sub/[a].py"])
def test_odd_names_are_found_again(found, base, name: str) -> None:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(TRAIN)
    start = commit()
    assert found(start, ".") == []
    path.write_text(changed("max_norm=1.0", "max_norm=2.0"))
    assert found(start, ".") == [f"{name}:9"]


def test_the_configuration_of_git_changes_nothing(found, base) -> None:
    for setting in ("diff.noprefix=true", "color.ui=always", "diff.external=false", "diff.context=9"):
        git("config", *setting.split("="))
    git("config", "diff.interHunkContext", "99")
    Path(".gitattributes").write_text("*.py diff=odd\n")
    git("config", "diff.odd.textconv", "false")
    Path("train.py").write_text(changed("import torch\n", "import torch \n").replace('"done"', '"over"'))
    assert found(base) == []
    Path("train.py").write_text(changed("max_norm=1.0", "max_norm=2.0"))
    assert found(base) == ["train.py:9"]


def test_line_feeds_that_git_made_crlf_are_no_change(found, base) -> None:
    git("config", "core.autocrlf", "true")
    Path("train.py").write_bytes(TRAIN.replace("\n", "\r\n").encode())
    assert found(base) == []


def test_rows_that_end_in_a_lone_carriage_return_are_counted_as_amplint_does(found, base) -> None:
    text = TRAIN.replace("import torch\n", "import torch\r\r\r")
    start = commit(train=text)
    assert found(start) == []
    Path("train.py").write_bytes(text.replace("max_norm=1.0", "max_norm=2.0").encode())
    assert found(start) == ["train.py:10"]


def test_a_file_outside_the_repository_is_new_as_a_whole(amplint, found, base, tmp_path) -> None:
    (tmp_path / "outside.py").write_text(TRAIN)
    assert found(base, ".", "../outside.py") == ["../outside.py:9"] or found(base, ".", "../outside.py") == [
        f"{tmp_path.as_posix()}/outside.py:9"
    ]
    result = amplint("check", "--isolated", "--no-cache", "--diff-base", base, ".", "../outside.py")
    assert "note: 1 file outside the repository" in result.stderr


def test_a_folder_below_the_top_may_be_the_working_directory(found, base, monkeypatch) -> None:
    Path("sub").mkdir()
    Path("sub/a.py").write_text(TRAIN)
    start = commit()
    monkeypatch.chdir("sub")
    Path("a.py").write_text(changed("max_norm=1.0", "max_norm=2.0"))
    Path("../train.py").write_text(changed("max_norm=1.0", "max_norm=2.0"))
    assert found(start) == ["a.py:9"]
    assert len(found(start, "..")) == 2


def test_the_repository_is_that_of_the_first_path(found, base, monkeypatch, tmp_path) -> None:
    Path("train.py").write_text(changed("max_norm=1.0", "max_norm=2.0"))
    monkeypatch.chdir(tmp_path)
    assert found("main", "repository") == ["repository/train.py:9"]


def test_a_submodule_is_new_where_its_commit_is(found, base, tmp_path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    git("-C", str(library), "init", "--initial-branch", "main")
    (library / "a.py").write_text(TRAIN)
    git("-C", str(library), "add", "--all")
    git("-C", str(library), "commit", "--message", "one")
    git("-c", "protocol.file.allow=always", "submodule", "add", str(library), "lib")
    start = commit()
    assert found(start) == [] and found(base) == ["lib/a.py:9"]
    (Path("lib") / "b.py").write_text("x = 1\n")
    assert found(start) == ["lib/a.py:9"]


def test_a_file_in_conflict_is_new(found, base) -> None:
    git("checkout", "-b", "feature")
    commit(train=changed('"done"', '"over"'))
    git("checkout", "main")
    commit(train=changed('"done"', '"gone"'))
    git("merge", "feature", fails=True)
    assert "<<<<<<<" in Path("train.py").read_text()
    assert found("HEAD") == ["train.py:12"]  # AMP900


def test_what_is_left_out_is_counted_on_stderr(amplint, base) -> None:
    options = ("check", "--isolated", "--no-cache", "--select", "AMP201", "--diff-base", "main")
    result = amplint(*options)
    assert (result.exit_code, result.stdout) == (0, "No findings in 1 file.\n")
    assert result.stderr == "note: 1 finding on lines unchanged since main left out\n"
    assert amplint(*options, "-q").output == ""


@pytest.mark.parametrize("revision", ["gone", "main..gone", "deadbeef", "HEAD~7", "main:train.py"])
def test_an_unknown_revision_is_one_line_and_exit_2(amplint, base, run, revision: str) -> None:
    result = amplint("check", "--diff-base", revision)
    assert (result.exit_code, result.stdout, run.calls) == (2, "", 0)


def test_messages_name_what_is_wrong(amplint, base, tmp_path, monkeypatch) -> None:
    def message(revision: str, *paths: str) -> str:
        result = amplint("check", "--isolated", "--diff-base", revision, *paths)
        assert (result.exit_code, result.stdout) == (2, "")
        return result.stderr

    assert message("gone") == "error: --diff-base: git knows no revision 'gone'\n"
    assert message("") == "error: --diff-base: '' is not a revision\n"
    assert message("--output=x") == "error: --diff-base: '--output=x' is not a revision\n"
    git("checkout", "--orphan", "unrelated")
    assert message("main") == "error: --diff-base: there is no commit yet\n"
    commit(other="x = 1\n")
    assert message("main") == "error: --diff-base: 'main' and HEAD have no commit in common\n"
    assert "not a git repository" in message("main", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert message("main") == "error: --diff-base: git cannot be run: No such file or directory\n"


def test_a_shallow_clone_is_told_as_the_reason(amplint, base, tmp_path, monkeypatch) -> None:
    for number in range(3):
        commit(other=f"x = {number}\n")
    git("clone", "--depth", "1", Path.cwd().as_uri(), str(tmp_path / "shallow"))
    monkeypatch.chdir(tmp_path / "shallow")
    result = amplint("check", "--isolated", "--diff-base", base)
    assert result.exit_code == 2
    assert "the clone is shallow: fetch the history first" in result.stderr
    git("fetch", "--depth", "1", "origin", base)
    result = amplint("check", "--isolated", "--diff-base", base)
    assert result.exit_code == 2
    assert "have no commit in common; the clone is shallow" in result.stderr


@pytest.mark.parametrize("arguments", [("--fix",), ("--diff",), ("--repair",), ("-",)])
def test_it_goes_with_checking_files_only(amplint, run, arguments: tuple[str, ...]) -> None:
    result = amplint("check", "--diff-base", "main", *arguments)
    assert result.exit_code == 2 and run.calls == 0
    assert "--diff-base goes with checking files" in result.stderr
    assert amplint("fix", "--diff-base", "main").exit_code == 2


def test_it_does_not_go_with_comments_that_silence_everything(amplint, run) -> None:
    result = amplint("check", "--diff-base", "main", "--add-ignore", "old")
    assert result.exit_code == 2 and run.calls == 0
    assert "--diff-base goes without --add-ignore" in result.stderr


def test_steps_in_other_files_do_not_count(base, finding) -> None:
    from amplint.finding import Note, Position

    source = source_from_text(TRAIN, "train.py")
    trace = (Note("other.py", Position(12, 1), "elsewhere"),)
    each = finding(source, "torch.nn", trace=trace)
    Path("train.py").write_text(changed('"done"', '"over"'))
    assert not Changes("main", Path.cwd()).touches(each, source, Path("train.py"))
    own = finding(source, "torch.nn", trace=(Note("train.py", Position(12, 1), "here"),))
    assert Changes("main", Path.cwd()).touches(own, source, Path("train.py"))


def test_known_findings_on_lines_that_did_not_change_are_left_out_of_sarif_too(amplint, base) -> None:
    amplint("check", "--no-cache", "--select", "AMP201", "--write-baseline")
    commit(more=TRAIN)
    options = ("--no-cache", "--select", "AMP201", "--output-format", "sarif", "--diff-base", base)
    results = json.loads(amplint("check", *options).stdout)["runs"][0]["results"]
    assert [each["baselineState"] for each in results] == ["new"]
