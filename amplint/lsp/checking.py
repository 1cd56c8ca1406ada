"""The documents of one scope that are open: their checks, with everything kept that the next one can use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from amplint.finding import Finding
from amplint.lsp.known import FileState, state_of
from amplint.lsp.messages import Checked, CheckedFile, Rewritten, Unsaved, Wanted
from amplint.lsp.settings import Scope
from amplint.lsp.texts import edits_between, in_file, shown_parts, source_of
from amplint.source import NOTEBOOK, Source, SourceError, source_from_text

if TYPE_CHECKING:
    from amplint.lsp.outline import Outline
    from amplint.model.module import ModuleModel
    from amplint.project.link import ModuleIndex
    from amplint.rule import Rule
    from amplint.syntax.pieces import Pieced
    from amplint.syntax.syntax_error import SyntaxProblem
    from amplint.work import Extract


class _Kept:
    """What is kept of one document for its next check."""

    def __init__(self) -> None:
        from amplint.syntax.pieces import Pieces

        #: What its last check asked of the project, and what it was told.
        self.asked: dict[str, tuple[str, ...]] = {}
        #: The document that was checked last, and all that was found in it, the baseline's findings too.
        self.checked: tuple[Unsaved, tuple[Finding, ...]] | None = None
        #: The last text that could be parsed, and what was found in it.
        self.settled: tuple[str, tuple[Finding, ...]] | None = None
        #: The last text that could be parsed is beyond the Python that runs amplint.
        self.is_newer = False
        #: The imports whose files were taken in last.
        self.followed: object = None
        #: What the last whole text was parsed to, and what was left of it for the last first look.
        self.pieces = Pieces()
        self.looked_at = Pieces(self.pieces)
        self._outline: Outline | None = None

    def outlined(self, text: str) -> tuple[Outline | None, SyntaxProblem | None]:
        """The outline of a text, or why it cannot be parsed; all of it is parsed only where that is not known else."""
        from amplint.lsp.outline import outline_of
        from amplint.syntax.syntax_error import parsed_only

        made = self._outline.after(text) if self._outline is not None else None
        if made is None:
            problem, tree = parsed_only(text)
            if tree is None:
                return None, problem
            made = outline_of(text, tree)
        self._outline = made
        return made, None


class Open:
    """The documents of one scope that are open, and the project that they are part of."""

    def __init__(self, scope: Scope) -> None:
        from amplint.lsp import glance
        from amplint.lsp.known import Known
        from amplint.project.link import Project
        from amplint.project.nearby import Nearby
        from amplint.registry import select_rules
        from amplint.work import Checker

        self.scope = scope
        self.rules: Sequence[Rule] = select_rules(scope.settings)
        self.project = Project((), Path(scope.base).absolute().as_posix())
        self.checker = Checker(scope.settings, self.rules, self.project)
        #: For first looks, which make no fixes.
        unfixed = replace(scope.settings, fixable=())
        quick = [rule for rule in self.rules if rule.code not in glance.WHOLE_FILE]
        self._first_sight = Checker(unfixed, quick, self.project)
        self._nearby = Nearby()
        self._known = Known(scope)
        self._kept: dict[str, _Kept] = {}
        #: Names of the files that `learn` was last told of.
        self._learned: set[str] = set()
        #: Path of a file -> its state on disk, and what other files may want to know of it.
        self._indexed: dict[str, tuple[FileState, ModuleIndex | None]] = {}
        self._day = date.today()
        #: Path of a file that is not open -> its state on disk when it was checked, what was found, and what the
        #: project was asked for that, and said.
        self._files: dict[str, tuple[FileState, CheckedFile, dict[str, tuple[str, ...]]]] = {}

    def _of(self, name: str) -> _Kept:
        found = self._kept.get(name)
        if found is None:
            found = self._kept[name] = _Kept()
        return found

    def everything(self, document: Unsaved) -> tuple[Finding, ...]:
        """All findings of a document, those of the baseline too; from its last check where that still holds."""
        name = document.filename
        kept = self._of(name)
        last = kept.checked
        if last is None or last[0] != document or not self.project.holds(name, kept.asked):
            self.check(document)
        return kept.checked[1] if kept.checked is not None else ()

    def check(self, document: Unsaved) -> Checked:
        """Check one document; findings of the baseline are left out."""
        from amplint.syntax.pause import no_garbage_collection
        from amplint.work import not_text

        name = document.filename
        kept = self._of(name)
        try:
            source = source_of(document)
        except SourceError as error:
            path = Path(document.path) if document.path is not None else None
            found = tuple(not_text(error, path, self.scope.settings, self.rules).findings)
            kept.checked = (document, found)
            return Checked(found, broken=True)
        seen = self.take_in(document, source)
        if not seen.admitted:
            kept.asked = {}
            kept.checked = (document, ())
            kept.settled = (source.text, ())
            self.checker.forget()
            return Checked(stale=self._stale(name), cells=source.cells)
        with no_garbage_collection():
            outcome = self.checker.check(source, self._pieced(kept, source))
            broken = self.checker.is_broken(source)
            self.checker.forget(source)
        kept.asked = outcome.asked
        kept.checked = (document, tuple(outcome.findings))
        new = self._known.new(outcome.findings, source)
        if not broken:
            kept.settled = (source.text, new)
            kept.is_newer = source.cells is None and kept.outlined(source.text)[0] is None
        return Checked(
            new,
            broken=broken,
            problem=self._known.problem,
            internal_errors=tuple(error.message for error in outcome.internal_errors),
            stale=self._stale(name),
            cells=source.cells,
        )

    def glance(self, document: Unsaved) -> Checked | None:
        """A first look at what was edited in a document that was checked before; None where that says nothing."""
        from amplint.engine import syntax_finding
        from amplint.lsp import glance
        from amplint.lsp.moves import Change
        from amplint.syntax.pause import no_garbage_collection

        kept = self._of(document.filename)
        try:
            source = source_of(document)
        except SourceError:
            return None
        with no_garbage_collection():
            outline, problem = kept.outlined(source.text)
        if problem is not None and kept.is_newer:
            return None  # LibCST may know better
        if problem is not None:
            found = syntax_finding(problem, source, self.scope.settings, self.rules).findings
            return Checked(tuple(found), broken=True, provisional=True)
        before = kept.settled
        if before is None or outline is None or not self._known.is_current:
            return None
        if before[0] == source.text:
            is_same = self.project.holds(document.filename, kept.asked)
            return Checked(before[1], provisional=True) if is_same else None
        change = Change(before[0], source.text)
        if glance.means_the_same(outline, change):
            return Checked(tuple(glance.moved(change, before[1])), provisional=True)
        look = glance.reduced(source, outline, change)
        if look is None:
            return None
        shown = source_of(replace(document, text=look.text))
        with no_garbage_collection():
            pieced = kept.looked_at.parse(look.text, look.starts)
            seen = self._first_sight.check(shown, pieced)
        is_broken = self._first_sight.is_broken(shown)
        self._first_sight.forget()
        if is_broken or seen.internal_errors:
            return None
        new = self._known.new(seen.findings, shown)  # what stays of the text is all that a baseline looks at
        findings = glance.merged(source, glance.Seen(look, new), change, before[1])
        return Checked(findings, provisional=True)

    def _pieced(self, kept: _Kept, source: Source) -> Pieced | None:
        """A document parsed in pieces; None where it is a notebook, or cannot be."""
        outline, _ = kept.outlined(source.text) if source.cells is None else (None, None)
        if outline is None:
            return None
        pieced = kept.pieces.parse(source.text, outline.starts(source))
        return pieced if pieced is not None and pieced.keeps_places else None

    def take_in(self, document: Unsaved, source: Source) -> Extract:
        """Let the project know of a document as it is now, and of the files that it imports."""
        from amplint.project.link import ModuleIndex
        from amplint.work import extract

        seen = extract(source, self.rules)
        self.project.unsaved[document.filename] = source
        imports = seen.imports
        if imports is None:  # cannot be parsed: what it last imported
            imports = self.project.imports(document.filename)
        self.project.update([ModuleIndex(document.filename, imports, seen.digest)])
        if document.path is not None and seen.admitted:
            self._follow(Path(document.path), imports)
        return seen

    def close(self, filename: str) -> tuple[str, ...]:
        """The document is what is on disk again; names of open documents that this may matter to."""
        self._kept.pop(filename, None)
        self.project.unsaved.pop(filename, None)
        return self.changed([filename])

    def changed(self, filenames: Sequence[str]) -> tuple[str, ...]:
        """Files that are not open changed on disk; names of open documents that this may matter to."""
        names = [name for name in filenames if name not in self.project.unsaved]
        found, gone = [], []
        for name in names:
            module = self.module(Path(self.scope.base, name), name)
            if module is None:
                gone.append(name)
            else:
                found.append(module)
        self.project.update(found, gone)
        return self._stale("")

    def learn(self, modules: Sequence[ModuleIndex]) -> tuple[str, ...]:
        """Take in what is known of all files of the project; names of open documents that this may matter to."""
        before, self._learned = self._learned, {module.filename for module in modules}
        gone = before - self._learned - self.project.unsaved.keys()
        self.project.update([m for m in modules if m.filename not in self.project.unsaved], sorted(gone))
        return self._stale("")

    def rewrite(self, document: Unsaved, wanted: Wanted) -> Rewritten:
        """Make fixes, verified as those of a run are."""
        from amplint.work import FixMode

        source = source_of(document)
        self.take_in(document, source)
        mode = FixMode(wanted.ports, wanted.repairs, wanted.unsafe, codes=wanted.codes)
        outcome = self.checker.run(source, mode)
        problems = tuple(error.message for error in outcome.internal_errors)
        return Rewritten(edits_between(document, source, outcome.source), len(outcome.fixed), problems)

    def ignore(self, document: Unsaved, fingerprint: str, reason: str) -> Rewritten:
        """Write a comment that silences a finding."""
        from amplint.ignores import objection, silence

        problem = objection(reason, date.today())
        if problem is not None:
            return Rewritten(problems=(problem,))
        source = source_of(document)
        found = [f for f in self.check(document).findings if f.fingerprint == fingerprint]
        made = silence(source, found, reason, date.today())
        if not made.findings:
            return Rewritten(problems=("no comment can silence this finding",))
        return Rewritten(edits_between(document, source, made.source))

    def model(self, document: Unsaved) -> ModuleModel | None:
        """The model of a document; None where it cannot be parsed."""
        from amplint.model.module import ModuleModel
        from amplint.syntax.pause import no_garbage_collection

        source = source_of(document)
        if not self.take_in(document, source).admitted:
            return None
        with no_garbage_collection():
            found = self.checker.model(source, self._pieced(self._of(document.filename), source))
        self.checker.forget(source)
        return found if isinstance(found, ModuleModel) else None

    def recall(self, paths: Sequence[str]) -> dict[str, CheckedFile]:
        """What `check_file` gave for those of some files for which it would give the same again."""
        if not self._known.is_current or self._day != date.today():
            self._files.clear()
            self._day = date.today()
        return {
            path: before[1]
            for path in paths
            if (before := self._files.get(path)) is not None
            and before[0] == state_of(path)
            and self.project.holds(before[1].filename, before[2])
        }

    def check_file(self, path: str) -> CheckedFile | None:
        """Check a file on disk that is not open; None when it cannot be read."""
        from amplint.discover import display_name
        from amplint.source import read_source

        self._files.pop(path, None)
        name = display_name(path, Path(self.scope.base))
        state = state_of(path)
        try:
            source = read_source(Path(path), name)
        except SourceError:
            return None
        checked, asked = self._check_file(path, source)
        self._files[path] = (state, checked, asked)
        return checked

    def _check_file(self, path: str, source: Source) -> tuple[CheckedFile, dict[str, tuple[str, ...]]]:
        """What is wrong in a file, and what was asked of the project for that."""
        from amplint.work import NO_FIX, digest, extract

        name = source.filename
        if not extract(source, self.rules).admitted:
            return CheckedFile(path, name, digest(source.data)), {}
        outcome = self.checker.run(source, NO_FIX)
        errors = tuple(error.message for error in outcome.internal_errors)
        found = self._known.new(outcome.findings, source)
        parts = digest(source.data), sorted(outcome.asked.items()), [shown_parts(each) for each in found]
        identity = digest(repr(parts).encode("utf-8", "surrogatepass"))
        text = source.text if found else ""
        if found and source.cells is not None:
            raw = source_from_text(source.data.decode("utf-8-sig", "replace"), name.removesuffix(NOTEBOOK))
            text, found = raw.text, tuple(in_file(each, source, raw) for each in found)
        return CheckedFile(path, name, identity, text, found, errors), outcome.asked

    def _follow(self, path: Path, imports: Sequence[tuple[str, str]]) -> None:
        """Take in the files that a document imports, as a run over a few files does."""
        from amplint.discover import display_name

        name = display_name(path, Path(self.scope.base))
        kept = self._of(name)
        if kept.followed == imports:
            return
        kept.followed = imports
        known = {path: imports}
        for layer in self._nearby.of(known):
            for found in layer:
                shown = display_name(found, Path(self.scope.base))
                module = self.project.index(shown) or self.module(found, shown)
                if module is not None:
                    known[found] = module.imports
                    self.project.update([module])

    def index(self, path: str) -> ModuleIndex | None:
        """What other files may want to know of a file on disk; read again only when it has changed."""
        from amplint.discover import display_name

        state, known = state_of(path), self._indexed.get(path)
        if known is None or known[0] != state:
            name = display_name(path, Path(self.scope.base))
            known = self._indexed[path] = state, self.module(Path(path), name)
        return known[1]

    def module(self, path: Path, name: str) -> ModuleIndex | None:
        """What other files may want to know of a file on disk; None when it cannot be read."""
        from amplint.project.link import ModuleIndex
        from amplint.work import extract_path

        seen = extract_path(path, name, self.rules)
        return ModuleIndex(name, seen.imports or (), seen.digest) if seen.digest else None

    def _stale(self, changed: str) -> tuple[str, ...]:
        """Open documents other than the one that changed which would be told something else today."""
        return tuple(
            name
            for name, kept in self._kept.items()
            if name != changed and not self.project.holds(name, kept.asked)
        )
