"""Many files: read, extract, link, check, fix. The only place that knows about order and parallelism."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from amplint.config import Settings
from amplint.finding import Finding, Fix, InternalError
from amplint.registry import select_rules
from amplint.rule import Rule
from amplint.source import FileChanged, Source, SourceError, read_source, source_from_bytes, write_atomic

if TYPE_CHECKING:
    from amplint.gate import Admission
    from amplint.model.module import ModuleModel
    from amplint.project.link import Project
    from amplint.syntax.syntax_error import SyntaxProblem

#: Fixing a file stops after this many passes; a pass applies every fix that does not overlap another.
MAX_PASSES = 10
#: Characters of source text whose models are kept (a file that is fixed is asked for its model several times).
_KEPT_TEXT = 1_000_000


@dataclass(frozen=True, slots=True)
class FixMode:
    """Which fixes a run applies: safe `ports`, safe `repairs`, and the unsafe ones of them with `unsafe`."""

    ports: bool = False
    repairs: bool = False
    unsafe: bool = False
    #: Write the files; otherwise the changes are only returned (for `--diff`).
    write: bool = False

    @property
    def any(self) -> bool:
        """Whether the run fixes anything at all."""
        return self.ports or self.repairs


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file as it was read and as the fixes leave it."""

    source: Source
    new_text: str
    fixed: tuple[Finding, ...]


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
    #: Counters of the analyses (functions analysed, given up, ...).
    statistics: dict[str, int] = field(default_factory=dict)


