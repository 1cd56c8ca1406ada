"""A text parsed in pieces, of which those are kept that stay the same from one text to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from amplint.cancel import checkpoint
from amplint.syntax.parse import parse_text
from amplint.syntax.positions import PositionsLost, Spans
from amplint.syntax.syntax_error import SyntaxProblem


@dataclass(frozen=True)
class Piece:
    """Rows of a text that are a module by themselves."""

    text: str
    module: cst.Module

    @cached_property
    def spans(self) -> Spans:
        """Where its nodes stand in it. Raises `PositionsLost`."""
        return Spans(self.module, self.text)

    @cached_property
    def has_block(self) -> bool:
        """Whether anything in it is indented as a block of statements."""
        todo: list[cst.CSTNode] = [*self.module.body]
        while todo:
            node = todo.pop()
            if isinstance(node, (cst.IndentedBlock, cst.Match)):
                return True
            if isinstance(node, (cst.BaseCompoundStatement, cst.Else, cst.ExceptHandler, cst.Finally)):
                todo.extend(node.children)
        return False


@dataclass(frozen=True)
class Pieced:
    """A module whose statements are those of pieces."""

    module: cst.Module
    #: Pieces with at least one statement, each with the offset at which it begins.
    pieces: tuple[tuple[int, Piece], ...]

    @property
    def keeps_places(self) -> bool:
        """Whether the places of all nodes are known: where one piece has lost them, the whole text has."""
        try:
            return all(piece.spans is not None for _, piece in self.pieces)
        except PositionsLost:
            return False


class Pieces:
    """The pieces of the text that was parsed last."""

    def __init__(self, more: Pieces | None = None) -> None:
        """Pieces of `more` are used as well."""
        self._more = more
        #: Text of a piece, and how many equal ones come before it: a node may be in a tree once only.
        self._kept: dict[tuple[str, int], Piece] = {}

    def parse(self, text: str, starts: Sequence[int]) -> Pieced | None:
        """The module of a text, cut at these offsets, where a statement of the module or nothing begins.

        None where a piece cannot be parsed by itself.
        """
        used: dict[tuple[str, int], Piece] = {}
        equal: Counter[str] = Counter()
        pieces: list[tuple[int, Piece]] = []
        for start, end in zip((0, *starts), (*starts, len(text)), strict=True):
            part = text[start:end]
            key = part, equal[part]
            equal[part] += 1
            piece = self._known(key)
            if piece is None:
                checkpoint()
                module = parse_text(part)
                if isinstance(module, SyntaxProblem):
                    return None
                piece = self._kept[key] = Piece(part, module)
            used[key] = piece
            if piece.module.body:
                pieces.append((start, piece))
        self._kept = used
        body = [statement for _, piece in pieces for statement in piece.module.body]
        return Pieced(cst.Module(body, default_indent=_indent(pieces)), tuple(pieces))

    def _known(self, key: tuple[str, int]) -> Piece | None:
        return self._kept.get(key) or (self._more._known(key) if self._more is not None else None)


def _indent(pieces: Sequence[tuple[int, Piece]]) -> str:
    """What the first block of a text is indented by, as LibCST sees it."""
    first = next((piece for _, piece in pieces if piece.has_block), None)
    return first.module.default_indent if first is not None else "    "
