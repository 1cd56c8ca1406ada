"""Mixed precision on whichever accelerator is present, with the signatures of ``torch.cuda.amp``.

Code written for ``torch.cuda.amp`` needs only another import to run on any accelerator that PyTorch knows,
an Ascend NPU (``torch_npu``) among them::

    from amplint.runtime import GradScaler, autocast

On CUDA the numbers stay what they were.  Without an accelerator AMP is disabled, as ``torch.cuda.amp`` is
without CUDA: CPU autocast is never switched on from here.

This file is all of the shim.  It runs on Python 3.8 and PyTorch 2.1 or newer, imports PyTorch and the
standard library only, and may be copied into a project under any name.  Importing it touches no device;
``torch_npu`` is imported, where installed, the first time that somebody asks for the device.

Behaviour described as "since 2.x" was read from the PyTorch release of that number.
"""

# amplint: file-ignore[AMP1] stands in for torch.cuda.amp, and so has to name it
import contextlib
import functools
import importlib
import os
import sys
import types
import warnings
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ContextManager,
    Dict,
    Optional,
    Tuple,
    Type,
    TypeVar,
    Union,
    cast,
    overload,
)

import torch
import torch.cuda.amp

if TYPE_CHECKING:
    from torch.amp.grad_scaler import GradScaler as _BaseScaler
else:
    # torch.amp.GradScaler takes the device as its first argument and exists since 2.3; before, the class of
    # torch.cuda.amp is the implementation itself, and knows CUDA only.
    _BaseScaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)

__all__ = [
    "GradScaler",
    "Stream",
    "autocast",
    "current_device",
    "current_stream",
    "custom_bwd",
    "custom_fwd",
    "device",
    "device_count",
    "device_type",
    "dist_backend",
    "empty_cache",
    "get_autocast_dtype",
    "get_rng_state",
    "is_autocast_enabled",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "memory_allocated",
    "pin_memory",
    "reset_peak_memory_stats",
    "set_device",
    "set_rng_state",
    "stream",
    "synchronize",
]

_Method = TypeVar("_Method", bound=Callable[..., Any])


# ------------------------------------------------------------------------------------------------ the device


def device_type() -> str:
    """Return the type of the accelerator that AMP applies to: ``"cuda"``, ``"npu"``, ``"xpu"``, ...

    Without an accelerator this is ``"cuda"``, for which PyTorch leaves AMP disabled.  It is therefore the
    device type for AMP and not always a place for tensors: that is :func:`device`.

    The answer is not cached, so that it is right after a later import of ``torch_npu``.  Asking creates no
    device context.
    """
    return _available_accelerator() or "cuda"


def device() -> torch.device:
    """Return the device to put tensors on: the accelerator, without an index, or the CPU if there is none."""
    return torch.device(_available_accelerator() or "cpu")


def _available_accelerator() -> Optional[str]:
    current = _current_accelerator()
    if current is not None:
        return current.type
    if _npu_is_available():
        return "npu"
    return "cuda" if torch.cuda.is_available() else None


def _current_accelerator() -> Optional[torch.device]:
    """The device that ``torch.accelerator`` (since 2.6) reports, if usable; None before 2.6."""
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return None
    try:
        return cast(Optional[torch.device], accelerator.current_accelerator(check_available=True))
    except TypeError:  # 2.6 has no check_available: it reports what PyTorch was built for
        pass
    try:
        built_for = accelerator.current_accelerator()
    except RuntimeError:  # 2.6 may raise where there is none
        return None
    if built_for is None or built_for.type == "cpu":
        return None
    usable = torch.get_device_module(built_for).is_available()
    return cast(torch.device, built_for) if usable else None


def _npu_is_available() -> bool:
    if not hasattr(torch, "npu"):
        _torch_npu()
    npu = getattr(torch, "npu", None)
    return npu is not None and bool(npu.is_available())


def _torch_npu() -> Optional[types.ModuleType]:
    return sys.modules.get("torch_npu") or _import_torch_npu()


@functools.lru_cache(maxsize=None)
def _import_torch_npu() -> Optional[types.ModuleType]:
    try:
        return importlib.import_module("torch_npu")
    except ModuleNotFoundError as error:
        if error.name == "torch_npu":
            return None
        reason: Exception = error
    except (
        Exception
    ) as error:  # ImportError, OSError or RuntimeError, as the part of CANN that is missing has it
        reason = error
    warnings.warn(f"torch_npu is installed but cannot be imported, so no NPU is used: {reason}", stacklevel=2)
    return None


