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
from amplint.source import Source

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


def first_look(text: str) -> SyntaxProblem | None:
    """What is wrong with a text according to the running Python; a newer grammar may still accept it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError as error:
        place = Position(max(1, error.lineno or 1), max(1, error.offset or 1))
        message = error.msg or "invalid syntax"
        if "too many nested" in message or _brackets(text) > MAX_BRACKETS:
            return SyntaxProblem(_TOO_DEEP, place, final=True)
        return SyntaxProblem(message, place)
    except (RecursionError, MemoryError):
        return SyntaxProblem(_TOO_DEEP, Position(1, 1), final=True)
    except ValueError as error:
        return SyntaxProblem(str(error), Position(1, 1))
    row = _too_deep(tree)
    return SyntaxProblem(_TOO_DEEP, Position(row, 1), final=True) if row else None


def quick_problem(source: Source) -> SyntaxProblem | None:
    """Why a file cannot be parsed by anybody, or None; LibCST is asked only when the running Python refuses."""
    problem = first_look(source.text)
    if problem is None or problem.final:
        return problem
    from amplint.syntax.parse import parse

    made = parse(source)
    return made if isinstance(made, SyntaxProblem) else None


def _too_deep(tree: ast.AST) -> int:
    """The row at which the tree is deeper than `MAX_DEPTH`, or 0."""
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return 0
    return next((row for node in level if (row := getattr(node, "lineno", 0))), 1)


_BRACKET = re.compile(r"[()\[\]{}]")


def _brackets(text: str) -> int:
    """The most brackets open at once, counted without regard to strings (an upper bound is enough)."""
    depth = most = 0
    for match in _BRACKET.finditer(text):
        depth = depth + 1 if match[0] in "([{" else max(0, depth - 1)
        most = max(most, depth)
    return most
