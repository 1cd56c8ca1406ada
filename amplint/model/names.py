"""Scopes, bindings, and the qualified names that an expression can denote.

Built from the nodes of one tree in preorder. Answers are ordered tuples: no result depends on a hash seed.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from amplint.syntax.tree import Tree, children

#: A name in several places may mean several things; past this many candidates the rest is dropped.
_MOST = 16


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One place that gives a name its meaning."""

    name: str
    #: import, assign, unpack, param, def, class, loop, with, except, walrus, delete, other
    kind: str
    node: cst.CSTNode
    scope: Scope
    #: Dotted origin of an import (`torch.cuda.amp.autocast`); relative ones start with dots.
    origin: str | None = None
    #: What is assigned (assign, walrus, with: the context expression; param: the default).
    value: cst.BaseExpression | None = None
    annotation: cst.BaseExpression | None = None


@dataclass(slots=True, eq=False)
class Scope:
    """A module, class, function, lambda or comprehension and the names that it binds."""

    kind: str
    node: cst.CSTNode
    parent: Scope | None
    #: Dotted name within the module ("" for the module itself), e.g. "Trainer.fit".
    qualname: str
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    #: Names declared global or nonlocal here -> the kind of declaration.
    declared: dict[str, str] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)

    @property
    def module(self) -> Scope:
        """The outermost scope."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def owner(self, name: str) -> Scope | None:
        """The scope that `name` belongs to when used here, or None when nothing here binds it."""
        scope: Scope | None = self
        first = True
        while scope is not None:
            declared = scope.declared.get(name)
            if declared == "global":
                top = scope.module
                return top if name in top.bindings else None
            if declared is None and name in scope.bindings and (first or scope.kind != "class"):
                return scope
            first = False
            scope = scope.parent
        return None

    def lookup(self, name: str) -> list[Binding]:
        """Every binding that `name` can have when used here, in the order of the text."""
        owner = self.owner(name)
        return owner.bindings[name] if owner is not None else []


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A use of a name, with all attributes that follow it: `torch.cuda.amp.autocast` is one reference."""

    #: The outermost node of the chain.
    node: cst.BaseExpression
    root: cst.Name
    attributes: tuple[str, ...]
    scope: Scope


def dotted(node: cst.BaseExpression) -> str | None:
    """`a.b.c` for a plain chain of attributes, else None."""
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name):
        return None
    parts.append(node.value)
    return ".".join(reversed(parts))


#: A node to visit, the scope that it is evaluated in, and whether it continues a chain of attributes.
_Step = tuple[cst.CSTNode, Scope, bool]