# -------------------------------------------------------------------------------------------------- autocast


class autocast(torch.autocast):
    """Run a region in mixed precision on the current accelerator; context manager and decorator.

    Takes what ``torch.cuda.amp.autocast`` takes, in the same order (``torch.autocast`` takes the device first
    and ``dtype`` before ``enabled``).  The device is decided when the object is made, so for a decorator when
    the decorated function is defined.  Without an accelerator the region is disabled with a ``UserWarning``.

    Under ``torch.compile``, making one inside the compiled function breaks the graph; decorators and objects
    made outside do not (2.3, 2.6 and 2.13).

    Args:
        enabled: False makes the region one without autocast.
        dtype: dtype of the lower-precision operations.  It is float16 on every device unless given, although
            the default of ``torch.autocast`` differs by device.
        cache_enabled: whether casts of weights are kept until the outermost region ends.

    Raises:
        RuntimeError: for bfloat16 on a CUDA device that lacks it.  Other devices warn and disable the region.
    """

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.float16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__(device_type(), enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)

    def __call__(self, func: _Method) -> _Method:
        """Return ``func`` wrapped so that each call runs in this region."""
        # torch.autocast.__call__ has no annotations
        return cast(_Method, super().__call__(func))  # type: ignore[no-untyped-call]


def is_autocast_enabled() -> bool:
    """Return whether autocast is on, in this thread, for the current accelerator.

    Before 2.14 ``torch.is_autocast_enabled()`` without an argument asks about CUDA on every machine, and so is
    False inside a region on an NPU.  Naming the device is possible since 2.4; before, ``torch_npu`` has a
    function of its own.
    """
    kind = device_type()
    if _autocast_state_takes_device():
        return bool(torch.is_autocast_enabled(kind))
    if kind == "npu":
        return bool(cast(Any, torch).npu.is_autocast_enabled())
    return bool(torch.is_autocast_enabled())


def get_autocast_dtype() -> torch.dtype:
    """Return the dtype that autocast uses for the current accelerator, whether or not it is on.

    ``torch.get_autocast_gpu_dtype()`` answers for CUDA on every machine.
    """
    kind = device_type()
    if _autocast_state_takes_device():
        return torch.get_autocast_dtype(kind)
    if kind == "npu":
        return cast(torch.dtype, cast(Any, torch).npu.get_autocast_dtype())
    return torch.get_autocast_gpu_dtype()


def _autocast_state_takes_device() -> bool:
    # since 2.4, in which is_autocast_enabled also learnt to take a device type
    return hasattr(torch, "get_autocast_dtype")


# ------------------------------------------------------------------------------------------------ GradScaler


