"""Paths to files: what a run looks at, in an order that depends on nothing but the paths.

Ignore files mean here what they mean to git: an entry is matched by itself, the last matching pattern of the
deepest ignore file decides, and nothing below an ignored folder is looked at. pathspec does the matching.
"""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from amplint.config import Settings
from amplint.source import SourceError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

#: What a folder is searched for; a file that is named explicitly may be called anything.
SUFFIXES = (".py", ".pyi", ".ipynb")
#: A relative path without anything that `normpath` would change.
_PLAIN = re.compile(r"[^./][^/]*(?:/[^./][^/]*)*")
#: A pattern that matches the files and folders of this name and no others.
_NAME = re.compile(r"[\w.][\w.-]*\Z")


@dataclass(frozen=True)
class Discovery:
    """What the paths of a command line lead to."""

    #: Paths of the files, each once, sorted; relative ones are joined to the working directory.
    names: list[str] = field(default_factory=list)
    #: Paths that do not exist, are neither file nor folder, or cannot be read; sorted by name.
    problems: list[SourceError] = field(default_factory=list)

    @property
    def files(self) -> list[Path]:
        """The files; making thousands of `Path`s takes longer than finding them."""
        return [Path(name) for name in self.names]


def discover(paths: Sequence[Path], settings: Settings, cwd: Path) -> Discovery:
    """Find the Python files and notebooks that `paths`, relative ones to `cwd`, name or contain.

    A file or folder that is named is taken even if it is excluded or ignored (unless `force_exclude` is on);
    what lies in a folder is subject to `exclude`, `extend_exclude` and git's ignore files. Links to folders
    are followed last and only to folders that were not seen, so loops end, and real names are preferred.
    """
    cwd = Path(os.path.abspath(cwd))
    walk = _Walk(settings, str(cwd))
    folders = []
    for path in paths:
        shown = str(cwd / path)
        try:
            mode = os.stat(shown).st_mode
        except (OSError, ValueError) as error:
            walk.report(shown, error)
            continue
        if settings.force_exclude and walk.exclude.covers(shown, is_dir=stat.S_ISDIR(mode)):
            continue
        if stat.S_ISDIR(mode):
            real = os.path.realpath(shown)
            folders.append((real, os.path.normpath(shown) != real, shown))
        elif stat.S_ISREG(mode):
            walk.add(shown, os.path.realpath(shown))
        else:
            walk.problems.append(SourceError(display_name(Path(shown), cwd), "not a regular file"))
    for real, _, shown in sorted(folders):
        walk.enter(shown, real)
    walk.follow_links()
    files = sorted((shown for _, _, shown in walk.files.values()), key=_posix)
    return Discovery(files, sorted(walk.problems, key=str))


def display_name(path: Path | str, cwd: Path) -> str:
    """The name a file is reported under: relative to `cwd`, if it was given so or lies below, else as given.

    Forward slashes, no leading `./`; undecodable bytes in names stay surrogates.
    """
    shown = os.fspath(path)
    start = os.path.join(cwd, "")
    if shown.startswith(start) and _PLAIN.fullmatch(rest := _posix(shown[len(start) :])):
        return rest
    shown = os.path.join(cwd, path)
    if shown == str(cwd):
        return "."
    for base in (str(cwd), os.path.abspath(cwd)):
        prefix = base if base.endswith(os.sep) else base + os.sep
        if shown.startswith(prefix):
            shown = shown[len(prefix) :]
            break
    plain = os.path.normpath(shown)
    if ".." in _posix(shown).split("/"):  # a/../b is b unless a is a link
        inside = os.path.relpath(os.path.normpath(os.path.join(cwd, shown)), cwd)
        plain = plain if inside.startswith("..") else inside
        if os.path.realpath(os.path.join(cwd, plain)) != os.path.realpath(os.path.join(cwd, shown)):
            plain = shown
    return _posix(plain)


def _posix(path: str) -> str:
    """A path with forward slashes."""
    return path if os.sep == "/" else path.replace(os.sep, "/")


