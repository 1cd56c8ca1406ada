"""What a training script needs of `npu`, what the simulation gives, and where it is known to end.

The checks are in `checks/`, one file for each process. Those that begin with `not_simulated` say what fails, and
how; `docs/simnpu.md` repeats them.
"""

from __future__ import annotations

import pytest

from .conftest import names, outcome

#: File with checks -> options of `python -m amplint.simnpu` that they run under.
GROUPS: dict[str, tuple[str, ...]] = {
    "tensors.py": (),
    "autocast.py": (),
    "training.py": (),
    "device.py": ("--devices", "2"),
    "saturating_chip.py": ("--soc", "910A"),
    "cuda_renamed.py": ("--transfer",),
}


@pytest.mark.parametrize(("file", "check"), [(file, name) for file in GROUPS for name in names(file)])
def test_on_the_simulated_npu(file: str, check: str) -> None:
    failure = outcome(file, GROUPS[file])[check]
    assert failure is None, failure
