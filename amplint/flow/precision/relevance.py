"""Which functions of a file can make anything low precision, told before any of them is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from amplint.flow import walk
from amplint.flow.classes import Classes
from amplint.flow.lift import last, names
from amplint.flow.precision import names as known
from amplint.flow.precision.lattice import LOW
from amplint.model import ir
from amplint.model.units import is_elsewhere

_MAKES_LOW = frozenset(("half", "bfloat16", "autocast", "custom_fwd", "fully_shard", "HalfTensor"))
#: The same where they are only named, to be called elsewhere.
_NAMED_LOW = _MAKES_LOW - {"half", "bfloat16"}
#: Calls that change what they are called on or given.
_IN_PLACE = frozenset(
    ("half", "bfloat16", "to", "type", "float", "apply", "_apply", "fully_shard", "setattr")
)
_ADD = frozenset(("append", "extend", "insert", "add", "update", "setdefault", "register_buffer", "copy_"))
_TEXT = re.compile(r"float16|bf16|fp16|half", re.IGNORECASE)
_ENGINES = ("apex.", "deepspeed.", "colossalai.")
_BUILDS = ("torch.nn.", "torch.optim.")


class Relevance:
    """What the functions of one file contain, and those that they call by name."""

    def __init__(self, functions: Mapping[str, ir.Function], classes: Classes) -> None:
        self._functions = functions
        self._classes = classes
        self._contained: dict[str, bool] = {}

    def makes_low(self, qualname: str) -> bool:
        """Whether a function, or one that it may call, names anything low precision; also one of another file."""
        return is_elsewhere(qualname) or qualname in self._lowering

    def builds(self, qualname: str) -> bool:
        """Whether a function, or one that it may call, makes modules or optimizers."""
        return is_elsewhere(qualname) or qualname in self._building

    @cached_property
    def _own(self) -> dict[str, ir.Function]:
        return {name: self._functions[name] for name in self._functions if not is_elsewhere(name)}

    @cached_property
    def _called(self) -> dict[str, frozenset[str]]:
        """Function -> the last names of what it calls; a class stands for its methods."""
        return {
            name: frozenset(last(e.func) for e in _expressions(function) if isinstance(e, ir.Call))
            | frozenset(e.attr for e in _expressions(function) if isinstance(e, ir.Attr))
            | frozenset(e.id for e in _expressions(function) if isinstance(e, ir.Name))
            for name, function in self._own.items()
        }

    @cached_property
    def _lowering(self) -> frozenset[str]:
        constants = {
            target.id
            for stmt in self._own[""].body
            if isinstance(stmt, ir.Assign) and stmt.value is not None and any(map(_is_low, _made(stmt.value)))
            for target in stmt.targets
            if isinstance(target, ir.Name)
        }
        found = {
            name
            for name, function in self._own.items()
            if any(
                _is_low(e) or (isinstance(e, ir.Name) and e.id in constants) for e in _expressions(function)
            )
        }
        for klass in self._classes.by_name.values():
            methods = {method for _, method in klass.methods}
            in_body = any(map(_is_low, _in_block(klass.body)))
            found |= methods if in_body else self._sharing(methods, found)
        return self._closed(found)

    def _sharing(self, methods: set[str], low: set[str]) -> set[str]:
        """The methods of one class that read what those that make something low leave behind in the object."""
        found = methods & low
        left: set[str] = set()
        while True:
            for name in found:
                attributes = _attributes_set(self._own[name])
                if attributes is None:
                    return methods
                left |= attributes
            more = {name for name in methods - found if not left.isdisjoint(self._called[name])}
            if not more:
                return found
            found |= more

    @cached_property
    def _building(self) -> frozenset[str]:
        return self._closed(set(self._making))

    @cached_property
    def _making(self) -> frozenset[str]:
        """The functions that make modules or optimizers themselves."""
        modules = {
            name.rpartition(".")[2]
            for name in self._classes.by_name
            if any(known.is_module_class(n) for bases in self._classes.foreign(name) for n in bases)
        }
        return frozenset(
            name
            for name, function in self._own.items()
            if not modules.isdisjoint(self._called[name])
            or any(
                n.startswith(_BUILDS)
                for e in _expressions(function)
                if isinstance(e, ir.Call)
                for n in names(e.func)
            )
        )

    def _is_contained(self, qualname: str) -> bool:
        """Whether what a function does stays in it: it gives nothing back, keeps nothing and casts nothing in place."""
        if qualname not in self._contained:
            self._contained[qualname] = _is_contained(self._own[qualname])
        return self._contained[qualname]

    def _closed(self, found: set[str]) -> frozenset[str]:
        """The same with every function that may call one of them, and gets something of it or hands something to it."""
        while True:
            wanted = {_called_as(name) for name in found}
            leaking = {_called_as(name) for name in found if not self._is_contained(name)}
            more = {
                name
                for name, called in self._called.items()
                if name not in found and (called & leaking or (called & wanted and name in self._making))
            }
            if not more:
                return frozenset(found)
            found |= more


def _called_as(qualname: str) -> str:
    """The last name by which a function is called; a constructor by its class."""
    owner, _, name = qualname.rpartition(".")
    return owner.rpartition(".")[2] if name in ("__init__", "__call__", "forward") else name


def _expressions(function: ir.Function) -> Iterator[ir.Expr]:
    yield from _in_block(function.body)
    for decorator in function.decorators:
        yield from walk.inside(decorator)
    for param in function.params:
        if param.default is not None:
            yield from walk.inside(param.default)


def _in_block(block: ir.Block) -> Iterator[ir.Expr]:
    for stmt in walk.statements(block):
        for expr in walk.own(stmt):
            yield from _made(expr)


def _made(expr: ir.Expr) -> Iterator[ir.Expr]:
    """`expr` and everything within it, but not what it is only compared with, looked up by or asked to be of."""
    stack = [expr]
    while stack:
        current = stack.pop()
        yield current
        if isinstance(current, ir.Compare):
            stack.extend(e for e in (current.right, current.left) if not _is_only_named(e))
        elif isinstance(current, ir.Subscript) and isinstance(current.index, ir.Const):
            stack.append(current.value)
        elif isinstance(current, ir.Items) and current.kind == "dict":
            plain = [e for e in current.items if not isinstance(e, ir.Star)]
            stack.extend((*plain[1::2], *(e for e in current.items if isinstance(e, ir.Star))))
        elif isinstance(current, ir.Call) and last(current.func) in ("isinstance", "issubclass"):
            stack.extend(arg.value for arg in current.args[:1])
        else:
            stack.extend(walk.parts(current)[::-1])


def _is_only_named(expr: ir.Expr) -> bool:
    """Whether an operand of a comparison is a name, a dtype or several."""
    if isinstance(expr, ir.Items):
        return all(map(_is_only_named, expr.items))
    while isinstance(expr, ir.Attr):
        expr = expr.value
    return isinstance(expr, (ir.Name, ir.Const))


def _attributes_set(function: ir.Function) -> set[str] | None:
    """The attributes that a method sets, of whatever object; None where it may change the object as a whole."""
    first = function.params[0].name if function.params else ""
    found: set[str] = set()
    for stmt in walk.statements(function.body):
        for expr in walk.own(stmt):
            for inner in walk.inside(expr):
                if isinstance(inner, ir.Call):
                    owner = inner.func.value if isinstance(inner.func, ir.Attr) else None
                    if isinstance(owner, ir.Name) and owner.id == first and last(inner.func) in _IN_PLACE:
                        return None
                    if isinstance(owner, ir.Attr) and last(inner.func) in _IN_PLACE | _ADD:
                        found.add(owner.attr)  # `self.cache.append(..)`, `self.net.half()`
                    if any(isinstance(a.value, ir.Name) and a.value.id == first for a in inner.args):
                        return None
        if isinstance(stmt, (ir.Assign, ir.AugAssign, ir.For, ir.With)):
            targets = stmt.targets if isinstance(stmt, ir.Assign) else walk.own(stmt)
            found |= {e.attr for t in targets for e in walk.inside(t) if isinstance(e, ir.Attr)}
    return found


def _is_contained(function: ir.Function) -> bool:
    if function.qualname.endswith("__init__"):
        return False
    for stmt in walk.statements(function.body):
        if isinstance(stmt, ir.Return) and stmt.value is not None:
            if not (isinstance(stmt.value, ir.Const) and stmt.value.value is None):
                return False
        elif isinstance(stmt, ir.Assign):
            if any(isinstance(e, (ir.Attr, ir.Subscript)) for t in stmt.targets for e in walk.inside(t)):
                return False
        elif isinstance(stmt, (ir.AugAssign, ir.Define)):
            return False
        for expr in walk.own(stmt):
            for inner in walk.inside(expr):
                if isinstance(inner, ir.Other):
                    return False  # it yields
                if isinstance(inner, ir.Call) and _may_change(inner):
                    return False
    return True


def _may_change(call: ir.Call) -> bool:
    """Whether a call may change something that others see; what it is called on may just have been made."""
    word = last(call.func)
    if word not in _IN_PLACE:
        return word.endswith("_")
    return not (isinstance(call.func, ir.Attr) and isinstance(call.func.value, ir.Call))


def _is_low(expr: ir.Expr) -> bool:
    if isinstance(expr, ir.Call):
        word = last(expr.func)
        if word == "initialize":
            return any(name.startswith(_ENGINES) for name in names(expr.func))
        if word == "from_pretrained":
            return any(arg.keyword in ("dtype", "torch_dtype") or arg.star for arg in expr.args)
        return word in _MAKES_LOW or any(known.is_autocast(n) for n in names(expr.func))
    if isinstance(expr, (ir.Name, ir.Attr)):
        word = last(expr)
        return (
            word in _NAMED_LOW
            or word in ("float16", "bfloat16")
            or any(known.dtype_named(n) in LOW for n in names(expr))
        )
    return (
        isinstance(expr, ir.Const)
        and isinstance(expr.value, str)
        and len(expr.value) < 40
        and bool(_TEXT.search(expr.value))
    )
