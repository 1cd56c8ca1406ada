"""From IR expressions to paths, terms and formulas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from amplint.flow import conditions as c
from amplint.flow.classes import Classes
from amplint.model import ir

#: Where `enabled` stands among the positional arguments.
SCALERS: Mapping[str, int] = {
    "torch.cuda.amp.GradScaler": 4,
    "torch.cuda.amp.grad_scaler.GradScaler": 4,
    "torch.cpu.amp.GradScaler": 4,
    "torch.cpu.amp.grad_scaler.GradScaler": 4,
    "torch.amp.GradScaler": 5,
    "torch.amp.grad_scaler.GradScaler": 5,
    "torch.GradScaler": 5,
    "torch.npu.amp.GradScaler": 5,
    "torch_npu.npu.amp.GradScaler": 5,
    "torch_npu.npu.amp.grad_scaler.GradScaler": 5,
    "torch.xpu.amp.GradScaler": 4,
    "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler": 5,
    "amplint.runtime.GradScaler": 4,
}
#: Frameworks whose class of that name has another protocol.
_OTHERS = (
    "paddle",
    "megatron",
    "fairseq",
    "deepspeed",
    "apex",
    "accelerate",
    "mindspore",
    "tensorflow",
    "jax",
)


class Lift:
    """Paths, terms and formulas of one file's expressions."""

    def __init__(self, classes: Classes, functions: Mapping[str, ir.Function]) -> None:
        self.classes = classes
        self._roots: dict[str, str] = {}
        for function in functions.values():
            if function.owner in classes.by_name and function.params and not function.is_static:
                me = f"{function.qualname}:{function.params[0].name}"
                self._roots[me] = self.self_root(function.owner)
        self._results = {name: self._single_result(function) for name, function in functions.items()}
        self._params = {name: function.params for name, function in functions.items()}

    def self_root(self, klass: str) -> str:
        """The root of the paths of attributes of `klass` and its family."""
        return f"{self.classes.top(klass)}.self"

    @staticmethod
    def _single_result(function: ir.Function) -> ir.Expr | None:
        body = [s for s in function.body if not (isinstance(s, ir.Do) and isinstance(s.value, ir.Const))]
        if len(body) == 1 and isinstance(body[0], ir.Return):
            return body[0].value
        return None

    # -- paths ----------------------------------------------------------------------------------------------

    def variable(self, scope: str | None, name: str) -> str:
        """The root of a variable's paths."""
        root = f"{scope if scope is not None else '?'}:{name}"
        return self._roots.get(root, root)

    def path(self, expr: ir.Expr | None) -> c.Path | None:
        """The path that `expr` denotes, or None."""
        if isinstance(expr, ir.Name):
            return (self.variable(expr.scope, expr.id),)
        if isinstance(expr, ir.Attr):
            base = self.path(expr.value)
            return (*base, expr.attr) if base is not None else None
        if isinstance(expr, ir.Subscript):
            base = self.path(expr.value)
            if base is None:
                return None
            return (*base, f"[{expr.index.value!r}]" if isinstance(expr.index, ir.Const) else "[]")
        if isinstance(expr, ir.Walrus):
            return self.path(expr.target)
        if isinstance(expr, ir.Call) and names(expr.func) == ("builtins.getattr",) and len(expr.args) >= 2:
            base, attribute = self.path(expr.args[0].value), expr.args[1].value
            if base is not None and isinstance(attribute, ir.Const) and isinstance(attribute.value, str):
                return (*base, attribute.value)
        return None

    def element(self, iterable: ir.Expr) -> c.Path | None:
        """The path that stands for any element of `iterable`."""
        if isinstance(iterable, ir.Call):
            func = iterable.func
            if (
                names(func) in (("builtins.list",), ("builtins.tuple",), ("builtins.reversed",))
                and iterable.args
            ):
                return self.element(iterable.args[0].value)
            if isinstance(func, ir.Attr) and func.attr in ("values", "parameters") and not iterable.args:
                base = self.path(func.value)
                tail = "[]" if func.attr == "values" else "parameters()"
                return (*base, tail) if base is not None else None
            return None
        base = self.path(iterable)
        return (*base, "[]") if base is not None else None

    # -- terms and formulas ---------------------------------------------------------------------------------

    def term(self, expr: ir.Expr) -> c.Term:
        """The value of `expr` as a term."""
        if isinstance(expr, ir.Const):
            return c.Lit(expr.value)
        path = self.path(expr)
        if path is not None and not any(part == "[]" for part in path):
            return c.Ref(path)
        if isinstance(expr, ir.Binary):
            return c.Op(expr.op, (self.term(expr.left), self.term(expr.right)))
        if isinstance(expr, ir.Unary) and expr.op == "-":
            inner = self.term(expr.operand)
            if isinstance(inner, c.Lit) and isinstance(inner.value, (int, float)):
                return c.Lit(-inner.value)
            return c.Op("-", (inner,))
        if isinstance(expr, ir.Items) and not any(isinstance(item, ir.Star) for item in expr.items):
            return c.Op(expr.kind, tuple(self.term(item) for item in expr.items))
        if isinstance(expr, ir.Call):
            return self._call(expr)
        if isinstance(expr, ir.Attr):
            return c.Op(f".{expr.attr}", (self.term(expr.value),))
        if isinstance(expr, ir.Subscript):
            return c.Op("[]", (self.term(expr.value), self.term(expr.index)))
        return c.Unknown()

    def _call(self, expr: ir.Call) -> c.Term:
        if any(arg.star for arg in expr.args):
            return c.Unknown()
        args = [c.Op(f"{arg.keyword or ''}=", (self.term(arg.value),)) for arg in expr.args]
        return c.Op("call", (self.term(expr.func), *args))

    def formula(self, expr: ir.Expr, depth: int = 0) -> c.Formula:
        """The truth of `expr`."""
        if isinstance(expr, ir.Bool):
            parts = (self.formula(expr.left, depth), self.formula(expr.right, depth))
            return c.both(*parts) if expr.op == "and" else c.either(*parts)
        if isinstance(expr, ir.Unary) and expr.op == "not":
            return c.negate(self.formula(expr.operand, depth))
        if isinstance(expr, ir.Compare):
            return c.compare(expr.op, self.term(expr.left), self.term(expr.right))
        if isinstance(expr, ir.IfExp):
            test = self.formula(expr.test, depth)
            body, orelse = self.formula(expr.body, depth), self.formula(expr.orelse, depth)
            return c.either(c.both(test, body), c.both(c.negate(test), orelse))
        if isinstance(expr, ir.Walrus):
            return self.formula(expr.value, depth)
        if isinstance(expr, ir.Call):
            return self._call_formula(expr, depth)
        return c.truth(self.term(expr))

    def _call_formula(self, expr: ir.Call, depth: int) -> c.Formula:
        if isinstance(expr.func, ir.Attr) and expr.func.attr == "is_enabled" and not expr.args:
            return c.Atom("enabled", self.term(expr.func.value))
        if names(expr.func) == ("builtins.bool",) and len(expr.args) == 1:
            return self.formula(expr.args[0].value, depth)
        called = self.called(expr)
        if called is not None and depth < 3 and not any(arg.star for arg in expr.args):
            result = self._results.get(called)
            if result is not None:
                return self._substituted(called, expr, self.formula(result, depth + 1))
        return c.truth(self.term(expr))

    def called(self, expr: ir.Call) -> str | None:
        """The function of this file that is called by its plain name or through `self`."""
        local = self.classes.local(names(expr.func))
        if local in self._params:
            return local
        if isinstance(expr.func, ir.Attr) and isinstance(expr.func.value, ir.Name):
            root = self.variable(expr.func.value.scope, expr.func.value.id)
            for klass in self.classes.by_name:
                if root == f"{klass}.self":
                    return self.classes.method(klass, expr.func.attr)
        return None

    def _substituted(self, called: str, expr: ir.Call, formula: c.Formula) -> c.Formula:
        """`formula` over the callee's parameters in terms of what this call hands to them."""
        bound: dict[c.Path, c.Term] = {}
        params = [p for p in self._params[called] if not p.star]
        skip = 1 if params and (self.variable(called, params[0].name)).endswith(".self") else 0
        for param in params:
            if param.default is not None:
                bound[(f"{called}:{param.name}",)] = self.term(param.default)
        for index, arg in enumerate(expr.args):
            if arg.keyword is not None:
                bound[(f"{called}:{arg.keyword}",)] = self.term(arg.value)
            elif index + skip < len(params):
                bound[(f"{called}:{params[index + skip].name}",)] = self.term(arg.value)

        def change(path: c.Path) -> c.Term:
            found = bound.get(path[:1])
            if found is None:
                return c.Ref(path)
            if len(path) == 1:
                return found
            return c.Ref(found.path + path[1:]) if isinstance(found, c.Ref) else c.Unknown()

        return c.rewrite(
            formula,
            lambda atom: c.rebuild(
                atom, c.rewrite_term(atom.left, change), c.rewrite_term(atom.right, change)
            ),
        )

    # -- scalers --------------------------------------------------------------------------------------------

    def constructs_scaler(self, expr: ir.Expr | None) -> bool:
        """Whether `expr` makes a torch GradScaler or something derived from it."""
        if not isinstance(expr, ir.Call):
            return False
        return any(self.is_scaler_class(name) for name in names(expr.func))

    def is_scaler_class(self, name: str) -> bool:
        """Whether `name` is GradScaler, a vendored copy, or a subclass in this file."""
        if name in SCALERS:
            return True
        local = self.classes.klass((name,))
        if local is not None:
            return any(self.is_scaler_class(n) for base in self.classes.foreign(local) for n in base)
        return name.endswith("GradScaler") and not name.startswith((*_OTHERS, "__main__.", "<"))

    def enabled(self, call: ir.Call) -> c.Formula | None:
        """Where a new scaler scales; None when that cannot be read."""
        if any(arg.star for arg in call.args):
            return None
        for arg in call.args:
            if arg.keyword == "enabled":
                return self.formula(arg.value)
        known = [SCALERS[name] for name in names(call.func) if name in SCALERS]
        positional = [arg for arg in call.args if arg.keyword is None]
        if known and len(positional) > known[0]:
            return self.formula(positional[known[0]].value)
        return True


