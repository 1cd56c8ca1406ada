"""A text that is parsed in pieces gives the tree that it gives as a whole."""

from __future__ import annotations

import ast

import libcst as cst
import pytest

from amplint.lsp.outline import outline_of
from amplint.source import source_from_text
from amplint.syntax.pieces import Pieced, Pieces
from amplint.syntax.tree import Tree

TEXT = '''\
#!/usr/bin/env python
"""What it does."""

import torch  # all of it
from torch import nn

# above

@decorated
@twice(
    1
)
class Net(nn.Module):
    """A docstring
def not_a_function():
    """

    size = 4

    def forward(self, x):
        # inside
        return x.half()

    # behind the last method


if True:
    def hidden(): return 1


def first(a, *, b=(1,
                   2)):
    with torch.autocast("cuda"):
        return a + b; print()
    # the end of it


def first(a, *, b=(1,
                   2)):
    with torch.autocast("cuda"):
        return a + b; print()
    # the end of it
async def last(): pass
x = [
    1,
]
# behind everything
'''


def pieced(pieces: Pieces, text: str) -> Pieced:
    source = source_from_text(text, "a.py")
    found = pieces.parse(text, outline_of(text, ast.parse(text)).starts(source))
    assert found is not None
    return found


def described(tree: Tree) -> list[tuple[type, int, int, int]]:
    """Every node but the module with its place, and the number of its parent."""
    return [
        (type(node), *(tree.span(node).start, tree.span(node).end), tree.number(tree.parent(node) or node))
        for node in tree.nodes[1:]
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TEXT, id="plain"),
        pytest.param(TEXT.replace("\n", "\r\n"), id="crlf"),
        pytest.param(TEXT.replace("\n", "\r").rstrip("\r"), id="cr"),
        pytest.param(TEXT.replace("    ", "\t"), id="tabs"),
        pytest.param(TEXT.rstrip("\n"), id="no final newline"),
        pytest.param(TEXT.replace("\n\nif", "\n\n\fif"), id="form feed"),
        pytest.param(TEXT.replace("\n# above", "\\\n\n# above"), id="joined row"),
        pytest.param("x = [\n  1,\n]\n\ndef f():\n   return x\n", id="indented list first"),
        pytest.param(
            '"""Doc.\n\n      deep\n"""\nif 1: pass\nelse:\n  y = 2\n', id="indented docstring first"
        ),
        pytest.param("", id="empty"),
        pytest.param("# only a comment", id="comment"),
        pytest.param("def f(): pass", id="one function"),
    ],
)
def test_the_tree_is_that_of_the_whole_text(text: str) -> None:
    found = pieced(Pieces(), text)
    tree = Tree(found.module, text, found.pieces)
    whole = Tree(cst.parse_module(text), text)
    assert described(tree) == described(whole)
    assert [tree.code(node) for node in tree.nodes[1:]] == [whole.code(node) for node in whole.nodes[1:]]
    assert len({id(node) for node in tree.nodes}) == len(tree.nodes)
    assert found.module.default_indent == whole.module.default_indent


def test_what_did_not_change_is_not_parsed_again() -> None:
    pieces = Pieces()
    before = pieced(pieces, TEXT).module.body
    longer = TEXT.replace("# inside", "# inside\n        y = x\n")
    after = pieced(pieces, longer).module.body
    changed = [type(new).__name__ for old, new in zip(before, after, strict=True) if old is not new]
    assert changed == ["ClassDef"]
    found = pieced(pieces, longer)
    tree, whole = Tree(found.module, longer, found.pieces), Tree(cst.parse_module(longer), longer)
    assert described(tree) == described(whole)


def test_pieces_of_other_pieces_are_used() -> None:
    first = Pieces()
    whole = pieced(first, TEXT).module.body
    part = TEXT[: TEXT.index("if True")]
    assert all(one is two for one, two in zip(pieced(Pieces(first), part).module.body, whole, strict=False))


def test_a_text_that_cannot_be_cut_there_is_left_alone() -> None:
    assert Pieces().parse(TEXT, [TEXT.index("def not_a_function")]) is None
    assert Pieces().parse("def f(:\n", []) is None
