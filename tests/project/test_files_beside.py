"""A few files given alone are looked at together with what they import, which is not checked itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.config import Settings
from amplint.runner import RunResult, run

CLIPPING = """\
import torch


def bound(params, limit):
    torch.nn.utils.clip_grad_norm_(params, limit)


def careless(loss, optimizer, scaler, params):
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
TRAIN = """\
from {module} import bound


def train(model, optimizer, scaler, loss):
    scaler.scale(loss).backward()
    bound(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
HARMLESS = "def bound(params, limit):\n    return params\n"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def check(folder: Path, *names: str, use_cache: bool = False) -> RunResult:
    settings = Settings(select=("AMP2",), cache_dir=folder / "cache")
    return run([folder / name for name in names], settings, cwd=folder, use_cache=use_cache)


def found(result: RunResult) -> list[tuple[str, str]]:
    assert not result.internal_errors and not result.problems
    return [(f.filename, f.code) for f in result.findings]


@pytest.mark.parametrize(
    ("module", "where"),
    [
        ("clipping", "clipping.py"),
        ("pkg.clipping", "pkg/clipping.py"),
        ("pkg.tools.clipping", "pkg/tools/clipping.py"),
        ("pkg", "pkg/__init__.py"),
    ],
)
def test_the_module_that_a_script_imports(tmp_path: Path, module: str, where: str) -> None:
    write(tmp_path, {"train.py": TRAIN.format(module=module), where: CLIPPING})
    result = check(tmp_path, "train.py")
    assert found(result) == [("train.py", "AMP201")]
    assert [note.filename for note in result.findings[0].trace] == ["train.py", where, "train.py"]
    assert result.files == 1


def test_a_package_below_the_root_of_the_project(tmp_path: Path) -> None:
    files = {"pyproject.toml": "", "pkg/__init__.py": "", "pkg/clipping.py": CLIPPING}
    write(tmp_path, {**files, "tools/deep/train.py": TRAIN.format(module="pkg.clipping")})
    assert found(check(tmp_path, "tools/deep/train.py")) == [("tools/deep/train.py", "AMP201")]


def test_a_src_layout(tmp_path: Path) -> None:
    files = {"setup.py": "", "src/pkg/__init__.py": "", "src/pkg/clipping.py": CLIPPING}
    write(tmp_path, {**files, "scripts/train.py": TRAIN.format(module="pkg.clipping")})
    assert found(check(tmp_path, "scripts/train.py")) == [("scripts/train.py", "AMP201")]


def test_relative_imports_and_re_exports(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/utils/__init__.py": "from .inner import bound\n",
        "pkg/utils/inner.py": "from .deepest import bound\n",
        "pkg/utils/deepest.py": CLIPPING,
        "pkg/loops/__init__.py": "",
        "pkg/loops/train.py": TRAIN.format(module="..utils"),
    }
    write(tmp_path, files)
    assert found(check(tmp_path, "pkg/loops/train.py")) == [("pkg/loops/train.py", "AMP201")]


def test_nothing_outside_the_project_is_read(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"clipping.py": CLIPPING, "project/.git": "", "project/train.py": TRAIN.format(module="clipping")},
    )
    assert found(check(tmp_path, "project/train.py")) == []


def test_a_file_that_is_no_text_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN.format(module="clipping")})
    (tmp_path / "clipping.py").write_bytes(b"\xff\xfe\x00\x00x")
    assert found(check(tmp_path, "train.py")) == []


def test_the_cache_notices_changes_of_files_that_are_not_given(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN.format(module="clipping"), "clipping.py": CLIPPING})
    assert found(check(tmp_path, "train.py", use_cache=True)) == [("train.py", "AMP201")]
    assert found(check(tmp_path, "train.py", use_cache=True)) == [("train.py", "AMP201")]
    (tmp_path / "clipping.py").write_text(HARMLESS)
    assert found(check(tmp_path, "train.py", use_cache=True)) == []
    (tmp_path / "clipping.py").unlink()
    assert found(check(tmp_path, "train.py", use_cache=True)) == []
    (tmp_path / "clipping.py").write_text(CLIPPING)
    assert found(check(tmp_path, "train.py", use_cache=True)) == [("train.py", "AMP201")]


def test_a_file_beside_a_run_is_checked_when_it_is_given(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN.format(module="clipping"), "clipping.py": CLIPPING})
    assert found(check(tmp_path, "train.py", use_cache=True)) == [("train.py", "AMP201")]
    both = check(tmp_path, "train.py", "clipping.py", use_cache=True)
    assert found(both) == [("clipping.py", "AMP201"), ("train.py", "AMP201")]