class Names:
    """The scopes of a module and what names mean in them."""

    def __init__(self, tree: Tree, module_name: str = "", aliases: Mapping[str, str] | None = None) -> None:
        self.tree = tree
        self.module_name = module_name
        #: Qualified name -> the name under which rules know it.
        self._aliases = aliases or {}
        self.module_scope = Scope("module", tree.module, None, "")
        self._scope_of: dict[int, Scope] = {}
        self.scopes: list[Scope] = [self.module_scope]
        #: All references in the order of the text; names inside import statements are none.
        self.references: list[Reference] = []
        #: Names of `__all__`, or None when the module has none that can be read.
        self.exported: tuple[str, ...] | None = None
        self._resolving: set[int] = set()
        self._memo: dict[int, tuple[str, ...]] = {}
        self._build()

    # -- questions -------------------------------------------------------------------------------------------

    def scope_of(self, node: cst.CSTNode) -> Scope:
        """The scope in whose names `node` is evaluated."""
        return self._scope_of[id(node)]

    def own_scope(self, node: cst.CSTNode) -> Scope:
        """The scope that a function, class or module node opens."""
        for scope in self.scopes:
            if scope.node is node:
                return scope
        raise KeyError(type(node).__name__)

    def resolve(self, node: cst.BaseExpression) -> tuple[str, ...]:
        """Qualified names that `node` can denote; "" stands for "something else too".

        A name defined in this module is `<module>.<qualname>`; one that nothing binds is `builtins.<name>`.
        """
        key = id(node)
        found = self._memo.get(key)
        if found is not None:
            return found
        if key in self._resolving:
            return ("",)
        self._resolving.add(key)
        try:
            found = tuple(dict.fromkeys(self._resolve(node)))[:_MOST]
        finally:
            self._resolving.discard(key)
        self._memo[key] = found
        return found

    def is_name(self, node: cst.BaseExpression, *names: str) -> bool:
        """Whether `node` can only denote one of `names`."""
        found = self.resolve(node)
        return bool(found) and all(candidate in names for candidate in found)

    def may_be(self, node: cst.BaseExpression, *names: str) -> bool:
        """Whether `node` can denote one of `names`."""
        return any(candidate in names for candidate in self.resolve(node))

    def canonical(self, name: str) -> str:
        """The name under which rules know `name` (re-exports and moved modules are folded)."""
        seen = set()
        while name not in seen:
            seen.add(name)
            direct = self._aliases.get(name)
            if direct is not None:
                name = direct
                continue
            head, dot, tail = name.rpartition(".")
            while dot:
                moved = self._aliases.get(head)
                if moved is not None:
                    name = f"{moved}.{tail}"
                    break
                head, dot, rest = head.rpartition(".")
                tail = f"{rest}.{tail}"
        return name

    def binding_names(self, binding: Binding) -> tuple[str, ...]:
        """Qualified names that one binding gives to its name."""
        if binding.kind == "import" and binding.origin is not None:
            return (self.canonical(self.absolute(binding.origin)),)
        if binding.kind in ("def", "class"):
            return (self._local_name(binding.scope, binding.name),)
        if binding.kind in ("assign", "walrus") and binding.value is not None:
            return self.resolve(binding.value)
        return ("",)

    def absolute(self, origin: str) -> str:
        """A relative import's origin made absolute, as far as this module's own name is known."""
        level = len(origin) - len(origin.lstrip("."))
        if not level:
            return origin
        package = self.module_name.split(".")
        base = package[: len(package) - level]
        rest = origin[level:]
        return ".".join([*base, rest]) if base else origin

    # -- resolution ------------------------------------------------------------------------------------------

    def _local_name(self, scope: Scope, name: str) -> str:
        inner = f"{scope.qualname}.{name}" if scope.qualname else name
        return f"{self.module_name or '__main__'}.{inner}"

    def _resolve(self, node: cst.BaseExpression) -> Iterator[str]:
        if isinstance(node, cst.Name):
            scope = self._scope_of.get(id(node))
            if scope is None:
                yield ""
                return
            bindings = scope.lookup(node.value)
            if not bindings:
                yield from self._unbound(scope, node.value)
            for binding in bindings:
                yield from self.binding_names(binding)
        elif isinstance(node, cst.Attribute):
            for candidate in self.resolve(node.value):
                yield self.canonical(f"{candidate}.{node.attr.value}") if candidate else ""
        elif isinstance(node, cst.IfExp):
            yield from self.resolve(node.body)
            yield from self.resolve(node.orelse)
        elif isinstance(node, cst.BooleanOperation):
            yield from self.resolve(node.left)
            yield from self.resolve(node.right)
        elif isinstance(node, cst.NamedExpr):
            yield from self.resolve(node.value)
        elif isinstance(node, cst.Call):
            yield from self._resolve_call(node)
        else:
            yield ""

    def _resolve_call(self, node: cst.Call) -> Iterator[str]:
        """`functools.partial(f, ..)` and `getattr(module, "f")` denote f; other calls denote a new value."""
        called = self.resolve(node.func)
        args = [arg for arg in node.args if arg.keyword is None and not arg.star]
        if called == ("functools.partial",) and args:
            yield from self.resolve(args[0].value)
        elif called == ("builtins.getattr",) and len(args) >= 2:
            attribute = string_value(args[1].value)
            for candidate in self.resolve(args[0].value):
                known = candidate and attribute is not None
                yield self.canonical(f"{candidate}.{attribute}") if known else ""
            if len(args) > 2:
                yield from self.resolve(args[2].value)
        else:
            yield ""

    def _unbound(self, scope: Scope, name: str) -> Iterator[str]:
        stars: list[str] = scope.module.stars
        if name in _BUILTINS:
            yield f"builtins.{name}"
        elif stars:
            if name in _STAR_MODULES:
                yield name
                return
            for origin in stars:
                yield self.canonical(f"{self.absolute(origin)}.{name}")
            yield ""
        else:
            yield ""

    # -- construction ----------------------------------------------------------------------------------------

    def _build(self) -> None:
        scopes = self._scope_of
        stack: list[_Step] = [(self.tree.module, self.module_scope, False)]
        while stack:
            node, scope, chained = stack.pop()
            scopes[id(node)] = scope
            kind = type(node)
            if kind is cst.Name:
                if not chained:
                    self.references.append(Reference(node, node, (), scope))  # type: ignore[arg-type]
                continue
            if kind is cst.Attribute:
                if not chained:
                    self._reference(node, scope)  # type: ignore[arg-type]
                stack.append((node.value, scope, True))  # type: ignore[attr-defined]
                continue
            if kind is cst.Arg:
                stack.append((node.value, scope, False))  # type: ignore[attr-defined]
                continue
            step = _STEPS.get(kind)
            if step is None:
                below: list[_Step] = [(child, scope, False) for child in children(node)]
            else:
                below = step(self, node, scope)
            below.reverse()
            stack.extend(below)

    def _lambda(self, node: cst.Lambda, scope: Scope) -> list[_Step]:
        inner = self._open("lambda", node, scope, "<lambda>")
        self._params(node.params, inner)
        return [*((child, scope, False) for child in _defaults(node.params)), (node.body, inner, False)]

    def _comprehension(self, node: cst.CSTNode, scope: Scope) -> list[_Step]:
        inner = self._open("comprehension", node, scope, "<comprehension>")
        return [(child, inner, False) for child in children(node)]

    def _declaration(self, node: cst.Global | cst.Nonlocal, scope: Scope) -> list[_Step]:
        for item in node.names:
            scope.declared[item.name.value] = type(node).__name__.lower()
        return []

    def _plain(self, node: cst.CSTNode, scope: Scope) -> list[_Step]:
        """Bind what a statement binds; its children are evaluated in the same scope."""
        if isinstance(node, cst.Assign):
            for target in node.targets:
                self._bind_target(target.target, "assign", node, scope, node.value)
            if not isinstance(scope.parent, Scope):
                self._note_exports(node)
            return [(t.target, scope, False) for t in node.targets] + [(node.value, scope, False)]
        if isinstance(node, cst.AnnAssign):
            note = node.annotation.annotation
            self._bind_target(node.target, "assign", node, scope, node.value, note)
        elif isinstance(node, cst.AugAssign):
            self._bind_target(node.target, "other", node, scope, None)
        elif isinstance(node, cst.NamedExpr):
            owner = scope
            while owner.kind == "comprehension" and owner.parent is not None:
                owner = owner.parent
            self._bind_target(node.target, "walrus", node, owner, node.value)
        elif isinstance(node, (cst.For, cst.CompFor)):
            self._bind_target(node.target, "loop", node, scope, None)
        elif isinstance(node, cst.WithItem):
            if node.asname is not None:
                self._bind_target(node.asname.name, "with", node, scope, node.item)
        elif isinstance(node, (cst.ExceptHandler, cst.ExceptStarHandler)):
            if node.name is not None:
                self._bind_target(node.name.name, "except", node, scope, None)
        elif isinstance(node, cst.Del):
            self._bind_target(node.target, "delete", node, scope, None)
        elif isinstance(node, (cst.MatchAs, cst.MatchStar)):
            if node.name is not None:
                self._bind(node.name.value, "other", node, scope)
            return [(c, scope, False) for c in children(node) if not isinstance(c, cst.Name)]
        elif isinstance(node, cst.MatchMapping):
            if node.rest is not None:
                self._bind(node.rest.value, "other", node, scope)
            return [(c, scope, False) for c in node.elements]
        elif isinstance(node, (cst.MatchKeywordElement, cst.TypeVar, cst.TypeVarTuple, cst.ParamSpec)):
            return [(c, scope, False) for c in children(node) if not isinstance(c, cst.Name)]
        elif isinstance(node, cst.TypeAlias):
            self._bind(node.name.value, "other", node, scope)
            return [(c, scope, False) for c in children(node) if c is not node.name]
        return [(child, scope, False) for child in children(node)]

    def _open(self, kind: str, node: cst.CSTNode, parent: Scope, name: str) -> Scope:
        qualname = f"{parent.qualname}.{name}" if parent.qualname else name
        scope = Scope(kind, node, parent, qualname)
        self.scopes.append(scope)
        return scope

    def _function(self, node: cst.FunctionDef, scope: Scope) -> list[_Step]:
        self._bind(node.name.value, "def", node, scope)
        inner = self._open("function", node, scope, node.name.value)
        self._params(node.params, inner)
        below: list[_Step] = [(d, scope, False) for d in node.decorators]
        if node.type_parameters is not None:
            below.append((node.type_parameters, inner, False))
        below.extend((child, scope, False) for child in _defaults(node.params))
        if node.returns is not None:
            below.append((node.returns, scope, False))
        below.append((node.body, inner, False))
        return below

    def _class(self, node: cst.ClassDef, scope: Scope) -> list[_Step]:
        self._bind(node.name.value, "class", node, scope)
        inner = self._open("class", node, scope, node.name.value)
        outer: list[cst.CSTNode] = [*node.decorators, *node.bases, *node.keywords]
        return [(child, scope, False) for child in outer] + [(node.body, inner, False)]

    def _params(self, params: cst.Parameters, scope: Scope) -> None:
        star = [params.star_arg] if isinstance(params.star_arg, cst.Param) else []
        double = [params.star_kwarg] if params.star_kwarg is not None else []
        for param in [*params.posonly_params, *params.params, *star, *params.kwonly_params, *double]:
            note = param.annotation.annotation if param.annotation is not None else None
            self._bind(param.name.value, "param", param, scope, value=param.default, annotation=note)

    def _bind(
        self,
        name: str,
        kind: str,
        node: cst.CSTNode,
        scope: Scope,
        *,
        origin: str | None = None,
        value: cst.BaseExpression | None = None,
        annotation: cst.BaseExpression | None = None,
    ) -> None:
        declared = scope.declared.get(name)
        target = scope
        if declared == "global":
            target = scope.module
        elif declared == "nonlocal":
            outer = scope.parent
            while outer is not None and (outer.kind == "class" or name not in outer.bindings):
                outer = outer.parent
            target = outer if outer is not None else scope
        binding = Binding(name, kind, node, target, origin, value, annotation)
        target.bindings.setdefault(name, []).append(binding)

    def _bind_target(
        self,
        target: cst.CSTNode,
        kind: str,
        node: cst.CSTNode,
        scope: Scope,
        value: cst.BaseExpression | None,
        annotation: cst.BaseExpression | None = None,
    ) -> None:
        if isinstance(target, cst.Name):
            self._bind(target.value, kind, node, scope, value=value, annotation=annotation)
        elif isinstance(target, (cst.Tuple, cst.List)):
            values = self._unpacked(target, value)
            for element, part in zip(target.elements, values, strict=True):
                inner = kind if part is not None else ("unpack" if kind == "assign" else kind)
                self._bind_target(element.value, inner, node, scope, part)
        elif isinstance(target, cst.StarredElement):
            self._bind_target(target.value, "unpack", node, scope, None)

    @staticmethod
    def _unpacked(
        target: cst.Tuple | cst.List, value: cst.BaseExpression | None
    ) -> list[cst.BaseExpression | None]:
        """The parts of `a, b = x, y`; None where they cannot be told."""
        none: list[cst.BaseExpression | None] = [None] * len(target.elements)
        if not isinstance(value, (cst.Tuple, cst.List)) or len(value.elements) != len(target.elements):
            return none
        if any(isinstance(e, cst.StarredElement) for e in [*value.elements, *target.elements]):
            return none
        return [element.value for element in value.elements]

    def _import(self, node: cst.Import | cst.ImportFrom, scope: Scope) -> list[_Step]:
        if isinstance(node, cst.Import):
            for alias in node.names:
                whole = dotted(alias.name) or ""
                if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                    self._bind(alias.asname.name.value, "import", alias, scope, origin=whole)
                else:
                    root = whole.split(".")[0]
                    self._bind(root, "import", alias, scope, origin=root)
            return []
        origin = "." * len(node.relative) + ((dotted(node.module) or "") if node.module else "")
        if isinstance(node.names, cst.ImportStar):
            scope.module.stars.append(origin)
            return []
        for alias in node.names:
            name = dotted(alias.name) or ""
            asname = alias.asname.name if alias.asname is not None else alias.name
            if isinstance(asname, cst.Name):
                whole = origin + name if origin.endswith(".") or not origin else f"{origin}.{name}"
                self._bind(asname.value, "import", alias, scope, origin=whole)
        return []

    def _reference(self, node: cst.Attribute, scope: Scope) -> None:
        parts: list[str] = []
        current: cst.BaseExpression = node
        while isinstance(current, cst.Attribute):
            parts.append(current.attr.value)
            current = current.value
        if isinstance(current, cst.Name):
            self.references.append(Reference(node, current, tuple(reversed(parts)), scope))

    def _note_exports(self, node: cst.Assign) -> None:
        if not any(isinstance(t.target, cst.Name) and t.target.value == "__all__" for t in node.targets):
            return
        if isinstance(node.value, (cst.List, cst.Tuple)):
            values = [string_value(element.value) for element in node.value.elements]
            self.exported = (*(self.exported or ()), *(value for value in values if value is not None))


