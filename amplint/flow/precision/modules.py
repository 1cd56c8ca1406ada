"""What modules of torch.nn do, and models that are not looked into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from amplint.flow.lift import last
from amplint.flow.precision.lattice import ANY, BF16, F16
from amplint.flow.precision.names import CONTAINERS, MODULE_NAME, RECURRENT, UNKNOWN_MODULE, one_of
from amplint.flow.precision.operators import modules
from amplint.flow.precision.state import Object
from amplint.flow.precision.values import (
    NONE,
    TOP,
    Dtype,
    Many,
    Mapping_,
    Py,
    Ref,
    Sequence_,
    Tensor,
    Value,
    alternatives,
    either,
    tensors_in,
)
from amplint.model import ir

if TYPE_CHECKING:
    from amplint.flow.precision.machine import Machine


def make_module(
    machine: Machine, name: str, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    """A new module of torch.nn."""
    short = name.rpartition(".")[2]
    ref = Ref((*machine.frame, expr.site))
    given = keywords.get("dtype")
    params = given.dtypes if isinstance(given, Dtype) else machine.default if given in (None, NONE) else ANY
    why = f"made {one_of(params)} here" if isinstance(given, Dtype) else ""
    fields: list[tuple[str, Value]] = list(keywords.items())
    fields.extend((f"#{i}", value) for i, value in enumerate(args))
    if short in CONTAINERS:
        if len(args) == 1 and isinstance(args[0], (Sequence_, Many, Mapping_)):
            inner: Value = args[0]
        else:
            inner = Sequence_(tuple(args))
        fields = [("[]", inner)]
    machine.state.heap[ref.key] = Object(
        name, tuple(fields), params, expr.site if why else None, why, site=expr.site
    )
    machine.note(name, expr.site, args, keywords, ref)
    return ref


def call_module(
    machine: Machine,
    ref: Ref,
    thing: Object,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    expr: ir.Call,
) -> Value:
    """What calling a module of torch gives, or an object that is not looked into."""
    short = thing.cls.rpartition(".")[2]
    if thing.cls == UNKNOWN_MODULE or thing.is_own:
        return _output(machine, expr, args, thing)
    if short == "Sequential":
        return _sequential(machine, thing, args, expr)
    if short == "Identity":
        return args[0] if args else TOP
    if short in RECURRENT or short == "MultiheadAttention":
        return _recurrent(machine, thing, args, expr)
    row = modules().get(short)
    if row is None:
        return _output(machine, expr, args, thing)
    op, has_own = row
    rest = {**{k: v for k, v in thing.fields if k in ("reduction", "approximate", "eps", "mode")}, **keywords}
    operands = [*args]
    if (has_own and op in ("linear", "prelu", "bilinear")) or op.startswith("conv"):
        operands = [
            *operands[:1],
            Tensor(thing.params, False, thing.origin, thing.why, marks=frozenset(("parameter",))),
        ]
    elif op in ("embedding", "embedding_bag"):
        operands = [*operands[:1], Tensor(thing.params, False, thing.origin, thing.why)]
    elif op in ("layer_norm", "group_norm", "batch_norm", "instance_norm", "rms_norm"):
        rest["weight"] = Tensor(thing.params, False, thing.origin, thing.why)
    elif op == "pad":
        modes = {"Reflection": "reflect", "Replication": "replicate", "Circular": "circular"}
        rest["mode"] = Py(
            next((mode for start, mode in modes.items() if short.startswith(start)), "constant")
        )
    found = machine.operate(op, operands, rest, expr.site, f"module {short}")
    if op == "linear" and isinstance(found, Tensor) and args and not tensors_in(args[0]):
        return replace(found, dtypes=found.dtypes | (ANY if not machine.ambient.enabled else frozenset()))
    return found


def _sequential(machine: Machine, thing: Object, args: Sequence[Value], expr: ir.Call) -> Value:
    inner = thing.get("[]")
    value: Value = args[0] if args else TOP
    if isinstance(inner, Mapping_):
        inner = Sequence_(tuple(v for _, v in inner.items)) if inner.rest is None else None
    if not isinstance(inner, Sequence_):
        return _output(machine, expr, args, thing)
    for item in inner.items:
        value = either([machine.apply(one, [value], {}, expr) for one in alternatives(item)])
    return value


def _recurrent(machine: Machine, thing: Object, args: Sequence[Value], expr: ir.Call) -> Value:
    ambient = machine.ambient
    dtypes = (
        ambient.dtypes
        if ambient.enabled
        else thing.params
        if ambient.enabled is False
        else thing.params | ANY
    )
    found = Tensor(
        dtypes, False, expr.site if ambient.enabled else thing.origin, thing.why, marks=frozenset(("output",))
    )
    machine.note(thing.cls, expr.site, args, {}, found)
    return Sequence_((found, TOP)) if not thing.cls.endswith("Cell") else found


def _output(machine: Machine, expr: ir.Call, args: Sequence[Value], thing: Object | None) -> Value:
    """What a module gives that is not looked into: in a region it may be low precision."""
    ambient = machine.ambient
    origin: int | None
    params = thing.params if thing is not None else frozenset()
    low = frozenset(d for d in params if d in (F16, BF16))
    if ambient.enabled:
        dtypes, origin, why = (
            ambient.dtypes | ANY,
            expr.site,
            f"computed in an autocast region of {one_of(ambient.dtypes)}",
        )
    elif low and thing is not None and ambient.enabled is False:
        dtypes, origin, why = low | ANY, thing.origin, thing.why
    else:
        return TOP
    found = Tensor(dtypes, None, origin, why, marks=frozenset(("output",)))
    machine.note("model", expr.site, args, {}, found)
    return found


def call_unknown(
    machine: Machine, func: Value, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    """A call of something that is not known."""
    name = last(expr.func)
    for value in (*args, *keywords.values()):
        machine.escapes(value, name)
    return unknown_result(machine, name, args, expr)


def unknown_result(machine: Machine, name: str, args: Sequence[Value], expr: ir.Call) -> Value:
    """What a call gives that is not looked into: a model may give low precision."""
    if MODULE_NAME.search(name.rpartition(".")[2]) and (args or expr.args) and not name[:1].isupper():
        return _output(machine, expr, args, None)
    return TOP


def make_optimizer(
    machine: Machine, name: str, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    """A new optimizer of torch."""
    ref = Ref((*machine.frame, expr.site))
    given = args[0] if args else keywords.get("params", TOP)
    machine.state.heap[ref.key] = Object(name, (("params", given),), site=expr.site)
    machine.note(name, expr.site, args, keywords, ref)
    return ref


def pretrained(
    machine: Machine, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    """A model that is loaded, which is not looked into."""
    given = keywords.get("torch_dtype", keywords.get("dtype"))
    if not isinstance(given, Dtype):
        return TOP
    ref = Ref((*machine.frame, expr.site))
    why = f"from_pretrained loads it in {one_of(given.dtypes)}"
    machine.state.heap[ref.key] = Object(UNKNOWN_MODULE, (), given.dtypes, expr.site, why, site=expr.site)
    machine.note("from_pretrained", expr.site, args, keywords, ref)
    return ref
