"""Paths to files: what a run looks at, in an order that depends on nothing but the paths.

Ignore files mean here what they mean to git: an entry is matched by itself, the last matching pattern of the
deepest ignore file decides, and nothing below an ignored folder is looked at. The matching is our own:
pathspec costs 90 us a path and 60 ms of import, raises on lines that git skips, and cannot say that `foo/**`
ignores what is in `foo` but not `foo` itself, on which a later `!foo/keep.py` depends.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from amplint.config import Settings
from amplint.source import SourceError

#: What a folder is searched for; a file that is named explicitly may be called anything.
SUFFIXES = (".py", ".pyi")


@dataclass(frozen=True)
class Discovery:
    """What the paths of a command line lead to."""

    #: Each file once, sorted; relative paths are joined to the working directory.
    files: list[Path] = field(default_factory=list)
    #: Paths that do not exist, are neither file nor folder, or cannot be read; sorted by name.
    problems: list[SourceError] = field(default_factory=list)


def discover(paths: Sequence[Path], settings: Settings, cwd: Path) -> Discovery:
    """Find the Python files that `paths`, relative ones to `cwd`, name or contain.

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
    files = sorted((shown for _, _, shown in walk.files.values()), key=lambda shown: Path(shown).as_posix())
    return Discovery([Path(shown) for shown in files], sorted(walk.problems, key=str))


def display_name(path: Path, cwd: Path) -> str:
    """The name a file is reported under: relative to `cwd`, if it was given so or lies below, else as given.

    Forward slashes, no leading `./`; undecodable bytes in names stay surrogates.
    """
    shown = os.path.join(cwd, path)
    if shown == str(cwd):
        return "."
    for base in (str(cwd), os.path.abspath(cwd)):
        prefix = base if base.endswith(os.sep) else base + os.sep
        if shown.startswith(prefix):
            shown = shown[len(prefix) :]
            break
    plain = os.path.normpath(shown)
    if ".." in Path(shown).parts:  # a/../b is b unless a is a link
        inside = os.path.relpath(os.path.normpath(os.path.join(cwd, shown)), cwd)
        plain = plain if inside.startswith("..") else inside
        if os.path.realpath(os.path.join(cwd, plain)) != os.path.realpath(os.path.join(cwd, shown)):
            plain = shown
    return Path(plain).as_posix()


class IgnorePatterns:
    """The patterns of one ignore file, in the syntax of gitignore, relative to the folder `base`."""

    def __init__(self, patterns: Iterable[str], base: str) -> None:
        """Compile `patterns`; lines that git would skip (blank, comments, malformed) are skipped."""
        self._base = base
        self._prefix = base if base.endswith(os.sep) else base + os.sep
        #: By name or by path from the base, for patterns without wildcards: most of them.
        self._names: dict[str, list[_Pattern]] = {}
        self._paths: dict[str, list[_Pattern]] = {}
        self._globs: list[_Pattern] = []
        for index, line in enumerate(patterns):
            pattern = _compile(index, line)
            if pattern is None:
                continue
            if pattern.regex is not None:
                self._globs.insert(0, pattern)
            else:
                literals = self._paths if pattern.anchored else self._names
                literals.setdefault(pattern.literal, []).insert(0, pattern)

    def decide(self, path: str, name: str, *, is_dir: bool) -> bool | None:
        """Whether the entry at the absolute `path` is ignored; None when no pattern matches it.

        Folders above it are not considered.
        """
        relative = path[len(self._prefix) :] if path.startswith(self._prefix) else None
        best: _Pattern | None = None
        candidates = self._names.get(name, ())
        for literals in (candidates, self._paths.get(relative, ()) if relative is not None else ()):
            for pattern in literals:
                if (is_dir or not pattern.only_folders) and (best is None or pattern.index > best.index):
                    best = pattern
        if relative is not None and os.sep != "/":
            relative = relative.replace(os.sep, "/")
        for pattern in self._globs:
            if best is not None and pattern.index < best.index:
                break
            subject = relative if pattern.anchored else name
            if (
                (is_dir or not pattern.only_folders)
                and subject is not None
                and pattern.regex is not None
                and pattern.regex.fullmatch(subject)
            ):
                best = pattern
                break
        return None if best is None else not best.negated

    def covers(self, path: str, *, is_dir: bool = False) -> bool:
        """Whether the absolute `path` or a folder above it, up to the base, is ignored."""
        path = os.path.normpath(path)
        if not path.startswith(self._prefix):
            return bool(self.decide(path, os.path.basename(path), is_dir=is_dir))
        parts = path[len(self._prefix) :].split(os.sep)
        current = self._base
        for depth, part in enumerate(parts, 1):
            current = os.path.join(current, part)
            if self.decide(current, part, is_dir=is_dir or depth < len(parts)):
                return True
        return False


@dataclass(frozen=True, slots=True)
class _Pattern:
    """One line of an ignore file; its `literal` is matched as it is where there is no `regex`."""

    index: int
    literal: str
    regex: re.Pattern[str] | None
    negated: bool
    only_folders: bool
    #: Matched against the path from the base; else against the name.
    anchored: bool


