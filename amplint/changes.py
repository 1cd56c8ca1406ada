"""What git says has changed since a revision: the lines that findings are looked for on by `--diff-base`.

A line counts as old only if git knows it from the merge base. Files that git does not track, and files outside the
repository, are new as a whole.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from amplint.finding import Finding
from amplint.source import Source

_HUNK = re.compile(rb"^@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_GITLINK = "160000"
#: Diffs are of the bytes and of nothing that a configuration adds to them or leaves out.
_PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv")


class GitError(Exception):
    """git cannot say what has changed; the message is one line."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Changed rows of one file."""

    #: First and last row of each part that was added or changed.
    new: tuple[tuple[int, int], ...] = ()
    #: Rows behind which something was removed and nothing put in its place; 0 is the top of the file.
    removed: tuple[int, ...] = ()
    whole: bool = False


_UNCHANGED = _Rows()
_WHOLE = _Rows(whole=True)


class Changes:
    """The difference between the working tree and the merge base of a revision and HEAD."""

    def __init__(self, revision: str, folder: Path) -> None:
        """Ask the repository that `folder` is in. GitError when there is none, or no such revision in it."""
        folder = _existing(folder)
        self.top = _line(_git(folder, "rev-parse", "--show-toplevel"))
        self._root = os.path.realpath(self.top)
        base = _merge_base(folder, revision)
        #: Path of a file, relative to the top -> what it was before; None for what was not there.
        self._before = self._compared(base)
        self._tracked = {
            os.fsdecode(name) for name in _git(self.top, "ls-files", "-z", "--full-name").split(b"\0") if name
        }
        self._rows: dict[str, _Rows] = {}

    def touches(self, finding: Finding, source: Source | None, path: Path) -> bool:
        """Whether a finding in the file `path` is about something that has changed.

        That is when its rows, or that of a step of its trace in the same file, are new or changed; and when rows were
        removed without replacement next to one of them, or between them. GitError when git fails.
        """
        changed = self._changed(path, source)
        if changed.whole:
            return True
        if not changed.new and not changed.removed:
            return False
        spans = [_rows_of(finding)]
        spans += [(note.start.row,) * 2 for note in finding.trace if note.filename == finding.filename]
        if source is None or source.cells is None:
            return _meet(changed, spans)
        by_cell: dict[int, list[tuple[int, int]]] = {}  # what stands between two cells are outputs
        for span in spans:
            cell = source.cells.at(span[0])
            by_cell.setdefault(cell.number if cell is not None else 0, []).append(source.file_rows(*span))
        return any(_meet(changed, rows) for rows in by_cell.values())

    def is_outside(self, path: Path) -> bool:
        """Whether a file is in no folder of the repository."""
        return self._name(path) is None

    def _name(self, path: Path) -> str | None:
        """How git calls a file; None for one outside the repository."""
        real = os.path.realpath(path)
        try:
            inside = os.path.commonpath([real, self._root]) == self._root
        except ValueError:  # another drive
            return None
        return os.path.relpath(real, self._root).replace(os.sep, "/") if inside else None

    def _changed(self, path: Path, source: Source | None) -> _Rows:
        name = self._name(path)
        if name is None:
            return _WHOLE
        if name not in self._rows:
            self._rows[name] = self._asked(name, source)
        return self._rows[name]

    def _asked(self, name: str, source: Source | None) -> _Rows:
        for known in _with_folders(name):  # a folder is a submodule
            if known in self._before:
                before = self._before[known]
                return _WHOLE if before is None or known != name else self._compare(before, name, source)
            if known in self._tracked:
                return _UNCHANGED
        return _WHOLE

    def _compared(self, base: str) -> dict[str, str | None]:
        """The files that differ from `base`, with the object that each was there."""
        options = (
            "--raw",
            "-z",
            "-M",
            "--no-abbrev",
            "--no-color",
            "--no-ext-diff",
            "--ignore-submodules=none",
        )
        fields = iter(_git(self.top, "diff", *options, base, "--").split(b"\0"))
        found: dict[str, str | None] = {}
        for head in fields:
            if not head:
                continue
            old_mode, new_mode, before, _, status = head.decode("ascii").lstrip(":").split(" ")
            name = os.fsdecode(next(fields))
            if status[0] in "RC":
                name = os.fsdecode(next(fields))
            comparable = status[0] in "MRC" and _GITLINK not in (old_mode, new_mode)
            # A file with conflicts comes twice, as U and as M: it counts as new.
            found[name] = before if comparable and name not in found else None
        return found

    def _compare(self, before: str, name: str, source: Source | None) -> _Rows:
        options = ("-U0", "--inter-hunk-context=0", *_PLAIN)
        diff = _git(self.top, "diff", *options, before, "--", name)
        new: list[tuple[int, int]] = []
        removed: list[int] = []
        for hunk in _HUNK.finditer(diff):
            start, count = int(hunk[1]), int(hunk[2] or 1)
            if count:
                new.append((start, start + count - 1))
            else:
                removed.append(start)
        if source is None or source.cells is not None or "\r" not in source.text.replace("\r\n", ""):
            return _Rows(tuple(new), tuple(removed))
        ends = _row_ends(source)
        return _Rows(
            tuple((ends[low - 1] + 1, ends[high]) for low, high in new if high < len(ends)),
            tuple(ends[row] for row in removed if row < len(ends)),
        )


