"""One file: source in, findings out. Pure: reads no disk, no clock but the day for `until=` suppressions."""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date

import libcst as cst

from amplint import facts, gate
from amplint.audit import Audit
from amplint.cancel import checkpoint
from amplint.config import Settings
from amplint.discover import IgnorePatterns
from amplint.finding import (
    Confidence,
    Edit,
    Finding,
    Fix,
    InternalError,
    Note,
    Position,
    Severity,
    Span,
    fingerprinted,
)
from amplint.fix import apply_edits
from amplint.model.module import ModuleModel
from amplint.project.link import Project
from amplint.registry import all_rules, default_rules, matches
from amplint.rule import Context, Report, Rule
from amplint.source import Source
from amplint.suppress import parse_suppressions
from amplint.syntax.parse import parse
from amplint.syntax.pause import no_garbage_collection
from amplint.syntax.pieces import Pieced
from amplint.syntax.positions import PositionsLost
from amplint.syntax.syntax_error import SyntaxProblem

SYNTAX_ERROR = "AMP900"
#: Where the runtime shim lives when the project has not vendored it.
SHIM = "amplint.runtime"


@dataclass(slots=True)
class FileResult:
    """What one file gave."""

    findings: list[Finding] = field(default_factory=list)
    internal_errors: list[InternalError] = field(default_factory=list)
    statistics: dict[str, int] = field(default_factory=dict)


def model_of(source: Source, settings: Settings, pieced: Pieced | None = None) -> ModuleModel | SyntaxProblem:
    """The model of one file, which may have been parsed before, or why it cannot be parsed."""
    with no_garbage_collection():
        if pieced is not None:
            return ModuleModel(source, pieced.module, "", _aliases(settings), pieced.pieces)
        module = parse(source)
        if isinstance(module, SyntaxProblem):
            return module
        return ModuleModel(source, module, "", _aliases(settings))


def _aliases(settings: Settings) -> dict[str, str]:
    """Names that mean other names: torch's own, the shim under its configured name, the user's wrappers."""
    shim = settings.shim_module
    own = {} if shim == SHIM else {f"{shim}.{name}": f"{SHIM}.{name}" for name in facts.shim_names()}
    return {**facts.aliases(), **own, **dict(settings.aliases)}


def syntax_finding(
    problem: SyntaxProblem, source: Source, settings: Settings, rules: Sequence[Rule]
) -> FileResult:
    """The finding for a file that cannot be parsed, unless its rule is not among `rules` or silenced here."""
    rule = next((rule for rule in rules if rule.code == SYNTAX_ERROR), None)
    if rule is None or file_ignores(rule, source, settings):
        return FileResult()
    starts = source.line_starts
    row = min(problem.position.row, len(starts))
    column = min(problem.position.column, len(source.line_text(row)) + 1)
    place = Position(row, column)
    if parse_suppressions(source).match(rule.code, rule.name, row, date.today()) is not None:
        return FileResult()
    offset = source.offset(place)
    finding = Finding(
        code=rule.code,
        name=rule.name,
        message=f"cannot be parsed: {problem.message}",
        severity=_configured_severity(rule, settings) or rule.severity,
        confidence=Confidence.HIGH,
        filename=source.filename,
        span=Span(offset, offset),
        start=place,
        end=place,
        no_fix_reason="only the author knows what was meant",
        url=rule.url,
    )
    return FileResult(fingerprinted([finding], _lines(source)))


def check(model: ModuleModel, settings: Settings, rules: Sequence[Rule], project: Project) -> FileResult:
    """Third phase: run the rules over one model."""
    with no_garbage_collection():
        try:
            return _Check(model, settings, rules, project).run()
        except PositionsLost as error:
            text = f"LibCST, which amplint parses with, does not reproduce it ({error})"
            return syntax_finding(SyntaxProblem(text, Position(1, 1)), model.source, settings, rules)


