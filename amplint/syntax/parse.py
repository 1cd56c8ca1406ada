"""Text to a LibCST module, or the reason why not."""

from __future__ import annotations

import re
import sys

import libcst as cst

from amplint.finding import Position
from amplint.source import Source
from amplint.syntax.syntax_error import SyntaxProblem, first_look

#: What LibCST puts before its messages; the place is given in other ways.
_NOISE = re.compile(r"^(?:(?:parser|tokenizer) error: )?(?:error at \d+:\d+: )?")
#: Frames that LibCST's code generation needs for a tree of the greatest depth admitted.
_RECURSION = 20_000


def parse(source: Source) -> cst.Module | SyntaxProblem:
    """Parse one file; never raises for what the file contains."""
    return parse_text(source.text)


def parse_text(text: str) -> cst.Module | SyntaxProblem:
    """The same for a text."""
    problem = first_look(text)
    if problem is not None and problem.final:
        return problem
    if sys.getrecursionlimit() < _RECURSION:
        sys.setrecursionlimit(_RECURSION)
    try:
        return cst.parse_module(text)
    except cst.ParserSyntaxError as error:
        place = Position(max(1, error.raw_line), max(1, error.raw_column + 1))
        return problem or SyntaxProblem(_only_here(error.message), place)
    except (RecursionError, MemoryError, ValueError, cst.CSTValidationError) as error:
        return problem or SyntaxProblem(_only_here(str(error)), Position(1, 1))
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # what a bug in LibCST's native part raises
            raise
        return problem or SyntaxProblem(_only_here(str(error)), Position(1, 1))


def _only_here(text: str) -> str:
    """The message for a text that Python accepts and LibCST does not."""
    lines = _NOISE.sub("", text.strip()).splitlines()
    return (
        f"LibCST, which amplint parses with, does not accept it ({lines[0] if lines else 'invalid syntax'})"
    )
