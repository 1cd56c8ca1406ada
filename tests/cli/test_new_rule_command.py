"""`amplint new-rule`: what it writes passes the linters, and fails the tests until it is filled in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

RULES = '''\
"""Rules."""

from __future__ import annotations

import sys

from amplint.registry import load_rules
from amplint.rule import Rule

MODULES = (
    "scaler.first",
    # what comes last
    "scaler.last",
)


def rules() -> tuple[Rule, ...]:
    """Every rule."""
    return load_rules(sys.modules[__name__], MODULES)
'''

RULE = 'RULE = Rule(\n    code="{}",\n    name="{}",\n)\n'


def make_rule(path: str, code: str, name: str) -> None:
    Path(path).write_text(RULE.format(code, name))


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A checkout with two rules, whose codes no installed rule has."""
    root = tmp_path / "checkout"
    (root / "rules/amplint_rules/scaler").mkdir(parents=True)
    (root / "amplint").mkdir()
    (root / "amplint/__init__.py").touch()
    (root / "tests/rules").mkdir(parents=True)
    (root / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8"))
    monkeypatch.chdir(root)
    Path("rules/amplint_rules/__init__.py").write_text(RULES)
    Path("rules/amplint_rules/scaler/__init__.py").touch()
    make_rule("rules/amplint_rules/scaler/first.py", "AMP290", "the-first")
    make_rule("rules/amplint_rules/scaler/last.py", "AMP295", "the-last")
    return root


def files() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(".").rglob("*") if path.is_file()}


def modules(registry: str = "rules/amplint_rules/__init__.py") -> str:
    text = Path(registry).read_text()
    return text[text.index("MODULES") :].partition("\n\n")[0]


# What is written


def test_module_page_and_test_are_written_and_the_module_is_registered(amplint) -> None:
    before = files()
    result = amplint("new-rule", "AMP293", "some-rule")
    assert (result.exit_code, result.stderr) == (0, "")
    created = [
        "rules/amplint_rules/scaler/some_rule.py",
        "rules/amplint_rules/scaler/some_rule.md",
        "tests/rules/test_some_rule.py",
    ]
    assert result.stdout.startswith("".join(f"wrote {path}\n" for path in created))
    changed = {path for path, data in files().items() if before.get(path) != data}
    assert changed == {*created, "rules/amplint_rules/__init__.py"}
    assert (
        'code="AMP293"' in Path(created[0]).read_text() and 'name="some-rule"' in Path(created[0]).read_text()
    )
    assert Path(created[1]).read_text().startswith("# some-rule (AMP293)\n\nTODO")
    assert 'CODE = "AMP293"' in Path(created[2]).read_text()


def test_nothing_but_the_new_line_changes_in_the_registry(amplint) -> None:
    amplint("new-rule", "AMP293", "some-rule")
    text = Path("rules/amplint_rules/__init__.py").read_text()
    assert text.replace('    "scaler.some_rule",\n', "") == RULES


@pytest.mark.parametrize(
    ("code", "order"),
    [
        ("AMP289", ["scaler.new", "scaler.first", "scaler.last"]),
        ("AMP293", ["scaler.first", "scaler.new", "scaler.last"]),
        ("AMP299", ["scaler.first", "scaler.last", "scaler.new"]),
    ],
)
def test_modules_stay_in_order_of_code(amplint, code: str, order: list[str]) -> None:
    amplint("new-rule", code, "new")
    assert [line.strip(' ",') for line in modules().splitlines() if line.startswith('    "')] == order


def test_a_checkout_is_found_from_a_folder_in_it(amplint, monkeypatch) -> None:
    monkeypatch.chdir("tests")
    assert amplint("new-rule", "AMP293", "some-rule").exit_code == 0
    assert Path("../rules/amplint_rules/scaler/some_rule.py").exists()


def test_a_family_can_be_named_and_is_created(amplint) -> None:
    assert amplint("new-rule", "AMP680", "some-rule", "--family", "comm").exit_code == 0
    assert Path("rules/amplint_rules/comm/__init__.py").read_text().startswith('"""')
    assert '"comm.some_rule",\n)' in modules()


def test_the_family_is_that_of_the_nearest_code_of_the_hundred(amplint) -> None:
    Path("rules/amplint_rules/other").mkdir()
    make_rule("rules/amplint_rules/other/high.py", "AMP299", "high")
    amplint("new-rule", "AMP298", "near-high")
    amplint("new-rule", "AMP296", "near-last")
    assert Path("rules/amplint_rules/other/near_high.py").exists()
    assert Path("rules/amplint_rules/scaler/near_last.py").exists()


