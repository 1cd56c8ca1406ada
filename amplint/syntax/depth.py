"""Is a text nested too deeply for LibCST? Its parser recurses, and a stack that overflows takes the process along.

Measured on LibCST 1.9: 2,000 nested parentheses crash, and so do chains of 10,000 attributes, calls, sums, `and`s,
dots of an import or string pieces; from 5,000 on some are refused; the time to parse grows with the square.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

#: Levels of one expression: nesting, links of a chain, operands, clauses of a comprehension, dots of an import.
MAX_DEPTH = 400
#: Pieces of one string, and arms of one `if`; LibCST nests both to the right, which it bears better.
MAX_PIECES = 1500
#: Levels in a text that only LibCST may be able to parse; rows of data make an estimate from tokens a little high.
MAX_ESTIMATE = 800

_ROW = re.compile(rb"\r\n?|\n")
#: A plain string; one that is not closed takes the rest of its row, or of the text.
_STRING = r"""(?:[rR]?[bB]|[bB][rR]|[rRuU])?(?:\"{3}[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*(?:\"{3}|\\?\Z)
|'{3}[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*(?:'{3}|\\?\Z)
|"[^"\\\r\n]*(?:\\.[^"\\\r\n]*)*"?|'[^'\\\r\n]*(?:\\.[^'\\\r\n]*)*'?)"""
_TOKEN = re.compile(
    rf"""(?P<skip>[ \t\f]+|\\(?:\r\n?|\n)|\#[^\r\n]*)
    |(?P<end>[\r\n;])
    |(?P<formatted>(?:[rR]?[fFtT]|[fFtT][rR])(?:\"{{3}}|'{{3}}|"|'))
    |(?P<string>{_STRING})
    |(?P<word>\w+)
    |(?P<bracket>[()\[\]{{}}])
    |(?P<operator>.)""",
    re.DOTALL | re.VERBOSE,
)
#: What may matter in the text of a formatted string.
_MARK = re.compile(r"""\\[^{}]|\{\{|\}\}|[{}\r\n]|\"{3}|'{3}|["']""", re.DOTALL)
_OPERATORS = frozenset(("and", "await", "else", "for", "if", "in", "is", "lambda", "not", "or", "yield"))


def deep_row(tree: ast.Module, text: str) -> int:
    """The row at which a parsed text is nested too deeply, or 0."""
    return _Depth(text).row(tree)


class _Depth:
    """Measures a text, whose rows are needed only when one of its expressions is long."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _data(self) -> bytes:
        """The text in UTF-8, in whose bytes `ast` counts columns."""
        return self._text.encode("utf-8", "replace")

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _ROW.finditer(self._data))]

    def row(self, tree: ast.Module) -> int:
        """Python itself bounds the nesting of blocks (100 levels), but neither `elif` nor expressions.

        An expression has no more levels than characters, so only long ones are descended into.
        """
        todo: list[tuple[ast.AST, int]] = [(tree, 0)]
        while todo:
            node, arms = todo.pop()
            arms = arms + 1 if isinstance(node, ast.If) else 0
            if arms > MAX_PIECES or _dots(node) > MAX_DEPTH:
                return getattr(node, "lineno", 1)
            for name in node._fields:
                value = getattr(node, name, None)
                parts = value if type(value) is list else [value]
                for child in parts:
                    if not isinstance(child, ast.AST):
                        continue
                    if not isinstance(child, ast.expr):
                        todo.append((child, arms if name == "orelse" and len(parts) == 1 else 0))
                    elif self._length(child) > MAX_DEPTH and (row := self._deep_row(child)):
                        return row
        return 0

    def _length(self, node: ast.expr) -> int:
        """Bytes of an expression: at least the number of its characters."""
        row, last = node.lineno, node.end_lineno or node.lineno
        end = node.end_col_offset or 0
        if row == last:
            return end - node.col_offset
        return self._starts[last - 1] - self._starts[row - 1] + end

    def _deep_row(self, outer: ast.expr) -> int:
        todo: list[tuple[ast.AST, int, int]] = [(outer, 1, outer.lineno)]
        while todo:
            node, depth, row = todo.pop()
            kind = type(node)
            row = getattr(node, "lineno", row)
            if kind is ast.BoolOp:
                depth += len(node.values) - 2  # type: ignore[attr-defined]
            elif kind in (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp):
                depth += len(node.generators)  # type: ignore[attr-defined]
            elif kind is ast.Constant:
                if self._has_pieces(node):  # type: ignore[arg-type]
                    return row
                continue
            if depth > MAX_DEPTH:
                return row
            if kind is ast.Name:
                continue
            is_text = kind.__name__ in ("JoinedStr", "TemplateStr")
            if is_text and self._has_pieces(node):  # type: ignore[arg-type]
                return row
            for child in ast.iter_child_nodes(node):
                # the parts of a formatted string all claim to stand where the whole does
                if not (is_text and type(child) is ast.Constant):
                    todo.append((child, depth + 1, row))
        return 0

    def _has_pieces(self, node: ast.expr) -> bool:
        """Whether a string is written in too many pieces one after the other."""
        if self._length(node) <= 2 * MAX_PIECES or isinstance(
            getattr(node, "value", ""), (int, float, complex)
        ):
            return False
        start = self._starts[node.lineno - 1] + node.col_offset
        written = self._data[start : start + self._length(node)].decode("utf-8", "replace")
        return _pieces(written) > MAX_PIECES


def _dots(node: ast.AST) -> int:
    """Dots in the longest module name of an import."""
    if isinstance(node, ast.Import):
        return max(alias.name.count(".") for alias in node.names)
    return (node.module or "").count(".") if isinstance(node, ast.ImportFrom) else 0


def deep_offset(text: str) -> int:
    """Where a text that `ast` cannot parse may be nested too deeply, by its tokens, or -1."""
    levels, total, arms = [0], 0, 0
    #: Whether commas are part of something nested to the right on that level (`lambda a, b: ..`, `for a, b in ..`).
    sticky = [False]
    for kind, token, place in _tokens(text):
        if kind == "end":
            if len(levels) == 1 or token == ";":
                levels, sticky, total = [0], [False], 0
            continue
        if kind == "bracket" and token in ")]}":
            if len(levels) > 1:
                total -= levels.pop()
                sticky.pop()
            continue
        if token == ",":
            if not sticky[-1]:
                total -= levels[-1]
                levels[-1] = 0
            continue
        if kind == "word":
            arms += token == "elif"
            if token not in _OPERATORS:
                continue
            sticky[-1] = sticky[-1] or token in ("lambda", "for")
        levels[-1] += 1
        total += 1
        if kind == "bracket":
            levels.append(0)
            sticky.append(False)
        if total > MAX_ESTIMATE or arms > MAX_PIECES:
            return place
    return -1


def _pieces(text: str) -> int:
    """Strings in a text, those in the fields of formatted strings not counted."""
    found = level = 0
    for kind, token, _ in _tokens(text):
        if kind == "bracket":
            level += 1 if token in "([{" else -1
        elif kind == "string" and level <= 0:
            found += 1
    return found


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """Kind, text and offset of every token but blanks and comments, whatever the text is.

    Of a formatted string come its beginning, as a string, and the fields with their braces: in a newer grammar than
    the running Python's they may hold the quotes of the string itself.
    """
    open_texts: list[_Text] = []
    level = place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        assert match is not None  # any character is an operator
        kind, token = str(match.lastgroup), match[0]
        start, place = place, match.end()
        in_text = False
        if kind == "skip":
            continue
        if kind == "formatted":
            yield "string", token, start
            open_texts.append(_Text(token.lstrip("rRfFtT"), False))
            in_text = True
        elif open_texts and token in ("}", ":") and level == open_texts[-1].level:
            in_text = True
            if token == "}":
                level -= 1
                yield "bracket", token, start
            else:
                open_texts.append(_Text(open_texts[-1].quote, True))
        else:
            if kind == "bracket":
                level = level + 1 if token in "([{" else max(0, level - 1)
            elif token == ";":
                open_texts, level = [], 0
            yield kind, token, start
        while in_text:
            now = open_texts[-1]
            mark, place = _next_mark(text, place, now)
            if mark == "{":
                level += 1
                now.level = level
                yield "bracket", mark, place - 1
                in_text = False
            elif mark == "}":
                if now.is_specification:
                    open_texts.pop()
                    level -= 1
                    yield "bracket", mark, place - 1
            else:  # its end, or that of a row or of everything, where it should have ended
                while open_texts.pop().is_specification:
                    level -= 1
                    yield "bracket", "}", place - 1
                in_text = False


@dataclass(slots=True)
class _Text:
    """A formatted string that is open, or the format specification of one of its fields."""

    quote: str
    is_specification: bool
    #: How many brackets are open in the field at hand.
    level: int = -1


def _next_mark(text: str, place: int, now: _Text) -> tuple[str, int]:
    """The next brace or end ("") in the text of a formatted string, and the offset behind it."""
    quote = now.quote
    for match in _MARK.finditer(text, place):
        mark = match[0]
        if mark in ("{{", "}}") and now.is_specification:
            return mark[0], match.start() + 1
        if mark in ("{", "}"):
            return mark, match.end()
        if mark in ("\r", "\n") and len(quote) == 1:
            return "", match.start()
        if mark.startswith(quote):
            return "", match.start() + len(quote)
    return "", len(text)
