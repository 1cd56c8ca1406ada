"""Mistakes that only values and dtypes show: scales, losses, norms, gradients, weights."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn

from amplint.runtime import verify
from amplint.runtime.anchors import SCALER
from amplint.runtime.context import Options, Run
from amplint.runtime.history import HistoryWatch

from .training import Net, batch, fp16, loss_of, only, row_of, scaler, setup


def codes(run):
    return [each.code for each in run.findings]


def step_of(model, optimizer, s, loss=loss_of, factor=1.0):
    optimizer.zero_grad()
    with fp16():
        output = model(batch())
    s.scale(loss(output) * factor).backward()
    s.step(optimizer)
    s.update()


# ------------------------------------------------------------------------------------------------ loss scale


def history(scales, start=1024.0):
    """Findings after these updates: (scale after it, whether the step was skipped)."""
    run = Run(Options())
    watch = HistoryWatch(run)
    for step, (scale, skipped) in enumerate(scales):
        watch._judge_scale(scale, 0, step, skipped, False, None, ())
    return run.findings


def falling(count, every, start=2.0**40, steps_of=0.5):
    scale = start
    for step in range(count):
        skipped = step % every == every - 1
        scale *= steps_of if skipped else 1
        yield scale, skipped


def test_more_than_one_percent_of_overflows_after_warm_up_is_found_once():
    found = history((1024.0, step > 60 and step % 40 == 0) for step in range(400))
    assert [each.code for each in found] == ["RUN101"]
    assert dict(found[0].figures)["skipped"] >= 3


def test_probes_of_a_larger_scale_are_normal():
    scales = []
    for _ in range(20):
        scales += [(1024.0, False)] * 28 + [(2048.0, False), (1024.0, True)]
    assert history(scales) == []


def test_finding_the_level_at_the_start_is_normal():
    scales = [(2.0 ** (16 - step), True) for step in range(1, 13)] + [(16.0, False)] * 300
    assert history(scales) == []


def test_a_scale_that_only_falls_is_found():
    found = [each for each in history(falling(400, 30)) if each.code == "RUN102"]
    assert len(found) == 1
    assert found[0].step < 300


def test_a_scale_that_falls_and_recovers_is_silent():
    scales = []
    for _ in range(8):
        scales += [(512.0, True)] + [(512.0, False)] * 60 + [(1024.0, False)] * 100
    assert [each.code for each in history(scales) if each.code != "RUN101"] == []


def test_a_burst_of_overflows_after_a_long_good_stretch_is_found_at_its_first_step():
    scales = [(1024.0, False)] * 200 + [(512.0, True), (256.0, True), (128.0, True)] + [(128.0, False)] * 50
    assert [(each.code, each.step) for each in history(scales) if each.code == "RUN105"] == [("RUN105", 200)]


def test_a_scale_below_one_is_found_at_its_step_and_zero_is_told_apart():
    found = history([(2.0, True), (1.0, True), (0.5, True), (0.25, True), (0.0, True)])
    assert [(each.code, each.step) for each in found] == [("RUN104", 2), ("RUN104", 4)]
    assert "is 0" in found[1].message


def test_a_scale_that_the_user_sets_is_not_judged():
    run = Run(Options())
    watch = HistoryWatch(run)
    for step, scale in enumerate([1024.0, 0.5]):
        watch._judge_scale(scale, 0, step, False, step == 1, None, ())
    assert run.findings == []


def test_a_run_in_which_every_step_is_skipped_names_the_module_with_the_first_inf():
    def train():
        for _ in range(25):
            step_of(model, optimizer, s, factor=1e38)

    model, optimizer, s = setup(init_scale=2.0**16)
    with verify.watch(model, optimizer, s) as run:
        train()
    assert run.skipped == 25
    assert codes(run) == ["RUN104", "RUN103"] or codes(run) == ["RUN103", "RUN104"]
    assert all(each.module for each in run.findings)


def test_an_overflow_in_one_module_is_named_with_its_parameter():
    class Huge(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * math.inf

    class Model(Net):
        def forward(self, x):
            return self.last(torch.relu(self.norm(Huge.apply(self.first(x)))))

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    s = scaler()
    with verify.watch(model, optimizer, s) as run:
        for _ in range(6):
            step_of(model, optimizer, s)
    found = only(run, "RUN103")
    assert (found.step, found.module) == (0, "first")
    assert found.parameter in ("first.weight", "first.bias")


def test_activations_that_overflow_are_named_by_the_next_forward_pass():
    model, optimizer, s = setup()
    with torch.no_grad():
        model.first.weight.fill_(6e4)
    with verify.watch(model, optimizer, s, every=1) as run:
        for _ in range(6):
            optimizer.zero_grad()
            with fp16():
                output = model(batch().abs() * 100)
            s.scale(loss_of(output)).backward()
            s.step(optimizer)
            s.update()
    assert {each.module for each in run.findings if each.code == "RUN103"} == {"first"}


def test_a_loss_that_stays_nan_is_found_at_its_first_step():
    def train():
        for step in range(8):
            optimizer.zero_grad()
            loss = loss_of(model(batch()))
            (loss * math.nan if step >= 4 else loss).backward()  # <- backward
            optimizer.step()

    model, optimizer, _ = setup()
    with verify.watch(model, optimizer) as run:
        train()
    found = only(run, "RUN106")
    assert (found.step, found.place.row) == (4, row_of(train, "backward"))


def test_losses_belong_to_the_optimizer_that_is_stepped_and_not_to_an_unused_one(tmp_path):
    model, unused, s = setup()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with verify.watch(model, (unused, optimizer), s, record=str(tmp_path)) as run:
        for _ in range(6):
            step_of(model, optimizer, s, factor=math.nan)
    rows = [json.loads(line) for line in (tmp_path / "rank0.jsonl").read_text().splitlines()]
    steps = [(each["optimizer"], each["loss"]) for each in rows if each["event"] == "step"]
    assert steps == [(1, "nan")] * 6
    assert "RUN106" in codes(run)


def test_after_so_many_skips_the_script_is_ended_if_asked(capsys):
    model, optimizer, s = setup(init_scale=2.0**16)
    with pytest.raises(SystemExit) as end, verify.watch(model, optimizer, s, on_overflow=(4, "abort")) as run:
        for _ in range(10):
            step_of(model, optimizer, s, factor=1e38)
    assert end.value.code == 3
    assert run.steps == 4
    assert "4 optimizer steps in a row were skipped" in capsys.readouterr().err


def test_after_so_many_skips_a_line_is_written_if_asked(capsys):
    model, optimizer, s = setup(init_scale=2.0**16)
    with verify.watch(model, optimizer, s, on_overflow=(4, "notify")) as run:
        for _ in range(6):
            step_of(model, optimizer, s, factor=1e38)
    assert run.steps == 6
    assert capsys.readouterr().err.count("in a row") == 1


# ------------------------------------------------------------------------------------------------- dtypes


def test_a_loss_in_half_precision_is_found_where_it_is_scaled():
    def train():
        for step in range(3):
            optimizer.zero_grad()
            with fp16():
                output = model(batch())
            loss = (output - 1).square().mean() if step else loss_of(output)
            s.scale(loss).backward()  # <- scale
            s.step(optimizer)
            s.update()

    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        train()
    found = only(run, "AMP301")
    assert (found.step, found.place.row) == (1, row_of(train, "scale"))


def test_a_loss_that_is_in_half_on_every_device_is_found_inside_a_region_of_the_cpu():
    model, optimizer, _ = setup()
    with verify.watch(model, optimizer) as run:
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(batch()).mean()
            loss.backward()
            optimizer.step()
    only(run, "AMP301")


def test_a_parameter_in_half_as_its_own_loss_is_no_trouble():
    parameter = nn.Parameter(torch.ones((), dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([parameter], lr=1e-2)
    with verify.watch(optimizer=optimizer) as run, torch.autocast("cpu", dtype=torch.bfloat16):
        parameter.backward()
        optimizer.step()
    assert run.run.notes == []
    assert "AMP312" in codes(run)


def test_a_softmax_of_half_outputs_outside_the_region_makes_a_loss_in_half():
    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        for _ in range(2):
            step_of(model, optimizer, s, loss=lambda y: -y.expand(-1, 3).log_softmax(-1).mean())
    assert "AMP301" in codes(run)


def test_a_loss_function_outside_the_region_on_half_outputs_is_found():
    model, optimizer, _ = setup()
    with verify.watch(model, optimizer) as run:
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(batch())
            logits = torch.cat([output, -output], 1)
            nn.functional.cross_entropy(logits, torch.zeros(4, dtype=torch.long)).backward()
            optimizer.step()
    only(run, "AMP302")


def test_a_layer_norm_in_half_is_found_at_the_line_that_calls_it():
    model, _, _ = setup()
    model.norm.bfloat16()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.dtype == torch.float32], lr=1e-2)
    with verify.watch(model, optimizer) as run:
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(batch())
            loss_of(output).backward()
            optimizer.step()
    found = only(run, "AMP303")
    assert (found.step, found.module) == (0, "norm")
    assert found.place.line.strip() == "return self.last(torch.relu(self.norm(self.first(x))))"


def test_a_softmax_in_half_outside_autocast_is_found_at_its_line():
    class Scores(Net):
        def forward(self, x):
            scores = super().forward(x).bfloat16()
            return torch.softmax(scores, dim=0)  # <- softmax

    model = Scores()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with verify.watch(model, optimizer) as run:
        loss_of(model(batch())).backward()
        optimizer.step()
    assert only(run, "AMP304").place.row == row_of(Scores.forward, "softmax")


def test_float16_parameters_with_a_scaler_are_found_before_the_scaler_raises():
    def train():
        s.scale(loss_of(model(batch()))).backward()
        s.step(optimizer)  # <- step

    model, optimizer, s = setup()
    model.last.half()
    hook = model.last.register_forward_pre_hook(lambda module, args: (args[0].half(),))
    with pytest.raises(ValueError), verify.watch(model, optimizer, s) as run:
        train()
    hook.remove()
    found = only(run, "AMP219")
    assert (found.step, found.place.row, found.module) == (0, row_of(train, "step"), "last")


def test_bfloat16_parameters_without_masters_are_found_where_the_optimizer_is_made():
    def make():
        return torch.optim.SGD(model.parameters(), lr=1.0)  # <- make

    model = Net().bfloat16()
    with verify.watch(model) as run:
        optimizer = make()
        for _ in range(2):
            optimizer.zero_grad()
            loss_of(model(batch().bfloat16())).backward()
            optimizer.step()
    found = [each for each in run.findings if each.code == "AMP312"]
    assert [(each.step, each.place.row) for each in found] == [(0, row_of(make, "make"))]


def test_updates_too_small_for_bfloat16_weights_are_found():
    model = Net().bfloat16()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with verify.watch(model, optimizer) as run:
        for _ in range(4):
            optimizer.zero_grad()
            loss_of(model(batch().bfloat16())).backward()
            optimizer.step()
    assert {"RUN203"} <= set(codes(run)) <= {"RUN203", "AMP312", "AMP303"}
    found = next(each for each in run.findings if each.code == "RUN203")
    assert found.step == 0


def test_optimizer_state_in_half_of_float32_parameters_is_found():
    class Thrifty(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        @torch.no_grad()
        def step(self):
            for parameter in self.param_groups[0]["params"]:
                state = self.state[parameter]
                state.setdefault("moment", torch.zeros_like(parameter, dtype=torch.bfloat16)).add_(
                    parameter.grad
                )
                parameter.sub_(1e-3 * state["moment"])

    model = Net()
    optimizer = Thrifty(model.parameters())
    with verify.watch(model, optimizer) as run:
        loss_of(model(batch())).backward()
        optimizer.step()
    only(run, "AMP324")


def test_a_scaler_that_is_for_cuda_only_is_found_where_it_is_made(monkeypatch):
    def make():
        return SCALER()  # <- make

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model, optimizer, _ = setup()
    with verify.watch(model, optimizer) as run:
        s = make()
        for _ in range(3):
            step_of(model, optimizer, s)
    found = only(run, "AMP105")
    assert (found.step, found.place.row) == (0, row_of(make, "make"))


@pytest.mark.parametrize("clips", [False, True])
def test_float16_without_a_scaler_is_found_at_the_backward(clips):
    def train():
        for _ in range(3):
            optimizer.zero_grad()
            with fp16():
                output = model(batch())
            loss_of(output).backward()  # <- backward
            if clips:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    model, optimizer, _ = setup()
    with verify.watch(model, optimizer) as run:
        train()
    found = only(run, "AMP218")
    assert (found.step, found.place.row) == (0, row_of(train, "backward"))


@pytest.mark.parametrize("clips", [False, True])
def test_float16_with_a_loss_scaled_by_hand_is_silent(clips):
    model, optimizer, _ = setup()
    with verify.watch(model, optimizer) as run:
        for _ in range(4):
            optimizer.zero_grad()
            with fp16():
                output = model(batch())
            (loss_of(output) * 128).backward()
            for parameter in model.parameters():
                parameter.grad.div_(128)
            if clips:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert run.findings == []


def test_a_scaler_with_bfloat16_is_found():
    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(batch())
            s.scale(loss_of(output)).backward()
            s.step(optimizer)
            s.update()
    only(run, "AMP217")


def test_a_region_that_the_matrix_products_do_not_run_in_is_found_at_the_region():
    def train():
        for _ in range(3):
            optimizer.zero_grad()
            output = model(batch())
            with torch.autocast("cpu", dtype=torch.bfloat16):  # <- region
                loss = loss_of(output)
            loss.backward()
            optimizer.step()

    model, optimizer, _ = setup()
    with verify.watch(model, optimizer) as run:
        train()
    found = only(run, "AMP318")
    assert (found.step, found.place.row) == (1, row_of(train, "region"))


# ------------------------------------------------------------------------------------- gradients and weights


def test_gradients_that_underflow_to_exact_zeros_are_found():
    model, optimizer, s = setup(init_scale=1.0)
    with verify.watch(model, optimizer, s) as run:
        for _ in range(4):
            step_of(model, optimizer, s, factor=1e-9)
    found = only(run, "RUN201")
    assert found.step == 0
    assert found.module in ("first", "norm", "last")
    assert dict(found.figures)["zeros"] > 0.5


def test_the_same_gradients_with_a_scale_that_fits_are_silent():
    model, optimizer, s = setup(init_scale=2.0**31)
    with verify.watch(model, optimizer, s) as run:
        for _ in range(4):
            step_of(model, optimizer, s, factor=1e-9)
    assert run.findings == []


def test_activations_near_the_limit_of_float16_are_found_with_their_module_and_line():
    class Wide(Net):
        def forward(self, x):
            return self.last(1e-5 * self.first(x))  # <- first

    model = Wide()
    with torch.no_grad():
        model.first.weight.fill_(0.0)
        model.first.bias.fill_(5e4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    s = scaler()
    with verify.watch(model, optimizer, s) as run:
        step_of(model, optimizer, s)
    named = {(each.code, each.module, each.step) for each in run.findings}
    assert named == {("RUN202", "first", 0)}
    outputs = [each for each in run.findings if each.parameter is None]
    assert [each.place.row for each in outputs] == [row_of(Wide.forward, "first")]


# ------------------------------------------------------------------------------- norms and the loss scale


def clip_by_hand(model, norm=0.1):
    total = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    for parameter in model.parameters():
        parameter.grad.mul_(norm / (total + 1e-6))


@pytest.mark.parametrize("before_unscale", [True, False])
def test_a_norm_that_depends_on_the_scale_betrays_a_clip_by_hand_before_unscale(before_unscale):
    def train():
        for _ in range(14):
            optimizer.zero_grad()
            with fp16():
                output = model(batch())
            s.scale(loss_of(output)).backward()
            if not before_unscale:
                s.unscale_(optimizer)
            clip_by_hand(model)
            s.step(optimizer)  # <- step
            s.update()

    model, optimizer, s = setup(growth_interval=4)
    with verify.watch(model, optimizer, s, every=2) as run:
        train()
    if before_unscale:
        assert only(run, "AMP201").place.row == row_of(train, "step")
    else:
        assert run.findings == []
