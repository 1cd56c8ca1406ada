"""Where each node of a LibCST tree stands in the text it was parsed from.

One code generation that notes token numbers: a tenth of the cost of LibCST's PositionProvider, equal results
(`tests/test_syntax.py` compares them).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from itertools import accumulate
from types import TracebackType

import libcst as cst
from libcst._nodes.internal import CodegenState

from amplint.finding import Span

#: What LibCST may lose besides whitespace: joined rows, a second byte order mark.
_LOST = ("\\\n", "\\\r", "\ufeff")


class PositionsLost(ValueError):
    """The tree does not print as the text it came from, and the two cannot be lined up."""


class _Syntactic(AbstractContextManager[None]):
    """Notes the tokens written while it is open as the extent of one node."""

    __slots__ = ("end_node", "node", "start", "start_node", "state")

    def __init__(
        self,
        state: _Recorder,
        node: cst.CSTNode,
        start_node: cst.CSTNode | None,
        end_node: cst.CSTNode | None,
    ) -> None:
        self.state, self.node, self.start_node, self.end_node = state, node, start_node, end_node

    def __enter__(self) -> None:
        self.start = len(self.state.tokens)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        extents = self.state.extents
        start, end = self.start, len(self.state.tokens)
        if self.start_node is not None:
            start = extents[id(self.start_node)][0]
        if self.end_node is not None:
            end = extents[id(self.end_node)][1]
        extents[id(self.node)] = (start, end)


class _Recorder(CodegenState):
    """Writes code and notes, by node id, the numbers of the first token of a node and of the one behind it."""

    def __init__(self, default_indent: str, default_newline: str) -> None:
        super().__init__(default_indent=default_indent, default_newline=default_newline)
        self.extents: dict[int, tuple[int, int]] = {}
        self._open: list[int] = []

    def before_codegen(self, node: cst.CSTNode) -> None:
        self._open.append(len(self.tokens))

    def after_codegen(self, node: cst.CSTNode) -> None:
        start = self._open.pop()
        self.extents.setdefault(id(node), (start, len(self.tokens)))

    def record_syntactic_position(  # type: ignore[override]  # the base makes a generator for every node
        self,
        node: cst.CSTNode,
        *,
        start_node: cst.CSTNode | None = None,
        end_node: cst.CSTNode | None = None,
    ) -> AbstractContextManager[None]:
        return _Syntactic(self, node, start_node, end_node)


class Spans:
    """Character spans of the nodes of one module.

    LibCST loses a form feed before an unindented statement, a lone final carriage return and a backslash that joins
    an empty row to a statement, so the printed code can be shorter than the text; spans are then lined up with the
    text, or `PositionsLost` is raised.
    """

    def __init__(self, module: cst.Module, text: str) -> None:
        state = _Recorder(module.default_indent, module.default_newline)
        module._codegen(state)
        self._extents = state.extents
        self._offsets = [0, *accumulate(map(len, state.tokens))]
        code = "".join(state.tokens)
        self._shift = None if code == text else _line_up(code, text)

    def of(self, node: cst.CSTNode) -> Span:
        """Span of `node` in the text."""
        first, behind = self._extents[id(node)]
        start, end = self._offsets[first], self._offsets[behind]
        if self._shift is None:
            return Span(start, end)
        if end <= start:
            return Span(self._shift[start], self._shift[start])
        return Span(self._shift[start], self._shift[end - 1] + 1)


def _line_up(code: str, text: str) -> list[int]:
    """For each offset into `code`, the offset of the same character in `text`, which has a few more of them."""
    shift: list[int] = []
    place = 0
    for char in code:
        while place < len(text) and text[place] != char:
            if not (text[place].isspace() or text.startswith(_LOST, place)):
                raise PositionsLost(f"offset {place}: {text[place]!r} is not in the parsed tree")
            place += 1
        if place == len(text):
            raise PositionsLost("the parsed tree is longer than the text")
        shift.append(place)
        place += 1
    shift.append(place)
    return shift
