"""Autocast: every entry of torch_npu's lists, the defaults, and the rules around them."""

import warnings

import torch
import torch.nn.functional as F
from torch import nn

from amplint.simnpu import autocast

F16, F32, BF16 = torch.float16, torch.float32, torch.bfloat16


def _npu(*shape, dtype=F32):
    return torch.rand(*shape, device="npu").to(dtype)


def _raises(kind, function):
    try:
        function()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def the_default_dtype_is_float16():
    assert torch.amp.is_autocast_available("npu")
    assert torch.get_autocast_dtype("npu") is F16
    with torch.autocast("npu"):
        assert torch.is_autocast_enabled("npu")
        # without a device it asks about CUDA, and since 2.14 about the accelerator
        release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
        assert torch.is_autocast_enabled() == (release >= (2, 14))
        assert nn.Linear(4, 4).npu()(_npu(4, 4)).dtype is F16
    assert nn.Linear(4, 4).npu()(_npu(4, 4)).dtype is F32


def every_operator_of_the_lists_is_registered():
    listed, made = set(autocast.policies()), {f"aten::{name}" for name, _ in autocast.kernels()}
    assert listed == made, listed ^ made
    for name in made:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastPrivateUse1"), name


def no_operator_outside_the_lists_is_registered():
    registered = {
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastPrivateUse1")
    }
    assert registered == set(autocast.policies())


def lower_precision_operators_give_the_dtype_of_the_region():
    for dtype in (F16, BF16):
        with torch.autocast("npu", dtype=dtype):
            a = _npu(4, 4)
            for out in (
                a @ a,
                F.linear(a, a),
                torch.bmm(a[None], a[None]),
                torch.addmm(a, a, a),
                torch.mv(a, a[0]),
                torch.einsum("ij,jk->ik", a, a),
                nn.Conv1d(4, 4, 1).npu()(a[None]),
                nn.Conv2d(1, 1, 1).npu()(a[None, None]),
                nn.ConvTranspose2d(1, 1, 1).npu()(a[None, None]),
                F.prelu(a, a[0]),
                F.scaled_dot_product_attention(a[None], a[None], a[None]),
                nn.GRUCell(4, 4).npu()(a),
            ):
                assert out.dtype is dtype, out.grad_fn


def fp32_operators_give_float32_from_low_precision():
    with torch.autocast("npu"):
        a = _npu(4, 4, dtype=F16)
        for out in (
            a.exp(),
            a.log(),
            a.pow(2),
            2**a,
            a.rsqrt(),
            a.reciprocal(),
            F.softplus(a),
            F.layer_norm(a, (4,)),
            F.group_norm(a, 2),
            F.cosine_similarity(a, a),
            F.mse_loss(a, a),
            F.l1_loss(a, a),
            F.smooth_l1_loss(a, a),
            F.binary_cross_entropy_with_logits(a, a),
            F.nll_loss(a, torch.zeros(4, dtype=torch.long, device="npu")),
            F.kl_div(a, a),
            torch.cdist(a, a),
            torch.logsumexp(a, 0),
            torch.dist(a, a),
        ):
            assert out.dtype is F32, out


def operators_with_a_dtype_argument_default_to_float32():
    with torch.autocast("npu"):
        a = _npu(4, 4, dtype=F16)
        for out in (a.sum(), a.sum(0), a.prod(), a.cumsum(0), a.cumprod(0), a.softmax(0), a.log_softmax(0)):
            assert out.dtype is F32
        assert torch.linalg.vector_norm(a).dtype is F32
        assert a.softmax(0, dtype=F16).dtype is F16
        assert a.sum(dtype=F16).dtype is F16
        assert a.long().sum().dtype is torch.int64
        assert F.cross_entropy(a, torch.zeros(4, dtype=torch.long, device="npu")).dtype is F32


def norms_of_low_precision_are_float32():
    with torch.autocast("npu"):
        a = _npu(4, 4, dtype=F16)
        for out in (a.norm(), a.norm(2), a.norm(2, 0), torch.ops.aten.norm.Scalar(a)):
            assert out.dtype is F32
        assert torch.ops.aten.norm.ScalarOpt_dim(a, 2, [0]).dtype is F32
        assert torch.ops.aten.norm.ScalarOpt_dim(a, 2, [0], True).shape == (1, 4)