def run(*args: str) -> None:
    done = subprocess.run([sys.executable, "-m", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def make_package(tmp_path: Path, text: str) -> Path:
    root = tmp_path / "own"
    (root / "own_rules").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[project]\nname = 'own'\n")
    (root / "own_rules/__init__.py").write_text(text)
    return root


@pytest.mark.parametrize("kind", ["checkout", "package"])
def test_what_is_written_is_linted_formatted_and_typed(amplint, tmp_path, monkeypatch, kind: str) -> None:
    pytest.importorskip("ruff")
    pytest.importorskip("mypy")
    if kind == "checkout":
        amplint("new-rule", "AMP293", "a-rule-with-quite-a-long-name-that-says-what-it-is-about")
        amplint("new-rule", "AMP680", "b", "--family", "comm")
        shutil.copytree(ROOT / "amplint", "amplint", dirs_exist_ok=True)
        written = [
            str(path)
            for path in [*Path("rules").rglob("*.py"), *Path("tests").rglob("*.py")]
            if "TODO" in path.read_text()
        ]
        assert len(written) == 5
    else:
        root = make_package(
            tmp_path, RULES.replace('    "scaler.first",\n    # what comes last\n    "scaler.last",\n', "")
        )
        monkeypatch.chdir(root)
        assert amplint("new-rule", "AMP980", "own-rule", "--package", "own_rules").exit_code == 0
        written = ["own_rules/__init__.py", "own_rules/own_rule.py", "tests/test_own_rule.py"]
    run("ruff", "check", "--select", "E,F,W,I,UP,B,C4,SIM,RUF,PIE,RET", *written)
    run("ruff", "format", "--check", *written)
    monkeypatch.setenv("MYPYPATH", "rules" if kind == "checkout" else str(ROOT))
    options = ["--strict", "--follow-imports=silent", "--cache-dir", os.devnull, "--config-file="]
    run("mypy", *options, *written)


@pytest.mark.parametrize(
    ("registry", "after"),
    [
        ("MODULES = ()", 'MODULES = ("own_rule",)'),
        ("MODULES: tuple[str, ...] = (\n)", 'MODULES: tuple[str, ...] = ("own_rule",)'),
        ("MODULES = []", 'MODULES = [\n    "own_rule",\n]'),
    ],
)
def test_the_first_rule_of_a_package_of_ones_own(
    amplint, tmp_path, monkeypatch, registry: str, after: str
) -> None:
    monkeypatch.chdir(make_package(tmp_path, f"{registry}\nOTHER = 1\n"))
    result = amplint("new-rule", "AMP980", "own-rule", "--package", "own_rules")
    assert (result.exit_code, result.stderr) == (0, "")
    assert Path("own_rules/__init__.py").read_text() == f"{after}\nOTHER = 1\n"
    assert Path("own_rules/own_rule.md").exists() and Path("tests/test_own_rule.py").exists()


def test_modules_on_one_line_get_a_line_each(amplint, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(make_package(tmp_path, 'MODULES = ("a", "b")  # all\n'))
    make_rule("own_rules/a.py", "AMP970", "a")
    make_rule("own_rules/b.py", "AMP990", "b")
    amplint("new-rule", "AMP980", "own-rule", "--package", "own_rules")
    expected = 'MODULES = (\n    "a",\n    "own_rule",\n    "b",\n)  # all\n'
    assert Path("own_rules/__init__.py").read_text() == expected


def test_lines_of_a_registry_end_as_they_did(amplint, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(make_package(tmp_path, ""))
    Path("own_rules/__init__.py").write_bytes(b'"""\x0c"""\r\nMODULES = (\r\n    "a",\r\n)\r\n')
    amplint("new-rule", "AMP980", "own-rule", "--package", "own_rules")
    assert Path("own_rules/__init__.py").read_bytes() == (
        b'"""\x0c"""\r\nMODULES = (\r\n    "a",\r\n    "own_rule",\r\n)\r\n'
    )


def test_the_page_and_the_test_fail_until_they_are_filled_in(tmp_path) -> None:
    """In a copy of this checkout: only what concerns the new rule fails, and its page and test do."""
    copy = tmp_path / "copy"
    for name in ("amplint", "rules", "tests"):
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")
        shutil.copytree(ROOT / name, copy / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", copy)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy), str(copy / "rules")])}
    call = {"cwd": copy, "env": environment, "capture_output": True, "text": True, "check": False}
    command = [sys.executable, "-m", "amplint", "new-rule", "AMP099", "not-yet", "--family", "values"]
    assert subprocess.run(command, **call).returncode == 0  # type: ignore[call-overload]
    tests = ["tests/test_pages.py", "tests/rules/test_not_yet.py"]
    options = ["-p", "no:cacheprovider", "-q", "-k", "AMP099 or not_yet"]
    done = subprocess.run([sys.executable, "-m", "pytest", *tests, *options], **call)  # type: ignore[call-overload]
    failed = {
        line.split("::")[1].partition("[")[0] for line in done.stdout.splitlines() if line[:7] == "FAILED "
    }
    assert failed == {
        "test_nothing_is_left_to_do_on_the_page_or_in_the_summary",
        "test_the_page_has_enough_examples",
        "test_a_bad_example_is_flagged_on_exactly_its_marked_lines",
        "test_todo_is_found",
    }, done.stdout + done.stderr


# What is refused


@pytest.mark.parametrize(
    ("code", "name", "message"),
    [
        ("AMP29", "some-rule", "'AMP29' is not a code"),
        ("AMP2930", "some-rule", "is not a code"),
        ("amp293", "some-rule", "is not a code"),
        ("AMP29\u0663", "some-rule", "is not a code"),
        ("XYZ293", "some-rule", "is not a code"),
        ("", "some-rule", "is not a code"),
        ("AMP293", "Some-Rule", "is not a name"),
        ("AMP293", "some_rule", "is not a name"),
        ("AMP293", "some--rule", "is not a name"),
        ("AMP293", "-", "is not a name"),
        ("AMP293", "some-", "is not a name"),
        ("AMP293", "2-rules", "is not a name"),
        ("AMP293", "../rule", "is not a name"),
        ("AMP293", "some-rule\n", "is not a name"),
        ("AMP293", "", "is not a name"),
        ("AMP293", "all", "means something else"),
        ("AMP293", "amp2", "means something else"),
        ("AMP293", "with", "means something else"),
        ("AMP290", "some-rule", "AMP290 is the code of the-first"),
        ("AMP293", "the-last", "the-last is the name of AMP295"),
        ("AMP201", "some-rule", "AMP201 is the code of clip-before-unscale"),
        ("AMP293", "with-and", "with-and is the name of AMP308"),
        ("AMP680", "some-rule", "no rules of AMP6 yet; --family"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_and_nothing_is_written(
    amplint, code: str, name: str, message: str
) -> None:
    before = files()
    result = amplint("new-rule", "--", code, name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr and result.stderr.count("\n") == 1
    assert files() == before


@pytest.mark.parametrize("family", ["a-b", "a/b", "..", "with", "1", "\u00e9"])
def test_a_folder_that_python_cannot_import_from_is_refused(amplint, family: str) -> None:
    before = files()
    result = amplint("new-rule", "AMP293", "some-rule", "--family", family)
    assert result.exit_code == 2 and "is not a folder" in result.stderr
    assert files() == before


@pytest.mark.parametrize(
    "path",
    [
        "rules/amplint_rules/scaler/some_rule.py",
        "rules/amplint_rules/scaler/some_rule.md",
        "tests/rules/test_some_rule.py",
    ],
)
def test_a_file_that_exists_is_not_overwritten(amplint, path: str) -> None:
    Path(path).write_text("# mine\n")
    before = files()
    result = amplint("new-rule", "AMP293", "some-rule")
    assert result.exit_code == 2 and "exists already" in result.stderr
    assert files() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no MODULES"),
        ("MODULES = load()\n", "has no MODULES"),
        ("MODULES = (name,)\n", "has no MODULES"),
        ("MODULES = (\n", "cannot be read"),
        ('MODULES = (\n    "a",  # first\n    "b"\n)\n', "one module per line"),
    ],
)
def test_a_registry_that_cannot_be_extended_is_left_as_it_is(amplint, text: str, message: str) -> None:
    Path("rules/amplint_rules/__init__.py").write_text(text)
    before = files()
    result = amplint("new-rule", "AMP293", "some-rule")
    assert result.exit_code == 2 and message in result.stderr and "Traceback" not in result.stderr
    assert files() == before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--package", "tests"), "is not a Python package"),
        (("--package", "gone"), "is not a Python package"),
        (("--package", ""), "need the name of a folder"),
        (("--family", ""), "need the name of a folder"),
    ],
)
def test_a_package_that_is_none_is_refused(amplint, args, message: str) -> None:
    before = files()
    result = amplint("new-rule", "AMP293", "some-rule", *args)
    assert result.exit_code == 2 and message in result.stderr
    assert files() == before


def test_outside_of_a_checkout_a_package_has_to_be_named(amplint, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = amplint("new-rule", "AMP293", "some-rule")
    assert result.exit_code == 2 and "--package PATH" in result.stderr


def test_a_write_that_fails_leaves_none_of_the_files_behind(amplint) -> None:
    shutil.rmtree("tests/rules")
    Path("tests").rmdir()
    Path("tests").write_text("a file where a folder should be")
    before = files()
    result = amplint("new-rule", "AMP293", "some-rule")
    assert result.exit_code == 2 and "cannot be written" in result.stderr and result.stdout == ""
    assert files() == before
