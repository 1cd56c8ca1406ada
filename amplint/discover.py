"""Paths to files: what a run looks at, in an order that depends on nothing but the paths.

Ignore files mean here what they mean to git: an entry is matched by itself, the last matching pattern of the
deepest ignore file decides, and nothing below an ignored folder is looked at. Matching is done here, not by
pathspec: that costs 90 us a path and 60 ms of import, and prunes `foo/` for `foo/**`, which loses what a later
`!foo/keep.py` brings back.
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
    walk = _Walk(settings, os.path.abspath(cwd))
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
            folders.append((os.path.realpath(shown), shown))
        elif stat.S_ISREG(mode):
            walk.add(shown, os.path.realpath(shown))
        else:
            walk.problems.append(SourceError(display_name(Path(shown), cwd), "not a regular file"))
    for real, shown in sorted(folders):
        walk.enter(shown, real)
    walk.follow_links()
    files = sorted((shown for _, _, shown in walk.files.values()), key=lambda shown: Path(shown).as_posix())
    return Discovery([Path(shown) for shown in files], sorted(walk.problems, key=str))


def display_name(path: Path, cwd: Path) -> str:
    """The name a file is reported under: relative to `cwd`, if it was given so or lies below, else as given.

    Forward slashes, no leading `./`; undecodable bytes in names stay surrogates.
    """
    shown = os.path.join(cwd, path)
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


def _translate(glob: str) -> str | None:
    """Regular expression of a glob; None for one that can match nothing (ends in a backslash, open bracket)."""
    result = []
    position = 0
    while position < len(glob):
        if match := re.compile(r"(?:(?<=/)|^)\*\*+/").match(glob, position):
            result.append("(?:[^/]+/)*")
        elif match := re.compile(r"(?<=/)\*\*+$").match(glob, position):
            result.append(".+")
        elif match := re.compile(r"\*+").match(glob, position):
            result.append("[^/]*")
        elif match := re.compile(r"\?").match(glob, position):
            result.append("[^/]")
        elif match := re.compile(r"\[([!^]?)((?:\\.|\[:[a-z]+:\]|[^]\\]|(?<=\[)\]|(?<=\[[!^])\])+)\]").match(
            glob, position
        ):
            result.append(_translate_class(match[1], match[2]))
        elif match := re.compile(r"\\(.)", re.DOTALL).match(glob, position):
            result.append(re.escape(match[1]))
        elif glob[position] in "[\\":
            return None
        else:
            match = re.compile(r"[^*?\[\\]", re.DOTALL).match(glob, position)
            assert match is not None
            result.append(re.escape(match[0]))
        position = match.end()
    return "".join(result)
