"""Runs any operator on the CPU's view of its arguments: the kernel of every operator without one of its own."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from amplint.simnpu import blocklist, counters, rng, saturation
from amplint.simnpu.memory import adopt, as_cpu, as_npu, inputs, is_npu

#: Operators whose result, or its shape, depends on values: the host waits for it.
_SYNCHRONIZING = {
    "aten::_unique2",
    "aten::equal",
    "aten::masked_select",
    "aten::nonzero",
    "aten::repeat_interleave",
    "aten::unique_consecutive",
    "aten::unique_dim",
}
#: Indexing takes indices from the CPU too.
_INDEXING = {"aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put"}
#: Put given values into place: an Inf among them is no overflow.
_PLACING = {"aten::fill_", "aten::masked_fill", "aten::masked_fill_", "aten::where", "aten::fill", *_INDEXING}
_MATMUL = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::addmv", "aten::mv", "aten::dot"}


@dataclass(frozen=True)
class _Argument:
    """Where a call carries one argument of the schema."""

    position: int
    name: str
    keyword_only: bool

    def of(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if not self.keyword_only and self.position < len(args):
            return args[self.position]
        return kwargs.get(self.name)

    def replace(self, args: list[Any], kwargs: dict[str, Any], value: Any) -> None:
        if not self.keyword_only and self.position < len(args):
            args[self.position] = value
        else:
            kwargs[self.name] = value


@dataclass(frozen=True)
class _Plan:
    """What the schema of an operator says about a call."""

    name: str
    written: tuple[_Argument, ...]
    #: Per result, the argument that is returned as it is, or None for a new tensor.
    results: tuple[_Argument | None, ...]
    generator: _Argument | None


@functools.cache
def _plan(op: Any) -> _Plan:
    schema = op._schema
    arguments = [
        (_Argument(index, each.name, each.kwarg_only), each) for index, each in enumerate(schema.arguments)
    ]
    written = {
        frozenset(each.alias_info.before_set): argument
        for argument, each in arguments
        if each.alias_info is not None and each.alias_info.is_write
    }
    results = tuple(
        written.get(frozenset(each.alias_info.before_set))
        if each.alias_info is not None and each.alias_info.is_write
        else None
        for each in schema.returns
    )
    generator = next((argument for argument, each in arguments if each.name == "generator"), None)
    return _Plan(schema.name, tuple(written.values()), results, generator)


def run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run `op` on the CPU and return its results as NPU tensors; what it writes is written in place.

    Raises:
        NotImplementedError: if the operator is blocked.
        RuntimeError: for CPU tensors next to NPU tensors (those without dimensions aside), and for bfloat16 on
            a chip without it.
    """
    plan = _plan(op)
    counters.ops[plan.name] += 1
    blocklist.refuse(plan.name)
    _check_tensors(plan.name, [*args, *kwargs.values()])
    _count_sync(plan.name, args)

    cpu_args = [inputs(each) for each in args]
    cpu_kwargs = {name: inputs(each) for name, each in kwargs.items()}
    if plan.generator is not None and plan.generator.of(cpu_args, cpu_kwargs) is None:
        plan.generator.replace(cpu_args, cpu_kwargs, rng.default())
    resized = _fresh_outputs(plan, args, kwargs, cpu_args, cpu_kwargs)
    out = _compute(op, plan, cpu_args, cpu_kwargs)
    if saturation.enabled:
        raises = plan.name not in _PLACING
        saturation.clamp(out, raises)
        saturation.clamp([each.of(cpu_args, cpu_kwargs) for each in plan.written], raises)
    for npu, cpu in resized:
        if cpu.shape != npu.shape:
            adopt(npu, cpu)
        else:
            as_cpu(npu).copy_(cpu)

    if not plan.results:
        return None
    if len(plan.results) == 1:
        return _result(plan.results[0], out, args, kwargs)
    return tuple(_result(each, one, args, kwargs) for each, one in zip(plan.results, out, strict=True))


