"""Edits that ports are made of: imports added and removed, a module-level name, and where they go."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

import libcst as cst

from amplint.finding import Edit, ImportMove, ImportRemoval, Span
from amplint.model.module import ModuleModel
from amplint.model.names import Scope, dotted
from amplint.syntax.tree import Tree

#: A comment on a row of its own that may silence a rule in the statement below.
_DIRECTIVE = re.compile(r"[ \t\f]*#.*amplint:")


class CannotEdit(ValueError):
    """A rewrite that would not be right here; the message is the reason shown to the user."""


class ImportEditor:
    """Adds and removes imports of one module, in its newline style."""

    def __init__(self, model: ModuleModel) -> None:
        self._model = model
        self._tree = model.tree
        self._text = model.source.text
        self._newline = model.source.newline
        self._free: dict[str, bool] = {}

    # -- adding ----------------------------------------------------------------------------------------------

    def bound_module(self, dotted_name: str, scope: Scope) -> str | None:
        """How a whole module can be written in `scope` (`torch`, `t` after `import torch as t`), or None."""
        top = self._model.names.module_scope
        return next((n for n in self._modules.get(dotted_name, ()) if scope.owner(n) is top), None)

    @cached_property
    def _modules(self) -> dict[str, list[str]]:
        """Module -> the names that mean it wherever they are bound at the top level, in order."""
        names, found = self._model.names, dict[str, list[str]]()
        for name, bindings in names.module_scope.bindings.items():
            origins = {names.absolute(b.origin or "") if b.kind == "import" else "" for b in bindings}
            if len(origins) == 1:
                found.setdefault(origins.pop(), []).append(name)
        return found

    @cached_property
    def _import_statements(self) -> list[cst.CSTNode]:
        """Top-level statements that do nothing but import."""
        return [statement for statement in self._tree.module.body if _is_import(statement)]

    def is_certain(self, dotted_name: str) -> bool:
        """Whether a plain import at the top level brings the module, rather than one under a condition."""
        return any(self._imports(statement, dotted_name) for statement in self._import_statements)

    def is_free(self, name: str) -> bool:
        """Whether nothing binds `name`, or uses it for something other than the module `name`."""
        if name not in self._free:
            self._free[name] = self._is_free(name)
        return self._free[name]

    def _is_free(self, name: str) -> bool:
        names = self._model.names
        if any(name in scope.bindings for scope in names.scopes):
            return False
        if all(names.resolve(r.root) == (name,) for r in names.references if r.root.value == name):
            return True
        return not any(reference.root.value == name for reference in names.references)

    def add_import(self, statement: str) -> Edit:
        """Insert an import statement beside the imports of torch, or behind the module's first imports."""
        place = self._beside_torch()
        if place is None:
            place = self._header_end
        return Edit(Span(place, place), statement + self._newline, lines=1)

    def _beside_torch(self) -> int | None:
        """Offset of the line of the first top-level import of torch or a part of it."""
        statement = self._torch_statement
        return None if statement is None else self._above(statement)

    @cached_property
    def _torch_statement(self) -> cst.CSTNode | None:
        for statement in self._import_statements:
            for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
                named = small.module if isinstance(small, cst.ImportFrom) else None
                if isinstance(small, cst.Import):
                    named = small.names[0].name
                if named is not None and (dotted(named) or "").split(".")[0] == "torch":
                    return statement
        return None

    def define(self, lines: Iterable[str]) -> Edit:
        """Insert module-level lines behind the import of torch and, up to the first use of torch, of others."""
        place = self._definitions_start
        text = self._newline + "".join(line + self._newline for line in lines)
        if self._text[place : place + 1] not in ("", "\n", "\r"):
            text += self._newline
        return Edit(Span(place, place), text, lines=2)

    @cached_property
    def _definitions_start(self) -> int:
        """Offset behind the imports that torch is imported by, or will be, before anything uses it."""
        body = self._tree.module.body
        imports = (s for s in self._import_statements if self._imports(s, "torch"))
        first = next(imports, None) or self._torch_statement
        if first is None:
            return self._header_end
        last = first
        for statement in body[next(i for i, s in enumerate(body) if s is first) + 1 :]:
            if self._cell(statement) != self._cell(first):
                break
            if _is_import(statement) or _is_conditional_import(self._tree, statement):
                last = statement
            elif isinstance(statement, (cst.FunctionDef, cst.ClassDef)) or self._uses_torch(statement):
                break
        return self._line_end(self._tree.span(last).end)

    def _cell(self, statement: cst.CSTNode) -> int | None:
        """The cell of a notebook that a statement is in; None in other files."""
        source = self._model.source
        return (
            None
            if source.cells is None
            else source.place(source.position(self._tree.span(statement).start)).cell
        )

    def _imports(self, statement: cst.CSTNode, dotted_name: str) -> bool:
        """Whether the statement does nothing but import, and binds the module."""
        if not _is_import(statement):
            return False
        top = self._model.names.module_scope
        name = self.bound_module(dotted_name, top)
        return name is not None and any(
            self._tree.inside(binding.node, statement) for binding in top.bindings[name]
        )

    def _uses_torch(self, statement: cst.CSTNode) -> bool:
        names = self._model.names
        return any(
            name == "torch" or name.startswith("torch.")
            for node in self._tree.within(statement)
            if isinstance(node, (cst.Name, cst.Attribute))
            for name in names.resolve(node)
        )

    @cached_property
    def _header_end(self) -> int:
        """Offset behind the leading block of imports."""
        last: cst.CSTNode | None = None
        for statement in self._tree.module.body:
            if _is_import(statement) or (last is None and _is_docstring(statement)):
                last = statement
            elif last is not None and not _is_docstring(last):
                break
        if last is None:
            return self._first_line()
        return self._line_end(self._tree.span(last).end)

    def _first_line(self) -> int:
        """Offset of the first statement's line: behind a hash-bang, a coding cookie and leading comments."""
        body = self._tree.module.body
        return self._above(body[0]) if body else 0

    def _above(self, statement: cst.CSTNode) -> int:
        """Offset above a statement and above the directives for it, which hold for what follows them."""
        start = self._line_start(self._tree.span(statement).start)
        row = self._model.source.position(start).row
        while row > 1 and _DIRECTIVE.match(self._model.source.line_text(row - 1)):
            row -= 1
        return self._model.source.line_starts[row - 1]

    def _line_start(self, offset: int) -> int:
        """Offset of the row of `offset`, or of the first of the empty rows that are joined to it."""
        source = self._model.source
        row = source.position(offset).row
        while row > 1 and source.line_text(row - 1).strip(" \t\f") == "\\":
            row -= 1
        return source.line_starts[row - 1]

    def _line_end(self, offset: int) -> int:
        """Offset behind the newline of the line that `offset` stands in, and behind empty rows joined to it."""
        source = self._model.source
        row = source.position(offset).row
        rest = source.line_text(row)[offset - source.line_starts[row - 1] :]
        while rest.strip(" \t\f") == "\\" and row < len(source.line_starts):
            row += 1
            rest = source.line_text(row)
        return source.line_starts[row] if row < len(source.line_starts) else len(self._text)

    def _behind_blank(self, offset: int) -> int:
        """Offset of the first row from `offset` on that has something in it."""
        while offset < len(self._text):
            end = self._line_end(offset)
            if self._text[offset:end].strip():
                break
            offset = end
        return offset

    # -- removing --------------------------------------------------------------------------------------------

    def remove(self, alias: cst.ImportAlias) -> ImportRemoval:
        """Take one name out of its import statement. Raises `CannotEdit` where that is not clean."""
        removal, statement = self._removal(alias)
        line = self._tree.parent(statement)
        if not isinstance(line, cst.SimpleStatementLine):
            raise CannotEdit("the import shares its line with a compound statement")
        if len(line.body) > 1:  # when several fixes take a name each, nothing is left of the import
            raise CannotEdit("the import shares its line with other statements")
        placeholder = self._placeholder(line, removal.lines)
        if placeholder:
            return replace(removal, placeholder=placeholder)
        block = self._tree.parent(line)
        if isinstance(block, cst.IndentedBlock) and block.body[0] is line:  # no block begins with empty rows
            removal = replace(removal, lines=Span(removal.lines.start, self._behind_blank(removal.lines.end)))
        return removal

    def move(self, alias: cst.ImportAlias, target: str, name: str) -> ImportRemoval:
        """Import the name bound by `alias`, called `name` in the module `target`, from there instead.

        Raises `CannotEdit` where that cannot be done in place.
        """
        removal, statement = self._removal(alias)
        if not isinstance(statement, cst.ImportFrom) or statement.module is None:
            raise CannotEdit("it is not imported by a `from .. import` statement")
        line = self._tree.parent(statement)
        if len(removal.aliases) > 1 and not isinstance(line, cst.SimpleStatementLine):
            raise CannotEdit("the import shares its line with a compound statement")
        old = dotted(alias.name) or ""
        bound = dotted(alias.asname.name) if alias.asname is not None else old
        text = name if name == bound else f"{name} as {bound}"
        (index,) = removal.removed
        start = self._tree.span(line).start if line is not None else removal.lines.start
        move = ImportMove(
            self._tree.span(statement.module),
            target,
            ((index, text, old != name),),
            self._text[removal.lines.start : start],
            self._newline,
            self._above(line) if isinstance(line, cst.SimpleStatementLine) else None,
        )
        return replace(removal, move=move)

    def _removal(self, alias: cst.ImportAlias) -> tuple[ImportRemoval, cst.Import | cst.ImportFrom]:
        statement = self._tree.parent(alias)
        if not isinstance(statement, (cst.Import, cst.ImportFrom)) or isinstance(
            statement.names, cst.ImportStar
        ):
            raise CannotEdit("it is not imported by a plain import statement")
        aliases = tuple(self._tree.span(name) for name in statement.names)
        index = next(i for i, name in enumerate(statement.names) if name is alias)
        span = self._tree.span(statement)
        whole = Span(self._line_start(span.start), self._line_end(span.end))
        edges = [span.start, *(edge for alias in aliases for edge in (alias.start, alias.end)), span.end]
        gaps = tuple(self._text[edges[i] : edges[i + 1]] for i in range(0, len(edges), 2))
        if "amplint:" in gaps[index + 1].partition("\n")[0]:
            raise CannotEdit("a comment behind the name silences a rule in the whole import")
        return ImportRemoval(span, whole, aliases, gaps, frozenset({index})), statement

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


def _is_conditional_import(tree: Tree, statement: cst.CSTNode) -> bool:
    """`try: import torch_npu; except ImportError: ..`: imports, and constants that say how it went."""
    if not isinstance(statement, (cst.If, cst.Try)):
        return False
    found = False
    for node in tree.within(statement):
        if isinstance(node, (cst.Import, cst.ImportFrom)):
            found = True
        elif isinstance(node, (cst.FunctionDef, cst.ClassDef, cst.Call)):
            return False
    return found


def _is_docstring(statement: cst.CSTNode) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.Expr)
        and isinstance(statement.body[0].value, (cst.SimpleString, cst.ConcatenatedString))
    )
