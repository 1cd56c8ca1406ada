"""Mistakes in the order of scale, backward, unscale_, clip, step and update, each found at its line and step."""

from __future__ import annotations

import pytest
import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from amplint.runtime import verify
from amplint.runtime.anchors import SCALER

from .training import Net, batch, fp16, loss_of, needs_cpu_scaler, only, row_of, scaler, setup


def backward(model, s):
    with fp16():
        output = model(batch())
    s.scale(loss_of(output)).backward()


@pytest.mark.parametrize("clip", [clip_grad_norm_, clip_grad_value_])
def test_a_clip_before_unscale_is_found_at_the_clip(clip):
    from torch.nn import utils

    def train(steps):
        for step in range(steps):
            optimizer.zero_grad()
            backward(model, s)
            if step < 2:
                s.unscale_(optimizer)
            getattr(utils, clip.__name__)(model.parameters(), 1.0)  # <- clip
            s.step(optimizer)
            s.update()

    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        train(4)
    found = only(run, "AMP201")
    assert (found.step, found.place.row) == (2, row_of(train, "clip"))
    assert found.place.filename == __file__


def test_a_clip_that_was_imported_by_name_before_the_watch_is_seen():
    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        backward(model, s)
        clip_grad_norm_(model.parameters(), 1.0)
        s.step(optimizer)
        s.update()
    only(run, "AMP201")


def test_a_clip_of_the_second_optimizer_that_was_not_unscaled_is_found():
    def train():
        for _ in range(2):
            for each in optimizers:
                each.zero_grad()
            with fp16():
                loss = loss_of(first(batch())) + loss_of(second(batch()))
            s.scale(loss).backward()
            s.unscale_(optimizers[0])
            clip_grad_norm_(first.parameters(), 1.0)
            clip_grad_norm_(second.parameters(), 1.0)  # <- clip
            for each in optimizers:
                s.step(each)
            s.update()

    first, second, s = Net(), Net(), scaler()
    optimizers = [torch.optim.SGD(each.parameters(), lr=1e-3) for each in (first, second)]
    with verify.watch([first, second], optimizers, s) as run:
        train()
    assert only(run, "AMP201").place.row == row_of(train, "clip")


def test_a_clip_is_found_where_installed_code_calls_it_for_the_user(tmp_path):
    """Packages of the user, of the system or of PYTHONPATH are installed elsewhere than those of the interpreter."""
    source = "def clip(parameters):\n    return utils.clip_grad_norm_(parameters, 1.0)\n"
    helper = {"utils": torch.nn.utils}
    exec(compile(source, str(tmp_path / "lib" / "site-packages" / "helper.py"), "exec"), helper)

    def train():
        for _ in range(2):
            optimizer.zero_grad()
            backward(model, s)
            helper["clip"](model.parameters())  # <- clip
            s.step(optimizer)
            s.update()

    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        train()
    assert only(run, "AMP201").place.row == row_of(train, "clip")


def test_a_clip_before_unscale_is_found_through_an_optimizer_around_another_one():
    class Averaging(torch.optim.Optimizer):
        def __init__(self, inner):
            super().__init__(inner.param_groups, {})
            self.inner = inner
            self.param_groups = inner.param_groups

        def step(self, closure=None):
            return self.inner.step(closure)

    def train():
        for _ in range(3):
            optimizer.zero_grad()
            backward(model, s)
            clip_grad_norm_(model.parameters(), 1.0)  # <- clip
            s.step(optimizer)
            s.update()

    model, inner, s = setup()
    optimizer = Averaging(inner)
    with verify.watch() as run:
        train()
    found = only(run, "AMP201")
    assert (found.step, found.place.row, run.steps) == (0, row_of(train, "clip"), 3)


def test_optimizer_step_with_scaled_gradients_is_found_at_the_step():
    def train():
        for step in range(4):
            optimizer.zero_grad()
            backward(model, s)
            if step < 3:
                s.step(optimizer)
                s.update()
            else:
                optimizer.step()  # <- step

    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        train()
    found = only(run, "AMP203")
    assert (found.step, found.place.row) == (3, row_of(train, "step"))


