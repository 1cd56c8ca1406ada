"""`python -m amplint.simnpu`: what it runs, and what passes through."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from amplint import simnpu
from amplint.simnpu.settings import Settings, from_environment, operators

from .conftest import CHECKS, launch


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "show.py"
    file.write_text("import json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ)]))\n")
    return file


def shown(run: subprocess.CompletedProcess[str]) -> tuple[list[str], dict[str, str]]:
    import json

    assert run.returncode == 0, run.stderr
    arguments, environment = json.loads(run.stdout)
    return arguments, environment


def test_without_torch_a_script_gets_its_arguments_and_the_settings(script):
    run = launch("--soc", "910A", "--devices", "4", "--block", "sort", str(script), "--soc", "x", "-m", "y")
    arguments, environment = shown(run)
    assert arguments == ["--soc", "x", "-m", "y"]
    assert from_environment(environment) == Settings("910A", 4, frozenset({"aten::sort"}))


def test_without_torch_the_import_path_is_extended_and_not_replaced(script):
    _, environment = shown(launch(str(script), env={"PYTHONPATH": "/mine"}))
    first, rest = environment["PYTHONPATH"].split(os.pathsep)
    # the checkout's or the installed one's, whichever the interpreter finds
    assert (Path(first).name, Path(first).parent.name, rest) == (simnpu.OVERLAY.name, "simnpu", "/mine")


def test_without_torch_settings_of_an_outer_launcher_are_kept(script):
    outer = Settings("910C", 3, frozenset({"aten::topk"})).environment()
    _, environment = shown(launch("--block", "sort", str(script), env=outer))
    assert from_environment(environment) == Settings("910C", 3, frozenset({"aten::sort", "aten::topk"}))


def test_without_torch_a_switched_off_autoload_is_switched_on(script):
    _, environment = shown(launch(str(script), env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}))
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" not in environment


def test_without_torch_transfer_is_asked_for_as_torch_npu_is(script):
    _, environment = shown(launch("--transfer", str(script)))
    assert environment["TORCH_TRANSFER_TO_NPU"] == "1"


def test_without_torch_a_module_runs(tmp_path, script):
    arguments, _ = shown(launch("-m", "show", "a", cwd=tmp_path))
    assert arguments == ["a"]


def test_without_torch_a_console_script_beside_the_interpreter_runs():
    run = launch("amplint", "--version", env={"PATH": "/nowhere"})
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("amplint")


def test_without_torch_the_exit_code_and_the_streams_pass_through(tmp_path):
    file = tmp_path / "end.py"
    file.write_text("import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(7)\n")
    run = launch(str(file))
    assert (run.returncode, run.stdout, run.stderr) == (7, "out\n", "err\n")


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_without_torch_the_program_is_the_process_that_gets_the_signals(tmp_path):
    file = tmp_path / "wait.py"
    file.write_text("import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "amplint.simnpu", str(file)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((), 2), (("--soc", "999", "x.py"), 2), (("--devices", "0", "x.py"), 2), (("no-such-program",), 127)],
)
def test_without_torch_wrong_usage_is_told(arguments, code):
    run = launch(*arguments)
    assert run.returncode == code
    assert run.stderr
    assert "Traceback" not in run.stderr


def test_without_torch_an_overload_in_the_blocklist_is_refused():
    run = launch("--block", "add.Tensor", "x.py")
    assert run.returncode == 2
    assert "without an overload" in run.stderr
    with pytest.raises(ValueError, match="overload"):
        operators(["add.Tensor"])


def test_without_torch_importing_the_package_does_not_load_torch():
    code = "import amplint.simnpu, sys; sys.exit('torch' in sys.modules or 'torch_npu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_torch_the_simulated_torch_npu_says_its_version_once():
    (info,) = simnpu.OVERLAY.glob("torch_npu-*.dist-info")
    version = info.name.removeprefix("torch_npu-").removesuffix(".dist-info")
    assert f"\nVersion: {version}\n" in (info / "METADATA").read_text()
    assert f'__version__ = "{version}"' in (simnpu.OVERLAY / "torch_npu" / "__init__.py").read_text()


def test_a_script_that_imports_torch_npu_and_one_that_does_not_both_get_the_device(tmp_path):
    child = "import torch; print(torch.ones(1).to('npu').device)"
    file = tmp_path / "train.py"
    file.write_text(
        "import subprocess, sys\nimport torch_npu\nimport torch\nprint(torch.ones(1).npu().device, flush=True)\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)\n"
    )
    run = launch(str(file))
    assert (run.returncode, run.stdout.split()) == (0, ["npu:0", "npu:0"]), run.stderr


def test_activating_before_torch_is_imported_works_under_the_launcher_too(tmp_path):
    file = tmp_path / "early.py"
    file.write_text(
        "from amplint import simnpu\nsimnpu.activate(soc='910A')\nimport torch\nprint(torch.npu.get_device_name())\n"
        "try:\n    simnpu.activate(soc='950')\nexcept RuntimeError as error:\n    print('refused')\n"
    )
    run = launch("--soc", "910A", str(file))
    assert (run.returncode, run.stdout.split()) == (0, ["Ascend910A", "refused"]), run.stderr


def test_a_test_suite_activates_it_in_its_own_process(tmp_path):
    file = tmp_path / "test_mine.py"
    file.write_text(
        "import torch\nfrom amplint import simnpu\n\nsimnpu.activate(soc='910C', blocklist=['sort'])\n\n\n"
        "def test_it():\n    import torch_npu\n    x = torch.ones(2, device='npu')\n"
        "    assert torch_npu.npu.get_device_name() == 'Ascend910_9391'\n"
        "    assert (x @ x).item() == 2\n    assert simnpu.sync_count() == 1\n"
        "    try:\n        x.sort()\n    except NotImplementedError:\n        return\n    raise AssertionError\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torchrun")
def test_two_ranks_under_torchrun_train_over_hccl(tmp_path):
    run = launch("torchrun", "--standalone", "--nproc-per-node", "2", str(CHECKS / "ddp.py"))
    assert run.returncode == 0, run.stdout + run.stderr
    # both write to one pipe, so that their lines may be mixed
    assert "rank 0 done" in run.stdout and "rank 1 done" in run.stdout
