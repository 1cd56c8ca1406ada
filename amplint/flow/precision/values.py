"""What expressions stand for while a file is interpreted. Values are compared and joined; they never change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from amplint.flow.precision.lattice import ANY, Dtypes

#: Where execution stands: the calls that led there, innermost last.
Frame = tuple[int, ...]

#: Alternatives that are kept apart at most.
_MOST_ALTERNATIVES = 4
_LARGEST = 64
#: How it is said (in `Tensor.why`) that an operator in an autocast region gave a tensor its dtype.
BY_AUTOCAST = "in the autocast region"


@dataclass(frozen=True, slots=True)
class Top:
    """Anything."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor."""

    dtypes: Dtypes
    #: It has no dimensions; None: not known.
    is_scalar: bool | None = None
    #: Where it got its dtype: a cast, an operator in a region, the creation.
    origin: int | None = None
    #: What happened there, for a trace.
    why: str = ""
    #: The operator that made it, and where.
    op: str = ""
    site: int | None = None
    #: What else is known of it: "parameter", "output" (of a model that is not looked into), "positions", ...
    marks: frozenset[str] = frozenset()

    def marked(self, *marks: str) -> Tensor:
        """The same with more marks."""
        return replace(self, marks=self.marks | frozenset(marks))


@dataclass(frozen=True, slots=True)
class Py:
    """A known Python constant."""

    value: str | bytes | int | float | complex | bool | None
    #: Where it is written.
    site: int | None = None

    def __eq__(self, other: object) -> bool:
        """Equal when type and value are: 1 and True are two constants."""
        return (
            isinstance(other, Py)
            and type(other.value) is type(self.value)
            and repr(other.value) == repr(self.value)
        )

    def __hash__(self) -> int:
        """As equality has it."""
        return hash((type(self.value), repr(self.value)))


@dataclass(frozen=True, slots=True)
class Number:
    """A Python number that is not known; `kind` is "int", "float" or "" (either, or a bool)."""

    kind: str = ""
    #: "finfo.min", "finfo.eps", ... where it is a limit of a dtype, "length" of a sequence.
    what: str = ""
    dtypes: Dtypes = frozenset()


@dataclass(frozen=True, slots=True)
class Dtype:
    """A `torch.dtype`."""

    dtypes: Dtypes


@dataclass(frozen=True, slots=True)
class Device:
    """A device, or something that only says where a tensor lies."""

    kind: str = ""


@dataclass(frozen=True, slots=True)
class Sequence_:
    """A tuple or list whose items are known."""

    items: tuple[Value, ...]
    kind: str = "tuple"


@dataclass(frozen=True, slots=True)
class Many:
    """A list, generator or mapping of unknown length whose elements are alike."""

    element: Value


@dataclass(frozen=True, slots=True)
class Mapping_:
    """A dictionary with known keys; `rest` is what other keys give."""

    items: tuple[tuple[Any, Value], ...]
    rest: Value | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """An object on the heap."""

    key: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the files at hand; `me` is the object that a method is bound to."""

    qualname: str
    me: Value | None = None
    #: Where a nested function was made.
    frame: Frame = ()


@dataclass(frozen=True, slots=True)
class Class:
    """A class of the files at hand."""

    qualname: str


@dataclass(frozen=True, slots=True)
class Lib:
    """Something of a library, by its qualified name."""

    name: str


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a value that is no object of the files at hand."""

    owner: Value
    name: str


@dataclass(frozen=True, slots=True)
class Partial:
    """A callable with arguments given beforehand."""

    func: Value
    args: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class LambdaValue:
    """A lambda, and the frame that it was made in."""

    node: Any = field(compare=False)
    site: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Region:
    """An autocast region (or a context that is none of it, with device "-")."""

    #: "cuda", "npu", "cpu", ...; "" is any, "-" none at all.
    device: str
    dtypes: Dtypes
    #: None: either, as far as is known.
    enabled: bool | None
    site: int
    cached: bool = True


@dataclass(frozen=True, slots=True)
class Either:
    """One of several values that cannot be joined."""

    values: tuple[Value, ...]


Value = (
    Top
    | Tensor
    | Py
    | Number
    | Dtype
    | Device
    | Sequence_
    | Many
    | Mapping_
    | Ref
    | Function
    | Class
    | Lib
    | Method
    | Partial
    | LambdaValue
    | Region
    | Either
)

TOP = Top()
NONE = Py(None)
_EMPTY = Sequence_((), "list")


def alternatives(value: Value) -> tuple[Value, ...]:
    """The values that `value` may be."""
    return value.values if isinstance(value, Either) else (value,)


