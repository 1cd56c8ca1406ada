"""Loops that are right, on which the verifier says nothing."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint

from amplint.runtime import verify

from .training import Net, batch, fp16, loss_of, scaler, setup


def silent(run, steps):
    assert [(each.code, each.step, each.message) for each in run.findings] == []
    assert run.steps == steps


def test_clip_after_unscale_with_accumulation():
    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        for micro in range(24):
            with fp16():
                output = model(batch())
            s.scale(loss_of(output) / 4).backward()
            if micro % 4 == 3:
                s.unscale_(optimizer)
                clip_grad_norm_(model.parameters(), 1.0)
                s.step(optimizer)
                s.update()
                optimizer.zero_grad()
    silent(run, 6)


@pytest.mark.parametrize("updates", ["one update", "an update per optimizer"])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_gan_whose_generator_loss_reaches_the_discriminator(updates, set_to_none):
    torch.manual_seed(0)
    generator, critic, s = nn.Linear(8, 8), Net(), scaler()
    adam_g = torch.optim.Adam(generator.parameters(), 1e-3)
    adam_d = torch.optim.Adam(critic.parameters(), 1e-3)
    with verify.watch() as run:
        for _ in range(8):
            adam_d.zero_grad(set_to_none=set_to_none)
            with fp16():
                fake = generator(batch())
                loss_d = loss_of(critic(batch())) + loss_of(critic(fake.detach()))
            s.scale(loss_d).backward()
            s.unscale_(adam_d)
            clip_grad_norm_(critic.parameters(), 1.0)
            s.step(adam_d)
            if updates != "one update":
                s.update()
            adam_g.zero_grad(set_to_none=set_to_none)
            with fp16():
                loss_g = loss_of(critic(generator(batch())))
            s.scale(loss_g).backward()
            s.unscale_(adam_g)
            clip_grad_norm_(generator.parameters(), 1.0)
            s.step(adam_g)
            s.update()
    silent(run, 8)


def test_two_scalers_for_two_optimizers():
    first, second = Net(), Net()
    scalers = [scaler(), scaler(2.0**15)]
    optimizers = [torch.optim.AdamW(each.parameters(), 1e-3) for each in (first, second)]
    with verify.watch([first, second], optimizers, scalers) as run:
        for _ in range(5):
            for model, optimizer, s in zip((first, second), optimizers, scalers, strict=True):
                model.zero_grad()
                with fp16():
                    output = model(batch())
                s.scale(loss_of(output)).backward()
                s.unscale_(optimizer)
                clip_grad_norm_(model.parameters(), 1.0)
                s.step(optimizer)
                s.update()
    silent(run, 5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing(reentrant):
    class Model(Net):
        def forward(self, x):
            x = checkpoint(lambda y: self.norm(self.first(y)), x, use_reentrant=reentrant)
            return self.last(torch.relu(x))

    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    s = scaler()
    with verify.watch(model, optimizer, s) as run:
        for _ in range(4):
            optimizer.zero_grad()
            with fp16():
                output = model(batch().requires_grad_())
            s.scale(loss_of(output)).backward()
            s.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            s.step(optimizer)
            s.update()
    silent(run, 4)


@pytest.mark.parametrize("what", ["module", "function", "in place"])
def test_a_compiled_model(what):
    model, optimizer, s = setup()
    torch._dynamo.reset()
    compilations = []

    def backend(graph, inputs):
        from torch._dynamo.backends.debugging import aot_eager

        compilations.append(1)
        return aot_eager(graph, inputs)

    with verify.watch(None, optimizer, s, every=2) as run:
        if what == "module":
            forward = torch.compile(model, backend=backend)
        elif what == "in place":
            model.compile(backend=backend)
            forward = model
        else:
            forward = torch.compile(lambda x: model(x), backend=backend)
        for _ in range(6):
            optimizer.zero_grad()
            with fp16():
                output = forward(batch())
            s.scale(loss_of(output)).backward()
            s.step(optimizer)
            s.update()
    silent(run, 6)
    assert len(compilations) == 1


def test_a_region_and_the_loss_inside_a_compiled_function():
    model, optimizer, s = setup()
    torch._dynamo.reset()

    with verify.watch(None, optimizer, s) as run:

        @torch.compile(backend="aot_eager")
        def loss(x):
            with torch.autocast("cpu", dtype=torch.float16):
                output = model(x)
            return loss_of(output)

        for _ in range(3):
            optimizer.zero_grad()
            s.scale(loss(batch())).backward()
            s.step(optimizer)
            s.update()
    silent(run, 3)


def test_a_disabled_scaler_in_float32():
    model, optimizer, s = setup(enabled=False)
    with verify.watch(model, optimizer, s) as run:
        for _ in range(4):
            optimizer.zero_grad()
            s.scale(loss_of(model(batch()))).backward()
            s.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            s.step(optimizer)
            s.update()
    silent(run, 4)


def test_bfloat16_without_a_scaler():
    model, optimizer, _ = setup()
    with verify.watch(model, optimizer) as run:
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = loss_of(model(batch()))
            loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    silent(run, 4)


def test_an_optimizer_with_a_closure_and_no_amp():
    model, _, _ = setup()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    data = batch()

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model(data))
        loss.backward()
        return loss

    with verify.watch(model, optimizer) as run:
        for _ in range(4):
            optimizer.step(closure)
    silent(run, 4)


def test_plain_float32():
    model, optimizer, _ = setup()
    with verify.watch() as run:
        for _ in range(4):
            optimizer.zero_grad()
            loss_of(model(batch())).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    silent(run, 4)


def test_gradients_cleared_by_hand():
    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        for step in range(6):
            for parameter in model.parameters():
                if step % 2 or parameter.grad is None:
                    parameter.grad = None
                else:
                    parameter.grad.zero_()
            with fp16():
                output = model(batch())
            s.scale(loss_of(output)).backward()
            s.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            s.step(optimizer)
            s.update()
    silent(run, 6)


def test_an_iteration_skipped_before_unscale():
    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        for step in range(6):
            optimizer.zero_grad()
            with fp16():
                output = model(batch())
            s.scale(loss_of(output)).backward()
            if step == 3:
                continue
            s.step(optimizer)
            s.update()
    silent(run, 5)


def test_a_probe_of_a_larger_scale_that_overflows():
    model, optimizer, s = setup(init_scale=2.0**16, growth_interval=8)
    with verify.watch(model, optimizer, s) as run:
        for _ in range(40):
            optimizer.zero_grad()
            with fp16():
                output = model(batch())
            s.scale(loss_of(output)).backward()
            s.step(optimizer)
            s.update()
    assert run.skipped > 1
    silent(run, 40)


def test_evaluation_between_steps():
    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        for _ in range(4):
            optimizer.zero_grad()
            with fp16():
                output = model(batch())
            s.scale(loss_of(output)).backward()
            s.step(optimizer)
            s.update()
            model.eval()
            with torch.inference_mode(), fp16():
                model(batch())
            model.train()
    silent(run, 4)


def test_a_step_with_a_scheduler_and_a_saved_scaler():
    model, optimizer, s = setup()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with verify.watch() as run:
        for _ in range(4):
            optimizer.zero_grad()
            with fp16():
                output = model(batch())
            s.scale(loss_of(output)).backward()
            s.step(optimizer)
            s.update()
            scheduler.step()
            copy.deepcopy(s)
            s.load_state_dict(pickle.loads(pickle.dumps(s)).state_dict())
    silent(run, 4)


class Prepared(torch.optim.Optimizer):
    """An optimizer as accelerate wraps it: clears, clips and steps the inner one, through a scaler of its own."""

    def __init__(self, optimizer, scaler):
        self.optimizer = optimizer
        self.scaler = scaler

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        self.scaler.step(self.optimizer, closure)
        self.scaler.update()


@pytest.mark.parametrize("given", [True, False])
def test_an_optimizer_that_is_wrapped_as_accelerate_does_it(given):
    model, inner, s = setup()
    optimizer = Prepared(inner, s)
    with verify.watch(model, optimizer if given else None) as run:
        for _ in range(5):
            with fp16():
                output = model(batch())
            s.scale(loss_of(output)).backward()
            s.unscale_(optimizer.optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    silent(run, 5)


class Averaging(torch.optim.Optimizer):
    """Steps another optimizer and averages its weights now and then; none of torch's `__init__`."""

    def __init__(self, inner):
        self._optimizer_step_pre_hooks = {}
        self._optimizer_step_post_hooks = {}
        self.inner = inner
        self.param_groups = inner.param_groups
        self.defaults = inner.defaults
        self.state = {}

    def step(self, closure=None):
        return self.inner.step(closure)