class IgnorePatterns:
    """The patterns of one ignore file, in the syntax of gitignore, relative to the folder `base`."""

    def __init__(self, patterns: Iterable[str], base: str) -> None:
        """Take `patterns`; they are compiled when they are first needed."""
        self._lines = [line for line in patterns if line.strip()]
        self._base = base

    @cached_property
    def _names(self) -> frozenset[str]:
        """The patterns that are mere names, unless others may undo what they decide."""
        if any(line.lstrip().startswith("!") for line in self._lines):
            return frozenset()
        return frozenset(line for line in self._lines if _NAME.match(line))

    @cached_property
    def _others(self) -> IgnorePatterns:
        """All but those that are mere names."""
        return IgnorePatterns([line for line in self._lines if line not in self._names], self._base)

    @cached_property
    def _for_files(self) -> GitIgnoreSpec:
        return _compile(self._lines)

    @cached_property
    def _for_folders(self) -> GitIgnoreSpec:
        """What folders are matched against, without a slash at the end of either side.

        With it pathspec takes `out/` for something in `out`: `out/**` would match, `*` would beat `!*/`.
        """
        return _compile(re.sub(r"/\s*\Z", "", line) for line in self._lines)

    def decide(self, path: str, *, is_dir: bool) -> bool | None:
        """Whether the entry at the absolute, normal `path` is ignored; None when no pattern matches it.

        It also matches when a folder above it does. Outside the base only the name of the entry counts.
        """
        if not self._lines:
            return None
        inside = path[len(self._base) :] if _is_below(path, self._base) else f"\0/{os.path.basename(path)}"
        if self._names:  # far cheaper than patterns, and most defaults are such
            if not self._names.isdisjoint(_posix(inside).split("/")):
                return True
            return self._others.decide(path, is_dir=is_dir)
        return (self._for_folders if is_dir else self._for_files).check_file(inside).include

    def covers(self, path: str, *, is_dir: bool = False) -> bool:
        """Whether the absolute `path` or a folder above it, up to the base, is ignored."""
        path = os.path.normpath(path)
        if self.decide(path, is_dir=is_dir):
            return True
        parent = os.path.dirname(path)
        return path != self._base and _is_below(parent, self._base) and self.covers(parent, is_dir=True)

    def within(self, folder: str) -> IgnorePatterns:
        """The patterns for a walk of `folder`, which was named: those that ignore it are left out."""
        if not _is_below(folder, self._base) or not self.covers(folder, is_dir=True):
            return self
        others = [
            line for line in self._lines if not IgnorePatterns([line], self._base).covers(folder, is_dir=True)
        ]
        return IgnorePatterns(others, self._base)


def _compile(lines: Iterable[str]) -> GitIgnoreSpec:
    """Compile the lines that pathspec accepts; git too skips those that are malformed."""
    from pathspec import GitIgnoreSpec

    valid = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `[[` goes into a regular expression as it is
        for line in lines:
            # The same to git; as they are, backtracking over them may take for ever.
            line = re.sub(r"\*{3,}", "**", line)
            with suppress(ValueError, re.error):
                GitIgnoreSpec.from_lines([line])
                valid.append(line)
        return GitIgnoreSpec.from_lines(valid)


