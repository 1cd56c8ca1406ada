"""What PyTorch's operators make of their operands' dtypes, inside and outside autocast regions.

The tables are `facts/tensor_ops.tsv` (result of each operator), `autocast_ops.tsv` (the lists of CUDA and NPU),
`autocast_ops_cpu.tsv` and `nn_modules.tsv`; this module has the rules that they name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce

from amplint import facts
from amplint.flow.precision.lattice import (
    ANY,
    BF16,
    BOOL,
    COMPLEX,
    F16,
    F32,
    FLOATS,
    INT,
    INT64,
    UNKNOWN,
    Dtypes,
    kind,
    pairs,
    promoted_all,
)
from amplint.flow.precision.values import (
    TOP,
    Dtype,
    Many,
    Number,
    Py,
    Sequence_,
    Tensor,
    Top,
    Value,
    number_kind,
    tensors_in,
)

CUDA, NPU, CPU = "cuda", "npu", "cpu"
#: rms_norm is in CUDA's list of operators that run in float32 from this version on.
RMS_NORM_LISTED = (2, 12)
_REDUCED_BY = ("dim", "axis")


@dataclass(frozen=True, slots=True)
class Ambient:
    """What autocast does where an operator runs."""

    #: None: there may be a region around, or none.
    enabled: bool | None = False
    dtypes: Dtypes = frozenset()
    #: Where the region is made.
    site: int | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """A row of the table."""

    name: str
    result: str
    shape: str
    parts: tuple[str, ...]


@cache
def operators() -> Mapping[str, Operator]:
    """Operator -> its row."""
    rows = facts.table("tensor_ops")
    return {r["op"]: Operator(r["op"], r["result"], r["shape"], tuple(r["parts"].split())) for r in rows}


@cache
def modules() -> Mapping[str, tuple[str, bool]]:
    """Class of `torch.nn` -> (the operator that its forward is, whether it has parameters)."""
    return {row["module"]: (row["op"], row["parameters"] == "yes") for row in facts.table("nn_modules")}


@cache
def _category(backend: str, op: str, torch: tuple[int, int]) -> str:
    """The list of a backend's autocast that an operator is in: "fp32", "lower", "promote", "banned", "set", or ""."""
    if backend == CPU:
        found = next(
            (r["category"] for r in facts.table("autocast_ops_cpu") if r["op"] == f"aten::{op}"), "-"
        )
    else:
        rows = (r for r in facts.table("autocast_ops") if r["op"].partition(".")[0] == f"aten::{op}")
        found = next((r[backend] for r in rows), "-")
        if op == "rms_norm" and backend == CUDA and torch < RMS_NORM_LISTED:
            found = "-"
    return {
        "lower_precision_fp": "lower",
        "fp32_set_opt_dtype": "set",
        "fp32_append_dtype": "append",
        "-": "",
    }.get(found, found)


_OTHER_NAMES = {
    "norm": "linalg_vector_norm",
    "concat": "cat",
    "concatenate": "cat",
    "vstack": "cat",
    "hstack": "cat",
}


def category(backend: str, op: str, torch: tuple[int, int]) -> str:
    """The autocast list of an operator, or of the first listed one that it is made of."""
    found = operators().get(op)
    for name in (op, *(found.parts if found is not None else ()), _OTHER_NAMES.get(op, "")):
        listed = _category(backend, name, torch) if name else ""
        if listed:
            return listed
    return ""