class GradScaler(_BaseScaler):
    """Scale the loss, skip steps whose gradients overflowed and adapt the scale, on the current accelerator.

    Takes what ``torch.cuda.amp.GradScaler`` takes, in the same order (``torch.amp.GradScaler`` takes the
    device first, ``torch_npu``'s takes ``dynamic`` before ``enabled``).  An instance is one of
    ``torch.amp.GradScaler`` where that class exists (since 2.3).  The device is decided when the object is
    made or unpickled.  Without an accelerator the scaler is disabled with a ``UserWarning``, and ``scale``
    returns its argument.

    On an NPU an instance is one of ``torch_npu.npu.amp.GradScaler`` as well where PyTorch's own would be
    wrong: if PyTorch is older than 2.3, and on chips whose float16 saturates instead of becoming Inf (Ascend
    910A), on which only a status flag of the device tells of an overflow.  To ask the chip, an enabled scaler
    initialises the NPU: choose the device (``torch.npu.set_device``) before making one.

    Args:
        init_scale: first loss scale (a factor, without unit).
        growth_factor: what the scale is multiplied by after ``growth_interval`` steps without overflow.
        backoff_factor: what the scale is multiplied by after a step with overflow.
        growth_interval: steps in a row without overflow before the scale grows.
        enabled: False makes ``step`` call ``optimizer.step`` and the other methods do nothing.

    Raises:
        AssertionError: if enabled and ``growth_factor <= 1`` or ``backoff_factor >= 1``; newer releases of
            ``torch_npu``'s scaler raise ``ValueError``.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        kind = device_type()
        npu_scaler = _npu_scaler() if enabled and kind == "npu" else None
        if npu_scaler is not None and not isinstance(self, npu_scaler):
            # Which scaler is right is known only now, and a subclass has perhaps begun its own __init__.  So
            # the object moves to a class in which torch_npu's methods come between its own and PyTorch's.
            self.__class__ = _on_top_of(npu_scaler, type(self))
        device_argument: Dict[str, Any] = (
            {"device": kind} if npu_scaler is None and _scaler_takes_device() else {}
        )
        super().__init__(
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
            **device_argument,
        )

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Take over a state that ``state_dict()`` returned, whichever device it was saved on.

        Raises:
            RuntimeError: if the state is empty, as that of a disabled scaler is, and this scaler is enabled.
        """
        # torch_npu requires the key "dynamic", which only it writes; PyTorch ignores the key.
        super().load_state_dict({"dynamic": True, **state_dict} if state_dict else state_dict)

    def __reduce__(self) -> Tuple[Any, ...]:
        cls = type(self)
        return _without_init, (cls.__dict__.get("_declared_class", cls),), self.__getstate__()

    def __setstate__(self, state: Dict[str, Any]) -> None:
        # As in PyTorch a scaler that was enabled stays so where there is no accelerator.
        enabled = bool(state.get("_enabled")) and _available_accelerator() is not None
        GradScaler.__init__(self, enabled=enabled)
        self.__dict__.update({name: value for name, value in state.items() if name != "_device"})


def _scaler_takes_device() -> bool:
    return hasattr(torch.amp, "GradScaler")


def _npu_scaler() -> Optional[Type[Any]]:
    """``torch_npu``'s scaler where an NPU needs it, else None."""
    package = _torch_npu()
    npu: Any = getattr(package, "npu", None) or getattr(torch, "npu", None)
    supports_inf_nan = getattr(getattr(npu, "utils", None), "is_support_inf_nan", None)
    if _scaler_takes_device() and (supports_inf_nan is None or supports_inf_nan()):
        return None
    return cast(Type[Any], npu.amp.GradScaler)


def _on_top_of(npu_scaler: Type[Any], declared_class: Type[Any]) -> Type[Any]:
    """A class like ``declared_class``, by the same name, whose ``super()`` leads to ``npu_scaler``."""
    members = {
        "_declared_class": declared_class,  # what to pickle: this class cannot be imported
        "__module__": declared_class.__module__,
        "__qualname__": declared_class.__qualname__,
        "__doc__": declared_class.__doc__,
    }
    return types.new_class(
        declared_class.__name__, (declared_class, npu_scaler), {}, lambda own: own.update(members)
    )


def _without_init(cls: Type[GradScaler]) -> GradScaler:
    return cls.__new__(cls)


# ---------------------------------------------------------------------------------- custom autograd functions


@overload
def custom_fwd(fwd: _Method, *, cast_inputs: Optional[torch.dtype] = None) -> _Method: ...


@overload
def custom_fwd(
    fwd: None = None, *, cast_inputs: Optional[torch.dtype] = None
) -> Callable[[_Method], _Method]: ...


