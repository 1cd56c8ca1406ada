"""Where the verifier holds on to PyTorch: the calls of a training loop, told to whoever observes.

Classes and functions are patched once, while somebody observes, and put back afterwards. Patches call the
original with the arguments that came and return what it returned; what observers do is theirs to shield.
"""

import contextlib
import functools
import os
import sys
import threading
from typing import Any, Callable, Iterator, List, Optional, Protocol, Set, Tuple, Type

import torch
import torch.amp.autocast_mode
import torch.cuda.amp
import torch.nn.utils
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

#: The class of all scalers.
SCALER: Type[Any] = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)
_HOOKED_IN = torch.optim.Optimizer.profile_hook_step.__code__.co_filename
_CLIPS = ("clip_grad_norm_", "clip_grad_value_")


class Observer(Protocol):
    """Is told of events by name; must not raise, except to end the run on purpose."""

    def tell(self, event: str, *arguments: Any) -> None:
        """Take notice of an event."""


class _ScalerStep:
    """A `scaler.step(optimizer)` under way."""

    def __init__(self, scaler: Any, optimizer: Any) -> None:
        self.scaler = scaler
        self.optimizer = optimizer
        self.ran = False


_observers: List[Observer] = []
_undo: List[Callable[[], None]] = []
_patched_scalers: Set[Type[Any]] = set()
_lock = threading.RLock()
_steps: List[_ScalerStep] = []
#: (id of the object, method) of calls under way, so that super() of a subclass is not told twice.
_under_way: Set[Tuple[int, str]] = set()


def attach(observer: Observer) -> None:
    """Tell `observer` of everything from now on."""
    with _lock:
        if not _undo:
            _install()
        _observers.append(observer)


def detach(observer: Observer) -> None:
    """Tell it no more; the last one to leave takes the patches away."""
    with _lock:
        if observer in _observers:
            _observers.remove(observer)
        if not _observers:
            while _undo:
                _undo.pop()()
            _patched_scalers.clear()


def current_step() -> Optional[Tuple[Any, Any]]:
    """Scaler and optimizer of the innermost `scaler.step(optimizer)` under way."""
    return (_steps[-1].scaler, _steps[-1].optimizer) if _steps else None


def _tell(event: str, *arguments: Any) -> None:
    for observer in tuple(_observers):
        observer.tell(event, *arguments)


def _install() -> None:
    for cls in _with_subclasses(SCALER):
        _patch_scaler(cls)
    for name in _CLIPS:
        _patch_clip(name)
    _patch_backward()
    _patch_zero_grad()
    _patch_autocast()
    _patch_compile()
    _see_disabled()
    _undo.append(register_optimizer_step_pre_hook(_before_optimizer_step).remove)
    _undo.append(register_optimizer_step_post_hook(_after_optimizer_step).remove)
    _replace(torch.optim.Optimizer, "__init__", _told_after(torch.optim.Optimizer.__init__, "optimizer_made"))
    _hook_again()


def _with_subclasses(cls: Type[Any]) -> List[Type[Any]]:
    found = [cls]
    for each in found:
        found.extend(sub for sub in each.__subclasses__() if sub not in found)
    return found


def _replace(owner: Any, name: str, value: Any) -> None:
    own = name in vars(owner)
    original = vars(owner)[name] if own else None

    def put_back() -> None:
        if vars(owner).get(name) is value:  # somebody else's later patch stays
            setattr(owner, name, original) if own else delattr(owner, name)

    setattr(owner, name, value)
    _undo.append(put_back)


