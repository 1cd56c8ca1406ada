"""What calls of libraries' functions and classes do while a file is interpreted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from amplint.flow.precision.functions import FUNCTIONS
from amplint.flow.precision.lattice import ANY, BF16, F16, F32, UNKNOWN
from amplint.flow.precision.modules import make_module, make_optimizer, pretrained, unknown_result
from amplint.flow.precision.names import (
    AUTOCASTS,
    WRAPPERS,
    canonical,
    device_kind,
    one_of,
    operator_of,
    truth,
)
from amplint.flow.precision.operators import operators
from amplint.flow.precision.values import (
    NONE,
    TOP,
    Dtype,
    Number,
    Py,
    Region,
    Tensor,
    Value,
    alternatives,
)
from amplint.model import ir

if TYPE_CHECKING:
    from amplint.flow.precision.machine import Machine


def call(
    machine: Machine, name: str, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    """A call of a library's function or class."""
    name = canonical(name)
    if name in AUTOCASTS:
        return _region(machine, name, args, keywords, expr)
    handler = FUNCTIONS.get(name)
    if handler is not None:
        return handler(machine, args, keywords, expr)
    op = operator_of(name)
    if op is not None:
        return apply_operator(machine, op, args, keywords, expr, in_place=name.endswith("_"))
    if name.startswith("torch.nn.") and name.rpartition(".")[2][:1].isupper() and ".functional." not in name:
        return make_module(machine, name, args, keywords, expr)
    if name.startswith("torch.optim.") and name.rpartition(".")[2][:1].isupper():
        return make_optimizer(machine, name, args, keywords, expr)
    if name.endswith((".from_pretrained", ".from_single_file")):
        return pretrained(machine, args, keywords, expr)
    if name.rpartition(".")[2] in WRAPPERS and args:
        return args[0]
    if name.startswith(("math.", "random.", "time.")):
        return Number("int" if name in ("math.ceil", "math.floor", "random.randint") else "float")
    if name.endswith((".from_pretrained", ".from_single_file")):
        return pretrained(machine, args, keywords, expr)
    result: Value = TOP
    if name.startswith(("torch.fft.", "torch.stft", "torch.istft")):
        result = Tensor(ANY)
    machine.note(name, expr.site, args, keywords, result)
    for value in (*args, *keywords.values()):
        machine.escapes(value, name)
    if name.startswith("super."):
        return result
    return (
        unknown_result(machine, name, args, expr) if not name.startswith(("torch.", "builtins.")) else result
    )


def apply_operator(
    machine: Machine,
    op: str,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    expr: ir.Call,
    in_place: bool = False,
) -> Value:
    """Run an operator of the table, called as a function or method."""
    given = [*args]
    rest = dict(keywords)
    for name in ("input", "self", "tensors", "a"):
        if not given and name in rest:
            given.insert(0, rest.pop(name))
    if op in ("scaled_dot_product_attention",):
        given.extend(rest.pop(n) for n in ("query", "key", "value") if n in rest)
    if in_place and given and isinstance(given[0], Tensor):
        machine.note(op, expr.site, given, rest, given[0], "in place")
        return replace(given[0], op=op, site=expr.site)
    found = machine.operate(op, given, rest, expr.site)
    if op in ("arange", "range", "linspace") and isinstance(found, Tensor):
        return replace(
            found.marked("positions"), origin=expr.site, why=f"{op} makes it {one_of(found.dtypes)}"
        )
    if isinstance(found, Tensor) and found.origin is None and op in _MAKERS:
        return replace(found, origin=expr.site, why=f"made {one_of(found.dtypes)} here")
    return found


_MAKERS = frozenset(op for op, row in operators().items() if row.result in ("create", "full", "tensor"))


def _region(
    machine: Machine, name: str, args: Sequence[Value], keywords: Mapping[str, Value], expr: ir.Call
) -> Value:
    params, device = AUTOCASTS[name]
    given = {**dict(zip(params, args, strict=False)), **keywords}
    if not device:
        kinds = {device_kind(v) for v in alternatives(given.get("device_type", TOP))}
        kinds = kinds - {"cpu"} if len(kinds) > 1 else kinds
        device = kinds.pop() if len(kinds) == 1 else ""
    wanted = given.get("dtype")
    default = machine.dtypes_around(device) or frozenset((BF16 if device == "cpu" else F16,))
    dtypes: set[str] = set()
    for one in alternatives(wanted) if wanted is not None else (NONE,):
        if one == NONE:
            dtypes.update(default)
        elif isinstance(one, Dtype):
            dtypes.update((F16, BF16) if UNKNOWN in one.dtypes else one.dtypes)
        else:
            dtypes.update((F16, BF16))
    enabled = given.get("enabled", Py(True))
    flags = {truth(one) for one in alternatives(enabled)}
    is_on = flags != {False}
    cached = given.get("cache_enabled")
    if dtypes <= {F32}:
        is_on = False
    return Region(device, frozenset(dtypes) - {F32}, is_on, expr.site, cached != Py(False))
