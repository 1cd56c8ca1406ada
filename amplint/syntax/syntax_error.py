"""What the standard library's parser says of a text, before (or instead of) LibCST.

It refuses more than 200 nested brackets, and the depth of its tree bounds what LibCST, which segfaults on deep
nesting and very long chains, is given.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass

from amplint.finding import Position

#: Depth of the syntax tree that LibCST is trusted with (1,000 nested parentheses were fine, 2,000 were not).
MAX_DEPTH = 500
#: Brackets open at once in a text that only LibCST may be able to parse.
MAX_BRACKETS = 200

_TOO_DEEP = "nested too deeply to be analysed"


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """Why a text could not be parsed, and where."""

    message: str
    position: Position
    #: LibCST must not be given this text.
    final: bool = False


def first_look(text: str) -> tuple[SyntaxProblem | None, ast.Module | None]:
    """What is wrong with a text according to the running Python, or its tree.

    A newer grammar may accept what the running Python does not: unless the problem is `final`, ask LibCST.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError as error:
        place = Position(max(1, error.lineno or 1), max(1, error.offset or 1))
        message = error.msg or "invalid syntax"
        if "too many nested" in message or _brackets(text) > MAX_BRACKETS:
            return SyntaxProblem(_TOO_DEEP, place, final=True), None
        return SyntaxProblem(message, place), None
    except (RecursionError, MemoryError):
        return SyntaxProblem(_TOO_DEEP, Position(1, 1), final=True), None
    except ValueError as error:
        return SyntaxProblem(str(error), Position(1, 1)), None
    row = _too_deep(tree)
    if row:
        return SyntaxProblem(_TOO_DEEP, Position(row, 1), final=True), None
    return None, tree


def _too_deep(tree: ast.Module) -> int:
    """The row at which the tree is deeper than `MAX_DEPTH`, or 0.

    Python itself bounds the nesting of statements (100 levels). An expression as deep as the limit takes as many
    characters, so only expressions that long are descended into.
    """
    todo: list[ast.AST] = [tree]
    while todo:
        for child in ast.iter_child_nodes(todo.pop()):
            if not isinstance(child, ast.expr):
                todo.append(child)
            elif _extent(child) > MAX_DEPTH and (row := _deep_row(child)):
                return row
    return 0


def _extent(node: ast.expr) -> int:
    """At least the number of characters of an expression on one row; many for one on several rows."""
    if node.end_lineno != node.lineno:
        return (node.end_lineno or 0) - node.lineno + MAX_DEPTH
    return (node.end_col_offset or 0) - node.col_offset


def _deep_row(node: ast.AST) -> int:
    level = [node]
    for _ in range(MAX_DEPTH - 100):
        level = [child for outer in level for child in ast.iter_child_nodes(outer)]
        if not level:
            return 0
    return next((row for deep in level if (row := getattr(deep, "lineno", 0))), 1)


_BRACKET = re.compile(r"[()\[\]{}]")


def _brackets(text: str) -> int:
    """The most brackets open at once, counted without regard to strings (an upper bound is enough)."""
    depth = most = 0
    for match in _BRACKET.finditer(text):
        depth = depth + 1 if match[0] in "([{" else max(0, depth - 1)
        most = max(most, depth)
    return most