def test_optimizer_step_after_scaler_step_is_found_at_the_second_step():
    def train():
        for _ in range(3):
            optimizer.zero_grad()
            backward(model, s)
            s.step(optimizer)
            optimizer.step()  # <- step
            s.update()

    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        train()
    found = only(run, "AMP203")
    assert (found.step, found.place.row) == (0, row_of(train, "step"))


def test_a_missing_update_is_found_at_the_step_before_the_one_that_raises():
    def train():
        for step in range(4):
            optimizer.zero_grad()
            backward(model, s)
            s.step(optimizer)  # <- step
            if step < 2:
                s.update()

    model, optimizer, s = setup()
    with pytest.raises(RuntimeError), verify.watch(model, optimizer, s) as run:
        train()
    found = only(run, "AMP204")
    assert (found.step, found.place.row) == (2, row_of(train, "step"))


def test_a_run_without_any_update_is_found_at_its_end():
    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        backward(model, s)
        s.step(optimizer)
    only(run, "AMP204")


def test_an_iteration_that_is_left_after_unscale_is_found_at_the_unscale():
    def train():
        for step in range(4):
            optimizer.zero_grad()
            backward(model, s)
            s.unscale_(optimizer)  # <- unscale
            if step == 1:
                continue
            s.step(optimizer)
            s.update()

    model, optimizer, s = setup()
    with pytest.raises(RuntimeError), verify.watch(model, optimizer, s) as run:
        train()
    found = only(run, "AMP204")
    assert (found.step, found.place.row) == (1, row_of(train, "unscale"))


def test_unscale_twice_is_found_at_the_second_one():
    def train():
        for step in range(3):
            optimizer.zero_grad()
            backward(model, s)
            s.unscale_(optimizer)
            if step == 2:
                s.unscale_(optimizer)  # <- again
            s.step(optimizer)
            s.update()

    model, optimizer, s = setup()
    with pytest.raises(RuntimeError), verify.watch(model, optimizer, s) as run:
        train()
    found = only(run, "AMP205")
    assert (found.step, found.place.row) == (2, row_of(train, "again"))


def test_unscale_on_every_micro_step_is_found():
    def train():
        for micro in range(4):
            backward(model, s)
            s.unscale_(optimizer)  # <- unscale
            if micro % 2:
                s.step(optimizer)
                s.update()
                optimizer.zero_grad()

    model, optimizer, s = setup()
    with pytest.raises(RuntimeError), verify.watch(model, optimizer, s) as run:
        train()
    found = only(run, "AMP205")
    assert (found.step, found.place.row) == (0, row_of(train, "unscale"))


def test_unscale_and_update_on_every_micro_step_raise_nothing_and_are_found():
    def train():
        for micro in range(4):
            backward(model, s)
            s.unscale_(optimizer)  # <- unscale
            if micro % 2:
                s.step(optimizer)
                optimizer.zero_grad()
            s.update()

    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        train()
    found = only(run, "AMP205")
    assert (found.step, found.place.row) == (0, row_of(train, "unscale"))


def test_an_update_on_every_micro_step_is_found_at_the_update():
    def train():
        for micro in range(8):
            backward(model, s)
            if micro % 2:
                s.step(optimizer)
                optimizer.zero_grad()
            if micro % 2 or micro == 4:
                s.update()  # <- update

    model, optimizer, s = setup()
    with pytest.raises(AssertionError), verify.watch(model, optimizer, s) as run:
        train()
    found = only(run, "AMP206")
    assert (found.step, found.place.row) == (2, row_of(train, "update"))


def test_a_second_update_is_found_at_the_second_one():
    def train():
        for step in range(4):
            optimizer.zero_grad()
            backward(model, s)
            s.step(optimizer)
            s.update()
            if step == 2:
                s.update()  # <- again

    model, optimizer, s = setup()
    with pytest.raises(AssertionError), verify.watch(model, optimizer, s) as run:
        train()
    found = only(run, "AMP211")
    assert (found.step, found.place.row) == (2, row_of(train, "again"))