def promoting_operators_take_the_widest_dtype():
    with torch.autocast("npu"):
        half, single = _npu(4, dtype=F16), _npu(4)
        assert torch.dot(half, half).dtype is F16
        assert torch.dot(half, single).dtype is F32
        assert torch.addcmul(half, half, single).dtype is F32
        assert torch.atan2(half, half).dtype is F16
        assert torch.cat([half, single]).dtype is F32
        assert torch.stack([half, half]).dtype is F16
        _raises(RuntimeError, lambda: torch.dot(half.bfloat16(), single.bfloat16()))


def binary_cross_entropy_is_banned():
    with torch.autocast("npu"):
        text = _raises(RuntimeError, lambda: F.binary_cross_entropy(_npu(4), _npu(4)))
    assert "unsafe to autocast" in text
    F.binary_cross_entropy(_npu(4), _npu(4))


def operators_that_only_cuda_lists_keep_their_dtype():
    with torch.autocast("npu"):
        a = _npu(1, 1, 4, 4, dtype=F16)
        assert F.interpolate(a, scale_factor=2).dtype is F16
        assert F.interpolate(a, scale_factor=2, mode="bilinear").dtype is F16
        assert F.rms_norm(a, (4,)).dtype is F16
        assert torch.linalg.vecdot(_npu(4), _npu(4)).dtype is F32


def batch_norm_mean_and_variance_keep_their_dtype():
    with torch.autocast("npu"):
        a = _npu(4, 4, dtype=F16)
        assert nn.BatchNorm1d(4).npu()(a).dtype is F16
        assert a.mean().dtype is a.var().dtype is F16


def float64_and_integers_are_left_alone():
    with torch.autocast("npu"):
        wide = torch.ones(2, 2, dtype=torch.float64).npu()
        assert (wide @ wide).dtype is torch.float64
        assert (torch.ones(2, device="npu", dtype=torch.long) + 1).dtype is torch.int64


def cpu_tensors_are_left_alone():
    with torch.autocast("npu"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is F32
    with torch.autocast("cpu", dtype=BF16):
        assert (_npu(2, 2) @ _npu(2, 2)).dtype is F32


def a_disabled_region_inside_stops_casting():
    with torch.autocast("npu"):
        with torch.autocast("npu", enabled=False):
            assert (_npu(2, 2) @ _npu(2, 2)).dtype is F32
        with warnings.catch_warnings(), torch.autocast("cuda", enabled=False):
            assert (_npu(2, 2) @ _npu(2, 2)).dtype is F16  # a region of another device does not
        assert (_npu(2, 2) @ _npu(2, 2)).dtype is F16


def float32_is_a_dtype_for_a_region_and_float64_disables_it():
    with torch.autocast("npu", dtype=F32):
        assert torch.is_autocast_enabled("npu")
    with torch.autocast("npu", dtype=torch.float64):
        assert not torch.is_autocast_enabled("npu")


def gradients_of_float32_parameters_are_float32():
    layer = nn.Linear(4, 4).npu()
    with torch.autocast("npu"):
        loss = layer(_npu(2, 4)).float().sum()
    loss.backward()
    assert layer.weight.grad.dtype is F32


def a_weight_is_cast_once_per_region():
    weight = nn.Parameter(_npu(4, 4))
    casts = autocast._low_precision
    with torch.autocast("npu"):
        F.linear(_npu(4, 4), weight)
        first = casts[id(weight)][1]
        F.linear(_npu(4, 4), weight)
        assert casts[id(weight)][1] is first
        with torch.autocast("npu"):
            pass
        assert casts
    assert not casts
    with torch.autocast("npu", cache_enabled=False):
        F.linear(_npu(4, 4), weight)
        assert not casts


def a_weight_first_cast_under_no_grad_gets_no_gradient_in_that_region():
    weight = nn.Parameter(_npu(4, 4))
    with torch.autocast("npu"):
        with torch.no_grad():
            F.linear(_npu(4, 4), weight)
        assert not F.linear(_npu(4, 4), weight).requires_grad


def custom_functions_cast_their_inputs():
    seen = []

    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="npu", cast_inputs=F16)
        def forward(ctx, x):
            seen.append((x.dtype, torch.is_autocast_enabled("npu")))
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="npu")
        def backward(ctx, grad):
            return grad * 2

    with torch.autocast("npu"):
        Double.apply(torch.ones(2, device="npu", requires_grad=True)).sum().backward()
    assert seen == [(F16, False)]


def functions_of_torch_npu_tell_the_state():
    with torch.npu.amp.autocast(dtype=BF16):
        assert torch.npu.is_autocast_enabled()
        assert torch.npu.get_autocast_dtype() is BF16
    assert not torch.npu.is_autocast_enabled()