def string_value(node: cst.BaseExpression) -> str | None:
    """The value of a plain string literal (implicit concatenation included), else None."""
    if isinstance(node, (cst.SimpleString, cst.ConcatenatedString)):
        value = node.evaluated_value
        return value if isinstance(value, str) else None
    return None


def _children(node: cst.CSTNode) -> list[cst.CSTNode]:
    return list(children(node))


def _defaults(params: cst.Parameters) -> list[cst.CSTNode]:
    """Defaults and annotations, which are evaluated outside the function."""
    star = [params.star_arg] if isinstance(params.star_arg, cst.Param) else []
    double = [params.star_kwarg] if params.star_kwarg is not None else []
    found: list[cst.CSTNode] = []
    for param in [*params.posonly_params, *params.params, *star, *params.kwonly_params, *double]:
        if param.annotation is not None:
            found.append(param.annotation)
        if param.default is not None:
            found.append(param.default)
    return found


#: Modules whose name means them even when it only comes from a star import.
_STAR_MODULES = frozenset({"torch", "torch_npu"})
_BUILTINS = frozenset(dir(builtins))

#: What visiting a node of some classes does beyond visiting its children.
_STEPS: dict[type, Callable[[Names, Any, Scope], list[_Step]]] = {
    cst.FunctionDef: Names._function,
    cst.ClassDef: Names._class,
    cst.Lambda: Names._lambda,
    cst.Import: Names._import,
    cst.ImportFrom: Names._import,
    cst.Global: Names._declaration,
    cst.Nonlocal: Names._declaration,
    **dict.fromkeys((cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp), Names._comprehension),
    **dict.fromkeys(
        (
            cst.Assign,
            cst.AnnAssign,
            cst.AugAssign,
            cst.NamedExpr,
            cst.For,
            cst.CompFor,
            cst.WithItem,
            cst.ExceptHandler,
            cst.ExceptStarHandler,
            cst.Del,
            cst.MatchAs,
            cst.MatchStar,
            cst.MatchMapping,
            cst.MatchKeywordElement,
            cst.TypeVar,
            cst.TypeVarTuple,
            cst.ParamSpec,
            cst.TypeAlias,
        ),
        Names._plain,
    ),
}