def test_an_update_between_two_optimizers_that_both_have_scaled_gradients_is_found():
    def train():
        for _ in range(2):
            for each in optimizers:
                each.zero_grad()
            backward(first, s)
            backward(second, s)
            s.step(optimizers[0])
            s.update()  # <- update
            s.step(optimizers[1])
            s.update()

    first, second, s = Net(), Net(), scaler()
    optimizers = [torch.optim.SGD(each.parameters(), lr=1e-3) for each in (first, second)]
    with verify.watch([first, second], optimizers, s) as run:
        train()
    found = only(run, "AMP211")
    assert (found.step, found.place.row) == (0, row_of(train, "update"))


def test_a_backward_without_scale_is_found_at_the_backward():
    def train():
        for step in range(3):
            optimizer.zero_grad()
            if step < 2:
                backward(model, s)
            else:
                loss_of(model(batch())).backward()  # <- backward
            s.step(optimizer)
            s.update()

    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        train()
    found = only(run, "AMP207")
    assert (found.step, found.place.row) == (2, row_of(train, "backward"))


def test_an_unscaled_penalty_among_scaled_gradients_is_found():
    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        backward(model, s)
        sum(p.square().sum() for p in model.parameters()).backward()
        s.step(optimizer)
        s.update()
    only(run, "AMP207")


def test_a_clip_after_the_step_is_found_at_the_clip():
    def train():
        for _ in range(2):
            optimizer.zero_grad()
            backward(model, s)
            s.step(optimizer)
            s.update()
            clip_grad_norm_(model.parameters(), 1.0)  # <- clip

    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        train()
    found = only(run, "AMP208")
    assert (found.step, found.place.row) == (0, row_of(train, "clip"))


def test_unscale_after_the_step_is_found_at_the_unscale():
    def train():
        backward(model, s)
        s.step(optimizer)
        s.unscale_(optimizer)  # <- unscale

    model, optimizer, s = setup()
    with pytest.raises(RuntimeError), verify.watch(model, optimizer, s) as run:
        train()
    assert only(run, "AMP208").place.row == row_of(train, "unscale")


def test_a_closure_through_the_scaler_is_found():
    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        backward(model, s)
        s.step(optimizer, lambda: torch.tensor(0.0))
        s.update()
    only(run, "AMP210")


def test_zero_grad_between_backward_and_step_is_found_at_the_zero_grad():
    def train():
        for _ in range(2):
            backward(model, s)
            optimizer.zero_grad(set_to_none=False)  # <- zero
            s.step(optimizer)
            s.update()

    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        train()
    found = only(run, "AMP216")
    assert (found.step, found.place.row) == (0, row_of(train, "zero"))


def test_a_step_without_any_gradient_is_found_before_it_raises():
    def train():
        for step in range(2):
            optimizer.zero_grad()
            if step == 0:
                backward(model, s)
            s.step(optimizer)  # <- step
            s.update()

    model, optimizer, s = setup()
    with pytest.raises(AssertionError), verify.watch(model, optimizer, s) as run:
        train()
    found = only(run, "AMP224")
    assert (found.step, found.place.row) == (1, row_of(train, "step"))


@needs_cpu_scaler
def test_a_subclass_of_the_scaler_that_calls_super_is_told_of_once():
    class Mine(SCALER):
        def scale(self, outputs):
            return super().scale(outputs)

        def unscale_(self, optimizer):
            super().unscale_(optimizer)

        def step(self, optimizer, *args, **kwargs):
            return super().step(optimizer, *args, **kwargs)

    model, optimizer, _ = setup()
    with verify.watch(model, optimizer) as run:
        s = Mine("cpu", init_scale=4.0)
        for _ in range(3):
            optimizer.zero_grad()
            backward(model, s)
            s.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            s.step(optimizer)
            s.update()
    assert run.findings == []
    assert run.steps == 3


def test_the_patches_are_gone_after_the_watch():
    before = [
        SCALER.step,
        torch.autograd.backward,
        torch.optim.Optimizer.zero_grad,
        clip_grad_norm_,
    ]
    with verify.watch():
        assert SCALER.step is not before[0]
    after = [
        SCALER.step,
        torch.autograd.backward,
        torch.optim.Optimizer.zero_grad,
        clip_grad_norm_,
    ]
    assert after == before
