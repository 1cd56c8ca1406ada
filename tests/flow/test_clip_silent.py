"""Correct code, and code that cannot be told apart from correct code."""

from __future__ import annotations

import pytest

from .checking import all_clips, clips


def test_unscale_before_the_clip_is_silent() -> None:
    body = """
    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert all_clips(body) == []


@pytest.mark.parametrize(
    ("test", "other"),
    [
        ("amp", "amp"),
        ("amp", "amp is True"),
        ("scaler is not None", "scaler"),
        ("scaler", "not (scaler is None)"),
        ("args.fp16 and args.amp == 'torch'", "args.fp16 and not args.amp != 'torch'"),
        ("level > 0", "not level <= 0"),
        ("level > 1", "level > 0"),
        ("mode == 'amp'", "mode not in ('fp32', 'apex') and mode == 'amp'"),
        ("cfg['amp']", "cfg['amp']"),
    ],
)
def test_two_tests_of_one_condition_go_together(test: str, other: str) -> None:
    body = f"""
    def train(model, optimizer, scaler, loss, amp, args, level, mode, cfg):
        if {test}:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if {other}:
            scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        if {test}:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    """
    assert all_clips(body) == []


def test_clip_in_the_fp32_branch_is_silent() -> None:
    body = """
    def train(model, optimizer, scaler, loss, amp):
        if amp:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    """
    assert all_clips(body) == []


def test_early_return_of_the_amp_path_is_silent() -> None:
    body = """
    def train(model, optimizer, scaler, loss, amp):
        if amp:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    """
    assert all_clips(body) == []


def test_early_continue_of_the_micro_step_is_silent() -> None:
    body = """
    def train(model, optimizer, scaler, batches, accum):
        for i, loss in enumerate(batches):
            scaler.scale(loss).backward()
            if (i + 1) % accum != 0:
                continue
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    """
    assert all_clips(body) == []


def test_a_flag_variable_means_its_definition() -> None:
    body = """
    def train(model, optimizer, scaler, batches, accum):
        for i, loss in enumerate(batches):
            scaler.scale(loss).backward()
            do_step = (i + 1) % accum == 0
            if do_step:
                scaler.unscale_(optimizer)
            if not (i + 1) % accum:
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
    """
    assert all_clips(body) == []


def test_a_changed_variable_is_not_correlated() -> None:
    body = """
    def train(model, optimizer, scaler, loss, flag):
        scaler.scale(loss).backward()
        if flag:
            scaler.unscale_(optimizer)
        flag = compute()
        if flag:
            clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert clips(body) == []
    assert len(all_clips(body)) == 1


@pytest.mark.parametrize("enabled", ["False", "not True", "dtype == 'float16'", "use_amp"])
def test_scaler_that_is_disabled_by_its_flag_is_silent(enabled: str) -> None:
    body = f"""
    dtype = "bfloat16"
    use_amp = False
    def train(model, optimizer, loss):
        scaler = torch.amp.GradScaler("cuda", enabled={enabled})
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert all_clips(body) == []


def test_flag_in_fifth_position_of_the_cuda_scaler_disables_it() -> None:
    body = """
    def train(model, optimizer, loss):
        scaler = torch.cuda.amp.GradScaler(2.0 ** 16, 2.0, 0.5, 2000, False)
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert all_clips(body) == []


def test_unscale_under_the_scalers_own_flag_is_silent() -> None:
    body = """
    class Trainer:
        def __init__(self, args):
            self.amp = args.amp
            self.scaler = torch.amp.GradScaler("cuda", enabled=self.amp)

        def step(self, loss):
            self.scaler.scale(loss).backward()
            if self.amp:
                self.scaler.unscale_(self.optimizer)
            clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
    """
    assert all_clips(body) == []