class Restarting(torch.optim.Optimizer):
    """Is an optimizer of torch's, and makes another one for the same groups."""

    def __init__(self, parameters, inner, **options):
        super().__init__(parameters, options)
        self.inner = inner(self.param_groups, **options)
        self.param_groups = self.inner.param_groups

    def step(self, closure=None):
        return self.inner.step(closure)


class Plain(torch.optim.Optimizer):
    """Has nothing of torch's but the name."""

    def __init__(self, parameters):
        self.param_groups = [{"params": list(parameters)}]
        self.state = {}
        self.defaults = {}

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            parameter -= 1e-2 * parameter.grad


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: Averaging(torch.optim.SGD(parameters, lr=1e-2)),
        lambda parameters: Restarting(parameters, torch.optim.SGD, lr=1e-2),
        Plain,
    ],
    ids=["around another one", "around another one, initialised", "without hooks"],
)
@pytest.mark.parametrize("given", [True, False])
def test_an_optimizer_that_is_not_made_as_those_of_torch(make, given):
    model, _, s = setup()
    with verify.watch(*((model, optimizer := make(model.parameters()), s) if given else ())) as run:
        if not given:
            optimizer = make(model.parameters())
        for step in range(8):
            model.zero_grad()
            with fp16():
                output = model(batch())
            s.scale(loss_of(output) * (1e38 if step == 5 else 1)).backward()
            s.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            s.step(optimizer)
            s.update()
    silent(run, 8)
    assert run.skipped == 1
    assert "step" not in vars(optimizer)


