"""Trees made to break a linter: it says what is wrong, changes nothing by half, and imports nothing of theirs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from amplint import check_source, fix_source
from amplint.config import Settings
from amplint.runner import FixMode, run
from amplint.syntax.syntax_error import first_look

BAD = "from torch.cuda.amp import autocast\nwith autocast():\n    pass\n"
NPU = Settings(target="npu")


def amplint(*args: str | Path | bytes, cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """`python -m amplint` as a user would start it in `cwd`."""
    command = [sys.executable, "-m", "amplint", *args]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, check=False, timeout=300
    )


# -- nesting and size ----------------------------------------------------------------------------------------------

#: Each with `n` levels or pieces; most would crash LibCST's parser or keep it busy for minutes.
SHAPES = {
    "lists": '"x = " + "[" * n + "]" * n',
    "dicts": '"x = " + "{1: " * n + "1" + "}" * n',
    "calls": '"x = " + "f(" * n + "1" + ")" * n',
    "subscripts": '"x = " + "a[" * n + "1" + "]" * n',
    "subscripts in a row": '"x = a" + "[0]" * n',
    "lambdas as defaults": '"x = " + "lambda a=" * n + "1" + ":1" * n',
    "walrus": '"x = " + "(a := " * n + "1" + ")" * n',
    "powers": '"x = " + " ** ".join("a" * n)',
    "generators": '"x = " + "f(a for a in " * n + "b" + ")" * n',
    "conditions without blanks": '"x = " + "1if 1else " * n + "1"',
    "bytes": '"x = " + "b\'a\'" * n',
    "a mixture": '"x = " + "-not (a.b[f(~" * n + "1" + ")])" * n',
    "annotations": '"x: " + " | ".join("a" * n)',
    "type parameters": '"def f[T: " + "a[" * n + "b" + "]" * n + "](): pass"',
    "patterns": '"match x:\\n case " + "A(" * n + ")" * n + ": pass"',
    "values in patterns": '"match x:\\n case a" + ".b" * n + ": pass"',
    "targets": '"for " + "(" * n + "a" + ",)" * n + " in b: pass"',
    "formatted strings in one another": '"x = " + "f\\"{" * n + "1" + "}\\"" * n',
    "format specifications": '"x = f\'" + "{a:" * n + "}" * n + "\'"',
    "a formatted string hides parentheses": (
        '\'x = f"{a["\\\'"]}" + \' + "(" * n + "1" + ")" * n + \' + f"{a["\\\'"]}"\''
    ),
    "a formatted string hides a sum": '\'x = f"{a["\\\'"]}" \' + "+ a" * n + \' + f"{a["\\\'"]}"\'',
    "a formatted string hides commas": '\'x = f"{a["\\\'"]}" \' + \'+ a + ","\' * n + \' + f"{a["\\\'"]}"\'',
    "a string hides three quotes": (
        '"x = f\'{a[\'" + \'"""\' + "\']}\' + " + "(" * n + "1" + ")" * n + " + \'" + \'"""\' + "\'"'
    ),
    "blocks": '"\\n".join(" " * i + "if a:" for i in range(n // 4)) + "\\n" + " " * n + "pass"',
    "blocks as deep as Python allows": '"\\n".join(" " * i + "if a:" for i in range(95)) + "\\n" + " " * 99 + "pass"',
    "assignments": '"".join(f"a{i} = " for i in range(n)) + "1"',
    "comparisons": '"x = " + " < ".join("a" * n)',
    "alternatives": '"match x:\\n case " + " | ".join("1" * n) + ": pass"',
    "decorators": '"@a\\n" * n + "def f(): pass"',
    "parameters": '"def f(" + ", ".join(f"a{i}" for i in range(n)) + "): pass"',
    "contexts": '"with " + ", ".join("a" * n) + ": pass"',
    "statements in one row": '"a; " * n',
    "handlers": '"try: pass\\n" + "except a: pass\\n" * n',
    "conditions of a comprehension": '"x = [a for a in b " + "if a " * n + "]"',
}

SURVIVES = """
import sys
from amplint import check_source
for shape in sys.argv[2:]:
    print(shape, flush=True)
    n = int(sys.argv[1])
    text = eval(shape) + "\\nfrom torch.cuda.amp import autocast\\n"
    found = check_source(text, "a.py", select=["AMP1", "AMP9"], target="npu")
    assert found, shape
    assert all(finding.code in ("AMP101", "AMP900") for finding in found), found
"""


