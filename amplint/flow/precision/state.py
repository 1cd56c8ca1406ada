"""What is known at one point of execution: variables, objects, autocast regions; and how paths are joined."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from amplint.flow.precision.lattice import Dtypes
from amplint.flow.precision.values import Frame, Region, Value, join

#: A variable: the frame it belongs to, the scope that binds it, its name.
Variable = tuple[Frame, str, str]
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Object:
    """Something with attributes: an instance of a class at hand, a module of torch.nn, an optimizer."""

    #: Qualname of a class at hand, or the qualified name of a library's.
    cls: str
    fields: tuple[tuple[str, Value], ...] = ()
    #: The dtypes of its own parameters and buffers, where it is a module that is not looked into.
    params: Dtypes = frozenset()
    #: Where they were cast last, and how.
    origin: int | None = None
    why: str = ""
    #: It was made by a class at hand.
    is_own: bool = False
    site: int | None = None
    #: It was copied from another, at `site`.
    is_copy: bool = False

    def get(self, name: str) -> Value | None:
        """A field."""
        return next((value for key, value in self.fields if key == name), None)

    def with_field(self, name: str, value: Value) -> Object:
        """The same with another field."""
        kept = tuple((k, v) for k, v in self.fields if k != name)
        return replace(self, fields=(*kept, (name, value)))


@dataclass(slots=True)
class State:
    """Variables and objects; copied where paths part."""

    variables: dict[Variable, Value] = field(default_factory=dict)
    heap: dict[Key, Object] = field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    no_grad: bool = False

    def copy(self) -> State:
        """An independent state that says the same."""
        return State(dict(self.variables), dict(self.heap), self.regions, self.no_grad)


def joined(states: Iterable[State]) -> State | None:
    """What holds after any of several paths; None where there is none, and the one itself where there is one."""
    found: State | None = None
    is_own = False
    for state in states:
        if found is None:
            found = state
            continue
        if not is_own:
            found, is_own = found.copy(), True
        for key, value in state.variables.items():
            known = found.variables.get(key)
            found.variables[key] = value if known is None or known is value else join(known, value)
        for where, thing in state.heap.items():
            other = found.heap.get(where)
            found.heap[where] = thing if other is None or other is thing else _join_objects(other, thing)
    return found


def _join_objects(first: Object, second: Object) -> Object:
    if first == second:
        return first
    fields = dict(first.fields)
    for name, value in second.fields:
        fields[name] = join(fields[name], value) if name in fields else value
    low = first if any(d in ("float16", "bfloat16") for d in first.params) else second
    return Object(
        first.cls,
        tuple(fields.items()),
        first.params | second.params,
        low.origin,
        low.why,
        first.is_own,
        first.site,
        first.is_copy and second.is_copy,
    )