def _told_after(original: Callable[..., Any], event: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        _see_new_scalers()
        _tell(event, self)
        return result

    return method


# --------------------------------------------------------------------------------------------- GradScaler


def _patch_scaler(cls: Type[Any]) -> None:
    """Patch the methods that a scaler's class defines itself; those it inherits belong to the class above."""
    if cls in _patched_scalers:
        return
    _patched_scalers.add(cls)
    wrappers = {"scale": _scale, "unscale_": _unscale, "step": _step, "update": _update}
    for name, wrapper in wrappers.items():
        original = cls.__dict__.get(name)
        if callable(original):
            _replace(cls, name, _once(original, name, wrapper))


def _once(original: Callable[..., Any], name: str, wrapper: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        key = (id(self), name)
        if not _observers or key in _under_way:
            return original(self, *args, **kwargs)
        _under_way.add(key)
        try:
            return wrapper(original, self, *args, **kwargs)
        finally:
            _under_way.discard(key)

    return method


def _see_new_scalers() -> None:
    """Patch subclasses that were defined since, such as those of FSDP and of torch_npu."""
    for cls in _with_subclasses(SCALER):
        _patch_scaler(cls)


def _see_disabled() -> None:
    """Learn of scalers and regions for CUDA that switch themselves off where it is missing.

    Their constructors ask this function. A wrapper around `__init__` would show up in their warnings, and one
    in `__new__` in their signatures.
    """
    common = torch.cuda.amp.common
    original = common.amp_definitely_not_available

    @functools.wraps(original)
    def asked() -> bool:
        answer = bool(original())  # type: ignore[no-untyped-call]
        if answer and _observers:
            names = sys._getframe(1).f_locals
            made = names.get("self")
            if made is not None and names.get("enabled"):
                if isinstance(made, SCALER):
                    _tell("scaler_disabled_itself", made)
                elif getattr(made, "device", None) == "cuda":
                    _tell("region_disabled_itself", made)
        return answer

    _replace(common, "amp_definitely_not_available", asked)


def _scale(original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
    outputs = args[0] if args else kwargs.get("outputs")
    result = original(scaler, *args, **kwargs)
    _tell("scaled", scaler, outputs, result)
    return result


def _unscale(original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
    optimizer = args[0] if args else kwargs.get("optimizer")
    within = any(each.optimizer is optimizer for each in _steps)
    if not within:
        _tell("unscaling", scaler, optimizer)
    result = original(scaler, *args, **kwargs)
    _tell("unscaled", scaler, optimizer, within)
    return result


def _step(original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
    optimizer = args[0] if args else kwargs.get("optimizer")
    _tell("scaler_stepping", scaler, optimizer, args[1:], kwargs)
    step = _ScalerStep(scaler, optimizer)
    _steps.append(step)
    try:
        with _seen_stepping(optimizer):
            result = original(scaler, *args, **kwargs)
    finally:
        _steps.remove(step)
    _tell("scaler_stepped", scaler, optimizer, step.ran)
    return result


def _update(original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
    new_scale = args[0] if args else kwargs.get("new_scale")
    _tell("updating", scaler, new_scale)
    result = original(scaler, *args, **kwargs)
    _tell("updated", scaler, new_scale)
    return result


# ---------------------------------------------------------------------------------------------- optimizers


def _before_optimizer_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    if _steps:
        _steps[-1].ran = True  # the scaler steps this optimizer, or one around it
    _tell("optimizer_stepping", optimizer, args, kwargs)


def _after_optimizer_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    _tell("optimizer_stepped", optimizer)


def _is_hooked(step: Any) -> bool:
    """Whether this `step` of a class calls torch's hooks."""
    code = getattr(step, "__code__", None)
    return code is not None and code.co_name == "wrapper" and code.co_filename == _HOOKED_IN


def _hook_again() -> None:
    """Give optimizers their hooks back, which torch.compile takes from those of torch before 2.3."""
    for cls in _with_subclasses(torch.optim.Optimizer):
        step = vars(cls).get("step")
        if getattr(step, "hooked", False) and not _is_hooked(step):
            hooked: Any = torch.optim.Optimizer.profile_hook_step(step)
            hooked.hooked = True
            _replace(cls, "step", hooked)


@contextlib.contextmanager
def _seen_stepping(optimizer: Any) -> Iterator[None]:
    """Tell of steps of an optimizer that has no hooks: one that is none of torch's, or skips its `__init__`.

    Only a call of `step` says whether the scaler stepped it or skipped the step.
    """
    own = getattr(optimizer, "__dict__", None)
    original = getattr(optimizer, "step", None)
    if own is None or not callable(original) or _is_hooked(getattr(type(optimizer), "step", None)):
        yield
        return

    def step(*args: Any, **kwargs: Any) -> Any:
        _before_optimizer_step(optimizer, args, kwargs)
        result = original(*args, **kwargs)
        _after_optimizer_step(optimizer, args, kwargs)
        return result

    before = own.get("step")
    own["step"] = step
    try:
        yield
    finally:
        if own.get("step") is step:
            if before is None:
                del own["step"]
            else:
                own["step"] = before


def _patch_zero_grad() -> None:
    for cls in (torch.optim.Optimizer, torch.nn.Module):
        _replace(cls, "zero_grad", _told_after(cls.zero_grad, "zeroed"))


# --------------------------------------------------------------------------------- clipping and backward


def _patch_clip(name: str) -> None:
    original = getattr(torch.nn.utils, name)

    @functools.wraps(original)
    def clip(*args: Any, **kwargs: Any) -> Any:
        if not _observers:
            return original(*args, **kwargs)
        parameters = args[0] if args else kwargs.get("parameters")
        if parameters is not None and not isinstance(parameters, torch.Tensor):
            parameters = list(parameters)  # often a generator, which can be read once only
            if args:
                args = (parameters, *args[1:])
            else:
                kwargs["parameters"] = parameters
        _tell("clipping", name, parameters)
        result = original(*args, **kwargs)
        _tell("clipped", name, parameters, result)
        return result

    # `from torch.nn.utils import clip_grad_norm_` made references of its own in other modules
    for module in list(sys.modules.values()):
        namespace = getattr(module, "__dict__", None)
        if isinstance(namespace, dict) and namespace.get(name) is original:
            _replace(module, name, clip)


def _patch_backward() -> None:
    original = torch.autograd.backward
    depth = [0]

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> None:
        # Reentrant activation checkpointing calls backward from within backward: that is not a loss.
        if not _observers or depth[0]:
            return original(*args, **kwargs)
        tensors = args[0] if args else kwargs.get("tensors")
        gradients = args[1] if len(args) > 1 else kwargs.get("grad_tensors")
        depth[0] += 1
        try:
            _tell("backward_begins", tensors, gradients)
            original(*args, **kwargs)
        finally:
            depth[0] -= 1
        _tell("backward_ended")
        return None

    _replace(torch.autograd, "backward", backward)


# ----------------------------------------------------------------------------------- autocast and compile


def _patch_autocast() -> None:
    cls = torch.amp.autocast_mode.autocast
    enter, leave = cls.__enter__, cls.__exit__

    @functools.wraps(enter)
    def entered(self: Any) -> Any:
        result = enter(self)  # type: ignore[no-untyped-call]
        if getattr(self, "_enabled", False):
            _tell("region_entered", self)
        return result

    @functools.wraps(leave)
    def left(self: Any, *args: Any) -> Any:
        if getattr(self, "device", None) == "cpu" and getattr(self, "_enabled", False):
            _tell("region_left", self)
        return leave(self, *args)

    _replace(cls, "__enter__", entered)
    _replace(cls, "__exit__", left)


def _patch_compile() -> None:
    original = getattr(torch, "compile", None)
    if original is None:
        return

    @functools.wraps(original)
    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(model, torch.nn.Module):
            _tell("function_compiled")
        compiled = original(model, *args, **kwargs)
        if _observers:
            _hook_again()
        return compiled

    _replace(torch, "compile", compile)


def _forget_in_child() -> None:
    """A forked process (a worker of a DataLoader) observes nothing and writes to nobody's record."""
    _observers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
