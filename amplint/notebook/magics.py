"""What IPython understands in a cell and Python does not: magics, shell commands, questions.

They are found where a statement may begin, or behind the `=` of an assignment. Only cells that are no Python as they
stand are searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: Cell magics whose cell holds Python that runs in the notebook itself. The others' cells are not looked at.
PYTHON_CELLS = frozenset(
    (
        *("capture", "debug", "heat", "memit", "memray_flamegraph", "mprun", "lprun", "notify", "prun"),
        *("pyinstrument", "scalene", "snakeviz", "time", "timeit", "wandb"),
    )
)
#: `%%capture NAME` binds a name.
_CAPTURE = re.compile(r"%%capture\b(?:[ \t]+--?[\w-]+)*[ \t]+([A-Za-z_]\w*)[ \t]*$")
_CELL_MAGIC = re.compile(r"%%(!|\w*)")

_ESCAPED = re.compile(r"[ \t\f]*(?:[%!?]|[,;/]\S)")
#: Magics that are written without a percent sign, too.
_AUTOMATIC = re.compile(
    r"[ \t\f]*(?:autoreload|cat|cd|conda|cp|env|load_ext|ls|mamba|matplotlib|mkdir|mv|pip|reload_ext|rm|rmdir|run)"
    r"[ \t]+(?!(?:and|for|if|in|is|not|or)\b)(?:-*\w|[./~$\"'])"
)
_TOKEN = re.compile(
    r"""(?P<quote>'''|\"\"\"|'|\") | (?P<comment>\#.*) | (?P<open>[(\[{]) | (?P<close>[)\]}])
    | (?P<assign>(?<![=!<>+\-*/%&|^@:])=[ \t]*(?=%|!(?!=))) | (?P<help>\?[ \t\f;]*$)""",
    re.VERBOSE,
)
#: Where a string in these quotes ends.
_ENDS = {quote: re.compile(rf"(?:\\.|[^\\])*?{quote}", re.DOTALL) for quote in ("'", '"', "'''", '"""')}
_NEWLINE = re.compile(r"\r\n?|\n")


@dataclass(frozen=True, slots=True)
class Magic:
    """Rows of a cell that are no Python; rows count from 0."""

    first: int
    #: How many rows.
    count: int
    #: Python before it on its first row, such as `    files = `; the row's indentation where there is none.
    before: str


def split_rows(text: str) -> list[tuple[str, str]]:
    """The rows of a text, each with its newline; the last one has none."""
    rows = []
    start = 0
    for newline in _NEWLINE.finditer(text):
        rows.append((text[start : newline.start()], newline[0]))
        start = newline.end()
    return [*rows, (text[start:], "")]


def cell_magics(rows: Sequence[str]) -> list[tuple[int, str]] | None:
    """The rows of the cell magics that a cell of Python begins with, each with the name that it binds.

    None when the cell does not hold Python for the notebook itself.
    """
    found = []
    for number, row in enumerate(rows):
        if not row.strip():
            continue
        magic = _CELL_MAGIC.match(row)
        if magic is None:
            break
        if magic[1] not in PYTHON_CELLS:
            return None
        capture = _CAPTURE.match(row)
        found.append((number, capture[1] if capture else ""))
    return found


def find(rows: Sequence[str]) -> Iterator[Magic]:
    """The magics among the rows of a cell, in order."""
    state = _State()
    number = 0
    while number < len(rows):
        row = rows[number]
        before = None
        if state.begins and (_ESCAPED.match(row) or _AUTOMATIC.match(row)):
            before = row[: len(row) - len(row.lstrip(" \t\f"))]
        else:
            before = state.read(row)
        if before is None:
            number += 1
            continue
        magic = Magic(number, _continued(rows, number), before)
        yield magic
        number += magic.count
        state = _State()


@dataclass(slots=True)
class _State:
    """Where between the tokens of a statement a row begins."""

    depth: int = 0
    #: The quotes that a string is open in.
    quote: str = ""
    joined: bool = False

    @property
    def begins(self) -> bool:
        """Whether a statement may begin here."""
        return not (self.depth or self.quote or self.joined)

    def read(self, row: str) -> str | None:
        """Go to the next row; what stands before a magic on this one, or None."""
        begins, place = self.begins, 0
        self.joined = False
        while place < len(row):
            if self.quote:
                end = _ENDS[self.quote].match(row, place)
                if end is None:
                    break
                place, self.quote = end.end(), ""
                continue
            token = _TOKEN.search(row, place)
            if token is None or token["comment"] is not None:
                self.joined = token is None and row.endswith("\\")
                break
            place = token.end()
            if token["quote"]:
                self.quote = token["quote"]
            elif token["open"]:
                self.depth += 1
            elif token["close"]:
                self.depth = max(0, self.depth - 1)
            elif begins and not self.depth:
                return row[:place] if token["assign"] else row[: len(row) - len(row.lstrip(" \t\f"))]
        if len(self.quote) == 1 and not row.endswith("\\"):
            self.quote = ""  # such a string ends with its row, whether it is closed or not
        return None


def _continued(rows: Sequence[str], first: int) -> int:
    """How many rows a magic has: those that end in a backslash go on."""
    last = first
    while rows[last].endswith("\\") and last + 1 < len(rows):
        last += 1
    return last - first + 1
