"""Many files: extract, link, check, fix. The only place that knows about order, processes and the cache."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from amplint.config import Settings
from amplint.finding import Finding, InternalError
from amplint.registry import select_rules
from amplint.rule import Rule
from amplint.source import Source, SourceError, read_source, source_from_text, write_atomic
from amplint.work import (
    NO_FIX,
    Checker,
    Extract,
    FixMode,
    Outcome,
    digest,
    extract,
    extract_path,
    not_text,
)

if TYPE_CHECKING:
    from amplint.cache import Cache, Entry
    from amplint.flow.explain import Explanation
    from amplint.flow.precision.listing import RegionListing
    from amplint.project.link import Project

__all__ = ["FileChange", "FixMode", "RunResult", "run", "run_text"]

#: Fewer files or bytes than this are not worth another process: spawning costs 0.2 s a worker.
_FEW_FILES = 16
_FEW_BYTES = 400_000


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file as it was read and as the fixes leave it."""

    source: Source
    new_text: str
    fixed: tuple[Finding, ...]
    #: All findings before.
    before: tuple[Finding, ...] = ()


@dataclass(slots=True)
class RunResult:
    """Everything that a run found; lists are in order of file, line, column, code."""

    #: What is left to report (after fixing, what remains).
    findings: list[Finding] = field(default_factory=list)
    #: Failures of amplint itself: exit 2.
    internal_errors: list[InternalError] = field(default_factory=list)
    #: Files that could not be read or written, with why: exit 2.
    problems: list[SourceError] = field(default_factory=list)
    changes: list[FileChange] = field(default_factory=list)
    #: Sources of the files with findings, by name (text after fixing), for code frames.
    sources: dict[str, Source] = field(default_factory=dict)
    #: Files looked at.
    files: int = 0
    #: Their names.
    names: list[str] = field(default_factory=list)
    #: Findings that are not among `findings` because the baseline has them.
    in_baseline: list[Finding] = field(default_factory=list)
    #: What of the fixed findings the baseline does not have; None without a baseline.
    fixed_beyond_baseline: list[Finding] | None = None
    #: What else the summary says, in lines.
    notes: list[str] = field(default_factory=list)
    #: Counters of the analyses (functions analysed, given up, ...).
    statistics: dict[str, int] = field(default_factory=dict)


def run(
    paths: Sequence[Path],
    settings: Settings,
    *,
    fix: FixMode = NO_FIX,
    cwd: Path | None = None,
    stdin: Source | None = None,
    progress: Callable[[int, int], None] | None = None,
    jobs: int = 0,
    use_cache: bool = False,
) -> RunResult:
    """Check `paths` (or `stdin`), fix what `fix` says, and say what remains.

    `jobs` processes are used at most (0: one for each CPU), one for a few files. `progress` is told how many files of
    how many are done. Raises `registry.UnknownRule` and `registry.NoRules`; whatever is wrong with a file is in the
    result.
    """
    from amplint.discover import discover, display_name

    base = cwd if cwd is not None else Path.cwd()
    rules = select_rules(settings)
    if stdin is not None:
        return _run_one(stdin, settings, rules, fix)
    found = discover(paths, settings, base)
    files = [_File(path, display_name(path, base)) for path in found.names]
    job = _Job(settings, rules, fix, jobs, _open_cache(settings, rules, base) if use_cache else None)
    job.result.problems.extend(found.problems)
    job.run(files, progress, base)
    return job.finish()


def run_text(
    text: str, filename: str, fix: FixMode, select: Sequence[str] | None, settings: Mapping[str, object]
) -> RunResult:
    """Run over one module given as text. Raises `RuntimeError` on an internal error."""
    selected = (select,) if isinstance(select, str) else select
    chosen = replace(Settings(), select=None if selected is None else tuple(selected), **settings)  # type: ignore[arg-type]
    try:
        source = source_from_text(text, filename)
    except SourceError as error:
        outcome = not_text(error, None, chosen, select_rules(chosen))
        return RunResult(outcome.findings, sources={filename: outcome.source}, files=1)
    result = run([], chosen, fix=fix, stdin=source)
    if result.internal_errors:
        raise RuntimeError(result.internal_errors[0].message)
    return result