class _Walk:
    """The state of one discovery; `shown` paths are what the user sees, `real` ones have no links in them."""

    def __init__(self, settings: Settings, cwd: str) -> None:
        self.cwd = cwd
        base = os.path.abspath(settings.root) if settings.root is not None else cwd
        self.exclude = IgnorePatterns((*settings.exclude, *settings.extend_exclude), base)
        self.respect_gitignore = settings.respect_gitignore
        #: By real path: (is a link or lies behind one, length, shown); the smallest is kept.
        self.files: dict[str, tuple[bool, int, str]] = {}
        self.problems: list[SourceError] = []
        self._seen: set[str] = set()
        #: Links to folders, and the folder whose walk met them.
        self._links: list[tuple[str, str, str]] = []

    def report(self, shown: str, error: Exception) -> None:
        """Note that a path cannot be used."""
        reason = getattr(error, "strerror", None) or str(error)
        message = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {reason}"
        self.problems.append(SourceError(display_name(Path(shown), Path(self.cwd)), message))

    def add(self, shown: str, real: str) -> None:
        """Take a file, unless it is known by a better name."""
        rank = (os.path.normpath(shown) != real, len(shown), shown)
        self.files[real] = min(rank, self.files.get(real, rank))

    def enter(self, shown: str, real: str) -> None:
        """Take the Python files and notebooks below a folder; links to folders are kept for later."""
        top = real
        exclude = self.exclude.within(os.path.normpath(shown))
        stack = [(shown, real, self._ignores_above(real, top))]
        while stack:
            shown, real, ignores = stack.pop()
            if real in self._seen:
                continue
            self._seen.add(real)
            try:
                with os.scandir(shown) as listing:
                    entries = list(listing)
            except FileNotFoundError:  # removed while we were on our way
                continue
            except OSError as error:
                self.report(shown, error)
                continue
            if self.respect_gitignore:
                ignores = _with_own_ignores(ignores, real, {entry.name for entry in entries})
            for entry in entries:
                try:
                    is_dir, is_link = entry.is_dir(), entry.is_symlink()
                    if not is_dir and not (entry.name.endswith(SUFFIXES) and entry.is_file()):
                        continue
                except OSError:  # a link to itself
                    continue
                inner = os.path.join(real, entry.name)
                is_folder = is_dir and not is_link
                if exclude.decide(os.path.normpath(entry.path), is_dir=is_folder) or _ignored(
                    inner, ignores, is_folder
                ):
                    continue
                if not is_dir:
                    self.add(entry.path, os.path.realpath(inner) if is_link else inner)
                elif is_link:
                    self._links.append((entry.path, os.path.realpath(inner), top))
                else:
                    stack.append((entry.path, inner, ignores))

    def follow_links(self) -> None:
        """Enter the folders that links lead to, except those that were seen, skipped or contain the link."""
        while self._links:
            links, self._links = sorted(self._links), []
            for shown, real, top in links:
                home = os.path.realpath(os.path.dirname(shown))
                if not _is_below(home, real) and not self._skips_target(shown, real, top):
                    self.enter(shown, real)

    def _skips_target(self, shown: str, real: str, top: str) -> bool:
        """Whether a link leads to what would have been skipped under its own name."""
        if not _is_below(real, top):
            target = os.path.join(os.path.dirname(shown), os.path.basename(real))
            return bool(self.exclude.decide(os.path.normpath(target), is_dir=True))
        exclude = self.exclude.within(top)
        while real != top:
            if exclude.decide(real, is_dir=True) or _ignored(real, self._ignores_above(real, top), True):
                return True
            real = os.path.dirname(real)
        return False

    def _ignores_above(self, folder: str, top: str) -> tuple[IgnorePatterns, ...]:
        """Ignore files from the repository that `folder` lies in to its parent, as they hold within `top`."""
        parents = []
        while self.respect_gitignore and not os.path.lexists(os.path.join(folder, ".git")):
            parent = os.path.dirname(folder)
            if parent == folder:
                return ()
            parents.append(parent)
            folder = parent
        ignores: tuple[IgnorePatterns, ...] = ()
        for parent in reversed(parents):
            ignores = _with_own_ignores(ignores, parent, {".git", ".gitignore"})
        return tuple(ignore.within(top) for ignore in ignores)


def _ignored(path: str, ignores: tuple[IgnorePatterns, ...], is_dir: bool) -> bool:
    """Whether the deepest ignore file with a pattern for `path` ignores it."""
    decisions = (ignore.decide(path, is_dir=is_dir) for ignore in reversed(ignores))
    return next((decision for decision in decisions if decision is not None), False)


def _is_below(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies in it; both real."""
    return path == folder or path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def _with_own_ignores(
    ignores: tuple[IgnorePatterns, ...], folder: str, names: set[str]
) -> tuple[IgnorePatterns, ...]:
    """Ignore files in force inside a folder with entries of these names; a repository starts afresh."""
    if ".git" in names:
        git = os.path.join(folder, ".git")
        if os.path.lexists(git):
            ignores = _read_ignores(os.path.join(_common_git_folder(git), "info", "exclude"), folder)
    if ".gitignore" in names:
        ignores += _read_ignores(os.path.join(folder, ".gitignore"), folder)
    return ignores


def _common_git_folder(git: str) -> str:
    """The folder that holds `info/exclude`: worktrees and submodules have a file that says where it is."""
    pointer = _read_regular(git)
    if pointer is None or not pointer.startswith("gitdir:"):
        return git
    target = os.path.join(os.path.dirname(git), pointer.removeprefix("gitdir:").strip())
    common = _read_regular(os.path.join(target, "commondir"))
    return target if common is None else os.path.join(target, common.strip())


def _read_ignores(path: str, base: str) -> tuple[IgnorePatterns, ...]:
    text = _read_regular(path)
    return () if text is None else (IgnorePatterns(text.removeprefix("\ufeff").split("\n"), base),)


def _read_regular(path: str) -> str | None:
    """Text of a regular file, undecodable bytes as surrogates like in names; None if there is none to read.

    Links are not followed, as git does not, and a FIFO is not waited for.
    """
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return None
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return None
