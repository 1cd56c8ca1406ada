"""Where in the user's code something happened: cheap to note while training, resolved when it is reported."""

import linecache
import os
import re
import sys
import sysconfig
from dataclasses import dataclass
from itertools import islice
from types import CodeType
from typing import Dict, Optional, Tuple

import torch

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_LIBRARIES = tuple(
    sorted(
        {
            os.path.abspath(path) + os.sep
            for name in ("stdlib", "platstdlib", "purelib", "platlib")
            if (path := sysconfig.get_paths().get(name))
        }
    )
)

#: Folders that packages are installed to: besides those of this interpreter those of the user, of the system
#: under a virtual environment, and of PYTHONPATH.
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")

_SKIPPED, _LIBRARY, _USER = range(3)
#: Frames to look at; what calls deeper than this is reported at the nearest library.
_DEPTH = 100
_kinds: Dict[str, int] = {}


@dataclass(frozen=True)
class Place:
    """A span of a file: rows and columns from 1, columns in code points, the end exclusive."""

    filename: str
    row: int
    column: int
    end_row: int
    end_column: int

    @property
    def line(self) -> str:
        """The text of the first row, without its newline; empty when the file cannot be read."""
        return linecache.getline(self.filename, self.row).rstrip("\r\n")

    def shown(self, folder: str) -> str:
        """The file as the linter names it: relative to `folder` if it lies below it, with slashes."""
        path = self.filename
        if os.path.isabs(path) and path.startswith(folder.rstrip(os.sep) + os.sep):
            path = os.path.relpath(path, folder)
        return path.replace(os.sep, "/")


@dataclass(frozen=True)
class Site:
    """An instruction of a function. Holds no frame, so nothing of the user's lives longer for it."""

    code: CodeType
    instruction: int

    def place(self) -> Place:
        """The expression that the instruction belongs to; before Python 3.11 its whole row."""
        filename = os.path.abspath(self.code.co_filename)
        positions = getattr(self.code, "co_positions", None)
        if positions is not None:
            row, end_row, column, end_column = next(
                islice(positions(), self.instruction // 2, None), (None,) * 4
            )
            if row is not None and end_row is not None and column is not None and end_column is not None:
                return Place(
                    filename,
                    row,
                    _code_points(filename, row, column) + 1,
                    end_row,
                    _code_points(filename, end_row, end_column) + 1,
                )
        row = _row(self.code, self.instruction)
        text = linecache.getline(filename, row).rstrip("\r\n")
        indent = len(text) - len(text.lstrip())
        return Place(filename, row, indent + 1, row, max(len(text), indent) + 1)


def here() -> Optional[Site]:
    """The innermost call in the user's own code; of installed packages where there is none of the user's."""
    frame = sys._getframe(1)
    library = None
    for _ in range(_DEPTH):
        code = frame.f_code
        kind = _kinds.get(code.co_filename)
        if kind is None:
            kind = _kinds[code.co_filename] = _kind(code.co_filename)
        if kind == _USER:
            return Site(code, frame.f_lasti)
        if kind == _LIBRARY and library is None:
            library = Site(code, frame.f_lasti)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return library


def _kind(filename: str) -> int:
    if filename.startswith("<") and not filename.startswith(("<stdin", "<string", "<ipython")):
        return _SKIPPED
    path = os.path.abspath(filename)
    if path.startswith((_OURS, _TORCH)):
        return _SKIPPED
    return _LIBRARY if path.startswith(_LIBRARIES) or _INSTALLED.search(path) else _USER


def _row(code: CodeType, instruction: int) -> int:
    found = code.co_firstlineno
    lines: Tuple[Tuple[int, int, Optional[int]], ...] = tuple(code.co_lines())
    for start, end, row in lines:
        if start <= instruction < end and row is not None:
            found = row
    return found


def _code_points(filename: str, row: int, column: int) -> int:
    line = linecache.getline(filename, row).encode("utf-8", "surrogatepass")
    return len(line[:column].decode("utf-8", "replace")) if line else column
