"""Ascend 910A: float16 without Inf and NaN, no bfloat16, and a scaler that must ask the chip."""

import torch
import torch_npu
from torch import nn

HUGE = 60000.0


def _raises(kind, function):
    try:
        function()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def the_chip_says_what_it_lacks():
    assert torch.npu.get_device_name() == "Ascend910A"
    assert not torch.npu.utils.is_support_inf_nan()
    assert not torch.npu.is_bf16_supported()
    assert torch.bfloat16 not in torch.npu.get_amp_supported_dtype()


def float16_overflow_becomes_the_largest_number():
    torch_npu.npu.clear_npu_overflow_flag()
    x = torch.tensor([HUGE, -HUGE], dtype=torch.float16, device="npu")
    assert not torch_npu.npu.get_npu_overflow_flag()
    assert (x * 2).tolist() == [65504, -65504]
    assert torch_npu.npu.get_npu_overflow_flag()
    torch_npu.npu.clear_npu_overflow_flag()
    x.mul_(2)
    assert x.tolist() == [65504, -65504]
    assert torch_npu.npu.get_npu_overflow_flag()


def matrix_products_and_casts_saturate_too():
    x = torch.full((2, 2), HUGE, dtype=torch.float16, device="npu")
    assert (x @ x).max().item() == 65504
    assert torch.tensor([1e6], device="npu").half().item() == 65504
    assert nn.Conv1d(2, 2, 1).npu().half()(x[None] * 2).isfinite().all()


def a_mask_of_minus_infinity_raises_no_flag():
    torch_npu.npu.clear_npu_overflow_flag()
    x = torch.zeros(2, dtype=torch.float16, device="npu")
    filled = x.masked_fill(torch.tensor([True, False], device="npu"), float("-inf"))
    assert filled.tolist() == [-65504, 0]
    assert not torch_npu.npu.get_npu_overflow_flag()


def float32_has_inf():
    assert (torch.tensor([3e38], device="npu") * 10).isinf().all()


def bfloat16_is_refused():
    x = torch.ones(2, device="npu").bfloat16()
    assert "bfloat16" in _raises(RuntimeError, lambda: x + x)
    with torch.autocast("npu", dtype=torch.bfloat16):
        assert not torch.is_autocast_enabled("npu")


def _steps(scaler, overflows):
    model = nn.Linear(1, 1, bias=False).npu()
    nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    stepped = []
    done = []
    optimizer.register_step_post_hook(lambda *_: stepped.append(len(done)))
    for overflow in overflows:
        optimizer.zero_grad()
        with torch.autocast("npu"):
            out = model(torch.full((1, 1), HUGE if overflow else 1.0, device="npu")) * 2
        scaler.scale(out.float().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        done.append(overflow)
    return stepped, scaler.get_scale()


def the_scaler_of_torch_npu_skips_just_the_step_that_overflowed():
    scaler = torch_npu.npu.amp.GradScaler(init_scale=4.0)
    assert _steps(scaler, [False, True, False]) == ([0, 2], 2.0)


def the_scaler_of_torch_skips_for_ever_after_the_first_overflow():
    torch_npu.npu.clear_npu_overflow_flag()
    scaler = torch.amp.GradScaler("npu", init_scale=4.0)
    assert _steps(scaler, [False, True, False, False]) == ([0], 0.5)


def the_shim_takes_the_scaler_that_asks_the_chip():
    from amplint.runtime import GradScaler

    scaler = GradScaler(init_scale=4.0)
    assert isinstance(scaler, torch_npu.npu.amp.GradScaler)
    assert _steps(scaler, [False, True, False]) == ([0, 2], 2.0)
