from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from amplint.config import Settings
from amplint.discover import Discovery, IgnorePatterns, discover, display_name

needs_posix = pytest.mark.skipif(os.name != "posix", reason="POSIX files")
needs_user = pytest.mark.skipif(
    os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    return root


@pytest.fixture
def repository(tree: Path) -> Path:
    (tree / ".git" / "info").mkdir(parents=True)
    return tree


def make(root: Path, *names: str, content: str = "") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def ignore(root: Path, *lines: str, name: str = ".gitignore") -> None:
    make(root, name, content="\n".join(lines) + "\n")


def find(root: Path, *paths: str | Path, settings: Settings | None = None) -> Discovery:
    return discover([Path(path) for path in paths or ["."]], settings or Settings(), root)


def names(root: Path, *paths: str | Path, settings: Settings | None = None) -> list[str]:
    found = find(root, *paths, settings=settings)
    assert found.problems == []
    return [display_name(path, root) for path in found.files]


# Walking


def test_a_folder_is_searched_for_python_files_stubs_and_notebooks(tree: Path) -> None:
    make(tree, "b.py", "a.pyi", "pkg/c.py", "pkg/sub/d.py")
    make(tree, "README.md", "e.pyc", "f.PY", "py", "g.py.bak", "h.ipynb")
    assert names(tree) == ["a.pyi", "b.py", "h.ipynb", "pkg/c.py", "pkg/sub/d.py"]


def test_hidden_files_and_folders_are_searched(tree: Path) -> None:
    make(tree, ".hidden.py", ".ci/build.py")
    assert names(tree) == [".ci/build.py", ".hidden.py"]


def test_an_empty_folder_and_no_path_at_all_give_nothing(tree: Path) -> None:
    assert names(tree) == []
    assert discover([], Settings(), tree) == Discovery([], [])


def test_a_folder_named_like_a_file_is_walked_and_not_taken(tree: Path) -> None:
    make(tree, "odd.py/inner.py")
    assert names(tree) == ["odd.py/inner.py"]


def test_the_order_does_not_depend_on_the_order_of_folders(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tree, *(f"{folder}/{name}.py" for folder in ("z", "a", "a-b", "m/n") for name in ("b", "a", "c")))
    expected = names(tree)
    real = os.scandir

    class Shuffled:
        def __init__(self, path: str) -> None:
            self.entries = list(real(path))
            random.Random(7).shuffle(self.entries)

        def __enter__(self) -> list[os.DirEntry[str]]:
            return self.entries

        def __exit__(self, *_: object) -> None:
            return None

    monkeypatch.setattr(os, "scandir", Shuffled)
    assert names(tree) == expected == sorted(expected)


def test_very_deep_folders_are_no_problem(tree: Path) -> None:
    deep = tree.joinpath(*["d"] * 300)
    deep.mkdir(parents=True)
    (deep / "a.py").write_text("")
    assert len(names(tree)) == 1


def test_files_are_paths_that_can_be_opened_from_anywhere(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tree, "pkg/a.py")
    monkeypatch.chdir(tmp_path)
    assert find(tree, "pkg").files == [tree / "pkg" / "a.py"]


# Explicit paths


def test_a_file_that_is_named_is_taken_whatever_its_suffix(tree: Path) -> None:
    make(tree, "train", "a.txt", "b.py")
    assert names(tree, "train", "a.txt") == ["a.txt", "train"]


@pytest.mark.parametrize("path", ["build/a.py", "venv/lib/a.py", "ignored/a.py", "legacy.py"])
def test_a_file_that_is_named_is_taken_although_excluded(repository: Path, path: str) -> None:
    make(repository, path)
    ignore(repository, "ignored/")
    settings = Settings(extend_exclude=("legacy.py",))
    assert names(repository, settings=settings) == []
    assert names(repository, path, settings=settings) == [path]


@pytest.mark.parametrize("path", ["build/a.py", "pkg/venv/lib/a.py", "legacy.py", "src/old/deep/a.py"])
def test_force_exclude_leaves_out_excluded_files_that_are_named(tree: Path, path: str) -> None:
    make(tree, path, "a.py")
    settings = Settings(extend_exclude=("legacy.py", "src/old"), force_exclude=True)
    assert names(tree, path, "a.py", settings=settings) == ["a.py"]


def test_force_exclude_leaves_out_excluded_folders_that_are_named(tree: Path) -> None:
    make(tree, "build/a.py", "src/b.py")
    assert names(tree, "build", "src", settings=Settings(force_exclude=True)) == ["src/b.py"]


def test_force_exclude_does_not_look_at_folders_above_the_project(tmp_path: Path) -> None:
    make(tmp_path, "build/project/a.py")
    root = tmp_path / "build" / "project"
    assert names(root, "a.py", ".", settings=Settings(force_exclude=True, root=root)) == ["a.py"]


@pytest.mark.parametrize(
    "folder", ["build", "venv/lib/site-packages/pkg", "ignored", "src/old", ".git/hooks"]
)
def test_a_folder_that_is_named_is_walked_although_excluded(repository: Path, folder: str) -> None:
    make(repository, f"{folder}/a.py", f"{folder}/sub/b.py", f"{folder}/__pycache__/c.py")
    ignore(repository, "ignored/")
    settings = Settings(extend_exclude=("src/old",))
    assert names(repository, folder, settings=settings) == [f"{folder}/a.py", f"{folder}/sub/b.py"]


def test_a_path_that_does_not_exist_is_a_problem_and_the_others_go_on(tree: Path) -> None:
    make(tree, "a.py")
    found = find(tree, "gone", "a.py", "also/gone.py")
    assert [path.name for path in found.files] == ["a.py"]
    assert [(error.filename, error.message) for error in found.problems] == [
        ("also/gone.py", "does not exist"),
        ("gone", "does not exist"),
    ]


def test_a_file_used_as_a_folder_is_a_problem(tree: Path) -> None:
    make(tree, "a.py")
    (error,) = find(tree, "a.py/b.py").problems
    assert error.message.startswith("cannot be read: ")


def test_a_path_with_a_nul_is_a_problem(tree: Path) -> None:
    (error,) = find(tree, "a\0b.py").problems
    assert error.message.startswith("cannot be read")


def test_each_file_is_found_once_however_often_it_is_named(tree: Path) -> None:
    make(tree, "pkg/a.py", "pkg/b.py")
    paths: list[str | Path] = ["pkg", "pkg/a.py", "./pkg/../pkg/a.py", tree / "pkg" / "a.py", ".", tree]
    assert names(tree, *paths) == ["pkg/a.py", "pkg/b.py"]
    assert find(tree, *paths) == find(tree, *reversed(paths))


def test_the_order_of_nested_folders_on_the_command_line_does_not_matter(tree: Path) -> None:
    make(tree, "a/b/x.py", "a/b/y.py", "a/z.py")
    ignore(tree, "b/x.py", name="a/.gitignore")
    assert names(tree, "a", "a/b") == names(tree, "a/b", "a") == ["a/b/y.py", "a/z.py"]


def test_files_outside_the_working_directory_are_found(tree: Path) -> None:
    make(tree, "a.py", "sub/b.py")
    found = find(tree / "sub", "..", "../a.py")
    assert [display_name(path, tree / "sub") for path in found.files] == ["../a.py", "b.py"]


# Excludes


@pytest.mark.parametrize(
    "folder",
    [
        *(".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "node_modules", ".tox", ".nox", "build"),
        *("dist", "site-packages", ".eggs", "x.egg-info", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
    ],
)
def test_default_excludes_hold_at_any_depth(tree: Path, folder: str) -> None:
    make(tree, f"{folder}/a.py", f"pkg/{folder}/deep/b.py", "pkg/c.py")
    assert names(tree) == ["pkg/c.py"]


def test_names_that_only_contain_an_excluded_name_are_not_excluded(tree: Path) -> None:
    make(tree, "builds/a.py", "my-venv/b.py", "dist.py", "build.py", "egg-info/c.py")
    assert names(tree) == ["build.py", "builds/a.py", "dist.py", "egg-info/c.py", "my-venv/b.py"]


def test_exclude_replaces_the_defaults_and_extend_exclude_adds(tree: Path) -> None:
    make(tree, "build/a.py", "legacy/b.py", "c.py")
    assert names(tree, settings=Settings(exclude=("legacy",))) == ["build/a.py", "c.py"]
    assert names(tree, settings=Settings(extend_exclude=("legacy",))) == ["c.py"]


def test_exclude_patterns_with_a_slash_are_relative_to_the_configuration(tree: Path) -> None:
    make(tree, "src/gen/a.py", "src/pkg/src/gen/b.py", "other/c.py")
    settings = Settings(extend_exclude=("src/gen", "/other/*.py"), root=tree)
    assert names(tree, settings=settings) == ["src/pkg/src/gen/b.py"]
    assert names(tree / "src", settings=settings) == ["pkg/src/gen/b.py"]


def test_an_extended_exclude_can_take_a_default_back(tree: Path) -> None:
    make(tree, "build/a.py", "dist/b.py")
    assert names(tree, settings=Settings(extend_exclude=("!build",))) == ["build/a.py"]


def test_excludes_hold_although_an_ignore_file_brings_a_file_back(tree: Path) -> None:
    make(tree, "gen/a.py", "b.py")
    ignore(tree, "!gen/")
    assert names(tree, settings=Settings(extend_exclude=("gen",))) == ["b.py"]


# Ignore files


def test_ignored_files_and_folders_are_not_searched(repository: Path) -> None:
    make(repository, "a.py", "out/b.py", "pkg/out/c.py", "gen_x.py", "pkg/d.py")
    ignore(repository, "# comment", "", "out/", "gen_*.py")
    assert names(repository) == ["a.py", "pkg/d.py"]


def test_ignore_files_count_only_while_they_are_respected(repository: Path) -> None:
    make(repository, "a.py", "b.py")
    ignore(repository, "b.py")
    ignore(repository, "a.py", name=".git/info/exclude")
    assert names(repository) == []
    assert names(repository, settings=Settings(respect_gitignore=False)) == ["a.py", "b.py"]


def test_a_nested_ignore_file_holds_below_its_folder_only(repository: Path) -> None:
    make(repository, "x.py", "pkg/x.py", "pkg/sub/x.py", "pkg/y.py")
    ignore(repository, "x.py", name="pkg/.gitignore")
    assert names(repository) == ["pkg/y.py", "x.py"]


def test_a_nested_ignore_file_takes_back_what_an_outer_one_ignores(repository: Path) -> None:
    make(repository, "x.py", "pkg/x.py")
    ignore(repository, "x.py")
    ignore(repository, "!x.py", name="pkg/.gitignore")
    assert names(repository) == ["pkg/x.py"]


def test_nothing_below_an_ignored_folder_comes_back(repository: Path) -> None:
    make(repository, "out/keep.py")
    ignore(repository, "out/", "!out/keep.py")
    ignore(repository, "!keep.py", name="out/.gitignore")
    assert names(repository) == []


@pytest.mark.parametrize("everything", ["out/*", "out/**"])
def test_a_file_comes_back_when_only_the_contents_of_its_folder_are_ignored(
    repository: Path, everything: str
) -> None:
    make(repository, "out/keep.py", "out/drop.py", "out/sub/drop.py")
    ignore(repository, everything, "!out/keep.py")
    assert names(repository) == ["out/keep.py"]


@pytest.mark.parametrize("path", [".", "src", "src/deep"])
def test_everything_may_be_ignored_but_some_files_in_any_folder(repository: Path, path: str) -> None:
    make(repository, "src/deep/keep.py", "src/deep/drop.py", "src/drop.py", "drop.py")
    ignore(repository, "*", "!*/", "!keep.py")
    assert names(repository, path) == ["src/deep/keep.py"]


def test_ignore_files_above_the_path_hold_up_to_the_repository(repository: Path) -> None:
    make(repository, "pkg/sub/a.py", "pkg/sub/b.py", "pkg/sub/c.py", "pkg/sub/d.py")
    ignore(repository, "a.py")
    ignore(repository, "sub/b.py", name="pkg/.gitignore")
    ignore(repository, "/pkg/sub/c.py", name=".git/info/exclude")
    ignore(repository.parent, "d.py")
    assert names(repository / "pkg" / "sub") == ["d.py"]


def test_outside_a_repository_ignore_files_above_the_path_do_not_count(tree: Path) -> None:
    make(tree, "pkg/a.py", "pkg/b.py", "pkg/sub/b.py")
    ignore(tree, "a.py")
    ignore(tree, "b.py", name="pkg/.gitignore")
    assert names(tree / "pkg") == ["a.py"]


def test_a_repository_inside_another_has_ignore_files_of_its_own(repository: Path) -> None:
    make(repository, "x.py", "sub/x.py", "sub/y.py", "sub/.git/HEAD")
    ignore(repository, "x.py")
    ignore(repository, "y.py", name="sub/.git/info/exclude")
    assert names(repository) == ["sub/x.py"]
    assert names(repository / "sub") == ["x.py"]


def test_a_worktree_reads_the_exclude_file_of_its_repository(tree: Path) -> None:
    make(tree, "main/.git/worktrees/w/commondir", content="../..\n")
    ignore(tree, "x.py", name="main/.git/info/exclude")
    make(tree, "w/.git", content="gitdir: ../main/.git/worktrees/w\n")
    make(tree, "w/x.py", "w/y.py")
    assert names(tree / "w") == ["y.py"]


def test_an_ignore_file_may_have_a_bom_crlf_and_no_final_newline(repository: Path) -> None:
    make(repository, "a.py", "b.py", "c.py")
    (repository / ".gitignore").write_bytes(b"\xef\xbb\xbfa.py\r\nb.py")
    assert names(repository) == ["c.py"]


@needs_posix
@pytest.mark.parametrize("kind", ["folder", "fifo", "dangling", "link"])
def test_an_ignore_file_that_is_no_regular_file_is_not_read(repository: Path, kind: str) -> None:
    make(repository, "a.py")
    path = repository / ".gitignore"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "dangling":
        path.symlink_to("gone")
    else:
        ignore(repository, "a.py", name="elsewhere")
        path.symlink_to("elsewhere")
    assert names(repository) == ["a.py"]


@needs_user
def test_an_unreadable_ignore_file_is_skipped(repository: Path) -> None:
    make(repository, "a.py")
    ignore(repository, "a.py")
    (repository / ".gitignore").chmod(0)
    assert names(repository) == ["a.py"]


# Patterns


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("a.py", "a.py"),
        ("a.py", "x/a.py"),
        ("/a.py", "a.py"),
        ("x/a.py", "x/a.py"),
        ("**/a.py", "a.py"),
        ("**/a.py", "x/y/a.py"),
        ("x/**/a.py", "x/a.py"),
        ("x/**/a.py", "x/y/z/a.py"),
        ("x/**", "x/y/a.py"),
        ("*.py", "x/a.py"),
        ("a*", "abc"),
        ("?.py", "a.py"),
        ("[a-c].py", "b.py"),
        ("[!a].py", "b.py"),
        ("[^a].py", "b.py"),
        ("[]a].py", "].py"),
        ("[a-].py", "-.py"),
        ("\\#a.py", "#a.py"),
        ("\\!a.py", "!a.py"),
        ("a\\*.py", "a*.py"),
        ("a.py   ", "a.py"),
        ("a.py\r", "a.py"),
        ("a.py\\ ", "a.py "),
        (" a.py", " a.py"),
        ("a.b", "a.b"),
        ("***", "a.py"),
        ("a\n*", "a\nb.py"),
        ("*.py", "a\nb.py"),
        ("*.py", "\udcff.py"),
    ],
)
def test_a_pattern_matches(pattern: str, path: str) -> None:
    patterns = IgnorePatterns([pattern], os.sep + "root")
    full = os.path.join(os.sep + "root", *path.split("/"))
    assert patterns.decide(full, is_dir=False) is True


# Unlike git, pathspec lets `x` match what lies in x, `[!b]` a slash, and does not know [[:digit:]].
@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("a.py", "ba.py"),
        ("a.py", "a.pyi"),
        ("a.py", "A.py"),
        ("/a.py", "x/a.py"),
        ("x/a.py", "y/x/a.py"),
        ("x/*", "y/x/a.py"),
        ("x/**", "x"),
        ("a.py/", "a.py"),
        ("?.py", "ab.py"),
        ("[a", "[a"),
        ("[a", "a"),
        ("[]", "]"),
        ("[!]", "!"),
        ("[z-a]", "b"),
        ("[[:nonsense:]]", "a"),
        ("x[/]a.py", "x/a.py"),
        ("a\\", "a"),
        ("a\\", "a\\"),
        ("a.b", "axb"),
        ("# a.py", "a.py"),
        ("#a.py", "#a.py"),
        ("!", "a.py"),
        ("/", "a.py"),
        ("", "a.py"),
        ("  ", "a.py"),
        ("a**b/c", "axx/xb/c"),
        ("(a|b).py", "a.py"),
        ("a.py$", "a.py"),
    ],
)
def test_a_pattern_does_not_match(pattern: str, path: str) -> None:
    patterns = IgnorePatterns([pattern], os.sep + "root")
    full = os.path.join(os.sep + "root", *path.split("/"))
    assert patterns.decide(full, is_dir=False) is None