def _meet(changed: _Rows, spans: Sequence[tuple[int, int]]) -> bool:
    """Whether rows were changed in one of the spans, or removed there, next to them or between them."""
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    return any(first - 1 <= row <= last for row in changed.removed) or any(
        start <= high and low <= end for low, high in changed.new for start, end in spans
    )


def _with_folders(name: str) -> list[str]:
    """A path and the folders above it, the nearest first."""
    parts = name.split("/")
    return ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]


def _rows_of(finding: Finding) -> tuple[int, int]:
    """First and last row of a finding's span, whose end is exclusive."""
    start, end = finding.start, finding.end
    return start.row, end.row - (end.column == 1 and end.row > start.row)


def _row_ends(source: Source) -> list[int]:
    """For a number of git's rows, which end at line feeds only, how many rows of amplint's that is."""
    feeds = [index + 1 for index, character in enumerate(source.text) if character == "\n"]
    return [0, *(source.position(feed).row - 1 for feed in feeds), len(source.line_starts)]


def _existing(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    folder = Path(os.path.abspath(folder))
    return next((each for each in (folder, *folder.parents) if each.is_dir()), Path(os.sep))


def _merge_base(folder: Path, revision: str) -> str:
    """The commit from which HEAD and the revision went apart."""
    if not revision or revision.startswith("-"):
        raise GitError(f"{revision!r} is not a revision")
    shallow = _line(_git(folder, "rev-parse", "--is-shallow-repository")) == "true"
    hint = "; the clone is shallow: fetch the history first (fetch-depth: 0, GIT_DEPTH: 0)" if shallow else ""
    for name in ("HEAD", revision):
        try:
            _git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        except GitError as error:
            what = "there is no commit yet" if name == "HEAD" else f"git knows no revision {revision!r}"
            raise GitError(what + (hint if name == revision else "")) from error
    try:
        return _line(_git(folder, "merge-base", revision, "HEAD"))
    except GitError as error:
        raise GitError(f"{revision!r} and HEAD have no commit in common{hint}") from error


def _line(output: bytes) -> str:
    return os.fsdecode(output).rstrip("\r\n")


def _git(folder: Path | str, *arguments: str) -> bytes:
    """Output of git. GitError when it is not there, or fails: then with what it says."""
    command: Sequence[str] = ("git", "-C", os.fspath(folder), *arguments)
    environment = {**os.environ, "GIT_LITERAL_PATHSPECS": "1", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=environment
        )
    except (OSError, ValueError) as error:
        raise GitError(f"git cannot be run: {getattr(error, 'strerror', None) or error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().split("\n")[0].removeprefix("fatal: ")
        raise GitError(said or f"git {arguments[0]} failed")
    return done.stdout