def test_an_optimizer_whose_hooks_torch_compile_took_away():
    """As before 2.3: the plain method stands in the class again, and says that it is hooked."""

    class Bare(torch.optim.SGD):
        def step(self, closure=None):
            parameters[0].sub_(parameters[0].grad)

    bare = Bare.step
    bare.hooked = True
    parameters = [nn.Parameter(torch.ones(3))]
    optimizer = Bare(parameters, lr=0.1)
    with torch.no_grad(), verify.watch(optimizer=optimizer) as run:
        for _ in range(4):
            parameters[0].grad = torch.ones(3)
            optimizer.step()
    silent(run, 4)
    assert Bare.step is bare


@pytest.mark.parametrize("before", [True, False])
def test_plain_steps_after_torch_compile(before):
    model, optimizer, _ = setup()
    if before:
        torch.compile(nn.Linear(2, 2), backend="eager")(torch.ones(2))
    with verify.watch(model, optimizer) as run:
        compiled = model if before else torch.compile(model, backend="eager")
        for _ in range(4):
            optimizer.zero_grad()
            loss_of(compiled(batch())).backward()
            optimizer.step()
    silent(run, 4)


def test_optimizers_for_the_same_parameters_one_after_the_other():
    model, first, s = setup()
    unused = torch.optim.SGD(model.parameters(), lr=1.0)
    head = torch.optim.SGD(model.last.parameters(), lr=1e-3)
    second = torch.optim.Adam(model.parameters(), 1e-3)
    with verify.watch() as run:
        for optimizer in (first, head, second, first):
            for _ in range(3):
                with fp16():
                    output = model(batch())
                s.scale(loss_of(output)).backward()
                s.unscale_(optimizer)
                clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
                s.step(optimizer)
                s.update()
                model.zero_grad(set_to_none=optimizer is head)
    silent(run, 6)
    assert unused.state_dict()["state"] == {}


