"""Comments that silence a rule, with reasons and expiry.

    # amplint: ignore[AMP201, clip-before-unscale] reason      behind a statement, or alone above one
    # amplint: disable[AMP2] reason                            from here on,
    # amplint: enable[AMP201]                                  until here
    # amplint: file-ignore[AMP101] until=2027-01-31 reason     in the whole file
    # noqa: AMP201                                             behind a statement

In brackets are codes, families of codes (`AMP2`) and names of rules; without brackets all rules are meant. A
directive with `until=` works up to and including that day. `# noqa` without codes silences all rules, as it
does for other linters; after `# noqa:` only the codes that follow count, so that other linters' codes silence
nothing here. A directive that is malformed silences nothing.

A statement is a logical line: all rows of a call over several rows, the header of a `with` but not its body.
A directive above a decorated function covers the decorators and the `def`.
"""

from __future__ import annotations

import datetime
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Literal, cast

from amplint.finding import Span
from amplint.source import Source

Kind = Literal["ignore", "disable", "enable", "file-ignore", "noqa", "unknown"]

KINDS = ("ignore", "disable", "enable", "file-ignore")

#: Where another directive, of whatever tool, begins in the same comment; `#123` in a reason is none.
_NEXT = r"(?=\#\s*(?:noqa\b|[A-Za-z][\w-]*:)|\Z)"
_AMPLINT = re.compile(
    rf"\#\s*amplint(?:(?P<colon>:)|(?=\s+(?:ignore|disable|enable|file-ignore)\s*\[))\s*"
    rf"(?P<kind>[A-Za-z][\w-]*)?\s*(?:\[(?P<codes>[^\]]*)(?P<close>\])?)?(?P<rest>.*?){_NEXT}",
    re.DOTALL,
)
_NOQA = re.compile(
    rf"\#\s*noqa(?![\w-])(?P<colon>\s*:\s*(?P<codes>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*\b)?)?(?P<rest>.*?){_NEXT}",
    re.DOTALL | re.IGNORECASE,
)
#: Without one of these a text has no directive.
_MAYBE = re.compile(r"amplint(?::|\s+[\w-]+\s*\[)|noqa", re.IGNORECASE)
_UNTIL = re.compile(r"(?:^|(?<=\s))until=(\S*)\s*")
#: Dates in reasons that were meant as the last day, in other spellings.
_LIKE_UNTIL = re.compile(r"(?:^|(?<=\s))until\s*[:=]?\s*\d{4}-\d{1,2}-\d{1,2}", re.IGNORECASE)
_CODE = re.compile(r"([A-Z]+)[0-9]*")
_WORD = re.compile(r"[^\s,]+")
#: A reason that begins with one of this project's codes was meant as the code.
_BARE_CODE = re.compile(r"[\s:=(]*(AMP\d+)\b")


@dataclass(frozen=True, slots=True)
class Directive:
    """One comment that silences rules (or, for `enable`, stops silencing them)."""

    #: `unknown` when what follows `amplint:` is no directive.
    kind: Kind
    #: As written: codes, families and names; None means all rules.
    codes: tuple[str, ...] | None
    reason: str
    #: The last day on which the directive works; None is for ever.
    until: datetime.date | None
    #: Row of the comment, from 1.
    row: int
    #: The directive itself, from its `#` to the end of its reason.
    span: Span
    #: The whole comment, in which other directives may stand.
    comment: Span
    #: First and last row that it covers, of a `disable` before any `enable`; None when it covers nothing.
    rows: tuple[int, int] | None = None
    #: Why the directive is malformed and silences nothing; None when it is fine.
    problem: str | None = None
    #: Where each of `codes` stands.
    code_spans: tuple[Span, ...] = ()

    def expired(self, today: datetime.date) -> bool:
        """Whether its last day has passed."""
        return self.until is not None and today > self.until

    def names(self, code: str, name: str) -> bool:
        """Whether it is about the rule with this code and name."""
        return self.codes is None or any(means(given, code, name) for given in self.codes)