class _Check:
    """The check of one file by several rules."""

    def __init__(
        self, model: ModuleModel, settings: Settings, rules: Sequence[Rule], project: Project
    ) -> None:
        self.model = model
        self.settings = settings
        in_force = [rule for rule in rules if not file_ignores(rule, model.source, settings)]
        self.rules = list(gate.admit(model.source, [r for r in in_force if r.code != SYNTAX_ERROR]).rules)
        self.all_rules = rules
        suppressions = parse_suppressions(model.source)
        self.audit = Audit(model.source, suppressions, date.today(), all_rules(), default_rules(settings))
        self.audit.ran = frozenset(rule.code for rule in in_force)
        self.context = Context(model, settings, project, self.is_active, self.audit)
        self.result = FileResult()
        self._active: dict[tuple[str, int], bool] = {}
        #: Edits of fixes -> why they cannot be made in the cells of a notebook, or None.
        self._fit: dict[tuple[Edit, ...], str | None] = {}

    def run(self) -> FileResult:
        for rule in sorted(self.rules, key=lambda rule: rule.about_run):
            checkpoint()
            try:
                for report in rule.check(self.context):
                    finding = self._finding(rule, report)
                    if finding is not None:
                        self.result.findings.append(finding)
            except PositionsLost:
                raise
            except Exception as error:  # a broken rule must not stop the others
                self._failed(rule, error)
                self.audit.ran -= {rule.code}
        self.result.findings.extend(self._broken_cells())
        self.result.findings.sort(key=lambda finding: finding.sort_key)
        self.result.findings = fingerprinted(self.result.findings, _lines(self.model.source))
        return self.result

    def _broken_cells(self) -> Iterator[Finding]:
        """A finding for each cell of a notebook that cannot be parsed; the others were checked without it."""
        source = self.model.source
        for problem in source.cells.problems if source.cells is not None else ():
            found = SyntaxProblem(problem.message, problem.position)
            yield from syntax_finding(found, source, self.settings, self.all_rules).findings

    def is_active(self, code: str, node: cst.CSTNode) -> bool:
        """Whether a finding of `code` at `node` would be reported, and its fix may be applied."""
        key = code, id(node)
        if key not in self._active:  # a port asks for every place of the file, once for each finding
            self._active[key] = self._may_fix(code, node)
        return self._active[key]

    def _may_fix(self, code: str, node: cst.CSTNode) -> bool:
        rule = next((rule for rule in self.rules if rule.code == code), None)
        if rule is None or not self._fixable(rule):
            return False
        row = self.model.source.position(self.model.tree.span(node).start).row
        return not self.audit.suppressions.matches(rule.code, rule.name, row, self.audit.today)

    def _fixable(self, rule: Rule) -> bool:
        allowed = any(matches(rule, selector) for selector in self.settings.fixable)
        return allowed and not any(matches(rule, selector) for selector in self.settings.unfixable)

    def _severity(self, rule: Rule, report: Report) -> Severity:
        configured = _configured_severity(rule, self.settings)
        if configured is not None:
            return configured
        if report.severity is not None:
            return report.severity
        if rule.npu_severity is not None and self.settings.effective_target == "npu":
            return rule.npu_severity
        return rule.severity

    def _finding(self, rule: Rule, report: Report) -> Finding | None:
        confidence = report.confidence or rule.confidence
        source, tree = self.model.source, self.model.tree
        span = report.node if isinstance(report.node, Span) else tree.span(report.node)
        start = source.position(span.start)
        if self.audit.silences(rule, start.row, span.start):
            return None
        if confidence.rank < Confidence(self.settings.min_confidence).rank:
            return None
        notes = tuple(
            step
            if isinstance(step, Note)
            else Note(source.filename, source.position(tree.span(step[0]).start), step[1])
            for step in report.trace
        )
        fix, reason = self._fix(rule, report)
        return Finding(
            code=rule.code,
            name=rule.name,
            message=report.message,
            severity=self._severity(rule, report),
            confidence=confidence,
            filename=source.filename,
            span=span,
            start=start,
            end=source.position(span.end),
            trace=notes,
            fix=fix,
            no_fix_reason=reason,
            url=rule.url,
        )

    def _fix(self, rule: Rule, report: Report) -> tuple[Fix | None, str | None]:
        if report.fix is None:
            return None, "no rewrite is known that is right in general"
        if not self._fixable(rule):
            return None, "the configuration excludes this rule from fixing"
        try:
            made = report.fix()
        except PositionsLost:
            return None, "the parsed tree does not print as the file's text, so edits could go astray"
        except Exception as error:
            self._failed(rule, error)
            return None, "making the fix failed (internal error)"
        if isinstance(made, str):
            return None, made
        if made.edits not in self._fit:  # a port of the whole file is the fix of each of its findings
            self._fit[made.edits] = _unfit_for_cells(made, self.model.source)
        problem = self._fit[made.edits]
        return (made, None) if problem is None else (None, problem)

    def _failed(self, rule: Rule, error: Exception) -> None:
        text = f"{rule.code} failed: {type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))
        self.result.internal_errors.append(InternalError(self.model.filename, text, rule.code, trace))


def _unfit_for_cells(fix: Fix, source: Source) -> str | None:
    """Why a fix cannot be made in the cells of a notebook, or None."""
    if source.cells is None:
        return None
    from amplint.notebook.cells import NotebookError

    try:
        source.cells.split(apply_edits(source.text, fix.edits))
    except NotebookError as error:
        return f"the rewrite does not fit into the cells: {error.message}"
    return None


def _configured_severity(rule: Rule, settings: Settings) -> Severity | None:
    """What the configuration makes of the rule's severity; the last selector that means it counts."""
    return next((Severity(v) for selector, v in reversed(settings.severity) if matches(rule, selector)), None)


def file_ignores(rule: Rule, source: Source, settings: Settings) -> bool:
    """Whether `per-file-ignores` silence `rule` in this file."""
    if not settings.per_file_ignores:
        return False
    base = os.path.realpath(settings.root or os.curdir)
    path = os.path.realpath(source.path or os.path.join(base, source.filename))
    return any(
        any(matches(rule, code) for code in codes) and _patterns(pattern, base).covers(path)
        for pattern, codes in settings.per_file_ignores
    )


@functools.cache
def _patterns(pattern: str, base: str) -> IgnorePatterns:
    return IgnorePatterns((pattern,), base)


def _lines(source: Source) -> list[str]:
    return [source.line_text(row) for row in range(1, len(source.line_starts) + 1)]
