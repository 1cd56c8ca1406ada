"""Comments that silence findings, written into a file for its user."""

from __future__ import annotations

import datetime
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from amplint.finding import Edit, Finding, Span
from amplint.fix import apply_edits
from amplint.source import Source, source_from_text
from amplint.suppress import Directive, parse_suppressions
from amplint.syntax.statements import Statements

_SYNTAX_ERROR = "AMP900"


@dataclass(frozen=True, slots=True)
class Silenced:
    """A file with comments."""

    source: Source
    #: The findings that they silence.
    findings: tuple[Finding, ...]
    #: How many comments there are more, or say more.
    comments: int


@dataclass(frozen=True, slots=True)
class _Comment:
    """A comment, and the findings that it is for."""

    edit: Edit
    findings: tuple[Finding, ...]
    #: The row that it is a row of its own above; 0 for a comment behind code.
    above: int = 0


def objection(reason: str, today: datetime.date) -> str | None:
    """Why a text cannot be the reason of a suppression, or None."""
    if not reason.isprintable():
        return "the reason is to be one line of printable text"
    directive = _parsed(f"# amplint: ignore[AMP101] {reason}")
    if directive is None:
        return "another directive begins in the reason"
    if directive.problem is not None:
        return directive.problem
    if not directive.reason:
        return "the reason is empty"
    return f"{directive.until} has passed" if directive.expired(today) else None


def silence(source: Source, findings: Iterable[Finding], reason: str, today: datetime.date) -> Silenced:
    """Put comments with a reason to findings of a file: behind their rows, or above where that cannot be.

    A finding that no comment can silence is left out. Raises `SourceError` when the encoding of the file has no
    bytes for the reason.
    """
    reason = reason.strip()
    statements = Statements(source)
    comments = _comments(source, statements, list(findings), reason)
    made = _made(source, statements, comments, today)
    if made is None:  # one by one, to leave out what does not work
        right: list[_Comment] = []
        for comment in comments:
            if (tried := _made(source, statements, [*right, comment], today)) is not None:
                right.append(comment)
                made = tried
    return Silenced(source, (), 0) if made is None else made


def _comments(
    source: Source, statements: Statements, findings: Sequence[Finding], reason: str
) -> list[_Comment]:
    groups: dict[int, list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: finding.sort_key):
        statement = statements.at(finding.start.row)
        if finding.code == _SYNTAX_ERROR:
            groups.setdefault(0, []).append(finding)
        elif statement is not None:
            groups.setdefault(statement.first_row, []).append(finding)
    directives = parse_suppressions(source).directives
    wanted = _parsed(f"# amplint: ignore[AMP101] {reason}")
    comments = []
    for row, group in groups.items():
        codes = sorted({finding.code for finding in group})
        alike = None
        if row:
            alike = next((d for d in directives if _can_be_widened(d, wanted, group[0].start.row)), None)
        if alike is not None:
            end = alike.code_spans[-1].end
            edit = Edit(Span(end, end), "".join(f", {code}" for code in codes))
            comments.append(_Comment(edit, tuple(group)))
        elif row == 0:
            comments.append(_at_top(source, f"# amplint: file-ignore[{codes[0]}] {reason}", group))
        else:
            comments.append(
                _placed(source, statements, f"# amplint: ignore[{', '.join(codes)}] {reason}", group)
            )
    return comments


def _can_be_widened(directive: Directive, wanted: Directive | None, row: int) -> bool:
    """Whether a directive about this row says all that is wanted but the codes."""
    return (
        wanted is not None
        and (directive.kind, directive.reason, directive.until) == ("ignore", wanted.reason, wanted.until)
        and directive.problem is None
        and bool(directive.code_spans)
        and directive.rows is not None
        and directive.rows[0] <= row <= directive.rows[1]
    )


def _placed(source: Source, statements: Statements, text: str, group: Sequence[Finding]) -> _Comment:
    """A comment behind the row of the first finding, or alone above its statement."""
    row = group[0].start.row
    start, shown = source.line_starts[row - 1], source.line_text(row)
    if statements.takes_comment(row):
        end = start + len(shown.rstrip(" \t\f"))
        return _Comment(Edit(Span(end, start + len(shown)), f"  {text}"), tuple(group))
    statement = statements.at(row)
    first = statement.first_row if statement is not None else row
    start, shown = source.line_starts[first - 1], source.line_text(first)
    indent = shown[: len(shown) - len(shown.lstrip(" \t\f"))]
    return _Comment(
        Edit(Span(start, start), f"{indent}{text}{_newline(source, first)}"), tuple(group), above=first
    )


def _at_top(source: Source, text: str, group: Sequence[Finding]) -> _Comment:
    """A comment alone in the first row that is neither for the system nor about the encoding."""
    row = 1
    while (
        row <= 2 and row < len(source.line_starts) and source.line_text(row).lstrip(" \t\f").startswith("#")
    ):
        row += 1
    start = source.line_starts[row - 1]
    return _Comment(Edit(Span(start, start), f"{text}{_newline(source, row)}"), tuple(group), above=row)


def _newline(source: Source, row: int) -> str:
    """What a row ends in."""
    start = source.line_starts[row - 1]
    end = source.line_starts[row] if row < len(source.line_starts) else len(source.text)
    return source.text[start + len(source.line_text(row)) : end] or source.newline


def _made(
    source: Source, statements: Statements, comments: Sequence[_Comment], today: datetime.date
) -> Silenced | None:
    """The file with these comments; None unless the code is the same and all the findings are silenced."""
    if not comments:
        return None
    made = source.rewritten(apply_edits(source.text, [comment.edit for comment in comments]))
    if _code(Statements(made)) != _code(statements):
        return None
    suppressions = parse_suppressions(made)
    rows = sorted(comment.above for comment in comments if comment.above)
    found = [finding for comment in comments for finding in comment.findings]
    for finding in found:
        row = finding.start.row + bisect_right(rows, finding.start.row)
        if suppressions.match(finding.code, finding.name, row, today) is None:
            return None
    return Silenced(made, tuple(found), len(comments))


def _code(statements: Statements) -> list[list[str]]:
    return [[text for _, text in statement.tokens] for statement in statements.all]


def _parsed(comment: str) -> Directive | None:
    """The directive that a comment is, unless there are several."""
    directives = parse_suppressions(source_from_text(f"x  {comment}\n", "-")).directives
    return directives[0] if len(directives) == 1 else None
