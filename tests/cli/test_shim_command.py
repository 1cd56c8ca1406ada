from __future__ import annotations

import ast
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import amplint as package
from amplint.cli import shim as command

SHIM = (Path(package.__path__[0]) / "runtime" / "__init__.py").read_bytes()


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def leftovers() -> list[str]:
    return sorted(name for name in os.listdir() if name.endswith(".tmp"))


def test_the_shim_is_written_byte_for_byte(amplint) -> None:
    result = amplint("shim", "--vendor", "_amp.py")
    assert result.exit_code == 0 and result.stdout.startswith("wrote _amp.py\n")
    assert Path("_amp.py").read_bytes() == SHIM and leftovers() == []


def test_what_is_written_depends_on_torch_and_the_standard_library_only(amplint) -> None:
    amplint("shim", "--vendor", "_amp.py")
    imported = set()
    for node in ast.walk(ast.parse(Path("_amp.py").read_bytes())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add((node.module or "").partition(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"torch"}


def test_torch_is_not_imported_to_write_it() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from amplint.cli import main; main(['shim', '--vendor', '_amp.py'])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
    assert Path("_amp.py").read_bytes() == SHIM


def test_without_a_path_the_usage_is_shown_with_the_settings(amplint) -> None:
    result = amplint("shim")
    assert result.exit_code == 0
    assert "Usage: amplint shim" in result.stdout
    assert 'style = "shim"' in result.stdout and 'shim-module = "pkg._amp"' in result.stdout


def test_the_settings_to_make_name_the_module_by_its_packages(amplint) -> None:
    Path("src/pkg/inner").mkdir(parents=True)
    Path("src/pkg/__init__.py").touch()
    Path("src/pkg/inner/__init__.py").touch()
    assert 'shim-module = "pkg.inner._amp"' in amplint("shim", "--vendor", "src/pkg/inner/_amp.py").stdout
    assert 'shim-module = "amp"' in amplint("shim", "--vendor", "amp.py").stdout
    assert "the name that it is imported by" in amplint("shim", "--vendor", "my-amp.py").stdout


def test_a_copy_that_is_up_to_date_is_left_alone(amplint) -> None:
    amplint("shim", "--vendor", "_amp.py")
    before = os.stat("_amp.py")
    result = amplint("shim", "--vendor", "_amp.py")
    assert (result.exit_code, result.stdout) == (0, "_amp.py is up to date\n")
    assert os.stat("_amp.py").st_mtime_ns == before.st_mtime_ns


def test_a_file_with_another_content_is_not_overwritten_unless_forced(amplint) -> None:
    Path("_amp.py").write_bytes(b"mine\n")
    result = amplint("shim", "--vendor", "_amp.py")
    assert result.exit_code == 2 and "--force" in result.stderr
    assert Path("_amp.py").read_bytes() == b"mine\n"
    assert amplint("shim", "--vendor", "_amp.py", "--force").exit_code == 0
    assert Path("_amp.py").read_bytes() == SHIM


@pytest.mark.skipif(os.name != "posix", reason="modes")
def test_an_overwritten_file_keeps_its_mode_and_a_new_one_has_the_usual(amplint) -> None:
    Path("_amp.py").write_bytes(b"mine\n")
    Path("_amp.py").chmod(0o640)
    amplint("shim", "--vendor", "_amp.py", "--force")
    assert stat.S_IMODE(os.stat("_amp.py").st_mode) == 0o640
    amplint("shim", "--vendor", "new.py")
    Path("usual").touch()
    assert os.stat("new.py").st_mode == os.stat("usual").st_mode


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_a_link_is_followed(amplint) -> None:
    Path("real.py").write_bytes(b"mine\n")
    Path("_amp.py").symlink_to("real.py")
    amplint("shim", "--vendor", "_amp.py", "--force")
    assert Path("_amp.py").is_symlink() and Path("real.py").read_bytes() == SHIM


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("missing/_amp.py", "the folder of missing/_amp.py does not exist; create it first"),
        ("folder", "folder is a folder; name the file to write in it"),
        ("file/_amp.py", "the folder of file/_amp.py does not exist; create it first"),
        (os.devnull, f"{os.devnull} is not a regular file"),
        ("", "--vendor needs the path of a file"),
    ],
)
def test_a_path_that_cannot_be_written_is_told_clearly(amplint, target: str, message: str) -> None:
    Path("folder").mkdir()
    Path("file").touch()
    result = amplint("shim", "--vendor", target, "--force")
    assert result.exit_code == 2 and message in result.stderr and result.stdout == ""
    assert not Path("missing").exists()


def test_a_write_that_fails_leaves_nothing_behind(amplint, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    Path("_amp.py").write_bytes(b"mine\n")
    monkeypatch.setattr(command.os, "replace", full)
    result = amplint("shim", "--vendor", "_amp.py", "--force")
    assert result.exit_code == 2
    assert result.stderr == "error: _amp.py cannot be written: No space left on device\n"
    assert Path("_amp.py").read_bytes() == b"mine\n" and leftovers() == []
