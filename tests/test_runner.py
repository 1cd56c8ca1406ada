from __future__ import annotations

import errno
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import libcst as cst
import pytest
from click.testing import CliRunner, Result

from amplint import registry
from amplint.cli import main
from amplint.config import Settings
from amplint.finding import Applicability, Edit, Finding, Fix, FixKind, Severity, Span
from amplint.rule import Context, Report, Rule
from amplint.runner import FixMode, RunResult, run
from amplint.source import source_from_bytes, source_from_text
from amplint.work import MAX_PASSES

GOOD = "import torch\n"
BAD = "from torch.cuda.amp import autocast\nwith autocast():\n    pass\n"
FIX = FixMode(ports=True, repairs=True, unsafe=True, write=True)
NPU = Settings(select=("ALL",), target="npu")

Write = Callable[..., Path]
Amplint = Callable[..., Result]
needs_user = pytest.mark.skipif(
    os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything"
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(tree: Path) -> Write:
    def make(**files: str | bytes) -> Path:
        for name, content in files.items():
            path = tree / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return tree

    return make


@pytest.fixture
def amplint(tree: Path) -> Amplint:
    def call(*args: str, stdin: bytes | None = None) -> Result:
        rest = [] if "--isolated" in args or "--config" in args else ["--isolated"]
        return CliRunner().invoke(main, [*args, *rest, "--no-cache"], input=stdin, prog_name="amplint")

    return call


def codes(result: RunResult) -> list[tuple[str, int, str]]:
    return [(finding.filename, finding.start.row, finding.code) for finding in result.findings]


def check(*paths: str | Path, settings: Settings = NPU, **rest: Any) -> RunResult:
    return run([Path(path) for path in paths or (".",)], settings, **rest)


# Several files


def test_findings_of_several_files_come_in_order_of_file_and_row(write: Write) -> None:
    write(b=BAD, a__z=BAD, a__b=GOOD)
    assert codes(check()) == [
        ("a/z.py", 1, "AMP101"), ("a/z.py", 2, "AMP101"), ("b.py", 1, "AMP101"), ("b.py", 2, "AMP101"),
    ]  # fmt: skip
    assert check().files == 3


def test_the_order_of_the_arguments_changes_nothing(write: Write) -> None:
    write(a=BAD, b=BAD, c="x = (\n")
    results = [check(*order) for order in permutations(["a.py", "b.py", "c.py"])]
    assert all(codes(result) == codes(results[0]) for result in results)
    assert {code for _, _, code in codes(results[0])} == {"AMP101", "AMP900"}


def test_files_given_twice_are_checked_once(write: Write) -> None:
    write(a=BAD)
    assert len(check("a.py", "./a.py", ".").findings) == 2


def test_files_given_one_by_one_give_what_they_give_together(write: Write) -> None:
    write(a=BAD, b="from a import autocast\n" + BAD, c=GOOD, d="x = (\n")
    together = codes(check())
    assert together == sorted(finding for name in "abcd" for finding in codes(check(f"{name}.py")))


def test_an_empty_file_and_one_with_a_mark_only_have_no_findings(write: Write) -> None:
    write(a="", b=b"\xef\xbb\xbf", c="\n", d="\r", e="#")
    result = check()
    assert (result.files, result.findings, result.internal_errors, result.problems) == (5, [], [], [])


def test_a_run_without_files_finds_nothing(tree: Path, amplint: Amplint) -> None:
    assert check().files == 0
    result = amplint("check")
    assert result.exit_code == 0 and "no Python files" in result.stderr


# Files that cannot be parsed, read or decoded


def test_a_file_that_cannot_be_parsed_is_a_finding_and_the_others_are_checked(
    write: Write, amplint: Amplint
) -> None:
    write(a="def f(:\n", b=BAD, c="print 'a'\n" + BAD)
    found = codes(check())
    assert [code for name, _, code in found if name == "a.py"] == ["AMP900"]
    assert [code for name, _, code in found if name == "c.py"] == ["AMP900"]
    assert [code for name, _, code in found if name == "b.py"] == ["AMP101", "AMP101"]
    result = amplint("check", "a.py", "--target", "npu")
    assert result.exit_code == 1 and "AMP900" in result.stdout and "a.py:1:" in result.stdout


@pytest.mark.parametrize(
    ("data", "message", "row"),
    [
        (b"x = 1\ny = '\0'\n", "NUL", 2),
        (b"\xff\xfea\0", "UTF-16", 1),
        (b"x = 1\n\n# \xff\n", "utf-8", 3),
        (b"# coding: nonsense\n", "encoding", 1),
        (bytes(range(256)), "NUL", 1),
    ],
)
def test_a_binary_called_py_is_a_finding_with_its_place(
    write: Write, amplint: Amplint, data: bytes, message: str, row: int
) -> None:
    write(a=data, b=BAD)
    result = check()
    (finding,) = [finding for finding in result.findings if finding.filename == "a.py"]
    assert (finding.code, finding.start.row) == ("AMP900", row) and message in finding.message
    assert len(result.findings) == 3 and result.problems == []
    assert amplint("check", "a.py").exit_code == 1


@needs_user
def test_a_file_that_may_not_be_read_is_a_problem_and_the_others_are_checked(
    write: Write, amplint: Amplint
) -> None:
    (write(a=BAD, b=BAD) / "a.py").chmod(0)
    result = check()
    assert [problem.filename for problem in result.problems] == ["a.py"] and len(result.findings) == 2
    shown = amplint("check", ".", "--target", "npu")
    assert shown.exit_code == 2 and "a.py: cannot be read" in shown.stderr and "b.py" in shown.stdout


def test_an_error_of_the_disk_while_reading_is_a_problem(
    write: Write, amplint: Amplint, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Path.read_bytes

    def fails(path: Path) -> bytes:
        if path.name == "a.py":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(path)

    write(a=BAD, b=BAD)
    monkeypatch.setattr(Path, "read_bytes", fails)
    result = amplint("check", ".", "--target", "npu")
    assert result.exit_code == 2 and f"a.py: cannot be read: {os.strerror(errno.EIO)}" in result.stderr
    assert "b.py" in result.stdout and "AMP900" not in result.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes")
def test_a_named_pipe_is_a_problem_and_is_not_waited_for(write: Write, amplint: Amplint) -> None:
    os.mkfifo(write(b=BAD) / "a.py")
    assert check().problems == [] and check().files == 1
    result = amplint("check", "a.py", "b.py", "--target", "npu")
    assert result.exit_code == 2 and "a.py: not a regular file" in result.stderr and "b.py" in result.stdout


def test_a_file_that_does_not_exist_is_a_problem(write: Write, amplint: Amplint) -> None:
    write(a=BAD)
    result = amplint("check", "a.py", "gone.py", "--target", "npu")
    assert result.exit_code == 2 and "gone.py: does not exist" in result.stderr and "AMP101" in result.stdout


def test_a_file_that_goes_between_discovery_and_reading_is_a_problem(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    from amplint import work

    write(a=BAD, b=BAD)
    read = work.read_source

    def reads(path: Path, filename: str) -> Any:
        if filename == "a.py":
            path.unlink(missing_ok=True)
        return read(path, filename)

    monkeypatch.setattr(work, "read_source", reads)
    result = check()
    assert [str(problem) for problem in result.problems] == ["a.py: does not exist"]
    assert {finding.filename for finding in result.findings} == {"b.py"}


# Writing


def test_fixing_writes_the_file_and_a_second_run_changes_nothing(write: Write, amplint: Amplint) -> None:
    path = write(a=BAD, b=GOOD) / "a.py"
    first = amplint("fix", ".", "--target", "npu")
    assert first.exit_code == 0, first.output
    text = path.read_text()
    assert "torch.cuda.amp" not in text
    assert amplint("fix", ".", "--target", "npu").exit_code == 0
    assert path.read_text() == text
    assert sorted(p.name for p in path.parent.iterdir()) == ["a.py", "b.py"]


def test_a_diff_writes_nothing(write: Write, amplint: Amplint) -> None:
    path = write(a=BAD) / "a.py"
    assert amplint("check", "a.py", "--diff", "--target", "npu").exit_code == 1
    assert path.read_text() == BAD


def test_mode_and_link_of_a_fixed_file_stay(write: Write) -> None:
    path = write(real=BAD) / "real.py"
    path.chmod(0o750)
    (path.parent / "sub").mkdir()
    (path.parent / "sub" / "link.py").symlink_to(path)
    check("sub/link.py", fix=FIX)
    assert (path.parent / "sub" / "link.py").is_symlink() and path.read_text() != BAD
    assert stat.S_IMODE(path.stat().st_mode) == 0o750


def changing(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Let something happen between the check of a file and the writing of it."""
    from amplint import runner

    write = runner.write_atomic

    def writes(source: Any, text: str) -> None:
        action()
        write(source, text)

    monkeypatch.setattr(runner, "write_atomic", writes)


def test_a_file_that_changed_while_it_was_checked_is_not_overwritten(
    write: Write, amplint: Amplint, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(a=BAD) / "a.py"
    changing(monkeypatch, lambda: path.write_text("mine\n"))
    result = amplint("fix", "a.py", "--target", "npu")
    assert result.exit_code == 2 and "a.py: was changed since it was read; not overwritten" in result.stderr
    assert path.read_text() == "mine\n"
    assert "AMP101" in result.stdout


def test_a_file_that_went_while_it_was_checked_is_not_made_again(
    write: Write, amplint: Amplint, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(a=BAD, b=BAD) / "a.py"
    changing(monkeypatch, lambda: path.unlink(missing_ok=True))
    result = amplint("fix", ".", "--target", "npu")
    assert result.exit_code == 2 and "a.py: was removed since it was read" in result.stderr
    assert not path.exists() and (path.parent / "b.py").read_text() != BAD


@pytest.mark.parametrize("call", ["write", "replace", "fsync"])
def test_a_full_disk_leaves_the_original_and_no_half_written_file(
    write: Write, amplint: Amplint, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = write(a=BAD) / "a.py"
    real = getattr(os, call)

    def full(*args: Any, **kwargs: Any) -> Any:
        if call == "write" and args[0] <= 2:
            return real(*args, **kwargs)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    result = amplint("fix", "a.py", "--target", "npu")
    assert result.exit_code == 2 and f"a.py: cannot be written: {os.strerror(errno.ENOSPC)}" in result.stderr
    assert path.read_text() == BAD and list(path.parent.iterdir()) == [path]
    assert "AMP101" in result.stdout


def test_an_encoding_without_the_new_characters_leaves_the_file(write: Write, rules: Install) -> None:
    rules(replacing("x", "é"))
    path = write(a=b"# coding: ascii\nx\n") / "a.py"
    result = check(fix=FIX)
    assert path.read_bytes() == b"# coding: ascii\nx\n"
    assert "ascii" in result.internal_errors[0].message


# Interrupts


def test_an_interrupt_while_checking_ends_the_run_with_130(
    write: Write, amplint: Amplint, rules: Install
) -> None:
    def interrupts(ctx: Context) -> Iterable[Report]:
        raise KeyboardInterrupt

    rules(fake("AMP991", interrupts))
    path = write(a=BAD) / "a.py"
    result = amplint("fix", "a.py")
    assert result.exit_code == 130 and "interrupted" in result.stderr
    assert path.read_text() == BAD


def test_an_interrupt_while_writing_leaves_no_half_written_file(
    write: Write, amplint: Amplint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupts(*_: object) -> None:
        raise KeyboardInterrupt

    path = write(a=BAD) / "a.py"
    monkeypatch.setattr(os, "replace", interrupts)
    assert amplint("fix", "a.py", "--target", "npu").exit_code == 130
    assert path.read_text() == BAD and list(path.parent.iterdir()) == [path]


# Configuration


def test_a_broken_configuration_exits_with_2_and_a_suggestion(write: Write, amplint: Amplint) -> None:
    write(a=BAD)
    Path("amplint.toml").write_text("selct = ['AMP1']\n")
    result = amplint("check", "a.py", "--config", "amplint.toml")
    assert result.exit_code == 2 and "select" in result.stderr and "Traceback" not in result.output


@pytest.mark.parametrize(
    ("wrong", "right"), [("AMP01", "AMP101"), ("cuda-amp-autocas", "cuda-amp-autocast"), ("amp1O1", "AMP101")]
)
def test_an_unknown_rule_exits_with_2_and_a_suggestion(
    write: Write, amplint: Amplint, wrong: str, right: str
) -> None:
    write(a=BAD)
    for option in ("--select", "--ignore", "--extend-select"):
        result = amplint("check", "a.py", option, wrong)
        assert result.exit_code == 2, result.output
        assert re.search(rf"unknown rule '{wrong}'; did you mean '\S+'\?", result.stderr)
        assert "Traceback" not in result.output
    assert right[:3] == "AMP" or right in result.stderr


def test_an_installation_without_rules_exits_with_2(
    write: Write, amplint: Amplint, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(a=BAD)
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    registry.all_rules.cache_clear()
    try:
        result = amplint("check", "a.py")
    finally:
        registry.all_rules.cache_clear()
    assert result.exit_code == 2 and "no rules found" in result.stderr and "Traceback" not in result.output


def test_selected_rules_only_are_checked(write: Write) -> None:
    text = "import torch\nfrom torch.cuda.amp import autocast\nwith autocast() and torch.no_grad(): pass\n"
    write(a=text)
    assert {code for _, _, code in codes(check())} >= {"AMP101", "AMP308"}
    assert {c for _, _, c in codes(check(settings=Settings(select=("AMP308",))))} == {"AMP308"}
    assert {c for _, _, c in codes(check(settings=Settings(select=("with-and",))))} == {"AMP308"}
    ignoring = Settings(select=("ALL",), ignore=("AMP1",), target="npu")
    assert not any(code.startswith("AMP1") for _, _, code in codes(check(settings=ignoring)))


def test_rules_ignored_for_a_file_are_silent_in_it_and_not_elsewhere(write: Write) -> None:
    root = write(a=BAD, legacy__b=BAD, legacy__c="print 'a'\n")
    settings = Settings(
        select=("ALL",), target="npu", root=root, per_file_ignores=(("legacy/*", ("AMP1", "syntax-error")),)
    )
    assert {name for name, _, _ in codes(check(settings=settings))} == {"a.py"}


def test_the_severity_of_a_file_that_cannot_be_parsed_can_be_configured(write: Write) -> None:
    write(a="x = (\n")
    settings = Settings(severity=(("AMP9", "error"), ("AMP900", "info")))
    assert [finding.severity for finding in check(settings=settings).findings] == [Severity.INFO]


def test_a_rule_that_is_not_selected_says_nothing_of_files_that_cannot_be_parsed(write: Write) -> None:
    write(a="x = (\n", b=b"\0")
    assert check(settings=Settings(select=("AMP1",))).findings == []


# Suppressions


@pytest.mark.parametrize(
    "text",
    [
        BAD.replace("autocast\n", "autocast  # amplint: ignore[AMP101]\n").replace(
            "():", "():  # noqa: AMP101"
        ),
        "# amplint: file-ignore[cuda-amp-autocast] ported later\n" + BAD,
        "# amplint: disable\n" + BAD + "# amplint: enable\n",
    ],
)
def test_a_comment_silences_findings(write: Write, text: str) -> None:
    write(a=text)
    assert "AMP101" not in {code for _, _, code in codes(check())}


def test_a_comment_about_another_rule_or_on_another_row_silences_nothing(write: Write) -> None:
    write(a="x = 1  # amplint: ignore[AMP101]\n" + BAD.replace("t\n", "t  # amplint: ignore[AMP102]\n", 1))
    assert [code for _, _, code in codes(check(settings=Settings(select=("AMP1",))))].count("AMP101") == 2


def test_what_cannot_be_parsed_can_be_silenced_in_the_file(write: Write) -> None:
    write(a="# amplint: file-ignore[AMP900] a template\nx = {{ y }\n", b="x = {{ y }\n")
    assert [name for name, _, _ in codes(check())] == ["b.py"]


def test_a_suppressed_finding_is_not_fixed(write: Write) -> None:
    text = "from torch.cuda.amp import autocast  # amplint: ignore\nwith autocast():  # amplint: ignore\n    pass\n"
    path = write(a=text) / "a.py"
    check(settings=Settings(select=("AMP1",), target="npu"), fix=FIX)
    assert path.read_text() == text


# stdin


def test_code_on_stdin_is_checked_and_fixed_without_touching_any_file(write: Write, amplint: Amplint) -> None:
    write(a=GOOD)
    found = amplint("check", "-", "--target", "npu", "--stdin-filename", "a.py", stdin=BAD.encode())
    assert found.exit_code == 1 and "a.py:1:" in found.stdout
    fixed = amplint("fix", "-", "--target", "npu", "--stdin-filename", "a.py", stdin=BAD.encode())
    assert fixed.exit_code == 0 and "torch.cuda.amp" not in fixed.stdout and "with " in fixed.stdout
    assert Path("a.py").read_text() == GOOD


def test_fixed_code_on_stdin_keeps_its_bytes(tree: Path) -> None:
    data = b"\xef\xbb\xbf" + BAD.replace("\n", "\r\n").encode() + "# ünï".encode()
    result = run([], NPU, fix=FIX, stdin=source_from_bytes(data, "-"))
    (change,) = result.changes
    text = change.new_text
    assert "\n" not in text.replace("\r\n", "") and text.endswith("# ünï")


# Rules that fail


def fake(code: str, check: Callable[[Context], Iterable[Report]], **changes: Any) -> Rule:
    values: dict[str, Any] = {"name": f"fake-{code.lower()}", "summary": "fake", "severity": Severity.WARNING}
    return Rule(code=code, check=check, **(values | changes))


Install = Callable[..., None]


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs fake rules in place of all but AMP900."""
    real = registry.all_rules()

    def install(*made: Rule, keep: tuple[str, ...] = ("AMP900",)) -> None:
        every = tuple(sorted((*made, *(r for r in real if r.code in keep)), key=lambda rule: rule.code))
        for place in ("amplint.registry", "amplint.engine"):
            monkeypatch.setattr(f"{place}.all_rules", lambda: every)

    yield install


def names(ctx: Context, value: str) -> list[cst.Name]:
    return [node for node in ctx.model.tree.of_type(cst.Name) if node.value == value]


def rewriting(
    wanted: str,
    edits: Callable[[Context, Span], tuple[Edit, ...]],
    code: str = "AMP991",
    message: str = "rewrite",
) -> Rule:
    """A rule that reports every name `wanted`, with the fix that `edits` makes."""

    def check(ctx: Context) -> Iterator[Report]:
        for node in names(ctx, wanted):
            made = Fix(FixKind.PORT, Applicability.SAFE, message, edits(ctx, ctx.model.tree.span(node)))
            yield Report(node, f"`{wanted}`", fix=lambda made=made: made)  # type: ignore[misc]

    return fake(code, check)


def replacing(wanted: str, content: str, code: str = "AMP991") -> Rule:
    return rewriting(wanted, lambda ctx, span: (Edit(span, content),), code, f"{wanted} to {content}")


def test_a_rule_that_raises_is_an_internal_error_and_the_others_go_on(
    write: Write, amplint: Amplint, rules: Install
) -> None:
    def raises(ctx: Context) -> Iterator[Report]:
        yield from ()
        raise ZeroDivisionError("oh dear")

    rules(fake("AMP991", raises), replacing("autocast", "autocast", "AMP992"))
    write(a=BAD, b=GOOD, c=BAD)
    result = check()
    assert [(e.filename, e.code) for e in result.internal_errors] == [
        ("a.py", "AMP991"), ("b.py", "AMP991"), ("c.py", "AMP991"),
    ]  # fmt: skip
    assert len([code for _, _, code in codes(result) if code == "AMP992"]) == 4
    shown = amplint("check", ".", "--select", "ALL")
    assert shown.exit_code == 2 and "ZeroDivisionError: oh dear" in shown.stderr and "AMP992" in shown.stdout
    assert "this is a bug in amplint" in shown.stderr


def test_findings_of_a_rule_before_it_raised_are_kept(write: Write, rules: Install) -> None:
    def halfway(ctx: Context) -> Iterator[Report]:
        yield Report(ctx.model.tree.module, "first")
        raise RecursionError

    rules(fake("AMP991", halfway))
    write(a=GOOD)
    result = check()
    assert len(result.findings) == 1 and len(result.internal_errors) == 1


def test_a_fix_that_cannot_be_made_leaves_the_finding(write: Write, rules: Install) -> None:
    def check_(ctx: Context) -> Iterator[Report]:
        def broken() -> Fix:
            raise KeyError("lost")

        yield Report(ctx.model.tree.module, "found", fix=broken)

    rules(fake("AMP991", check_))
    write(a=GOOD)
    result = check(fix=FIX)
    assert [finding.fix for finding in result.findings] == [None]
    assert "KeyError" in result.internal_errors[0].message


def test_a_rule_that_raises_before_and_after_a_fix_is_reported_once(write: Write, rules: Install) -> None:
    def raises(ctx: Context) -> Iterator[Report]:
        raise ValueError("always")

    rules(fake("AMP990", raises), replacing("x", "y"))
    path = write(a="x\ny = 1\n") / "a.py"
    result = check(fix=FIX)
    assert path.read_text() == "y\ny = 1\n"
    assert [error.code for error in result.internal_errors] == ["AMP990"]


def test_a_fix_after_which_another_rule_raises_is_dropped(write: Write, rules: Install) -> None:
    def raises(ctx: Context) -> Iterator[Report]:
        if names(ctx, "y"):
            raise ValueError("cannot bear y")
        yield from ()

    rules(fake("AMP990", raises), replacing("x", "y"))
    path = write(a="import x\n") / "a.py"
    result = check(fix=FIX)
    assert path.read_text() == "import x\n"
    assert "cannot bear y" in result.internal_errors[0].message


# Fixes that are not right


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("(", "the result cannot be parsed"),
        ("unknown", "the result uses unknown without binding it"),
        ("target + 0", "a finding of AMP991 is still there after it"),
        ("target", "it changes nothing"),
        ("other", "a finding of AMP992 is new after it"),
    ],
)
def test_a_fix_that_is_not_right_is_dropped_and_reported(
    write: Write, amplint: Amplint, rules: Install, content: str, reason: str
) -> None:
    text = "target = other_ = 1\nprint(target)\n"
    rules(
        replacing("target", content),
        fake("AMP992", lambda ctx: (Report(n, "no") for n in names(ctx, "other"))),
    )
    text = "from m import *\n" + text if content == "other" else text
    path = write(a=text) / "a.py"
    if content == "unknown":
        path.write_text("import target\ntarget\n")
        rules(
            rewriting("target", lambda ctx, span: (Edit(Span(0, len(ctx.model.source.text)), "unknown\n"),))
        )
    before = path.read_text()
    result = check(fix=FIX)
    assert path.read_text() == before
    assert {finding.code for finding in result.findings} == {"AMP991"} and result.changes == []
    assert any(
        reason in error.message and "a fix was dropped" in error.message for error in result.internal_errors
    )
    shown = amplint("fix", "a.py", "--select", "ALL")
    assert shown.exit_code == 2 and reason in shown.stderr and path.read_text() == before


def test_one_wrong_fix_keeps_no_right_one_from_being_made(write: Write, rules: Install) -> None:
    right = replacing("good", "fine")
    rules(right, replacing("evil", "(", "AMP992"))
    many = "".join(f"good.a{i}\n" for i in range(2 * MAX_PASSES))
    path = write(a=f"import evil\n{many}evil\nfine = 1\n".replace("import evil\n", "")) / "a.py"
    result = check(fix=FIX)
    assert path.read_text() == many.replace("good", "fine") + "evil\nfine = 1\n"
    assert {finding.code for finding in result.findings} == {"AMP992"}
    assert len(result.internal_errors) == 1
    assert len(result.changes[0].fixed) == 2 * MAX_PASSES


def test_fixes_go_on_until_nothing_is_left(write: Write, rules: Install) -> None:
    rules(replacing("a", "b", "AMP991"), replacing("b", "c", "AMP992"), replacing("c", "done", "AMP993"))
    path = write(a="from m import *\na.x\n") / "a.py"
    result = check(fix=FIX)
    # `a` to `b` alone would bring a new finding, so it is refused; everything else is made
    assert path.read_text() in ("from m import *\na.x\n", "from m import *\ndone.x\n")
    assert all(finding.code == "AMP991" for finding in result.findings)


def test_overlapping_fixes_are_made_one_pass_after_the_other(write: Write, rules: Install) -> None:
    def outer(ctx: Context) -> Iterator[Report]:
        for call in ctx.model.tree.of_type(cst.Call):
            span = ctx.model.tree.span(call)
            text = ctx.model.tree.code(call)[2:-1]
            made = Fix(FixKind.PORT, Applicability.SAFE, "unwrap", (Edit(span, text),))
            yield Report(call, "call", fix=lambda made=made: made)  # type: ignore[misc]

    rules(fake("AMP991", outer))
    path = write(a="from m import *\nf(f(f(x)))\n") / "a.py"
    result = check(fix=FIX)
    assert path.read_text() == "from m import *\nx\n" and result.findings == []
    assert result.internal_errors == []


def test_a_fix_without_end_stops(write: Write, rules: Install) -> None:
    def check_(ctx: Context) -> Iterator[Report]:
        (node,) = ctx.model.tree.of_type(cst.Integer)
        made = Fix(
            FixKind.PORT,
            Applicability.SAFE,
            "count",
            (Edit(ctx.model.tree.span(node), str(int(node.value) + 1)),),
        )
        yield Report(node, "number", fix=lambda: made)

    rules(fake("AMP991", check_))
    path = write(a="x = 1\n") / "a.py"
    result = check(fix=FIX)
    assert path.read_text() == "x = 1\n" and len(result.findings) == 1


@pytest.mark.parametrize(
    ("kind", "applicability", "mode", "made"),
    [
        (FixKind.PORT, Applicability.SAFE, FixMode(ports=True, write=True), True),
        (FixKind.PORT, Applicability.UNSAFE, FixMode(ports=True, write=True), False),
        (FixKind.PORT, Applicability.UNSAFE, FixMode(ports=True, unsafe=True, write=True), True),
        (FixKind.PORT, Applicability.DISPLAY, FIX, False),
        (FixKind.REPAIR, Applicability.SAFE, FixMode(ports=True, write=True), False),
        (FixKind.REPAIR, Applicability.SAFE, FixMode(ports=True, repairs=True, write=True), True),
        (FixKind.REPAIR, Applicability.SAFE, FixMode(ports=True, repairs=True), False),
    ],
)
def test_only_fixes_that_were_asked_for_are_made(
    write: Write, rules: Install, kind: FixKind, applicability: Applicability, mode: FixMode, made: bool
) -> None:
    def check_(ctx: Context) -> Iterator[Report]:
        for node in names(ctx, "x"):
            fix = Fix(kind, applicability, "fix", (Edit(ctx.model.tree.span(node), "y"),))
            yield Report(node, "x", fix=lambda fix=fix: fix)  # type: ignore[misc]

    rules(fake("AMP991", check_))
    path = write(a="y = 1\nx\n") / "a.py"
    check(fix=mode)
    assert (path.read_text() == "y = 1\ny\n") is made


@pytest.mark.parametrize("setting", [{"unfixable": ("AMP991",)}, {"fixable": ("AMP2",)}])
def test_a_rule_excluded_from_fixing_is_reported_and_not_fixed(
    write: Write, rules: Install, setting: dict[str, tuple[str, ...]]
) -> None:
    rules(replacing("x", "y"))
    path = write(a="x\ny = 1\n") / "a.py"
    result = check(settings=Settings(select=("ALL",), **setting), fix=FIX)  # type: ignore[arg-type]
    assert path.read_text() == "x\ny = 1\n"
    assert [finding.no_fix_reason for finding in result.findings] == [
        "the configuration excludes this rule from fixing"
    ]


def test_fixing_leaves_every_byte_outside_of_its_edits(write: Write, rules: Install) -> None:
    rules(replacing("x", "y"))
    data = b"\xef\xbb\xbf# \xc3\xbc\r\n\x0c\ty = 1 ;  x\r# \\ \n\n\nclass y: x = x  # x"
    data = data.replace(b"\x0c\t", b"")
    path = write(a=data) / "a.py"
    assert check(fix=FIX).internal_errors == []
    assert path.read_bytes() == b"\xef\xbb\xbf# \xc3\xbc\r\ny = 1 ;  y\r# \\ \n\n\nclass y: y = y  # x"


# An import that another file takes


def test_an_import_that_another_file_of_the_run_takes_stays(write: Write) -> None:
    compat = "from torch.cuda.amp import autocast as ac\nwith ac():\n    pass\n"
    settings = Settings(select=("AMP1",), target="npu", style="torch")
    for importer in (
        "from compat import ac\n",
        "import compat\ncompat.ac()\n",
        "from compat import *\nac()\n",
    ):
        path = write(compat=compat, train=importer) / "compat.py"
        check(settings=settings, fix=FIX)
        assert "import autocast as ac" in path.read_text(), importer
    path = write(compat=compat, train="import other\n") / "compat.py"
    check(settings=settings, fix=FIX)
    assert "import autocast as ac" not in path.read_text()


# The program


def test_the_program_is_the_command_line(write: Write) -> None:
    write(a=BAD, b="x = (\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "amplint",
            "check",
            "--isolated",
            "--no-cache",
            "--output-format",
            "json",
            ".",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and done.stderr == ""
    assert [(item["filename"], item["code"]) for item in json.loads(done.stdout)] == [
        ("a.py", "AMP101"), ("a.py", "AMP101"), ("b.py", "AMP900"),
    ]  # fmt: skip


def test_results_do_not_depend_on_hash_seed_locale_or_directory_order(write: Write) -> None:
    write(**{f"m{i}": BAD + f"x{i} = (\n" * (i % 3 == 0) for i in range(6)})
    outputs = set()
    for seed, locale in (("0", "C"), ("1", "C.UTF-8"), ("2", "POSIX")):
        done = subprocess.run(
            [sys.executable, "-m", "amplint", "check", "--isolated", "--no-cache", "--target", "npu", "."],
            capture_output=True,
            check=False,
            env={**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "PYTHONIOENCODING": "utf-8"},
        )
        outputs.add((done.returncode, done.stdout))
    assert len(outputs) == 1


def test_sources_of_files_with_findings_are_in_the_result(write: Write) -> None:
    write(a=BAD, b=GOOD)
    result = check()
    assert set(result.sources) == {"a.py"} and result.sources["a.py"].text == BAD
    assert all(isinstance(finding, Finding) for finding in result.findings)


def test_progress_ends_at_the_number_of_files(write: Write) -> None:
    write(a=BAD, b=GOOD, c="x = (\n")
    told: list[tuple[int, int]] = []
    check(progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (3, 3) and told == sorted(told)


def test_a_text_that_never_was_a_file_is_not_written(tree: Path) -> None:
    run([], NPU, fix=FIX, stdin=source_from_text(BAD, "ghost.py"))
    assert list(tree.iterdir()) == []
