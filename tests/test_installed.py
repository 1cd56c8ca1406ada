"""What is installed, as `importlib.metadata` would say it."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from amplint import installed
from amplint.registry import GROUP


def expected(group: str) -> list[tuple[str, str]]:
    return sorted({(entry.name, entry.value) for entry in metadata.entry_points(group=group)})


@pytest.mark.parametrize("group", [GROUP, "console_scripts", "pytest11", "no.such.group"])
def test_entry_points_of_this_environment_are_those_of_importlib(group: str) -> None:
    assert [name for name, _ in installed.entry_points(group)] == sorted({n for n, _ in expected(group)})
    if group == GROUP:
        assert installed.entry_points(group) == expected(group)


@pytest.mark.parametrize("package", ["amplint", "libcst", "click", "pytest", "nosuchpackage"])
def test_versions_of_this_environment_are_those_of_importlib(package: str) -> None:
    try:
        wanted = metadata.version(package)
    except metadata.PackageNotFoundError:
        wanted = ""
    assert installed.version(package) == wanted


def distribution(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "entry_points.txt").write_text(text, encoding="utf-8")


def test_every_folder_of_the_path_counts_and_the_first_prevails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path / "a", "x-1.0.dist-info", "[g]\none = a.one\n# two = no\n[h]\nfive = a.five\n")
    distribution(tmp_path / "b", "x-2.0.dist-info", "[g]\none=b.one\nthree = b.three [extra]\n")
    distribution(tmp_path / "b", "y.egg-info", "[g]\nfour = b.four\n")
    distribution(tmp_path / "b", "z-1.dist-info", "[g.more]\nsix = b.six\n")
    (tmp_path / "b" / "w-1.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a"), str(tmp_path / "none"), str(tmp_path / "b")])
    assert installed.entry_points("g") == [("four", "b.four"), ("one", "a.one"), ("three", "b.three")]
    assert installed.version("x") == "1.0"


def test_what_is_in_no_folder_is_left_to_importlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "app.zip"
    archive.write_bytes(b"")
    monkeypatch.setattr(sys, "path", [*sys.path, str(archive)])
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: [metadata.EntryPoint("n", "m", group)])
    assert installed.entry_points("g") == [("n", "m")]


def test_a_run_loads_no_package_metadata(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    program = "from amplint.cli import main; main(['check', 'a.py'])"
    code = (
        f"import sys, atexit; atexit.register(lambda: print('importlib.metadata' in sys.modules)); {program}"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stdout


def test_the_code_of_a_checkout_is_told_by_sizes_and_times(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "__pycache__").mkdir()
    for name in ("a.py", "inner/b.py", "__pycache__/a.pyc"):
        (tmp_path / name).write_text("x = 1\n")
    before = list(installed._times(str(tmp_path)))
    assert len(before) == 2
    (tmp_path / "inner" / "b.py").write_text("x = 10\n")
    assert list(installed._times(str(tmp_path))) != before


def test_the_code_of_an_installed_amplint_is_told_by_its_record(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "amplint-0.1.0.dist-info").mkdir()
    record = tmp_path / "amplint-0.1.0.dist-info" / "RECORD"
    record.write_text(
        "../bin/amplint,sha256=a,1\namplint/a.py,sha256=b,1\namplint/a.pyc,,\nother/a.py,sha256=c,1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed._recorded(str(tmp_path)) == ["amplint/a.py,sha256=b,1"]
    assert installed._recorded(str(tmp_path / "elsewhere")) == []


def test_the_code_stays_the_same_while_nothing_changes() -> None:
    assert installed.own_code() and installed.own_code() == installed.own_code()
