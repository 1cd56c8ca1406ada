"""Cells to one module and back: what is no Python, where rows come from, what edits do."""

from __future__ import annotations

import ast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amplint.finding import Position
from amplint.notebook.cells import NotebookError, joined
from amplint.source import Place, source_from_cells


def module(*sources: str | None) -> str:
    return joined(sources).text


def test_cells_stand_one_behind_the_other_with_a_row_between_them():
    assert module("import torch", "x = 1\ny = 2\n") == "import torch\npass  #%%% 2\nx = 1\ny = 2\n"


def test_what_is_no_python_is_left_out_and_counts():
    cells = joined([None, "a", None, "b"])
    assert [cell.number for cell in cells.cells] == [2, 4]
    assert cells.text == "a\npass  #%%% 4\nb\n"


@pytest.mark.parametrize(
    "row",
    [
        "%matplotlib inline",
        "!pip install -q torch",
        "!!ls",
        "?torch.amp",
        "torch.amp??",
        "model.forward?",
        "%%prun is none here",
        ";quoted words",
        "pip install torch",
        "cd ..",
        "%load_ext autoreload; %autoreload 2",
        "!echo \"it's",
        "%timeit -n 3 f(x)",
    ],
)
def test_a_row_of_ipython_becomes_a_call_of_something_unknown(row):
    assert module(f"x = 1\n{row}\ny = 2") == "x = 1\nget_ipython()  #%%% 1.1\ny = 2\n"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("files = !ls 'data", "files = get_ipython()  #%%% 1.1"),
        ("t = %timeit -o f(x)", "t = get_ipython()  #%%% 1.1"),
        ("a, b = !echo (", "a, b = get_ipython()  #%%% 1.1"),
        ("d['a'] = !ls", "d['a'] = get_ipython()  #%%% 1.1"),
        ("    x: list = !ls", "    x: list = get_ipython()  #%%% 1.1"),
    ],
)
def test_a_magic_binds_what_it_binds(row, expected):
    head = "if a:\n" if row.startswith(" ") else ""
    assert module(head + row) == f"{head}{expected}\n"


def test_the_code_of_a_timed_row_is_looked_at_in_its_columns():
    row = "%time scaler.step(optimizer)"
    cells = joined([f"for x in y:\n    {row}"])
    shown = cells.text.split("\n")[1]
    assert shown == "    if 1: scaler.step(optimizer)  #%%% 1.1"
    assert shown.index("scaler") == f"    {row}".index("scaler")
    moved = cells.text.replace("step(optimizer)", "step(other)")
    assert cells.split(moved) == {1: "for x in y:\n    %time scaler.step(other)"}


def test_a_magic_over_several_rows_takes_as_many():
    assert module("!pip install \\\n    a \\\n  b\nx = 1") == (
        "get_ipython(  #%%% 1.1\n  #%%% 1.2\n)  #%%% 1.3\nx = 1\n"
    )


@pytest.mark.parametrize(
    "source",
    [
        'text = """\n!not a command\n%nor a magic\nreally?\n"""\n%who',
        "value = (a\n% b)\n%who",
        "value = a \\\n% b\n%who",
        "ask = 'really?'\n%who",
        "f(a=1)  # why?\n%who",
        "x = '\\'!'\n%who",
        "same = a == b\n%who",
        "x %= 2; y = x != 3\n%who",
        "pip = {'install': 1}\n%who",
        "run in x\n%who",
    ],
)
def test_what_only_looks_like_a_magic_stays(source):
    assert module(source) == source.replace("%who", "get_ipython()  #%%% 1.1") + "\n"


def test_cells_in_which_magics_are_no_syntax_errors_are_not_searched():
    assert module("x = '''\n%time\n'''") == "x = '''\n%time\n'''\n"


@pytest.mark.parametrize("magic", ["bash", "html", "writefile a.py", "sql", "R", "!", "python", "unknown"])
def test_a_cell_of_something_else_is_no_part_of_the_module(magic):
    cells = joined(["a", f"%%{magic}\nimport torch", "b"])
    assert [cell.number for cell in cells.cells] == [1, 3]
    assert cells.problems == ()


