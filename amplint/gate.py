"""May this file concern any selected rule? Decided without LibCST, whose parser is ten times as dear as `ast`.

Two stages: words in the text, then each rule's own predicate over an `Outline` of the standard library's tree.
Both over-approximate: a file that does not pass has no finding. What `ast` cannot parse passes the second stage.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from amplint.mentions import made_low
from amplint.rule import Rule
from amplint.source import Source
from amplint.syntax.pause import no_garbage_collection
from amplint.syntax.syntax_error import SyntaxProblem, parsed

#: Modules that are never part of the project: what is taken from them is of no interest to other files.
_FOREIGN = sys.stdlib_module_names | {"torch", "torch_npu", "numpy"}
#: Strings longer than this name nothing.
_LONGEST_NAME = 200
#: Fields of statements that hold statements, or what holds statements.
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
#: Statements that hold no others and say nothing by themselves.
_PLAIN = frozenset((ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Raise, ast.Assert, ast.Pass))
#: What follows the name of a module whose attribute is taken.
_CHAIN = re.compile(r"(?:[\s\\]*\.[\s\\]*\w+)+")
_WORD = re.compile(r"\w+")
#: The end of another name, or of what an attribute is taken from.
_IN_NAME = re.compile(r"[\w.]")


class Outline:
    """What occurs in a file, cheaply read off its `ast`."""

    def __init__(self, tree: ast.Module, text: str) -> None:
        self._tree = tree
        self.text = text
        #: A `with` statement has an `and` as one of its items.
        self.has_with_and = False
        #: Methods whose call on a name or an attribute is a statement of its own, each with the last name of what it
        #: is called on: `("float", "x")` for `x.float()`.
        self.discarded_calls: set[tuple[str, str]] = set()
        #: (dotted module as written, with leading dots when relative; the name taken, "*" for all). `losses.focal`
        #: takes `focal` from a module that is imported as `losses`, as does the text of a comment or string.
        self.imports: list[tuple[str, str]] = []
        #: Names that may stand for modules -> what they are imported as.
        self._modules: dict[str, str] = {}
        self._read_statements()
        self._read_attributes(text)

    @cached_property
    def names(self) -> frozenset[str]:
        """Identifiers: names, attributes, keywords, parts of imports, and short strings (for getattr)."""
        return frozenset(_names(self._tree))

    @cached_property
    def made_low(self) -> frozenset[str]:
        """The words by which the file may make something low precision, as `mentions` reads them."""
        return made_low(self._tree, self.text)

    def _read_statements(self) -> None:
        todo: list[ast.AST] = [self._tree]
        while todo:
            node = todo.pop()
            kind = type(node)
            if kind is ast.Expr:
                value = node.value  # type: ignore[attr-defined]  # told by `kind`, faster than isinstance
                if type(value) is ast.Call and type(value.func) is ast.Attribute:
                    owner = value.func.value
                    if type(owner) is ast.Name:
                        self.discarded_calls.add((value.func.attr, owner.id))
                    elif type(owner) is ast.Attribute:
                        self.discarded_calls.add((value.func.attr, owner.attr))
                continue
            if kind in _PLAIN:
                continue
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._note_import(node)
                continue
            if isinstance(node, (ast.With, ast.AsyncWith)):
                for item in node.items:
                    value = item.context_expr
                    if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And):
                        self.has_with_and = True
            for name in _BLOCKS:
                todo.extend(getattr(node, name, ()))

    def _note_import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            origin = "." * node.level + module
            self.imports.extend((origin, alias.name) for alias in node.names)
            if node.level or module.partition(".")[0] not in _FOREIGN:
                dot = "." if module else ""
                self._modules.update((a.asname or a.name, f"{origin}{dot}{a.name}") for a in node.names)
            return
        for alias in node.names:
            root = alias.name.partition(".")[0]
            if root not in _FOREIGN:
                self._modules[alias.asname or root] = alias.name if alias.asname else root

    def _read_attributes(self, text: str) -> None:
        """Attributes of what may be modules, off the text: a walk over all expressions costs ten times as much."""
        taken = set()
        for name, module in self._modules.items():
            start = text.find(name)
            while start >= 0:
                end = start + len(name)
                chain = _CHAIN.match(text, end)
                if chain is not None and not (start and _IN_NAME.match(text, start - 1)):
                    origin = module
                    for part in _WORD.findall(chain[0]):
                        taken.add((origin, part))
                        origin = f"{origin}.{part}"
                start = text.find(name, end)
        self.imports.extend(sorted(taken))


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
    words = {word for rule in rules for word in rule.words}  # many rules share theirs
    occurring = {word for word in words if word in text}
    possible = tuple(r for r in rules if not r.words or not occurring.isdisjoint(r.words))
    problem, tree = parsed(text)
    if problem is not None or tree is None:
        return Admission(possible, problem)
    seen = Outline(tree, text)
    return Admission(tuple(r for r in possible if r.shape is None or r.shape(seen)), None, seen)


def _names(tree: ast.Module) -> Iterator[str]:
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        kind = type(node)
        if kind is ast.Name:
            yield node.id  # type: ignore[attr-defined]
            continue
        if kind is ast.Attribute:
            yield node.attr  # type: ignore[attr-defined]
            todo.append(node.value)  # type: ignore[attr-defined]
            continue
        if kind is ast.Constant:
            value = node.value  # type: ignore[attr-defined]
            if type(value) is str and len(value) <= _LONGEST_NAME:
                yield value
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield from alias.name.split(".")
            yield from (getattr(node, "module", None) or "").split(".")
            continue
        if kind is ast.keyword and node.arg is not None:  # type: ignore[attr-defined]
            yield node.arg  # type: ignore[attr-defined]
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                todo.append(value)
            elif type(value) is list:
                todo.extend(item for item in value if isinstance(item, ast.AST))
