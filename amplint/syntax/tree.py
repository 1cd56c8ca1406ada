"""One parsed file: its nodes in preorder with parents, found by a single walk.

LibCST's visitors rebuild every node and its metadata providers cost ten times a parse; this walk costs a
twentieth of one. Nothing else in amplint walks a whole tree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import libcst as cst

from amplint.finding import Span
from amplint.syntax.children import CHILDREN
from amplint.syntax.positions import Spans

if TYPE_CHECKING:
    from amplint.syntax.pieces import Piece

NodeT = TypeVar("NodeT", bound=cst.CSTNode)


class _Fields(dict[type, tuple[str, ...]]):
    """Node class -> names of the attributes that hold its children, in lexical order."""

    def __missing__(self, kind: type) -> tuple[str, ...]:
        found = self[kind] = CHILDREN.get(kind.__name__, ())
        return found


_FIELDS = _Fields()


def children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Direct children of `node` that carry meaning, in lexical order."""
    found: list[cst.CSTNode] = []
    for name in _FIELDS[type(node)]:
        value = getattr(node, name)
        kind = type(value)
        if kind is list or kind is tuple:
            found.extend(value)
        elif value is not None and kind is not cst.MaybeSentinel:
            found.append(value)
    return found


class Tree:
    """A parsed module and the answers that depend on its shape only.

    Nodes are known by their preorder number (`number`), which stays the same for the same text: this is what
    serialisable results hold instead of a node.
    """

    def __init__(self, module: cst.Module, text: str, pieces: Sequence[tuple[int, Piece]] = ()) -> None:
        self.module = module
        self.text = text
        #: Where the text was parsed in pieces, these with the offsets at which they begin.
        self._pieces = pieces
        #: Every meaningful node, in preorder.
        self.nodes: list[cst.CSTNode] = []
        self._number: dict[int, int] = {}
        self._parent: list[int] = []
        self._last: list[int] = []
        self._by_type: dict[type, list[cst.CSTNode]] = {}
        self._spans: Spans | None = None
        self._walk()

    def _walk(self) -> None:
        nodes, parent, number = self.nodes, self._parent, self._number
        by_type = self._by_type
        stack: list[tuple[cst.CSTNode, int]] = [(self.module, -1)]
        while stack:
            node, above = stack.pop()
            index = len(nodes)
            nodes.append(node)
            parent.append(above)
            number[id(node)] = index
            by_type.setdefault(type(node), []).append(node)
            below = children(node)
            below.reverse()
            stack.extend([(child, index) for child in below])
        last = self._last = list(range(len(nodes)))
        for index in range(len(nodes) - 1, 0, -1):
            above = parent[index]
            if last[index] > last[above]:
                last[above] = last[index]

    def number(self, node: cst.CSTNode) -> int:
        """Preorder number of a node of this tree."""
        return self._number[id(node)]

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node that holds `node`, or None for the module."""
        above = self._parent[self._number[id(node)]]
        return self.nodes[above] if above >= 0 else None

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around `node`, innermost first, up to the module."""
        above = self._parent[self._number[id(node)]]
        while above >= 0:
            yield self.nodes[above]
            above = self._parent[above]

    def inside(self, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
        """Whether `node` is `outer` or lies within it."""
        start = self._number[id(outer)]
        return start <= self._number[id(node)] <= self._last[start]

    def within(self, outer: cst.CSTNode) -> list[cst.CSTNode]:
        """`outer` and everything within it, in preorder."""
        start = self._number[id(outer)]
        return self.nodes[start : self._last[start] + 1]

    def of_type(self, kind: type[NodeT]) -> list[NodeT]:
        """All nodes of exactly this class, in preorder."""
        return self._by_type.get(kind, [])  # type: ignore[return-value]  # filed under their own class

    def statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """The innermost whole statement around `node`: a line of small statements or a compound statement."""
        current: cst.CSTNode | None = node
        while current is not None:
            if isinstance(current, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
                return current
            if isinstance(current, cst.SimpleStatementSuite):
                return current
            current = self.parent(current)
        return self.module

    @property
    def spans(self) -> Spans:
        """Where nodes stand in the text; computed for the whole file on first use."""
        if self._spans is None:
            self._spans = Spans(self.module, self.text)
        return self._spans

    def span(self, node: cst.CSTNode) -> Span:
        """Characters that `node` covers, without the whitespace and comments around it."""
        if not self._pieces or node is self.module:
            return self.spans.of(node)
        at = bisect_right(self._firsts, self._number[id(node)]) - 1
        offset, piece = self._pieces[at]
        span = piece.spans.of(node)
        return Span(offset + span.start, offset + span.end)

    @cached_property
    def _firsts(self) -> list[int]:
        """The number of the first node of each piece."""
        return [self._number[id(piece.module.body[0])] for _, piece in self._pieces]

    def code(self, node: cst.CSTNode) -> str:
        """The text of `node` as it stands in the file."""
        if self._spans is None and not self._pieces and isinstance(node, cst.BaseExpression):
            return self.module.code_for_node(node)  # the spans of the whole file cost a hundred times as much
        span = self.span(node)
        return self.text[span.start : span.end]
