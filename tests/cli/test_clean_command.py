from __future__ import annotations

import os
from pathlib import Path

import pytest

from amplint.cachedir import FOLDER

TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# created by amplint\n"
ENTRY = f"{'0a' * 12}.json"


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")


def make_cache(path: str, tag: str | None = TAG) -> Path:
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ENTRY).write_text("{}")
    (folder / ".gitignore").write_text("*\n")
    if tag is not None:
        (folder / "CACHEDIR.TAG").write_text(tag)
    return folder


def test_the_cache_that_a_run_leaves_is_removed(amplint) -> None:
    Path("train.py").write_text("with autocast() and no_grad():\n    pass\n")
    assert amplint("check", "train.py").exit_code == 1
    assert Path(FOLDER).is_dir()
    result = amplint("clean")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"removed {FOLDER}\n", "")
    assert not Path(FOLDER).exists() and Path("train.py").exists()


def test_nothing_to_remove_is_told_and_no_error(amplint) -> None:
    result = amplint("clean")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"nothing to remove: there is no {FOLDER}\n"


def test_half_written_files_of_the_cache_go_too(amplint) -> None:
    folder = make_cache(FOLDER)
    (folder / f"{ENTRY}x_1.tmp").touch()
    amplint("clean")
    assert not folder.exists()


def test_the_cache_is_found_beside_the_configuration(amplint, monkeypatch) -> None:
    Path("amplint.toml").touch()
    folder = make_cache(FOLDER).absolute()
    Path("src").mkdir()
    monkeypatch.chdir("src")
    assert amplint("clean").stdout == f"removed {folder.as_posix()}\n"
    assert not folder.exists()


def test_the_cache_is_found_where_the_configuration_puts_it(amplint) -> None:
    Path("amplint.toml").write_text('cache-dir = "var/cache"\n')
    folder = make_cache("var/cache")
    assert amplint("clean").stdout == "removed var/cache\n"
    assert not folder.exists() and Path("var").exists()


def test_a_cache_from_before_it_was_configured_elsewhere_goes_too(amplint) -> None:
    Path("amplint.toml").write_text('cache-dir = "var"\n')
    make_cache("var")
    make_cache(FOLDER)
    assert amplint("clean").stdout == f"removed var\nremoved {FOLDER}\n"


def test_the_path_names_the_project(amplint) -> None:
    folder = make_cache(f"inner/{FOLDER}")
    other = make_cache(f"other/{FOLDER}")
    assert amplint("clean", "inner").stdout == f"removed inner/{FOLDER}\n"
    assert not folder.exists() and other.exists()


def test_a_cache_named_on_the_command_line_is_the_only_one_removed(amplint) -> None:
    Path("amplint.toml").write_text('cache-dir = "configured"\n')
    kept = [make_cache("configured"), make_cache(FOLDER)]
    folder = make_cache("given")
    assert amplint("clean", "--cache-dir", "given").stdout == "removed given\n"
    assert not folder.exists() and all(each.exists() for each in kept)


# What is left alone


@pytest.mark.parametrize(
    "tag",
    [
        None,
        "",
        "# created by amplint\n",
        "Signature: 8a477f597d28d172789f06886806bc55\n# created by pytest\n",
        "Signature: 8a477f597d28d172789f06886806bc55\n",
        "\n" + TAG,
    ],
)
def test_a_folder_without_our_marker_is_left_alone(amplint, tag: str | None) -> None:
    folder = make_cache(FOLDER, tag)
    before = sorted(os.listdir(folder))
    result = amplint("clean")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {FOLDER}: left alone") and result.stderr.count("\n") == 1
    assert sorted(os.listdir(folder)) == before


def test_other_files_in_a_cache_folder_stay(amplint) -> None:
    Path("amplint.toml").write_text('cache-dir = "."\n')
    make_cache(".")
    Path("train.py").write_text("x = 1\n")
    Path("data.json").write_text("[]")
    result = amplint("clean")
    assert result.exit_code == 0 and "something else" in result.stdout
    assert sorted(os.listdir()) == [".git", ".gitignore", "amplint.toml", "data.json", "train.py"]


def test_an_ignore_file_with_other_content_stays(amplint) -> None:
    folder = make_cache(FOLDER)
    (folder / ".gitignore").write_text("*.log\n")
    amplint("clean")
    assert os.listdir(folder) == [".gitignore"]


def test_a_folder_of_the_user_in_a_cache_stays(amplint) -> None:
    folder = make_cache(FOLDER)
    (folder / "notes").mkdir()
    (folder / "notes" / "a.txt").touch()
    amplint("clean")
    assert (folder / "notes" / "a.txt").exists()


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_links_are_not_followed(amplint, tmp_path) -> None:
    elsewhere = make_cache(str(tmp_path / "elsewhere"))
    Path(FOLDER).symlink_to(elsewhere)
    assert amplint("clean").exit_code == 2
    assert (elsewhere / ENTRY).exists() and Path(FOLDER).is_symlink()


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_a_link_instead_of_a_marker_is_no_marker(amplint, tmp_path) -> None:
    folder = make_cache(FOLDER, None)
    (tmp_path / "tag").write_text(TAG)
    (folder / "CACHEDIR.TAG").symlink_to(tmp_path / "tag")
    assert amplint("clean").exit_code == 2
    assert (folder / ENTRY).exists()


def test_a_file_in_place_of_the_folder_is_left_alone(amplint) -> None:
    Path(FOLDER).write_text(TAG)
    assert amplint("clean").exit_code == 2 and Path(FOLDER).exists()


def test_one_foreign_folder_does_not_keep_our_cache(amplint) -> None:
    Path("amplint.toml").write_text('cache-dir = "var"\n')
    make_cache("var", None)
    make_cache(FOLDER)
    result = amplint("clean")
    assert (result.exit_code, result.stdout) == (2, f"removed {FOLDER}\n")
    assert Path("var", ENTRY).exists() and not Path(FOLDER).exists()


@pytest.mark.parametrize("args", [("gone",), ("",), ("--cache-dir", ""), ("--config", "gone.toml")])
def test_wrong_usage_removes_nothing(amplint, args) -> None:
    folder = make_cache(FOLDER)
    result = amplint("clean", *args)
    assert result.exit_code == 2 and "Traceback" not in result.stderr
    assert (folder / ENTRY).exists()


def test_a_broken_configuration_is_told_and_removes_nothing(amplint) -> None:
    folder = make_cache(FOLDER)
    Path("amplint.toml").write_text("[")
    assert amplint("clean").exit_code == 2
    assert folder.exists()


def test_what_cannot_be_removed_is_told_in_one_line(amplint, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    folder = make_cache(FOLDER)
    monkeypatch.setattr(os, "unlink", refuse)
    result = amplint("clean")
    assert (result.exit_code, result.stderr) == (2, f"error: {FOLDER} cannot be removed: Permission denied\n")
    assert (folder / "CACHEDIR.TAG").exists()
