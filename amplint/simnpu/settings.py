"""What is simulated: the chip, the number of devices, and the operators that it refuses.

The settings of a process come from the arguments of `amplint.simnpu.activate` or from environment variables,
through which they reach whatever the process starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

#: Environment variables, one per field of `Settings`.
SOC = "AMPLINT_SIMNPU_SOC"
DEVICES = "AMPLINT_SIMNPU_DEVICES"
BLOCK = "AMPLINT_SIMNPU_BLOCK"
#: 1 makes `import torch_npu` rename CUDA as well, as with the real package.
TRANSFER = "TORCH_TRANSFER_TO_NPU"


@dataclass(frozen=True)
class Chip:
    """What one family of Ascend chips can do.

    Source: `torch_npu.npu.utils.is_support_inf_nan` and `is_bf16_supported` of torch_npu 2.13, asked for each
    name with the C library replaced by a stub.
    """

    #: What `torch.npu.get_device_name()` answers.
    name: str
    #: Whether there are bfloat16 kernels.
    bf16: bool
    #: Whether float16 has Inf and NaN; without, an overflow becomes +-65504 and NaN becomes 0.
    inf_nan: bool
    #: Memory of one device in bytes (figure of the data sheet's smallest variant).
    memory: int


#: `soc` setting -> chip. The keys are those of amplint's own `soc` option.
CHIPS = {
    "910A": Chip("Ascend910A", bf16=False, inf_nan=False, memory=32 << 30),
    "910B": Chip("Ascend910B1", bf16=True, inf_nan=True, memory=64 << 30),
    "910C": Chip("Ascend910_9391", bf16=True, inf_nan=True, memory=64 << 30),
    "950": Chip("Ascend950DT", bf16=True, inf_nan=True, memory=64 << 30),
}


@dataclass(frozen=True)
class Settings:
    """What `activate` simulates.

    Args:
        soc: a key of `CHIPS`.
        devices: how many devices are reported; None means one for each process that `torchrun` starts here.
        blocklist: operators that raise, as those without a kernel do: `aten::name`, or `name`.

    Raises:
        ValueError: for an unknown `soc`, fewer than one device, or an operator with an overload.
    """

    soc: str = "910B"
    devices: int | None = None
    blocklist: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        if self.soc not in CHIPS:
            raise ValueError(f"soc must be one of {', '.join(CHIPS)}, not {self.soc!r}")
        if self.devices is not None and self.devices < 1:
            raise ValueError(f"devices must be at least 1, not {self.devices}")
        object.__setattr__(self, "blocklist", operators(self.blocklist))

    @property
    def chip(self) -> Chip:
        """The chip that `soc` stands for."""
        return CHIPS[self.soc]

    @property
    def saturates(self) -> bool:
        """Whether float16 overflow becomes 65504 instead of Inf.

        `INF_NAN_MODE_FORCE_DISABLE=1` makes every chip do so, as the variable of that name does for torch_npu.
        """
        return not self.chip.inf_nan or os.environ.get("INF_NAN_MODE_FORCE_DISABLE") == "1"

    @property
    def device_count(self) -> int:
        """Devices that `torch.npu.device_count()` reports."""
        return self.devices or max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))

    def environment(self) -> dict[str, str]:
        """The environment variables that `from_environment` reads these settings from."""
        values = {SOC: self.soc, BLOCK: ",".join(sorted(self.blocklist))}
        if self.devices is not None:
            values[DEVICES] = str(self.devices)
        return values


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings that `environment` asks for; what it does not name has its default.

    Raises:
        ValueError: where a value is not one that `Settings` takes.
    """
    devices = environment.get(DEVICES)
    return Settings(
        soc=environment.get(SOC) or "910B",
        devices=int(devices) if devices else None,
        blocklist=frozenset(environment.get(BLOCK, "").split(",")),
    )


def operators(names: Iterable[str]) -> frozenset[str]:
    """Operator names in the dispatcher's spelling, `aten::name`.

    Raises:
        ValueError: for a name with an overload: PyTorch runs `add.Tensor` as `add.out`, so that overloads cannot
            be told apart.
    """
    stripped = [name.strip() for name in names]
    for name in stripped:
        if "." in name:
            raise ValueError(f"name the operator without an overload: {name.partition('.')[0]}, not {name}")
    return frozenset(name if "::" in name else f"aten::{name}" for name in stripped if name)
