"""Autocast of the simulated NPU: the operator lists of torch_npu, and PyTorch's rules for each kind of list.

The lists are read from `amplint/facts/autocast_ops.tsv`; the rules are those of `ATen/autocast_mode.h`, the
cache of cast weights included.
"""

from __future__ import annotations

import csv
import io
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import resources
from typing import Any, cast

import torch

#: Policy -> how a kernel with it is made from an operator.
Maker = Callable[[Any], Callable[..., Any]]

_low_precision: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
_KEY = cast(Any, torch._C.DispatchKey).AutocastPrivateUse1  # the stubs lack it
_AUTOCAST = torch._C.DispatchKeySet(_KEY)


def policies() -> dict[str, str]:
    """Operator (`aten::name.overload`) -> policy, for every operator that torch_npu's autocast touches."""
    text = resources.files("amplint.facts").joinpath("autocast_ops.tsv").read_text(encoding="utf-8")
    rows = csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)
    return {row["op"]: row["npu"] for row in rows if row["npu"] != "-"}


def kernels() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Operator without namespace, and its kernel for the autocast key.

    Operators that the installed PyTorch does not have are left out.

    Raises:
        KeyError: for a policy in the table that is none of PyTorch's.
    """
    for qualified, policy in policies().items():
        name = qualified.removeprefix("aten::")
        op = operator(name)
        if op is not None:
            yield name, _MAKERS[policy](op)


def operator(name: str) -> Any:
    """The operator `aten::name` or `aten::name.overload` of this PyTorch, or None."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


def clear_cache() -> None:
    """Forget the cast weights; `torch.autocast` does so when the outermost region ends."""
    _low_precision.clear()


def _lower(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return _call(op, args, kwargs, _dtype())

    return kernel


def _fp32(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return _call(op, args, kwargs, torch.float32)

    return kernel


def _promote(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return _call(op, args, kwargs, _widest(_tensors([*args, *kwargs.values()])))

    return kernel


def _fp32_set_opt_dtype(op: Any) -> Callable[..., Any]:
    position = [each.name for each in op._schema.arguments].index("dtype")
    keyword_only = op._schema.arguments[position].kwarg_only

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = kwargs.get("dtype") if keyword_only or position >= len(args) else args[position]
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            if given is None and _eligible(args[0]):
                return op(*args[:position], **{**kwargs, "dtype": torch.float32})
            return op(*args, **kwargs)

    return kernel


def _fp32_append_dtype(op: Any) -> Callable[..., Any]:
    """Call the overload that differs in a last argument `dtype`, with float32 for it."""
    schema = op._schema
    prefix = ["ScalarOpt", "dim"] if schema.overload_name.endswith("_dim") else ["ScalarOpt"]
    with_dtype = operator(f"{schema.name.removeprefix('aten::')}.{'_'.join(prefix)}_dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        # the overload without dtype has defaults that the one with it lacks
        rest = [each.default_value for each in schema.arguments[len(args) :] if each.name not in kwargs]
        named = {each.name: kwargs[each.name] for each in schema.arguments if each.name in kwargs}
        dtype = torch.float32 if _eligible(args[0]) else args[0].dtype
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return with_dtype(*args, *rest, **named, dtype=dtype)

    return kernel


def _banned(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. Use "
            "binary_cross_entropy_with_logits or BCEWithLogitsLoss, which are safe to autocast."
        )

    return kernel


_MAKERS: dict[str, Maker] = {
    "lower_precision_fp": _lower,
    "fp32": _fp32,
    "promote": _promote,
    "fp32_set_opt_dtype": _fp32_set_opt_dtype,
    "fp32_append_dtype": _fp32_append_dtype,
    "banned": _banned,
}


def _call(op: Any, args: Sequence[Any], kwargs: dict[str, Any], dtype: torch.dtype) -> Any:
    return op(
        *[_cast(each, dtype) for each in args], **{name: _cast(each, dtype) for name, each in kwargs.items()}
    )


def _dtype() -> torch.dtype:
    return torch.get_autocast_dtype("npu")


def _eligible(value: object) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "npu"
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, (list, tuple)):
        return [_cast(each, dtype) for each in value]
    if not _eligible(value) or value.dtype is dtype:
        return value
    if not _cacheable(value, dtype):
        return value.to(dtype)
    known = _low_precision.get(id(value))
    if known is not None and known[0]() is value:
        return known[1]
    cast = value.to(dtype)
    _low_precision[id(value)] = (weakref.ref(value), cast)
    return cast


def _cacheable(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    return (
        dtype is _dtype()
        and tensor.dtype is torch.float32
        and tensor.requires_grad
        and tensor.is_leaf
        and not tensor._is_view()
        and torch.is_autocast_cache_enabled()
    )


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif _eligible(value):
            yield value


def _widest(tensors: Iterable[torch.Tensor]) -> torch.dtype:
    lower = widest = _dtype()
    for tensor in tensors:
        if torch.float32 in (widest, tensor.dtype):
            widest = torch.float32
        elif tensor.dtype is not lower:
            raise RuntimeError(f"Unexpected floating ScalarType {tensor.dtype} in at::autocast::prioritize")
    return widest