@pytest.mark.parametrize("n", [2000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_nesting_and_no_length_takes_the_process_along(n):
    done = subprocess.run(
        [sys.executable, "-c", SURVIVES, str(n), *SHAPES.values()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout.splitlines()[-1], done.stderr[-1000:])


#: Work on these that grew with the square of their length would not end in the life of the test.
LONG = {
    "escapes in a string without an end": "x = '" + "\\'" * 400_000,
    "strings without an end": "x = " + "f'" * 400_000,
    "three quotes": "x = " + '"""a' * 400_001,
    "fields without an end": "print 1\nx = f'" + "{a:" * 300_000,
    "long strings in one row": "x = ['é', " + ("'" + "a" * 3100 + "', ") * 1600 + "]",
    "continued rows": "\\\n" * 400_000,
    "a comment": "#" * 2_000_000,
    "names": "x " * 400_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_the_first_look_at_a_long_text_ends(text):
    first_look(text)


@pytest.mark.slow
def test_a_row_of_five_megabytes_is_checked_and_fixed():
    row = "x = [" + "1234567, " * 20_000 + "'" + "a" * 4_900_000 + "']\n"
    fixed = fix_source(row + BAD, select=["AMP101"], target="npu", style="shim")
    assert fixed == row + BAD.replace("torch.cuda.amp", "amplint.runtime")


@pytest.mark.slow
def test_a_file_of_fifty_thousand_rows_is_checked():
    rows = "".join(f"NAME_{i} = {i}\n" if i % 5 else f"def f{i}():\n    return {i}\n" for i in range(42_000))
    assert rows.count("\n") > 50_000
    found = check_source(rows + BAD, target="npu")
    assert {finding.start.row for finding in found} == {rows.count("\n") + 1, rows.count("\n") + 2}


def test_a_thousand_findings_and_suppressions_in_one_file_are_reported():
    text = (
        "import torch\n" + "with torch.cuda.amp.autocast():  # amplint: ignore[AMP101] why\n    pass\n" * 500
    )
    text += "with torch.cuda.amp.autocast():\n    pass\n" * 500 + "x = 1  # noqa: AMP101\n" * 2000
    found = check_source(text, select=["AMP101"], target="npu")
    assert len(found) == 500


# -- what is no file -----------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "bad.py").write_text(BAD)
    return root


def in_json(*args: str | Path | bytes, cwd: Path) -> tuple[list[dict[str, object]], bytes, int]:
    done = amplint("check", "--target", "npu", "--output-format", "json", *args, cwd=cwd)
    return json.loads(done.stdout), done.stderr, done.returncode


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_links_in_circles_fifos_and_folders_named_like_files_are_passed_by(tree):
    (tree / "loop").symlink_to(tree)
    (tree / "self.py").symlink_to("self.py")
    (tree / "one.py").symlink_to("two.py")
    (tree / "two.py").symlink_to("one.py")
    os.mkfifo(tree / "pipe.py")
    (tree / "folder.py").mkdir()
    (tree / "folder.py" / "inner.py").write_text(BAD)
    (tree / "folder.py" / "up").symlink_to("..")
    found, errors, code = in_json(".", cwd=tree)
    assert {finding["filename"] for finding in found} == {"bad.py", "folder.py/inner.py"}
    assert (errors, code) == (b"", 1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_a_fifo_a_device_and_a_broken_link_that_are_named_are_problems_and_the_rest_is_checked(tree):
    os.mkfifo(tree / "pipe.py")
    (tree / "broken.py").symlink_to("nowhere")
    found, errors, code = in_json("pipe.py", os.devnull, "broken.py", "bad.py", cwd=tree)
    assert {finding["filename"] for finding in found} == {"bad.py"}
    assert [line.count(b"not a regular file") for line in errors.splitlines()].count(1) == 2
    assert b"broken.py" in errors
    assert code == 2


IN_EACH_FOLDER = """
import os, sys
from click.testing import CliRunner
from amplint.cli import main
for folder in sys.argv[1:]:
    print(ascii(folder), flush=True)
    os.chdir(folder)
    result = CliRunner().invoke(main, ["check", "--no-cache", "bad.py"])
    assert result.exit_code in (1, 2), result.output
    assert "Traceback" not in result.output and len(result.output) < 3000, result.output
"""


def check_in_each(folders: list[Path]) -> None:
    """One process for many configurations, each in a folder of its own."""
    command = [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-c", IN_EACH_FOLDER, *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, (done.stdout[-300:], done.stderr[-1000:])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_a_configuration_that_is_no_file_is_not_waited_for(tmp_path):
    folders = []
    for kind in ("fifo", "folder", "link to itself"):
        for name in ("pyproject.toml", "amplint.toml", "requirements.txt", "setup.cfg", ".gitignore", ".git"):
            folder = tmp_path / f"{kind} {name}"
            folder.mkdir()
            (folder / "bad.py").write_text(BAD)
            if kind == "fifo":
                os.mkfifo(folder / name)
            elif kind == "folder":
                (folder / name).mkdir()
            else:
                (folder / name).symlink_to(name)
            folders.append(folder)
    check_in_each(folders)


NAMES = [
    b"new\nline.py",
    b"car\rriage.py",
    b"esc\x1b[31mape.py",
    b"quote'\".py",
    b"sur\xffrogate.py",
    "ümläut 变.py".encode(),
    b"-dash.py",
    b" blank .py",
    b"::error file=x::y.py",
]


@pytest.fixture
def odd_names(tmp_path: Path) -> Path:
    root = tmp_path / "odd"
    root.mkdir()
    for name in NAMES:
        try:
            with open(os.path.join(os.fsencode(root), name), "w") as file:
                file.write(BAD)
        except OSError:
            pytest.skip("the file system does not take such names")
    return root


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_odd_names_are_reported_in_every_format(odd_names, locale):
    outputs = {}
    for style in ("text", "concise", "json", "jsonl"):
        done = amplint(
            "check", "--target", "npu", "--output-format", style, cwd=odd_names, LC_ALL=locale, PYTHONUTF8="0"
        )
        assert done.returncode == 1, done.stderr
        assert b"Traceback" not in done.stderr
        assert b"\x1b" not in done.stdout
        outputs[style] = done.stdout
    names = {finding["filename"] for finding in json.loads(outputs["json"])}
    assert {name.encode("utf-8", "surrogateescape") for name in names} == set(NAMES)
    assert {json.loads(line)["filename"] for line in outputs["jsonl"].splitlines()} == names
    findings = len(json.loads(outputs["json"]))
    rows = [line for line in outputs["concise"].splitlines() if b" AMP1" in line]
    assert len(rows) == findings


def test_files_with_odd_names_are_fixed_and_nothing_else_appears(odd_names):
    done = amplint("fix", "--target", "npu", "--style", "shim", "--no-cache", cwd=odd_names)
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(os.fsencode(odd_names))) == sorted(NAMES)
    for name in NAMES:
        with open(os.path.join(os.fsencode(odd_names), name)) as file:
            assert file.read() == BAD.replace("torch.cuda.amp", "amplint.runtime")


# -- what wants to be imported -------------------------------------------------------------------------------------

TRAP = "import pathlib\npathlib.Path(__file__).parent.joinpath('IMPORTED').open('a').write(__name__ + '\\n')\nraise SystemExit(77)\n"
SHADOWS = (
    "libcst",
    "amplint_rules",
    "click",
    "rich",
    "pathspec",
    "torch",
    "sitecustomize",
    "usercustomize",
    "conftest",
    "setup",
    "multiprocessing",
    "queue",
    "json",
    "tomllib",
    "tomli",
    "ast",
    "tokenize",
    "signal",
)


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A repository in which everything that a linter may import is there, and tells."""
    root = tmp_path / "repository"
    root.mkdir()
    for name in SHADOWS:
        (root / f"{name}.py").write_text(TRAP)
    for name in ("yaml", "encodings", "concurrent", "evil_rules"):
        (root / name).mkdir()
        (root / name / "__init__.py").write_text(TRAP)
    for info in ("evil.egg-info", "evil-1.0.dist-info"):
        (root / info).mkdir()
        (root / info / "entry_points.txt").write_text(
            "[amplint.rules]\nbuiltin = evil_rules\nevil = evil_rules\n"
        )
        (root / info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
        (root / info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (root / "evil.pth").write_text("import evil_rules\n")
    for i in range(20):  # enough, with --jobs, for worker processes
        (root / f"big{i}.py").write_text(BAD + "# padding\n" * 3000)
    return root


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.skipif(sys.version_info < (3, 11), reason="without -P the interpreter itself imports from there")
def test_nothing_in_the_linted_repository_is_imported(trap, jobs):
    done = amplint("check", ".", "--jobs", jobs, "--target", "npu", "--output-format", "json", cwd=trap)
    assert not (trap / "IMPORTED").exists(), (trap / "IMPORTED").read_text()
    assert done.returncode == 1, done.stderr
    assert len([f for f in json.loads(done.stdout) if f["code"] == "AMP101"]) >= 20


def test_the_installed_command_imports_nothing_of_the_linted_repository(trap):
    command = shutil.which("amplint", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("the command is not installed")
    done = subprocess.run(
        [command, "check", "-j2", "."], cwd=trap, capture_output=True, check=False, timeout=300
    )
    assert not (trap / "IMPORTED").exists(), (trap / "IMPORTED").read_text()
    assert done.returncode == 1, done.stderr


STRANGE = (
    "plugins = ['evil_rules']\n",
    "[rules]\nmodule = 'evil_rules'\n",
    "select = ['evil_rules:all']\n",
    "extend = 'conftest.py'\n",
    "extend = '/dev/zero'\n",
    "extend = 'amplint.toml'\n",
    "target = 'npu; import os'\n",
    "[aliases]\n'evil_rules.f' = '__import__(\"evil_rules\")'\n",
    "[per-file-ignores]\n'" + "*" * 200 + "a' = ['AMP1']\n",
    "exclude = ['" + "**/" * 300 + "a']\n",
    "cache-dir = 3\n",
    "style = ['torch']\n",
    "select = " + "[" * 5000 + "]" * 5000 + "\n",
    "select = ['AMP1'\n",
    "\x00\x01",
)


def test_a_strange_configuration_is_refused_or_harmless_and_imports_nothing(tmp_path):
    folders = []
    for number, text in enumerate(STRANGE):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "bad.py").write_text(BAD)
        (folder / "amplint.toml").write_text(text)
        for name in ("conftest", "evil_rules"):
            (folder / f"{name}.py").write_text(TRAP)
        folders.append(folder)
    check_in_each(folders)
    assert not [folder for folder in folders if (folder / "IMPORTED").exists()]


# -- interruptions -------------------------------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path: Path) -> Path:
    root = tmp_path / "many"
    root.mkdir()
    for i in range(200):
        (root / f"m{i:03}.py").write_text(f"# {i}\n{BAD}")
    return root


def fixed(text: str) -> str:
    return text.replace("torch.cuda.amp", "amplint.runtime")


def changed(root: Path, before: dict[str, str]) -> int:
    return sum((root / name).read_text() != text for name, text in before.items())


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
@pytest.mark.parametrize("after", [pytest.param(1, marks=pytest.mark.slow), 60])
def test_a_kill_while_fixing_leaves_each_file_old_or_new(many, after):
    before = {path.name: path.read_text() for path in many.iterdir()}
    command = [sys.executable, "-m", "amplint", "fix", "--target", "npu", "--style", "shim", "-j1", "-q", "."]
    process = subprocess.Popen(command, cwd=many, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and changed(many, before) < after:
        time.sleep(0.001)
    process.kill()
    process.wait()
    for name, text in before.items():
        assert (many / name).read_text() in (text, fixed(text))
    assert {path.name for path in many.glob("*.py")} == set(before)
    again = amplint("fix", "--target", "npu", "--style", "shim", "-q", ".", cwd=many)
    assert again.returncode == 0, again.stderr
    assert all((many / name).read_text() == fixed(text) for name, text in before.items())


def group_of(leader: int) -> list[int]:
    """Living processes of the group that `leader` began."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == leader and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def command_lines(pids: list[int]) -> list[bytes]:
    found = []
    for pid in pids:
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes())
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    "how", ["early Ctrl-C", "Ctrl-C", "interrupt of the main process", "kill of the main process"]
)
def test_no_worker_outlives_a_run_that_is_stopped(tmp_path, how):
    root = tmp_path / "big"
    root.mkdir()
    for i in range(60):
        (root / f"m{i}.py").write_text(BAD + "".join(f"x{j} = autocast\n" for j in range(2000)))
    command = [sys.executable, "-m", "amplint", "check", "--no-cache", "-j2", "--target", "npu", "."]
    process = subprocess.Popen(
        command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    while (
        process.poll() is None and sum(b"spawn_main" in c for c in command_lines(group_of(process.pid))) < 2
    ):
        time.sleep(0.01)
    time.sleep(0.1 if how.startswith("early") else 1)  # workers that still import, and workers at work
    assert process.poll() is None, "the run was over before it could be stopped"
    if how.endswith("Ctrl-C"):
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGKILL if how.startswith("kill") else signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    deadline = time.monotonic() + 60
    while group_of(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert group_of(process.pid) == []
    if not how.startswith("kill"):
        assert process.returncode == 130, errors
        assert b"Traceback" not in errors


def test_two_runs_that_write_one_cache_at_once_both_succeed(many):
    command = [
        sys.executable,
        "-m",
        "amplint",
        "check",
        "--target",
        "npu",
        "--output-format",
        "json",
        "-j1",
        ".",
    ]
    runs = [
        subprocess.Popen(command, cwd=many, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)
    ]
    outputs = [process.communicate() for process in runs]
    assert [process.returncode for process in runs] == [1, 1], outputs
    assert len({out for out, _ in outputs}) == 1
    warm = amplint("check", "--target", "npu", "--output-format", "json", "-j1", ".", cwd=many)
    assert warm.stdout == outputs[0][0]
    assert [path.name for path in (many / ".amplint_cache").glob("*.tmp")] == []


# -- how files are written -----------------------------------------------------------------------------------------

SEED = (
    '"""Doc."""\nimport torch\nfrom torch.cuda.amp import autocast  # why\n\n\nclass A:\n\tdef f(self, x):\n'
    "\t\twith autocast():  # ünï\n\t\t\treturn x\n\n# end\n"
)
WRITTEN = {
    "plain": SEED.encode(),
    "BOM": b"\xef\xbb\xbf" + SEED.encode(),
    "CRLF": SEED.replace("\n", "\r\n").encode(),
    "CR": SEED.replace("\n", "\r").encode(),
    "mixed newlines": SEED.replace("\n", "\r\n", 4).replace("# end\n", "# end\r").encode(),
    "no final newline": SEED.rstrip("\n").encode(),
    "blanks at the end": SEED.encode() + b"  \t\n \n\t",
    "latin-1": b"# -*- coding: latin-1 -*-\n" + SEED.encode("latin-1"),
    "cp1252 with CRLF": b"# vim: set fileencoding=cp1252 :\r\n" + SEED.replace("\n", "\r\n").encode("cp1252"),
    "euc-jp": b"# coding: euc-jp\n" + SEED.replace("ünï", "日本").encode("euc-jp"),
    "BOM and cookie": b"\xef\xbb\xbf# coding: utf-8\n" + SEED.encode(),
    "cookie in the second row": b"#!/usr/bin/env python\n# coding: utf-8\n" + SEED.encode(),
    "form feed in a row of its own": SEED.replace("\n\n\n", "\n\f\n\n").encode(),
    "form feed before a statement": SEED.replace("class", "\fclass").encode(),
    "form feed at the start": b"\f" + SEED.encode(),
    "form feeds in blanks": SEED.replace("# why", "\f # \f why").encode(),
    "vertical tabs and odd blanks in comments": SEED.replace("# end", "# \v \x1c \x85 \u2028 end").encode(),
    "continued rows": SEED.replace("import torch\n", "import \\\n  torch\n").encode(),
    "blanks behind statements": SEED.replace("import torch\n", "import torch  \t\n").encode(),
    "several statements in a row": SEED.replace("import torch\n", "import torch; x = 1 ;\n").encode(),
    "a joined empty row": SEED.replace("\n\n\n", "\n\\\n\n\n").encode(),
}


@pytest.mark.parametrize("data", WRITTEN.values(), ids=WRITTEN)
def test_a_fix_changes_only_its_own_bytes(tmp_path, data):
    path = tmp_path / "a.py"
    path.write_bytes(data)
    checked = run([path], NPU, cwd=tmp_path)
    assert path.read_bytes() == data
    assert [finding.code for finding in checked.findings].count("AMP101") == 2
    settings = Settings(target="npu", style="shim")
    result = run([path], settings, fix=FixMode(ports=True, write=True), cwd=tmp_path)
    assert (result.internal_errors, result.problems) == ([], [])
    expected = data.replace(b"torch.cuda.amp", b"amplint.runtime")
    assert path.read_bytes() in (expected, data)
    if path.read_bytes() == data:  # refused, which must be said
        assert all(finding.no_fix_reason for finding in result.findings)


@pytest.mark.parametrize("data", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("style", ["torch", "shim"])
def test_rows_outside_a_fix_come_back_as_they_were(tmp_path, data, style):
    path = tmp_path / "a.py"
    path.write_bytes(data)
    settings = Settings(target="npu", style=style)
    result = run([path], settings, fix=FixMode(ports=True, write=True), cwd=tmp_path)
    assert (result.internal_errors, result.problems) == ([], [])
    after = path.read_bytes()
    kept = [row for row in data.splitlines(keepends=True) if b"autocast" not in row]
    rest = iter(after.splitlines(keepends=True))
    assert all(row in rest for row in kept), after
    path.write_bytes(after)
    assert run([path], settings, fix=FixMode(ports=True), cwd=tmp_path).changes == []