def pools(op: str, args: Sequence[Value], keywords: Mapping[str, Value]) -> bool:
    """Whether `interpolate` is called with the mode that is an adaptive pooling, which no list names."""
    mode = keywords.get("mode", args[3] if len(args) > 3 else None)
    return op in ("interpolate", "upsample") and mode == Py("area")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one backend and torch version."""

    backend: str = CUDA
    torch: tuple[int, int] = (2, 13)

    def apply(
        self, op: str, args: Sequence[Value], keywords: Mapping[str, Value], ambient: Ambient, default: Dtypes
    ) -> Value:
        """What `op` gives. Raises `KeyError` for an operator that is not in the table."""
        row = operators()[op]
        if ambient.enabled is False or row.result in ("python", "sizes", "create", "full", "tensor"):
            return _plain(row, args, keywords, default)
        if isinstance(keywords.get("out"), Tensor):  # autocast does not know operators that write into `out`
            return _plain(row, args, keywords, default)
        listed = "" if pools(op, args, keywords) else category(self.backend, op, self.torch)
        may_be_unlisted = False
        if op in _BY_ARGUMENTS:
            listed, may_be_unlisted = _BY_ARGUMENTS[op](self.backend, listed, args, keywords)
        if not listed:
            return self._unlisted(row, args, keywords, ambient, default)
        inside = self._listed(listed, row, args, keywords, ambient, default)
        if ambient.enabled and not may_be_unlisted:
            return inside
        outside = _plain(row, args, keywords, default)
        return outside if inside == outside else _either(inside, outside)

    def _unlisted(
        self,
        row: Operator,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
        ambient: Ambient,
        default: Dtypes,
    ) -> Value:
        if row.result == "normalize" and self.backend != CPU and args:
            # a norm, which is lifted, divides the input
            x = _tensor(args[0])
            norm = Tensor(frozenset(_lifted(d) for d in x.dtypes), False)
            found = pairs(x.dtypes, norm.dtypes, False, False)
            return Tensor(found if ambient.enabled else found | x.dtypes, False)
        return _plain(row, args, keywords, default)

    def _listed(
        self,
        listed: str,
        row: Operator,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
        ambient: Ambient,
        default: Dtypes,
    ) -> Value:
        if listed == "banned":
            return _plain(row, args, keywords, default)
        if listed in ("set", "append"):
            given = keywords.get("dtype")
            if given is not None or not args:
                return _plain(row, args, keywords, default)
            lifted = [_changed(value, lambda dtype: frozenset((_lifted(dtype),))) for value in args]
            return _plain(row, lifted, keywords, default)
        low = ambient.dtypes
        if listed == "lower":  # what is not known is cast like what is
            args = [Tensor(ANY) if isinstance(v, Top) and i < 2 else v for i, v in enumerate(args)]
        if listed == "promote":
            operands = [t for value in (*args, *keywords.values()) for t in tensors_in(value)]
            low = _widest([t.dtypes for t in operands], low)

        def change(dtype: str) -> Dtypes:
            if listed == "fp32":
                return frozenset((_lifted(dtype),))
            return low if dtype in (F16, BF16, F32, UNKNOWN) else frozenset((dtype,))

        return _plain(
            row,
            [_changed(value, change) for value in args],
            {name: _changed(value, change) for name, value in keywords.items()},
            default,
        )


def _lifted(dtype: str) -> str:
    return F32 if dtype in (F16, BF16) else dtype


def _widest(dtypes: Sequence[Dtypes], low: Dtypes) -> Dtypes:
    """The dtype that promoting operators cast to: the widest of the operands' and the region's."""
    found = low
    for each in dtypes:
        eligible = frozenset(d for d in each if d in (F16, BF16, F32, UNKNOWN))
        found = pairs(found, eligible, False, False) if eligible else found
    return found


def _changed(value: Value, change: Callable[[str], Dtypes]) -> Value:
    if isinstance(value, Tensor):
        found: frozenset[str] = frozenset().union(*map(change, value.dtypes))
        return Tensor(found, value.is_scalar, value.origin, value.why, value.op, value.site, value.marks)
    if isinstance(value, Sequence_):
        return Sequence_(tuple(_changed(item, change) for item in value.items), value.kind)
    if isinstance(value, Many):
        return Many(_changed(value.element, change))
    return value


def _either(first: Value, second: Value) -> Value:
    from amplint.flow.precision.values import join

    return join(first, second)


def _div_list(
    backend: str, listed: str, args: Sequence[Value], keywords: Mapping[str, Value]
) -> tuple[str, bool]:
    """A number divided by a tensor is a reciprocal and a product."""
    is_reversed = bool(args) and isinstance(args[0], (Py, Number))
    return category(backend, "reciprocal", RMS_NORM_LISTED) if is_reversed else listed, False


def _einsum_list(
    backend: str, listed: str, args: Sequence[Value], keywords: Mapping[str, Value]
) -> tuple[str, bool]:
    """The CPU's autocast does not know it: bmm or mm makes the product, or a plain one where no index is summed."""
    operands = [t for value in args for t in tensors_in(value)]
    if backend != CPU:
        return listed, False
    is_one = len(operands) == 1 and not any(isinstance(value, Many) for value in args)
    return "" if is_one else listed, True


