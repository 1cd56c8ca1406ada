"""Attributes and methods of tensors, modules and containers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amplint.flow.lift import last
from amplint.flow.precision.functions import iterated
from amplint.flow.precision.lattice import ANY, FLOATS, INT64, NAMED, Dtypes, is_certain
from amplint.flow.precision.library import apply_operator, call
from amplint.flow.precision.modules import pretrained, unknown_result
from amplint.flow.precision.names import (
    AMBIGUOUS,
    CASTS,
    DEVICE_NAME,
    IN_MODULE,
    INTEGER_CASTS,
    LIMITS,
    MODULE_NAME,
    UNKNOWN_MODULE,
    canonical,
    has_parameters,
    one_of,
)
from amplint.flow.precision.operators import operators
from amplint.flow.precision.state import Object
from amplint.flow.precision.values import (
    NONE,
    TOP,
    Class,
    Device,
    Dtype,
    Either,
    Lib,
    Many,
    Mapping_,
    Method,
    Number,
    Partial,
    Py,
    Ref,
    Sequence_,
    Tensor,
    Top,
    Value,
    element_of,
    join,
    join_all,
)
from amplint.model import ir

if TYPE_CHECKING:
    from amplint.flow.precision.machine import Machine


#: What an optimizer keeps for each parameter: tensors whose dtype is that of the parameter.
_STATES = Mapping_((), Mapping_((), Tensor(ANY, marks=frozenset(("optimizer state",)))))
OPTIMIZER_STATE = Mapping_((("state", _STATES), ("param_groups", TOP)))
OPTIMIZER_NAME = re.compile(r"optim|^opts?$|_opt$|^opt_", re.IGNORECASE)


def is_optimizer(machine: Machine, thing: Object) -> bool:
    """Whether an object is an optimizer of torch, or of a class at hand that derives from one."""
    if not thing.is_own:
        return thing.cls.startswith("torch.optim.")
    return any(
        name.startswith("torch.optim.") for bases in machine.classes.foreign(thing.cls) for name in bases
    )


def attribute(machine: Machine, owner: Value, name: str, expr: ir.Attr) -> Value:
    """An attribute of a value that is no object of the files at hand."""
    if isinstance(owner, Tensor):
        return _tensor_attribute(machine, owner, name, expr)
    if isinstance(owner, Partial) and owner.func == Lib("torch.finfo") and name in LIMITS:
        dtypes = owner.args[0].dtypes if owner.args and isinstance(owner.args[0], Dtype) else ANY
        return Number("float", f"finfo.{name}", dtypes)
    if isinstance(owner, Device) and name in ("type", "index"):
        return Py(owner.kind) if owner.kind and name == "type" else Number()
    if isinstance(owner, Top):
        if name == "state" and OPTIMIZER_NAME.search(last(expr.value)):
            return _STATES
        if name == "dtype":
            return Dtype(ANY)
        if name == "device":
            return Device()
        if name in ("shape", "ndim"):
            return Many(Number("int")) if name == "shape" else Number("int")
    if isinstance(owner, Lib):
        return Lib(canonical(f"{owner.name}.{name}"))
    return TOP


def _tensor_attribute(machine: Machine, owner: Tensor, name: str, expr: ir.Attr) -> Value:
    if name == "dtype":
        return Dtype(owner.dtypes)
    if name == "device":
        return Device()
    if name in ("T", "mT", "H", "mH", "real", "imag"):
        turned = replace(
            owner, is_scalar=None if name in ("real", "imag") else owner.is_scalar, op=name, site=expr.site
        )
        machine.note(name, expr.site, (owner,), {}, turned)
        return turned
    if name == "data":
        return owner
    if name == "grad":
        # another tensor, whatever was done to make the one that it is the gradient of
        return replace(owner, op="grad", site=expr.site, marks=owner.marks - IN_MODULE | {"gradient"})
    if name == "shape":
        return Many(Number("int"))
    return Number() if name in ("ndim", "itemsize", "is_cuda", "is_leaf", "requires_grad") else TOP


def module_attribute(machine: Machine, owner: Ref, thing: Object, name: str, expr: ir.Attr) -> Value:
    """An attribute of an object that none of its own fields is."""
    if name == "state" and is_optimizer(machine, thing):
        return _STATES
    if not machine.is_module(owner):
        return TOP
    if name == "training":
        return Number("bool")
    if name in ("weight", "bias") and not thing.is_own and has_parameters(thing.cls):
        return Tensor(thing.params, False, thing.origin, thing.why, marks=frozenset(("parameter",)))
    if name == "dtype":
        found = list(machine.parameters_of(owner))
        return Dtype(frozenset().union(*(t.dtypes for t in found))) if found else Dtype(ANY)
    if name == "device":
        return Device()
    if name == "module":
        return owner
    return TOP


def module_item(machine: Machine, owner: Ref, index: Value) -> Value:
    """`modules[i]` of a container."""
    thing = machine.state.heap.get(owner.key)
    items = thing.get("[]") if thing is not None else None
    if isinstance(items, Sequence_):
        if (
            isinstance(index, Py)
            and isinstance(index.value, int)
            and -len(items.items) <= index.value < len(items.items)
        ):
            return items.items[index.value]
        return element_of(items)
    if isinstance(items, Mapping_):
        found = dict(items.items).get(index.value) if isinstance(index, Py) else None
        return found if found is not None else join_all([v for _, v in items.items] or [TOP])
    return element_of(items) if items is not None else TOP


def method(
    machine: Machine, func: Method, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    """A call of a method of something that is no function at hand."""
    owner, name = func.owner, func.name
    if isinstance(owner, Tensor):
        return _tensor_method(machine, owner, name, args, keywords, expr)
    if isinstance(owner, Ref):
        return _object_method(machine, owner, name, args, keywords, expr)
    if isinstance(owner, Class):
        return _class_method(machine, owner, name, args, keywords, expr)
    if isinstance(owner, (Sequence_, Many, Mapping_)):
        return _container_method(machine, owner, name, args)
    if isinstance(owner, Lib):
        if owner.name.startswith("builtins.str"):
            return Lib("builtins.str instance")
        return call(machine, f"{owner.name}.{name}", args, keywords, expr)
    if isinstance(owner, Py):
        return Lib("builtins.str instance") if isinstance(owner.value, str) else TOP
    if isinstance(owner, Partial) and owner.func == Lib("torch.finfo"):
        return TOP
    if isinstance(owner, Top):
        return _unknown_method(machine, name, args, keywords, expr)
    machine.note(f".{name}", expr.site, (owner, *args), keywords, TOP)
    return TOP


def _tensor_method(
    machine: Machine,
    owner: Tensor,
    name: str,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    expr: ir.Call,
) -> Value:
    if name in CASTS:
        return _cast(machine, owner, frozenset((CASTS[name],)), expr, name)
    if name in INTEGER_CASTS:
        whole = frozenset((INTEGER_CASTS[name],))
        cast = replace(owner, dtypes=whole, origin=None, why="", op="to", site=expr.site)
        machine.note("to", expr.site, (owner,), {"dtype": Dtype(whole)}, cast, name)
        return cast
    if name in ("to", "type", "type_as"):
        dtypes = _target(machine, owner.dtypes, args, keywords, expr, name)
        return _cast(machine, owner, dtypes, expr, name) if dtypes is not None else owner
    if name == "backward":
        machine.note("backward", expr.site, (owner, *args), keywords, NONE)
        return NONE
    if name in ("requires_grad_", "retain_grad", "register_hook"):
        return owner
    if name in ("cpu", "cuda", "npu", "xpu", "contiguous", "pin_memory"):
        return replace(owner, op=owner.op, site=owner.site)
    op = {"new": "new_empty", "logsigmoid": "log_sigmoid"}.get(name, name)
    if op not in operators():
        plain = name.removesuffix("_")
        if plain in operators() and name.endswith("_"):
            machine.note(plain, expr.site, (owner, *args), keywords, owner, "in place")
            shape = None if plain in ("squeeze", "unsqueeze") else owner.is_scalar
            return replace(owner, op=plain, site=expr.site, is_scalar=shape)
        if f"linalg_{name}" in operators():
            op = f"linalg_{name}"
        else:
            machine.note(f".{name}", expr.site, (owner, *args), keywords, TOP)
            return Tensor(ANY) if name.endswith("_") else TOP
    if op == "where" and args:  # `x.where(condition, other)`
        return apply_operator(machine, op, [args[0], owner, *args[1:]], keywords, expr)
    if op in ("item", "tolist", "numpy"):
        machine.note(op, expr.site, (owner, *args), keywords, Number())
        return Number("float" if owner.dtypes <= FLOATS else "") if op == "item" else TOP
    return apply_operator(machine, op, [owner, *args], keywords, expr)


def _cast(machine: Machine, owner: Tensor, dtypes: Dtypes, expr: ir.Call, name: str) -> Value:
    marks = owner.marks - {"parameter", "buffer", "output"} if dtypes != owner.dtypes else owner.marks
    if owner.dtypes <= {INT64} and is_certain(dtypes):
        marks = marks | {"integers"}
    changed = dtypes != owner.dtypes
    origin = expr.site if changed else owner.origin
    why = f"{name} makes it {one_of(dtypes)}" if changed else owner.why
    result = Tensor(dtypes, owner.is_scalar, origin, why, "to", expr.site, marks)
    machine.note("to", expr.site, (owner,), {"dtype": Dtype(dtypes)}, result, name)
    return result


def _target(
    machine: Machine,
    before: Dtypes,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    expr: ir.Call,
    name: str,
) -> Dtypes | None:
    """The dtype that `.to(..)` casts to; None where it casts nothing."""
    if "dtype" in keywords:
        given = keywords["dtype"]
        if given == NONE:
            return None
        if isinstance(given, Either):
            known = [v.dtypes for v in given.values if isinstance(v, Dtype)]
            none = any(v == NONE for v in given.values)
            return frozenset().union(
                *known, before if none else frozenset(), ANY if not known else frozenset()
            )
        return given.dtypes if isinstance(given, Dtype) else ANY
    if "other" in keywords and isinstance(keywords["other"], Tensor):
        return keywords["other"].dtypes
    positional = [a for a in expr.args if a.keyword is None and not a.star]
    for index, value in enumerate(args):
        if isinstance(value, Dtype):
            return value.dtypes
        if isinstance(value, Tensor):
            return value.dtypes
        if isinstance(value, Py) and isinstance(value.value, str) and name == "type":
            found = value.value.rpartition(".")[2].removesuffix("Tensor").lower()
            return frozenset((NAMED[found],)) if found in NAMED else ANY
        if isinstance(value, (Top, Either)) and index < len(positional):
            written = last(positional[index].value)
            if isinstance(value, Either) and all(isinstance(v, (Py, Device)) for v in value.values):
                continue
            if (isinstance(positional[index].value, ir.Attr) and written == "device") or DEVICE_NAME.search(
                written
            ):
                continue
            return ANY
    return None


def _object_method(
    machine: Machine,
    owner: Ref,
    name: str,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    expr: ir.Call,
) -> Value:
    thing = machine.state.heap.get(owner.key)
    if thing is None:
        return TOP
    if machine.is_module(owner):
        return _module_method(machine, owner, thing, name, args, keywords, expr)
    if is_optimizer(machine, thing):
        result = OPTIMIZER_STATE if name == "state_dict" else TOP
        machine.note(f"optimizer.{name}", expr.site, (owner, *args), keywords, result)
        return result
    machine.note(f".{name}", expr.site, (owner, *args), keywords, TOP)
    return unknown_result(machine, name, args, expr)


def _module_method(
    machine: Machine,
    owner: Ref,
    thing: Object,
    name: str,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    expr: ir.Call,
) -> Value:
    if name in CASTS:
        machine.cast_module(
            owner, frozenset((CASTS[name],)), expr.site, f"{name} makes the module {CASTS[name]}"
        )
        machine.note(
            "module.to", expr.site, (owner,), {"dtype": Dtype(frozenset((CASTS[name],)))}, owner, name
        )
        return owner
    if name in ("to", "type"):
        dtypes = _target(machine, ANY, args, keywords, expr, name)
        if dtypes is not None:
            machine.cast_module(owner, dtypes, expr.site, f"{name} makes the module {one_of(dtypes)}")
            machine.note("module.to", expr.site, (owner,), {"dtype": Dtype(dtypes)}, owner, name)
        return owner
    if name in ("cuda", "cpu", "npu", "xpu", "train", "eval", "requires_grad_", "share_memory", "to_empty"):
        machine.note(f"module.{name}", expr.site, (owner, *args), keywords, owner)
        if (name == "requires_grad_" and args and args[0] == Py(False)) or name == "eval":
            thing = machine.state.heap[owner.key]
            machine.state.heap[owner.key] = thing.with_field(f"<{name}>", Py(True))
        return owner
    if name == "state_dict" and not args and not keywords:
        tensors = list(machine.parameters_of(owner))
        return Mapping_((), join_all(tensors)) if tensors else TOP
    if name in ("parameters", "buffers"):
        found = list(machine.parameters_of(owner))
        return Many(join_all(found)) if found else Many(Tensor(ANY, marks=frozenset(("parameter",))))
    if name in ("named_parameters", "named_buffers"):
        found = list(machine.parameters_of(owner))
        tensor = join_all(found) if found else Tensor(ANY, marks=frozenset(("parameter",)))
        return Many(Sequence_((Lib("builtins.str instance"), tensor)))
    if name == "register_buffer" and len(args) > 1 and isinstance(args[0], Py):
        value = args[1]
        if isinstance(value, Tensor):
            value = replace(value, marks=value.marks | {"buffer"})
        machine.state.heap[owner.key] = machine.state.heap[owner.key].with_field(str(args[0].value), value)
        return NONE
    if name in ("register_parameter", "add_module") and len(args) > 1 and isinstance(args[0], Py):
        machine.state.heap[owner.key] = machine.state.heap[owner.key].with_field(str(args[0].value), args[1])
        return NONE
    if name == "forward":
        return machine.call_object(owner, args, keywords, expr)
    if name in ("append", "extend", "insert") and thing.get("[]") is not None and args:
        inner = thing.get("[]")
        added = element_of(args[-1]) if name == "extend" else args[-1]
        grown: Value = Many(
            added
            if inner == Sequence_((), "list") or inner == Sequence_(())
            else join(element_of(inner or TOP), added)
        )
        if isinstance(inner, Sequence_) and name == "append" and len(inner.items) < 16:
            grown = Sequence_((*inner.items, args[0]), inner.kind)
        machine.state.heap[owner.key] = thing.with_field("[]", grown)
        return NONE
    if name in ("values", "items", "keys", "children") and thing.get("[]") is not None:
        return iterated(machine, owner)
    machine.note(f"module.{name}", expr.site, (owner, *args), keywords, TOP)
    for value in args:
        machine.escapes(value, name)
    return TOP


def _class_method(
    machine: Machine,
    owner: Class,
    name: str,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    expr: ir.Call,
) -> Value:
    if name == "apply":  # an autograd.Function
        forward = machine.classes.method(owner.qualname, "forward")
        if forward is not None:
            function = machine.functions[forward]
            takes_context = machine.classes.method(owner.qualname, "setup_context") is None
            given = [TOP, *args] if takes_context else list(args)
            machine.note("function.apply", expr.site, (owner, *args), keywords, TOP)
            me = None if function.is_static else owner
            no_grad, machine.state.no_grad = machine.state.no_grad, True
            found = machine.invoke(forward, me, given, keywords, expr.site)
            machine.state.no_grad = no_grad
            return found
    if name == "from_pretrained" or name.startswith("from_"):
        return pretrained(machine, args, keywords, expr)
    return TOP


def _container_method(machine: Machine, owner: Value, name: str, args: Sequence[Value]) -> Value:
    if isinstance(owner, Mapping_):
        if name == "items":
            if owner.rest is None and len(owner.items) <= 8:
                return Sequence_(tuple(Sequence_((Py(k), v)) for k, v in owner.items), "list")
            values = [v for _, v in owner.items] + ([owner.rest] if owner.rest is not None else [])
            return Many(Sequence_((TOP, join_all(values))))
        if name == "values":
            if owner.rest is None:
                return Sequence_(tuple(v for _, v in owner.items), "list")
            return Many(join_all([*(v for _, v in owner.items), owner.rest]))
        if name in ("get", "pop") and args and isinstance(args[0], Py):
            given: dict[Any, Value] = dict(owner.items)
            missing = args[1] if len(args) > 1 else NONE
            return given.get(args[0].value, join(owner.rest, missing) if owner.rest is not None else missing)
        if name == "copy":
            return owner
    if name == "pop" and not isinstance(owner, Mapping_):
        return element_of(owner)
    return TOP


def _unknown_method(
    machine: Machine, name: str, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    """A method of something unknown, which may be a tensor."""
    assert isinstance(expr.func, ir.Attr)
    receiver = expr.func.value
    written = last(receiver)
    if name in ("half", "bfloat16") or (name in ("to", "float", "double") and MODULE_NAME.search(written)):
        is_model = bool(MODULE_NAME.search(written))
        dtypes = (
            frozenset((CASTS[name],)) if name in CASTS else _target(machine, ANY, args, keywords, expr, name)
        )
        if is_model and dtypes is not None:
            why = f"{name} makes the module {one_of(dtypes)}"
            ref = Ref(("?", *machine.frame, receiver.site))
            machine.state.heap[ref.key] = Object(UNKNOWN_MODULE, (), dtypes, expr.site, why, site=expr.site)
            machine.note("module.to", expr.site, (ref,), {"dtype": Dtype(dtypes)}, ref, name)
            return ref
        if not is_model and dtypes is not None:
            return _cast(machine, Tensor(ANY), dtypes, expr, name)
        return TOP
    if name in CASTS and not args:
        return _cast(machine, Tensor(ANY), frozenset((CASTS[name],)), expr, name)
    if name == "to":
        dtypes = _target(machine, ANY, args, keywords, expr, name)
        is_cast = dtypes is not None and dtypes != ANY
        return _cast(machine, Tensor(ANY), dtypes, expr, name) if is_cast and dtypes is not None else TOP
    if name == "type_as" or (name in operators() and name not in AMBIGUOUS and not name.startswith("new_")):
        return _tensor_method(machine, Tensor(ANY), name, args, keywords, expr)
    if name == "state_dict" and OPTIMIZER_NAME.search(written):
        return OPTIMIZER_STATE
    if name == "backward":
        machine.note("backward", expr.site, (TOP, *args), keywords, NONE)
        return NONE
    if name in ("from_pretrained", "from_single_file"):
        return pretrained(machine, args, keywords, expr)
    machine.note(f".{name}", expr.site, (TOP, *args), keywords, TOP)
    for value in (*args, *keywords.values()):
        machine.escapes(value, name)
    return unknown_result(machine, name, args, expr)
