"""Training: losses as on the CPU, gradient scaling, optimizers, layers, checkpointing, torch.compile."""

import torch
import torch.nn.functional as F
import torch_npu
from torch import nn

from amplint import simnpu


def _raises(kind, function):
    try:
        function()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def _losses(device, amp=False, steps=12):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    data = torch.Generator().manual_seed(1)
    scaler = torch.amp.GradScaler(device, enabled=amp)
    losses = []
    for _ in range(steps):
        x = torch.randn(32, 8, generator=data).to(device)
        y = torch.randint(0, 4, (32,), generator=data).to(device)
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.float16, enabled=amp):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


def float32_training_gives_the_losses_of_the_cpu():
    for npu, cpu in zip(_losses("npu"), _losses("cpu"), strict=True):
        assert abs(npu - cpu) < 1e-5


def mixed_precision_training_stays_close_to_float32():
    mixed = _losses("npu", amp=True)
    assert mixed != _losses("cpu")
    for npu, cpu in zip(mixed, _losses("cpu"), strict=True):
        assert abs(npu - cpu) < 1e-2


def a_good_step_with_the_scaler_of_torch_waits_once():
    model = nn.Linear(4, 1).npu()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("npu", init_scale=1024.0)
    for _ in range(3):
        simnpu.reset_counts()
        scaler.scale(model(torch.ones(2, 4, device="npu")).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert simnpu.sync_counts() == {"item": 1}


def a_good_step_with_the_scaler_of_torch_npu_waits_three_times():
    model = nn.Linear(4, 1).npu()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch_npu.npu.amp.GradScaler(1024.0)
    for _ in range(3):
        simnpu.reset_counts()
        scaler.scale(model(torch.ones(2, 4, device="npu")).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert simnpu.sync_counts() == {"item": 3}


def _scales(scaler):
    model = nn.Linear(4, 1).npu()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scales = []
    for step in range(6):
        optimizer.zero_grad()
        x = torch.randn(8, 4, device="npu")
        if step == 3:
            x[0, 0] = float("inf")
        before = model.weight.detach().clone()
        with torch.autocast("npu", dtype=torch.float16):
            loss = F.mse_loss(model(x), torch.zeros(8, 1, device="npu"))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, model.weight) == (step == 3)
        scales.append(scaler.get_scale())
    return scales


def an_overflow_skips_the_step_and_halves_the_scale():
    expected = [1024, 2048, 2048, 1024, 1024, 2048]
    assert _scales(torch.amp.GradScaler("npu", init_scale=1024.0, growth_interval=2)) == expected
    assert _scales(torch_npu.npu.amp.GradScaler(init_scale=1024.0, growth_interval=2)) == expected


def the_scaler_of_torch_npu_has_its_own_signature_and_state():
    scaler = torch_npu.npu.amp.GradScaler(65536.0, 2.0, 0.5, 2000, False)
    assert scaler.is_enabled()
    assert scaler._dynamic is False
    assert isinstance(scaler, torch.amp.GradScaler)
    assert not isinstance(scaler, torch.cuda.amp.GradScaler)
    assert scaler.state_dict()["dynamic"] is False
    _raises(TypeError, lambda: torch_npu.npu.amp.GradScaler(device="npu"))
    assert torch_npu.npu.amp.GradScaler("npu")._init_scale == "npu"
    _raises(KeyError, lambda: scaler.load_state_dict(torch.amp.GradScaler("npu").state_dict()))
    torch.amp.GradScaler("npu").load_state_dict(scaler.state_dict())


def a_static_scale_never_changes_and_still_unscales():
    model = nn.Linear(1, 1, bias=False).npu()
    nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    scaler = torch_npu.npu.amp.GradScaler(init_scale=1024.0, dynamic=False)
    scaler.scale(model(torch.ones(1, 1, device="npu")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert model.weight.item() == 0
    assert scaler.get_scale() == 1024


def unscaling_float16_gradients_raises():
    model = nn.Linear(4, 1).half().npu()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("npu", init_scale=4.0)
    scaler.scale(model(torch.ones(8, 4, device="npu").half()).sum()).backward()
    assert "FP16" in _raises(ValueError, lambda: scaler.unscale_(optimizer))


def optimizers_step():
    for kind, options in (
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.Adam, {"lr": 0.1}),
        (torch.optim.AdamW, {"lr": 0.1, "fused": True}),
        (torch.optim.AdamW, {"lr": 0.1, "foreach": True}),
        (torch.optim.RMSprop, {"lr": 0.1}),
        (torch.optim.Adagrad, {"lr": 0.1}),
    ):
        model = nn.Linear(4, 4).npu()
        before = model.weight.detach().clone()
        optimizer = kind(model.parameters(), **options)
        for _ in range(2):
            model(torch.randn(2, 4, device="npu")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert not torch.equal(before, model.weight)


def convolutions_and_batch_norm_match_the_cpu():
    def run(device):
        torch.manual_seed(0)
        layers = [
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.ConvTranspose2d(8, 4, 2),
        ]
        model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).to(device)
        x = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0)).to(device)
        loss = model(x).pow(2).sum()
        loss.backward()
        return loss.item(), model[0].weight.grad.norm().item()

    for npu, cpu in zip(run("npu"), run("cpu"), strict=True):
        assert abs(npu - cpu) < 1e-4


