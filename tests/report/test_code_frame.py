from __future__ import annotations

import pytest

from amplint.finding import Position
from amplint.report.frame import WIDTH, Look, frame
from amplint.source import source_from_text

PLAIN = Look()


def framed(text: str, start: tuple[int, int], end: tuple[int, int], look: Look = PLAIN) -> list[str]:
    source = source_from_text(text, "train.py")
    return frame(source, Position(*start), Position(*end), "error", look, "red")


def test_carets_stand_under_the_span_between_two_rows_of_context() -> None:
    assert framed("a\nb\nc\nx = clip(y)\nd\ne\nf\n", (4, 5), (4, 12)) == [
        "  2 | b",
        "  3 | c",
        "> 4 | x = clip(y)",
        "    |     ^^^^^^^ error",
        "  5 | d",
        "  6 | e",
    ]


def test_blank_rows_at_the_edges_are_left_out() -> None:
    assert framed("\n\nx = 1\n\ny = 2\n", (3, 1), (3, 2)) == [
        "> 3 | x = 1",
        "    | ^ error",
        "  4 |",
        "  5 | y = 2",
    ]


def test_row_numbers_are_right_aligned() -> None:
    lines = framed("a\n" * 12, (9, 1), (9, 2))
    assert [line[:6] for line in lines] == ["   7 |", "   8 |", ">  9 |", "     |", "  10 |", "  11 |"]


def test_an_empty_file_has_a_caret_at_its_first_column() -> None:
    assert framed("", (1, 1), (1, 1)) == ["> 1 |", "    | ^ error"]


def test_the_last_row_may_lack_a_newline() -> None:
    assert framed("a\nclip(b)", (2, 1), (2, 8))[-2:] == ["> 2 | clip(b)", "    | ^^^^^^^ error"]


def test_a_place_after_the_last_newline_has_a_row_of_its_own() -> None:
    assert framed("a\n", (2, 1), (2, 1)) == ["  1 | a", "> 2 |", "    | ^ error"]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_every_kind_of_newline_ends_a_row_and_is_not_shown(newline: str) -> None:
    text = newline.join(["a", "bb", "c", ""])
    assert framed(text, (2, 1), (2, 3)) == ["  1 | a", "> 2 | bb", "    | ^^ error", "  3 | c"]


def test_a_caret_behind_the_last_character_of_a_row_is_placed_there() -> None:
    assert framed("abc\nd\n", (1, 4), (1, 4))[1] == "    |    ^ error"


def test_tabs_are_expanded_in_the_row_and_under_it() -> None:
    assert framed("\tx\t= clip(y)\n", (1, 6), (1, 10)) == [
        "> 1 |     x   = clip(y)",
        "    |           ^^^^ error",
    ]


def test_wide_characters_take_two_cells_and_combining_ones_none() -> None:
    assert framed("损 = f(失)\n", (1, 7), (1, 8)) == ["> 1 | 损 = f(失)", "    |        ^^ error"]
    assert framed("e\u0301 = f(x)\n", (1, 6), (1, 10))[1] == "    |     ^^^^ error"


def test_what_a_terminal_would_obey_is_spelled_out() -> None:
    assert framed("s = '\x1b[2J\u202e'; x\n", (1, 14), (1, 15)) == [
        r"> 1 | s = '\x1b[2J\u202e'; x",
        "    |                      ^ error",
    ]


def test_surrogates_and_what_the_encoding_lacks_are_spelled_out_and_still_aligned() -> None:
    assert framed("'\udc80'; x\n", (1, 6), (1, 7))[:2] == [r"> 1 | '\udc80'; x", "    |           ^ error"]
    assert framed("'失'; x\n", (1, 6), (1, 7), Look(encoding="ascii")) == [
        r"> 1 | '\u5931'; x",
        "    |           ^ error",
    ]


def test_a_span_over_several_rows_marks_them_and_underlines_the_first() -> None:
    assert framed("a\nclip(\n  b,\n)\nc\n", (2, 1), (4, 2)) == [
        "  1 | a",
        "> 2 | clip(",
        "    | ^^^^^ error",
        "> 3 |   b,",
        "> 4 | )",
        "  5 | c",
    ]


def test_a_span_that_ends_where_a_row_begins_does_not_cover_that_row() -> None:
    assert framed("a\nb\nc\n", (1, 1), (2, 1)) == ["> 1 | a", "    | ^ error", "  2 | b", "  3 | c"]


def test_the_middle_of_a_long_span_is_left_out() -> None:
    text = "".join(f"row{number}\n" for number in range(1, 31))
    lines = framed(text, (3, 1), (28, 3))
    assert [line.strip() for line in lines] == [
        "1 | row1",
        "2 | row2",
        ">  3 | row3",
        "| ^^^^ error",
        ">  4 | row4",
        ">  5 | row5",
        "...",
        "> 28 | row28",
        "29 | row29",
        "30 | row30",
    ]


def test_a_long_row_is_cropped_around_the_caret() -> None:
    text = "x = [" + ", ".join(map(str, range(2000))) + "]\n"
    column = text.index("1500") + 1
    row, carets = framed(text, (1, column), (1, column + 4))
    assert "..." in row[:10] and row.endswith("...") and len(row) <= WIDTH + len("> 1 | ")
    assert row[carets.index("^") :].startswith("1500")
    assert carets.count("^") == 4


def test_the_rows_around_a_cropped_row_are_shifted_with_it() -> None:
    long = " " * 300 + "clip(x)"
    lines = framed(f"{' ' * 300}before\n{long}\nshort\n", (2, 301), (2, 308))
    assert lines[0].index("before") == lines[1].index("clip")
    assert lines[-1] == "  3 | ..."


@pytest.mark.parametrize("shift", range(6))
def test_cropping_never_tears_a_wide_character(shift: int) -> None:
    text = "a" * shift + "失" * 400
    row, carets = framed(text, (1, 200), (1, 201))
    cells = "".join("WW" if char == "失" else char for char in row)
    assert len(cells) <= WIDTH + len("> 1 | ")
    assert cells[carets.index("^") :].startswith("WW")


def test_a_megabyte_in_one_row_is_no_trouble() -> None:
    text = "x = '" + "失" * 1_000_000 + "'; clip(y)\n"
    column = text.index("clip") + 1
    row, carets = framed(text, (1, column), (1, column + 4))
    assert carets.count("^") == 4 and "clip(y)" in row


def test_carets_of_a_long_span_end_with_the_window() -> None:
    _, carets = framed("f(" + "x" * 5000 + ")\n", (1, 1), (1, 5004))
    assert carets.count("^") == WIDTH


def test_a_row_that_the_source_lacks_has_no_frame() -> None:
    assert framed("a\n", (7, 1), (7, 2)) == []


def test_colors_change_nothing_but_the_color() -> None:
    import re

    colored = framed("a\nclip(b)\n", (2, 1), (2, 5), Look(color=True))
    assert any("\x1b[31;1m" in line for line in colored)
    assert [re.sub(r"\x1b\[[\d;]*m", "", line) for line in colored] == framed("a\nclip(b)\n", (2, 1), (2, 5))