def _result(same_as: _Argument | None, out: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return results(out) if same_as is None else same_as.of(args, kwargs)


def results(out: Any) -> Any:
    """`out` with every CPU tensor in it, at any depth of lists, as an NPU tensor."""
    if isinstance(out, torch.Tensor):
        return as_npu(out)
    if isinstance(out, (list, tuple)):
        return [results(each) for each in out]
    return out


def _check_tensors(name: str, values: Sequence[Any]) -> None:
    seen = {"npu": False, "cpu": False}
    for value in values:
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(tensor, torch.Tensor):
                continue
            if tensor.device.type == "npu":
                seen["npu"] = True
                if tensor.dtype is torch.bfloat16:
                    check_bf16(name)
            elif tensor.dim() > 0:
                seen["cpu"] = True
    if seen["npu"] and seen["cpu"] and name not in _INDEXING:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, npu:0 and cpu! "
            f"(when checking arguments of {name})"
        )


#: Whether the simulated chip has bfloat16; set once by `install`.
bf16_supported = True


def check_bf16(name: str) -> None:
    """Raise if the chip has no bfloat16.

    Raises:
        RuntimeError: naming the operator.
    """
    if not bf16_supported:
        raise RuntimeError(f"{name}: bfloat16 is not supported by this NPU")


def _count_sync(name: str, args: Sequence[Any]) -> None:
    if name in _SYNCHRONIZING:
        counters.sync(name)
    elif name == "aten::_index_put_impl_":  # reading with a mask calls `nonzero` by itself
        masks = [each for each in args[1] if is_npu(each) and each.dtype in (torch.bool, torch.uint8)]
        if masks:
            counters.sync("aten::nonzero")


def _fresh_outputs(
    plan: _Plan, args: Sequence[Any], kwargs: dict[str, Any], cpu_args: list[Any], cpu_kwargs: dict[str, Any]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Put CPU tensors that can grow in the place of `out=` tensors that the kernel may resize.

    An `out=` of another size than the result is resized by the kernel, which memory from DLPack does not
    allow; those in use are empty, or scalars as in `mse_loss`.
    """
    fresh = []
    for argument in plan.written:
        npu = argument.of(args, kwargs)
        if argument.keyword_only and isinstance(npu, torch.Tensor) and npu.numel() <= 1:
            cpu = torch.empty(0, dtype=npu.dtype)
            argument.replace(cpu_args, cpu_kwargs, cpu)
            fresh.append((npu, cpu))
    return fresh


def _compute(op: Any, plan: _Plan, args: list[Any], kwargs: dict[str, Any]) -> Any:
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    # of several dtypes: the kernel refuses them
    if plan.name in _MATMUL and any(map(is_half, tensors)) and len({each.dtype for each in tensors}) == 1:
        return _through_float32(op, plan, args, kwargs)
    try:
        return op(*args, **kwargs)
    except RuntimeError as error:
        # some CPU kernels know float32 only, where the NPU has a float16 one
        if "not implemented for 'Half'" not in str(error):
            raise
        return _through_float32(op, plan, args, kwargs)


def is_half(tensor: torch.Tensor) -> bool:
    """Whether `tensor` is float16."""
    return tensor.dtype is torch.float16


def _through_float32(op: Any, plan: _Plan, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Compute with float16 arguments as float32 and round the results once.

    That is what a matrix unit does with float16 (products are added up in float32), and some ten times faster
    than the CPU's float16 matrix product.
    """
    wide_args = [_widened(each) for each in args]
    wide_kwargs = {name: _widened(each) for name, each in kwargs.items()}
    out = op(*wide_args, **wide_kwargs)
    for argument in plan.written:
        _copy_back(argument.of(args, kwargs), argument.of(wide_args, wide_kwargs))
    return _narrowed(out)


def _copy_back(narrow: Any, wide: Any) -> None:
    if isinstance(narrow, list):
        for one, other in zip(narrow, wide, strict=True):
            _copy_back(one, other)
    elif isinstance(narrow, torch.Tensor) and narrow is not wide:
        if narrow.shape != wide.shape:
            narrow.resize_(wide.shape)
        narrow.copy_(wide)


def _widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if is_half(value) else value
    if isinstance(value, (list, tuple)):
        return [_widened(each) for each in value]
    return value


def _narrowed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.half() if value.dtype is torch.float32 else value
    if isinstance(value, (list, tuple)):
        return [_narrowed(each) for each in value]
    return value
