"""What Python's own functions do while a file is interpreted, and those of PyTorch that are no operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amplint.flow.lift import last
from amplint.flow.precision.lattice import ANY, BF16, BOOL, F16, INT64, NAMED, pairs
from amplint.flow.precision.names import IN_MODULE, device_kind, one_of
from amplint.flow.precision.state import Object
from amplint.flow.precision.values import (
    NONE,
    TOP,
    Class,
    Device,
    Dtype,
    Lib,
    Many,
    Mapping_,
    Number,
    Partial,
    Py,
    Ref,
    Region,
    Sequence_,
    Tensor,
    Top,
    Value,
    alternatives,
    element_of,
    join,
    join_all,
    tensors_in,
)
from amplint.model import ir

if TYPE_CHECKING:
    from amplint.flow.precision.machine import Machine

_Handler = Callable[["Machine", Sequence[Value], Mapping[str, Value], ir.Call], Value]
FUNCTIONS: dict[str, _Handler] = {}


def _handles(*qualified: str) -> Callable[[_Handler], _Handler]:
    def register(handler: _Handler) -> _Handler:
        FUNCTIONS.update(dict.fromkeys(qualified, handler))
        return handler

    return register


@_handles("builtins.len", "builtins.hash", "builtins.id", "builtins.round", "builtins.ord")
def _length(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    if args and isinstance(args[0], Sequence_):
        return Py(len(args[0].items))
    return Number("int")


_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {"float": float, "int": int, "bool": bool, "abs": abs}


@_handles("builtins.float", "builtins.int", "builtins.bool", "builtins.abs")
def _number(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    what = last(expr.func)
    if what == "abs" and args and isinstance(args[0], Tensor):
        return machine.operate("abs", args[:1], {}, expr.site)
    if args and isinstance(args[0], Py):
        try:
            made: float | int | bool = _CONVERSIONS[what](args[0].value)
        except (TypeError, ValueError, OverflowError):
            return Number(what if what != "abs" else "")
        return Py(made, args[0].site)
    if what == "abs" and args and not isinstance(args[0], Number):
        return TOP
    if args and isinstance(args[0], Tensor):
        machine.note(f"builtins.{what}", expr.site, args, {}, Number(what))
    return Number(what if what != "abs" else "")


@_handles(
    "builtins.str", "builtins.print", "builtins.repr", "builtins.format", "builtins.open", "builtins.input"
)
def _text(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    if args and isinstance(args[0], Device):
        return args[0]
    return (
        args[0]
        if args and isinstance(args[0], Py) and isinstance(args[0].value, str)
        else Lib("builtins.str instance")
    )


@_handles("builtins.range")
def _range(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    return Many(Number("int"))


@_handles("builtins.enumerate")
def _enumerate(
    machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    over = args[0] if args else TOP
    if isinstance(over, Sequence_):
        return Sequence_(tuple(Sequence_((Py(i), item)) for i, item in enumerate(over.items)), "list")
    if isinstance(over, Ref):
        over = iterated(machine, over)
    return Many(Sequence_((Number("int"), element_of(over))))


@_handles("builtins.zip")
def _zip(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    if args and all(isinstance(a, Sequence_) for a in args):
        rows = zip(*(a.items for a in args if isinstance(a, Sequence_)), strict=False)
        return Sequence_(tuple(Sequence_(tuple(row)) for row in rows), "list")
    return Many(Sequence_(tuple(element_of(iterated(machine, a)) for a in args)))


@_handles("builtins.list", "builtins.tuple", "builtins.reversed", "builtins.sorted", "builtins.iter", "builtins.set",
          "itertools.chain", "tqdm.tqdm", "tqdm.auto.tqdm", "builtins.filter")  # fmt: skip
def _listed(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    if not args:
        return Sequence_((), "list")
    over = iterated(machine, args[-1] if last(expr.func) == "filter" else args[0])
    if last(expr.func) == "chain":
        return Many(join_all(element_of(iterated(machine, a)) for a in args))
    if isinstance(over, Sequence_):
        return Sequence_(over.items, "list")
    return Many(element_of(over))


@_handles("builtins.next")
def _next(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    return element_of(iterated(machine, args[0])) if args else TOP


def iterated(machine: Machine, value: Value) -> Value:
    """What iterating over an object gives, as a sequence."""
    if isinstance(value, Ref):
        thing = machine.state.heap.get(value.key)
        items = thing.get("[]") if thing is not None else None
        if isinstance(items, Mapping_):
            return Many(TOP)
        return items if items is not None else TOP
    return value


@_handles("builtins.dict", "collections.OrderedDict", "collections.defaultdict")
def _mapping(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    found: tuple[tuple[Any, Value], ...] = ()
    rest: Value | None = None
    if args and isinstance(args[0], Mapping_):
        found, rest = args[0].items, args[0].rest
    elif args:
        rest = TOP
    named = {**dict(found), **{k: v for k, v in keywords.items() if k != "**"}}
    return Mapping_(tuple(named.items()), TOP if "**" in keywords else rest)


@_handles("builtins.sum")
def _sum(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    if not args:
        return TOP
    over = iterated(machine, args[0])
    element = element_of(over)
    found = tensors_in(element)
    if not found:
        return Number() if isinstance(element, (Py, Number)) else TOP
    added = join_all(found)
    assert isinstance(added, Tensor)
    dtypes = added.dtypes  # elements of a list of unknown length are alike
    if isinstance(over, Sequence_):
        several = [t for item in over.items for t in tensors_in(item)]
        first, shape = several[0].dtypes, several[0].is_scalar
        dtypes = frozenset(INT64 if d == BOOL else d for d in first)  # it is added to 0
        for other in several[1:]:
            dtypes = pairs(dtypes, other.dtypes, shape, other.is_scalar)
            shape = (
                False if False in (shape, other.is_scalar) else shape if shape is other.is_scalar else None
            )
    added = replace(added, dtypes=frozenset(INT64 if d == BOOL else d for d in dtypes))
    result = replace(added, op="builtins.sum", site=expr.site)
    form = "few" if isinstance(over, (Sequence_, Mapping_)) else "many"
    machine.note("builtins.sum", expr.site, (element,), {}, result, form)
    return result


@_handles("builtins.max", "builtins.min")
def _extreme(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    if len(args) > 1 and any(tensors_in(a) for a in args):
        return join_all(args)
    found = [t for a in args for t in tensors_in(a)]
    return join_all(found) if found else Number() if all(isinstance(a, (Py, Number)) for a in args) else TOP


@_handles("builtins.isinstance", "torch.is_tensor")
def _is_instance(
    machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    asked = args[1] if len(args) > 1 else Lib("torch.Tensor")
    kinds = asked.items if isinstance(asked, Sequence_) else (asked,)
    named = {k.name for k in kinds if isinstance(k, Lib)} | {
        k.qualname for k in kinds if isinstance(k, Class)
    }
    if not args or len(named) < len(kinds):
        return Number("bool")
    value = args[0]
    if isinstance(value, Tensor):
        if named & {"torch.Tensor", "torch.FloatTensor"}:
            return Py(True)
        if named <= {
            "builtins.dict",
            "builtins.list",
            "builtins.tuple",
            "builtins.str",
            "builtins.float",
            "builtins.int",
        }:
            return Py(False)
    kind = {Mapping_: "builtins.dict", Sequence_: "builtins.tuple"}.get(type(value))
    if isinstance(value, Sequence_):
        kind = f"builtins.{value.kind}"
    if isinstance(value, Py) and value.value is not None:
        kind = f"builtins.{type(value.value).__name__}"
    if kind is not None:
        return Py(kind in named)
    if isinstance(value, Ref):
        thing = machine.state.heap.get(value.key)
        if thing is not None and not thing.is_own and thing.cls.startswith("torch.nn."):
            short = {n.rpartition(".")[2] for n in named}
            return Py(thing.cls.rpartition(".")[2] in short or "torch.nn.Module" in named)
        if thing is not None and thing.is_own and named & set(machine.classes.order(thing.cls)):
            return Py(True)
    return Number("bool")


@_handles("builtins.getattr")
def _getattr(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    if len(args) > 1 and isinstance(args[1], Py) and isinstance(args[1].value, str):
        name = args[1].value
        if args[0] == Lib("torch"):
            dtype = NAMED.get(name)
            return Dtype(frozenset((dtype,))) if dtype is not None else Lib(f"torch.{name}")
        if not isinstance(args[0], (Top, Lib)):
            node = ir.Attr(expr.args[0].value, name, expr.site)
            found = machine.attribute(args[0], name, node)
            if found != TOP:
                return found
        return join(TOP, args[2]) if len(args) > 2 else TOP
    if len(args) > 1 and args[0] == Lib("torch"):
        texts = [v for v in alternatives(args[1]) if isinstance(v, Py)]
        known = [NAMED[str(t.value)] for t in texts if str(t.value) in NAMED]
        return Dtype(frozenset(known) | (ANY if len(known) < len(alternatives(args[1])) else frozenset()))
    return TOP


@_handles("functools.partial")
def _partial(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    return Partial(args[0], tuple(args[1:]), tuple(keywords.items())) if args else TOP


@_handles("copy.deepcopy", "copy.copy")
def _copy(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    value = args[0] if args else TOP
    if isinstance(value, Ref) and value.key in machine.state.heap:
        copied = _copied(machine, value, expr.site, (*machine.frame, expr.site), {})
        machine.note("copy.deepcopy", expr.site, args, {}, copied)
        return copied
    return value


def _copied(
    machine: Machine, value: Value, site: int, key: tuple[Any, ...], done: dict[tuple[Any, ...], Ref]
) -> Value:
    """A copy of a value and of everything in it; tensors of modules say where they were copied."""
    if isinstance(value, Ref):
        thing = machine.state.heap.get(value.key)
        if thing is None or value.key in done:
            return done.get(value.key, value)
        ref = done[value.key] = Ref((*key, len(done)))
        fields = tuple((name, _copied(machine, each, site, key, done)) for name, each in thing.fields)
        machine.state.heap[ref.key] = replace(thing, fields=fields, site=site, is_copy=True)
        return ref
    if isinstance(value, Sequence_):
        return replace(value, items=tuple(_copied(machine, item, site, key, done) for item in value.items))
    if isinstance(value, Many):
        return Many(_copied(machine, value.element, site, key, done))
    if isinstance(value, Mapping_):
        items = tuple((name, _copied(machine, item, site, key, done)) for name, item in value.items)
        return Mapping_(items, value.rest)
    if isinstance(value, Tensor) and value.marks & IN_MODULE:
        return replace(value, op="deepcopy", site=site)
    return value


@_handles("torch.finfo", "torch.iinfo")
def _finfo(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    return Partial(Lib("torch.finfo"), tuple(args[:1]), ())


@_handles("torch.device")
def _device(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    kinds = {device_kind(v) for v in alternatives(args[0])} if args else {""}
    kinds = kinds - {"cpu"} if len(kinds) > 1 else kinds
    return Device(kinds.pop() if len(kinds) == 1 else "")


@_handles("torch.nn.Parameter", "torch.nn.parameter.Parameter", "torch.nn.Buffer")
def _parameter(
    machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    value = args[0] if args else keywords.get("data", TOP)
    found = value if isinstance(value, Tensor) else Tensor(ANY)
    frozen = keywords.get("requires_grad") == Py(False)
    mark = "buffer" if last(expr.func) == "Buffer" else "parameter"
    return replace(found, marks=found.marks | {mark} | ({"frozen"} if frozen else set()), op="", site=None)


@_handles("torch.is_autocast_enabled", "torch.is_autocast_cache_enabled")
def _is_enabled(
    machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    enabled = machine.ambient.enabled
    device = device_kind(args[0]) if args else "cuda"  # what torch asks about where no device is given
    if device != machine.rules.backend:
        return Number("bool")
    return Number("bool") if enabled is None else Py(enabled)


@_handles("torch.get_autocast_dtype", "torch.get_autocast_gpu_dtype")
def _autocast_dtype(
    machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    return Dtype(machine.ambient.dtypes) if machine.ambient.enabled else Dtype(frozenset((F16, BF16)))


@_handles("torch.get_default_dtype")
def _default_dtype(
    machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    return Dtype(machine.default)


@_handles("torch.set_default_dtype")
def _set_default(
    machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    given = args[0] if args else TOP
    machine.default = given.dtypes if isinstance(given, Dtype) else ANY
    return NONE


@_handles("contextlib.nullcontext")
def _nullcontext(
    machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    return Region("-", frozenset(), False, expr.site)


@_handles("torch.utils.checkpoint.checkpoint")
def _checkpoint(
    machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    if not args:
        return TOP
    known = {"use_reentrant", "preserve_rng_state", "determinism_check", "debug", "context_fn"}
    return machine.apply(args[0], args[1:], {k: v for k, v in keywords.items() if k not in known}, expr)


@_handles("torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard")
def _fully_shard(
    machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    policy = keywords.get("mp_policy")
    thing = machine.state.heap.get(policy.key) if isinstance(policy, Ref) else None
    dtype = thing.get("param_dtype") if thing is not None else None
    if args and isinstance(args[0], Ref) and isinstance(dtype, Dtype):
        machine.cast_module(args[0], dtype.dtypes, expr.site, f"FSDP computes in {one_of(dtype.dtypes)}")
    machine.note("torch.distributed.fsdp.fully_shard", expr.site, args, keywords, args[0] if args else TOP)
    return args[0] if args else TOP


@_handles("torch.distributed.fsdp.MixedPrecisionPolicy", "torch.distributed.fsdp.MixedPrecision",
          "torch.distributed._composable.fsdp.MixedPrecisionPolicy")  # fmt: skip
def _policy(machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call) -> Value:
    ref = Ref((*machine.frame, expr.site))
    machine.state.heap[ref.key] = Object(
        "torch.distributed.fsdp.MixedPrecision", tuple(keywords.items()), site=expr.site
    )
    machine.note("torch.distributed.fsdp.MixedPrecision", expr.site, args, keywords, ref)
    return ref
