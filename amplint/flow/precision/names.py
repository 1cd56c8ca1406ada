"""Names of PyTorch's and Python's functions, and what is known of them by name."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from amplint import facts
from amplint.flow.precision.lattice import BF16, F16, F32, FLOATS, NAMED, UNKNOWN, Dtypes
from amplint.flow.precision.operators import modules, operators
from amplint.flow.precision.values import (
    Device,
    Py,
    Tensor,
    Value,
)

if TYPE_CHECKING:
    from amplint.flow.precision.machine import Machine

NO_GRAD = frozenset(
    ("torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.inference_mode")
)
#: Methods that change the dtype of a tensor or module.
CASTS = {"half": F16, "bfloat16": BF16, "float": F32, "double": "float64"}
INTEGER_CASTS = {"long": "int64", "int": "int", "short": "int", "bool": "bool", "char": "int", "byte": "int"}
NUMBERS = {
    "math.pi": math.pi,
    "math.e": math.e,
    "math.inf": math.inf,
    "torch.pi": math.pi,
    "torch.inf": math.inf,
    "numpy.pi": math.pi,
    "numpy.inf": math.inf,
    "sys.float_info.epsilon": sys.float_info.epsilon,
    "sys.float_info.max": sys.float_info.max,
    "sys.float_info.min": sys.float_info.min,
}
#: Names of contexts that may enter a region.
MAY_ENTER = re.compile(r"autocast|amp\b|_amp|amp_|precision|mixed|fp16|bf16|half", re.IGNORECASE)
#: Methods that every module has, and that say nothing of what is in it.
MODULE_METHODS = frozenset(
    (
        *(
            "to",
            "half",
            "bfloat16",
            "float",
            "double",
            "cuda",
            "npu",
            "cpu",
            "xpu",
            "train",
            "eval",
            "parameters",
        ),
        *(
            "named_parameters",
            "state_dict",
            "load_state_dict",
            "requires_grad_",
            "zero_grad",
            "training",
            "apply",
        ),
    )
)
#: What a module's own tensors are marked with.
IN_MODULE = frozenset(("parameter", "buffer"))
UNKNOWN_MODULE = "?"
#: A region of one is looked at as one of the other, too: as it is before and after a port.
ACCELERATORS = frozenset(("cuda", "npu"))
_MODULE_BASES = ("torch.nn.", "pytorch_lightning.", "lightning.", "transformers.", "diffusers.", "timm.")
MODULE_NAME = re.compile(
    r"model|net\b|_net|net_|\bnet|unet|encoder|decoder|backbone|generator|discriminator|policy|actor|critic"
    r"|student|teacher|transformer|resnet|vae\b|\bgpt|bert\b",
    re.IGNORECASE,
)
DEVICE_NAME = re.compile(r"dev|rank|gpu|cuda|npu|cpu", re.IGNORECASE)
LIMITS = ("min", "max", "eps", "tiny", "smallest_normal", "resolution")
#: Wrappers that give back the module that they are given.
WRAPPERS = frozenset(
    (
        "DistributedDataParallel",
        "DataParallel",
        "DDP",
        "compile",
        "convert_sync_batchnorm",
        "script",
        "checkpoint_wrapper",
    )
)
#: Methods of tensors that other things have as well.
AMBIGUOUS = frozenset(
    (
        *(
            "max",
            "min",
            "all",
            "any",
            "split",
            "index",
            "sort",
            "select",
            "item",
            "equal",
            "fill",
            "trace",
            "inner",
        ),
        *(
            "mode",
            "take",
            "flip",
            "roll",
            "unique",
            "eye",
            "size",
            "pad",
            "expand",
            "repeat",
            "t",
            "load",
            "normal",
        ),
        *(
            "view",
            "stack",
            "range",
            "diff",
            "cpu",
            "cuda",
            "npu",
            "to",
            "tolist",
            "add",
            "mul",
            "sub",
            "div",
            "pow",
        ),
        *(
            "dot",
            "reshape",
            "norm",
            "step",
            "numpy",
            "clone",
            "detach",
            "copy",
            "normalize",
            "interpolate",
            "dropout",
        ),
        *("linear", "gather", "scatter", "sum", "mean"),
    )
)
_PLACES = (
    "torch.",
    "torch.nn.functional.",
    "torch.Tensor.",
    "torch.special.",
    "torch.functional.",
    "torch._C._nn.",
)
_SPECIAL = {
    "expit": "sigmoid",
    "expm1": "expm1",
    "logsigmoid": "log_sigmoid",
    "scaled_modified_bessel_k0": "",
}
_OTHER_OPERATORS = {
    "logsigmoid": "log_sigmoid",
    "smooth_l1": "smooth_l1_loss",
    "tanh_": "tanh",
    "concat": "cat",
    "max_pool2d_with_indices": "max_pool2d",
}
#: Functions of `torch` that take other arguments, or give other things, than those of `torch.nn.functional`; so do
#: all losses, whose reduction is a number there.
_DIFFERS = frozenset(("embedding", "embedding_bag", "adaptive_max_pool1d"))
RECURRENT = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell")
CONTAINERS = ("Sequential", "ModuleList", "ModuleDict", "ParameterList")
AUTOCASTS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "torch.autocast": (("device_type", "dtype", "enabled", "cache_enabled"), ""),
    "torch.cuda.amp.autocast": (("enabled", "dtype", "cache_enabled"), "cuda"),
    "torch.cpu.amp.autocast": (("enabled", "dtype", "cache_enabled"), "cpu"),
    "torch.npu.amp.autocast": (("enabled", "dtype", "cache_enabled"), "npu"),
    "torch_npu.npu.amp.autocast": (("enabled", "dtype", "cache_enabled"), "npu"),
    "amplint.runtime.autocast": (("enabled", "dtype", "cache_enabled"), ""),
}
#: Marks that stay with a tensor through operators that only move or scale its elements.
_LASTING = frozenset(("output", "positions", "frequencies", "integers", "sigmoid", "frozen"))
_ARITHMETIC = frozenset(("add", "sub", "mul", "div", "outer", "einsum", "matmul", "ger", "bmm"))
#: What makes frequencies of positions, and what leaves them frequencies.
_RAISES = ("pow", "float_power", "exp")
_TURNS = ("reciprocal", "cat", "stack")
_KEEPS = frozenset(("keep", "list", "getitem", "clamp", "values"))


def canonical(name: str) -> str:
    """The name under which a function of a library is known."""
    return facts.aliases().get(name, name)


def dtype_named(name: str) -> str | None:
    """The dtype of a qualified name such as `torch.half`."""
    root, _, rest = name.partition(".")
    return NAMED.get(rest) if root == "torch" else None


def is_autocast(name: str) -> bool:
    """Whether a qualified name is a class of autocast regions."""
    return canonical(name) in AUTOCASTS


def is_floating(dtype: str) -> bool:
    """Whether casts of a module change tensors of this dtype."""
    return dtype in FLOATS or dtype == UNKNOWN


def is_module_class(name: str) -> bool:
    """Whether a base class makes its subclasses torch modules."""
    return name.startswith(_MODULE_BASES)


def has_parameters(cls: str) -> bool:
    """Whether a module of torch has parameters of its own."""
    last_name = cls.rpartition(".")[2]
    if last_name in RECURRENT or last_name in ("MultiheadAttention", UNKNOWN_MODULE):
        return True
    return modules().get(last_name, ("", False))[1]


def is_namedtuple(machine: Machine, klass: str) -> bool:
    """Whether instances are tuples, enums or exceptions, of which nothing is followed."""
    return any(
        name in ("typing.NamedTuple", "enum.Enum", "builtins.Exception", "builtins.dict", "builtins.list")
        for bases in machine.classes.foreign(klass)
        for name in bases
    )


def kept_marks(op: str, operands: Sequence[Tensor]) -> set[str]:
    """The marks of operands that are true of the result."""
    found = {mark for t in operands for mark in t.marks & _LASTING}
    row = operators().get(op)
    if row is not None and row.result not in _KEEPS and op != "getitem":
        before = found
        found = before & {"positions", "frequencies", "frozen"} if op in _ARITHMETIC else set()
        if ("positions" in before and op in _RAISES) or ("frequencies" in before and op in _TURNS):
            found.add("frequencies")
    if op == "sigmoid" or op == "softmax":
        found.add("sigmoid" if op == "sigmoid" else "softmax")
    return found


def operator_of(name: str) -> str | None:
    """The operator that a qualified function is, if it is one of the table."""
    if name.startswith("torch.linalg."):
        found = f"linalg_{name.rpartition('.')[2]}"
        found = {"linalg_norm": "linalg_vector_norm", "linalg_matmul": "matmul"}.get(found, found)
        return found if found in operators() else None
    place, _, short = name.rpartition(".")
    if f"{place}." not in _PLACES:
        return None
    if place == "torch" and (
        short in _DIFFERS or (short in operators() and operators()[short].shape == "loss")
    ):
        return None
    short = _SPECIAL.get(short, short) if place == "torch.special" else _OTHER_OPERATORS.get(short, short)
    if short in operators():
        return short
    plain = short.removesuffix("_")
    return plain if plain in operators() else None


def one_of(dtypes: Dtypes) -> str:
    """Dtypes in words."""
    return " or ".join(sorted(d for d in dtypes if d != UNKNOWN)) or "of some dtype"


def truth(value: Value) -> bool | None:
    """The truth of a flag, where it is known."""
    return bool(value.value) if isinstance(value, Py) else None


def device_kind(value: Value) -> str:
    """The kind of device that a value names, "" where it is not known."""
    if isinstance(value, Py) and isinstance(value.value, str):
        return value.value.partition(":")[0]
    return value.kind if isinstance(value, Device) else ""
