"""What a name or an attribute of `self` can hold at one place of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from amplint.model.names import Binding, Names, Scope, string_value
from amplint.syntax.tree import Tree

#: An expression, or a binding whose value is no expression (a parameter, the target of a loop, an import).
Source = cst.BaseExpression | Binding

#: A chain of names longer than this is not followed.
_LONGEST = 8
_OPTIONAL = ("typing.Optional", "typing.Union")


def is_none(source: Source) -> bool:
    """Whether a source is the constant None."""
    return isinstance(source, cst.Name) and source.value == "None"


def every_part(names: Names, note: cst.BaseExpression, means: Callable[[cst.BaseExpression], bool]) -> bool:
    """Whether an annotation, or every part of an `Optional[..]`, a union or `.. | None` but None, `means` it."""
    if isinstance(note, cst.BinaryOperation) and isinstance(note.operator, cst.BitOr):
        parts = [note.left, note.right]
    elif isinstance(note, cst.Subscript) and names.is_name(note.value, *_OPTIONAL):
        parts = [e.slice.value for e in note.slice if isinstance(e.slice, cst.Index)]
    else:
        return means(note)
    some = [part for part in parts if not is_none(part)]
    return bool(some) and all(every_part(names, part, means) for part in some)


class Values:
    """Follows names to what is assigned to them, as far as one module shows."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self._attributes: dict[tuple[Scope, str], list[cst.BaseExpression | None]] | None = None

    def sources(
        self, node: cst.BaseExpression, depth: int = 0, *, choices: bool = False
    ) -> tuple[Source, ...]:
        """Everything that `node` can hold where it stands; () when that cannot be told.

        Names, attributes of `self`, both sides of `a if c else b` (unless `choices` are to be kept whole) and
        `:=` are followed; what is left are other expressions and bindings.
        """
        if depth > _LONGEST:
            return ()
        parts: list[cst.BaseExpression | Binding | None]
        if isinstance(node, cst.IfExp) and not choices:
            parts = [node.body, node.orelse]
        elif isinstance(node, cst.NamedExpr):
            parts = [node.value]
        elif isinstance(node, cst.Name) and node.value in ("None", "True", "False"):
            return (node,)
        elif isinstance(node, cst.Name):
            found = self.reaching(node)
            parts = [b.value if _is_plain(b) else b for b in found]
        elif isinstance(node, cst.Attribute):
            assigned = self._attribute(node)
            if assigned is None:
                return (node,)
            parts = [*assigned]
        else:
            return (node,)
        result: list[Source] = []
        for part in parts:
            if isinstance(part, Binding):
                result.append(part)
                continue
            inner = self.sources(part, depth + 1, choices=choices) if part is not None else ()
            if not inner:
                return ()
            result.extend(inner)
        return tuple(dict.fromkeys(result))

    def reaching(self, name: cst.Name) -> list[Binding]:
        """Bindings that a name can have where it is used: those behind the last one that is sure to run first."""
        scope = self._names.scope_of(name)
        owner = scope.owner(name.value)
        if owner is None:
            return []
        bindings = owner.bindings[name.value]
        if owner is not scope or len(bindings) == 1:
            return bindings
        sure = [i for i, b in enumerate(bindings) if self._runs_before(b, name)]
        if not sure:
            return bindings
        last = sure[-1]
        loops = [n for n in self._tree.ancestors(name) if isinstance(n, (cst.For, cst.While))]
        loops = [loop for loop in loops if not self._tree.inside(bindings[last].node, loop)]
        here = self._tree.number(name)
        return [
            b
            for i, b in enumerate(bindings)
            if i >= last
            and (self._tree.number(b.node) < here or any(self._tree.inside(b.node, loop) for loop in loops))
        ]

    def _runs_before(self, binding: Binding, node: cst.CSTNode) -> bool:
        """Whether the binding's statement precedes `node` in a block around `node`, or binds it as a loop does."""
        tree = self._tree
        if tree.number(binding.node) >= tree.number(node):
            return False
        if binding.kind == "param":
            return True
        if binding.kind in ("loop", "with", "except"):
            around: cst.CSTNode | None = binding.node
            while around is not None and not isinstance(
                around, (cst.BaseCompoundStatement, cst.ExceptHandler)
            ):
                around = tree.parent(around)
            return around is not None and tree.inside(node, around)
        statement = tree.statement(binding.node)
        block = tree.parent(statement)
        own = tree.statement(node)
        return block is not None and statement is not own and tree.inside(node, block)

    def _attribute(self, node: cst.Attribute) -> list[cst.BaseExpression | None] | None:
        """Values that methods of the class around assign to `self.x`; None for what is no such attribute."""
        if not isinstance(node.value, cst.Name):
            return None
        owner = self._class_of(node.value)
        if owner is None:
            return None
        if self._attributes is None:
            self._attributes = {}
            for where, attribute, value in self._assigned():
                self._attributes.setdefault((where, attribute), []).append(value)
        return self._attributes.get((owner, node.attr.value))

    def _assigned(self) -> Iterator[tuple[Scope, str, cst.BaseExpression | None]]:
        for statement in self._tree.of_type(cst.Assign):
            for target in statement.targets:
                parts: list[cst.BaseExpression] = [target.target]
                is_whole = not isinstance(target.target, (cst.Tuple, cst.List))
                if isinstance(target.target, (cst.Tuple, cst.List)):
                    parts = [element.value for element in target.target.elements]
                for part in parts:
                    yield from self._stored(part, statement.value if is_whole else None)
        for noted in self._tree.of_type(cst.AnnAssign):
            if noted.value is not None:
                yield from self._stored(noted.target, noted.value)
        for changed in self._tree.of_type(cst.AugAssign):
            yield from self._stored(changed.target, None)
        for call in self._tree.of_type(cst.Call):
            if isinstance(call.func, cst.Attribute) and call.func.attr.value == "register_buffer":
                name = string_value(call.args[0].value) if call.args else None
                owner = self._class_of(call.func.value) if isinstance(call.func.value, cst.Name) else None
                if owner is not None and name is not None and len(call.args) > 1:
                    yield owner, name, call.args[1].value

    def _stored(
        self, target: cst.BaseExpression, value: cst.BaseExpression | None
    ) -> Iterator[tuple[Scope, str, cst.BaseExpression | None]]:
        if isinstance(target, cst.Attribute) and isinstance(target.value, cst.Name):
            owner = self._class_of(target.value)
            if owner is not None:
                yield owner, target.attr.value, value

    def _class_of(self, name: cst.Name) -> Scope | None:
        """The class whose instance `name` is, when it is the first parameter of a method around."""
        owner = self._names.scope_of(name).owner(name.value)
        if owner is None or owner.kind != "function" or owner.parent is None or owner.parent.kind != "class":
            return None
        first = owner.bindings[name.value]
        params = owner.node.params if isinstance(owner.node, cst.FunctionDef) else None
        if params is None or len(first) != 1 or first[0].kind != "param":
            return None
        positional = (*params.posonly_params, *params.params)
        return owner.parent if positional and positional[0] is first[0].node else None


def _is_plain(binding: Binding) -> bool:
    """Whether the binding gives its name the value of an expression."""
    return binding.kind in ("assign", "walrus") and binding.value is not None
