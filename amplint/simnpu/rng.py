"""Random numbers of the simulated NPU: a generator of its own, which no draw on the CPU moves."""

from __future__ import annotations

from typing import Any, cast

import torch

_cpu_generator_type = torch._C.Generator
_default: torch.Generator | None = None


class _AnyGenerator(type(_cpu_generator_type)):  # type: ignore[misc]
    """Makes the CPU's own generators instances of `Generator` too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _cpu_generator_type)


class Generator(_cpu_generator_type, metaclass=_AnyGenerator):
    """Takes the place of `torch.Generator`: on `npu` it draws as a CPU generator does and says `npu:0`.

    A script sees another stream of numbers than on a real NPU, as it would on a GPU: seeds do not carry
    between kinds of devices.
    """

    def __new__(cls, device: Any = "cpu") -> Generator:
        """Make a generator for `device`."""
        wanted = torch.device(device)
        place = torch.device("cpu") if wanted.type == "npu" else wanted
        own: Generator = cast(Any, _cpu_generator_type).__new__(cls, place)
        own._simulated = torch.device("npu", 0) if wanted.type == "npu" else wanted
        return own

    def __init__(self, device: Any = "cpu") -> None:
        self._simulated: torch.device

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device that the generator belongs to."""
        return self._simulated

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (str(self.device), self.get_state())

    def clone_state(self) -> Generator:
        """A generator of the same device that will draw the same numbers."""
        return _restore(str(self.device), self.get_state())


def _restore(device: str, state: torch.Tensor) -> Generator:
    generator = Generator(device)
    generator.set_state(state)
    return generator


def default() -> torch.Generator:
    """The generator that draws on the NPU use unless given another."""
    global _default
    if _default is None:
        _default = Generator("npu")
        _default.manual_seed(torch.initial_seed())
    return _default


def get_rng_state(device: int | str | torch.device = "npu") -> torch.Tensor:
    """State of the default generator, a CPU tensor of bytes."""
    return default().get_state()


def set_rng_state(new_state: torch.Tensor, device: int | str | torch.device = "npu") -> None:
    """Restore what `get_rng_state` returned."""
    default().set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """States of all devices; all share one generator."""
    return [get_rng_state()]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Restore what `get_rng_state_all` returned."""
    for state in new_states:
        set_rng_state(state)


def manual_seed(seed: int) -> None:
    """Seed the default generator; `torch.manual_seed` calls this as well."""
    default().manual_seed(seed)


def seed() -> None:
    """Seed the default generator from the operating system."""
    default().seed()


def initial_seed() -> int:
    """The seed that the default generator started from."""
    return default().initial_seed()
