"""What earlier runs found, in one JSON file for each rule set, configuration, place, Python and code of amplint.

An entry holds while the file's content and every answer of the project that was consulted are the same. A file is
taken as unchanged when its modification time and size are; otherwise its SHA-256 decides. The file is replaced in one
step, and one that was tampered with, cut off or written by something else counts as absent. Nothing in it is executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amplint.cachedir import claim
from amplint.finding import (
    Applicability,
    Confidence,
    Edit,
    Finding,
    Fix,
    FixKind,
    Note,
    Position,
    Severity,
    Span,
)

#: Change it when the meaning of an entry changes.
FORMAT = 2


@dataclass(slots=True)
class Entry:
    """What is known of one file."""

    modified: int
    size: int
    digest: str
    admitted: bool
    #: A line for each name that the file imports, with the module before it; None when it cannot be parsed. Lines, for
    #: a tree has tens of thousands of them and few runs ask.
    import_lines: str | None
    #: None when the file was not checked (or its findings depend on the day).
    findings: list[Finding] | None = None
    asked: dict[str, tuple[str, ...]] = field(default_factory=dict)
    statistics: dict[str, int] = field(default_factory=dict)

    @property
    def imports(self) -> tuple[tuple[str, str], ...] | None:
        """What the file imports, see `work.Extract`."""
        if self.import_lines is None:
            return None
        pairs = (line.partition(" ") for line in self.import_lines.splitlines())
        return tuple((origin, name) for origin, _, name in pairs)


def import_lines(imports: Iterable[tuple[str, str]] | None) -> str | None:
    """What `Entry.imports` is made of."""
    return None if imports is None else "\n".join(f"{origin} {name}" for origin, name in imports)


class Cache:
    """The entries of one cache file; `path` None keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._raw: dict[str, Any] = _load(path) if path is not None else {}
        self._entries: dict[str, Entry] = {}
        self._changed = False

    def get(self, path: str, filename: str) -> Entry | None:
        """The entry of the file at `path`, shown to users as `filename`."""
        entry = self._entries.get(path)
        if entry is not None:
            return entry
        raw = self._raw.get(path)
        if raw is None:
            return None
        try:
            entry = _entry(raw, filename)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            del self._raw[path]
            return None
        self._entries[path] = entry
        return entry

    def put(self, path: str, entry: Entry) -> None:
        """Keep what a run found of a file."""
        self._entries[path] = entry
        self._raw[path] = _raw(entry)
        self._changed = True

    def save(self) -> None:
        """Write the cache where something changed; a folder that cannot be written to is no error."""
        if self._path is None or not self._changed:
            return
        with suppress(OSError):
            self._write(self._path)

    def _write(self, path: Path) -> None:
        claim(path.parent)
        body = json.dumps(self._raw, separators=(",", ":"))
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(f"{_checksum(body)}\n{body}")
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise


def cache_path(folder: Path, parts: Iterable[str]) -> Path:
    """The cache file for everything in `parts` that results depend on, in `folder`."""
    digest = hashlib.sha256("\0".join([str(FORMAT), *parts]).encode("utf-8", "surrogatepass")).hexdigest()
    return folder / f"{digest[:24]}.json"


def _load(path: Path) -> dict[str, Any]:
    try:
        checksum, _, body = path.read_text(encoding="utf-8").partition("\n")
        loaded = json.loads(body) if checksum == _checksum(body) else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()


# -- entries as JSON: short lists, since a tree has thousands of them -------------------------------------------------


def _raw(entry: Entry) -> list[Any]:
    found = None if entry.findings is None else [_finding_raw(finding) for finding in entry.findings]
    return [
        entry.modified,
        entry.size,
        entry.digest,
        int(entry.admitted),
        entry.import_lines,
        found,
        entry.asked,
        entry.statistics,
    ]


def _entry(raw: Sequence[Any], filename: str) -> Entry:
    modified, size, digest, admitted, imports, found, asked, statistics = raw
    return Entry(
        int(modified),
        int(size),
        str(digest),
        bool(admitted),
        None if imports is None else str(imports),
        None if found is None else [_finding(item, filename) for item in found],
        {str(name): tuple(map(str, answer)) for name, answer in asked.items()},
        {str(name): int(count) for name, count in statistics.items()},
    )


def _finding_raw(finding: Finding) -> dict[str, Any]:
    fix = finding.fix
    return {
        "head": [
            finding.code,
            finding.name,
            finding.message,
            finding.severity.value,
            finding.confidence.value,
            finding.no_fix_reason,
            finding.fingerprint,
            finding.url,
        ],
        "span": [finding.span.start, finding.span.end],
        "place": [finding.start.row, finding.start.column, finding.end.row, finding.end.column],
        "trace": [[note.filename, note.start.row, note.start.column, note.message] for note in finding.trace],
        "fix": None
        if fix is None
        else [
            fix.kind.value,
            fix.applicability.value,
            fix.message,
            [[edit.span.start, edit.span.end, edit.content, edit.lines] for edit in fix.edits],
        ],
    }


def _finding(raw: Mapping[str, Any], filename: str) -> Finding:
    code, name, message, severity, confidence, reason, fingerprint, url = raw["head"]
    row, column, end_row, end_column = raw["place"]
    start, end = raw["span"]
    return Finding(
        code=str(code),
        name=str(name),
        message=str(message),
        severity=Severity(severity),
        confidence=Confidence(confidence),
        filename=filename,
        span=Span(int(start), int(end)),
        start=Position(int(row), int(column)),
        end=Position(int(end_row), int(end_column)),
        trace=tuple(Note(str(f), Position(int(r), int(c)), str(m)) for f, r, c, m in raw["trace"]),
        fix=None if raw["fix"] is None else _fix(raw["fix"]),
        no_fix_reason=None if reason is None else str(reason),
        fingerprint=str(fingerprint),
        url=str(url),
    )


def _fix(raw: Sequence[Any]) -> Fix:
    kind, applicability, message, edits = raw
    made = tuple(Edit(Span(int(s), int(e)), str(content), int(lines)) for s, e, content, lines in edits)
    return Fix(FixKind(kind), Applicability(applicability), str(message), made)