def test_gradients_that_are_unscaled_by_hand_before_the_clip():
    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        for _ in range(4):
            optimizer.zero_grad()
            with fp16():
                output = model(batch())
            s.scale(loss_of(output)).backward()
            for parameter in model.parameters():
                parameter.grad.div_(s.get_scale())
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    silent(run, 4)


def test_gradients_that_autograd_grad_returns_and_the_user_puts_in_place():
    model, optimizer, s = setup()
    with verify.watch(model, optimizer, s) as run:
        for _ in range(6):
            with fp16():
                output = model(batch())
            parameters = list(model.parameters())
            gradients = torch.autograd.grad(s.scale(loss_of(output)), parameters)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            s.unscale_(optimizer)
            clip_grad_norm_(parameters, 1.0)
            s.step(optimizer)
            s.update()
    silent(run, 6)


def smoothed(output):
    return -torch.log_softmax(output.expand(-1, 3), -1).mean()


def squared(output):
    return (output - 1).pow(2).mean()


def normed(output):
    return nn.functional.layer_norm(output.expand(-1, 3), (3,)).sum() + output.float().mean()


@pytest.mark.parametrize("loss", [smoothed, squared, normed])
@pytest.mark.parametrize("nested", [False, True])
def test_a_loss_that_autocast_leaves_in_half_on_the_cpu_only(loss, nested):
    model, optimizer, _ = setup()
    with verify.watch(model, optimizer) as run:
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(batch())
                value = loss(output)
                if nested:
                    with torch.autocast("cpu", dtype=torch.bfloat16):
                        loss(output)
                    value = value + loss(output)
                    value.backward()
            if not nested:
                value.backward()
            optimizer.step()
    silent(run, 4)


def test_accelerate():
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(mixed_precision="bf16", cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    model, optimizer = accelerator.prepare(Net(), torch.optim.AdamW(Net().parameters(), 1e-3))
    optimizer = accelerator.prepare(torch.optim.AdamW(model.parameters(), 1e-3))
    with verify.watch() as run:
        for _ in range(8):
            with accelerator.accumulate(model):
                accelerator.backward(loss_of(model(batch())))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    silent(run, 4)


def test_an_unused_branch_and_frozen_parameters():
    model, _, s = setup()
    unused = nn.Linear(3, 3)
    model.first.requires_grad_(False)
    optimizer = torch.optim.SGD([*model.parameters(), *unused.parameters()], lr=1e-3)
    with verify.watch() as run:
        for _ in range(4):
            optimizer.zero_grad()
            with fp16():
                output = model(batch())
            s.scale(loss_of(output)).backward()
            s.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            s.step(optimizer)
            s.update()
    silent(run, 4)


def test_weights_and_losses_are_bit_for_bit_those_of_an_unobserved_run():
    def train(observe):
        model, optimizer, s = setup(seed=3)
        losses = []

        def loop():
            for _ in range(12):
                optimizer.zero_grad()
                with fp16():
                    output = model(batch())
                loss = loss_of(output)
                s.scale(loss).backward()
                s.unscale_(optimizer)
                clip_grad_norm_(model.parameters(), 1.0)
                s.step(optimizer)
                s.update()
                losses.append(loss.item())

        if observe:
            with verify.watch(model, optimizer, s, every=2):
                loop()
        else:
            loop()
        return losses, [parameter.tolist() for parameter in model.parameters()], torch.rand(1).item()

    assert train(observe=True) == train(observe=False)
