"""A table with a title, as wide as the terminal that it goes to."""

from __future__ import annotations

from collections.abc import Sequence

from amplint.report.frame import Look

#: Characters of a line where the report does not go to a terminal.
_WIDE = 160


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    look: Look,
    marked: Sequence[bool] = (),
    width: int | None = None,
) -> str:
    """The table as text with a final newline; `marked` rows are shown in bold.

    `width` is the number of characters of a line; None is that of a file or a pipe.
    """
    from io import StringIO

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    lines = box.SIMPLE_HEAD if look.encoding.lower().startswith("utf") else box.ASCII
    grid = Table(box=lines, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        grid.add_column(column, overflow="fold")
    for index, row in enumerate(rows):
        style = "bold yellow" if index < len(marked) and marked[index] else ""
        grid.add_row(*(Text(look.plain(cell)) for cell in row), style=style)
    out = StringIO()
    console = Console(
        file=out,
        width=width or _WIDE,
        force_terminal=look.color,
        color_system="standard" if look.color else None,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        safe_box=True,
    )
    console.print(Text(look.plain(title), style="bold"))
    console.print(grid)
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())