@pytest.mark.parametrize("magic", ["time", "timeit -n 3", "capture", "prun", "\n%%time"])
def test_a_cell_that_is_timed_or_captured_is_python(magic):
    cells = joined([f"%%{magic}\nx = 1" if magic[0] != "\n" else f"{magic}\nx = 1"])
    assert "x = 1\n" in cells.text
    assert cells.problems == ()


def test_capture_binds_a_name():
    assert module("%%capture --no-stderr out\nf()") == "out = get_ipython()  #%%% 1.1\nf()\n"


def test_cell_magics_stack_up():
    assert module("%%time\n%%capture\nf()") == "get_ipython()  #%%% 1.1\nget_ipython()  #%%% 1.2\nf()\n"
    assert module("%%time\n%%bash\nls") == ""


def test_an_indented_cell_is_what_ipython_takes_it_for():
    cells = joined(["a = 1", "    b = 2\n    c = 3"])
    assert cells.text == "a = 1\nif 1:  #%%% 2\n    b = 2\n    c = 3\n"
    assert cells.problems == ()
    with pytest.raises(NotebookError, match="all of which is indented"):
        cells = joined(["    b = 2"])
        cells.split("import torch\n" + cells.text)


def test_await_semicolons_and_empty_cells_are_nothing_special():
    source = "await f()\nasync with a as b:\n    pass\nplot();"
    cells = joined([source, "", "# only a comment", "  \n"])
    assert cells.problems == ()
    assert cells.split(cells.text) == {}


def test_a_cell_that_cannot_be_parsed_does_not_take_the_others_along():
    cells = joined(["a = 1", "b = (\n\n!ls", "c = 3"])
    assert "a = 1\n" in cells.text and "c = 3\n" in cells.text
    ast.parse(cells.text)
    (problem,) = cells.problems
    assert problem.message == "'(' was never closed"
    assert source_from_cells(cells.sources, "a.ipynb").place(problem.position) == Place(2, 1, 5)
    assert cells.split(cells.text) == {}


@pytest.mark.parametrize(
    "source", ["x = '\ud800'", "x = 1\0", "(" * 300 + ")" * 300, "print 'two'", "if x:", "x = 1 \\"]
)
def test_nothing_in_a_cell_breaks_the_module(source):
    cells = joined(["a", source, "b"])
    ast.parse(cells.text)
    assert len(cells.problems) == 1
    assert cells.split(cells.text) == {}


def test_the_marks_differ_from_what_cells_have_in_them():
    cells = joined(["x = 1  #%%% 2", "%time\nx", "pass  #%%%% 3"])
    assert cells.fence == "#%%%%%"
    assert cells.split(cells.text) == {}


def test_rows_end_as_they_end_in_the_cells():
    assert module("a\r\n%who\r\nb", "c") == "a\r\nget_ipython()  #%%% 1.1\r\nb\r\npass  #%%% 2\r\nc\r\n"


# -- places ------------------------------------------------------------------------------------------------------


def test_rows_of_the_module_are_rows_of_cells():
    source = source_from_cells([None, "a\nb", "%%time\nc"], "n.ipynb")
    rows = [source.place(Position(row, 1)) for row in range(1, 6)]
    assert [(place.cell, place.row) for place in rows] == [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2)]
    assert [source.cells.row(*pair) for pair in ((2, 2), (3, 1), (3, 2))] == [2, 4, 5]
    assert source.cells.row(1, 1) is None and source.cells.row(3, 3) is None


def test_the_end_of_a_span_is_in_the_cell_that_it_begins_in():
    source = source_from_cells(["a\nb", "c"], "n.ipynb")
    assert source.place(Position(3, 1), Position(2, 1)) == Place(1, 3, 1)
    assert str(source.place(Position(4, 1))) == "cell 2:1:1"
    assert source.shown_row(4) == "1 of cell 2"


# -- edits -------------------------------------------------------------------------------------------------------


def test_an_edit_at_the_end_of_a_cell_is_not_one_at_the_beginning_of_the_next():
    cells = joined(["a", "b"])
    mark = "pass  #%%% 2\n"
    assert cells.split(f"a\nx\n{mark}b\n") == {1: "a\nx"}
    assert cells.split(f"a\n{mark}x\nb\n") == {2: "x\nb"}


