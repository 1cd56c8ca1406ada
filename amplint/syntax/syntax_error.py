"""What the standard library's parser says of a text, before (or instead of) LibCST.

It refuses more than 200 nested brackets, and the depth of its tree bounds what LibCST, which segfaults on deep
nesting and very long chains, is given.
"""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache

from amplint.finding import Position

_TOO_DEEP = "nested too deeply to be analysed"


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """Why a text could not be parsed, and where."""

    message: str
    position: Position
    #: LibCST must not be given this text.
    final: bool = False


def first_look(text: str) -> SyntaxProblem | None:
    """What is wrong with a text according to the running Python, or why LibCST must not be given it.

    A newer grammar may accept what the running Python does not: unless the problem is `final`, ask LibCST.
    """
    from amplint.syntax.depth import deep_row

    problem, tree = parsed(text)
    row = deep_row(tree, text) if tree is not None else 0
    return SyntaxProblem(_TOO_DEEP, Position(row, 1), final=True) if row else problem


@lru_cache(maxsize=1)
def parsed(text: str) -> tuple[SyntaxProblem | None, ast.Module | None]:
    """What is wrong with a text according to the running Python, or its tree, however deep that is."""
    problem, tree = parsed_only(text)
    if problem is None or problem.final or tree is not None:
        return problem, tree
    from amplint.syntax.depth import deep_offset  # its patterns take longer to build than a file to parse

    return replace(problem, final=deep_offset(text) >= 0), None


@lru_cache(maxsize=1)
def parsed_only(text: str) -> tuple[SyntaxProblem | None, ast.Module | None]:
    """The same without a look at how deep a text is that cannot be parsed: `final` may be too good to be true."""
    if text.startswith("\ufeff"):
        # That of the file was removed; given a text, `ast` and LibCST skip another one.
        return SyntaxProblem("invalid non-printable character U+FEFF", Position(1, 1), final=True), None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return None, ast.parse(text)
    except SyntaxError as error:
        place = Position(max(1, error.lineno or 1), max(1, error.offset or 1))
        message = error.msg or "invalid syntax"
        if "too many nested" in message or "too many levels" in message:
            return SyntaxProblem(_TOO_DEEP, place, final=True), None
        return SyntaxProblem(message, place), None
    except (RecursionError, MemoryError):
        return SyntaxProblem(_TOO_DEEP, Position(1, 1), final=True), None
    except ValueError as error:
        return SyntaxProblem(str(error), Position(1, 1)), None