def names(expr: ir.Expr) -> tuple[str, ...]:
    """Qualified names that `expr` can denote; a star import that hands on torch is looked through."""
    found = expr.names if isinstance(expr, (ir.Name, ir.Attr)) else ()
    return tuple(name[name.index(".torch.") + 1 :] if ".torch." in name else name for name in found)


def scaled_by(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The receivers of `.scale(..)` whose product `expr` is, and variables that may hold such a product."""
    if isinstance(expr, ir.Call):
        func = expr.func
        if isinstance(func, ir.Attr) and func.attr == "scale" and expr.args:
            yield func.value
        elif names(func) and names(func)[0].startswith(("builtins.sum", "torch.")):
            for arg in expr.args:
                yield from scaled_by(arg.value)
        elif isinstance(func, ir.Attr) and func.attr in ("mean", "sum", "to", "float"):
            yield from scaled_by(func.value)
    elif isinstance(expr, (ir.Name, ir.Attr)):
        yield expr
    elif isinstance(expr, ir.Binary):
        yield from scaled_by(expr.left)
        yield from scaled_by(expr.right)
    elif isinstance(expr, ir.IfExp):
        yield from scaled_by(expr.body)
        yield from scaled_by(expr.orelse)
    elif isinstance(expr, (ir.Items, ir.Comprehension)):
        for item in expr.items if isinstance(expr, ir.Items) else expr.element:
            yield from scaled_by(item)
    elif isinstance(expr, (ir.Subscript, ir.Star, ir.Walrus)):
        yield from scaled_by(expr.value)


def without_scale(loss: ir.Expr) -> ir.Expr:
    """`loss` of `scaler.scale(loss)`, and any other expression as it is."""
    if (
        isinstance(loss, ir.Call)
        and isinstance(loss.func, ir.Attr)
        and loss.func.attr == "scale"
        and loss.args
    ):
        return loss.args[0].value
    return loss


def last(expr: ir.Expr) -> str:
    """The last part of a name or an attribute chain, "" for anything else."""
    if isinstance(expr, ir.Attr):
        return expr.attr
    return expr.id if isinstance(expr, ir.Name) else ""
