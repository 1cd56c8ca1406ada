"""May this file concern any selected rule? Decided without LibCST, whose parser is ten times as dear as `ast`.

Two stages: words in the text, then each rule's own predicate over an `Outline` of the standard library's tree.
Both over-approximate: a file that does not pass has no finding. What `ast` cannot parse passes the second stage.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from amplint.rule import Rule
from amplint.source import Source
from amplint.syntax.syntax_error import SyntaxProblem, first_look

#: Strings longer than this name nothing.
_LONGEST_NAME = 200


@dataclass(slots=True)
class Outline:
    """What occurs in a file, cheaply read off its `ast`."""

    #: Identifiers: names, attributes, keywords, parts of imports, and short strings (for getattr).
    names: set[str] = field(default_factory=set)
    #: A `with` statement has an `and` as one of its items.
    has_with_and: bool = False
    #: (dotted module as written, with leading dots when relative; the name taken, "*" for all).
    imports: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Admission:
    """What the gate says of one file."""

    #: The rules that may have a finding in it; none: it need not be parsed by LibCST.
    rules: tuple[Rule, ...]
    problem: SyntaxProblem | None = None
    #: None when the words alone decided, or `ast` could not parse the file.
    outline: Outline | None = None


def admit(source: Source, rules: Sequence[Rule]) -> Admission:
    """Run both stages for one file."""
    text = source.text
    possible = tuple(rule for rule in rules if not rule.words or any(word in text for word in rule.words))
    problem, tree = first_look(text)
    if problem is not None or tree is None:
        return Admission(possible, problem)
    if not possible:
        return Admission(())
    seen = outline(tree)
    return Admission(tuple(r for r in possible if r.shape is None or r.shape(seen)), None, seen)


def outline(tree: ast.AST) -> Outline:
    """Read the outline off a tree, in one walk."""
    found = Outline()
    names = found.names
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        kind = type(node)
        if kind is ast.Name:
            names.add(node.id)  # type: ignore[attr-defined]  # told by `kind`, faster than isinstance
            continue
        if kind is ast.Attribute:
            names.add(node.attr)  # type: ignore[attr-defined]
            todo.append(node.value)  # type: ignore[attr-defined]
            continue
        if kind is ast.Constant:
            value = node.value  # type: ignore[attr-defined]
            if type(value) is str and len(value) <= _LONGEST_NAME:
                names.add(value)
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            _note_import(node, found)
            continue
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                value = item.context_expr
                if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And):
                    found.has_with_and = True
        elif isinstance(node, ast.keyword) and node.arg is not None:
            names.add(node.arg)
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                todo.append(value)
            elif type(value) is list:
                todo.extend(item for item in value if isinstance(item, ast.AST))
    return found


def _note_import(node: ast.Import | ast.ImportFrom, found: Outline) -> None:
    for alias in node.names:
        found.names.update(alias.name.split("."))
    if isinstance(node, ast.ImportFrom):
        origin = "." * node.level + (node.module or "")
        found.names.update((node.module or "").split("."))
        found.imports.extend((origin, alias.name) for alias in node.names)
