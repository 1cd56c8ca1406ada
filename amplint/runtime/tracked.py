"""What is known of each optimizer and scaler of the run: whose loss its gradients come from, and their state."""

import weakref
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import torch

from amplint.runtime.place import Site

#: Parameters of an optimizer that are looked at to tell whether a backward pass reached it; one in so many of
#: these tells whether the user wrote to the gradients.
_PROBES, _ONE_IN = 12, 3

#: (id of the gradient, its version): changes whenever the gradient is replaced or written to.
Mark = Tuple[int, int]

#: A clip of scaled gradients: what clipped, where, and where the scaled loss was differentiated.
Clip = Tuple[str, Optional[Site], Optional[Site]]


class TrackedOptimizer:
    """One optimizer, and where its gradients are between two steps."""

    def __init__(self, optimizer: torch.optim.Optimizer, index: int, made: Optional[Site]) -> None:
        self._ref = weakref.ref(optimizer)
        self.index = index
        self.kind = type(optimizer).__name__
        self.made = made
        #: Steps asked for so far, skipped ones included: the number of the coming step.
        self.attempts = 0
        self.depth = 0
        self.last_scaler: Optional["TrackedScaler"] = None
        self.step_site: Optional[Site] = None
        self.backward_site: Optional[Site] = None
        #: Nothing was added to the gradients since the last step.
        self.consumed = False
        self.consumed_by_scaler = False
        self.fresh()
        #: `brief_mark` after the last call that was seen.
        self.marks: List[Optional[Mark]] = []
        self._probes: List[torch.Tensor] = []
        self._brief: List[torch.Tensor] = []
        self._owned: Set[int] = set()
        self._size = -1

    def fresh(self) -> None:
        """The gradients are empty, or zero."""
        #: Scaler -> number of its updates when a loss that it scaled was differentiated, and where that was.
        self.scaled: Dict["TrackedScaler", Dict[int, Optional[Site]]] = {}
        #: Where a loss without scale was differentiated.
        self.plain: Optional[Site] = None
        self.has_plain = False
        self.unscaled_at: Optional[Site] = None
        self.is_unscaled = False
        #: Where scaled gradients were added to unscaled ones: the `unscale_` that came too early.
        self.mixed: Optional[Site] = None
        self.is_mixed = False
        self.zeroed_at: Optional[Site] = None
        #: The user wrote to them since, and so unscaled them, perhaps.
        self.is_by_hand = False
        #: The first clip of them while they were scaled.
        self.clip: Optional[Clip] = None

    def consume(self) -> None:
        """A step used the gradients, or was skipped."""
        self.fresh()
        self.consumed = True

    @property
    def optimizer(self) -> Optional[torch.optim.Optimizer]:
        """The optimizer, while it lives."""
        return self._ref()

    @property
    def is_scaled(self) -> bool:
        """Whether the gradients hold a loss scale that nobody took out yet."""
        return bool(self.scaled) and not self.is_unscaled

    def parameters(self) -> List[torch.Tensor]:
        """All parameters of all groups."""
        return [each for group in self._groups() for each in group["params"]]

    def _groups(self) -> List[Dict[str, Any]]:
        # none where the optimizer is gone, or is no optimizer of torch's
        return getattr(self._ref(), "param_groups", None) or []

    def refresh(self) -> None:
        """Take note of parameters that were added; before every backward pass."""
        size = sum(len(group["params"]) for group in self._groups())
        if size == self._size:
            return
        self._size = size
        parameters = self.parameters()
        self._owned = {id(each) for each in parameters}
        candidates = [each for each in parameters if getattr(each, "requires_grad", False)]
        stride = max(1, -(-len(candidates) // _PROBES))
        self._probes = candidates[::stride]
        self._brief = self._probes[::_ONE_IN]
        self.marks = self.brief_mark()

    def owns(self, parameters: List[torch.Tensor]) -> bool:
        """Whether any of the parameters belongs to this optimizer."""
        if self._size < 0:
            self.refresh()
        return any(id(each) in self._owned for each in parameters)

    def owned_within(self, keys: Set[int]) -> bool:
        """Whether everything that is looked at here is among the objects with these ids."""
        if self._size < 0:
            self.refresh()
        return bool(self._probes) and all(id(each) in keys for each in self._probes)

    def mark(self) -> List[Optional[Mark]]:
        """The state of the gradients, to compare with a later one."""
        return _marks(self._probes)

    def brief_mark(self) -> List[Optional[Mark]]:
        """That of a few of them, and so cheaper."""
        return _marks(self._brief)

    @staticmethod
    def brief(mark: List[Optional[Mark]]) -> List[Optional[Mark]]:
        """What `brief_mark` would have said when this was the `mark`."""
        return mark[::_ONE_IN]

    def is_written_by_hand(self) -> bool:
        """Whether gradients changed since the last call that was seen: they mean what the user made of them."""
        return self.brief_mark() != self.marks

    def notice_new_gradients(self) -> None:
        """Gradients of `torch.autograd.grad` that were put in place after a step are not those of that step."""
        if self.consumed and self.is_written_by_hand():
            self.consumed = False


def _marks(parameters: List[torch.Tensor]) -> List[Optional[Mark]]:
    return [
        None if (gradient := each.grad) is None else (id(gradient), gradient._version) for each in parameters
    ]


class TrackedScaler:
    """One scaler, and what it did since its last update."""

    def __init__(self, scaler: Any, index: int) -> None:
        self._ref = weakref.ref(scaler)
        self.index = index
        #: Where it was made, if it was to be enabled and switched itself off.
        self.disabled_at: Optional[Site] = None
        self.disabled_itself = False
        self.updates = 0
        self.stepped: Dict[TrackedOptimizer, Optional[Site]] = {}
        self.unscaled: Dict[TrackedOptimizer, Optional[Site]] = {}
        #: Optimizers stepped, by cycle, and the update that closed the cycle; of the last few cycles.
        self.cycles: Dict[int, Tuple[Set[TrackedOptimizer], Optional[Site]]] = {}
        self.skipped = False
        self.consecutive_skips = 0
        self.good_in_a_row = 0
        self.step_site: Optional[Site] = None
        self.step = 0

    @property
    def scaler(self) -> Any:
        """The scaler, while it lives."""
        return self._ref()

    @property
    def enabled(self) -> bool:
        """Whether it scales at all."""
        return bool(getattr(self._ref(), "_enabled", False))

    @property
    def scale(self) -> Optional[torch.Tensor]:
        """Its scale on the device; None before the first loss."""
        return getattr(self._ref(), "_scale", None)

    def close_cycle(self, site: Optional[Site]) -> None:
        """`update` was called."""
        self.cycles[self.updates] = (set(self.stepped), site)
        self.cycles.pop(self.updates - 16, None)
        self.updates += 1
        self.stepped = {}
        self.unscaled = {}


class Registry:
    """Optimizers and scalers by identity."""

    def __init__(self) -> None:
        self._optimizers: Dict[int, TrackedOptimizer] = {}
        self._scalers: Dict[int, TrackedScaler] = {}
        self._made = 0

    def optimizer(self, optimizer: Any, made: Optional[Site] = None) -> TrackedOptimizer:
        """The record of an optimizer; a new one for one that was never seen."""
        found = self._optimizers.get(id(optimizer))
        if found is not None and found.optimizer is optimizer:
            return found
        optimizer = unwrapped(optimizer)
        found = self._optimizers.get(id(optimizer))
        if found is None or found.optimizer is not optimizer:
            found = TrackedOptimizer(optimizer, self._made, made)
            self._made += 1
            self._optimizers[id(optimizer)] = found
        return found

    def optimizers(self) -> List[TrackedOptimizer]:
        """All that are known."""
        return list(self._optimizers.values())

    def refresh(self) -> None:
        """Forget optimizers that are gone, and those that got another one inside after they were made."""
        for key, each in list(self._optimizers.items()):
            optimizer = each.optimizer
            if optimizer is None or unwrapped(optimizer) is not optimizer:
                del self._optimizers[key]
            else:
                each.refresh()

    def scaler(self, scaler: Any) -> TrackedScaler:
        """The record of a scaler; a new one for one that was never seen."""
        found = self._scalers.get(id(scaler))
        if found is None or found.scaler is not scaler:
            found = TrackedScaler(scaler, len(self._scalers))
            self._scalers[id(scaler)] = found
        return found

    def scalers(self) -> List[TrackedScaler]:
        """All that were seen."""
        return list(self._scalers.values())


def gradient_norms(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """The norm of each gradient in float32, [number of gradients], on the device of the first."""
    device = gradients[0].device
    with torch.no_grad():
        norms = [torch.linalg.vector_norm(each, dtype=torch.float32).to(device) for each in gradients]
        return torch.stack(norms)


def unwrapped(optimizer: Any) -> Any:
    """The optimizer inside wrappers: one held as `optimizer` (accelerate's), or with the same groups (Lookahead)."""
    for _ in range(8):
        held = getattr(optimizer, "__dict__", {})
        inner = held.get("optimizer")  # cheaper than a failing getattr
        if not isinstance(inner, torch.optim.Optimizer):
            groups = held.get("param_groups")
            if groups is None:
                break
            inner = next(
                (
                    each
                    for each in held.values()
                    if isinstance(each, torch.optim.Optimizer) and each.__dict__.get("param_groups") is groups
                ),
                None,
            )
        if inner is None or inner is optimizer:
            break
        optimizer = inner
    return optimizer
