"""The baseline: findings that a project has taken on, kept in a file that survives edits.

An entry knows a finding by the rule's code, the file, the definition that it stands in, and a digest of its
statement, of which blanks, line breaks and comments are no part. So it holds when lines move and when code is
formatted, and ends when the statement changes. Where a function, a class or the file is called otherwise than
when the entry was made, a finding of the same digest takes what no other claims.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from amplint.finding import Finding
from amplint.source import Source, SourceError, read_source, write_file
from amplint.syntax.statements import Statements
from amplint.syntax.syntax_error import parsed

if TYPE_CHECKING:
    from amplint.runner import RunResult

#: The key of the last element of the list, and the version of the format.
_MARK = "amplint-baseline"
_VERSION = 1
_SYNTAX_ERROR = "AMP900"


class BaselineError(Exception):
    """A baseline that cannot be read or written; the message is one line and names the file."""


@dataclass(frozen=True, order=True, slots=True)
class Entry:
    """What a finding is known by."""

    #: Relative to the folder of the baseline, with forward slashes.
    path: str
    code: str
    #: Classes and functions that it stands in, joined by dots.
    within: str
    #: Of its statement and its own part of it.
    digest: str


@dataclass(slots=True)
class Baseline:
    """A baseline as it was read."""

    path: Path
    #: How many findings an entry stands for.
    entries: Counter[Entry] = field(default_factory=Counter)
    #: The bytes of the file; None when there was none.
    data: bytes | None = None

    @property
    def folder(self) -> str:
        """The folder that paths in it are relative to."""
        return os.path.dirname(os.path.realpath(self.path))

    def file(self, entry: Entry) -> str:
        """Where the file of an entry is, or was."""
        return os.path.normpath(os.path.join(self.folder, entry.path))


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which entries a run would have found again if they were still true."""

    #: Real paths of the files that were looked at.
    files: frozenset[str]
    #: Real paths of the folders that were searched for files.
    folders: tuple[str, ...]
    #: Real paths of files of which not all is known, because something failed.
    failed: frozenset[str]
    #: Codes of the rules that were in force.
    codes: frozenset[str]

    def has(self, file: str, code: str) -> bool:
        """Whether a finding of `code` in `file` would have been found."""
        return code in self.codes and file not in self.failed and (file in self.files or self.is_below(file))

    def is_below(self, file: str) -> bool:
        """Whether a file lies, or would lie, in one of the folders."""
        return any(file.startswith(os.path.join(folder, "")) for folder in self.folders)


@dataclass(slots=True)
class Compared:
    """A run beside a baseline."""

    #: Findings that the baseline does not have, in their order.
    shown: list[Finding] = field(default_factory=list)
    hidden: list[Finding] = field(default_factory=list)
    #: Entries of `shown` and `hidden` as they are now.
    new: Counter[Entry] = field(default_factory=Counter)
    kept: Counter[Entry] = field(default_factory=Counter)
    #: What is left of the baseline.
    left: Counter[Entry] = field(default_factory=Counter)
    #: Findings that the run fixed and the baseline does not have.
    fixed: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding, entry: Entry, *, hidden: bool) -> None:
        """Take a finding that is left."""
        (self.hidden if hidden else self.shown).append(finding)
        (self.kept if hidden else self.new)[entry] += 1


