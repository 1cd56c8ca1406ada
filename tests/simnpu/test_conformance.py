"""What a training script needs of `npu`, what the simulation gives, and where it is known to end.

The checks are in `checks/`, one file for each process. Those that begin with `not_simulated` say what fails, and
how; `docs/simnpu.md` repeats them.
"""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.parametrize(
    "check", [each for file in GROUPS for each in names(file) if each.startswith("not_")]
)
def test_without_torch_the_page_tells_what_is_not_simulated(check: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "simnpu.md"
    assert f"`{check}`" in page.read_text("utf-8")
