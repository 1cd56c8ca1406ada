"""The norm of the gradients that reach a step must not depend on the loss scale.

Whoever clips by hand, with no call that could be seen, and does so before the gradients are unscaled, gets a
norm of `max_norm / scale`. It shows when the scale changes: norm times scale stays what it was, to the digit.
"""

import math
from typing import Any, Dict, List, Optional, Tuple

import torch

from amplint.runtime.context import Run
from amplint.runtime.tracked import TrackedOptimizer, TrackedScaler, gradient_norms

#: Steps after a skip, when the scale has just changed, whose norms are looked at.
_AFTER_SKIP = 2
#: Norms that must agree, at scales of at least this ratio, and how well.
_NORMS, _RATIO, _TOLERANCE = 5, 1.9, 2e-3
#: Parameters that the norm is taken of.
_PARAMETERS = 64


class NormWatch:
    """Compares norms at different scales, in the steps that are looked at closely and after skips."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._due: Dict[TrackedOptimizer, int] = {}
        self._norms: Dict[Tuple[int, int], float] = {}
        #: Optimizer -> (step, scale, norm).
        self._seen: Dict[int, List[Tuple[int, float, float]]] = {}
        run.on_step(self._step)
        run.on_value("step_norm", self._norm)
        run.on_value("step_scale", self._scale)

    def optimizer_stepping(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Gradients are unscaled and final."""
        tracked = self._run.registry.optimizer(optimizer)
        due = self._due.get(tracked, 0)
        if tracked.depth or not tracked.is_unscaled or not (due or self._run.is_close_step(tracked.attempts)):
            return
        self._due[tracked] = max(0, due - 1)
        scaler = next(iter(tracked.scaled), None)
        scale = scaler.scale if scaler is not None else None
        gradients = [
            each.grad
            for each in tracked.parameters()[:_PARAMETERS]
            if type(each.grad) is torch.Tensor and not each.grad.is_sparse
        ]
        if scale is None or not gradients or getattr(optimizer, "grad_scale", None) is not None:
            return
        norm = torch.linalg.vector_norm(gradient_norms(gradients))
        key = (tracked.index, tracked.attempts)
        self._run.log.put(norm, ("step_norm", key))
        self._run.log.put(scale, ("step_scale", key))

    def _step(
        self, tracked: TrackedOptimizer, own: Optional[TrackedScaler], skipped: bool, step: int
    ) -> None:
        if skipped:
            self._due[tracked] = _AFTER_SKIP

    def _norm(self, value: float, key: Tuple[int, int]) -> None:
        self._norms[key] = value

    def _scale(self, value: float, key: Tuple[int, int]) -> None:
        norm = self._norms.pop(key, math.nan)
        index, step = key
        seen = self._seen.setdefault(index, [])
        if not (math.isfinite(norm) and norm > 0 and math.isfinite(value) and value > 0):
            return
        if seen and not math.isclose(norm * value, seen[-1][1] * seen[-1][2], rel_tol=_TOLERANCE):
            seen.clear()
        seen.append((step, value, norm))
        scales = [each for _, each, _ in seen]
        if len(seen) < _NORMS or max(scales) < _RATIO * min(scales):
            return
        if any(each.code == "AMP201" for each in self._run.findings):
            return
        tracked = next((each for each in self._run.registry.optimizers() if each.index == index), None)
        self._run.report(
            "AMP201",
            f"the gradient norm that reaches step() is {norm * value:.4g} divided by the loss scale:"
            " gradients are clipped, by hand perhaps, before they are unscaled",
            tracked.step_site if tracked is not None else None,
            seen[0][0],
            subject=("norm", index),
            figures=(("norm_times_scale", norm * value),),
        )
