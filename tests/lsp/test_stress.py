"""Random edits, with a second model of the document in step: what is found last is what a fresh check finds."""

from __future__ import annotations

import ast
import os
import random
import warnings
from pathlib import Path

import pytest
from lsprotocol import types as t

from amplint import check_source

from .conftest import capabilities, new_editor
from .test_pull import CLIP

ROWS = (
    "        scaler.unscale_(optimizer)",
    "        scaler.update()",
    "        loss = loss * 2",
    "    with torch.cuda.amp.autocast():",
    "        pass",
    "# 名前 🙂",
    "x = (",
    "def f():",
    '"""',
    "    return 1",
    "scaler = torch.cuda.amp.GradScaler()  # amplint: ignore[AMP102]",
    "",
)


def thousand_rows(rows: int) -> str:
    """A file of so many rows, in which there is something to find in many places."""
    parts = [CLIP.partition("def train")[0]]
    number = 0
    while sum(part.count("\n") for part in parts) < rows:
        parts.append(
            "def train" + CLIP.partition("def train")[2].replace("scaler", f"scaler_{number % 7}") + "\n\n"
        )
        number += 1
    return "".join(part.replace("def train(", f"def train_{i}(") for i, part in enumerate(parts))


def resident(process: int) -> int:
    """Kilobytes that a process and those that it started hold."""
    total = 0
    todo = [process]
    while todo:
        current = todo.pop()
        try:
            status = Path(f"/proc/{current}/status").read_text()
            todo.extend(map(int, Path(f"/proc/{current}/task/{current}/children").read_text().split()))
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0)
    return total


def parses(text: str) -> bool:
    """Whether Python takes a text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError:
        return False
    return True


async def edit_at_random(tmp_path: Path, edits: int, rows: int, seed: int, compare_every: int) -> list[int]:
    """Make edits, compare now and then with a fresh check of the client's model; memory at each comparison."""
    chance = random.Random(seed)
    editor = new_editor(tmp_path)
    await editor.start(capabilities(pull=False, encodings=["utf-32"]), initialization_options={"debounce": 1})
    model = thousand_rows(rows)
    uri = editor.open("random.py", model)
    memory = []
    good = model  # the last text that could be parsed
    broken = 0
    for number in range(1, edits + 1):
        lines = model.split("\n")
        row = chance.randrange(len(lines))
        kind = chance.random()
        if broken > 3 or (number % compare_every == 0 and number % (2 * compare_every)):
            model = good
            editor.replace(uri, model)
        elif kind < 0.5:
            text = chance.choice(ROWS) + "\n"
            editor.edit(uri, (row, 0), (row, 0), text)
            model = "\n".join([*lines[:row], text[:-1], *lines[row:]])
        else:
            start = chance.randrange(len(lines[row]) + 1)
            end = chance.randrange(start, len(lines[row]) + 1)
            text = chance.choice(["", "a", "🙂", ".half()", "(", "名", " "])
            editor.edit(uri, (row, start), (row, end), text)
            lines[row] = lines[row][:start] + text + lines[row][end:]
            model = "\n".join(lines)
        editor.texts[uri] = model
        if parses(model):
            good, broken = model, 0
        else:
            broken += 1
        if number % compare_every == 0:
            await compare(editor, uri, model)
            memory.append(resident(editor.client._server.pid))
    assert not [m for m in editor.client.messages if m.type == t.MessageType.Error]
    assert not [m.message for m in editor.client.messages if "internal error" in m.message]
    await editor.stop()
    return memory


async def compare(editor, uri: str, model: str) -> None:
    """The diagnostics that the client shows in the end are those of the text that it has."""
    await editor.actions(uri)  # is answered when the whole document has been checked
    shown = await editor.pushed(uri)
    expected = [
        (f.code, f.start.row - 1, f.start.column - 1, f.message) for f in check_source(model, "random.py")
    ]
    got = [(str(d.code), d.range.start.line, d.range.start.character, d.message) for d in shown]
    if [code for code, *_ in expected] == ["AMP900"]:
        assert [code for code, *_ in got].count("AMP900") == 1
        lines = model.split("\n")
        assert all(line < len(lines) and column <= len(lines[line]) for _, line, column, _ in got)
    else:
        assert sorted(got) == sorted(expected)


@pytest.mark.asyncio
async def test_edits_at_random_leave_no_stale_diagnostic(tmp_path):
    await edit_at_random(tmp_path, edits=60, rows=100, seed=int(os.environ.get("SEED", "7")), compare_every=6)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_two_thousand_edits_of_a_thousand_rows_leave_memory_flat(tmp_path):
    memory = await edit_at_random(tmp_path, edits=2000, rows=1000, seed=11, compare_every=40)
    third = len(memory) // 3
    print("megabytes at each comparison:", [kilobytes // 1024 for kilobytes in memory])
    assert max(memory[2 * third :]) < 1.15 * max(memory[third : 2 * third])