def explain_flow(
    path: Path, row: int, paths: Sequence[Path], settings: Settings, *, cwd: Path, cell: int | None = None
) -> Explanation:
    """What the analyses of the GradScaler protocol and of dtypes believe at a row of a file, or of its `cell`.

    The files of `paths` are what the file's imports may mean. Raises `SourceError` when it cannot be read or parsed,
    or has no such cell or row.
    """
    from amplint.discover import discover, display_name

    name = display_name(path, cwd)
    source = read_source(path, name)
    if cell is not None:
        in_module = source.cells.row(cell, row) if source.cells is not None else None
        if in_module is None:
            raise SourceError(name, f"there is no line {row} of Python in a cell {cell}")
        row = in_module
    elif row > (rows := source.position(len(source.text)).row):
        raise SourceError(name, f"there is no line {row}, the last one is {rows}")
    found = discover([*paths, path], settings, cwd)
    rules = select_rules(settings)
    job = _Job(settings, rules, NO_FIX, 1, None)
    project = job.link([_File(file, display_name(file, cwd)) for file in found.names], cwd)
    return Checker(settings, rules, project).explain_flow(source, row)


def operators_in_regions(
    path: Path, settings: Settings, *, cwd: Path, within: Sequence[Path] = ()
) -> tuple[RegionListing, ...]:
    """The operators that run in the autocast regions of a file, with their dtypes on CUDA and NPU.

    The files of `within` are what the file's imports may mean, besides those beside it. Raises `SourceError` when it
    cannot be read or parsed.
    """
    from amplint.discover import discover, display_name

    name = display_name(path, cwd)
    source = read_source(path, name)
    found = discover([*within, path], settings, cwd)
    rules = select_rules(settings)
    job = _Job(settings, rules, NO_FIX, 1, None)
    project = job.link([_File(file, display_name(file, cwd)) for file in found.names], cwd)
    return Checker(settings, rules, project).operators_in_regions(source)


def _run_one(source: Source, settings: Settings, rules: Sequence[Rule], fix: FixMode) -> RunResult:
    job = _Job(settings, rules, fix, 1, None)
    file = _File(str(source.path or source.filename), source.filename, source)
    job.run([file], None)
    return job.finish()


@dataclass(slots=True)
class _File:
    """One file of a run and what is known of it so far."""

    where: str
    name: str
    #: Set for standard input only: other files are read where they are worked on.
    source: Source | None = None
    modified: int = 0
    size: int = 0
    extract: Extract | None = None
    entry: Entry | None = None

    @property
    def path(self) -> Path:
        """Where it is."""
        return Path(self.where)

    @property
    def imports(self) -> tuple[tuple[str, str], ...]:
        """What it imports, see `Extract`; nothing when it cannot be parsed."""
        known = self.entry if self.entry is not None else self.extract
        return (known and known.imports) or ()

    @property
    def digest(self) -> str:
        """What identifies its content; "" where it could not be read."""
        return self.extract.digest if self.extract is not None else ""