def custom_fwd(fwd: Optional[Any] = None, *, cast_inputs: Optional[torch.dtype] = None) -> Any:
    """Decorate the ``forward`` of a ``torch.autograd.Function`` that must know about autocast.

    Used as ``@custom_fwd`` or ``@custom_fwd(cast_inputs=...)``, below ``@staticmethod``, and always together
    with :func:`custom_bwd`.  The device is decided at each call, since classes are defined while modules are
    imported, which must not touch a device.  To ``torch.compile`` each call is a graph break.

    Args:
        fwd: the ``forward`` function; its first argument is the context.
        cast_inputs: inside an autocast region, cast floating-point tensors of the accelerator (float64 aside)
            to this dtype and run ``forward`` with autocast off.  None leaves both as they are.
    """
    if fwd is None:
        return functools.partial(custom_fwd, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(*args: Any, **kwargs: Any) -> Any:
        kind = device_type()
        if hasattr(torch.amp, "custom_fwd"):  # since 2.4
            on_device: Any = torch.amp.custom_fwd(fwd, device_type=kind, cast_inputs=cast_inputs)
            return on_device(*args, **kwargs)
        return _forward_before_2_4(kind, fwd, cast_inputs, *args, **kwargs)

    return forward


@overload
def custom_bwd(bwd: _Method) -> _Method: ...


@overload
def custom_bwd(bwd: None = None) -> Callable[[_Method], _Method]: ...


def custom_bwd(bwd: Optional[Any] = None) -> Any:
    """Decorate the ``backward`` that belongs to a ``forward`` under :func:`custom_fwd`.

    ``backward`` then runs with the autocast state that ``forward`` ran with.  Used as ``@custom_bwd`` or
    ``@custom_bwd()``, below ``@staticmethod``.

    Args:
        bwd: the ``backward`` function; its first argument is the context.
    """
    if bwd is None:
        return custom_bwd

    @functools.wraps(bwd)
    def backward(*args: Any, **kwargs: Any) -> Any:
        kind = device_type()
        if hasattr(torch.amp, "custom_bwd"):  # since 2.4
            on_device: Any = torch.amp.custom_bwd(bwd, device_type=kind)
            return on_device(*args, **kwargs)
        return _backward_before_2_4(kind, bwd, *args, **kwargs)

    return backward


def _forward_before_2_4(
    kind: str,
    fwd: Callable[..., Any],
    cast_inputs: Optional[torch.dtype],
    ctx: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    active = is_autocast_enabled()
    ctx._amp_dtype = get_autocast_dtype()
    ctx._amp_enabled = active and cast_inputs is None
    if not active or cast_inputs is None:
        return fwd(ctx, *args, **kwargs)

    def to_dtype(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        if floating and value.device.type == kind and value.dtype != torch.float64:
            return value.to(cast_inputs)
        return value

    args, kwargs = torch.utils._pytree.tree_map(to_dtype, (args, kwargs))
    with torch.autocast(kind, enabled=False):
        return fwd(ctx, *args, **kwargs)


def _backward_before_2_4(kind: str, bwd: Callable[..., Any], ctx: Any, *args: Any, **kwargs: Any) -> Any:
    with torch.autocast(kind, enabled=ctx._amp_enabled, dtype=ctx._amp_dtype):
        return bwd(ctx, *args, **kwargs)


# ------------------------------------------------------------------------------------- devices and memory
#
# What ``torch.cuda`` has under the same names.  ``torch.accelerator`` covers a part of it, from 2.6 on; the
# modules of the devices (``torch.cuda``, ``torch.npu``, ``torch.xpu``) have all of it in every release.
# Without an accelerator nothing happens, counts and sizes are 0.

_Device = Union[None, int, str, torch.device]


def _device_module() -> Optional[Any]:
    """``torch.cuda``, ``torch.npu``, ...: the module of the accelerator; None if there is none."""
    kind = _available_accelerator()
    return None if kind is None else getattr(torch, kind)


def _on_device(name: str, *args: Any, otherwise: Any = None) -> Any:
    module = _device_module()
    return otherwise if module is None else getattr(module, name)(*args)


def device_count() -> int:
    """Return how many devices the accelerator has; 0 without one."""
    return int(_on_device("device_count", otherwise=0))


def current_device() -> int:
    """Return the index of the device in use; 0 without an accelerator."""
    return int(_on_device("current_device", otherwise=0))


def set_device(device: Union[int, str, torch.device]) -> None:
    """Use this device, by index or as a ``torch.device``, from now on in this thread."""
    _on_device("set_device", device)


def synchronize(device: _Device = None) -> None:
    """Wait until everything queued on the device, by default the current one, has run."""
    _on_device("synchronize", *_given(device))


def memory_allocated(device: _Device = None) -> int:
    """Return the bytes that tensors occupy on the device."""
    return int(_on_device("memory_allocated", *_given(device), otherwise=0))


def max_memory_allocated(device: _Device = None) -> int:
    """Return the most bytes that tensors occupied since the start or :func:`reset_peak_memory_stats`."""
    return int(_on_device("max_memory_allocated", *_given(device), otherwise=0))


def reset_peak_memory_stats(device: _Device = None) -> None:
    """Let :func:`max_memory_allocated` start anew."""
    _on_device("reset_peak_memory_stats", *_given(device))


def empty_cache() -> None:
    """Give memory back to the device that the allocator holds and no tensor uses."""
    _on_device("empty_cache")


def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in page-locked memory, from which copies to the accelerator need not wait.

    Without an accelerator this is the tensor itself; PyTorch would raise.
    """
    kind = _available_accelerator()
    if kind is None:
        return tensor
    # since 2.6 the accelerator is the default; before, CUDA is
    return tensor.pin_memory() if kind == "cuda" or hasattr(torch, "accelerator") else tensor.pin_memory(kind)


def _given(device: _Device) -> Tuple[Any, ...]:
    return () if device is None else (device,)


# --------------------------------------------------------------------------------------- random numbers


def manual_seed(seed: int) -> None:
    """Seed the generator of the current device (``torch.manual_seed`` seeds the CPU and all devices)."""
    _on_device("manual_seed", seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices of the accelerator."""
    _on_device("manual_seed_all", seed)


def get_rng_state(device: _Device = None) -> torch.Tensor:
    """Return the state of the device's generator as a uint8 tensor; without an accelerator the CPU's.

    States of different kinds of devices cannot be exchanged.
    """
    module = _device_module()
    return (
        torch.get_rng_state() if module is None else cast(torch.Tensor, module.get_rng_state(*_given(device)))
    )


def set_rng_state(state: torch.Tensor, device: _Device = None) -> None:
    """Put back a state that :func:`get_rng_state` returned on the same kind of device.

    Raises:
        RuntimeError: the state comes from another kind of device.
    """
    module = _device_module()
    if module is None:
        torch.set_rng_state(state)
    else:
        module.set_rng_state(state, *_given(device))


# --------------------------------------------------------------------------------------------- streams


class _NoStream:
    """The one queue of a machine without an accelerator, on which everything has run already."""

    def wait_stream(self, stream: Any) -> None:
        """Do nothing."""

    def wait_event(self, event: Any) -> None:
        """Do nothing."""

    def record_event(self, event: Any = None) -> Any:
        """Return the event."""
        return event

    def synchronize(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Return True: all work is done."""
        return True


def Stream(device: _Device = None, priority: int = 0) -> Any:
    """Make a stream of the accelerator: a ``torch.cuda.Stream``, ``torch.npu.Stream``, ...

    Without an accelerator, one that never waits.
    """
    return _on_device("Stream", device, priority, otherwise=None) or _NoStream()


def current_stream(device: _Device = None) -> Any:
    """Return the stream that work is queued on."""
    module = _device_module()
    return _NoStream() if module is None else module.current_stream(*_given(device))


def stream(stream: Any) -> ContextManager[Any]:
    """Queue the work of a ``with`` block on this stream; None and other machines' streams change nothing."""
    module = _device_module()
    if module is None or stream is None or isinstance(stream, _NoStream):
        return contextlib.nullcontext()
    return cast(ContextManager[Any], module.stream(stream))


# ------------------------------------------------------------------------------------------ distributed

#: Backend of torch.distributed by device, for releases that cannot be asked.
_BACKENDS = {"cuda": "nccl", "npu": "hccl", "xpu": "xccl", "hpu": "hccl", "mlu": "cncl", "musa": "mccl"}


def dist_backend() -> str:
    """Return the backend for ``init_process_group``: ``"nccl"``, ``"hccl"``, ..., ``"gloo"`` on the CPU.

    A CUDA build without NCCL, such as those for Windows, gets ``"gloo"``.
    """
    kind = _available_accelerator()
    if kind is None:
        return "gloo"
    import torch.distributed as dist

    if kind == "cuda" and dist.is_available() and not dist.is_nccl_available():
        return "gloo"
    if kind in _BACKENDS:
        return _BACKENDS[kind]
    default = getattr(dist, "get_default_backend_for_device", None)  # since 2.6
    return str(default(kind)) if default is not None else "gloo"


# ------------------------------------------------------------------------------------------- verification


def _verify_if_asked() -> None:
    """Let the verifier watch this process if AMPLINT_VERIFY is set (to 1, or to the folder of a record)."""
    if os.environ.get("AMPLINT_VERIFY", "") in ("", "0"):
        return
    try:
        verify = importlib.import_module("amplint.runtime.verify")
    except ImportError:
        warnings.warn(
            "AMPLINT_VERIFY is set, but amplint is not installed: nothing is verified", stacklevel=3
        )
        return
    verify.start_from_environment()


_verify_if_asked()
