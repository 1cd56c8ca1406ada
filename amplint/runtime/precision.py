"""Dtypes that a run computes in: of losses, parameters and optimizer state, and whether autocast took effect."""

import re
from typing import Any, Dict, List, Optional, Set, Tuple

import torch

from amplint.runtime.context import Run
from amplint.runtime.place import Site, here
from amplint.runtime.tracked import TrackedOptimizer, TrackedScaler

_HALF = (torch.float16, torch.bfloat16)
#: What the backward nodes of losses are called that autocast computes in float32.
_LOSS_NODES = ("MseLoss", "NllLoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy", "KlDiv")
#: Backward nodes of operators that autocast computes in float32 on CUDA and NPU, and not on the CPU; of a compiled
#: function nobody knows.
_FLOAT32_ELSEWHERE = re.compile(
    "(Acos|Asin|Cdist|Cosh|Cumprod|Cumsum|Dist|Erfinv|Exp|Expm1|Log|Log10|Log1P|Log2|LogSoftmax|NativeGroupNorm"
    "|NativeLayerNorm|Norm|Pow|Prod|Reciprocal|Renorm|Rsqrt|Sinh|Softmax|Softplus|Sum|Tan|CompiledFunction)Backward"
)
#: Those whose result is in half precision whatever their operands are computed in.
_PRODUCTS = ("Addmm", "Addmv", "Baddbmm", "Bmm", "Convolution", "Linear", "Mm", "Mv", "ScaledDotProduct")
#: Optimizer state that makes up for the rounding of half weights.
_COMPENSATION = ("master", "kahan", "shift", "compensation", "lo_", "residual")