class _Job:
    """One run over some files."""

    def __init__(
        self, settings: Settings, rules: Sequence[Rule], fix: FixMode, jobs: int, cache: Cache | None
    ) -> None:
        self.settings = settings
        self.rules = rules
        self.fix = fix
        self.result = RunResult()
        self._jobs = jobs
        self._cache = cache
        self._counts: Counter[str] = Counter()

    def run(
        self, files: list[_File], progress: Callable[[int, int], None] | None, base: Path | None = None
    ) -> None:
        """All phases; names of files are relative to `base`."""
        self.result.files = len(files)
        self.result.names = [file.name for file in files]
        project = self.link(files, base)
        todo = []
        done = 0
        for file in files:
            if self._is_settled(file, project):
                done += 1
            else:
                todo.append(file)
        if progress is not None and files:
            progress(done, len(files))
        fixed = []
        for file, outcome in self._outcomes(todo, project):
            if isinstance(outcome, Outcome) and outcome.before is not None:
                fixed.append((file, outcome))  # written once no file is looked at together with it any more
            else:
                self._take(file, outcome)
            done += 1
            if progress is not None:
                progress(done, len(files))
        for file, outcome in fixed:
            self._take(file, outcome)
        if self._cache is not None:
            self._cache.save()

    def link(self, files: list[_File], base: Path | None) -> Project:
        """The first two phases."""
        from amplint.project.link import ModuleIndex, Project

        self._extract(files)
        folder = "" if base is None else base.absolute().as_posix()
        beside = [] if base is None else self._beside(files, base)
        return Project((ModuleIndex(f.name, f.imports, f.digest) for f in (*files, *beside)), folder)

    def _beside(self, files: list[_File], base: Path) -> list[_File]:
        """Files that those of a small run import, to be looked at together with them but not checked."""
        from amplint.project.nearby import MOST_GIVEN, Nearby

        if len(files) > MOST_GIVEN:
            return []
        from amplint.discover import display_name

        given = {Path(os.path.abspath(file.where)) for file in files}
        imports = {
            Path(os.path.abspath(file.where)): file.imports
            for file in files
            if file.extract is not None and file.extract.admitted
        }
        found: dict[Path, _File] = {}
        for layer in Nearby().of(imports):
            made = [_File(str(path), display_name(path, base)) for path in layer if path not in given]
            self._extract(made)
            for file in made:
                found[file.path] = file
                if file.digest:
                    imports[file.path] = file.imports
                if file.entry is None:
                    self._put(file, None)
        return list(found.values())

    def finish(self) -> RunResult:
        """The result, in order."""
        result = self.result
        result.findings.sort(key=lambda finding: finding.sort_key)
        result.internal_errors.sort(key=lambda error: (error.filename, error.message))
        result.problems.sort(key=lambda problem: (problem.filename, problem.message))
        result.changes.sort(key=lambda change: change.source.filename)
        result.statistics = dict(sorted(self._counts.items()))
        return result

    # -- first phase -----------------------------------------------------------------------------------------

    def _extract(self, files: list[_File]) -> None:
        unknown = []
        for file in files:
            if file.source is not None:
                file.extract = extract(file.source, self.rules)
                continue
            self._look_up(file)
            if file.extract is None:
                unknown.append(file)
        by_name = {file.name: file for file in unknown}
        for made in self._extracts(unknown):
            by_name[made.filename].extract = made

    def _look_up(self, file: _File) -> None:
        """Take the extract from the cache when the file is the one that was seen."""
        try:
            status = os.stat(file.where)
        except OSError:
            return
        file.modified, file.size = status.st_mtime_ns, status.st_size
        if self._cache is None:
            return
        entry = self._cache.get(file.where, file.name)
        if entry is None:
            return
        if (entry.modified, entry.size) != (file.modified, file.size):
            if entry.size != file.size or not _has_digest(file.path, entry.digest):
                return
            entry.modified = file.modified
            self._cache.put(file.where, entry)
        file.entry = entry
        file.extract = Extract(file.name, entry.digest, entry.admitted)

    def _extracts(self, files: list[_File]) -> Iterator[Extract]:
        workers = self._workers(files)
        if workers == 1:
            for file in files:
                yield extract_path(file.path, file.name, self.rules)
            return
        from amplint import pool

        for made in pool.run_batches(
            _extract_batch,
            _batches(files),
            workers=workers,
            initializer=_start_worker,
            arguments=(self.settings, ()),
        ):
            if isinstance(made, pool.Lost):
                error = SourceError(made.item[1], "the process that read it died")
                yield Extract(made.item[1], "", False, None, error, True)
            else:
                yield made

    def _workers(self, files: Sequence[_File]) -> int:
        if len(files) < _FEW_FILES or sum(file.size for file in files) < _FEW_BYTES:
            return 1
        from amplint import pool

        return pool.worker_count(self._jobs)

    # -- third phase -----------------------------------------------------------------------------------------

    def _is_settled(self, file: _File, project: Project) -> bool:
        """Whether a file needs no check in this run: what it gives is known, or nothing can be found in it."""
        seen = file.extract
        assert seen is not None
        if seen.error is not None:
            if seen.unreadable:
                self.result.problems.append(seen.error)
            else:
                self._keep(not_text(seen.error, file.path, self.settings, self.rules))
            return True
        if not seen.admitted:
            if file.entry is None:
                self._remember(file, Outcome(Source(file.name, None, b"", "")))
            return True
        entry = file.entry
        if entry is None or entry.findings is None:
            return False
        if not project.holds(file.name, entry.asked):
            return False
        if any(self.fix.admits(finding) for finding in entry.findings):
            return False
        self._counts.update(entry.statistics)
        if entry.findings:
            try:
                source = read_source(file.path, file.name)
            except SourceError:
                return False
            self._keep(Outcome(source, list(entry.findings)))
        return True

    def _outcomes(
        self, files: list[_File], project: Project
    ) -> Iterator[tuple[_File, Outcome | SourceError]]:
        workers = self._workers(files)
        if workers == 1:
            checker = Checker(self.settings, self.rules, project)
            for file in files:
                yield file, _outcome(checker, file.path, file.name, self.fix, file.source)
            return
        from amplint import pool

        by_name = {file.name: file for file in files}
        for made in pool.run_batches(
            _check_batch,
            _batches(files),
            workers=workers,
            initializer=_start_worker,
            arguments=(self.settings, (project, self.fix)),
        ):
            if isinstance(made, pool.Lost):
                name = made.item[1]
                text = "the process that analysed it died (probably a crash in the parser); nothing in it was checked"
                source = Source(name, by_name[name].path, b"", "")
                yield by_name[name], Outcome(source, internal_errors=[InternalError(name, text)])
            else:
                yield by_name[made[0]], made[1]

    def _take(self, file: _File, outcome: Outcome | SourceError) -> None:
        """Take what checking one file gave into the result, and write what fixing changed."""
        if isinstance(outcome, SourceError):
            self.result.problems.append(outcome)
            return
        self.result.internal_errors.extend(outcome.internal_errors)
        self._counts.update(outcome.statistics)
        before = outcome.before
        if before is None:
            self._remember(file, outcome)
            self._keep(outcome)
            return
        change = FileChange(before.source, outcome.source.text, tuple(outcome.fixed), tuple(before.findings))
        if self._write(change):
            self.result.changes.append(change)
            self._keep(outcome)
        else:
            self._keep(before)

    def _write(self, change: FileChange) -> bool:
        """Write a change where the run writes at all; False when that failed and the file is as it was."""
        if not self.fix.write or change.source.path is None:
            return True
        try:
            write_atomic(change.source, change.new_text)
        except SourceError as error:
            self.result.problems.append(error)
            return False
        return True

    def _keep(self, outcome: Outcome) -> None:
        if outcome.findings:
            self.result.findings.extend(outcome.findings)
            self.result.sources[outcome.source.filename] = outcome.source

    def _remember(self, file: _File, outcome: Outcome) -> None:
        """Put what a file gave into the cache, unless it depends on the day or failed."""
        seen = file.extract
        if outcome.internal_errors or seen is None:
            return
        if outcome.source.data and digest(outcome.source.data) != seen.digest:
            return  # it changed between the phases
        self._put(file, None if "until=" in outcome.source.text else outcome)

    def _put(self, file: _File, outcome: Outcome | None) -> None:
        """Put a file into the cache, with what checking it gave where that is worth keeping."""
        seen = file.extract
        if self._cache is None or seen is None or not seen.digest:
            return
        from amplint.cache import Entry, import_lines

        entry = Entry(
            file.modified,
            file.size,
            seen.digest,
            seen.admitted,
            import_lines(seen.imports) if file.entry is None else file.entry.import_lines,
        )
        if outcome is not None:
            entry.findings, entry.asked, entry.statistics = (
                outcome.findings,
                outcome.asked,
                outcome.statistics,
            )
        self._cache.put(file.where, entry)


