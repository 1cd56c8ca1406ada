"""Clips that act on scaled gradients, in all the forms in which the protocol is written."""

from __future__ import annotations

import pytest

from amplint.finding import Confidence

from .checking import all_clips, clips, reports


def test_clip_between_backward_and_step_is_found() -> None:
    body = """
    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert all_clips(body) == [("clip_grad_norm_(model.parameters(), 1.0)", Confidence.HIGH)]


def test_clip_in_a_loop_over_a_display_is_reported_once() -> None:
    body = """
    def train(a, b, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        for model in (a, b):
            clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert len(all_clips(body)) == 1


def test_parameter_that_gets_another_value_later_is_not_that_value_before() -> None:
    body = """
    def train(model, optimizer, scaler, loss, amp):
        if amp:
            scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        amp = False
    """
    assert len(clips(body)) == 1


def test_the_message_names_scaler_and_optimizer() -> None:
    _, found = reports("""
    def train(self, loss):
        self.gs.scale(loss).backward()
        clip_grad_norm_(self.net.parameters(), 1.0)
        self.gs.step(self.opt)
        self.gs.update()
    """)
    assert "self.gs.unscale_(self.opt)" in found[0].message
    assert [message for _, message in found[0].trace] == [
        "the loss is scaled here by self.gs, and so are its gradients",
        "clipped here, with no unscale_ on this path",
        "the clipped gradients are consumed here",
    ]


@pytest.mark.parametrize(
    "backward",
    [
        "scaler.scale(loss).backward()",
        "scaled = scaler.scale(loss); scaled.backward()",
        "scaled = scaler.scale(loss); scaled = scaled / 4; scaled.backward()",
        "loss = scaler.scale(loss); loss /= 4; loss.backward()",
        "(scaler.scale(loss) / 4).backward(retain_graph=True)",
        "sum(scaler.scale(part) for part in loss).backward()",
        "torch.autograd.backward(scaler.scale(loss))",
        "torch.autograd.backward([scaler.scale(part) for part in loss])",
        "self.fabric.backward(scaler.scale(loss))",
        "self.manual_backward(scaler.scale(loss))",
    ],
)
def test_every_form_of_scaled_backward_is_seen(backward: str) -> None:
    body = f"""
    def train(self, model, optimizer, scaler, loss):
        {backward}
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert clips(body) == ["clip_grad_norm_(model.parameters(), 1.0)"]


@pytest.mark.parametrize(
    "clip",
    [
        "clip_grad_value_(model.parameters(), 0.5)",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)",
        "torch.nn.utils.clip_grad.clip_grad_norm_(parameters=model.parameters(), max_norm=1.0)",
        "torch.nn.utils.clip_grad_norm(model.parameters(), 1.0)",
        "dispatch_clip_grad(model.parameters(), 1.0, mode='agc')",
        "apex_clip(model.parameters(), 1.0)",
        "nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "cg.clip_grad_norm_(model.parameters(), 1.0)",
    ],
)
def test_every_clipping_function_is_known(clip: str) -> None:
    body = f"""
    import torch.nn as nn
    from timm.utils import dispatch_clip_grad
    from torch.nn.utils import clip_grad as cg
    from apex.contrib.clip_grad import clip_grad_norm_ as apex_clip
    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        {clip}
        scaler.step(optimizer)
        scaler.update()
    """
    assert clips(body) == [clip]


@pytest.mark.parametrize(
    ("clip", "shown"),
    [
        ("p.grad.clamp_(-1, 1)", "p.grad.clamp_(-1, 1)"),
        ("p.grad.data.clamp_(-1, 1)", "p.grad.data.clamp_(-1, 1)"),
        ("torch.clamp_(p.grad, -1, 1)", "torch.clamp_(p.grad, -1, 1)"),
        ("p.grad = torch.clamp(p.grad, -1, 1)", "p.grad = torch.clamp(p.grad, -1, 1)"),
        ("p.grad.copy_(p.grad.clamp(-1, 1))", "p.grad.copy_(p.grad.clamp(-1, 1))"),
        ("p.grad.mul_(factor)", "p.grad.mul_(factor)"),
        ("p.grad *= factor", "p.grad *= factor"),
        ("p.grad = p.grad * factor", "p.grad = p.grad * factor"),
    ],
)
def test_clipping_by_hand_is_clipping(clip: str, shown: str) -> None:
    body = f"""
    def train(model, optimizer, scaler, loss, max_norm):
        scaler.scale(loss).backward()
        total = torch.norm(torch.stack([p.grad.norm() for p in model.parameters()]))
        factor = max_norm / (total + 1e-6)
        for p in model.parameters():
            {clip}
        scaler.step(optimizer)
        scaler.update()
    """
    assert clips(body) == [shown]


def test_fsdp_method_clips_when_the_model_is_known_to_be_sharded() -> None:
    body = """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
    def train(net, optimizer, loss):
        model = FSDP(net)
        scaler = ShardedGradScaler()
        scaler.scale(loss).backward()
        model.clip_grad_norm_(1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert clips(body) == ["model.clip_grad_norm_(1.0)"]


@pytest.mark.parametrize(
    "made",
    [
        "torch.cuda.amp.GradScaler()",
        "torch.amp.GradScaler('cuda')",
        "torch.GradScaler()",
        "torch_npu.npu.amp.GradScaler()",
        "GradScaler() if amp else None",
        "Mine()",
    ],
)
def test_every_scaler_class_is_known(made: str) -> None:
    body = f"""
    import torch_npu
    from torch.cuda.amp import GradScaler
    class Mine(GradScaler):
        pass
    def train(model, optimizer, loss, amp):
        s = {made}
        s.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        s.step(optimizer)
        s.update()
    """
    assert len(clips(body)) == 1


def test_scaler_may_be_disabled_but_is_not_always() -> None:
    body = """
    def train(model, optimizer, loss, args):
        scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert all_clips(body)[0][1] is Confidence.HIGH


def test_flag_that_lands_in_the_device_argument_disables_nothing() -> None:
    body = """
    def train(model, optimizer, loss):
        scaler = torch.amp.GradScaler(False)
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert len(clips(body)) == 1


def test_clip_in_the_amp_branch_only_is_found_there_only() -> None:
    body = """
    def train(model, optimizer, scaler, loss, amp):
        if amp:
            scaler.scale(loss).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
    """
    assert clips(body) == ["clip_grad_norm_(model.parameters(), 1.0)"]


def test_shared_clip_behind_both_branches_is_found() -> None:
    body = """
    def train(model, optimizer, scaler, loss, amp):
        if amp:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        if amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    """
    assert len(clips(body)) == 1


def test_unscale_in_the_wrong_branch_is_no_unscale() -> None:
    body = """
    def train(model, optimizer, scaler, loss, amp):
        if amp:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if not amp:
            scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        if amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    """
    assert len(clips(body)) == 1


def test_accumulation_window_without_unscale_is_found() -> None:
    body = """
    def train(model, optimizer, scaler, batches, accum):
        for i, loss in enumerate(batches):
            scaler.scale(loss / accum).backward()
            if (i + 1) % accum == 0:
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    """
    assert len(clips(body)) == 1


def test_unscale_of_an_earlier_iteration_does_not_count() -> None:
    body = """
    def train(model, optimizer, scaler, batches):
        for i, loss in enumerate(batches):
            scaler.scale(loss).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    """
    assert len(clips(body)) == 1


def test_early_continue_of_the_fp32_path_leaves_the_amp_path() -> None:
    body = """
    def train(model, optimizer, scaler, batches, amp):
        for loss in batches:
            if not amp:
                loss.backward()
                clip_grad_norm_(model.parameters(), 2.0)
                optimizer.step()
                continue
            scaler.scale(loss).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    """
    assert clips(body) == ["clip_grad_norm_(model.parameters(), 1.0)"]


def test_clip_in_a_helper_function_is_found_in_the_helper() -> None:
    body = """
    def bound(params, limit):
        if limit is not None:
            torch.nn.utils.clip_grad_norm_(params, limit)

    def train(model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        bound(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert clips(body) == ["torch.nn.utils.clip_grad_norm_(params, limit)"]


def test_clip_in_a_closure_is_found() -> None:
    body = """
    def main(model, optimizer, loss):
        scaler = torch.amp.GradScaler("cuda")

        def backward():
            scaler.scale(loss).backward()

        def finish():
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

        backward()
        finish()
    """
    assert len(clips(body)) == 1


def test_protocol_over_methods_and_a_base_class_of_the_file() -> None:
    body = """
    class Base:
        def __init__(self):
            self.scaler = torch.amp.GradScaler("cuda")

        def backward(self, loss):
            self.scaler.scale(loss).backward()

    class Trainer(Base):
        def clip(self):
            clip_grad_norm_(self.model.parameters(), 1.0)

        def fit(self, loss):
            self.backward(loss)
            self.clip()
            self.scaler.step(self.optimizer)
            self.scaler.update()
    """
    assert len(clips(body)) == 1


def test_clip_inside_a_wrapper_class_is_found_in_the_wrapper() -> None:
    body = """
    class NativeScaler:
        def __init__(self):
            self._scaler = torch.cuda.amp.GradScaler()

        def __call__(self, loss, optimizer, parameters, clip):
            self._scaler.scale(loss).backward()
            clip_grad_norm_(parameters, clip)
            self._scaler.step(optimizer)
            self._scaler.update()

    def train(model, optimizer, loss):
        scaler = NativeScaler()
        scaler(loss, optimizer, model.parameters(), 1.0)
    """
    assert clips(body) == ["clip_grad_norm_(parameters, clip)"]


def test_module_level_script_is_analysed() -> None:
    body = """
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for batch in data:
        scaler.scale(model(batch)).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert len(clips(body)) == 1


def test_unscale_of_the_other_optimizer_does_not_help() -> None:
    body = """
    def train(a, b, loss):
        oa, ob = torch.optim.SGD(a.parameters()), torch.optim.SGD(b.parameters())
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale(loss).backward()
        scaler.unscale_(oa)
        clip_grad_norm_(b.parameters(), 1.0)
        scaler.step(oa)
        scaler.step(ob)
        scaler.update()
    """
    assert clips(body) == ["clip_grad_norm_(b.parameters(), 1.0)"]


def test_second_optimizer_clipped_after_the_first_stepped_is_found() -> None:
    body = """
    def train(d, g, od, og, scaler, loss_d, loss_g):
        scaler.scale(loss_d).backward()
        scaler.unscale_(od)
        clip_grad_norm_(d.parameters(), 1.0)
        scaler.step(od)
        scaler.scale(loss_g).backward()
        clip_grad_norm_(g.parameters(), 1.0)
        scaler.step(og)
        scaler.update()
    """
    assert clips(body) == ["clip_grad_norm_(g.parameters(), 1.0)"]


def test_logging_between_backward_and_clip_changes_nothing() -> None:
    body = """
    def train(self, model, optimizer, scaler, loss):
        scaler.scale(loss).backward()
        self.logger.log({"loss": loss.item(), "scale": scaler.get_scale()})
        print(loss)
        torch.distributed.all_reduce(loss)
        metrics.update(loss.detach())
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert len(clips(body)) == 1


def test_clip_in_try_and_with_is_found() -> None:
    body = """
    def train(model, optimizer, scaler, loss):
        with model.no_sync():
            scaler.scale(loss).backward()
        try:
            clip_grad_norm_(model.parameters(), 1.0)
        except RuntimeError:
            raise
        finally:
            scaler.step(optimizer)
            scaler.update()
    """
    assert len(clips(body)) == 1


def test_uncorrelated_unscale_is_found_with_low_confidence_only() -> None:
    body = """
    def train(model, optimizer, scaler, loss, a, b):
        scaler.scale(loss).backward()
        if a:
            scaler.unscale_(optimizer)
        if b:
            clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert [confidence for _, confidence in all_clips(body)] == [Confidence.LOW]


LIGHTNING = """
import lightning.pytorch as pl
class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = {automatic}

    def training_step(self, batch, index):
        opt = self.optimizers()
        loss = self(batch)
        opt.zero_grad()
        self.manual_backward(loss)
        {clip}
        opt.step()

{trainer}
"""


def lightning(
    automatic: str = "False",
    clip: str = "clip_grad_norm_(self.parameters(), 1.0)",
    trainer: str = "",
) -> list[Confidence | None]:
    body = LIGHTNING.format(automatic=automatic, clip=clip, trainer=trainer)
    return [confidence for _, confidence in all_clips(body)]


def test_lightning_manual_optimisation_is_medium_where_the_precision_is_chosen_elsewhere() -> None:
    assert lightning() == [Confidence.MEDIUM]


def test_lightning_manual_optimisation_is_low_with_another_precision() -> None:
    assert lightning(trainer='trainer = pl.Trainer(precision="bf16-mixed")') == [Confidence.LOW]


def test_lightning_manual_optimisation_is_medium_with_sixteen_bit_precision() -> None:
    assert lightning(trainer='trainer = pl.Trainer(precision="16-mixed")') == [Confidence.MEDIUM]
    assert lightning(trainer="trainer = pl.Trainer(precision=16)") == [Confidence.MEDIUM]


def test_lightning_automatic_optimisation_is_silent() -> None:
    assert lightning(automatic="True") == []


def test_lightnings_own_clipping_method_is_silent() -> None:
    assert lightning(clip="self.clip_gradients(opt, gradient_clip_val=1.0)") == []