@dataclass(frozen=True)
class Suppressions:
    """The directives of one file, in the order in which they stand there."""

    directives: list[Directive] = field(default_factory=list)

    def match(self, code: str, name: str, start_row: int, today: datetime.date) -> Directive | None:
        """The first directive that silences a finding of this rule that starts on this row, or None."""
        return next(iter(self.matches(code, name, start_row, today)), None)

    def matches(self, code: str, name: str, start_row: int, today: datetime.date) -> list[Directive]:
        """Every directive that silences a finding of this rule that starts on this row."""
        found = [
            *self._disabled(code, name, start_row, today),
            *(d for d in self._whole_file if _silences(d, code, name, start_row, today)),
            *(d for d in self._by_row.get(start_row, ()) if _silences(d, code, name, start_row, today)),
        ]
        found.sort(key=lambda directive: directive.span)
        return found

    @cached_property
    def _ranges(self) -> list[Directive]:
        return [directive for directive in self.directives if directive.kind in ("disable", "enable")]

    @cached_property
    def _whole_file(self) -> list[Directive]:
        return [directive for directive in self.directives if directive.kind == "file-ignore"]

    @cached_property
    def _by_row(self) -> dict[int, list[Directive]]:
        """Row -> the directives about the statement it belongs to: there may be one for each of many findings."""
        found: dict[int, list[Directive]] = {}
        for directive in self.directives:
            if directive.rows is not None and directive.kind not in ("disable", "enable", "file-ignore"):
                for row in range(directive.rows[0], directive.rows[1] + 1):
                    found.setdefault(row, []).append(directive)
        return found

    def _disabled(self, code: str, name: str, row: int, today: datetime.date) -> list[Directive]:
        """The `disable`s in force for a rule on a row."""
        disabled: list[Directive] = []
        for directive in self._ranges:
            if directive.kind == "disable":
                if _silences(directive, code, name, row, today):
                    disabled.append(directive)
            elif (
                directive.problem is None
                and directive.rows is not None
                and directive.rows[0] <= row
                and directive.names(code, name)
            ):
                disabled = []
        return disabled


def parse_suppressions(source: Source) -> Suppressions:
    """Find the directives in the comments of a file.

    In a file that cannot be tokenized to its end, those before the error are found. Files in whose text no
    directive can be are not tokenized.
    """
    if not _MAYBE.search(source.text):
        return Suppressions()
    return Suppressions(sorted(_located(source), key=lambda directive: directive.span))


def _silences(directive: Directive, code: str, name: str, row: int, today: datetime.date) -> bool:
    return (
        directive.problem is None
        and directive.rows is not None
        and directive.rows[0] <= row <= directive.rows[1]
        and directive.names(code, name)
        and not directive.expired(today)
    )


@lru_cache(1 << 12)
def means(given: str, code: str, name: str) -> bool:
    """Whether a word in brackets means the rule: its name, its code, or a family that the code is in."""
    if given.lower() == name.lower() or given.upper() == "ALL":
        return True
    family = _CODE.fullmatch(given.upper())
    own = _CODE.match(code.upper())
    # The letters must agree: another linter's family A is not ours.
    return bool(family and own and family[1] == own[1] and code.upper().startswith(given.upper()))


