"""Outlines that follow edits are those of the new text, parsed as a whole."""

from __future__ import annotations

import ast
import random
import warnings

import pytest

from amplint.lsp.outline import Outline, outline_of

from .test_glance import CODE
from .test_stress import ROWS

TEXT = CODE + (
    "\n\n@decorated\n@twice(\n    1\n)\nclass Other:\n    @property\n    def name(self): return 1\n"
    '    def text(self):\n        return """\nleft\n"""\n\n    # behind\n\nasync def last():\n    pass\n'
)


def parsed(text: str) -> Outline | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return outline_of(text, ast.parse(text))
    except (SyntaxError, ValueError):
        return None


def test_an_edit_inside_of_a_function_moves_what_follows():
    before = parsed(TEXT)
    after = TEXT.replace("        clip(model)\n", "        clip(model)\n        print(1)\n")
    assert before.after(after) == parsed(after) != before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scaler = GradScaler()", "scaler = 1"),  # in no function
        ("        clip(model)\n", "        clip(model\n"),  # cannot be parsed
        ("def clip(model):\n", "class clip:\n"),  # no function any more
        ("        return self.layer(x)\n", "        return self.layer(x)\n    def more(self): pass\n"),
        ("        return Model()\n", "        return Model()\nx = 1\n"),
    ],
)
def test_what_changes_more_than_a_function_is_to_be_parsed(old, new):
    assert TEXT.count(old) == 1
    assert parsed(TEXT).after(TEXT.replace(old, new)) is None


def test_outlines_follow_edits_at_random():
    chance = random.Random(5)
    text, outline = TEXT, parsed(TEXT)
    followed = 0
    for _ in range(1500):
        lines = text.split("\n")
        row = chance.randrange(len(lines))
        if chance.random() < 0.4:
            lines.insert(row, chance.choice(ROWS))
        elif chance.random() < 0.3:
            del lines[row : row + chance.randrange(1, 3)]
        else:
            place = chance.randrange(len(lines[row]) + 1)
            piece = chance.choice(["", "a", "(", ")", '"', "\\", "\n", "    ", "#", ":", "\n\n"])
            lines[row] = lines[row][:place] + piece + lines[row][place + chance.randrange(3) :]
        made = "\n".join(lines)
        expected = parsed(made)
        found = outline.after(made)
        if found is not None:
            assert found == expected
            followed += made != text
        if expected is not None and chance.random() < 0.9 and len(made) < 2 * len(TEXT):
            text, outline = made, expected
        elif chance.random() < 0.1:
            text, outline = TEXT, parsed(TEXT)
    assert followed > 100
