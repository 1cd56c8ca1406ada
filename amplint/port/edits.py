"""Edits that ports are made of: imports added and removed, a module-level name, and where they go."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from amplint.finding import Edit, ImportRemoval, Span
from amplint.model.module import ModuleModel
from amplint.model.names import Scope, dotted


class CannotEdit(ValueError):
    """A rewrite that would not be right here; the message is the reason shown to the user."""


class ImportEditor:
    """Adds and removes imports of one module, in its newline style."""

    def __init__(self, model: ModuleModel) -> None:
        self._model = model
        self._tree = model.tree
        self._text = model.source.text
        self._newline = model.source.newline

    # -- adding ----------------------------------------------------------------------------------------------

    def bound_module(self, dotted_name: str, scope: Scope) -> str | None:
        """How a whole module can be written in `scope` (`torch`, `t` after `import torch as t`), or None."""
        top = self._model.names.module_scope
        for name, bindings in top.bindings.items():
            if scope.owner(name) is not top:
                continue
            if all(self._brings(binding.node, dotted_name, name) for binding in bindings):
                return name
        return None

    @staticmethod
    def _brings(node: cst.CSTNode, wanted: str, bound: str) -> bool:
        """Whether an import alias of `import a.b` form binds `bound` to the module `wanted`."""
        if not isinstance(node, cst.ImportAlias):
            return False
        whole = dotted(node.name) or ""
        if node.asname is not None:
            return whole == wanted
        return bound == wanted and (whole == wanted or whole.startswith(f"{wanted}."))

    def is_free(self, name: str) -> bool:
        """Whether nothing in the module binds or uses `name`."""
        names = self._model.names
        if any(name in scope.bindings for scope in names.scopes):
            return False
        return not any(reference.root.value == name for reference in names.references)

    def add_import(self, statement: str) -> Edit:
        """Insert an import statement beside the imports of torch, or behind the module's first imports."""
        place = self._beside_torch()
        if place is None:
            place = self._header_end(only_leading=True)
        return Edit(Span(place, place), statement + self._newline, lines=1)

    def _beside_torch(self) -> int | None:
        """Offset of the line of the first leading import of torch or a part of it."""
        for statement in self._tree.module.body:
            if not _is_import(statement):
                if _is_docstring(statement):
                    continue
                return None
            for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
                named = small.module if isinstance(small, cst.ImportFrom) else None
                if isinstance(small, cst.Import):
                    named = small.names[0].name
                if named is not None and (dotted(named) or "").split(".")[0] == "torch":
                    return self._line_start(self._tree.span(statement).start)
        return None

    def define(self, lines: Iterable[str], uses: Iterable[cst.CSTNode]) -> Edit:
        """Insert module-level lines behind the imports and before every use.

        Raises `CannotEdit` when a use comes before the imports end.
        """
        place = self._header_end(only_leading=False)
        if any(self._tree.span(node).start < place for node in uses):
            place = self._header_end(only_leading=True)
        text = self._newline + "".join(line + self._newline for line in lines)
        return Edit(Span(place, place), text, lines=2)

    def _header_end(self, *, only_leading: bool) -> int:
        """Offset behind the last top-level import (of the leading block of imports, or of all)."""
        last: cst.CSTNode | None = None
        for statement in self._tree.module.body:
            if _is_import(statement) or (last is None and _is_docstring(statement)):
                last = statement
            elif only_leading and last is not None and not _is_docstring(last):
                break
            elif not only_leading and isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
                break
        if last is None:
            return self._first_line()
        return self._line_end(self._tree.span(last).end)

    def _first_line(self) -> int:
        """Offset of the first statement's line: behind a hash-bang, a coding cookie and leading comments."""
        body = self._tree.module.body
        return self._line_start(self._tree.span(body[0]).start) if body else 0

    def _line_start(self, offset: int) -> int:
        source = self._model.source
        return source.line_starts[source.position(offset).row - 1]

    def _line_end(self, offset: int) -> int:
        """Offset behind the newline of the line that `offset` stands in."""
        source = self._model.source
        row = source.position(offset).row
        return source.line_starts[row] if row < len(source.line_starts) else len(self._text)

    # -- removing --------------------------------------------------------------------------------------------

    def remove(self, alias: cst.ImportAlias) -> ImportRemoval:
        """Take one name out of its import statement. Raises `CannotEdit` where that cannot be done cleanly."""
        statement = self._tree.parent(alias)
        line = self._tree.parent(statement) if statement is not None else None
        if not isinstance(statement, (cst.Import, cst.ImportFrom)) or isinstance(
            statement.names, cst.ImportStar
        ):
            raise CannotEdit("it is not imported by a plain import statement")
        if not isinstance(line, cst.SimpleStatementLine):
            raise CannotEdit("the import shares its line with a compound statement")
        aliases = tuple(self._tree.span(name) for name in statement.names)
        index = next(i for i, name in enumerate(statement.names) if name is alias)
        if len(aliases) == 1 and len(line.body) > 1:
            raise CannotEdit("the import shares its line with other statements")
        span = self._tree.span(line)
        whole = Span(self._line_start(span.start), self._line_end(span.end))
        return ImportRemoval(whole, aliases, frozenset({index}), self._placeholder(line, whole))

    def _placeholder(self, line: cst.SimpleStatementLine, whole: Span) -> str:
        """What is left of a block that held nothing but the import."""
        block = self._tree.parent(line)
        if not isinstance(block, cst.IndentedBlock) or len(block.body) > 1:
            return ""
        indent = self._text[whole.start : self._tree.span(line).start]
        return f"{indent}pass{self._newline}"


def in_order(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Each edit once, in the order in which they are made."""
    return tuple(sorted(set(edits), key=lambda edit: edit.sort_key))


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(small, (cst.Import, cst.ImportFrom)) for small in statement.body
    )


def _is_docstring(statement: cst.CSTNode) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.Expr)
        and isinstance(statement.body[0].value, (cst.SimpleString, cst.ConcatenatedString))
    )