@pytest.mark.parametrize(
    ("patterns", "decision"),
    [
        (["a.py", "!a.py"], False),
        (["!a.py", "a.py"], True),
        (["*.py", "!a.py"], False),
        (["!a.py", "*.py"], True),
        (["a.py", "!*.py"], False),
        (["/a.py", "!a.py", "b.py"], False),
        (["*", "!*/"], True),
        (["*.py", "!a.py", "/a.*"], True),
    ],
)
def test_the_last_matching_pattern_decides(patterns: list[str], decision: bool) -> None:
    path = os.path.join(os.sep + "root", "a.py")
    assert IgnorePatterns(patterns, os.sep + "root").decide(path, is_dir=False) is decision


def test_patterns_for_paths_do_not_hold_outside_their_base() -> None:
    patterns = IgnorePatterns(["/a.py", "x/b.py", "*.pyi"], os.path.join(os.sep, "root"))
    outside = os.path.join(os.sep, "rooted")
    assert patterns.decide(os.path.join(outside, "a.py"), is_dir=False) is None
    assert patterns.decide(os.path.join(outside, "a.pyi"), is_dir=False) is True


def test_patterns_cover_what_lies_below_a_matching_folder() -> None:
    base = os.path.join(os.sep, "root")
    patterns = IgnorePatterns(["tests/", "/gen"], base)
    assert patterns.covers(os.path.join(base, "pkg", "tests", "unit", "a.py"))
    assert patterns.covers(os.path.join(base, "gen", "a.py"))
    assert patterns.covers(os.path.join(base, "pkg", "tests"), is_dir=True)
    assert not patterns.covers(os.path.join(base, "pkg", "tests"))
    assert not patterns.covers(os.path.join(base, "pkg", "gen", "a.py"))
    assert not patterns.covers(base)