def _located(source: Source) -> Iterator[Directive]:
    """Directives with the rows that they cover."""
    last_row = len(source.line_starts)
    inside: list[Directive] = []
    #: Alone on their row, and the first row of the decorators met since.
    above: list[tuple[Directive, int | None]] = []
    first_row: int | None = None
    row = 1
    is_decorator = False
    for kind, text, row, column in _tokens(source):
        if kind == "comment":
            for directive in _parse_comment(text, row, source.line_starts[row - 1] + column):
                if directive.kind == "file-ignore":
                    yield replace(directive, rows=(1, last_row))
                elif directive.kind in ("disable", "enable"):
                    yield replace(directive, rows=(row if first_row is None else first_row, last_row))
                elif first_row is not None:
                    inside.append(directive)
                elif directive.kind == "ignore":
                    above.append((directive, None))
                else:
                    yield directive
        elif kind == "end":
            rows = (first_row or row, row)
            yield from (replace(directive, rows=rows) for directive in inside)
            above = [(directive, start or rows[0]) for directive, start in above]
            if not is_decorator:
                yield from (replace(directive, rows=(start or row, row)) for directive, start in above)
                above = []
            inside, first_row = [], None
        elif first_row is None:
            first_row, is_decorator = row, text == "@"
    yield from (replace(directive, rows=(first_row or row, row)) for directive in inside)
    yield from (directive for directive, _ in above)


def _tokens(source: Source) -> Iterator[tuple[Literal["comment", "end", "other"], str, int, int]]:
    """Comments, ends of logical lines and other tokens with their text, row and column from 0."""
    rows = (source.line_text(row) for row in range(1, len(source.line_starts) + 1))
    last = len(source.line_starts)
    lines = (text + "\n" if row < last else text for row, text in enumerate(rows, 1))
    layout = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    try:
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            if token.type == tokenize.COMMENT:
                yield "comment", token.string, *token.start
            elif token.type == tokenize.NEWLINE:
                yield "end", "", *token.start
            elif token.type not in layout:
                yield "other", token.string, *token.start
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        return


def _parse_comment(text: str, row: int, offset: int) -> Iterator[Directive]:
    """Directives in one comment that begins at `offset`."""
    comment = Span(offset, offset + len(text))
    for match in _AMPLINT.finditer(text):
        kind, reason, until, problem = match["kind"] or "", match["rest"], None, None
        if not match["colon"]:
            problem = f"a colon is missing: # amplint: {kind}"
        elif kind not in KINDS:
            problem = f"unknown directive {kind!r}; expected one of {', '.join(KINDS)}"
            kind = "unknown"
        elif match["codes"] is not None and match["close"] is None:
            problem = "the closing bracket is missing"
        elif match["codes"] is None and (bare := _BARE_CODE.match(reason)):
            problem = f"codes go into brackets: {kind}[{bare[1]}]"
        elif date := _UNTIL.search(reason):
            reason = reason[: date.start()] + reason[date.end() :]
            until = _date(date[1])
            problem = None if until else f"until={date[1]} is not a date such as until=2027-01-31"
        elif like := _LIKE_UNTIL.search(reason):
            problem = f"{like[0]!r} is no last day; write it as until=2027-01-31"
        codes, spans = (None, ()) if match["codes"] is None else _words(match, offset)
        span = Span(offset + match.start(), offset + match.start() + len(match[0].rstrip()))
        yield Directive(
            cast(Kind, kind), codes, _reason(reason), until, row, span, comment, None, problem, spans
        )
    for match in _NOQA.finditer(text):
        codes, spans = (None, ()) if match["colon"] is None else _words(match, offset)
        span = Span(offset + match.start(), offset + match.start() + len(match[0].rstrip()))
        yield Directive("noqa", codes, _reason(match["rest"]), None, row, span, comment, None, None, spans)


def _words(match: re.Match[str], offset: int) -> tuple[tuple[str, ...], tuple[Span, ...]]:
    """The codes of a directive and where they stand; `offset` is where the comment begins."""
    start = offset + match.start("codes")
    found = [(m[0], Span(start + m.start(), start + m.end())) for m in _WORD.finditer(match["codes"] or "")]
    return tuple(word for word, _ in found), tuple(span for _, span in found)


def _reason(text: str) -> str:
    return text.strip().lstrip(":-–— ")


def _date(text: str) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text) else None
    except ValueError:
        return None
