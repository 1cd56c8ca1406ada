"""Ports and repairs of the sample scripts: what `amplint fix` writes, and what the result then does.

The recorder itself is tested first, on ports written by hand: faithful ones in either style leave
the trace as it was, and each way of breaking one shows in it.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from porting import DIFFS, SAMPLES, SCRIPTS, copy, diff, fix
from record import Event, Recording, record, stop

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the samples need torch")

STYLES = ("torch", "shim")
NO_AMP = ("--no-amp",)

#: Every sample in every configuration that it offers.
RUNS = [
    ("classification", ()),
    ("classification", NO_AMP),
    ("gan", ()),
    ("transformer", ()),
    ("transformer", NO_AMP),
]

#: Sample -> the optimizer whose clips see scaled gradients, by order of construction.
CLIPPED_WHILE_SCALED = {"classification": 0, "gan": 1, "transformer": 0}

REGION = {"device": "ACC", "dtype": "float16", "enabled": True, "cache": True}

Edits = list[tuple[str, str]]


@pytest.fixture(scope="module", autouse=True)
def worker() -> Iterator[None]:
    yield
    stop()


@functools.cache
def original(sample: str, args: tuple[str, ...] = ()) -> Recording:
    """The recording of `sample` as it is checked in."""
    return record(SAMPLES / sample / SCRIPTS[sample], args)


def edited(sample: str, edits: Edits, folder: Path, args: tuple[str, ...] = ()) -> Recording:
    """The recording of a copy of `sample` after each edit (old text, new text) was made in every file."""
    copy(sample, folder)
    for old, new in edits:
        texts = {file: file.read_text() for file in folder.glob("*.py")}
        assert any(old in text for text in texts.values()), f"nothing to edit: {old!r}"
        for file, text in texts.items():
            file.write_text(text.replace(old, new))
    return record(folder / SCRIPTS[sample], args)


def added_events(before: list[Event], after: list[Event]) -> list[Event]:
    """The events that `after` has on top of `before`; fails where an event of `before` is lost or moved."""
    added = []
    kept = 0
    for event in after:
        if kept < len(before) and event == before[kept]:
            kept += 1
        else:
            added.append(event)
    assert kept == len(before), f"lost or moved: {before[kept]}"
    return added


def clips_of_scaled_gradients(trace: list[Event]) -> list[Event]:
    """The clips that do not directly follow a backward pass and the `unscale_` of their own optimizer."""
    return [
        event
        for index, event in enumerate(trace)
        if event["event"].startswith("clip_grad")
        and not (
            trace[index - 1]["event"] == "scaler.unscale_"
            and [trace[index - 1]["optimizer"]] == event["optimizers"]
            and trace[index - 2]["event"] == "backward"
        )
    ]


# -- the samples


@pytest.mark.parametrize(("sample", "args"), RUNS)
def test_a_sample_gives_the_same_recording_in_another_process(sample: str, args: tuple[str, ...]) -> None:
    first = original(sample, args)
    stop()

    assert all(math.isfinite(loss) for loss in first.losses)
    assert first == record(SAMPLES / sample / SCRIPTS[sample], args)


@pytest.mark.parametrize("sample", ["classification", "transformer"])
def test_the_loss_of_a_sample_falls(sample: str) -> None:
    losses = original(sample).losses

    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("sample", SCRIPTS)
def test_a_sample_clips_the_scaled_gradients_of_one_optimizer(sample: str) -> None:
    wrong = clips_of_scaled_gradients(original(sample).trace)

    assert wrong
    assert {tuple(clip["optimizers"]) for clip in wrong} == {(CLIPPED_WHILE_SCALED[sample],)}


def test_the_generator_forward_of_the_gan_enters_no_autocast_region_under_no_grad() -> None:
    trace = original("gan").trace
    forward = trace.index({"event": "module", "name": "Generator", "grad": False})

    assert "autocast.enter" not in [event["event"] for event in trace[:forward]]


# -- the recorder, on ports written by hand

DEVICE = """\
accelerator = torch.accelerator.current_accelerator()
AMP_DEVICE = accelerator.type if accelerator else "cuda"
"""

HAND_PORTS: dict[str, Edits] = {
    "classification": [
        ("from torch.cuda.amp import GradScaler, autocast\n", DEVICE),
        ("from torch.cuda.amp import autocast\n", DEVICE),
        (" GradScaler(enabled", " torch.amp.GradScaler(AMP_DEVICE, enabled"),
        ("with autocast(", "with torch.autocast(AMP_DEVICE, dtype=torch.float16, "),
        ("@autocast()", "@torch.autocast(AMP_DEVICE, dtype=torch.float16)"),
    ],
    "gan": [
        ("from torch.cuda import amp\n", DEVICE),
        ("@amp.custom_fwd(", "@torch.amp.custom_fwd(device_type=AMP_DEVICE, "),
        ("@amp.custom_bwd", "@torch.amp.custom_bwd(device_type=AMP_DEVICE)"),
        (" amp.autocast()", " torch.autocast(AMP_DEVICE, dtype=torch.float16)"),
        (" amp.GradScaler()", " torch.amp.GradScaler(AMP_DEVICE)"),
    ],
    "transformer": [
        ("from torch import nn\n", "from torch import nn\n" + DEVICE),
        ("torch.cuda.amp.autocast(", "torch.autocast(AMP_DEVICE, dtype=torch.float16, enabled="),
        ("torch.cuda.amp.GradScaler(", "torch.GradScaler(AMP_DEVICE, "),
        ('torch.autocast("cuda", enabled', "torch.autocast(AMP_DEVICE, dtype=torch.float16, enabled"),
    ],
}

#: A shim like any that keeps the signatures of torch.cuda.amp and turns itself off without an accelerator.
SHIM = """\
import functools

