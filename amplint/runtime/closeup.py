"""The steps that are looked at closely: modules as they run, gradients and weights as they are stepped.

Hooks hang on the modules for the forward pass of such a step only; every statistic stays on the device.
Compiled models are left alone, since a hook would make them compile again.
"""

import math
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch
import torch.nn.functional as F

from amplint.runtime.context import Run
from amplint.runtime.history import FirstNonFinite
from amplint.runtime.place import Site, here
from amplint.runtime.precision import PrecisionWatch, autocast_is_on
from amplint.runtime.tracked import TrackedOptimizer, TrackedScaler

_HALF = (torch.float16, torch.bfloat16)
_MATMULS = (torch.nn.Linear, torch.nn.modules.conv._ConvNd, torch.nn.Bilinear)
_NORMS = (
    torch.nn.modules.batchnorm._BatchNorm,
    torch.nn.LayerNorm,
    torch.nn.GroupNorm,
    *((torch.nn.RMSNorm,) if hasattr(torch.nn, "RMSNorm") else ()),  # since 2.4
)
_SOFTMAXES = ("softmax", "log_softmax")
#: float16 ends at 65504: a value above half of it is one doubling from Inf.
_NEAR_LIMIT = 32752.0


class ForwardCloseup:
    """What modules compute in, and how large it gets."""

    def __init__(self, run: Run, precision: PrecisionWatch, nonfinite: FirstNonFinite) -> None:
        self._run = run
        self._precision = precision
        self._nonfinite = nonfinite
        self._handles: List[Any] = []
        self._undo: List[Callable[[], None]] = []
        self._active = False
        self._step_number = -1
        self._low = 0
        self._full = 0
        self._any_half = False
        self._not_effective = 0
        self._compiled_functions = False
        self._outputs: List[Tuple[str, Optional[Site]]] = []
        run.on_step(self._step)
        run.on_value("output", self._judge_output)

    def function_compiled(self) -> None:
        """torch.compile of a function, or as a decorator: which modules run in it is not known."""
        self._compiled_functions = True
        self.detach()

    def region_entered(self, region: Any) -> None:
        """The first step is looked at from its first region on, unless the model was known before."""
        if self._run.step == 0 and self._step_number < 0 and self._run.registry.optimizers():
            self.attach()

    def zeroed(self, owner: Any) -> None:
        """Or from its zero_grad on."""
        if self._run.step == 0 and self._step_number < 0:
            self.attach()

    def attach(self) -> None:
        """Hang hooks on the modules for the coming step."""
        self.detach()
        self._step_number = self._run.step
        if self._compiled_functions:
            return
        if not self._run.names.roots():
            self._run.names.look()
        compiled = self._compiled()
        for name, module in self._run.names.modules():
            if id(module) in compiled or isinstance(module, torch.jit.ScriptModule):
                continue
            if not module._modules or isinstance(module, _NORMS):
                self._handles.append(module.register_forward_hook(_hook(self, name or "(model)")))
        if self._handles and not compiled:
            self._patch_softmax()
        self._active = bool(self._handles)
        self._low = self._full = 0
        self._any_half = False

    def detach(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        while self._undo:
            self._undo.pop()()
        self._active = False

    def backward_ended(self) -> None:
        """The forward pass is over; judge what it ran in."""
        if not self._active:
            return
        self.detach()
        regions = self._precision.regions
        if not regions or not self._full or self._low or self._any_half:
            self._not_effective = 0
            return
        self._not_effective += 1
        if self._not_effective >= 2:
            (device, dtype), site = next(iter(regions.items()))
            kind = str(dtype).rpartition(".")[2]
            self._run.report(
                "AMP318",
                f"AMP is not effective: autocast for {kind} on {device!r} is entered here, but all {self._full}"
                " matrix products of modules in this step ran in float32",
                site,
                self._step_number,
                subject="matmul",
            )

    def observe(self, name: str, module: Any, args: Any, output: Any) -> None:
        """A module returned (called by its hook)."""
        if not torch.is_grad_enabled() or not module.training or _is_compiling():
            return
        result = output[0] if isinstance(output, tuple) and output else output
        if not isinstance(result, torch.Tensor) or not result.is_floating_point():
            return
        half = result.dtype in _HALF
        self._any_half = self._any_half or half
        if isinstance(module, _MATMULS):
            self._low += half
            self._full += not half
        elif isinstance(module, _NORMS):
            self._norm(name, module, args, result)
        elif isinstance(module, (torch.nn.Softmax, torch.nn.LogSoftmax)):
            self._softmax(args[0] if args else None, result, name)
        if result.dtype == torch.float16 or self._nonfinite.armed:
            self._magnitude(name, result.detach())

    def _magnitude(self, name: str, result: torch.Tensor) -> None:
        if not result.numel():
            return
        with torch.no_grad():
            largest = result.abs().amax().to(torch.float32)
        self._run.log.put(largest, ("output", name, here(), self._step_number, str(result.dtype)))

    def _norm(self, name: str, module: Any, args: Any, result: torch.Tensor) -> None:
        tensors = (getattr(module, each, None) for each in ("weight", "running_mean"))
        own = {each.dtype for each in tensors if isinstance(each, torch.Tensor)}
        low = bool(own & set(_HALF))
        if not own:
            given = args[0] if args else None
            if isinstance(given, torch.Tensor) and given.dtype in _HALF:
                low = not autocast_is_on(given.device.type)
        if low:
            kind = str(next(iter(own & set(_HALF)), result.dtype)).rpartition(".")[2]
            self._run.report(
                "AMP303",
                f"{type(module).__name__} {name} computes and keeps its statistics in {kind}",
                here(),
                self._step_number,
                subject=name,
                module=name,
            )

    def _softmax(self, given: Any, result: Any, name: Optional[str]) -> None:
        if not isinstance(given, torch.Tensor) or not isinstance(result, torch.Tensor):
            return
        if given.dtype not in _HALF or result.dtype not in _HALF or not torch.is_grad_enabled():
            return
        if given.device.type == "cpu" and autocast_is_on("cpu"):
            return  # CPU autocast, unlike the others', leaves softmax in half precision
        kind = str(result.dtype).rpartition(".")[2]
        self._run.report(
            "AMP304",
            f"softmax computes in {kind}: of logits near 50 in bfloat16 its probabilities are 16 % off",
            here(),
            self._step_number,
            subject=name,
            module=name,
        )

    def _patch_softmax(self) -> None:
        for owner in (F, torch, torch.Tensor):
            for name in _SOFTMAXES:
                original = getattr(owner, name)
                own = name in vars(owner)

                def softmax(*args: Any, __original: Any = original, **kwargs: Any) -> Any:
                    result = __original(*args, **kwargs)
                    if self._active:
                        self._run.shielded(self._softmax, args[0] if args else None, result, None)
                    return result

                def put_back(
                    owner: Any = owner, name: str = name, original: Any = original, own: bool = own
                ) -> None:
                    setattr(owner, name, original) if own else delattr(owner, name)

                setattr(owner, name, softmax)
                self._undo.append(put_back)

    def _judge_output(self, value: float, name: str, site: Optional[Site], step: int, dtype: str) -> None:
        if not math.isfinite(value):
            first = self._run.first_nonfinite
            if first is None or first.get("pass") == "backward":
                found = {"step": step, "pass": "forward", "module": name, "parameter": None}
                self._run.first_nonfinite = {**found, "site": site}
                self._run.record.write({"event": "nonfinite", **found})
            self._nonfinite.armed = False
        elif value >= _NEAR_LIMIT and dtype == "torch.float16":
            self._run.report(
                "RUN202",
                f"the output of {name} reaches {value:.0f}; float16 ends at 65504",
                site,
                step,
                subject=name,
                module=name,
                figures=(("largest", value),),
            )

    def _step(
        self, tracked: TrackedOptimizer, own: Optional[TrackedScaler], skipped: bool, step: int
    ) -> None:
        coming = step + 1
        if coming > self._run.step and (self._run.is_close_step(coming) or self._nonfinite.armed):
            self.attach()
            self._step_number = coming
        elif self._active and coming > self._run.step:
            self.detach()

    def closing(self, failed: bool) -> None:
        """Leave nothing behind."""
        self.detach()

    def _compiled(self) -> Set[int]:
        found: Set[int] = set()
        for root in self._run.names.roots():
            for module in root.modules():
                if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None):
                    found.update(id(each) for each in module.modules())
        return found