def test_is_enabled_is_the_flag() -> None:
    body = """
    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        if scaler.is_enabled():
            scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert all_clips(body) == []


def test_conditional_scaler_exists_where_its_condition_holds() -> None:
    body = """
    def train(model, optimizer, loss, args):
        scaler = torch.amp.GradScaler("cuda") if args.fp16 else None
        if args.fp16:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if scaler is not None:
            scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step() if scaler is None else scaler.step(optimizer)
    """
    assert all_clips(body) == []


def test_wrapper_class_that_unscales_is_silent() -> None:
    body = """
    class NativeScaler:
        def __init__(self):
            self._scaler = torch.cuda.amp.GradScaler()

        def __call__(self, loss, optimizer, clip_grad=None, parameters=None, update=True):
            self._scaler.scale(loss).backward()
            if update:
                if clip_grad is not None:
                    self._scaler.unscale_(optimizer)
                    norm = clip_grad_norm_(parameters, clip_grad)
                else:
                    self._scaler.unscale_(optimizer)
                self._scaler.step(optimizer)
                self._scaler.update()

    def train(model, optimizer, loss):
        loss_scaler = NativeScaler()
        loss_scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
    """
    assert all_clips(body) == []


def test_wrapper_from_another_file_is_silent() -> None:
    body = """
    from utils import NativeScaler
    def train(model, optimizer, batches):
        loss_scaler = NativeScaler()
        for loss in batches:
            if loss_scaler is not None:
                loss_scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
            else:
                loss.backward()
                clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
    """
    assert all_clips(body) == []


def test_unscale_in_a_helper_method_is_silent() -> None:
    body = """
    class Trainer:
        def __init__(self):
            self.scaler = torch.amp.GradScaler("cuda")

        def ready(self):
            self.scaler.unscale_(self.optimizer)

        def fit(self, loss):
            self.scaler.scale(loss).backward()
            self.ready()
            clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
    """
    assert all_clips(body) == []


def test_unscale_in_a_closure_is_silent() -> None:
    body = """
    def main(model, optimizer, loss):
        scaler = torch.amp.GradScaler("cuda")
        def unscale():
            scaler.unscale_(optimizer)
        scaler.scale(loss).backward()
        unscale()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert all_clips(body) == []


def test_method_of_an_unknown_base_class_may_unscale() -> None:
    body = """
    from framework import Base
    class Trainer(Base):
        def fit(self, loss):
            self.scaler.scale(loss).backward()
            self.after_backward()
            clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
    """
    assert all_clips(body) == []


def test_empty_hook_may_be_filled_in_by_a_subclass_elsewhere() -> None:
    body = """
    class Trainer:
        def after_backward(self):
            pass

        def fit(self, loss):
            self.scaler.scale(loss).backward()
            self.after_backward()
            clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
    """
    assert all_clips(body) == []


@pytest.mark.parametrize(
    "call",
    [
        "for callback in self.callbacks: callback.after_backward(self)",
        "self.call_hook('after_backward')",
        "getattr(self, name)(self)",
        "unscale_everything(self.scaler, self.optimizer)",
        "self.runner.dispatch('after_backward')",
        "run(lambda: self.scaler.unscale_(self.optimizer))",
        "run(self.unscale)",
    ],
)
def test_code_elsewhere_that_gets_hold_of_the_scaler_may_unscale(call: str) -> None:
    body = f"""
    class Trainer:
        def unscale(self):
            self.scaler.unscale_(self.optimizer)

        def call_hook(self, name):
            for hook in self.hooks:
                hook.run(name, trainer=self)

        def fit(self, loss, name):
            self.scaler.scale(loss).backward()
            {call}
            clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
    """
    assert all_clips(body) == []


