"""Scopes, bindings, and the qualified names that an expression can denote.

Built from the nodes of one tree in preorder. Answers are ordered tuples: no result depends on a hash seed.
"""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import libcst as cst

from amplint.syntax.tree import Tree, children

#: A name in several places may mean several things; past this many candidates the rest is dropped.
_MOST = 16
#: Names that mean one another in a circle are looked up anew for every question, in so many steps at most.
_MOST_STEPS = 2000
#: Names in a row, each of which stands for the next one.
_LONGEST_CHAIN = 400

#: What is looked up: the id of a node, or a name in the scope that it belongs to.
_Key = int | tuple[int, str]


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
        self._late: list[tuple[Scope, Binding]] = []
        #: Keys being looked up, how often that led to one of them again, and how many answers depend on that.
        self._open: set[_Key] = set()
        self._cuts = 0
        self._steps = 0
        #: Answers in which no circle takes part, and answers to whole questions in which one does: what a name in a
        #: circle means to another one depends on where the question begins.
        self._memo: dict[_Key, tuple[str, ...]] = {}
        self._circular: dict[_Key, tuple[str, ...]] = {}
        self._build()

    # -- questions -------------------------------------------------------------------------------------------

    def scope_of(self, node: cst.CSTNode) -> Scope:
        """The scope in whose names `node` is evaluated."""
        return self._scope_of[id(node)]

    def resolve(self, node: cst.BaseExpression) -> tuple[str, ...]:
        """Qualified names that `node` can denote; "" stands for "something else too".

        A name defined in this module is `<module>.<qualname>`; one that nothing binds is `builtins.<name>`.
        """
        found = self._memo.get(id(node))
        if found is not None:
            return found
        key = self._key(node)
        found = self._memo.get(key)
        if found is not None:
            self._memo[id(node)] = found
            return found
        is_question = not self._open
        if is_question:
            if key in self._circular:
                return self._circular[key]
            self._cuts = self._steps = 0
        if key in self._open or self._steps > _MOST_STEPS or len(self._open) > _LONGEST_CHAIN:
            self._cuts += 1
            return ("",)
        before = self._cuts
        self._open.add(key)
        try:
            found = tuple(dict.fromkeys(self._resolve(node)))[:_MOST]
        finally:
            self._open.discard(key)
        if self._cuts == before:
            self._memo[key] = self._memo[id(node)] = found
            return found
        self._steps += 1
        if is_question:
            self._circular[key] = found
        return found

    def _key(self, node: cst.BaseExpression) -> _Key:
        """What `node` is looked up as: a name that is bound here means the same wherever its scope is seen."""
        if isinstance(node, cst.Name):
            scope = self._scope_of.get(id(node))
            owner = scope.owner(node.value) if scope is not None else None
            if owner is not None:
                return id(owner), node.value
        return id(node)

    def is_name(self, node: cst.BaseExpression, *names: str) -> bool:
        """Whether `node` can only denote one of `names`."""
        found = self.resolve(node)
        return bool(found) and all(candidate in names for candidate in found)

    def may_be(self, node: cst.BaseExpression, *names: str) -> bool:
        """Whether `node` can denote one of `names`."""
        return any(candidate in names for candidate in self.resolve(node))

    def canonical(self, name: str) -> str:
        """The name under which rules know `name` (re-exports and moved modules are folded).

        The longest part that is an alias is replaced first; no alias is followed twice.
        """
        followed: set[str] = set()
        while self._aliases:
            head, tail = name, ""
            while head and (head not in self._aliases or head in followed):
                head, dot, last = head.rpartition(".")
                tail = f"{dot}{last}{tail}" if dot else ""
            if not head:
                break
            followed.add(head)
            name = self._aliases[head] + tail
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
        if level >= len(package):
            return origin
        return ".".join([*package[:-level], origin[level:]])

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
        self._bind_nonlocals()
        self._note_exports()

    def _lambda(self, node: cst.Lambda, scope: Scope) -> list[_Step]:
        inner = self._open_scope("lambda", node, scope, "<lambda>")
        self._params(node.params, inner)
        return [*((child, scope, False) for child in _defaults(node.params)), (node.body, inner, False)]

    def _comprehension(
        self, node: cst.ListComp | cst.SetComp | cst.DictComp | cst.GeneratorExp, scope: Scope
    ) -> list[_Step]:
        """The first iterable is evaluated outside, everything else in a scope of its own."""
        inner = self._open_scope("comprehension", node, scope, "<comprehension>")
        first = node.for_in
        self._scope_of[id(first)] = inner
        self._bind_target(first.target, "loop", first, inner, None)
        below: list[_Step] = [(child, inner, False) for child in children(node) if child is not first]
        below += [(first.target, inner, False), (first.iter, scope, False)]
        below.extend((child, inner, False) for child in first.ifs)
        if first.inner_for_in is not None:
            below.append((first.inner_for_in, inner, False))
        return below

    def _declaration(self, node: cst.Global | cst.Nonlocal, scope: Scope) -> list[_Step]:
        for item in node.names:
            scope.declared[item.name.value] = type(node).__name__.lower()
        return []

    def _assign(self, node: cst.Assign, scope: Scope) -> list[_Step]:
        for target in node.targets:
            self._bind_target(target.target, "assign", node, scope, node.value)
        return [*((t.target, scope, False) for t in node.targets), (node.value, scope, False)]

    def _annotated(self, node: cst.AnnAssign, scope: Scope) -> list[_Step]:
        self._bind_target(node.target, "assign", node, scope, node.value, node.annotation.annotation)
        return self._below(node, scope)

    def _augmented(self, node: cst.AugAssign, scope: Scope) -> list[_Step]:
        self._bind_target(node.target, "other", node, scope, None)
        return self._below(node, scope)

    def _walrus(self, node: cst.NamedExpr, scope: Scope) -> list[_Step]:
        owner = scope
        while owner.kind == "comprehension" and owner.parent is not None:
            owner = owner.parent
        self._bind_target(node.target, "walrus", node, owner, node.value)
        return self._below(node, scope)

    def _loop(self, node: cst.For | cst.CompFor, scope: Scope) -> list[_Step]:
        self._bind_target(node.target, "loop", node, scope, None)
        return self._below(node, scope)

    def _with_item(self, node: cst.WithItem, scope: Scope) -> list[_Step]:
        if node.asname is not None:
            self._bind_target(node.asname.name, "with", node, scope, node.item)
        return self._below(node, scope)

    def _handler(self, node: cst.ExceptHandler | cst.ExceptStarHandler, scope: Scope) -> list[_Step]:
        if node.name is not None:
            self._bind_target(node.name.name, "except", node, scope, None)
        return self._below(node, scope)

    def _delete(self, node: cst.Del, scope: Scope) -> list[_Step]:
        self._bind_target(node.target, "delete", node, scope, None)
        return self._below(node, scope)

    def _capture(self, node: cst.MatchAs | cst.MatchStar, scope: Scope) -> list[_Step]:
        if node.name is not None:
            self._bind(node.name.value, "other", node, scope)
        return self._below_but_names(node, scope)

    def _mapping(self, node: cst.MatchMapping, scope: Scope) -> list[_Step]:
        if node.rest is not None:
            self._bind(node.rest.value, "other", node, scope)
        return [(child, scope, False) for child in node.elements]

    def _type_parameter(
        self, node: cst.TypeVar | cst.TypeVarTuple | cst.ParamSpec, scope: Scope
    ) -> list[_Step]:
        self._bind(node.name.value, "other", node, scope)
        return [(child, scope, False) for child in children(node) if child is not node.name]

    def _type_alias(self, node: cst.TypeAlias, scope: Scope) -> list[_Step]:
        self._bind(node.name.value, "other", node, scope)
        return [(child, scope, False) for child in children(node) if child is not node.name]

    def _below(self, node: cst.CSTNode, scope: Scope) -> list[_Step]:
        return [(child, scope, False) for child in children(node)]

    def _below_but_names(self, node: cst.CSTNode, scope: Scope) -> list[_Step]:
        """For nodes whose own name is an identifier and no use of one."""
        return [(child, scope, False) for child in children(node) if not isinstance(child, cst.Name)]

    def _open_scope(self, kind: str, node: cst.CSTNode, parent: Scope, name: str) -> Scope:
        qualname = f"{parent.qualname}.{name}" if parent.qualname else name
        scope = Scope(kind, node, parent, qualname)
        self.scopes.append(scope)
        return scope

    def _function(self, node: cst.FunctionDef, scope: Scope) -> list[_Step]:
        self._bind(node.name.value, "def", node, scope)
        inner = self._open_scope("function", node, scope, node.name.value)
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
        inner = self._open_scope("class", node, scope, node.name.value)
        below: list[_Step] = [(child, scope, False) for child in node.decorators]
        if node.type_parameters is not None:
            below.append((node.type_parameters, inner, False))
        below.extend((child, scope, False) for child in (*node.bases, *node.keywords))
        return [*below, (node.body, inner, False)]

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
        target = scope.module if declared == "global" else scope
        binding = Binding(name, kind, node, target, origin, value, annotation)
        if declared == "nonlocal":
            self._late.append((scope, binding))
        else:
            target.bindings.setdefault(name, []).append(binding)

    def _bind_nonlocals(self) -> None:
        """Bind what is declared nonlocal, when all names of the functions around are known."""
        for scope, binding in self._late:
            outer = scope.parent
            while outer is not None and (
                outer.kind in ("class", "module") or binding.name not in outer.bindings
            ):
                outer = outer.parent
            target = outer if outer is not None else scope
            found = target.bindings.setdefault(binding.name, [])
            found.append(replace(binding, scope=target))
            found.sort(key=lambda other: self.tree.number(other.node))

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

    def _note_exports(self) -> None:
        """Every string in a statement that mentions `__all__`: it may be assigned, added to or extended."""
        found: list[str] = []
        for reference in self.references:
            if reference.root.value == "__all__" and reference.scope is self.module_scope:
                statement = self.tree.statement(reference.node)
                if isinstance(statement, cst.SimpleStatementLine):
                    found += filter(None, map(string_value, self._strings(statement)))
        self.exported = tuple(dict.fromkeys(found)) or None

    def _strings(self, outer: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        for node in self.tree.within(outer):
            if isinstance(node, (cst.SimpleString, cst.ConcatenatedString)):
                yield node


def string_value(node: cst.BaseExpression) -> str | None:
    """The value of a plain string literal (implicit concatenation included), else None."""
    value = literal_value(node)
    return value if isinstance(value, str) else None


def literal_value(node: cst.BaseExpression) -> str | bytes | int | float | complex | None:
    """The value of a number or a string that is not formatted; None for anything else and for invalid ones."""
    if not isinstance(
        node, (cst.SimpleString, cst.ConcatenatedString, cst.Integer, cst.Float, cst.Imaginary)
    ):
        return None
    text = node.value if isinstance(node, (cst.SimpleString, cst.Integer)) else ""
    if text[:1] in ("'", '"') and text[:3] not in ("'''", '"""') and "\\" not in text:
        return text[1:-1]  # the usual kind, without the parser
    try:
        if text.isdecimal() and (text == "0" or text[0] != "0"):
            return int(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes such as \\d
            value: str | bytes | int | float | complex | None = node.evaluated_value
            return value
    except (SyntaxError, ValueError):  # `0777` or "\\N{nothing}", which LibCST accepts
        return None


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
    **dict.fromkeys((cst.For, cst.CompFor), Names._loop),
    **dict.fromkeys((cst.ExceptHandler, cst.ExceptStarHandler), Names._handler),
    **dict.fromkeys((cst.MatchAs, cst.MatchStar), Names._capture),
    **dict.fromkeys((cst.TypeVar, cst.TypeVarTuple, cst.ParamSpec), Names._type_parameter),
    cst.Assign: Names._assign,
    cst.AnnAssign: Names._annotated,
    cst.AugAssign: Names._augmented,
    cst.NamedExpr: Names._walrus,
    cst.WithItem: Names._with_item,
    cst.Del: Names._delete,
    cst.MatchMapping: Names._mapping,
    cst.MatchKeywordElement: Names._below_but_names,
    cst.TypeAlias: Names._type_alias,
}
