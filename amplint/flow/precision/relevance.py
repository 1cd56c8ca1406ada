"""Which functions of a file can make anything low precision, told before any of them is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from amplint.flow import walk
from amplint.flow.classes import Classes
from amplint.flow.lift import last, names
from amplint.flow.precision import names as known
from amplint.flow.precision.lattice import LOW, NAMED
from amplint.model import ir
from amplint.model.units import is_elsewhere

_MAKES_LOW = frozenset(
    (
        "half",
        "bfloat16",
        "autocast",
        "custom_fwd",
        "from_pretrained",
        "fully_shard",
        "initialize",
        "HalfTensor",
    )
)
_TEXT = re.compile(r"float16|bf16|fp16|half", re.IGNORECASE)
_BUILDS = ("torch.nn.", "torch.optim.")


class Relevance:
    """What the functions of one file contain, and those that they call by name."""

    def __init__(self, functions: Mapping[str, ir.Function], classes: Classes) -> None:
        self._functions = functions
        self._classes = classes

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
            if isinstance(stmt, ir.Assign)
            and stmt.value is not None
            and any(map(_is_low, walk.inside(stmt.value)))
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
            # what the class's body or one method makes low is an attribute for the others
            methods = {method for _, method in klass.methods}
            in_body = any(_is_low(e) for e in walk.expressions(klass.body))
            if in_body or not methods.isdisjoint(found):
                found |= methods
        return self._closed(found)

    @cached_property
    def _building(self) -> frozenset[str]:
        modules = {
            name.rpartition(".")[2]
            for name in self._classes.by_name
            if any(known.is_module_class(n) for bases in self._classes.foreign(name) for n in bases)
        }
        found = {
            name
            for name, function in self._own.items()
            if not modules.isdisjoint(self._called[name])
            or any(
                n.startswith(_BUILDS)
                for e in _expressions(function)
                if isinstance(e, ir.Call)
                for n in names(e.func)
            )
        }
        return self._closed(found)

    def _closed(self, found: set[str]) -> frozenset[str]:
        """The same with every function that may call one of them."""
        while True:
            wanted = {_called_as(name) for name in found}
            more = {name for name, called in self._called.items() if name not in found and called & wanted}
            if not more:
                return frozenset(found)
            found |= more


def _called_as(qualname: str) -> str:
    """The last name by which a function is called; a constructor by its class."""
    owner, _, name = qualname.rpartition(".")
    return owner.rpartition(".")[2] if name in ("__init__", "__call__", "forward") else name


def _expressions(function: ir.Function) -> Iterator[ir.Expr]:
    yield from walk.expressions(function.body)
    for decorator in function.decorators:
        yield from walk.inside(decorator)
    for param in function.params:
        if param.default is not None:
            yield from walk.inside(param.default)


def _is_low(expr: ir.Expr) -> bool:
    if isinstance(expr, ir.Call):
        return last(expr.func) in _MAKES_LOW or any(known.is_autocast(n) for n in names(expr.func))
    if isinstance(expr, (ir.Name, ir.Attr)):
        word = last(expr)
        return (
            word in _MAKES_LOW
            or NAMED.get(word) in LOW
            or any(known.dtype_named(n) in LOW for n in names(expr))
        )
    return (
        isinstance(expr, ir.Const)
        and isinstance(expr.value, str)
        and len(expr.value) < 40
        and bool(_TEXT.search(expr.value))
    )
