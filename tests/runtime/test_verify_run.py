"""`amplint run`: the script behaves as under `python`, whatever happens to it or to the verifier."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from amplint.runtime import verify
from amplint.runtime.page import read_runs
from amplint.runtime.verify import Options, Verifier

from .training import batch, fp16, loss_of, needs_cpu_scaler, setup

ROOT = Path(verify.__file__).resolve().parents[2]
TRAINING = textwrap.dedent(
    """
    import torch
    from torch import nn
    from torch.nn.utils import clip_grad_norm_

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            output = model(torch.randn(4, 8))
        loss = nn.functional.mse_loss(output.float(), torch.zeros(4, 1))
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
)
CLIP_ROW = next(row for row, line in enumerate(TRAINING.splitlines(), 1) if "    clip_" in line)


def run(folder, *arguments, env=(), **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **dict(env)}
    command = [sys.executable, "-m", "amplint", "run", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, **options
    )


def python(folder, *arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def script(folder, text, name="train.py"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def lines(folder, rank=0):
    (last,) = read_runs(str(folder / f"rank{rank}.jsonl"))[-1:]
    return last


def findings(folder, rank=0):
    return [line["finding"] for line in lines(folder, rank) if line["event"] == "finding"]


# --------------------------------------------------------------------------------------- as python itself


ENVIRONMENT = """
    import json, os, pickle, sys
    assert "torch" not in sys.modules and "click" not in sys.modules
    import beside

    class Kept:
        pass

    pickle.loads(pickle.dumps(Kept()))
    main = sys.modules["__main__"]
    print(json.dumps([sys.argv, __name__, __file__, main.Kept is Kept, sys.path[0], str(__spec__ is None),
                      __package__, beside.__name__, os.environ.get("WHO")]))
    sys.stdout.write("no newline at the end")
    sys.exit(7)
"""


def test_a_script_sees_what_it_sees_under_python(tmp_path):
    script(tmp_path, "", "sub/beside.py")
    script(tmp_path, ENVIRONMENT, "sub/train.py")
    arguments = ("sub/train.py", "--record", "x", "-m", "--", "y")
    ours, theirs = run(tmp_path, *arguments), python(tmp_path, *arguments)
    assert (ours.stdout, ours.stderr, ours.returncode) == (theirs.stdout, theirs.stderr, theirs.returncode)
    assert ours.returncode == 7


def test_a_module_sees_what_it_sees_under_python_m(tmp_path):
    script(tmp_path, "", "pkg/__init__.py")
    script(tmp_path, ENVIRONMENT.replace("import beside", "from pkg import beside"), "pkg/train.py")
    script(tmp_path, "", "pkg/beside.py")
    ours, theirs = run(tmp_path, "-m", "pkg.train", "a"), python(tmp_path, "-m", "pkg.train", "a")
    assert (ours.stdout, ours.returncode) == (theirs.stdout, theirs.returncode)
    assert "pkg" in ours.stdout


def test_an_exception_leaves_the_traceback_and_exit_code_of_python(tmp_path):
    script(tmp_path, "def f():\n    raise ValueError('mine')\nf()\n")
    ours, theirs = run(tmp_path, "train.py"), python(tmp_path, "train.py")
    assert ours.returncode == theirs.returncode == 1
    assert ours.stderr.replace(str(tmp_path) + os.sep, "") == theirs.stderr.replace(
        str(tmp_path) + os.sep, ""
    )


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_a_signal_ends_the_script_as_under_python(tmp_path):
    script(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n", "term.py")
    script(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n", "int.py")
    assert run(tmp_path, "term.py").returncode == -signal.SIGTERM
    assert run(tmp_path, "int.py").returncode == python(tmp_path, "int.py").returncode == -signal.SIGINT


@pytest.mark.parametrize(
    "arguments",
    [
        ("missing.py",),
        (),
        ("--on-overflow", "x", "train.py"),
        ("--every", "0", "train.py"),
        ("--on-overflow", "0=abort", "t"),
    ],
)
def test_wrong_usage_exits_with_2(arguments, tmp_path):
    ended = run(tmp_path, *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr


def test_a_module_that_does_not_exist_is_told_as_python_tells_it(tmp_path):
    ended = run(tmp_path, "-m", "no_such_module_here")
    assert ended.returncode == 1
    assert "No module named no_such_module_here" in ended.stderr


# ---------------------------------------------------------------------------------------- what comes of it


@needs_cpu_scaler
def test_a_run_tells_its_findings_on_stderr_and_keeps_them_in_the_record(tmp_path):
    script(tmp_path, TRAINING + "for _ in range(25):\n    step()\nprint('trained')\n")
    ended = run(tmp_path, "--record", "seen", "train.py")
    assert (ended.stdout, ended.returncode) == ("trained\n", 0)
    assert f"train.py:{CLIP_ROW}:5: AMP201 clip-before-unscale (step 0)" in ended.stderr
    assert "1 finding in 25 optimizer steps, 0 skipped" in ended.stderr
    (found,) = findings(tmp_path / "seen")
    assert (found["filename"], found["location"]) == ("train.py", {"row": CLIP_ROW, "column": 5})
    assert found["end_location"] == {"row": CLIP_ROW, "column": 45}
    assert (found["step"], found["rank"], found["fix"]) == (0, 0, None)
    rows = [line for line in lines(tmp_path / "seen") if line["event"] == "step"]
    assert [row["step"] for row in rows] == list(range(25))
    assert {row["scale"] for row in rows} == {1024.0}
    assert all(row["loss"] > 0 for row in rows)
    page = (tmp_path / "seen" / "rank0.html").read_text("utf-8")
    assert "AMP201" in page and page.count("<svg") == 2


@needs_cpu_scaler
def test_a_killed_run_that_the_environment_variable_observes_leaves_a_record_that_can_be_read(tmp_path):
    script(
        tmp_path,
        "from amplint.runtime import GradScaler\n"
        + TRAINING
        + "import os, signal\nfor n in range(45):\n    step()\nos.kill(os.getpid(), signal.SIGKILL)\n",
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "AMPLINT_VERIFY": str(tmp_path / "seen")}
    ended = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert [found["code"] for found in findings(tmp_path / "seen")] == ["AMP201"]
    steps = [line["step"] for line in lines(tmp_path / "seen") if line["event"] == "step"]
    assert steps == list(range(39))
    with open(tmp_path / "seen" / "rank0.jsonl", "a") as record:
        record.write('{"event": "step", "ste')
    assert len(lines(tmp_path / "seen")) == 41  # half a line, as a full disk leaves it, is no line


@needs_cpu_scaler
def test_after_so_many_skipped_steps_the_script_is_ended_if_asked(tmp_path):
    script(
        tmp_path, TRAINING.replace("1024.0", "2.0**126") + "for n in range(25):\n    step()\n    print(n)\n"
    )
    ended = run(tmp_path, "--on-overflow", "3=abort", "train.py")
    assert (ended.stdout, ended.returncode) == ("0\n1\n", 3)


# -------------------------------------------------------------------------------- failures of the verifier


def train(model, optimizer, scaler, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        with fp16():
            output = model(batch())
        scaler.scale(loss_of(output)).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize(
    "event", ["scaled", "backward_ended", "optimizer_stepping", "region_entered", "updated"]
)
def test_a_failing_verifier_is_told_once_and_the_training_goes_on(event, capsys, monkeypatch):
    from amplint.runtime.protocol import ProtocolWatch

    def fail(*arguments):
        raise RuntimeError("a bug")

    monkeypatch.setattr(ProtocolWatch, event, fail, raising=False)
    model, optimizer, scaler = setup()
    before = [parameter.clone() for parameter in model.parameters()]
    with verify.watch(model, optimizer, scaler) as seen:
        train(model, optimizer, scaler)
    assert any((old != new).any() for old, new in zip(before, model.parameters(), strict=True))
    told = capsys.readouterr().err
    assert told.count("switched itself off") == 1
    assert "a bug" in told
    assert seen.findings == []


def test_a_failing_hook_and_a_failing_end_are_told_once(capsys, monkeypatch):
    from amplint.runtime.closeup import ForwardCloseup

    def fail(*arguments):
        raise RuntimeError("a bug")

    monkeypatch.setattr(ForwardCloseup, "observe", fail)
    monkeypatch.setattr(Verifier, "_finish", fail)
    model, optimizer, scaler = setup()
    with verify.watch(model, optimizer, scaler):
        train(model, optimizer, scaler)
    assert capsys.readouterr().err.count("switched itself off") == 1
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_ends_the_record_and_not_the_run(tmp_path, capsys):
    (tmp_path / "rank0.jsonl").symlink_to("/dev/full")
    model, optimizer, scaler = setup()
    with verify.watch(model, optimizer, scaler, record=str(tmp_path)) as seen:
        train(model, optimizer, scaler)
    assert capsys.readouterr().err.count("the run goes on without it") == 1
    assert seen.steps == 3


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a folder that may not be written to")
def test_a_folder_that_cannot_be_written_is_told_once(tmp_path, capsys):
    tmp_path.chmod(0o500)
    model, optimizer, scaler = setup()
    with verify.watch(model, optimizer, scaler, record=str(tmp_path / "seen")):
        train(model, optimizer, scaler)
    assert capsys.readouterr().err.count("cannot be written") == 1


def test_a_file_in_the_place_of_the_folder_is_told_once(tmp_path, capsys):
    (tmp_path / "seen").write_text("")
    model, optimizer, scaler = setup()
    with verify.watch(model, optimizer, scaler, record=str(tmp_path / "seen")) as seen:
        train(model, optimizer, scaler)
    assert capsys.readouterr().err.count("cannot be written") == 1
    assert seen.steps == 3


def test_a_record_is_appended_to_and_the_last_run_is_read(tmp_path):
    for _ in range(2):
        model, optimizer, scaler = setup()
        with verify.watch(model, optimizer, scaler, record=str(tmp_path)):
            train(model, optimizer, scaler)
        with open(tmp_path / "rank0.jsonl", "a") as record:
            record.write('{"half')
    assert len(read_runs(str(tmp_path / "rank0.jsonl"))) == 2
    assert [line["event"] for line in lines(tmp_path)] == ["run", "step", "step", "step", "end"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_writes_nothing_to_the_record(tmp_path):
    model, optimizer, scaler = setup()
    with verify.watch(model, optimizer, scaler, record=str(tmp_path)) as seen:
        train(model, optimizer, scaler, steps=1)
        before = (tmp_path / "rank0.jsonl").read_bytes()
        child = os.fork()
        if child == 0:
            seen.run.record.write({"event": "note", "message": "from the worker"})
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert (tmp_path / "rank0.jsonl").read_bytes() == before


def test_a_record_is_json_even_where_values_are_no_numbers(tmp_path):
    model, optimizer, _ = setup()
    with verify.watch(model, optimizer, record=str(tmp_path)):
        loss = loss_of(model(batch())) * float("nan")
        loss.backward()
        optimizer.step()
    for line in (tmp_path / "rank0.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda constant: pytest.fail(constant))


def test_options_have_the_defaults_of_the_command():
    assert Options() == Options(record=None, every=50, overflow_limit=0, overflow_action="notify")
