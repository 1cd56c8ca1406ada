"""What the directives of one file did in a run, and the edits that take them out again."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from amplint.finding import Edit, Span
from amplint.registry import is_known
from amplint.rule import Rule
from amplint.source import Source
from amplint.suppress import Directive, Suppressions, means

#: Kinds of directives that silence something.
_SILENCING = ("ignore", "disable", "file-ignore", "noqa")


@dataclass(slots=True)
class Audit:
    """The directives of one file. The engine tells what ran and what was silenced, rules ask afterwards."""

    source: Source
    suppressions: Suppressions
    #: The day of the run, for `until=`.
    today: datetime.date
    #: Every rule that is installed.
    installed: Sequence[Rule]
    #: The rules that a run without any selection checks.
    default: Sequence[Rule]
    #: Codes of the rules that had their say in this file.
    ran: frozenset[str] = frozenset()
    #: (start of a directive, word in its brackets, "" for no brackets) of what silenced a finding.
    _used: set[tuple[int, str]] = field(default_factory=set)

    def silences(self, rule: Rule, row: int, start: int) -> bool:
        """Whether a finding of `rule` at `row`, offset `start`, is silenced; what silences it counts as used."""
        found = self.suppressions.matches(rule.code, rule.name, row, self.today)
        if rule.about_run:
            found = [directive for directive in found if not self._is_about(directive, start, rule)]
        for directive in found:
            for word in directive.codes or ("",):
                if not word or means(word, rule.code, rule.name):
                    self._used.add((directive.span.start, word))
        return bool(found)

    def unused(self) -> Iterator[tuple[Directive, tuple[str, ...]]]:
        """Directives that silenced nothing, each with the words that did not; no words for all of it.

        Of other linters' `noqa` nothing is said, nor of rules that this run did not check.
        """
        for directive in self._working():
            if directive.problem is not None:
                yield directive, ()
            elif directive.codes is None:
                if directive.kind != "noqa" and self._is_unused(directive, ""):
                    yield directive, ()
            else:
                words = tuple(word for word in directive.codes if self._is_unused(directive, word))
                if words:
                    yield directive, words

    def unknown(self) -> Iterator[tuple[Directive, tuple[str, ...]]]:
        """Directives of amplint with words that mean no installed rule."""
        for directive in self.suppressions.directives:
            if directive.kind in ("noqa", "unknown") or directive.codes is None:
                continue
            words = tuple(word for word in directive.codes if not self._meant(word) and not is_known(word))
            if words:
                yield directive, words

    def expired(self) -> Iterator[Directive]:
        """Directives whose last day has passed."""
        for directive in self.suppressions.directives:
            if directive.kind in _SILENCING and directive.problem is None and directive.expired(self.today):
                yield directive

    def removal(self, directive: Directive, words: Sequence[str] = ()) -> tuple[Edit, ...]:
        """Edits that take `words` out of a directive, or all of it where no word would stay."""
        kept = [word for word in directive.codes or () if word not in words]
        if not words or not kept:
            ending = self._ending(directive)
            return tuple(self._without(each) for each in (directive, ending) if each is not None)
        return tuple(self._without_words(directive, words))

    @staticmethod
    def _is_about(directive: Directive, start: int, rule: Rule) -> bool:
        """Whether a finding is about `directive`, which then silences it only if it names the rule."""
        if not directive.span.start <= start < directive.span.end:
            return False
        return not any(word.lower() in (rule.name, rule.code.lower()) for word in directive.codes or ())

    # -- judging ---------------------------------------------------------------------------------------------

    def _working(self) -> Iterator[Directive]:
        """Directives that mean to silence something and have not expired."""
        for directive in self.suppressions.directives:
            # prose may begin with "amplint:" too
            is_meant = directive.kind in _SILENCING or (directive.kind == "unknown" and directive.codes)
            if is_meant and not directive.expired(self.today):
                yield directive

    def _is_unused(self, directive: Directive, word: str) -> bool:
        meant = [rule for rule in self._meant(word) if not rule.about_run]
        if not word or len(meant) > 1:
            # rules in preview, or for another target, are not expected of every run
            meant = [rule for rule in meant if rule in self.default] or meant
        if not meant or any(rule.code not in self.ran for rule in meant):
            return False
        return (directive.span.start, word) not in self._used

    def _meant(self, word: str) -> list[Rule]:
        return [rule for rule in self.installed if not word or means(word, rule.code, rule.name)]

    # -- removing --------------------------------------------------------------------------------------------

    def _ending(self, directive: Directive) -> Directive | None:
        """The `enable` that has nothing to end once the only `disable` before it is gone."""
        if directive.kind != "disable":
            return None
        others = 0
        for other in self.suppressions.directives:
            others += other.kind == "disable"
            if other.kind == "enable" and other.span > directive.span:
                return other if others == 1 and other.codes == directive.codes else None
        return None

    def _without(self, directive: Directive) -> Edit:
        text, comment, span = self.source.text, directive.comment, directive.span
        if not text[span.end : comment.end].strip():
            before = text[comment.start : span.start].rstrip()
            if before:
                return Edit(Span(comment.start + len(before), comment.end), "")
            return Edit(self._whole(comment, directive.row), "")
        if span.start > comment.start:
            start = comment.start + len(text[comment.start : span.start].rstrip())
            return Edit(Span(start, span.end), "")
        behind = text[span.end : comment.end]
        return Edit(Span(span.start, comment.end - len(behind.lstrip())), "")

    def _whole(self, comment: Span, row: int) -> Span:
        """The comment with the blanks before it, or its line where it stands alone."""
        text, starts = self.source.text, self.source.line_starts
        start = starts[row - 1]
        code = text[start : comment.start].rstrip()
        if code:
            return Span(start + len(code), comment.end)
        if text[:start].rstrip("\r\n").endswith("\\"):
            return comment  # without an empty row here the next one would be joined
        return Span(start, starts[row] if row < len(starts) else len(text))

    @staticmethod
    def _without_words(directive: Directive, words: Sequence[str]) -> Iterable[Edit]:
        """Edits that leave the separators between the other words as they are."""
        codes, spans = directive.codes or (), directive.code_spans
        kept = [index for index, word in enumerate(codes) if word not in words]
        for index, word in enumerate(codes):
            if word in words and index < kept[-1]:
                yield Edit(Span(spans[index].start, spans[index + 1].start), "")
        if kept[-1] < len(codes) - 1:
            yield Edit(Span(spans[kept[-1]].end, spans[-1].end), "")