def recurrent_layers_run_forward_and_backward():
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        model = kind(4, 8, batch_first=True).npu()
        with torch.autocast("npu"):
            out, _ = model(torch.randn(2, 5, 4, device="npu"))
        out.float().sum().backward()
        assert model.weight_ih_l0.grad is not None


def transformer_layers_run_in_training_and_evaluation():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).npu()
    model(torch.randn(2, 5, 16, device="npu")).sum().backward()
    model.eval()
    with torch.inference_mode():
        assert model(torch.randn(2, 5, 16, device="npu")).is_npu


def embeddings_and_dropout_have_gradients():
    table = nn.Embedding(10, 4).npu()
    nn.Dropout(0.5)(table(torch.randint(0, 10, (3,), device="npu"))).sum().backward()
    assert table.weight.grad.is_npu


def activation_checkpointing_replays_the_dropout_mask():
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4)).npu()
    masks = []
    model[1].register_forward_hook(lambda module, inputs, output: masks.append((output != 0).cpu()))
    for reentrant in (False, True):
        masks.clear()
        x = torch.randn(8, 4, device="npu", requires_grad=True)
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
        assert torch.equal(masks[0], masks[1])


def second_derivatives_and_anomaly_detection_work():
    x = torch.randn(3, device="npu", requires_grad=True)
    (gradient,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    gradient.sum().backward()
    assert torch.allclose(x.grad, 6 * x)
    with torch.autograd.detect_anomaly(check_nan=True):
        loss = (torch.zeros(1, device="npu", requires_grad=True).sqrt() * 0).sum()
        assert "nan" in _raises(RuntimeError, loss.backward)


def compiling_with_the_eager_backends_works():
    for backend in ("eager", "aot_eager"):
        layer = nn.Linear(2, 2).npu()
        torch.compile(layer, backend=backend)(torch.ones(1, 2, device="npu")).sum().backward()
        assert layer.weight.grad is not None
        torch._dynamo.reset()


def hooks_and_the_flop_counter_see_the_layers():
    from torch.utils.flop_counter import FlopCounterMode

    seen = []
    layer = nn.Linear(4, 4).npu()
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output.device.type))
    layer.register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].device.type))
    with FlopCounterMode(display=False) as flops:
        layer(torch.ones(2, 4, device="npu", requires_grad=True)).sum().backward()
    assert seen == ["npu", "npu"]
    assert flops.get_total_flops() > 0


def a_module_that_moves_gets_new_parameters():
    layer = nn.Linear(2, 2)
    before = layer.weight
    layer.to("npu")
    assert layer.weight is not before
    assert before.device.type == "cpu"
