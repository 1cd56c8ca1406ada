"""Columns in the three units, rows that end in three ways, and a client's changes."""

from __future__ import annotations

import random

import pytest
import pytest_asyncio
from lsprotocol import types as t

from amplint.finding import Position, Span
from amplint.lsp.moves import Change
from amplint.lsp.positions import Text

from .conftest import capabilities, new_editor

TEXT = "a = 1\r\n名 = '🙂é'; b = 2\rc\x0c = 3\n\u2028x\n"
UNITS = {"utf-8": 1, "utf-16-le": 2, "utf-32-le": 4}


def units(text: str, encoding: str) -> int:
    codec = encoding if encoding == "utf-8" else f"{encoding}-le"
    return len(text.encode(codec)) // UNITS[codec]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_offsets_and_positions_are_inverse(encoding):
    text = Text(TEXT, encoding)
    for offset in range(len(TEXT) + 1):
        if TEXT[:offset].endswith("\r") and TEXT[offset:].startswith("\n"):
            continue  # inside of what ends a row
        assert text.offset(text.to_client(offset)) == offset


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_columns_count_what_the_client_counts(encoding):
    text = Text(TEXT, encoding)
    place = text.to_client(TEXT.index("b = 2"))
    assert (place.line, place.character) == (1, units("名 = '🙂é'; ", encoding))
    assert text.row_column(Position(2, 10)) == t.Position(1, units("名 = '🙂é'; "[:9], encoding))


def test_form_feeds_and_unicode_separators_end_no_row():
    text = Text(TEXT)
    assert [text.line(row) for row in range(len(text.starts))] == [
        "a = 1",
        "名 = '🙂é'; b = 2",
        "c\x0c = 3",
        "\u2028x",
        "",
    ]


def test_positions_behind_the_end_mean_the_end():
    text = Text("ab\ncd", "utf-16")
    assert text.offset(t.Position(0, 99)) == 2
    assert text.offset(t.Position(9, 0)) == 5


def test_half_a_character_is_the_character():
    assert Text("🙂x", "utf-16").offset(t.Position(0, 1)) == 0


def test_a_byte_order_mark_is_no_part_of_the_source():
    text = Text("\ufeffab\ncd", "utf-16")
    assert text.source == "ab\ncd"
    assert text.range(Span(0, 2)) == t.Range(t.Position(0, 1), t.Position(0, 3))
    assert text.row_column(Position(2, 1)) == t.Position(1, 0)


def test_changes_of_a_client_give_the_text_that_the_client_has():
    chance = random.Random(1)
    for encoding in ("utf-8", "utf-16", "utf-32"):
        text, model = Text(TEXT, encoding), TEXT
        for _ in range(200):
            start, end = sorted(chance.choices(range(len(model) + 1), k=2))
            if {model[start - 1 : start + 1], model[end - 1 : end + 1]} & {"\r\n"}:
                continue
            content = chance.choice(["", "🙂", "名\n", "x\x0c", "\u2028", "y = 1\r\n"])
            text = text.replaced(t.Range(text.to_client(start), text.to_client(end)), content)
            model = model[:start] + content + model[end:]
            assert text.text == model


def test_findings_outside_of_a_change_move_with_the_text():
    change = Change("a\nb\nc\n", "a\nx\ny\nc\n")
    assert change.position(Position(1, 1)) == Position(1, 1)
    assert change.position(Position(2, 2)) is not None
    assert change.position(Position(3, 1)) == Position(4, 1)
    assert change.rows == (2, 3)


@pytest_asyncio.fixture(params=["utf-8", "utf-16", "utf-32"])
async def any_editor(request, tmp_path):
    editor = new_editor(tmp_path)
    editor.encoding = request.param
    editor.initialized = await editor.start(capabilities(encodings=[request.param]))
    yield editor
    await editor.stop()


@pytest.mark.asyncio
async def test_the_server_counts_as_the_client_does(any_editor):
    editor = any_editor
    assert editor.initialized.capabilities.position_encoding == editor.encoding
    before = "名前 = '🙂'; "
    line = before + "s = torch.cuda.amp.GradScaler(); 乙 = 1\x0c"
    uri = editor.open("wide.py", f"import torch\n{line}\n")
    (finding,) = (await editor.pull(uri)).items
    start = units(before + "s = ", editor.encoding)
    assert finding.range.start == t.Position(1, start)
    editor.edit(uri, (1, units(before, editor.encoding)), (1, start), "scaler🙂 = ")
    assert {str(d.code) for d in (await editor.pull(uri)).items} == {"AMP900", "AMP102"}
    editor.edit(
        uri,
        (1, units(before + "scaler", editor.encoding)),
        (1, units(before + "scaler🙂", editor.encoding)),
        "",
    )
    (finding,) = (await editor.pull(uri)).items
    assert finding.range.start == t.Position(1, units(before + "scaler = ", editor.encoding))
    (fix, *_) = await editor.actions(uri, finding)
    last = max(e.range.start.character for e in fix.edit.document_changes[0].edits if e.range.start.line == 1)
    assert last == units(before + "scaler = torch.cuda.amp.GradScaler(", editor.encoding)