def test_what_is_put_above_the_module_goes_into_its_first_cell_behind_cell_magics():
    cells = joined([None, "%%time\nx = 1"])
    assert cells.split("import torch\n" + cells.text) == {2: "%%time\nimport torch\nx = 1"}


def test_a_cell_without_a_last_newline_gets_none():
    cells = joined(["a", "b"])
    assert cells.split(cells.text.replace("a\n", "a\nc\n\n")) == {1: "a\nc"}
    assert joined(["a\n"]).split("a\nc\n") == {1: "a\nc\n"}


def test_a_magic_goes_along_when_its_block_is_indented():
    cells = joined(["x = 1\n!ls  -l\ny = !ls"])
    text = "with a:\n" + "".join(f"    {row}\n" for row in cells.text.splitlines())
    assert cells.split(text) == {1: "with a:\n    x = 1\n    !ls  -l\n    y = !ls"}


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("pass  #%%% 2\n", ""),
        lambda text: text.replace("pass  #%%% 2\n", "if x:\n    pass  #%%% 2\n"),
        lambda text: text.replace("get_ipython()  #%%% 1.1\n", ""),
        lambda text: text.replace("get_ipython()  #%%% 1.1\n", "get_ipython()  #%%% 1.1\n" * 2),
        lambda text: text.replace("get_ipython()  ", "other()  "),
        lambda text: text.replace("1.1", "1.2"),
        lambda text: "",
    ],
)
def test_edits_over_what_is_not_the_users_are_refused(change):
    cells = joined(["x\n!ls", "y"])
    with pytest.raises(NotebookError):
        cells.split(change(cells.text))


def test_an_edit_is_told_in_the_rows_and_columns_of_its_cell():
    cells = joined(["a\nb", "c\n"])
    edit = cells.edit(Position(4, 1), Position(4, 2), "d")
    assert (edit.cell, edit.start, edit.end, edit.content) == (2, Position(1, 1), Position(1, 2), "d")
    behind = cells.edit(Position(3, 1), Position(3, 1), "x\n")
    assert (behind.cell, behind.start, behind.content) == (1, Position(2, 2), "\nx")
    gone = cells.edit(Position(2, 1), Position(3, 1), "")
    assert (gone.start, gone.end) == (Position(1, 2), Position(2, 2))
    assert cells.edit(Position(1, 1), Position(4, 1), "") is None


ROWS = st.sampled_from(
    [
        *(
            "x = 1",
            "%time f()",
            "!ls \\",
            "%%bash",
            "%%time",
            "if a:",
            "    b",
            "'''",
            "(",
            ")",
            "y = !ls",
            "",
        ),
        *(
            "# c",
            "\\",
            "f?",
            "    !ls",
            "pip install x",
            "\x0c",
            "é = '😀'",
            "x\ry",
            "#%%% 1",
            "\t%cd x",
            "'",
        ),
    ]
)
CELLS = st.lists(
    st.none()
    | st.lists(ROWS, max_size=6).flatmap(
        lambda rows: st.sampled_from(["\n", "\r\n"]).map(lambda n: n.join(rows))
    ),
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(CELLS)
@example(["", "", ""])
def test_any_cells_make_a_module_that_can_be_parsed_and_come_back(sources):
    cells = joined(sources)
    ast.parse(cells.text)
    assert cells.split(cells.text) == {}
    again = cells.rewritten(cells.text)
    assert (again.text, again.sources) == (cells.text, tuple(sources))
    for cell in cells.cells:
        for row in range(1, cell.rows + 1):
            assert cells.at(cells.row(cell.number, row)) == cell


@pytest.mark.parametrize("magic", ["%%capture out", "%%timeit -n 1", "%%time"])
def test_something_stays_below_a_cell_magic(magic):
    cells = joined([f"{magic}\nimport a\n", f"{magic}\nimport a\nimport b\n", magic])
    with pytest.raises(NotebookError, match="nothing would be left below the magic of cell 1"):
        cells.split(cells.text.replace("import a\n", "", 1))
    assert cells.split(cells.text.replace("import a\nimport b\n", "import b\n")) == {
        2: f"{magic}\nimport b\n"
    }