def join(first: Value, second: Value) -> Value:
    """A value that stands for both."""
    if first == second:
        return first
    if isinstance(first, Either) or isinstance(second, Either):
        return either([*alternatives(first), *alternatives(second)])
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return _join_tensors(first, second)
    if isinstance(first, Tensor) and isinstance(second, Top):
        return replace(first, dtypes=first.dtypes | ANY, is_scalar=None, op="", site=None)
    if isinstance(first, Top) and isinstance(second, Tensor):
        return join(second, first)
    if isinstance(first, Dtype) and isinstance(second, (Dtype, Top)):
        return Dtype(first.dtypes | (second.dtypes if isinstance(second, Dtype) else ANY))
    if isinstance(first, Top) and isinstance(second, Dtype):
        return join(second, first)
    if isinstance(first, Top) or isinstance(second, Top):
        return TOP
    if isinstance(first, Sequence_) and isinstance(second, Sequence_) and first.kind == second.kind:
        if len(first.items) == len(second.items):
            pairs = zip(first.items, second.items, strict=True)
            return Sequence_(tuple(join(a, b) for a, b in pairs), first.kind)
        return Many(join_all([*first.items, *second.items]))
    if isinstance(first, (Many, Sequence_)) and isinstance(second, (Many, Sequence_)):
        filled = [v for v in (first, second) if v not in (Sequence_(()), Sequence_((), "list"))]
        return Many(join_all(map(element_of, filled)))
    if isinstance(first, Mapping_) and isinstance(second, Mapping_):
        return _join_mappings(first, second)
    if _is_number(first) and _is_number(second):
        return _join_numbers(first, second)
    return either([first, second])


def join_all(values: Iterable[Value]) -> Value:
    """A value that stands for all; anything where there are none."""
    found: Value | None = None
    for value in values:
        found = value if found is None else join(found, value)
    return found if found is not None else TOP


def either(values: Sequence[Value]) -> Value:
    """One of several values; tensors among them are joined."""
    found: list[Value] = []
    for value in values:
        for one in alternatives(value):
            if isinstance(one, Top):
                return next((join(t, TOP) for t in values if isinstance(t, (Tensor, Dtype))), TOP)
            at = next((i for i, other in enumerate(found) if _joins(other, one)), None)
            if at is None:
                found.append(one)
            else:
                found[at] = join(found[at], one)
    if len(found) == 1:
        return found[0]
    if len(found) > _MOST_ALTERNATIVES:
        return next((join(t, TOP) for t in found if isinstance(t, Tensor)), TOP)
    return Either(tuple(found))


def _joins(first: Value, second: Value) -> bool:
    if first == second:
        return True
    return type(first) is type(second) and isinstance(first, (Tensor, Dtype, Many, Mapping_))


def _join_tensors(first: Tensor, second: Tensor) -> Tensor:
    low = first if any(d in ("float16", "bfloat16") for d in first.dtypes) else second
    same = first.site == second.site and first.op == second.op
    return Tensor(
        first.dtypes | second.dtypes,
        first.is_scalar if first.is_scalar is second.is_scalar else None,
        low.origin,
        low.why,
        first.op if same else "",
        first.site if same else None,
        first.marks & second.marks,
    )


def _join_mappings(first: Mapping_, second: Mapping_) -> Value:
    keys = dict(first.items)
    others = dict(second.items)
    items = {key: join(keys.get(key, TOP), others.get(key, TOP)) for key in (*keys, *others)}
    if len(items) > _LARGEST:
        return TOP
    # a mapping that has no other keys says nothing of what they would give
    rests = [m.rest for m in (first, second) if m.rest is not None]
    rest = join_all(rests) if rests else None
    return Mapping_(tuple(items.items()), rest)


def _is_number(value: Value) -> bool:
    return isinstance(value, Number) or (isinstance(value, Py) and isinstance(value.value, (int, float)))


def _join_numbers(first: Value, second: Value) -> Value:
    if isinstance(first, Py) and isinstance(second, Py):
        return Either((first, second))
    kinds = {number_kind(first), number_kind(second)}
    return Number(kinds.pop() if len(kinds) == 1 else "")


def number_kind(value: Value) -> str:
    """ "bool", "int", "float", or "" where that is not known."""
    if isinstance(value, Number):
        return value.kind
    if isinstance(value, Py) and isinstance(value.value, bool):
        return "bool"
    if isinstance(value, Py) and isinstance(value.value, int):
        return "int"
    return "float" if isinstance(value, Py) and isinstance(value.value, float) else ""


def element_of(value: Value) -> Value:
    """What iterating over a value gives."""
    if isinstance(value, Many):
        return value.element
    if isinstance(value, Sequence_):
        return join_all(value.items)
    if isinstance(value, Mapping_):
        return either([Py(key) for key, _ in value.items]) if value.items and value.rest is None else TOP
    if isinstance(value, Tensor):
        return replace(value, is_scalar=None, op="", site=None)
    if isinstance(value, Either):
        return join_all(map(element_of, value.values))
    return TOP


def tensors_in(value: Value) -> tuple[Tensor, ...]:
    """The tensors in a value and its items."""
    if isinstance(value, Tensor):
        return (value,)
    if isinstance(value, Sequence_):
        return tuple(t for item in value.items for t in tensors_in(item))
    if isinstance(value, Many):
        return tensors_in(value.element)
    if isinstance(value, Either):
        return tuple(t for item in value.values for t in tensors_in(item))
    return ()