def _outcome(
    checker: Checker, path: Path, name: str, mode: FixMode, source: Source | None = None
) -> Outcome | SourceError:
    """Check (and fix) one file; the error when it cannot be read any more."""
    try:
        return checker.run(read_source(path, name) if source is None else source, mode)
    except SourceError as error:
        return error


def _batches(files: Sequence[_File]) -> list[list[tuple[str, str]]]:
    """The files in batches for workers, as (path, name)."""
    from amplint import pool

    return [[(file.where, file.name) for file in batch] for batch in pool.batches(files, lambda f: f.size)]


def _has_digest(path: Path, wanted: str) -> bool:
    try:
        return digest(path.read_bytes()) == wanted
    except OSError:
        return False


def _open_cache(settings: Settings, rules: Sequence[Rule], base: Path) -> Cache:
    """The cache for this rule set, configuration, working directory, Python and code of amplint."""
    from amplint.cache import Cache, cache_path
    from amplint.cachedir import cache_folder
    from amplint.installed import own_code, version

    versions = [*(version(package) for package in ("amplint", "libcst")), own_code()]
    python = ".".join(map(str, sys.version_info[:2]))
    matters = replace(settings, output_format="text", cache_dir=None, baseline=None, sources=())
    parts = [*versions, python, str(base), repr(matters), *(repr(rule) for rule in rules)]
    return Cache(cache_path(cache_folder(settings, base), parts))


# -- what runs in workers ----------------------------------------------------------------------------------------

_worker: dict[str, object] = {}


def _start_worker(settings: Settings, task: tuple[Project, FixMode] | tuple[()]) -> None:
    """Prepare a worker process: the rules, and for checks the linked project."""
    rules = select_rules(settings)
    _worker["rules"] = rules
    if task:
        project, mode = task
        _worker["checker"] = Checker(settings, rules, project)
        _worker["mode"] = mode


def _extract_batch(items: list[tuple[str, str]]) -> list[Extract]:
    rules: Sequence[Rule] = _worker["rules"]  # type: ignore[assignment]
    return [extract_path(Path(path), name, rules) for path, name in items]


def _check_batch(items: list[tuple[str, str]]) -> list[tuple[str, Outcome | SourceError]]:
    checker: Checker = _worker["checker"]  # type: ignore[assignment]
    mode: FixMode = _worker["mode"]  # type: ignore[assignment]
    return [(name, _outcome(checker, Path(path), name, mode)) for path, name in items]
