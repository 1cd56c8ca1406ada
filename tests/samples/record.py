"""Runs training scripts on the CPU and records their mixed-precision protocol.

Without an accelerator autocast and the gradient scaler are disabled, so losses alone cannot tell a
faithful port from one that lost a flag or a call. The recorder notes what a script *asks for*, in
order: autocast regions entered and left, scaler constructions and calls, backward passes, clips,
optimizer steps, and which module ran in between. It hooks the two classes behind every spelling
(`torch.amp.autocast_mode.autocast` and `torch.amp.grad_scaler.GradScaler`) and reads the arguments
of the outermost constructor, so `torch.cuda.amp`, `torch.amp`, `torch.autocast` and subclasses of
them that a shim defines are written down in the same words.

As a program, `python record.py SCRIPT args...` imports SCRIPT, calls its `main(args)` and prints
one JSON object. Without arguments it serves: one JSON list `[SCRIPT, args...]` per line of standard
input, one JSON object per line of standard output. `record` keeps one such process, because torch
takes seconds to import and a sample a fraction of one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: One thing that happened: its name under "event", and its normalised arguments.
Event = dict[str, Any]


@dataclass(frozen=True)
class Recording:
    """What one run of a script returned and did."""

    losses: list[float]
    trace: list[Event]


def record(script: Path, args: Sequence[str] = ()) -> Recording:
    """Runs `script` under the recorder, in another process; raises RuntimeError where the script fails."""
    worker = _worker()
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps([str(script), *args]) + "\n")
    worker.stdin.flush()
    line = worker.stdout.readline()
    if not line:
        stop()
        raise RuntimeError(f"the recorder died while it ran {script.name}")
    answer = json.loads(line)
    if "error" in answer:
        raise RuntimeError(f"{script.name} failed:\n{answer['error']}")
    return Recording(**answer)


def stop() -> None:
    """Ends the process that `record` keeps, if there is one; the next call starts another."""
    if _worker.cache_info().currsize:
        _worker().communicate()
        _worker.cache_clear()


@functools.cache
def _worker() -> subprocess.Popen[str]:
    command = [sys.executable, "-B", "-W", "ignore", __file__]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


class Recorder:
    """Writes traces. `install` hooks torch, once, before a script is imported; `run` records one script."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.torch.set_num_threads(1)  # the order of additions must not depend on the machine
        self._forget()
        accelerator = torch.accelerator.current_accelerator()
        self._accelerators = {"cuda"} | ({accelerator.type} if accelerator else set())

    def _forget(self) -> None:
        self.trace: list[Event] = []
        self._optimizers: list[Any] = []
        self._scalers: list[Any] = []
        self._module_depth = 0

    def run(self, script: Path, args: Sequence[str]) -> dict[str, Any]:
        """The losses and the trace of `script`, or the error that ended it; unloads its modules again."""
        self._forget()
        importlib.invalidate_caches()
        loaded = set(sys.modules)
        sys.path.insert(0, str(script.parent))
        try:
            with contextlib.redirect_stdout(sys.stderr):
                losses = importlib.import_module(script.stem).main(list(args))
        except (Exception, SystemExit):
            return {"error": traceback.format_exc()}
        finally:
            sys.path.remove(str(script.parent))
            for name in set(sys.modules) - loaded:
                file = getattr(sys.modules[name], "__file__", None)
                if file and script.parent in Path(file).parents:
                    del sys.modules[name]
        return {"losses": losses, "trace": self.trace}

    def install(self) -> None:
        self._record_autocast()
        self._record_scalers()
        self._record_optimizers()
        self._record_backward_and_clips()
        self._record_custom_functions()
        self._record_modules()

    def _add(self, event: str, **arguments: Any) -> None:
        self.trace.append({"event": event, **arguments})

    # -- normal forms

    def _device(self, device: Any) -> str:
        """`ACC` for the accelerator, under whatever name and index; else the device's type."""
        kind = str(device).split(":")[0]
        return "ACC" if device is None or kind in self._accelerators else kind

    def _region(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The arguments of an autocast region; without a device parameter a class is the accelerator's."""
        device = asked.get("device_type")
        dtype = asked.get("dtype") or self.torch.get_autocast_dtype(device or "cuda")
        cache = asked.get("cache_enabled")
        return {
            "device": self._device(device),
            "dtype": str(dtype).removeprefix("torch."),
            "enabled": bool(asked["enabled"]),
            "cache": self.torch.is_autocast_cache_enabled() if cache is None else bool(cache),
        }

    def _scaler_settings(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {
            "device": self._device(asked.get("device")),
            "enabled": bool(asked["enabled"]),
            "init_scale": float(asked["init_scale"]),
            "growth_factor": float(asked["growth_factor"]),
            "backoff_factor": float(asked["backoff_factor"]),
            "growth_interval": int(asked["growth_interval"]),
        }

    def _owners(self, parameters: Sequence[Any]) -> list[int]:
        """Indices of the optimizers that own any of `parameters`."""
        wanted = {id(parameter) for parameter in parameters}
        return [
            index
            for index, optimizer in enumerate(self._optimizers)
            if any(id(p) in wanted for group in optimizer.param_groups for p in group["params"])
        ]

    # -- hooks

    def _record_autocast(self) -> None:
        base = self.torch.amp.autocast_mode.autocast

        def constructed(instance: Any, asked: dict[str, Any]) -> None:
            instance.__dict__["_recorded"] = self._region(asked)

        _hook_constructors(base, constructed)
        _call_first(base, "__enter__", lambda it, *_: self._add("autocast.enter", **it._recorded))
        _call_first(base, "__exit__", lambda it, *_: self._add("autocast.exit", **it._recorded))

    def _record_scalers(self) -> None:
        base = self.torch.amp.grad_scaler.GradScaler

        def constructed(instance: Any, asked: dict[str, Any]) -> None:
            instance.__dict__["_recorded"] = True
            self._scalers.append(instance)
            index = len(self._scalers) - 1
            self._add("scaler", scaler=index, **self._scaler_settings(asked))

        _hook_constructors(base, constructed)
        for name in ("scale", "state_dict", "load_state_dict"):
            self._record_scaler_call(base, name, lambda *_, **__: {})
        for name in ("unscale_", "step"):
            self._record_scaler_call(
                base, name, lambda optimizer, *_, **__: {"optimizer": _index(self._optimizers, optimizer)}
            )
        self._record_scaler_call(
            base,
            "update",
            lambda new_scale=None: {"new_scale": None if new_scale is None else float(new_scale)},
        )

    def _record_scaler_call(self, base: type, name: str, describe: Callable[..., dict[str, Any]]) -> None:
        def note(scaler: Any, *args: Any, **kwargs: Any) -> None:
            self._add(f"scaler.{name}", scaler=_index(self._scalers, scaler), **describe(*args, **kwargs))

        _call_first(base, name, note)

    def _record_optimizers(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        base = self.torch.optim.Optimizer
        _call_first(base, "__init__", lambda optimizer, *_, **__: self._optimizers.append(optimizer))
        _call_first(
            base,
            "zero_grad",
            lambda optimizer, set_to_none=True: self._add(
                "optimizer.zero_grad", optimizer=_index(self._optimizers, optimizer), set_to_none=set_to_none
            ),
        )
        register_optimizer_step_pre_hook(
            lambda optimizer, *_: self._add("optimizer.step", optimizer=_index(self._optimizers, optimizer))
        )

    def _record_backward_and_clips(self) -> None:
        backward = self.torch.autograd.backward

        @functools.wraps(backward)
        def recorded_backward(*args: Any, **kwargs: Any) -> None:
            backward(*args, **kwargs)
            self._add("backward")

        self.torch.autograd.backward = recorded_backward  # Tensor.backward calls it by this name
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            clip = self._recorded_clip(name, getattr(self.torch.nn.utils.clip_grad, name))
            setattr(self.torch.nn.utils.clip_grad, name, clip)
            setattr(self.torch.nn.utils, name, clip)

    def _recorded_clip(self, name: str, clip: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(clip)
        def recorded_clip(parameters: Any, limit: float, *args: Any, **kwargs: Any) -> Any:
            single = isinstance(parameters, self.torch.Tensor)
            parameters = [parameters] if single else list(parameters)
            self._add(name, optimizers=self._owners(parameters), limit=float(limit))
            return clip(parameters, limit, *args, **kwargs)

        return recorded_clip

    def _record_custom_functions(self) -> None:
        """Notes at each call what `custom_fwd` and `custom_bwd` were told; no cast happens on the CPU."""
        modules = (self.torch.amp, self.torch.amp.autocast_mode)
        for name in ("custom_fwd", "custom_bwd"):
            recorded = self._recorded_decorator(name, getattr(self.torch.amp, name))
            for module in modules:
                setattr(module, name, recorded)

    def _recorded_decorator(self, name: str, decorate: Callable[..., Any]) -> Callable[..., Any]:
        def decorator(function: Any = None, **options: Any) -> Any:
            function = options.pop("fwd" if name == "custom_fwd" else "bwd", function)
            if function is None:
                return functools.partial(decorator, **options)
            decorated = decorate(function, **options)
            cast = options.get("cast_inputs")
            noted = {} if name == "custom_bwd" else {"cast_inputs": str(cast).removeprefix("torch.")}

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                self._add(name, device=self._device(options["device_type"]), **noted)
                return decorated(*args, **kwargs)

            return call

        return decorator

    def _record_modules(self) -> None:
        """Notes each outermost module call, so that a region moved off its forward pass shows."""

        def enter(module: Any, *_: Any) -> None:
            if self._module_depth == 0:
                self._add("module", name=type(module).__name__, grad=self.torch.is_grad_enabled())
            self._module_depth += 1

        def leave(*_: Any) -> None:
            self._module_depth -= 1

        self.torch.nn.modules.module.register_module_forward_pre_hook(enter)
        self.torch.nn.modules.module.register_module_forward_hook(leave, always_call=True)


def _index(known: list[Any], wanted: Any) -> int | None:
    """The position of `wanted` by identity; None for a stranger."""
    return next((index for index, item in enumerate(known) if item is wanted), None)


def _call_first(cls: type, name: str, note: Callable[..., None]) -> None:
    """Makes the method `name` of `cls` call `note` with its own arguments before it runs."""
    method = getattr(cls, name)

    @functools.wraps(method)
    def noted(*args: Any, **kwargs: Any) -> Any:
        note(*args, **kwargs)
        return method(*args, **kwargs)

    setattr(cls, name, noted)


def _hook_constructors(base: Any, constructed: Callable[[Any, dict[str, Any]], None]) -> None:
    """Calls `constructed` once per instance of `base`, with the arguments of the outermost `__init__`.

    A subclass may turn the request into something else before it reaches `base` (without CUDA a
    shim may pass enabled=False on), and the request is what counts here.
    """

    def hook(cls: Any) -> None:
        original = cls.__dict__.get("__init__")
        if original is None:
            return
        signature = inspect.signature(original)
        if "enabled" not in signature.parameters:  # (*args, **kwargs): the next class tells more
            return

        @functools.wraps(original)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            if "_recorded" not in self.__dict__:
                bound = signature.bind(self, *args, **kwargs)
                bound.apply_defaults()
                constructed(self, bound.arguments)
            original(self, *args, **kwargs)

        cls.__init__ = init

    def hook_tree(cls: Any) -> None:
        hook(cls)
        for subclass in cls.__subclasses__():
            hook_tree(subclass)

    def hook_new_subclass(cls: Any, /, **kwargs: Any) -> None:
        super(base, cls).__init_subclass__(**kwargs)
        hook(cls)

    hook_tree(base)
    base.__init_subclass__ = classmethod(hook_new_subclass)


def main(arguments: list[str]) -> None:
    """Records one script, or every one that standard input names."""
    recorder = Recorder()
    recorder.install()
    jobs = [arguments] if arguments else map(json.loads, sys.stdin)
    for script, *args in jobs:
        print(json.dumps(recorder.run(Path(script).resolve(), args)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