def run(
    paths: Sequence[Path],
    settings: Settings,
    *,
    fix: FixMode = FixMode(),
    cwd: Path | None = None,
    stdin: Source | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RunResult:
    """Check `paths` (or `stdin`), fix what `fix` says, and say what remains.

    Raises `registry.UnknownRule` and `registry.NoRules`; whatever is wrong with a file is in the result.
    """
    from amplint.discover import discover, display_name

    base = cwd if cwd is not None else Path.cwd()
    job = _Job(settings, select_rules(settings), fix)
    if stdin is not None:
        job.add(stdin)
    else:
        found = discover(paths, settings, base)
        job.result.problems.extend(found.problems)
        for path in found.files:
            job.read(path, display_name(path, base))
    job.check_all(progress)
    return job.finish()


class _Job:
    """One run over some files."""

    def __init__(self, settings: Settings, rules: Sequence[Rule], fix: FixMode) -> None:
        self.settings = settings
        self.rules = rules
        self.fix = fix
        self.result = RunResult()
        self._sources: list[Source] = []
        #: The rules that look at a model (AMP900 is about those that have none).
        self._checked_rules = tuple(rule for rule in rules if rule.code != "AMP900")
        self._counts: Counter[str] = Counter()

    def read(self, path: Path, filename: str) -> None:
        """Read one file; what cannot be read is a problem, what is no text at all a finding."""
        try:
            self.add(read_source(path, filename))
        except SourceError as error:
            self.result.files += 1
            if isinstance(error.__cause__, OSError):
                self.result.problems.append(error)
            else:
                self._unreadable(error)

    def add(self, source: Source) -> None:
        """Take one file into the run."""
        self.result.files += 1
        self._sources.append(source)

    def check_all(self, progress: Callable[[int, int], None] | None) -> None:
        """Extract every file, link those that the gate admits, check each of them."""
        from amplint.gate import admit
        from amplint.project.link import ModuleIndex, Project

        admitted: list[tuple[Source, Admission]] = []
        indexes: list[ModuleIndex] = []
        for source in self._sources:
            admission = admit(source, self._checked_rules)
            if admission.outline is not None:
                indexes.append(ModuleIndex(source.filename, tuple(admission.outline.imports)))
            if admission.rules or admission.problem is not None:
                admitted.append((source, admission))
        checker = Checker(self.settings, self.rules, Project(indexes), _Models(self.settings))
        done = len(self._sources) - len(admitted)
        for source, admission in admitted:
            checker.looked_at(source, admission.problem)
            self._check(source, checker)
            done += 1
            if progress is not None:
                progress(done, len(self._sources))

    def finish(self) -> RunResult:
        """The result, in order."""
        result = self.result
        result.findings.sort(key=lambda finding: finding.sort_key)
        result.internal_errors.sort(key=lambda error: (error.filename, error.message))
        result.problems.sort(key=lambda problem: (problem.filename, problem.message))
        result.changes.sort(key=lambda change: change.source.filename)
        result.statistics = dict(sorted(self._counts.items()))
        return result

    def _unreadable(self, error: SourceError) -> None:
        from amplint.engine import syntax_finding
        from amplint.syntax.syntax_error import SyntaxProblem

        empty = source_from_bytes(b"", error.filename)
        problem = SyntaxProblem(error.message, error.position)
        self._keep(empty, syntax_finding(problem, empty, self.rules).findings)

    def _check(self, source: Source, checker: Checker) -> None:
        outcome = checker.fix(source, self.fix) if self.fix.any else checker.check(source)
        self.result.internal_errors.extend(outcome.internal_errors)
        self._counts.update(outcome.statistics)
        remaining, current = outcome.findings, outcome.source
        if current is not source:
            change = FileChange(source, current.text, tuple(outcome.fixed))
            if self._write(change):
                self.result.changes.append(change)
            else:
                before = checker.check(source)
                remaining, current = before.findings, source
        self._keep(current, remaining)

    def _write(self, change: FileChange) -> bool:
        """Write a change where the run writes at all; False when that failed and the file is as it was."""
        if not self.fix.write or change.source.path is None:
            return True
        try:
            write_atomic(change.source, change.new_text)
        except FileChanged as error:
            self.result.problems.append(error)
            return False
        except SourceError as error:
            self.result.problems.append(error)
            return False
        return True

    def _keep(self, source: Source, findings: Sequence[Finding]) -> None:
        if findings:
            self.result.findings.extend(findings)
            self.result.sources[source.filename] = source


@dataclass(slots=True)
class Outcome:
    """What checking or fixing one file gave; `source` is the file as it is afterwards."""

    source: Source
    findings: list[Finding] = field(default_factory=list)
    fixed: list[Finding] = field(default_factory=list)
    internal_errors: list[InternalError] = field(default_factory=list)
    statistics: dict[str, int] = field(default_factory=dict)


class Checker:
    """Checks and fixes files of one linked project under one set of rules."""

    def __init__(self, settings: Settings, rules: Sequence[Rule], project: Project, models: _Models) -> None:
        self._settings = settings
        self._rules = rules
        self._project = project
        self._models = models

    def looked_at(self, source: Source, problem: SyntaxProblem | None) -> None:
        """Tell what the standard library's parser said of a file, so that it is not asked again."""
        self._models.looks[id(source)] = (problem,)

    def check(self, source: Source) -> Outcome:
        """Findings of one file as it is."""
        from amplint import engine

        try:
            model = self._models.get(source)
            if model is None:
                problem = self._models.problem(source)
                made = engine.syntax_finding(problem, source, self._rules)
            else:
                made = engine.check(model, self._settings, self._rules, self._project)
        except Exception as error:  # one file must not stop the others
            return Outcome(source, internal_errors=[_internal(source, error)])
        return Outcome(source, made.findings, [], made.internal_errors, made.statistics)

    def fix(self, source: Source, mode: FixMode) -> Outcome:
        """Apply every fix that `mode` admits, pass after pass, keeping only what can be shown to be right."""
        outcome = self.check(source)
        refused: set[Fix] = set()
        for _ in range(MAX_PASSES):
            candidates = [f for f in outcome.findings if _admitted(f, mode) and f.fix not in refused]
            if not candidates:
                break
            step = self._one_pass(outcome, candidates, refused)
            if step is None:
                break
            outcome = step
        return outcome

    def _one_pass(self, before: Outcome, candidates: Sequence[Finding], refused: set[Fix]) -> Outcome | None:
        """One pass: all candidates at once, or one by one when the whole cannot be shown to be right."""
        fixes = list(dict.fromkeys(f.fix for f in candidates if f.fix is not None))
        after = self._try(before, candidates, fixes)
        if isinstance(after, Outcome):
            return after
        for fix in fixes:
            after = self._try(before, candidates, [fix])
            if isinstance(after, Outcome):
                return after
            refused.add(fix)
            text = f"a fix was dropped ({fix.message}): {after}"
            before.internal_errors.append(InternalError(before.source.filename, text))
        return None

    def _try(self, before: Outcome, candidates: Sequence[Finding], fixes: Sequence[Fix]) -> Outcome | str:
        """The outcome of applying `fixes`, or why the result is not right."""
        from amplint.fix import apply
        from amplint.verify import objection

        applied = apply(before.source.text, fixes)
        done = set(applied.fixes)
        fixed = [f for f in candidates if f.fix in done]
        if applied.text == before.source.text:
            return "it changes nothing"
        try:
            data = before.source.encode(applied.text)
            source = source_from_bytes(data, before.source.filename, before.source.path)
        except SourceError as error:
            return error.message
        after = self.check(source)
        problem = objection(
            self._models.get(before.source), self._models.get(source), before.findings, after.findings, fixed
        )
        if problem is None and len(after.internal_errors) > len(before.internal_errors):
            problem = after.internal_errors[-1].message
        if problem is not None:
            return problem
        errors = [*before.internal_errors, *after.internal_errors]
        return Outcome(source, after.findings, [*before.fixed, *fixed], errors, after.statistics)


class _Models:
    """Models of the files of a run; the oldest are dropped past `_KEPT_TEXT` and made again when needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.looks: dict[int, tuple[SyntaxProblem | None]] = {}
        self._kept: OrderedDict[int, tuple[Source, ModuleModel]] = OrderedDict()
        self._problems: dict[int, tuple[Source, SyntaxProblem]] = {}
        self._size = 0

    def get(self, source: Source) -> ModuleModel | None:
        """The model of a file, or None when it cannot be parsed (see `problem`)."""
        from amplint import engine
        from amplint.model.module import ModuleModel

        kept = self._kept.get(id(source))
        if kept is not None:
            return kept[1]
        if id(source) in self._problems:
            return None
        made = engine.model_of(source, self._settings, self.looks.get(id(source)))
        if not isinstance(made, ModuleModel):
            self._problems[id(source)] = (source, made)
            return None
        self._kept[id(source)] = (source, made)
        self._size += len(source.text)
        while self._size > _KEPT_TEXT and len(self._kept) > 1:
            _, (dropped, _) = self._kept.popitem(last=False)
            self._size -= len(dropped.text)
        return made

    def problem(self, source: Source) -> SyntaxProblem:
        """Why a file has no model."""
        return self._problems[id(source)][1]


def _admitted(finding: Finding, mode: FixMode) -> bool:
    from amplint.engine import is_applicable

    return finding.fix is not None and is_applicable(
        finding.fix, ports=mode.ports, repairs=mode.repairs, unsafe=mode.unsafe
    )


def _internal(source: Source, error: Exception) -> InternalError:
    import traceback

    text = f"analysis failed: {type(error).__name__}: {error}"
    trace = "".join(traceback.format_exception(error))
    return InternalError(source.filename, text, None, trace)


def run_text(
    text: str, filename: str, fix: FixMode, select: Sequence[str] | None, settings: Mapping[str, object]
) -> RunResult:
    """Run over one module given as text. Raises `RuntimeError` on an internal error."""
    from dataclasses import replace

    from amplint.source import source_from_text

    chosen = replace(Settings(), select=None if select is None else tuple(select), **settings)  # type: ignore[arg-type]
    result = run([], chosen, fix=fix, stdin=source_from_text(text, filename))
    if result.internal_errors:
        raise RuntimeError(result.internal_errors[0].message)
    return result