class StepCloseup:
    """Gradients before a step, and weights before and after it."""

    #: Parameters of an optimizer that are looked at, and those whose update is measured.
    _LOOKED_AT, _MEASURED = 64, 4

    def __init__(self, run: Run, precision: PrecisionWatch) -> None:
        self._run = run
        self._precision = precision
        self._weights: Dict[TrackedOptimizer, List[Tuple[torch.Tensor, torch.Tensor, torch.Tensor]]] = {}
        #: (optimizer, step) -> parameter -> (share of zeros, share below the normal range, elements).
        self._shares: Dict[Tuple[int, int], Dict[int, Dict[str, float]]] = {}
        self._facts: Dict[Tuple[int, int], Tuple[Optional[Site], List[Any]]] = {}
        self._suspicious: Dict[int, Tuple[int, int]] = {}
        self._lost: Dict[Tuple[int, int], Dict[int, Dict[str, float]]] = {}
        self._lost_facts: Dict[Tuple[int, int], Tuple[Optional[Site], List[Any]]] = {}
        self._lost_before: Dict[int, int] = {}
        for kind in ("zeros", "small"):
            run.on_value(kind, self._share(kind))
        for kind in ("changed", "moving"):
            run.on_value(kind, self._share(kind, self._lost))
        run.on_value("weight", self._judge_weight)
        run.on_drained(self._judge)

    def optimizer_stepping(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Gradients are final, and unscaled unless the optimizer does that itself."""
        tracked = self._run.registry.optimizer(optimizer)
        if not self._run.is_close_step(tracked.attempts) or tracked.depth:
            return
        if getattr(optimizer, "grad_scale", None) is not None or not (tracked.scaled or tracked.has_plain):
            return
        parameters = [
            each
            for each in tracked.parameters()
            if type(each.grad) is torch.Tensor and not each.grad.is_sparse and each.grad.numel()
        ]
        stride = max(1, -(-len(parameters) // self._LOOKED_AT))
        parameters = parameters[::stride]
        if not parameters:
            return
        with torch.no_grad():
            if any(dtype == torch.float16 for _, dtype in self._precision.regions):
                self._gradients(tracked, parameters)
            self._half_weights(tracked, parameters)

    def optimizer_stepped(self, optimizer: Any) -> None:
        """Weights have their new values."""
        tracked = self._run.registry.optimizer(optimizer)
        kept = self._weights.pop(tracked, None) if tracked.depth <= 1 else None
        if kept is None:
            return
        key = (tracked.index, tracked.attempts)
        with torch.no_grad():
            for number, (parameter, before, gradient) in enumerate(kept):
                moving = gradient != 0
                self._run.log.put(((parameter != before) & moving).sum(), ("changed", key, number))
                self._run.log.put(moving.sum(), ("moving", key, number))
        self._lost_facts[key] = (tracked.step_site, [self._named(each) for each, _, _ in kept])

    def _gradients(self, tracked: TrackedOptimizer, parameters: List[torch.Tensor]) -> None:
        scaler = next(iter(tracked.scaled), None)
        scale = scaler.scale if scaler is not None and tracked.is_unscaled else None
        key = (tracked.index, tracked.attempts)
        normal = torch.finfo(torch.float16).tiny
        for number, parameter in enumerate(parameters):
            gradient = parameter.grad
            assert gradient is not None
            limit: Any = normal if scale is None else normal / scale.to(gradient.device)
            self._run.log.put((gradient == 0).sum(), ("zeros", key, number))
            self._run.log.put((gradient.abs() < limit).sum(), ("small", key, number))
            if parameter.is_floating_point():
                self._run.log.put(parameter.abs().amax(), ("weight", key, number))
        named = [(*self._named(each), each.numel()) for each in parameters]
        self._facts[key] = (tracked.backward_site, named)

    def _half_weights(self, tracked: TrackedOptimizer, parameters: List[torch.Tensor]) -> None:
        half = [each for each in parameters if each.dtype in _HALF][: self._MEASURED]
        if half:
            self._weights[tracked] = [
                (each, each.detach().clone(), each.grad.detach().clone())
                for each in half
                if each.grad is not None
            ]

    def _named(self, parameter: torch.Tensor) -> Tuple[Optional[str], Optional[str], Optional[str]]:
        if not self._run.names.knows(parameter):
            self._run.names.look()
            self._run.names.give_up_on([parameter])
        return self._run.names.parameter(parameter)

    def _share(self, kind: str, table: Optional[Dict[Any, Any]] = None) -> Callable[..., None]:
        target = self._shares if table is None else table

        def store(value: float, key: Tuple[int, int], number: int) -> None:
            target.setdefault(key, {}).setdefault(number, {})[kind] = value

        return store

    def _judge_weight(self, value: float, key: Tuple[int, int], number: int) -> None:
        if not _NEAR_LIMIT <= value < math.inf:
            return
        site, named = self._facts[key]
        name, module, _, _ = named[number]
        self._run.report(
            "RUN202",
            f"the weight {name or 'of an unnamed parameter'} reaches {value:.0f}; autocast casts it to float16,"
            " which ends at 65504",
            site,
            key[1],
            subject=name,
            module=module,
            parameter=name,
            figures=(("largest", value),),
        )

    def _judge(self) -> None:
        shares, self._shares = self._shares, {}
        for key in sorted(shares, key=lambda pair: pair[1]):
            site, named = self._facts.pop(key)
            self._judge_gradients(key, site, named, shares[key])
        lost, self._lost = self._lost, {}
        for key in sorted(lost, key=lambda pair: pair[1]):
            self._judge_updates(key, *self._lost_facts.pop(key), lost[key])

    def _judge_gradients(
        self,
        key: Tuple[int, int],
        site: Optional[Site],
        named: List[Any],
        shares: Dict[int, Dict[str, float]],
    ) -> None:
        total = zeros = small = gone = 0.0
        worst: Tuple[float, int] = (-1.0, 0)
        counted = 0
        for number, values in shares.items():
            _, _, kind, size = named[number]
            if kind == "Embedding":  # most rows have no token in the batch
                continue
            counted += 1
            total += size
            zeros += values["zeros"]
            small += values["small"]
            gone += values["zeros"] == size
            worst = max(worst, (values["zeros"] / size, -number))
        if not counted:
            return
        rest = total - zeros
        below = (small - zeros) / rest if rest else 1.0
        index, step = key
        if not (gone >= counted / 2 or (zeros > total / 2 and below > 0.5)):
            self._suspicious.pop(index, None)
            return
        first, count = self._suspicious.get(index, (step, 0))
        self._suspicious[index] = (first, count + 1)
        if count + 1 < 2:
            return
        name, module, _, _ = named[-worst[1]]
        self._run.report(
            "RUN201",
            f"{zeros / total:.0%} of the gradients' elements are exactly 0 and {below:.0%} of the others, times the"
            f" loss scale, lie below the normal range of float16: they underflow, most of all in"
            f" {name or 'an unnamed parameter'}",
            site,
            first,
            subject=index,
            module=module,
            parameter=name,
            figures=(("zeros", zeros / total), ("below_normal", below)),
        )

    def _judge_updates(
        self, key: Tuple[int, int], site: Optional[Site], named: List[Any], lost: Dict[int, Dict[str, float]]
    ) -> None:
        index, step = key
        changed = sum(each["changed"] for each in lost.values())
        moving = sum(each["moving"] for each in lost.values())
        if not moving or changed >= 0.1 * moving:
            self._lost_before.pop(index, None)
            return
        if index not in self._lost_before:
            self._lost_before[index] = step
            return
        name, module, _ = named[min(lost, key=lambda number: lost[number]["changed"])]
        self._run.report(
            "RUN203",
            f"only {changed / moving:.1%} of the half-precision weights that have a gradient change in a step: the"
            " updates are smaller than half the distance to the next number; keep float32 master weights",
            site,
            self._lost_before[index],
            subject=index,
            module=module,
            parameter=name,
            figures=(("changed", changed / moving),),
        )


def _hook(closeup: ForwardCloseup, name: str) -> Callable[[Any, Any, Any], None]:
    def hook(module: Any, args: Any, output: Any) -> None:
        closeup._run.shielded(closeup.observe, name, module, args, output)

    return hook


def _is_compiling() -> bool:
    compiler = getattr(torch, "compiler", None)
    is_compiling = getattr(compiler, "is_compiling", None)
    return bool(is_compiling()) if is_compiling is not None else False
