"""The JSON of notebooks: what is read, and which bytes change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amplint.notebook.document import read_notebook, rows_in_file, spliced
from amplint.source import SourceError, source_from_bytes


def code(source: Any, **more: Any) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": source,
        **more,
    }


def notebook(*cells: Any, **more: Any) -> dict[str, Any]:
    return {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 4, **more}


def text(*cells: Any, **more: Any) -> str:
    return json.dumps(notebook(*cells, **more), indent=1) + "\n"


def read(raw: str | bytes):
    return source_from_bytes(raw.encode() if isinstance(raw, str) else raw, "a.ipynb")


def error(raw: str | bytes) -> SourceError:
    with pytest.raises(SourceError) as caught:
        read(raw)
    return caught.value


def test_cells_of_text_are_no_code():
    raw = text(
        {"cell_type": "markdown", "source": ["x"]}, code(["a\n", "b"]), {"cell_type": "raw", "source": "c"}
    )
    assert read_notebook(raw).sources == (None, "a\nb", None)


@pytest.mark.parametrize(
    "metadata",
    [
        {"language_info": {"name": "R"}},
        {"kernelspec": {"language": "julia", "name": "julia-1.9"}},
    ],
)
def test_a_notebook_in_another_language_has_no_code(metadata):
    assert read(text(code("x <- 1"), metadata=metadata)).text == ""


def test_a_cell_may_be_in_another_language_than_its_notebook():
    sql = code("select 1", metadata={"vscode": {"languageId": "sql"}})
    assert read_notebook(text(sql, code("x"), metadata={"kernelspec": {"language": "python"}})).sources == (
        None,
        "x",
    )


def test_notebooks_of_format_3_are_read_and_written():
    cell = {"cell_type": "code", "language": "python", "input": ["a\n", "b"], "outputs": []}
    other = {"cell_type": "code", "language": "ruby", "input": ["a"], "outputs": []}
    raw = json.dumps(
        {"nbformat": 3, "metadata": {}, "worksheets": [{"cells": [cell]}, {"cells": [other, cell]}]}
    )
    cells = read_notebook(raw)
    assert cells.sources == ("a\nb", None, "a\nb")
    assert spliced(raw, {3: "a\nc"}) == raw[::-1].replace('"b"'[::-1], '"c"'[::-1], 1)[::-1]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("", "the file is empty"),
        ("{", "invalid JSON (Expecting property name"),
        ("[]", "it has no list of cells"),
        ("{}", "it has no list of cells"),
        ('{"cells": 1}', "it has no list of cells"),
        ('{"cells": [{"cell_type": "code", "source": 1}]}', "the source of cell 1 is neither"),
        ('{"cells": [\n<<<<<<< ours\n', "marks of a merge conflict"),
        ('{"cells": ' + "[" * 100_000, "nested too deeply"),
        ('{"cells": [' + "9" * 5000 + "]}", "not a notebook: Exceeds the limit"),
        (b'{"cells": ["\xff"]}', "not utf-8"),
        ("{}".encode("utf-16"), "UTF-16"),
    ],
)
def test_what_is_no_notebook_is_an_error_that_says_why(raw, message):
    if (
        isinstance(raw, str)
        and raw.startswith('{"cells": [9')
        and not hasattr(__import__("sys"), "get_int_max_str_digits")
    ):
        pytest.skip("this Python reads any number")
    assert message in str(error(raw))


def test_an_error_in_the_json_has_its_place():
    assert (error('{\n "cells": [,]}').position.row, error('{\n "cells": [,]}').position.column) == (2, 12)


def test_odd_cells_are_left_alone():
    assert read('{"cells": [null, 3, {}, {"cell_type": "code"}]}').cells.sources == (None, None, None, "")


@pytest.mark.parametrize("raw", [b"\xef\xbb\xbf" + text(code("x")).encode(), text(code("x")).encode()[:-1]])
def test_the_same_text_is_the_same_bytes(raw):
    source = read(raw)
    assert source.text == "x\n"
    assert source.encode(source.text) == raw


def test_rows_that_stay_keep_their_literals():
    raw = (
        text(code(["é = '\\u00e9'\n", "b\n", "c"]))
        .replace("'\\\\u00e9'", "'\\u0041'")
        .replace('"b\\n"', '"\\u0062\\n"')
    )
    after = spliced(raw, {1: "é = 'A'\nb\nx\nc"})
    assert after == raw.replace('"\\u0062\\n",', '"\\u0062\\n",\n    "x\\n",')


def written(content: dict, form: str) -> str:
    """A notebook as some program writes it."""
    return {
        "indented": json.dumps(content, indent=1),
        "one line": json.dumps(content),
        "compact": json.dumps(content, separators=(",", ":")),
        "tabs": json.dumps(content, indent="\t"),
        "crlf": json.dumps(content, indent=2).replace("\n", "\r\n"),
    }[form]


@pytest.mark.parametrize("form", ["indented", "one line", "compact", "tabs", "crlf"])
@pytest.mark.parametrize("before", [["a\n", "b"], ["a"], [], "a\nb", ""])
@pytest.mark.parametrize("after", ["a\nx\nb", "x", "", "x\n", 'q = "\\\\"\n\t'])
def test_a_source_is_written_in_the_form_it_had(form, before, after):
    content = notebook(code("1"), code(before), code(["last"]))
    raw = written(content, form)
    made = spliced(raw, {2: after})
    wanted = after if isinstance(before, str) else after.splitlines(keepends=True)
    content["cells"][1]["source"] = wanted
    assert made == written(content, form)


def test_characters_are_escaped_where_the_file_escapes_them():
    plain = json.dumps(notebook(code("'é'\na"), code("b")), ensure_ascii=False)
    assert "'ü'" in spliced(plain, {2: "'ü'"})
    escaped = json.dumps(notebook(code("'é'\na"), code("b")))
    assert "'\\u00fc'" in spliced(escaped, {2: "'ü'"})
    assert "\\ud800" in spliced(plain, {2: "\ud800"})


def test_in_one_string_only_what_differs_is_written_anew():
    raw = '{"cells": [{"cell_type": "code", "source": "\\u0061 = 1\\n\\u0062 = 2\\n\\ud83d\\ude00\\u0063"}]}'
    after = spliced(raw, {1: "a = 1\nb = 3\n😀c"})
    assert after == raw.replace("= 2", "= 3")


def test_of_equal_keys_the_last_one_counts():
    raw = '{"cells": [], "cells": [{"cell_type": "code", "source": "a", "source": ["b"]}], "metadata": {"cells": []}}'
    assert read_notebook(raw).sources == ("b",)
    assert spliced(raw, {1: "c"}) == raw.replace('"b"', '"c"')


def test_a_huge_output_is_no_hindrance():
    blob = "A" * 5_000_000
    raw = text(
        code("a", outputs=[{"output_type": "display_data", "data": {"image/png": blob}, "metadata": {}}]),
        code("b"),
    )
    assert spliced(raw, {2: "c"}) == raw.replace('"source": "b"', '"source": "c"')


def test_rows_of_cells_are_rows_of_the_file():
    raw = text(code(["a\n", "b\n", "c"]), code("d\ne"))
    first = raw[: raw.index('"a\\n"')].count("\n") + 1
    assert rows_in_file(raw, 1) == [(first, first), (first + 1, first + 1), (first + 2, first + 2)]
    string = raw[: raw.index('"d\\ne"')].count("\n") + 1
    assert rows_in_file(raw, 2) == [(string, string)] * 2


def test_rows_may_be_cut_into_elements_anyhow():
    raw = '{"cells": [{"cell_type": "code", "source": [\n"a",\n"b\\nc",\n"\\n"\n]}]}'
    assert read_notebook(raw).sources == ("ab\nc\n",)
    assert rows_in_file(raw, 1) == [(2, 3), (3, 4)]
    assert spliced(raw, {1: "ab\nx\n"}).count("\n") >= 3
    assert read_notebook(spliced(raw, {1: "ab\nx\n"})).sources == ("ab\nx\n",)