# Left out because pathspec reads them differently from git: classes ([[:alpha:]]), brackets that are not
# closed before a slash ([ and [!]), and *** as a whole part. Different too, but not met with the seeds below:
# `foo/**/` takes files, `foo\/a` is not skipped, a deeper `!foo/` frees what lies in foo from outer files.
PATTERN_PARTS = [
    *("*", "**", "?", "a", "b", "foo", "fo*", "*.py", "a.py", "[ab].py", "[!a]*", "[a-f]*", "keep.py"),
    *("*o", "x[0-9].py", "[]a]*", "\\#h", "\\!n.py", "foo\\", "[^b]*", "fo-o"),
    *("[a-]*", "[]-]*", "#h"),
]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("seed", range(12))
def test_ignore_files_mean_what_they_mean_to_git(repository: Path, seed: int) -> None:
    choose = random.Random(seed)
    folders = ["a", "b", "foo", "bar", "x!y", "#h", "fo-o"]
    files = ["a.py", "b.py", "foo.py", "keep.py", "#h.py", "!n.py", "x1.py", "a b.py"]
    for _ in range(40):
        parts = [choose.choice(folders) for _ in range(choose.randint(0, 3))]
        make(repository, "/".join([*parts, choose.choice(files)]))

    def pattern() -> str:
        body = "/".join(choose.choice(PATTERN_PARTS) for _ in range(choose.choice([1, 1, 1, 2, 2, 3])))
        return choose.choice(["", "", "!", "/"]) + body + choose.choice(["", "", "/", "  "])

    inner = [path for path in sorted(repository.rglob("*")) if path.is_dir() and ".git" not in path.parts]
    for folder in [repository, *choose.sample(inner, 3)]:
        ignore(folder, *(pattern() for _ in range(4)))
    shutil.rmtree(repository / ".git")
    git = ["git", "-C", str(repository), "-c", "core.excludesFile="]
    subprocess.run([*git, "init", "-q"], check=True)
    listed = subprocess.run(
        [*git, "ls-files", "-z", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
    )
    expected = sorted(name for name in listed.stdout.split("\0") if name.endswith(".py"))
    assert names(repository) == expected


# Links and odd files


@needs_posix
def test_loops_of_links_end(tree: Path) -> None:
    make(tree, "pkg/a.py")
    (tree / "pkg" / "self").symlink_to(".")
    (tree / "pkg" / "up").symlink_to("..")
    (tree / "pkg" / "top").symlink_to(tree)
    (tree / "left").mkdir()
    (tree / "right").mkdir()
    (tree / "left" / "right").symlink_to(tree / "right")
    (tree / "right" / "left").symlink_to(tree / "left")
    (tree / "me.py").symlink_to("me.py")
    assert names(tree) == ["pkg/a.py"]


@needs_posix
def test_a_link_to_a_folder_above_the_path_is_not_followed(tree: Path) -> None:
    make(tree, "a.py", "pkg/b.py")
    (tree / "pkg" / "out").symlink_to(tree)
    assert names(tree, "pkg") == ["pkg/b.py"]


@needs_posix
def test_a_link_to_a_folder_elsewhere_is_followed_once(tree: Path, tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/a.py", "elsewhere/sub/b.py")
    make(tree, "c.py")
    (tree / "z").symlink_to(tmp_path / "elsewhere")
    (tree / "y").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(tree)
    assert names(tree) == ["c.py", "y/a.py", "y/sub/b.py"]


@needs_posix
def test_files_are_reported_under_their_real_names(tree: Path) -> None:
    make(tree, "z/a.py", "z/b.py")
    (tree / "a").symlink_to("z")
    (tree / "aa.py").symlink_to("z/a.py")
    assert names(tree) == names(tree, "aa.py", "z", "a") == names(tree, "a", "z") == ["z/a.py", "z/b.py"]


@needs_posix
def test_a_link_that_is_named_is_taken_under_its_name(tree: Path, tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/a.py")
    (tree / "link").symlink_to(tmp_path / "elsewhere")
    (tree / "b.py").symlink_to(tmp_path / "elsewhere" / "a.py")
    assert names(tree, "link") == ["link/a.py"]
    assert names(tree, "b.py") == ["b.py"]


@needs_posix
@pytest.mark.parametrize("target", ["venv", "out", "deep/out/sub"])
def test_a_link_to_what_is_excluded_or_ignored_is_not_followed(repository: Path, target: str) -> None:
    make(repository, f"{target}/a.py", "b.py")
    ignore(repository, "out/")
    (repository / "current").symlink_to(repository / target)
    assert names(repository) == ["b.py"]


@needs_posix
def test_a_link_that_is_excluded_or_ignored_is_not_followed(repository: Path, tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/a.py")
    for link in ("venv", "data"):
        (repository / link).symlink_to(tmp_path / "elsewhere")
    ignore(repository, "data")
    assert names(repository) == []


@needs_posix
def test_hard_links_are_files_of_their_own(tree: Path) -> None:
    make(tree, "a.py")
    os.link(tree / "a.py", tree / "b.py")
    assert names(tree) == ["a.py", "b.py"]


@needs_posix
def test_dangling_links_are_skipped_unless_they_are_named(tree: Path) -> None:
    (tree / "a.py").symlink_to("gone.py")
    assert names(tree) == []
    (error,) = find(tree, "a.py").problems
    assert error.message == "does not exist"


@needs_posix
def test_fifos_and_sockets_are_skipped_and_not_opened(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tree / "pipe.py")
    (tree / "null.py").symlink_to(os.devnull)
    monkeypatch.chdir(tree)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.py")
        assert names(tree) == []
        errors = find(tree, "pipe.py", "null.py", "socket.py").problems
    assert [error.message for error in errors] == ["not a regular file"] * 3


@needs_posix
def test_names_with_newlines_blanks_and_undecodable_bytes_are_found(tree: Path) -> None:
    odd = [b"new\nline.py", b" blank .py", b"tab\t.py", b"latin\xe9.py", "ünï.py".encode(), b"-dash.py"]
    try:
        for name in odd:
            Path(os.fsdecode(os.fsencode(tree) + b"/" + name)).write_text("")
    except OSError:
        pytest.skip("the file system refuses such names")
    assert names(tree) == sorted(os.fsdecode(name) for name in odd)
    assert names(tree, *map(os.fsdecode, odd)) == names(tree)


@needs_posix
def test_an_ignore_file_can_name_undecodable_bytes(repository: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(repository) + b"/latin\xe9.py")).write_text("")
    except OSError:
        pytest.skip("the file system refuses such names")
    (repository / ".gitignore").write_bytes(b"latin\xe9.py\n")
    assert names(repository) == []


@needs_user
def test_an_unreadable_folder_is_a_problem_and_the_others_go_on(tree: Path) -> None:
    make(tree, "closed/a.py", "b.py")
    (tree / "closed").chmod(0)
    try:
        found = find(tree)
    finally:
        (tree / "closed").chmod(0o755)
    assert [path.name for path in found.files] == ["b.py"]
    assert [str(error) for error in found.problems] == ["closed: cannot be read: Permission denied"]


def test_a_folder_that_cannot_be_listed_is_a_problem(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tree, "closed/a.py", "b.py")
    real = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = find(tree)
    assert [path.name for path in found.files] == ["b.py"]
    assert [str(error) for error in found.problems] == ["closed: cannot be read: Permission denied"]


def test_a_folder_that_vanishes_during_the_walk_is_no_problem(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tree, "gone/a.py", "b.py")
    real = os.scandir

    def vanish(path: str) -> object:
        if str(path).endswith("gone"):
            shutil.rmtree(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", vanish)
    assert names(tree) == ["b.py"]


# Names


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a.py", "a.py"),
        ("./a.py", "a.py"),
        ("./pkg//a.py", "pkg/a.py"),
        ("pkg/./a.py", "pkg/a.py"),
        ("pkg/../a.py", "a.py"),
        ("../a.py", "../a.py"),
        ("../project/a.py", "a.py"),
        ("a\nb.py", "a\nb.py"),
        ("\udcff.py", "\udcff.py"),
        (" a.py", " a.py"),
        (".hidden.py", ".hidden.py"),
        ("..a.py", "..a.py"),
        ("é.py", "é.py"),
    ],
)
def test_names_are_relative_to_the_working_directory(tree: Path, path: str, name: str) -> None:
    (tree / "pkg").mkdir()
    assert display_name(Path(path), tree) == name
    assert display_name(tree / path, tree) == name


def test_an_absolute_path_elsewhere_keeps_its_name(tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "a.py"
    assert display_name(other, tree) == other.as_posix()
    assert display_name(tmp_path / "project-2" / "a.py", tree) == (tmp_path / "project-2" / "a.py").as_posix()


@needs_posix
def test_a_name_is_not_shortened_across_a_link(tree: Path, tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/sub/b.py", "elsewhere/a.py")
    (tree / "link").symlink_to(tmp_path / "elsewhere" / "sub")
    assert display_name(Path("link/../a.py"), tree) == "link/../a.py"
    assert names(tree, "link/../a.py") == ["link/../a.py"]


def test_the_working_directory_itself_is_a_dot(tree: Path) -> None:
    assert display_name(tree, tree) == display_name(Path("."), tree) == "."