class PrecisionWatch:
    """Looks at dtypes only, which are known on the host: no value is read."""

    def __init__(self, run: Run) -> None:
        self._run = run
        #: (device, dtype) of the regions entered since the last step, and where.
        self.regions: Dict[Tuple[str, torch.dtype], Optional[Site]] = {}
        #: Those of the step before.
        self.last_regions: Dict[Tuple[str, torch.dtype], Optional[Site]] = {}
        self._disabled_sites: Set[Any] = set()
        self._half_without_scaler: Dict[TrackedOptimizer, int] = {}
        self._looked_at_state: Set[TrackedOptimizer] = set()
        self._marks: Dict[TrackedOptimizer, List[Any]] = {}
        #: Optimizers whose gradients nobody wrote to before the clip that is under way.
        self._clean: List[TrackedOptimizer] = []
        #: Number of the backward node that comes after the last region of the CPU.
        self._left = 0
        run.on_step(self._step)

    # ------------------------------------------------------------------------------------------- regions

    def region_entered(self, region: Any) -> None:
        """Autocast is on in a region of a training step."""
        key = (region.device, region.fast_dtype)
        if key not in self.regions and torch.is_grad_enabled():
            self.regions[key] = here()

    def region_left(self, region: Any) -> None:
        """A region of the CPU ends: what comes after this is computed outside of it."""
        if torch.is_grad_enabled():
            self._left = _next_node()

    def region_disabled_itself(self, region: Any) -> None:
        """Autocast was to be on, and is not: the device is missing, or lacks the dtype."""
        site = here()
        if site in self._disabled_sites:
            return
        self._disabled_sites.add(site)
        other = _other_accelerator(region.device)
        if other is not None:
            self._run.report(
                "AMP104",
                f"autocast is for {region.device!r} and switched itself off: this machine has {other!r}",
                site,
                self._run.step,
                subject=region.device,
            )
        else:
            self._run.note(
                f"autocast for {region.device!r} switched itself off: nothing ran in mixed precision"
            )

    def scaler_disabled_itself(self, scaler: Any) -> None:
        """Remember where a scaler comes from that was to be on, and is not."""
        own = self._run.registry.scaler(scaler)
        own.disabled_itself = True
        own.disabled_at = here()

    def _explain_disabled(self, own: TrackedScaler) -> None:
        device = getattr(own.scaler, "_device", "cuda")
        other = _other_accelerator(device)
        if any(dtype == torch.float16 for _, dtype in self.regions):
            self._disabled_scaler(own, "the forward pass ran in float16 all the same")
        elif other is not None:
            self._disabled_scaler(own, f"this machine has {other!r}")
        else:
            self._run.note(f"a GradScaler for {device!r} switched itself off")

    def _disabled_scaler(self, own: TrackedScaler, why: str) -> None:
        device = getattr(own.scaler, "_device", "cuda")
        self._run.report(
            "AMP105",
            f"the GradScaler is for {device!r} and switched itself off: {why}, and the loss is not scaled",
            own.disabled_at,
            self._run.step,
            subject=own.index,
        )

    # -------------------------------------------------------------------------------------------- losses

    def scaled(self, scaler: Any, outputs: Any, result: Any) -> None:
        """A loss is scaled; it must be float32, and its scaler be on."""
        own = self._run.registry.scaler(scaler)
        if not own.enabled:
            if own.disabled_itself:
                self._explain_disabled(own)
            return
        if isinstance(outputs, torch.Tensor) and outputs.dtype in _HALF:
            self._loss(outputs, here())
        if self.regions and all(dtype == torch.bfloat16 for _, dtype in self.regions):
            self._run.report(
                "AMP217",
                "the loss of a bfloat16 region is scaled: bfloat16 has the range of float32 and needs no scaler",
                here(),
                self._run.step,
                subject=own.index,
            )

    def backward_begins(self, roots: Any, gradients: Any) -> None:
        """A loss is differentiated."""
        if isinstance(roots, torch.Tensor) and gradients is None and roots.dtype in _HALF and not roots.dim():
            self._loss(roots, here())

    def _loss(self, loss: torch.Tensor, site: Optional[Site]) -> None:
        kind = str(loss.dtype).rpartition(".")[2]
        if loss.device.type == "cpu" and self._is_within(loss) and _is_float32_elsewhere(loss.grad_fn):
            return
        outside = _is_loss_function(loss.grad_fn)
        where = "outside the autocast region " if outside else ""
        self._run.report(
            "AMP302" if outside else "AMP301",
            f"the loss is computed {where}in {kind}; compute it in float32",
            site,
            self._run.step,
            subject="loss",
        )

    def _is_within(self, loss: torch.Tensor) -> bool:
        """Whether a loss was computed in a region of the CPU."""
        number = getattr(loss.grad_fn, "_sequence_nr", None)
        return autocast_is_on("cpu") or number is None or number() < self._left

    def backward_ended(self) -> None:
        """Remember the gradients of a loss that was not scaled, to see whether somebody scales by hand."""
        for tracked in self._run.touched:
            if not tracked.scaled:
                self._marks[tracked] = tracked.marks

    def clipping(self, name: str, parameters: Any) -> None:
        """A clip writes to gradients too, and is no scaling by hand."""
        self._clean = []
        if any(dtype == torch.float16 for _, dtype in self.regions):
            self._clean = [each for each, marks in self._marks.items() if marks == each.brief_mark()]

    def clipped(self, name: str, parameters: Any, result: Any) -> None:
        """Remember what it wrote."""
        for tracked in self._clean:
            self._marks[tracked] = tracked.brief_mark()

    # ---------------------------------------------------------------------------------------- parameters

    def scaler_stepping(self, scaler: Any, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Gradients are to be unscaled."""
        self._float16_gradients(scaler, optimizer)

    def unscaling(self, scaler: Any, optimizer: Any) -> None:
        """Gradients are to be unscaled."""
        self._float16_gradients(scaler, optimizer)

    def _float16_gradients(self, scaler: Any, optimizer: Any) -> None:
        if not self._run.registry.scaler(scaler).enabled:
            return
        tracked = self._run.registry.optimizer(optimizer)
        if tracked.attempts and not self._run.is_close_step(tracked.attempts):
            return
        bad = [each for each in tracked.parameters() if each.dtype == torch.float16 and each.grad is not None]
        if bad:
            name, module = self._name(bad[0])
            self._run.report(
                "AMP219",
                f"{len(bad)} parameters are float16, {name or 'unnamed'} the first: their gradients cannot be"
                " unscaled; keep parameters in float32 under autocast",
                here(),
                tracked.attempts,
                subject=tracked.index,
                module=module,
                parameter=name,
            )

    def _step(
        self, tracked: TrackedOptimizer, own: Optional[TrackedScaler], skipped: bool, step: int
    ) -> None:
        if not skipped and tracked not in self._looked_at_state:
            self._looked_at_state.add(tracked)
            self._weights(tracked, step)
        self._float16_without_scaler(tracked, own, step)
        if all(each.attempts >= tracked.attempts for each in self._run.registry.optimizers()):
            self.last_regions, self.regions = self.regions, {}
        else:
            self.last_regions = self.regions

    def _weights(self, tracked: TrackedOptimizer, step: int) -> None:
        optimizer = tracked.optimizer
        if optimizer is None:
            return
        half = []
        for each in tracked.parameters():
            if each.grad is None or not each.is_floating_point():
                continue
            state = optimizer.state.get(each, {})
            if each.dtype in _HALF:
                if not any(key.lower().startswith(_COMPENSATION) for key in state if isinstance(key, str)):
                    half.append(each)
                continue
            low = [
                key
                for key, value in state.items()
                if isinstance(value, torch.Tensor) and value.dtype in _HALF and value.shape == each.shape
            ]
            if low and each.dtype == torch.float32:
                name, module = self._name(each)
                self._run.report(
                    "AMP324",
                    f"the optimizer keeps {low[0]} of {name or 'a parameter'} in half precision",
                    tracked.step_site,
                    step,
                    subject=tracked.index,
                    module=module,
                    parameter=name,
                )
        if half:
            name, module = self._name(half[0])
            kind = str(half[0].dtype).rpartition(".")[2]
            self._run.report(
                "AMP312",
                f"{len(half)} parameters are trained in {kind} without float32 master weights,"
                f" {name or 'an unnamed one'} the first",
                tracked.made or tracked.step_site,
                step,
                subject=tracked.index,
                module=module,
                parameter=name,
            )

    def _float16_without_scaler(
        self, tracked: TrackedOptimizer, own: Optional[TrackedScaler], step: int
    ) -> None:
        if own is not None or not any(dtype == torch.float16 for _, dtype in self.regions):
            return
        if not tracked.has_plain or tracked.scaled:
            return
        if any(each.disabled_itself for each in self._run.registry.scalers()):
            return  # AMP105 says it
        if self._marks.get(tracked) != tracked.marks or tracked.is_written_by_hand():
            return  # the gradients were written to: perhaps scaled by hand
        self._half_without_scaler[tracked] = self._half_without_scaler.get(tracked, 0) + 1
        if self._half_without_scaler[tracked] == 2:
            self._run.report(
                "AMP218",
                "the forward pass runs in float16 and nothing scales the loss: gradients below 3e-8 become 0",
                tracked.plain,
                step - 1,
                subject=tracked.index,
            )

    def _name(self, parameter: torch.Tensor) -> Tuple[Optional[str], Optional[str]]:
        if not self._run.names.knows(parameter):
            self._run.names.look()
            self._run.names.give_up_on([parameter])
        name, module, _ = self._run.names.parameter(parameter)
        return name, module


def autocast_is_on(device: str) -> bool:
    """Whether autocast is on for a type of device, in this thread."""
    if hasattr(torch, "get_autocast_dtype"):  # since 2.4
        return bool(torch.is_autocast_enabled(device))
    return bool(torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled())


def _next_node() -> int:
    """The number that autograd gives the next node of this thread; a large one where it does not say."""
    number = getattr(torch._C._autograd, "_get_sequence_nr", None)
    return int(number()) if number is not None else 1 << 62


def _is_float32_elsewhere(node: Any) -> bool:
    """Whether autocast of another device would have computed what leads to this value in float32."""
    waiting, seen = [node] if node is not None else [], 0
    while waiting and seen < 64:
        node = waiting.pop()
        seen += 1
        name = type(node).__name__
        if _FLOAT32_ELSEWHERE.match(name):
            return True
        if not name.startswith(_PRODUCTS):
            waiting.extend(each for each, _ in node.next_functions if each is not None)
    return False


def _is_loss_function(node: Any) -> bool:
    """Whether a value comes from a loss function, perhaps weighted or divided since."""
    for _ in range(4):
        if node is None:
            return False
        name = type(node).__name__
        if name.startswith(_LOSS_NODES):
            return True
        if not name.startswith(("Mul", "Div")) or not node.next_functions:
            return False
        node = node.next_functions[0][0]
    return False


def _other_accelerator(device: str) -> Optional[str]:
    """The type of an accelerator that this machine has, if it is not of this type."""
    accelerator = getattr(torch, "accelerator", None)
    found: Optional[str] = None
    if accelerator is not None:
        try:
            current = accelerator.current_accelerator()
            if current is not None and torch.get_device_module(current).is_available():
                found = current.type
        except Exception:  # 2.6 raises where there is none; a backend may be half installed
            found = None
    if found is None and torch.cuda.is_available():
        found = "cuda"
    npu: Any = getattr(torch, "npu", None)
    if found is None and npu is not None and npu.is_available():
        found = "npu"
    return None if found in (None, device, "cpu") else found
