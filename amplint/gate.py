"""May this file concern any selected rule? Decided without LibCST, whose parser is ten times as dear as `ast`.

Two stages: words in the text, then each rule's own predicate over an `Outline` of the standard library's tree.
Both over-approximate: a file that does not pass has no finding. What `ast` cannot parse passes the second stage.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from amplint.rule import Rule
from amplint.source import Source
from amplint.syntax.pause import no_garbage_collection
from amplint.syntax.syntax_error import SyntaxProblem, first_look

#: Modules that are never part of the project: what is taken from them is of no interest to other files.
_FOREIGN = sys.stdlib_module_names | {"torch", "torch_npu", "numpy"}
#: Strings longer than this name nothing.
_LONGEST_NAME = 200


@dataclass(slots=True)
class Outline:
    """What occurs in a file, cheaply read off its `ast`."""

    #: Identifiers: names, attributes, keywords, parts of imports, and short strings (for getattr).
    names: set[str] = field(default_factory=set)
    #: A `with` statement has an `and` as one of its items.
    has_with_and: bool = False
    #: Methods whose call is a statement of its own: `float` for `x.float()`.
    discarded_calls: set[str] = field(default_factory=set)
    #: (dotted module as written, with leading dots when relative; the name taken, "*" for all). `losses.focal` takes
    #: `focal` from a module that is imported as `losses`.
    imports: list[tuple[str, str]] = field(default_factory=list)
    #: Names that may stand for modules -> what they are imported as.
    _modules: dict[str, str] = field(default_factory=dict)
    #: (what an attribute is taken from, the attribute).
    _taken: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Admission:
    """What the gate says of one file."""

    #: The rules that may have a finding in it; none: it need not be parsed by LibCST.
    rules: tuple[Rule, ...]
    problem: SyntaxProblem | None = None
    #: None when `ast` could not parse the file.
    outline: Outline | None = None


def admit(source: Source, rules: Sequence[Rule]) -> Admission:
    """Run both stages for one file."""
    with no_garbage_collection():
        return _admit(source, rules)


def _admit(source: Source, rules: Sequence[Rule]) -> Admission:
    text = source.text
    possible = tuple(rule for rule in rules if not rule.words or any(word in text for word in rule.words))
    problem, tree = first_look(text)
    if problem is not None or tree is None:
        return Admission(possible, problem)
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
            _note_attribute(node, found, todo)  # type: ignore[arg-type]
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
        elif isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
                found.discarded_calls.add(node.value.func.attr)
        elif isinstance(node, ast.keyword) and node.arg is not None:
            names.add(node.arg)
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                todo.append(value)
            elif type(value) is list:
                todo.extend(item for item in value if isinstance(item, ast.AST))
    for origin, name in sorted(found._taken):
        root, dot, rest = origin.partition(".")
        if root in found._modules:
            found.imports.append((found._modules[root] + dot + rest, name))
    return found


def _note_attribute(node: ast.Attribute, found: Outline, todo: list[ast.AST]) -> None:
    """A whole chain of attributes at once; what it begins with is left to be visited unless it is a name."""
    attributes = []
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        attributes.append(value.attr)
        value = value.value
    found.names.update(attributes)
    if not isinstance(value, ast.Name):
        todo.append(value)
        return
    origin = value.id
    found.names.add(origin)
    if origin != "self":
        for name in reversed(attributes):
            found._taken.add((origin, name))
            origin = f"{origin}.{name}"


def _note_import(node: ast.Import | ast.ImportFrom, found: Outline) -> None:
    for alias in node.names:
        found.names.update(alias.name.split("."))
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        origin = "." * node.level + module
        found.names.update(module.split("."))
        found.imports.extend((origin, alias.name) for alias in node.names)
        if node.level or module.partition(".")[0] not in _FOREIGN:
            dot = "." if module else ""
            found._modules.update((a.asname or a.name, f"{origin}{dot}{a.name}") for a in node.names)
        return
    for alias in node.names:
        root = alias.name.partition(".")[0]
        if root not in _FOREIGN:
            found._modules[alias.asname or root] = alias.name if alias.asname else root