import torch


class autocast(torch.autocast):
    def __init__(self, enabled=True, dtype=torch.float16, cache_enabled=True):
        super().__init__("cpu", dtype=torch.bfloat16, enabled=False, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    def __init__(
        self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True
    ):
        super().__init__("cpu", enabled=False)

    def step(self, optimizer, *args, **kwargs):
        return super().step(optimizer, *args, **kwargs)


custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="cuda")
"""

HAND_SHIM_PORTS: dict[str, Edits] = {
    "classification": [("from torch.cuda.amp import", "from _amp import")],
    "gan": [("from torch.cuda import amp\n", "import _amp as amp\n")],
    "transformer": [
        ("from torch import nn\n", "from torch import nn\nimport _amp\n"),
        ("torch.cuda.amp.", "_amp."),
        ('torch.autocast("cuda", enabled', "_amp.autocast(enabled"),
    ],
}


@pytest.mark.parametrize(("sample", "args"), RUNS)
def test_a_faithful_port_to_torch_leaves_losses_and_trace_alone(
    sample: str, args: tuple[str, ...], tmp_path: Path
) -> None:
    assert edited(sample, HAND_PORTS[sample], tmp_path, args) == original(sample, args)


@pytest.mark.parametrize("sample", SCRIPTS)
def test_a_shim_is_recorded_by_what_it_was_asked_for(sample: str, tmp_path: Path) -> None:
    (tmp_path / "_amp.py").write_text(SHIM)

    assert edited(sample, HAND_SHIM_PORTS[sample], tmp_path) == original(sample)


CLASSIFICATION_REGION = "with autocast(enabled=self.config.amp):"
CLASSIFICATION_FORWARD = "            logits = self.model(images)\n"
LM_REGION = "torch.cuda.amp.autocast(args.amp)"

BROKEN_PORTS: dict[str, tuple[str, tuple[str, ...], Edits]] = {
    "the enabled flag of autocast is lost": (
        "transformer",
        NO_AMP,
        [(LM_REGION, 'torch.autocast("cuda", dtype=torch.float16)')],
    ),
    "the enabled flag of the scaler is lost": (
        "classification",
        NO_AMP,
        [("GradScaler(enabled=config.amp)", 'torch.amp.GradScaler("cuda")')],
    ),
    "the scaler's flag becomes its device": (
        "transformer",
        (),
        [
            (
                "torch.cuda.amp.GradScaler(init_scale=2.0**14, enabled=args.amp)",
                "torch.amp.GradScaler(args.amp, init_scale=2.0**14)",
            )
        ],
    ),
    "the initial scale is lost": ("transformer", (), [("init_scale=2.0**14, ", "")]),
    "the region has another dtype": (
        "classification",
        (),
        [(CLASSIFICATION_REGION, 'with torch.autocast("cuda", dtype=torch.bfloat16):')],
    ),
    "the decorator's region is lost": ("classification", (), [("@autocast()\n", "")]),
    "the region takes the model's own device": (
        "transformer",
        (),
        [(LM_REGION, "torch.autocast(device.type, dtype=torch.float16, enabled=args.amp)")],
    ),
    "the region is entered on the CPU": (
        "transformer",
        (),
        [('torch.autocast("cuda", enabled=False)', 'torch.autocast("cpu", enabled=False)')],
    ),
    "the protected loss loses its region": (
        "transformer",
        (),
        [('with torch.autocast("cuda", enabled=False):', "if True:")],
    ),
    "the forward pass leaves the region": (
        "classification",
        (),
        [
            (CLASSIFICATION_FORWARD, ""),
            (CLASSIFICATION_REGION, CLASSIFICATION_FORWARD.lstrip() + 8 * " " + CLASSIFICATION_REGION),
        ],
    ),
    "no_grad is lost": ("gan", (), [("amp.autocast() and torch.no_grad()", "torch.enable_grad()")]),
    "the scaler's step is bypassed": (
        "transformer",
        (),
        [("scaler.step(optimizer)", "optimizer.step()")],
    ),
    "the scaler's step is dropped": ("gan", (), [("scaler.step(opt_d)", "pass")]),
    "the loss is not scaled": ("gan", (), [("scaler.scale(loss_g)", "loss_g")]),
    "the update is dropped": ("classification", (), [("self.scaler.update()", "pass")]),
    "each optimizer has an update of its own": (
        "gan",
        (),
        [("scaler.step(opt_d)", "scaler.step(opt_d); scaler.update()")],
    ),
    "each optimizer has a scaler of its own": (
        "gan",
        (),
        [
            ("scaler = amp.GradScaler()", "scaler, other = amp.GradScaler(), amp.GradScaler()"),
            ("scaler.step(opt_g)", "other.step(opt_g)"),
        ],
    ),
    "the optimizers are swapped in the steps": (
        "gan",
        (),
        [
            ("scaler.step(opt_d)", "scaler.step(swap)"),
            ("scaler.step(opt_g)", "scaler.step(opt_d)"),
            ("scaler.step(swap)", "scaler.step(opt_g)"),
        ],
    ),
    "the optimizers are swapped in unscale_": (
        "gan",
        (),
        [("scaler.unscale_(opt_g)", "scaler.unscale_(opt_d)")],
    ),
    "the clip is dropped": (
        "classification",
        (),
        [("nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_norm)", "pass")],
    ),
    "the clip has another limit": ("transformer", (), [("args.grad_clip)", "2 * args.grad_clip)")]),
    "the clip takes another network": (
        "gan",
        (),
        [("(discriminator.parameters(), args.clip_d)", "(generator.parameters(), args.clip_d)")],
    ),
    "cast_inputs is lost": ("gan", (), [("@amp.custom_fwd(cast_inputs=torch.float32)", "@amp.custom_fwd")]),
    "custom_bwd is lost": ("gan", (), [("    @amp.custom_bwd\n", "")]),
    "the clip comes after the step": (
        "transformer",
        (),
        [
            ("            nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)\n", ""),
            (
                "scaler.step(optimizer)",
                "scaler.step(optimizer); nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)",
            ),
        ],
    ),
}


@pytest.mark.parametrize(("sample", "args", "edits"), BROKEN_PORTS.values(), ids=BROKEN_PORTS.keys())
def test_a_broken_port_shows_in_the_trace(
    sample: str, args: tuple[str, ...], edits: Edits, tmp_path: Path
) -> None:
    assert edited(sample, edits, tmp_path, args).trace != original(sample, args).trace


def test_a_script_that_fails_is_reported_and_does_not_disturb_the_next(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        edited("gan", [("scaler.update()", "step // 0")], tmp_path)

    assert record(SAMPLES / "gan" / "train_gan.py") == original("gan")


HAND_REPAIRS: dict[str, Edits] = {
    "classification": [
        (
            "            nn.utils.clip",
            "            self.scaler.unscale_(self.optimizer)\n            nn.utils.clip",
        )
    ],
    "gan": [
        ("scaler.scale(loss_d).backward()", "scaler.scale(loss_d).backward(); scaler.unscale_(opt_d)"),
        ("amp.autocast() and torch.no_grad()", "amp.autocast(), torch.no_grad()"),
    ],
    "transformer": [
        ("            nn.utils.clip", "            scaler.unscale_(optimizer)\n            nn.utils.clip")
    ],
}


def assert_repaired(sample: str, repaired: Recording) -> None:
    """The repaired run differs from the original by the missing `unscale_` calls and regions, no more."""
    before = original(sample)
    added = added_events(before.trace, repaired.trace)
    unscaled = [event for event in added if event["event"] == "scaler.unscale_"]
    regions = [event for event in added if event["event"] != "scaler.unscale_"]
    unguarded = before.trace.count({"event": "module", "name": "Generator", "grad": False})

    assert clips_of_scaled_gradients(repaired.trace) == []
    assert len(unscaled) == len(clips_of_scaled_gradients(before.trace))
    assert {event["optimizer"] for event in unscaled} == {CLIPPED_WHILE_SCALED[sample]}
    assert (
        regions == [{"event": "autocast.enter", **REGION}, {"event": "autocast.exit", **REGION}] * unguarded
    )
    assert repaired.losses == before.losses


@pytest.mark.parametrize("sample", SCRIPTS)
def test_a_right_repair_passes_the_check_of_repairs(sample: str, tmp_path: Path) -> None:
    assert_repaired(sample, edited(sample, HAND_REPAIRS[sample], tmp_path))


@pytest.mark.parametrize(
    ("sample", "edits"),
    [
        ("transformer", []),
        ("transformer", [("scaler.step(optimizer)", "scaler.unscale_(optimizer); scaler.step(optimizer)")]),
        ("transformer", [*HAND_REPAIRS["transformer"], ("scaler.update()", "pass")]),
        (
            "transformer",
            [(".accumulation).backward()", ".accumulation).backward(); scaler.unscale_(optimizer)")],
        ),
        (
            "gan",
            [HAND_REPAIRS["gan"][1], ("loss_d).backward()", "loss_d).backward(); scaler.unscale_(opt_g)")],
        ),
        ("gan", [HAND_REPAIRS["gan"][0]]),
    ],
    ids=[
        "nothing was repaired",
        "unscale_ after the clip",
        "the update is lost on the way",
        "unscale_ on every micro-batch",
        "unscale_ of the other optimizer",
        "the region is still not entered",
    ],
)
def test_a_wrong_repair_fails_the_check_of_repairs(sample: str, edits: Edits, tmp_path: Path) -> None:
    repaired = edited(sample, edits, tmp_path)

    with pytest.raises(AssertionError):
        assert_repaired(sample, repaired)


# -- what amplint makes of the samples

#: (sample, style, options of `amplint fix`) -> the rewritten copy and the exit status.
Rewrite = Callable[..., tuple[Path, int]]


@pytest.fixture(scope="module")
def rewrite(tmp_path_factory: pytest.TempPathFactory) -> Rewrite:
    @functools.cache
    def rewritten(sample: str, style: str = "torch", options: tuple[str, ...] = ()) -> tuple[Path, int]:
        folder = copy(sample, tmp_path_factory.mktemp(f"{sample}-{style}"))
        return folder, fix(folder, *options, style=style)

    return rewritten


@pytest.mark.parametrize("file", DIFFS)
@pytest.mark.parametrize("sample", SCRIPTS)
def test_fix_writes_the_checked_in_diff(sample: str, file: str, rewrite: Rewrite) -> None:
    folder, _ = rewrite(sample, options=DIFFS[file])

    assert diff(sample, folder) == (SAMPLES / sample / file).read_bytes().decode()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("sample", "args"), RUNS)
def test_a_ported_sample_has_the_losses_and_the_trace_of_the_original(
    sample: str, args: tuple[str, ...], style: str, rewrite: Rewrite
) -> None:
    folder, _ = rewrite(sample, style)

    assert diff(sample, folder) != ""
    assert record(folder / SCRIPTS[sample], args) == original(sample, args)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("sample", SCRIPTS)
def test_a_repaired_sample_unscales_before_every_clip_and_is_otherwise_the_same(
    sample: str, style: str, rewrite: Rewrite
) -> None:
    folder, _ = rewrite(sample, style, ("--repair",))

    assert_repaired(sample, record(folder / SCRIPTS[sample]))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("sample", SCRIPTS)
def test_a_port_leaves_the_repairs_to_report_and_a_repair_leaves_nothing(
    sample: str, style: str, rewrite: Rewrite
) -> None:
    _, after_port = rewrite(sample, style)
    _, after_repair = rewrite(sample, style, ("--repair",))

    assert (after_port, after_repair) == (1, 0)
