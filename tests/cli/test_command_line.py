from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest

from amplint.report import FORMATS

NOT_FOR_EVERYBODY = ("libcst", "rich", "torch", "pathspec", "pygls", "multiprocessing", "tomllib")


def python(*args: str, **keywords: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, *args], capture_output=True, **keywords)  # type: ignore[call-overload]


def imported_by(code: str) -> set[str]:
    process = python("-X", "importtime", "-c", code)
    assert process.returncode == 0, process.stderr
    return {line.rpartition("|")[2].strip() for line in process.stderr.decode().splitlines()}


def test_importing_the_command_line_imports_nothing_that_only_some_commands_need() -> None:
    packages = {name.partition(".")[0] for name in imported_by("import amplint.cli")}
    assert "click" in packages
    assert packages.isdisjoint(NOT_FOR_EVERYBODY)


def test_the_help_of_every_command_is_shown_without_importing_libcst_or_torch() -> None:
    code = """
        from click.testing import CliRunner
        from amplint.cli import main
        for command in "check", "fix", "rule", "ops", "config", "shim", "clean", "new-rule":
            assert CliRunner().invoke(main, [command, "-h"]).exit_code == 0
        assert CliRunner().invoke(main, ["--help"]).exit_code == 0
    """
    assert {name.partition(".")[0] for name in imported_by(textwrap.dedent(code))}.isdisjoint(
        ("libcst", "rich", "torch", "pathspec")
    )


def test_help_lists_the_commands(amplint) -> None:
    result = amplint("-h")
    assert result.exit_code == 0
    assert re.findall(r"^  ([a-z][a-z-]+)  ", result.stdout, re.MULTILINE) == [
        "check",
        "fix",
        "rule",
        "ops",
        "config",
        "shim",
        "run",
        "clean",
        "lsp",
        "new-rule",
    ]


def test_the_version_is_told(amplint) -> None:
    result = amplint("--version")
    assert result.exit_code == 0 and re.fullmatch(r"amplint \d+\.\d+\S*\n", result.stdout)


def test_python_dash_m_amplint_is_amplint() -> None:
    process = python("-m", "amplint", "check", "--help")
    assert process.returncode == 0
    assert process.stdout.startswith(b"Usage: amplint check")


def test_an_unknown_command_is_wrong_usage(amplint) -> None:
    result = amplint("chekc")
    assert result.exit_code == 2 and "chekc" in result.stderr and result.stdout == ""


def test_an_unknown_option_is_wrong_usage(amplint) -> None:
    result = amplint("check", "--fxi")
    assert result.exit_code == 2 and "--fix" in result.stderr


def test_a_crash_is_an_internal_error_and_not_a_finding(amplint, run) -> None:
    run.error = KeyError("boom")
    result = amplint("check")
    assert result.exit_code == 2 and result.stdout == ""
    assert "Traceback" in result.stderr and "bug in amplint" in result.stderr


def test_an_interrupted_run_says_that_nothing_is_half_written(amplint, run) -> None:
    run.error = KeyboardInterrupt()
    result = amplint("check", "--fix")
    assert result.exit_code == 130
    assert result.stderr.strip() == "interrupted, nothing half-written" and result.stdout == ""


PROGRAM = """
    import sys, time
    import amplint.runner
    from amplint.cli import main
    from amplint.runner import RunResult
    from amplint.finding import Confidence, Finding, Position, Severity, Span

    def found(message="m", filename="train.py"):
        return Finding("AMP201", "clip-before-unscale", message, Severity.ERROR, Confidence.HIGH, filename,
                       Span(0, 1), Position(1, 1), Position(1, 2))

    def run(paths, settings, **keywords):
        {body}

    amplint.runner.run = run
    main(sys.argv[1:], prog_name="amplint")
"""


def program(body: str) -> str:
    return textwrap.dedent(PROGRAM).replace("{body}", body)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_ends_the_process_with_130_and_without_a_traceback() -> None:
    code = program("print('ready', flush=True); time.sleep(60)")
    with subprocess.Popen(
        [sys.executable, "-c", code, "check"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        message = process.stderr.read()
        assert process.wait(30) == 130
    assert message.strip() == b"interrupted, nothing half-written"


@pytest.mark.skipif(os.name != "posix", reason="pipes")
@pytest.mark.parametrize("number", [1, 20_000])
def test_a_reader_that_goes_away_is_no_error(number: int) -> None:
    code = program(f"return RunResult([found()] * {number}, files=1)")
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-c", code, "check"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (process.returncode, process.stderr) == (1, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_report_that_cannot_be_written_is_an_error() -> None:
    code = program("return RunResult(files=1)")
    with open("/dev/full", "wb") as full:
        process = subprocess.run(
            [sys.executable, "-c", code, "check"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert process.returncode == 2
    assert process.stderr == b"error: stdout cannot be written: No space left on device\n"


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "latin-1", "gbk"])
@pytest.mark.parametrize("output_format", FORMATS)
def test_no_encoding_of_the_terminal_is_a_reason_to_crash(encoding: str, output_format: str) -> None:
    code = program("return RunResult([found('\\u5931 \\udc80 \\U0001f600', '\\u8bad\\udcff.py')], files=1)")
    process = python(
        "-c",
        code,
        "check",
        "--output-format",
        output_format,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert process.returncode == 1 and process.stderr == b""
    assert rb"\udc80" in process.stdout


def in_a_terminal(code: str, *args: str, **environment: str) -> tuple[int, str]:
    """Exit code and output of a program whose stdin, stdout and stderr are a terminal."""
    pty = pytest.importorskip("pty")
    variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    child, descriptor = pty.fork()
    if child == 0:
        os.execve(
            sys.executable,
            [sys.executable, "-c", code, *args],
            variables | {"TERM": "xterm-256color"} | environment,
        )
    output = b""
    try:
        while chunk := os.read(descriptor, 65536):
            output += chunk
    except OSError:  # how Linux says that the other side was closed
        pass
    os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), output.decode()


@pytest.mark.skipif(os.name != "posix", reason="terminals")
def test_a_terminal_gets_colors_unless_it_is_dumb_or_no_color_is_set() -> None:
    code = program("return RunResult([found()], files=1)")
    status, output = in_a_terminal(code, "check")
    assert status == 1 and "\x1b[31;1mAMP201" in output
    assert "\x1b" not in in_a_terminal(code, "check", NO_COLOR="1")[1]
    assert "\x1b" not in in_a_terminal(code, "check", TERM="dumb")[1]


@pytest.mark.skipif(os.name != "posix", reason="terminals")
def test_a_slow_run_shows_its_progress_in_a_terminal_and_takes_it_away() -> None:
    body = "[(time.sleep(0.06), keywords['progress'](n, 20)) for n in range(20)]; return RunResult(files=20)"
    status, output = in_a_terminal(program(body), "check")
    assert status == 0 and "/20" in output
    assert output.endswith("No findings in 20 files.\r\n")


@pytest.mark.skipif(os.name != "posix", reason="terminals")
@pytest.mark.parametrize(("args", "environment"), [(["-q"], {}), ([], {"TERM": "dumb"})])
def test_a_quiet_run_and_a_dumb_terminal_have_no_progress_bar(args, environment) -> None:
    body = "assert keywords['progress'] is None; return RunResult(files=20)"
    status, output = in_a_terminal(program(body), "check", *args, **environment)
    assert status == 0 and "\x1b" not in output
