"""Edits of whole statements: rows are put in, taken out and moved as they are written."""

from __future__ import annotations

import libcst as cst

from amplint.finding import Edit, Span
from amplint.rule import Context
from amplint.syntax.tree import Tree


def can_stand_alone(statement: cst.CSTNode) -> bool:
    """Whether lines can be put before and taken from around the statement."""
    if isinstance(statement, cst.SimpleStatementLine):
        return len(statement.body) == 1
    return isinstance(statement, cst.BaseCompoundStatement)


def rows(ctx: Context, node: cst.CSTNode) -> Span:
    """The whole rows of a statement, with their indentation and the last newline."""
    text, span = ctx.model.tree.text, ctx.model.tree.span(node)
    start = span.start
    while start > 0 and text[start - 1] not in "\r\n":
        start -= 1
    end = span.end
    while end < len(text) and text[end] not in "\r\n":
        end += 1
    end += 2 if text[end : end + 2] == "\r\n" else 1 if end < len(text) else 0
    return Span(start, end)


def indent(ctx: Context, node: cst.CSTNode) -> str:
    """What stands before a statement on its first row."""
    return ctx.model.tree.text[rows(ctx, node).start : ctx.model.tree.span(node).start]


def inserted_before(ctx: Context, anchor: cst.CSTNode, code: str) -> Edit:
    """`code` on a row of its own above the statement `anchor`, or on several with their relative indentation."""
    newline = ctx.model.source.newline
    start = ctx.model.tree.span(anchor).start
    lines = code.split("\n")
    return Edit(Span(start, start), "".join(f"{line}{newline}{indent(ctx, anchor)}" for line in lines))


def inserted_after(ctx: Context, anchor: cst.CSTNode, code: str) -> Edit:
    """`code` on a row of its own below the statement `anchor`."""
    newline = ctx.model.source.newline
    end = rows(ctx, anchor).end
    before = "" if ctx.model.tree.text[:end].endswith(("\n", "\r")) else newline
    return Edit(Span(end, end), f"{before}{indent(ctx, anchor)}{code}{newline}")


def rows_text(ctx: Context, node: cst.CSTNode) -> str:
    """The text of the rows of a statement."""
    span = rows(ctx, node)
    return ctx.model.tree.text[span.start : span.end]


def with_content(edit: Edit, content: str) -> Edit:
    """The same edit with other text."""
    return Edit(edit.span, content)


def moved_before(ctx: Context, statement: cst.CSTNode, anchor: cst.CSTNode) -> tuple[Edit, ...]:
    """The rows of `statement` above those of `anchor`, which stands in the same block."""
    taken, start = rows(ctx, statement), rows(ctx, anchor).start
    text = ctx.model.tree.text[taken.start : taken.end]
    if not text.endswith(("\n", "\r")):
        text += ctx.model.source.newline
    return Edit(Span(start, start), text), Edit(taken, "")


def removed(ctx: Context, statement: cst.CSTNode) -> Edit | None:
    """The statement without its rows, or None where its block would be left empty."""
    block = ctx.model.tree.parent(statement)
    body = block.body if isinstance(block, (cst.IndentedBlock, cst.Module)) else ()
    if not can_stand_alone(statement) or len(body) < 2:
        return None
    return Edit(rows(ctx, statement), "")


def siblings(tree: Tree, *statements: cst.CSTNode) -> bool:
    """Whether the statements stand in one block, each on rows of its own."""
    return all(
        can_stand_alone(s) and tree.parent(s) is tree.parent(statements[0]) for s in statements
    ) and isinstance(tree.parent(statements[0]), (cst.IndentedBlock, cst.Module))


def can_leave_between(tree: Tree, first: cst.CSTNode, last: cst.CSTNode) -> bool:
    """Whether a statement from `first` on, and before `last`, may leave the block that both stand in."""
    return any(
        isinstance(node, (cst.Return, cst.Raise, cst.Break, cst.Continue))
        for node in tree.nodes[tree.number(first) : tree.number(last)]
    )