def test_object_that_was_handed_the_scaler_may_unscale_later() -> None:
    body = """
    from engine import Engine
    def train(model, optimizer, loss):
        scaler = torch.amp.GradScaler("cuda")
        engine = Engine(model, optimizer, scaler)
        scaler.scale(loss).backward()
        engine.prepare_step()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert all_clips(body) == []


def test_two_optimizers_one_update_is_silent() -> None:
    body = """
    def train(d, g, od, og, scaler, loss_d, loss_g):
        od.zero_grad()
        scaler.scale(loss_d).backward()
        scaler.unscale_(od)
        clip_grad_norm_(d.parameters(), 1.0)
        scaler.step(od)
        og.zero_grad()
        scaler.scale(loss_g).backward()
        scaler.unscale_(og)
        clip_grad_norm_(g.parameters(), 1.0)
        scaler.step(og)
        scaler.update()
    """
    assert all_clips(body) == []


def test_clip_of_parameters_of_an_unscaled_optimizer_is_silent() -> None:
    body = """
    def train(a, b, loss_a, loss_b):
        oa, ob = torch.optim.SGD(a.parameters()), torch.optim.SGD(b.parameters())
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale(loss_a).backward()
        loss_b.backward()
        clip_grad_norm_(b.parameters(), 1.0)
        ob.step()
        scaler.step(oa)
        scaler.update()
    """
    assert all_clips(body) == []


def test_optimizers_in_a_loop_over_a_display_are_told_apart() -> None:
    body = """
    def train(a, b, oa, ob, scaler, loss):
        scaler.scale(loss).backward()
        scaler.unscale_(oa)
        clip_grad_norm_(a.parameters(), 1.0)
        for o in (oa, ob):
            scaler.step(o)
        scaler.update()
    """
    assert all_clips(body) == []


def test_clip_after_the_last_step_is_another_rules_matter() -> None:
    body = """
    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.update()
    """
    assert all_clips(body) == []


def test_clip_after_update_is_another_rules_matter() -> None:
    body = """
    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        clip_grad_norm_(model.parameters(), 1.0)
    """
    assert all_clips(body) == []


@pytest.mark.parametrize(
    "line",
    [
        "clip_grad_norm_(model.parameters(), float('inf'))",
        "clip_grad_norm_(model.parameters(), max_norm=math.inf)",
        "clip_grad_norm_(model.parameters(), torch.inf)",
        "helper.clip_grad_value_(model.parameters(), None)",
        "accelerator.clip_grad_norm_(model.parameters(), 1.0)",
        "optimizer.clip_grad_norm(1.0)",
        "model.clip_grad_norm_(1.0)",
        "self.clip_func(model.parameters(), 1.0)",
        "model.logits.clamp_(-1, 1)",
        "[p.data.clamp_(-0.01, 0.01) for p in model.parameters()]",
        "[p.grad.div_(world_size) for p in model.parameters()]",
        "[p.grad.mul_(1.0 / accum) for p in model.parameters()]",
        "for p in model.parameters(): p.grad = None",
        "for p in model.parameters(): torch.distributed.all_reduce(p.grad)",
    ],
)
def test_what_only_looks_like_gradient_clipping_is_silent(line: str) -> None:
    body = f"""
    import math
    import helper
    def train(self, model, optimizer, scaler, accelerator, loss, world_size, accum):
        scaler.scale(loss).backward()
        {line}
        scaler.step(optimizer)
        scaler.update()
    """
    assert all_clips(body) == []


def test_helper_of_the_file_without_a_bound_only_measures() -> None:
    body = """
    def clip_value(parameters, clip_value, norm_type=2):
        total = 0
        for p in parameters:
            total += p.grad.data.norm(norm_type).item() ** norm_type
            if clip_value is not None:
                p.grad.data.clamp_(min=-clip_value, max=clip_value)
        return total ** (1.0 / norm_type)

    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        norm = clip_value(model.parameters(), None)
        scaler.step(optimizer)
        scaler.update()
    """
    assert all_clips(body) == []


def test_helper_of_the_file_with_a_bound_clips() -> None:
    body = """
    def clip_value(parameters, bound):
        for p in parameters:
            if bound is not None:
                p.grad.data.clamp_(min=-bound, max=bound)

    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        clip_value(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert len(clips(body)) == 1


def test_unscaling_by_hand_with_get_scale_is_silent() -> None:
    body = """
    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        inverse = 1.0 / scaler.get_scale()
        for p in model.parameters():
            p.grad.mul_(inverse)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert clips(body) == []


@pytest.mark.parametrize(
    "preamble",
    [
        "scaler = FeatureScaler()",
        "scaler = MinMax()",
        "scaler = apex_like.LossScaler()",
        "import paddle; scaler = paddle.amp.GradScaler()",
    ],
)
def test_objects_with_a_scale_method_that_are_no_grad_scaler(preamble: str) -> None:
    body = f"""
    import apex_like
    from sk import MinMax
    class FeatureScaler:
        def scale(self, x):
            return x
    def train(model, optimizer, loss):
        {preamble}
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    """
    assert all_clips(body) == []


def test_scale_without_a_backward_is_no_scaler() -> None:
    body = """
    def train(model, optimizer, normalizer, x, loss):
        x = normalizer.scale(x)
        loss(model(x)).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    """
    assert all_clips(body) == []


def test_apex_scale_loss_is_silent() -> None:
    body = """
    from apex import amp
    def train(model, optimizer, loss):
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        clip_grad_norm_(amp.master_params(optimizer), 1.0)
        optimizer.step()
    """
    assert all_clips(body) == []


def test_clip_inside_an_optimizer_subclass_is_silent() -> None:
    body = """
    class Clipped(torch.optim.SGD):
        def step(self, closure=None):
            clip_grad_norm_(self.param_groups[0]["params"], 1.0)
            super().step(closure)

    def train(model, scaler, loss):
        optimizer = Clipped(model.parameters(), lr=0.1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    """
    assert all_clips(body) == []


def test_dummy_class_in_except_import_error_is_silent() -> None:
    body = """
    try:
        from torch.cuda.amp import GradScaler
    except ImportError:
        class GradScaler:
            def __init__(self, enabled=False):
                pass
    def train(model, optimizer, loss):
        scaler = GradScaler(enabled=False)
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert all_clips(body) == []


def test_zero_grad_discards_scaled_gradients() -> None:
    body = """
    def train(model, optimizer, scaler, loss, other):
        scaler.scale(loss).backward()
        optimizer.zero_grad()
        other.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    """
    assert all_clips(body) == []


def test_plain_step_that_bypasses_the_scaler_is_another_rules_matter() -> None:
    body = """
    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scaler.update()
    """
    assert all_clips(body) == []


def test_text_and_comments_mean_nothing() -> None:
    body = '''
    def train(model, optimizer, loss):
        """scaler.scale(loss).backward(); clip_grad_norm_(p, 1.0); scaler.step(o)"""
        loss.backward()  # scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    '''
    assert all_clips(body) == []
