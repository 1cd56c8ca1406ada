"""LibCST functions to the IR of `ir.py`. One function at a time, when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import libcst as cst

from amplint.model import ir
from amplint.model.names import Names, literal_value
from amplint.syntax.tree import Tree, children

_BINARY = {
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
    "FloorDivide": "//",
    "Modulo": "%",
    "Power": "**",
    "MatrixMultiply": "@",
    "BitAnd": "&",
    "BitOr": "|",
    "BitXor": "^",
    "LeftShift": "<<",
    "RightShift": ">>",
}
_COMPARE = {
    "Equal": "==",
    "NotEqual": "!=",
    "LessThan": "<",
    "LessThanEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanEqual": ">=",
    "Is": "is",
    "IsNot": "is not",
    "In": "in",
    "NotIn": "not in",
}
_UNARY = {"Not": "not", "Minus": "-", "Plus": "+", "BitInvert": "~"}
_COMPREHENSION = {"ListComp": "list", "SetComp": "set", "DictComp": "dict", "GeneratorExp": "generator"}
_CONSTANTS: dict[str, bool | None] = {"True": True, "False": False, "None": None}


class Lowering:
    """Lowers the functions of one module."""

    def __init__(
        self,
        tree: Tree,
        names: Names,
        *,
        prefix: str = "",
        offset: int = 0,
        link: Callable[[str], str] | None = None,
        variable: Callable[[str], ir.Name | None] | None = None,
    ) -> None:
        """`prefix` goes before all qualnames, `offset` is added to sites, `link` changes qualified names.

        `variable` gives for such a name what it is where another module assigns it, at the site 0.
        """
        self._tree = tree
        self._names = names
        self._prefix = prefix
        self._offset = offset
        self._link = link
        self._variable = variable
        #: Qualified names that anything lowered so far resolves to, before `link`.
        self.met: dict[str, None] = {}

    # -- functions -------------------------------------------------------------------------------------------

    def module(self) -> ir.Function:
        """The module's own code as a function without parameters."""
        root = self._tree.module
        return ir.Function(self._qualname(""), (), (), self._block(root.body), self._site(root))

    def function(self, node: cst.FunctionDef, qualname: str, owner: str | None) -> ir.Function:
        """One `def`."""
        decorators = tuple(self._expr(d.decorator) for d in node.decorators)
        static = any(getattr(d, "names", ()) == ("builtins.staticmethod",) for d in decorators)
        body = self._suite(node.body)
        return ir.Function(
            self._qualname(qualname),
            self._params(node.params),
            decorators,
            body,
            self._site(node),
            self._qualname(owner) if owner is not None else None,
            static,
        )

    def klass(self, node: cst.ClassDef, qualname: str, methods: Sequence[tuple[str, str]]) -> ir.Class:
        """One `class`: its bases, methods and body."""
        bases = tuple(self._linked(self._names.resolve(base.value)) for base in node.bases if not base.star)
        body = tuple(s for s in self._suite(node.body) if not isinstance(s, ir.Define))
        found = tuple((name, self._qualname(inner)) for name, inner in methods)
        return ir.Class(self._qualname(qualname), bases, found, body, self._site(node))

    def _params(self, params: cst.Parameters) -> tuple[ir.Param, ...]:
        found = [self._param(p) for p in [*params.posonly_params, *params.params]]
        if isinstance(params.star_arg, cst.Param):
            found.append(self._param(params.star_arg, star="*"))
        found.extend(self._param(p, keyword_only=True) for p in params.kwonly_params)
        if params.star_kwarg is not None:
            found.append(self._param(params.star_kwarg, star="**"))
        return tuple(found)

    def _param(self, node: cst.Param, star: str = "", keyword_only: bool = False) -> ir.Param:
        note = self._expr(node.annotation.annotation) if node.annotation is not None else None
        default = self._expr(node.default) if node.default is not None else None
        return ir.Param(node.name.value, default, note, star, keyword_only)

    # -- statements ------------------------------------------------------------------------------------------

    def _site(self, node: cst.CSTNode) -> int:
        return self._tree.number(node) + self._offset

    def _qualname(self, qualname: str) -> str:
        """A qualname of this module among those of others; the module's own code has none but its prefix."""
        return self._prefix + qualname if qualname else self._prefix.removesuffix(".")

    def _linked(self, names: tuple[str, ...]) -> tuple[str, ...]:
        self.met.update(dict.fromkeys(names))
        return tuple(map(self._link, names)) if self._link is not None else names

    def _suite(self, suite: cst.BaseSuite) -> ir.Block:
        if isinstance(suite, cst.SimpleStatementSuite):
            return tuple(s for small in suite.body for s in self._small(small))
        assert isinstance(suite, cst.IndentedBlock)
        return self._block(suite.body)

    def _block(self, body: Sequence[cst.CSTNode]) -> ir.Block:
        found: list[ir.Stmt] = []
        for statement in body:
            if isinstance(statement, cst.SimpleStatementLine):
                for small in statement.body:
                    found.extend(self._small(small))
            else:
                found.extend(self._compound(statement))
        return tuple(found)

    def _small(self, node: cst.CSTNode) -> list[ir.Stmt]:
        site = self._site(node)
        if isinstance(node, cst.Expr):
            return [ir.Do(self._expr(node.value), site)]
        if isinstance(node, cst.Assign):
            targets = tuple(self._expr(t.target) for t in node.targets)
            return [ir.Assign(targets, self._expr(node.value), site)]
        if isinstance(node, cst.AnnAssign):
            value = self._expr(node.value) if node.value is not None else None
            note = self._expr(node.annotation.annotation)
            return [ir.Assign((self._expr(node.target),), value, site, note)]
        if isinstance(node, cst.AugAssign):
            op = _BINARY.get(type(node.operator).__name__.removesuffix("Assign"), "?")
            return [ir.AugAssign(self._expr(node.target), op, self._expr(node.value), site)]
        if isinstance(node, cst.Return):
            return [ir.Return(self._expr(node.value) if node.value is not None else None, site)]
        if isinstance(node, cst.Raise):
            return [ir.Raise(self._expr(node.exc) if node.exc is not None else None, site)]
        if isinstance(node, cst.Break):
            return [ir.Jump("break", site)]
        if isinstance(node, cst.Continue):
            return [ir.Jump("continue", site)]
        if isinstance(node, cst.Assert):
            return [ir.Assert(self._expr(node.test), site)]
        if isinstance(node, cst.Del):
            return [ir.Delete(self._expr(node.target), site)]
        return []  # pass, import, global, nonlocal, type aliases: nothing happens to a value

    def _compound(self, node: cst.CSTNode) -> list[ir.Stmt]:
        site = self._site(node)
        if isinstance(node, cst.If):
            return [ir.If(self._expr(node.test), self._suite(node.body), self._orelse(node.orelse), site)]
        if isinstance(node, cst.For):
            target, iterable = self._expr(node.target), self._expr(node.iter)
            return [ir.For(target, iterable, self._suite(node.body), self._orelse(node.orelse), site)]
        if isinstance(node, cst.While):
            return [ir.While(self._expr(node.test), self._suite(node.body), self._orelse(node.orelse), site)]
        if isinstance(node, cst.With):
            items = tuple(
                (self._expr(i.item), self._expr(i.asname.name) if i.asname is not None else None)
                for i in node.items
            )
            return [ir.With(items, self._suite(node.body), site)]
        if isinstance(node, (cst.Try, cst.TryStar)):
            handlers = tuple(self._handler(h) for h in node.handlers)
            final = self._suite(node.finalbody.body) if node.finalbody is not None else ()
            return [ir.Try(self._suite(node.body), handlers, self._orelse(node.orelse), final, site)]
        if isinstance(node, cst.Match):
            cases = tuple(
                (self._expr(c.guard) if c.guard is not None else None, self._suite(c.body))
                for c in node.cases
            )
            return [ir.Match(self._expr(node.subject), cases, _catches_all(node), site)]
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            kind = "def" if isinstance(node, cst.FunctionDef) else "class"
            scope = self._names.scope_of(node)
            name = f"{scope.qualname}.{node.name.value}" if scope.qualname else node.name.value
            return [ir.Define(kind, self._qualname(name), site)]
        return []

    def _orelse(self, node: cst.If | cst.Else | None) -> ir.Block:
        if node is None:
            return ()
        if isinstance(node, cst.If):
            return tuple(self._compound(node))
        return self._suite(node.body)

    def _handler(self, node: cst.ExceptHandler | cst.ExceptStarHandler) -> ir.Handler:
        kinds: tuple[ir.Expr, ...] = ()
        if isinstance(node.type, cst.Tuple):
            kinds = tuple(self._expr(e.value) for e in node.type.elements)
        elif node.type is not None:
            kinds = (self._expr(node.type),)
        bound = (
            node.name.name.value if node.name is not None and isinstance(node.name.name, cst.Name) else None
        )
        return ir.Handler(kinds, bound, self._suite(node.body), self._site(node))

    # -- expressions -----------------------------------------------------------------------------------------

    def _expr(self, node: cst.CSTNode) -> ir.Expr:
        site = self._site(node)
        if isinstance(node, cst.Name):
            return self._name(node, site)
        if isinstance(node, cst.Attribute):
            names = self._qualified(node)
            elsewhere = self._elsewhere(names, site)
            if elsewhere is not None:
                return elsewhere
            return ir.Attr(self._expr(node.value), node.attr.value, site, names)
        if isinstance(node, cst.Call):
            args = tuple(
                ir.Arg(self._expr(a.value), a.keyword.value if a.keyword is not None else None, a.star)
                for a in node.args
            )
            return ir.Call(self._expr(node.func), args, site)
        if isinstance(
            node, (cst.Integer, cst.Float, cst.Imaginary, cst.SimpleString, cst.ConcatenatedString)
        ):
            value = literal_value(node)
            return ir.Other("text", (), site) if value is None else ir.Const(value, site)
        if isinstance(node, cst.BinaryOperation):
            op = _BINARY.get(type(node.operator).__name__, "?")
            return ir.Binary(op, self._expr(node.left), self._expr(node.right), site)
        if isinstance(node, cst.UnaryOperation):
            op = _UNARY.get(type(node.operator).__name__, "?")
            return ir.Unary(op, self._expr(node.expression), site)
        if isinstance(node, cst.BooleanOperation):
            op = "and" if isinstance(node.operator, cst.And) else "or"
            return ir.Bool(op, self._expr(node.left), self._expr(node.right), site)
        if isinstance(node, cst.Comparison):
            return self._comparison(node, site)
        if isinstance(node, cst.IfExp):
            return ir.IfExp(self._expr(node.test), self._expr(node.body), self._expr(node.orelse), site)
        if isinstance(node, cst.NamedExpr):
            return ir.Walrus(self._expr(node.target), self._expr(node.value), site)
        return self._expr_rest(node, site)

    def _expr_rest(self, node: cst.CSTNode, site: int) -> ir.Expr:
        if isinstance(node, cst.Subscript):
            parts = [self._expr(element.slice) for element in node.slice]
            index = parts[0] if len(parts) == 1 else ir.Items("tuple", tuple(parts), site)
            return ir.Subscript(self._expr(node.value), index, site)
        if isinstance(node, cst.Index):
            return self._expr(node.value)
        if isinstance(node, (cst.Tuple, cst.List, cst.Set)):
            kind = type(node).__name__.lower()
            return ir.Items(kind, tuple(self._expr(e) for e in node.elements), site)
        if isinstance(node, cst.Dict):
            items: list[ir.Expr] = []
            for element in node.elements:
                if isinstance(element, cst.DictElement):
                    items += [self._expr(element.key), self._expr(element.value)]
                else:
                    items.append(ir.Star(self._expr(element.value), self._site(element)))
            return ir.Items("dict", tuple(items), site)
        if isinstance(node, cst.Element):
            return self._expr(node.value)
        if isinstance(node, cst.StarredElement):
            return ir.Star(self._expr(node.value), site)
        kind = _COMPREHENSION.get(type(node).__name__, "")
        if kind:
            return self._comprehension(node, kind, site)
        if isinstance(node, cst.Lambda):
            names = tuple(p.name for p in self._params(node.params))
            scope = self._qualname(self._names.scope_of(node.body).qualname)
            return ir.Lambda(names, self._expr(node.body), scope, site)
        parts = [self._expr(child) for child in children(node)]
        return ir.Other(type(node).__name__, tuple(parts), site)

    def _name(self, node: cst.Name, site: int) -> ir.Expr:
        if node.value in _CONSTANTS:
            return ir.Const(_CONSTANTS[node.value], site)
        owner = self._names.scope_of(node).owner(node.value)
        scope = self._qualname(owner.qualname) if owner else None
        names = self._qualified(node)
        return self._elsewhere(names, site) or ir.Name(node.value, scope, site, names)

    def _elsewhere(self, names: tuple[str, ...], site: int) -> ir.Name | None:
        """The variable of another module that is meant, if one is."""
        if self._variable is None or len(names) != 1:
            return None
        found = self._variable(names[0])
        return replace(found, site=site) if found is not None else None

    def _qualified(self, node: cst.BaseExpression) -> tuple[str, ...]:
        found = self._names.resolve(node)
        return self._linked(found) if any(found) else ()

    def _comparison(self, node: cst.Comparison, site: int) -> ir.Expr:
        left = self._expr(node.left)
        whole: ir.Expr | None = None
        for part in node.comparisons:
            right = self._expr(part.comparator)
            one = ir.Compare(_COMPARE.get(type(part.operator).__name__, "?"), left, right, site)
            whole = one if whole is None else ir.Bool("and", whole, one, site)
            left = right
        assert whole is not None
        return whole

    def _comprehension(self, node: cst.CSTNode, kind: str, site: int) -> ir.Expr:
        if isinstance(node, cst.DictComp):
            element: tuple[ir.Expr, ...] = (self._expr(node.key), self._expr(node.value))
            part: cst.CompFor | None = node.for_in
        else:
            assert isinstance(node, (cst.ListComp, cst.SetComp, cst.GeneratorExp))
            element, part = (self._expr(node.elt),), node.for_in
        parts = []
        while part is not None:
            tests = tuple(self._expr(i.test) for i in part.ifs)
            parts.append((self._expr(part.target), self._expr(part.iter), tests))
            part = part.inner_for_in
        return ir.Comprehension(kind, element, tuple(parts), site)


def _catches_all(node: cst.Match) -> bool:
    """Whether the last case is `case _:` or `case name:`."""
    if not node.cases:
        return False
    last = node.cases[-1]
    return last.guard is None and isinstance(last.pattern, cst.MatchAs) and last.pattern.pattern is None