def _compile(index: int, line: str) -> _Pattern | None:
    line = line.removesuffix("\n").removesuffix("\r")
    stripped = line.rstrip(" ")
    if len(stripped) < len(line) and (len(stripped) - len(stripped.rstrip("\\"))) % 2:
        stripped += " "  # an escaped space
    negated = stripped.startswith("!")
    body = stripped[1:] if negated else stripped
    if stripped.startswith("#"):
        return None
    only_folders = body.endswith("/")
    body = body.removesuffix("/")
    anchored = "/" in body
    body = body.removeprefix("/")
    if not body:
        return None
    if not re.search(r"[*?\[\\]", body):
        literal = body.replace("/", os.sep)
        return _Pattern(index, literal, None, negated, only_folders, anchored)
    expression = _translate(body)
    if expression is None:
        return None
    try:
        regex = re.compile(expression, re.DOTALL)
    except re.error:  # a range that runs backwards, which matches nothing
        return None
    return _Pattern(index, body, regex, negated, only_folders, anchored)


#: The parts of a glob; `**` is special only as a whole component, `]` is a member at the start of a class.
_GLOB_PART = re.compile(
    r"""(?P<folders>(?:^|(?<=/))\*\*+/)
      | (?P<below>(?:^|(?<=/))\*\*+\Z)
      | (?P<stars>\*+)
      | (?P<one>\?)
      | \[(?:(?P<negated>[!^])|(?![!^]))
        (?P<members>(?:\]|\\.|\[:[a-z]+:\]|[^]\\])(?:\\.|\[:[a-z]+:\]|[^]\\])*)\]
      | \\(?P<escaped>.)
      | (?P<plain>[^*?\[\\]+)
    """,
    re.DOTALL | re.VERBOSE,
)
_GLOB_EXPRESSIONS = {"folders": "(?:[^/]+/)*", "below": ".+", "stars": "[^/]*", "one": "[^/]"}
_CLASS_PART = re.compile(r"\[:(?P<posix>[a-z]+):\]|\\(?P<escaped>.)|(?P<plain>.)", re.DOTALL)
_POSIX_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r" \t\n\r\f\v",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}


def _translate(glob: str) -> str | None:
    """Regular expression of a glob; None for one that matches nothing (an open bracket, a last backslash)."""
    result = []
    position = 0
    while position < len(glob):
        part = _GLOB_PART.match(glob, position)
        if part is None:
            return None
        kind = part.lastgroup or ""
        if kind == "members":
            members = _translate_class(part["members"])
            if members is None:
                return None
            result.append(f"(?!/)[{'^' if part['negated'] else ''}{members}]")
        else:
            result.append(_GLOB_EXPRESSIONS.get(kind) or re.escape(part[kind]))
        position = part.end()
    return "".join(result)


def _translate_class(members: str) -> str | None:
    """Inside of a bracket expression; None when it names a class that does not exist."""
    result = []
    for part in _CLASS_PART.finditer(members):
        if part["posix"] is not None:
            if part["posix"] not in _POSIX_CLASSES:
                return None
            result.append(_POSIX_CLASSES[part["posix"]])
        elif part["plain"] == "-" and part.start() > 0 and part.end() < len(members):
            result.append("-")
        else:
            result.append(re.escape(part["escaped"] or part["plain"]))
    return "".join(result)


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
        """Take the Python files below a folder; links to folders are kept for later."""
        top = real
        stack = [(shown, real, self._ignores_above(real) if self.respect_gitignore else ())]
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
                if self._skips(entry.path, inner, entry.name, ignores, is_dir and not is_link):
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

    def _skips(
        self, shown: str, real: str, name: str, ignores: tuple[IgnorePatterns, ...], is_dir: bool
    ) -> bool:
        """Whether an entry of a folder is excluded or ignored."""
        if self.exclude.decide(os.path.normpath(shown), name, is_dir=is_dir):
            return True
        for ignore in reversed(ignores):
            decision = ignore.decide(real, name, is_dir=is_dir)
            if decision is not None:
                return decision
        return False

    def _skips_target(self, shown: str, real: str, top: str) -> bool:
        """Whether a link leads to what would have been skipped under its own name."""
        target = os.path.basename(real)
        if not _is_below(real, top):
            return bool(self.exclude.decide(os.path.normpath(shown), target, is_dir=True))
        while real != top:
            parent, name = os.path.split(real)
            ignores: tuple[IgnorePatterns, ...] = ()
            if self.respect_gitignore:
                ignores = _with_own_ignores(self._ignores_above(parent), parent, {".git", ".gitignore"})
            if self._skips(real, real, name, ignores, True):
                return True
            real = parent
        return False

    def _ignores_above(self, folder: str) -> tuple[IgnorePatterns, ...]:
        """Ignore files between the repository that a folder lies in and the folder's parent; none outside."""
        parents = []
        while not os.path.lexists(os.path.join(folder, ".git")):
            parent = os.path.dirname(folder)
            if parent == folder:
                return ()
            parents.append(parent)
            folder = parent
        ignores: tuple[IgnorePatterns, ...] = ()
        for parent in reversed(parents):
            ignores = _with_own_ignores(ignores, parent, {".git", ".gitignore"})
        return ignores


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