def read(path: Path) -> Baseline:
    """Read a baseline; `BaselineError` when it cannot be read or is none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise BaselineError(
            f"{path}: there is no such baseline; `amplint check --write-baseline --baseline {path.name}` writes one"
        ) from error
    except (OSError, ValueError) as error:
        raise BaselineError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        content = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        hint = "; keep the lines of both sides of the merge" if b"<<<<<<<" in data else ""
        raise BaselineError(f"{path}: not valid JSON: {error}{hint}") from error
    if not isinstance(content, list) or not any(isinstance(each, dict) and _MARK in each for each in content):
        raise BaselineError(f"{path}: not a baseline: it has no element {{{_MARK!r}: {_VERSION}}}")
    entries: Counter[Entry] = Counter()
    for number, each in enumerate(content, 1):
        entry, count = _entry(each, f"{path}: element {number}")
        if entry is not None:
            entries[entry] = max(entries[entry], count)  # a merge may keep two lines of one entry
    return Baseline(path, entries, data)


def write(baseline: Baseline, entries: Counter[Entry]) -> bool:
    """Replace what a baseline holds, all of it or nothing; False when that is the same already.

    `BaselineError` when the file cannot be written, or is not the one that was read any more.
    """
    content = _render(entries)
    if content == baseline.data:
        return False
    try:
        present = baseline.path.read_bytes() if baseline.path.exists() else None
        if present != baseline.data:
            raise BaselineError(f"{baseline.path}: was changed since it was read; not overwritten")
        write_file(baseline.path, content)
    except SourceError as error:
        raise BaselineError(str(error)) from error
    except OSError as error:
        raise BaselineError(f"{baseline.path}: cannot be written: {error.strerror}") from error
    baseline.entries, baseline.data = entries, content
    return True


def compare(result: RunResult, baseline: Baseline, cwd: Path) -> Compared:
    """Tell the findings of a run that a baseline has from the others.

    In files that were fixed, what is left of the findings before counts as they did, though its statement may
    have changed.
    """
    place = _Places(baseline, cwd)
    changed = {change.source.filename: change for change in result.changes}
    before: list[tuple[Finding, Entry]] = place.entries(
        [f for f in result.findings if f.filename not in changed], result.sources
    )
    for name, change in changed.items():
        before += place.entries(change.before, {name: change.source})
    matched = _match(before, baseline)
    compared = Compared()
    fixed: dict[str, Counter[Finding]] = {name: Counter(change.fixed) for name, change in changed.items()}
    pool: defaultdict[str, list[tuple[Entry, Entry]]] = defaultdict(list)
    used: Counter[Entry] = Counter()
    for (finding, entry), known in zip(before, matched, strict=True):
        if finding.filename not in changed:
            compared.add(finding, entry, hidden=known is not None)
            used.update([known] if known is not None else [])
        elif fixed[finding.filename][finding] > 0:
            fixed[finding.filename][finding] -= 1
            compared.fixed.extend([finding] if known is None else [])
        elif known is not None:
            pool[finding.filename].append((entry, known))
    for name in changed:
        later = list(fixed[name].elements())  # found in later passes only
        if any(finding.filename == name for finding in compared.fixed):
            compared.fixed.extend(later)
    after = place.entries([f for f in result.findings if f.filename in changed], result.sources)
    for (finding, entry), known in zip(after, _carried(after, pool), strict=True):
        compared.add(finding, entry, hidden=known is not None)
        used.update([known] if known is not None else [])
    compared.shown.sort(key=lambda finding: finding.sort_key)
    compared.left = baseline.entries - used
    return compared


def unknown(findings: Sequence[Finding], source: Source, baseline: Baseline, cwd: Path) -> list[Finding]:
    """The findings of one file that a baseline does not have; `source` is the file that they were found in."""
    found = _Places(baseline, cwd).entries(findings, {finding.filename: source for finding in findings})
    return [
        finding for (finding, _), known in zip(found, _match(found, baseline), strict=True) if known is None
    ]


def failed_files(result: RunResult, cwd: Path) -> frozenset[str]:
    """Real paths of the files of a run that failed or cannot be parsed, so that not all of them is known."""
    names = {error.filename for error in result.internal_errors}
    names.update(problem.filename for problem in result.problems)
    names.update(finding.filename for finding in result.findings if finding.code == _SYNTAX_ERROR)
    return real_paths(names, cwd)


def real_paths(names: Iterable[str], cwd: Path) -> frozenset[str]:
    """Where files that are shown under these names really are."""
    return frozenset(os.path.realpath(os.path.join(cwd, name)) for name in names)


def gone(compared: Compared, baseline: Baseline, covered: Coverage) -> Counter[Entry]:
    """What is left of a baseline although the run would have found it."""
    candidates: defaultdict[str, Counter[Entry]] = defaultdict(Counter)
    for entry, count in compared.left.items():
        file = baseline.file(entry)
        if covered.has(file, entry.code):
            candidates[file][entry] = count
    found: Counter[Entry] = Counter()
    for file, entries in candidates.items():
        if _is_sound(file):
            found.update(entries)
    return found


def _is_sound(file: str) -> bool:
    """Whether a file can be parsed, or is not there any more."""
    if not os.path.lexists(file):
        return True
    try:
        source = read_source(Path(file), file)
    except SourceError:
        return False
    is_broken = source.cells is not None and bool(source.cells.problems)
    return not is_broken and parsed(source.text)[0] is None


# -- the file ----------------------------------------------------------------------------------------------------


def _render(entries: Counter[Entry]) -> bytes:
    """One line for each entry, all alike, so that lines can be added and taken away without touching others."""
    lines = [
        json.dumps(
            {"path": e.path, "code": e.code, "within": e.within, "digest": e.digest, "count": entries[e]}
        )
        for e in sorted(entries)
        if entries[e] > 0
    ]
    return "".join(
        ["[\n", *(line + ",\n" for line in lines), json.dumps({_MARK: _VERSION}), "\n]\n"]
    ).encode()


def _entry(value: object, where: str) -> tuple[Entry | None, int]:
    """An element of the list as an entry and its count; None for the mark. `BaselineError` for anything else."""
    if not isinstance(value, dict):
        raise BaselineError(f"{where}: expected an object")
    if _MARK in value:
        if value[_MARK] != _VERSION:
            raise BaselineError(
                f"{where}: version {value[_MARK]!r} of the format is unknown here; a newer amplint wrote it"
            )
        return None, 0
    texts = [value.get(key) for key in ("path", "code", "within", "digest")]
    count = value.get("count", 1)
    if not all(isinstance(text, str) for text in texts) or type(count) is not int or count < 1:
        raise BaselineError(
            f"{where}: expected the strings path, code, within and digest, and a count from 1"
        )
    return Entry(*map(str, texts)), count


# -- what findings are known by ----------------------------------------------------------------------------------


class _Places:
    """Entries of findings, with paths relative to the folder of a baseline."""

    def __init__(self, baseline: Baseline, cwd: Path) -> None:
        self._folder = baseline.folder
        self._cwd = cwd

    def entries(
        self, findings: Sequence[Finding], sources: Mapping[str, Source]
    ) -> list[tuple[Finding, Entry]]:
        """Each finding with its entry."""
        statements: dict[str, Statements] = {}
        paths: dict[str, str] = {}
        found = []
        for finding in findings:
            name = finding.filename
            source = sources[name]
            if name not in statements:
                statements[name] = Statements(source)
                paths[name] = self._relative(os.path.realpath(source.path or self._cwd / name))
            within, digest = _context(finding, source, statements[name])
            found.append((finding, Entry(paths[name], finding.code, within, digest)))
        return found

    def _relative(self, path: str) -> str:
        try:
            shown = os.path.relpath(path, self._folder)
        except ValueError:  # another drive
            shown = path
        return shown.replace(os.sep, "/")


def _context(finding: Finding, source: Source, statements: Statements) -> tuple[str, str]:
    """The definition that a finding is in, and the digest of its statement and its own part of it."""
    row = finding.start.row
    statement = statements.at(row)
    column, comment = statements.comments.get(row, (len(source.text), ""))
    if finding.start.column > column:
        own, whole = " ".join(comment[finding.start.column - 1 - column :].split()), ""
    elif statement is None or finding.code == _SYNTAX_ERROR:
        text = source.line_text(row) if row <= len(source.line_starts) else ""
        own, whole = " ".join(text.split()), ""
    else:
        own, whole = statement.text(finding.start, finding.end), statement.text()
    digest = hashlib.sha256(f"{own}\0\0{whole}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return statements.within(row) if statement is None else statement.within, digest


# -- matching ----------------------------------------------------------------------------------------------------


def _match(found: Sequence[tuple[Finding, Entry]], baseline: Baseline) -> list[Entry | None]:
    """For each finding the entry that it takes: its own, or one that differs in the name of a definition or file."""
    left = Counter(baseline.entries)
    taken: list[Entry | None] = [None] * len(found)
    for index, (_, entry) in enumerate(found):
        if left[entry] > 0:
            left[entry] -= 1
            taken[index] = entry
    if any(entry is None for entry in taken) and +left:
        _take(found, taken, left, lambda entry: (entry.path, entry.code, entry.digest))
        absent = Counter({e: n for e, n in (+left).items() if not os.path.lexists(baseline.file(e))})
        _take(found, taken, absent, lambda entry: (entry.code, entry.within, entry.digest))
    return taken


def _take(
    found: Sequence[tuple[Finding, Entry]],
    taken: list[Entry | None],
    left: Counter[Entry],
    key: Callable[[Entry], tuple[str, ...]],
) -> None:
    """Give entries that are left to findings with the same key, in order."""
    offered: defaultdict[tuple[str, ...], list[Entry]] = defaultdict(list)
    for entry in sorted(left, reverse=True):
        offered[key(entry)].extend([entry] * left[entry])
    for index, (_, entry) in enumerate(found):
        if taken[index] is None and (others := offered.get(key(entry))):
            taken[index] = known = others.pop()
            left[known] -= 1


def _carried(
    after: Sequence[tuple[Finding, Entry]], pool: Mapping[str, list[tuple[Entry, Entry]]]
) -> list[Entry | None]:
    """For each finding in fixed files the entry of the baseline that one before the fixes took.

    A fix adds no findings, so where the statement is another one now, the code alone decides.
    """
    left = {name: list(pairs) for name, pairs in pool.items()}
    taken: list[Entry | None] = [None] * len(after)
    same: tuple[Callable[[Entry, Entry], bool], ...] = (
        lambda one, other: one == other,
        lambda one, other: (one.code, one.within) == (other.code, other.within),
        lambda one, other: one.code == other.code,
    )
    for is_same in same:
        for index, (finding, entry) in enumerate(after):
            pairs = left.get(finding.filename, [])
            if taken[index] is None:
                chosen = next((pair for pair in pairs if is_same(pair[0], entry)), None)
                if chosen is not None:
                    pairs.remove(chosen)
                    taken[index] = chosen[1]
    return taken
