"""Stands in for `torch_npu`: importing it, or PyTorch loading it by itself, makes the simulated NPU the `npu`."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def _autoload() -> None:
    """Entry point of the group `torch.backends`: importing this module does it all.

    It comes first, because PyTorch calls it half-way where a script imports `torch_npu` before `torch`.
    """


try:
    from amplint import simnpu
except ModuleNotFoundError:  # an interpreter of another environment, started by one that has amplint
    sys.path.append(str(Path(__file__).resolve().parents[4]))
    from amplint import simnpu

simnpu.activate_from_environment()

#: That of the torch_npu whose behaviour is simulated.
__version__ = "2.13.0+simnpu"

npu = sys.modules["torch.npu"]
for _name in [name for name in sys.modules if name == "torch.npu" or name.startswith("torch.npu.")]:
    sys.modules[_name.replace("torch.", "torch_npu.", 1)] = sys.modules[_name]


if os.environ.get("TORCH_TRANSFER_TO_NPU") == "1":
    from torch_npu.contrib import transfer_to_npu  # noqa: F401