def _inner_list(
    backend: str, listed: str, args: Sequence[Value], keywords: Mapping[str, Value]
) -> tuple[str, bool]:
    """`inner` multiplies by a tensor without dimensions; the CPU has `dot` of vectors."""
    shapes = {t.is_scalar for value in (*args, *keywords.values()) for t in tensors_in(value)}
    if True in shapes:
        return "", False
    return listed, None in shapes or backend == CPU


def _pad_list(
    backend: str, listed: str, args: Sequence[Value], keywords: Mapping[str, Value]
) -> tuple[str, bool]:
    """The CPU's autocast lists the operators behind two of the modes of `pad`."""
    mode = args[2] if len(args) > 2 else keywords.get("mode", Py("constant"))
    if backend != CPU or (isinstance(mode, Py) and mode.value not in ("reflect", "replicate")):
        return listed, False
    return "fp32", not isinstance(mode, Py)


def _interpolate_list(
    backend: str, listed: str, args: Sequence[Value], keywords: Mapping[str, Value]
) -> tuple[str, bool]:
    """One of the modes is a pooling, which no list has."""
    mode = args[3] if len(args) > 3 else keywords.get("mode", Py("nearest"))
    if mode == Py("area"):
        return "", False
    return listed, bool(listed) and not isinstance(mode, Py)


#: Operators whose list depends on the arguments: the list, and whether it may be none.
_BY_ARGUMENTS: Mapping[str, Callable[[str, str, Sequence[Value], Mapping[str, Value]], tuple[str, bool]]] = {
    "div": _div_list,
    "einsum": _einsum_list,
    "linalg_vecdot": lambda backend, listed, args, keywords: (listed, backend == NPU),
    "inner": _inner_list,
    "interpolate": _interpolate_list,
    "pad": _pad_list,
    "tensordot": _einsum_list,
}


# -- without autocast -----------------------------------------------------------------------------------------


def _tensor(value: Value) -> Tensor:
    found = tensors_in(value)
    return found[0] if found else Tensor(ANY)


def _dtype_argument(args: Sequence[Value], keywords: Mapping[str, Value]) -> Dtypes | None:
    given = keywords.get("dtype")
    if given is None or given == Py(None):
        given = next((a for a in args[1:] if isinstance(a, Dtype)), None)
    if given is None:
        return None
    return given.dtypes if isinstance(given, Dtype) else ANY


def _floating(dtypes: Dtypes, default: Dtypes) -> Dtypes:
    """Integers become the default dtype."""
    found: set[str] = set()
    for dtype in dtypes:
        found.update(default if 0 <= kind(dtype) < 2 else (dtype,))
    return frozenset(found)


