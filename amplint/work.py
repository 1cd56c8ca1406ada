"""The work on one file: extract, check, fix. Runs in any process; of other files it knows the linked project only."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from amplint.config import Settings
from amplint.finding import Finding, Fix, InternalError
from amplint.rule import Rule
from amplint.source import Source, SourceError, read_source

if TYPE_CHECKING:
    from amplint.flow.explain import Explanation
    from amplint.flow.precision.listing import RegionListing
    from amplint.model.module import ModuleModel
    from amplint.project.link import Project
    from amplint.syntax.pieces import Pieced
    from amplint.syntax.syntax_error import SyntaxProblem

#: Fixing a file stops after this many passes; a pass applies every fix that does not overlap another.
MAX_PASSES = 10
SYNTAX_ERROR = "AMP900"


@dataclass(frozen=True, slots=True)
class FixMode:
    """Which fixes a run applies: safe `ports`, safe `repairs`, and the unsafe ones of them with `unsafe`."""

    ports: bool = False
    repairs: bool = False
    unsafe: bool = False
    #: Write the files; otherwise the changes are only returned (for `--diff`).
    write: bool = False
    #: Only fixes of the rules with these codes; of all where it is empty.
    codes: frozenset[str] = frozenset()

    @property
    def any(self) -> bool:
        """Whether the run fixes anything at all."""
        return self.ports or self.repairs

    def admits(self, finding: Finding) -> bool:
        """Whether this mode applies the fix of `finding`."""
        fix = finding.fix
        if fix is None or fix.applicability.value == "display":
            return False
        if self.codes and finding.code not in self.codes:
            return False
        wanted = self.ports if fix.kind.value == "port" else self.repairs
        return wanted and (self.unsafe or fix.applicability.value == "safe")


NO_FIX = FixMode()


@dataclass(frozen=True, slots=True)
class Extract:
    """What the first phase learns of one file; all that other files may want to know of it."""

    filename: str
    #: SHA-256 of the bytes; "" when they could not be read.
    digest: str
    #: LibCST has to look at it.
    admitted: bool
    #: (dotted module as written, name taken); None when `ast` cannot parse the file.
    imports: tuple[tuple[str, str], ...] | None = None
    #: Why it could not be read (`unreadable`) or is no text.
    error: SourceError | None = None
    unreadable: bool = False


@dataclass(slots=True)
class Outcome:
    """What checking or fixing one file gave; `source` is the file as it is afterwards."""

    source: Source
    findings: list[Finding] = field(default_factory=list)
    fixed: list[Finding] = field(default_factory=list)
    internal_errors: list[InternalError] = field(default_factory=list)
    #: Fixes that were not right and therefore not made.
    dropped: list[InternalError] = field(default_factory=list)
    statistics: dict[str, int] = field(default_factory=dict)
    #: What was asked of the project, and what it answered.
    asked: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: The outcome of the file as it was, when fixing changed it.
    before: Outcome | None = None


def extract(source: Source, rules: Sequence[Rule]) -> Extract:
    """First phase for one file: the gate, and what the file imports."""
    from amplint.gate import admit

    admission = admit(source, [rule for rule in rules if rule.code != SYNTAX_ERROR])
    seen = admission.outline
    is_broken = admission.problem is not None or (source.cells is not None and bool(source.cells.problems))
    return Extract(
        source.filename,
        digest(source.data),
        bool(admission.rules) or is_broken,
        tuple(seen.imports) if seen is not None else None,
    )


def extract_path(path: Path, filename: str, rules: Sequence[Rule]) -> Extract:
    """First phase for a file on disk; never raises for what the file is."""
    try:
        return extract(read_source(path, filename), rules)
    except SourceError as error:
        unreadable = isinstance(error.__cause__, OSError)
        return Extract(filename, "", False, None, error, unreadable)


def digest(data: bytes) -> str:
    """What identifies the content of a file."""
    return hashlib.sha256(data).hexdigest()


def not_text(error: SourceError, path: Path | None, settings: Settings, rules: Sequence[Rule]) -> Outcome:
    """The outcome for a file that is no text at all; what can be read of it is shown."""
    from amplint.engine import syntax_finding
    from amplint.syntax.syntax_error import SyntaxProblem

    try:
        data = path.read_bytes() if path is not None else b""
    except (OSError, ValueError):
        data = b""
    source = Source(error.filename, path, data, data.decode("utf-8", "replace"))
    problem = SyntaxProblem(error.message, error.position)
    return Outcome(source, syntax_finding(problem, source, settings, rules).findings)


class Checker:
    """Checks and fixes files of one linked project under one set of rules, one file at a time."""

    def __init__(self, settings: Settings, rules: Sequence[Rule], project: Project) -> None:
        self._settings = settings
        self._rules = rules
        self._project = project
        self._project.load = self._other
        #: Models of the file at hand and of what fixes make of it.
        self._models: dict[tuple[str, Path | None, bytes], ModuleModel | SyntaxProblem] = {}

    def run(self, source: Source, mode: FixMode) -> Outcome:
        """Check one file, and fix it as far as `mode` says."""
        from amplint.model.module import ModuleModel
        from amplint.syntax.pause import no_garbage_collection

        with no_garbage_collection():
            try:
                return self._run(source, mode)
            finally:
                model = self._models.get(_key(source))
                if isinstance(model, ModuleModel):  # for the files that use it
                    self._project.keep_model(model)
                self._models.clear()

    def _run(self, source: Source, mode: FixMode) -> Outcome:
        first = outcome = self.check(source)
        refused: set[Fix] = set()
        for _ in range(MAX_PASSES):
            candidates = [f for f in outcome.findings if mode.admits(f) and f.fix not in refused]
            if not candidates:
                break
            step = self._one_pass(outcome, candidates, refused)
            if step is None:
                break
            outcome = step
        if outcome is not first:
            outcome.before = first
        outcome.internal_errors = list(dict.fromkeys([*outcome.internal_errors, *outcome.dropped]))
        return outcome

    def check(self, source: Source, pieced: Pieced | None = None) -> Outcome:
        """Findings of one file as it is; it may have been parsed before."""
        from amplint import engine
        from amplint.flow.remembered import forget
        from amplint.syntax.syntax_error import SyntaxProblem

        asked = self._project.record()
        try:
            model = self.model(source, pieced)
            if isinstance(model, SyntaxProblem):
                made = engine.syntax_finding(model, source, self._settings, self._rules)
            else:
                forget(model)  # what was found of it before may have come of other files as they were
                made = engine.check(model, self._settings, self._rules, self._project)
        except Exception as error:  # one file must not stop the others
            return Outcome(source, internal_errors=[_internal(source, error)])
        return Outcome(
            source,
            made.findings,
            internal_errors=made.internal_errors,
            statistics=made.statistics,
            asked=asked,
        )

    def is_broken(self, source: Source) -> bool:
        """Whether a file that was checked cannot be parsed."""
        from amplint.syntax.syntax_error import SyntaxProblem

        return isinstance(self._models.get(_key(source)), SyntaxProblem)

    def forget(self, *keep: Source) -> None:
        """Drop the models of all files but these."""
        wanted = {_key(source) for source in keep}
        for key in [key for key in self._models if key not in wanted]:
            del self._models[key]

    def explain_flow(self, source: Source, row: int) -> Explanation:
        """What the analyses believe at a row; `SourceError` if the file cannot be parsed."""
        from amplint.flow.explain import explain
        from amplint.flow.precision.explain import line
        from amplint.syntax.syntax_error import SyntaxProblem

        model = self.model(source)
        if isinstance(model, SyntaxProblem):
            raise SourceError(source.filename, f"cannot be parsed: {model.message}", model.position)
        return replace(
            explain(model, row, self._project), line=line(model, row, self._project, self._settings.torch)
        )

    def operators_in_regions(self, source: Source) -> tuple[RegionListing, ...]:
        """What runs in the autocast regions of a file; `SourceError` if it cannot be parsed."""
        from amplint.flow.precision.listing import operators_in_regions
        from amplint.syntax.syntax_error import SyntaxProblem

        model = self.model(source)
        if isinstance(model, SyntaxProblem):
            raise SourceError(source.filename, f"cannot be parsed: {model.message}", model.position)
        return operators_in_regions(model, self._project, self._settings.torch)

    def _other(self, source: Source) -> ModuleModel | None:
        """The model of a file that the one at hand uses."""
        from amplint import engine
        from amplint.syntax.syntax_error import SyntaxProblem

        found = engine.model_of(source, self._settings)
        return None if isinstance(found, SyntaxProblem) else found

    def model(self, source: Source, pieced: Pieced | None = None) -> ModuleModel | SyntaxProblem:
        """The model of a file, or why it cannot be parsed."""
        from amplint import engine

        found = self._models.get(_key(source)) or self._project.model_at_hand(source)
        if found is None:
            found = engine.model_of(source, self._settings, pieced)
        self._models[_key(source)] = found
        return found

    def _one_pass(self, before: Outcome, candidates: Sequence[Finding], refused: set[Fix]) -> Outcome | None:
        """One pass: all candidates at once, or one by one when the whole cannot be shown to be right."""
        fixes = list(dict.fromkeys(f.fix for f in candidates if f.fix is not None))
        after = self._try(before, candidates, fixes)
        if isinstance(after, Outcome):
            return after
        right: list[Fix] = []
        best: Outcome | None = None
        for fix in fixes:
            after = self._try(before, candidates, [*right, fix])
            if isinstance(after, Outcome):
                best = after
                right.append(fix)
                continue
            refused.add(fix)
            text = f"a fix was dropped ({fix.message}): {after}"
            before.dropped.append(InternalError(before.source.filename, text))
        return best

    def _try(self, before: Outcome, candidates: Sequence[Finding], fixes: Sequence[Fix]) -> Outcome | str:
        """The outcome of applying `fixes`, or why the result is not right."""
        from amplint.fix import apply
        from amplint.model.module import ModuleModel
        from amplint.verify import objection

        applied = apply(before.source.text, fixes)
        done = set(applied.fixes)
        fixed = [f for f in candidates if f.fix in done]
        if applied.text == before.source.text:
            return "it changes nothing"
        try:
            source = before.source.rewritten(applied.text)
        except SourceError as error:
            return error.message
        after = self.check(source)
        models = [m if isinstance(m, ModuleModel) else None for m in map(self.model, (before.source, source))]
        problem = objection(models[0], models[1], before.findings, after.findings, fixed)
        if problem is None:
            known = {error.code for error in before.internal_errors}
            problem = next((e.message for e in after.internal_errors if e.code not in known), None)
        if problem is not None:
            return problem
        after.fixed = [*before.fixed, *fixed]
        after.dropped = before.dropped
        return after


def _key(source: Source) -> tuple[str, Path | None, bytes]:
    """What tells one file as it is from others, some of which may have the same text."""
    return source.filename, source.path, source.data


def _internal(source: Source, error: Exception) -> InternalError:
    text = f"analysis failed: {type(error).__name__}: {error}"
    return InternalError(source.filename, text, None, "".join(traceback.format_exception(error)))
