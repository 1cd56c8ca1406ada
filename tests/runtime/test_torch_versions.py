"""The tests of the shim and of the verifier under real older releases of PyTorch, each in an environment of its own.

`pytest -m slow tests/runtime/test_torch_versions.py`; AMPLINT_TORCH_VERSIONS=2.4.1,2.8.0 names other releases. An
environment takes up to 6 GB while it is there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: The oldest that the shim supports; the first with a GradScaler for the CPU; the first with torch.accelerator.
VERSIONS = os.environ.get("AMPLINT_TORCH_VERSIONS", "2.1.2,2.3.1,2.6.0").split(",")
OTHERS = ("pytest", "hypothesis", "click", "libcst", "pathspec", "rich", "tomli")


def is_older(version: str, than: tuple[int, int]) -> bool:
    return tuple(int(part) for part in version.split(".")[:2]) < than


@pytest.fixture
def python(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The interpreter of an environment with a release of torch; skips where the package index has none."""
    version = request.param
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=True)
    interpreter = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    numpy = "numpy<2" if is_older(version, (2, 3)) else "numpy"
    command = [
        interpreter,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-cache-dir",
        f"torch=={version}",
        numpy,
        *OTHERS,
    ]
    installed = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        if installed.returncode:
            last = [line for line in installed.stderr.splitlines() if line.startswith("ERROR")][-1:]
            pytest.skip(f"torch {version} cannot be installed: {' '.join(last) or installed.stderr[-200:]}")
        yield interpreter
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize("python", VERSIONS, indirect=True)
def test_the_shim_and_the_verifier_pass_their_tests(python, request):
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "AMPLINT"))
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "rules")])
    environment.update(PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
    program = "import torch; print(torch.__version__)"
    told = subprocess.run(
        [python, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith(request.node.callspec.params["python"])
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--tb=short"]
    ended = subprocess.run(
        [*command, "tests/runtime"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    print(ended.stdout[-3000:])
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