def _plain(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    result = _RESULTS[row.result](row, args, keywords, default)
    if not isinstance(result, Tensor):
        return result
    out = keywords.get("out")
    if isinstance(out, Tensor):
        return Tensor(out.dtypes, result.is_scalar)
    return result


def _shape(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value]) -> bool | None:
    if row.shape == "some":
        return False
    if row.shape == "same":
        known = [t.is_scalar for a in args for t in tensors_in(a)]
        known.extend(None for a in args if isinstance(a, Top))
        if not known:
            return None
        if any(each is False for each in known):
            return False
        return True if all(each is True for each in known) else None
    if row.shape == "reduce":
        keep = keywords.get("keepdim")
        if isinstance(keep, Py) and keep.value is True:
            return False
        if row.name == "linalg_matrix_norm":  # over two of the dimensions
            return None
        given = [a for a in args[1:] if not isinstance(a, (Dtype, Tensor))]
        if row.name in ("norm", "linalg_vector_norm") and given:
            given = given[1:]
        if (
            row.name in ("std", "var")
            and given
            and isinstance(given[0], Py)
            and isinstance(given[0].value, bool)
        ):
            given = given[1:]
        if not given and not any(name in keywords for name in _REDUCED_BY):
            return True
        return None
    if row.shape == "loss":
        reduction = keywords.get("reduction")
        if isinstance(reduction, Py):
            return True if reduction.value in ("mean", "sum", "batchmean") else None
        return True if reduction is None and "reduce" not in keywords else None
    return None


