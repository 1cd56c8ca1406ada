"""What is shipped: the wheel's content, and that README, hooks and CI say what is true of it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from amplint import __version__, fix_source
from amplint.cli import main
from amplint.registry import all_rules

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
HOOKS = (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8")
BUILT_IN = [rule for rule in all_rules() if rule.module.startswith("amplint_rules.")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    """The wheel of a copy of this checkout; building in place would leave files behind."""
    folder = tmp_path_factory.mktemp("wheel")
    leave_out = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, folder / "copy", ignore=leave_out)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(folder), "."]
    if setuptools_builds_this():
        build.insert(-1, "--no-build-isolation")
    run = subprocess.run(build, cwd=folder / "copy", capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def setuptools_builds_this() -> bool:
    """Whether the installed setuptools is new enough for pyproject.toml, so that none is downloaded."""
    try:
        return int(metadata.version("setuptools").split(".")[0]) >= 77
    except metadata.PackageNotFoundError:
        return False


def shipped(wheel: zipfile.ZipFile) -> set[str]:
    return set(wheel.namelist())


def in_checkout(folder: str, pattern: str) -> set[str]:
    base = ROOT / folder
    return {path.relative_to(base.parent).as_posix() for path in base.rglob(pattern)}


def test_every_module_of_both_packages_is_in_the_wheel(wheel):
    modules = in_checkout("amplint", "*.py") | in_checkout("rules/amplint_rules", "*.py")
    assert modules - shipped(wheel) == set()


def test_the_facts_are_in_the_wheel(wheel):
    facts = in_checkout("amplint/facts", "*.tsv")
    assert facts
    assert {f"amplint/{name}" for name in facts} - shipped(wheel) == set()


def test_the_template_of_the_html_report_is_in_the_wheel(wheel):
    templates = in_checkout("amplint/report", "*.jinja")
    assert templates
    assert {f"amplint/{name}" for name in templates} - shipped(wheel) == set()


@pytest.mark.parametrize("rule", BUILT_IN, ids=lambda rule: rule.code)
def test_the_page_of_a_rule_is_in_the_wheel(rule, wheel):
    assert f"{rule.module.replace('.', '/')}.md" in shipped(wheel)


def test_both_packages_say_that_they_are_typed(wheel):
    assert {"amplint/py.typed", "amplint_rules/py.typed"} <= shipped(wheel)


def test_nothing_else_is_in_the_wheel(wheel):
    tops = {name.split("/")[0] for name in shipped(wheel)}
    assert tops == {"amplint", "amplint_rules", f"amplint-{__version__}.dist-info"}


def test_the_license_is_in_the_wheel(wheel):
    text = wheel.read(f"amplint-{__version__}.dist-info/licenses/LICENSE").decode()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_rules_are_found_through_an_entry_point(wheel):
    text = wheel.read(f"amplint-{__version__}.dist-info/entry_points.txt").decode()
    assert re.search(r"\[amplint\.rules\]\n(?:.*\n)*?builtin = amplint_rules$", text, re.MULTILINE)


def test_the_version_of_the_distribution_is_that_of_the_package(wheel):
    text = wheel.read(f"amplint-{__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {__version__}\n" in text


def test_the_changelog_knows_this_version():
    assert re.search(
        rf"^## \[{re.escape(__version__)}\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )


def test_the_readme_lists_every_rule_and_no_other():
    rows = re.findall(r"^\| (AMP\d+) \| \[([\w-]+)\]\(([^)]*)\) \|", README, re.MULTILINE)
    expected = [
        (rule.code, rule.name, f"rules/{rule.module.replace('.', '/')}.md")
        for rule in sorted(BUILT_IN, key=lambda rule: rule.code)
    ]
    assert rows == expected


@pytest.mark.parametrize(
    "file",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")),
    ],
)
def test_links_to_files_lead_somewhere(file):
    path = ROOT / file
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text("utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_hooks_are_named_after_the_commands_that_they_run():
    hooks = dict(re.findall(r"^- id: (\S+)\n(?:  .*\n)*?  entry: (.+)$", HOOKS, re.MULTILINE))
    assert hooks == {
        "amplint": "amplint check --force-exclude",
        "amplint-fix": "amplint fix --force-exclude",
        "amplint-project": "amplint check",
    }


@pytest.mark.parametrize("command", re.findall(r"entry: amplint (.+)$", HOOKS, re.MULTILINE))
def test_a_hook_runs_a_command_that_exists(command, tmp_path, capsys):
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(SystemExit) as end:
        main([*command.split(), str(tmp_path / "a.py")])
    assert end.value.code in (None, 0), capsys.readouterr().err


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_report_in_the_readme_is_what_amplint_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(blocks("python")[0])
    with pytest.raises(SystemExit) as end:
        main(["check", "--isolated", "train.py"])
    assert end.value.code == 1
    assert blocks("console")[0] == f"$ amplint check train.py\n{capsys.readouterr().out}"


@pytest.mark.parametrize(("style", "number"), [("torch", 0), ("shim", 1)])
def test_a_port_in_the_readme_is_what_amplint_writes(style, number):
    lines = [line or " " for line in blocks("diff")[number].splitlines()]
    before = "".join(line[1:] + "\n" for line in lines if line[0] != "+")
    after = "".join(line[1:] + "\n" for line in lines if line[0] != "-")
    assert fix_source(before, style=style) == after


CI_COMMANDS = re.findall(
    r"^ +(?:- )?(?:run: )?amplint (check .+)$", (ROOT / "docs/ci.md").read_text("utf-8"), re.MULTILINE
)


@pytest.mark.parametrize("command", CI_COMMANDS)
def test_a_command_of_the_ci_recipes_runs(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text(blocks("python")[0])
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org"]
    for step in (["init"], ["add", "--all"], ["commit", "--message", "one"]):
        subprocess.run([*git, *step], check=True, capture_output=True)
    arguments = [re.sub(r".*\$.*", "HEAD", word) for word in shlex.split(command.partition(">>")[0])]
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--isolated", "--no-cache"])
    assert end.value.code in (None, 0), capsys.readouterr().err


def test_the_ci_recipes_have_commands():
    assert len(CI_COMMANDS) == 5


def test_ci_runs_the_commands_of_the_readme():
    commands = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    assert len(commands) == 2
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert [command for command in commands if command not in script] == []


def test_the_ci_script_can_be_executed():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