def _keep(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    first = _tensor(args[0]) if args else Tensor(ANY)
    given = _dtype_argument(args, keywords)
    shape = first.is_scalar
    if row.shape != "same" or (row.name == "masked_fill" and shape is not False):
        shape = _shape(row, [*args, *(keywords[n] for n in ("mask",) if n in keywords)], keywords)
    if row.name in _RESHAPED:
        shape = _reshaped(args[1:])
    elif row.name in ("expand_as", "view_as", "reshape_as"):
        shape = _tensor(args[1]).is_scalar if len(args) > 1 else None
    return Tensor(first.dtypes if given is None else given, shape)


_RESHAPED = ("reshape", "view", "expand", "broadcast_to")


def _reshaped(sizes: Sequence[Value]) -> bool | None:
    """Whether a new shape is none at all."""
    if len(sizes) != 1 or isinstance(sizes[0], (Py, Number)):
        return False if sizes else None
    return not sizes[0].items if isinstance(sizes[0], Sequence_) else None


def _float(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    found = _keep(row, args, keywords, default)
    assert isinstance(found, Tensor)
    return Tensor(_floating(found.dtypes, default), found.is_scalar)


def _sum(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    found = _keep(row, args, keywords, default)
    assert isinstance(found, Tensor)
    if _dtype_argument(args, keywords) is not None:
        return found
    return Tensor(frozenset(INT64 if 0 <= kind(d) < 2 else d for d in found.dtypes), found.is_scalar)


def _scalar_dtypes(value: Value, others: Dtypes, default: Dtypes) -> Dtypes | None:
    """What a Python number does to operands of these dtypes; None for what is no number."""
    given = number_kind(value)
    if not isinstance(value, (Py, Number)) or (
        isinstance(value, Py) and not isinstance(value.value, (int, float))
    ):
        return None
    found: set[str] = set()
    for dtype in others:
        if given == "float" and 0 <= kind(dtype) < 2:
            found.update(default)
        elif given == "int" and dtype == BOOL:
            found.add(INT64)
        elif given == "" and 0 <= kind(dtype) < 2:
            found.update((dtype, UNKNOWN))
        else:
            found.add(dtype)
    return frozenset(found)


def _promote(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    operands = [
        *args,
        *(
            v
            for k, v in keywords.items()
            if k in ("input", "self", "other", "exponent", "tensor1", "tensor2", "end")
        ),
    ]
    if row.name in ("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack"):
        operands = operands[:1]
        if operands and isinstance(operands[0], Many):
            operands = [operands[0].element]
    shape = _shape(row, [o for o in operands if not isinstance(o, (Py, Number))], keywords)
    if row.name == "where":
        operands = operands[1:]
    elif row.name == "square":
        operands.append(Py(2))
    elif row.name in ("kron", "hstack", "vstack", "dstack", "column_stack"):
        items = [i for o in operands for i in (o.items if isinstance(o, Sequence_) else (o,))]
        operands = [Tensor(_tensor(item).dtypes, False) for item in items]
    found: list[tuple[Dtypes, bool | None]] = []
    numbers: list[Value] = []
    for operand in operands:
        for item in operand.items if isinstance(operand, Sequence_) else (operand,):
            if isinstance(item, (Py, Number)):
                numbers.append(item)
            else:
                each = tensors_in(item) or (Tensor(ANY),)
                found.extend((tensor.dtypes, tensor.is_scalar) for tensor in each)
    if not found:
        return Tensor(ANY, None)
    dtypes = promoted_all(found)
    for number in numbers:
        dtypes = _scalar_dtypes(number, dtypes, default) or dtypes
    return Tensor(dtypes, shape)


def _divide(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    found = _promote(row, args, keywords, default)
    assert isinstance(found, Tensor)
    mode = keywords.get("rounding_mode")
    if mode is not None and mode != Py(None):
        return found
    return Tensor(_floating(found.dtypes, default), found.is_scalar)


def _agree(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    """Operators whose operands have one dtype; where they do not, the call fails."""
    operands = [t for a in args for t in tensors_in(a)]
    if row.name in ("addmm", "addmv", "addbmm", "baddbmm", "scaled_dot_product_attention"):
        operands = operands[:3]
    if row.name == "linear" or row.name.startswith("conv"):
        operands = operands[:2]
    known = [t.dtypes for t in operands if t.dtypes != ANY]
    if row.name == "einsum" and len(operands) == 1 and not operands[0].dtypes <= FLOATS:
        return Tensor(ANY)  # which may be a sum
    if len(known) < len(operands) or not known:
        evidence: frozenset[str] = frozenset().union(*known) if known else frozenset()
        return Tensor(evidence | ANY, _agree_shape(row, operands))
    same = reduce(frozenset.__and__, known)
    return Tensor(same or ANY, _agree_shape(row, operands))


def _agree_shape(row: Operator, operands: Sequence[Tensor]) -> bool | None:
    if row.name in ("matmul", "dot", "vdot", "inner", "einsum", "tensordot", "linalg_vecdot"):
        return None
    return _false(row)


def _false(row: Operator) -> bool | None:
    return False if row.shape == "some" else None


def _loss(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    count = 3 if row.name in ("triplet_margin_loss", "margin_ranking_loss") else 2
    operands = [*args[:count], *(keywords[n] for n in ("input", "target") if n in keywords)]
    found: list[tuple[Dtypes, bool | None]]
    if row.name in ("nll_loss", "ctc_loss", "multi_margin_loss", "multilabel_margin_loss"):
        operands = operands[:1]
    elif row.name == "cross_entropy":  # of classes, or of probabilities
        operands = [*operands[:1], *(o for o in operands[1:] if _tensor(o).dtypes <= FLOATS)]
    elif row.name in ("huber_loss", "soft_margin_loss", "hinge_embedding_loss"):
        operands = operands[:1]
    elif row.name == "binary_cross_entropy_with_logits":  # made of the target in place
        operands = operands[1:2]
    elif row.name in ("l1_loss", "mse_loss", "smooth_l1_loss"):  # which broadcast before anything else
        operands = [Tensor(t.dtypes, False) for operand in operands for t in tensors_in(operand)]
    asked = operands if row.name == "cosine_embedding_loss" else operands[:1]
    if any(_tensor(operand).dtypes.isdisjoint((*FLOATS, UNKNOWN)) for operand in asked):
        return Tensor(ANY, _shape(row, args, keywords))
    found = []
    for operand in operands:
        tensor = _tensor(operand)
        floats = frozenset(d for d in tensor.dtypes if d in FLOATS or d == UNKNOWN)
        if floats:
            found.append((floats, tensor.is_scalar))
    return Tensor(promoted_all(found) if found else ANY, _shape(row, args, keywords))


def _values(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    first = _tensor(args[0]) if args else Tensor(ANY)
    others = [a for a in (*args[1:], keywords.get("other")) if a is not None and tensors_in(a)]
    if row.name in ("max", "min") and others:
        return _promote(operators()["maximum"], [first, *others], {}, default)
    if row.name in ("max", "min") and TOP in args[1:2]:
        return TOP  # a dimension, or another tensor
    if (
        row.shape == "reduce"
        and len(args) == 1
        and "dim" not in keywords
        and row.name not in ("mode", "aminmax")
    ):
        return Tensor(first.dtypes, True)
    shape = first.is_scalar if row.shape == "same" else None
    second = Tensor(first.dtypes if row.name == "aminmax" else frozenset((INT64,)), shape)
    return Sequence_((Tensor(first.dtypes, shape), second))


def _list(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    if row.name == "broadcast_tensors":
        shape = _shape(operators()["add"], args, {})
        return Sequence_(tuple(Tensor(_tensor(each).dtypes, shape) for each in args))
    return Many(Tensor(_tensor(args[0]).dtypes if args else ANY, None))


def _create(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    given = _dtype_argument(args, keywords)
    shape = True if row.name == "scalar_tensor" else _sized(args, keywords)
    return Tensor(given if given is not None else default, shape)


def _sized(args: Sequence[Value], keywords: Mapping[str, Value]) -> bool | None:
    """Whether sizes are none at all."""
    if Sequence_(()) in args or Sequence_((), "list") in args or keywords.get("size") == Sequence_(()):
        return True
    return False if args or keywords else None


def _full(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    given = _dtype_argument(args, keywords)
    named = [keywords[name] for name in ("start", "end", "step") if name in keywords]
    numbers = [keywords["fill_value"]] if "fill_value" in keywords else [*args, *named]
    if row.name == "full" and len(args) > 1:
        numbers = [args[1]]
    is_scalar = row.name == "full" and bool(
        _sized(args[:1], {n: v for n, v in keywords.items() if n == "size"})
    )
    if given is not None:
        return Tensor(given, is_scalar)
    kinds = {number_kind(n) for n in numbers if isinstance(n, (Py, Number))}
    if len(kinds) < 1 or len(numbers) > len([n for n in numbers if isinstance(n, (Py, Number))]):
        return Tensor(default | ANY, is_scalar)
    if "float" in kinds:
        return Tensor(default, is_scalar)
    if "" in kinds:
        return Tensor(default | {INT64, BOOL}, is_scalar)
    return Tensor(frozenset((BOOL if kinds == {"bool"} else INT64,)), is_scalar)


def _of_data(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    given = _dtype_argument(args, keywords)
    data = args[0] if args else keywords.get("data")
    is_number = isinstance(data, (Py, Number))
    if given is not None:
        return Tensor(given, True if is_number else None)
    if isinstance(data, Tensor):
        return Tensor(data.dtypes, data.is_scalar)
    kinds = _kinds_in(data) if data is not None else {"?"}
    shape = True if is_number else False if isinstance(data, (Sequence_, Many)) else None
    if "?" in kinds or not kinds:
        return Tensor(ANY, shape)
    if "float" in kinds:
        return Tensor(default, shape)
    if "" in kinds:
        return Tensor(default | {INT64, BOOL}, shape)
    return Tensor(frozenset((BOOL if kinds == {"bool"} else INT64,)), shape)


def _kinds_in(value: Value) -> set[str]:
    if isinstance(value, (Py, Number)):
        return (
            {number_kind(value)}
            if not isinstance(value, Py) or isinstance(value.value, (int, float))
            else {"?"}
        )
    if isinstance(value, Sequence_):
        return set().union(*map(_kinds_in, value.items)) if value.items else {"float"}
    if isinstance(value, Many):
        return _kinds_in(value.element)
    return {"?"}


def _like(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    first = _tensor(args[0]) if args else Tensor(ANY)
    given = _dtype_argument(args, keywords)
    shape = first.is_scalar if row.name.endswith("_like") else False
    if row.name.startswith("new_") and len(args) > 1 and args[1] == Sequence_(()):
        shape = True
    if row.name == "new_tensor":
        shape = None
    return Tensor(first.dtypes if given is None else given, shape)


def _unique(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    first = Tensor(_tensor(args[0]).dtypes if args else ANY, False)
    flags = [args[2] if len(args) > 2 else keywords.get("return_inverse", Py(False))]
    flags.append(args[3] if len(args) > 3 else keywords.get("return_counts", Py(False)))
    if any(not isinstance(flag, Py) for flag in flags):
        return TOP
    more = [Tensor(frozenset((INT64,)), None) for flag in flags if flag != Py(False)]
    return Sequence_((first, *more)) if more else first


def _pooled(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    first = Tensor(_tensor(args[0]).dtypes if args else ANY, False)
    position = 2 if row.name.startswith("adaptive") else 6
    flag = args[position] if len(args) > position else keywords.get("return_indices", Py(False))
    if not isinstance(flag, Py):
        return TOP
    return first if not flag.value else Sequence_((first, Tensor(frozenset((INT64,)), False)))


def _truth(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    given = _tensor(args[0]).dtypes if args else ANY
    # `all` and `any` of uint8 are uint8
    return Tensor(frozenset((BOOL, INT) if INT in given else (BOOL,)), _shape(row, args, keywords))


def _nonzero(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    found = Tensor(frozenset((INT64,)), False)
    flag = keywords.get("as_tuple", Py(False))
    if not isinstance(flag, Py):
        return TOP
    return Many(found) if flag.value else found


def _normal(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    given = [*args[:2], *(keywords[n] for n in ("mean", "std") if n in keywords)]
    found = [value for value in given if isinstance(value, Tensor)]
    if not found and all(isinstance(value, (Py, Number)) for value in given):
        return _create(row, args, keywords, default)
    dtypes = _floating(found[0].dtypes, default) if found else ANY
    return Tensor(dtypes, None if len(found) != 1 else found[0].is_scalar)


def _sizes(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    return Number("int") if len(args) > 1 or keywords else Many(Number("int"))


def _clamp(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    operands = [*args, *(keywords[n] for n in ("min", "max") if n in keywords)]
    given = [o for o in operands if o != Py(None)]
    return _promote(operators()["maximum"], given, {}, default)


def _weight(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    weight = args[1] if len(args) > 1 else keywords.get("weight")
    return Tensor(_tensor(weight).dtypes if weight is not None else ANY, False)


def _difference(
    row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes
) -> Value:
    found = _divide(operators()["div"], args[:2], {}, default)
    assert isinstance(found, Tensor)
    return Tensor(found.dtypes, None)


def _normalize(row: Operator, args: Sequence[Value], keywords: Mapping[str, Value], default: Dtypes) -> Value:
    return _keep(row, args[:1], {}, default)


_Result = Callable[[Operator, Sequence[Value], Mapping[str, Value], Dtypes], Value]
_RESULTS: Mapping[str, _Result] = {
    "keep": _keep,
    "float": _float,
    "sum": _sum,
    "promote": _promote,
    "divide": _divide,
    "agree": _agree,
    "loss": _loss,
    "values": _values,
    "list": _list,
    "create": _create,
    "full": _full,
    "tensor": _of_data,
    "like": _like,
    "clamp": _clamp,
    "weight": _weight,
    "norm_of_difference": _difference,
    "normalize": _normalize,
    "unique": _unique,
    "pooled": _pooled,
    "nonzero": _nonzero,
    "truth": _truth,
    "indices": lambda row, args, keywords, default: Tensor(
        _dtype_argument((), keywords) or frozenset((INT64,)), _sized(args, keywords)
    ),
    "normal": _normal,
    "sizes": _sizes,
    "logical": _promote,
    "bool": lambda row, args, keywords, default: Tensor(frozenset((BOOL,)), _shape(row, args, keywords)),
    "int64": lambda row, args, keywords, default: Tensor(frozenset((INT64,)), _shape(row, args, keywords)),
    "complex": lambda row, args, keywords, default: Tensor(frozenset((COMPLEX,))),
    "python": lambda row, args, keywords, default: Number(),
    "unknown": lambda row, args, keywords, default: Tensor(ANY),
}
