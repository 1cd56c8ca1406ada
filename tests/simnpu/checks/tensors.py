"""Tensors: moving, making, viewing, changing, indexing; counting operators and waits."""

import copy

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from amplint import simnpu


def _raises(kind, function, *words):
    try:
        function()
    except kind as error:
        assert all(word in str(error) for word in words), str(error)
        return
    raise AssertionError(f"no {kind.__name__}")


def a_tensor_moved_to_npu_and_back_is_equal():
    x = torch.randn(3, 4)
    for y in (x.to("npu"), x.npu(), x.to("npu:0"), x.to(torch.device("npu")), x.to(device="npu")):
        assert y.device == torch.device("npu", 0)
        assert y.is_npu
        assert not y.is_cpu
        assert not y.is_cuda
        assert torch.equal(y.cpu(), x)


def a_tensor_on_npu_shares_no_memory_with_the_one_it_came_from():
    x = torch.zeros(3)
    x.to("npu").add_(1)
    assert x.tolist() == [0, 0, 0]


def every_dtype_survives_the_way_to_npu_and_back():
    dtypes = "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 bool complex64"
    for name in dtypes.split():
        x = torch.tensor([0, 1, 1]).to(getattr(torch, name))
        assert torch.equal(x.to("npu").cpu(), x), name
        assert x.to("npu").dtype is x.dtype


def empty_tensors_and_scalars_work():
    assert torch.empty(0, device="npu").cpu().shape == (0,)
    assert (torch.tensor(2.0, device="npu") + 1).item() == 3
    assert (torch.ones(2, device="npu") * torch.tensor(3.0)).tolist() == [3, 3]  # a CPU scalar is allowed


def factories_make_npu_tensors():
    for make in (torch.zeros, torch.ones, torch.randn, torch.rand, torch.empty):
        assert make(2, 3, device="npu").device.type == "npu"
    assert torch.arange(5, device="npu").tolist() == [0, 1, 2, 3, 4]
    assert torch.tensor([1.0, 2.0], device="npu").sum().item() == 3
    assert torch.full((2,), 3.0, device="npu").tolist() == [3, 3]
    assert torch.eye(2, device="npu").tolist() == [[1, 0], [0, 1]]
    assert torch.linspace(0, 1, 3, device="npu").tolist() == [0, 0.5, 1]
    assert sorted(torch.randperm(5, device="npu").tolist()) == [0, 1, 2, 3, 4]
    assert torch.randint(0, 5, (3,), device="npu").device.type == "npu"
    assert torch.tril(torch.ones(2, 2, device="npu")).tolist() == [[1, 0], [1, 1]]
    assert torch.zeros_like(torch.ones(2, device="npu")).is_npu
    assert torch.ones(2, device="npu").new_zeros(3).is_npu


def a_default_device_of_npu_is_used():
    with torch.device("npu"):
        assert torch.nn.Linear(2, 2).weight.is_npu
    torch.set_default_device("npu")
    made = torch.zeros(2)
    torch.set_default_device(None)
    assert made.is_npu


def views_share_memory_with_their_base():
    x = torch.randn(3, 4, device="npu")
    x[1:, ::2].zero_()
    assert x.cpu()[1, 0] == x.cpu()[2, 2] == 0
    assert x.t()._base is x
    for view in (
        x.t(),
        x.view(4, 3),
        x.unfold(0, 2, 1),
        x.permute(1, 0),
        x[0],
        x.chunk(2)[0],
        x.expand(2, 3, 4),
    ):
        assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert torch.view_as_complex(torch.randn(3, 2, device="npu")).dtype is torch.complex64


def items_are_read_and_written():
    x = torch.zeros(4, device="npu")
    x[1] = 2
    x[x > 1] = 5
    x[torch.tensor([0], device="npu")] = 7
    x[torch.tensor([3])] = 1
    assert x.tolist() == [7, 5, 0, 1]
    assert x[x > 4].tolist() == [7, 5]


def out_arguments_are_filled_and_grow_from_empty():
    out = torch.empty(0, device="npu")
    torch.add(torch.ones(2, device="npu"), torch.ones(2, device="npu"), out=out)
    assert out.tolist() == [2, 2]
    same = torch.zeros(2, 2, device="npu")
    torch.mm(torch.eye(2, device="npu"), torch.ones(2, 2, device="npu"), out=same)
    assert same.tolist() == [[1, 1], [1, 1]]
    half = torch.zeros(2, 2, device="npu", dtype=torch.float16)
    torch.mm(torch.eye(2, device="npu").half(), torch.ones(2, 2, device="npu").half(), out=half)
    assert half.tolist() == [[1, 1], [1, 1]]


def a_tensor_is_resized_and_keeps_what_it_held():
    x = torch.tensor([1.0, 2.0], device="npu")
    x.resize_(4)
    assert x[:2].tolist() == [1, 2]
    assert x.shape == (4,)
    x.resize_(1)
    assert x.tolist() == [1]


def tensors_of_two_devices_do_not_mix():
    npu, cpu = torch.randn(2, 2, device="npu"), torch.randn(2, 2)
    for mixed in (
        lambda: npu + cpu,
        lambda: npu @ cpu,
        lambda: torch.nn.Linear(2, 2)(npu),
        lambda: torch.nn.Conv1d(2, 2, 1)(npu),
        lambda: torch.cat([npu, cpu]),
        lambda: F.embedding(torch.tensor([0]), npu),
    ):
        _raises(RuntimeError, mixed, "Expected all tensors to be on the same device")


def numpy_needs_a_cpu_tensor():
    _raises(TypeError, lambda: torch.ones(2, device="npu").numpy(), "npu")


def printing_shows_values_and_device():
    assert repr(torch.ones(2, device="npu")) == "tensor([1., 1.], device='npu:0')"


def deepcopy_copies_the_memory():
    layer = torch.nn.Linear(2, 2).to("npu")
    other = copy.deepcopy(layer)
    assert other.weight.is_npu
    assert other.weight.data_ptr() != layer.weight.data_ptr()


def float64_becomes_float32_on_npu_but_arrives_as_float64():
    assert torch.ones(2, device="npu").double().dtype is torch.float32
    assert torch.ones(2, device="npu").to(torch.float64).dtype is torch.float32
    assert torch.ones(2, dtype=torch.float64).npu().dtype is torch.float64
    assert torch.ones(2, device="npu").cpu().double().dtype is torch.float64


def float16_products_are_added_up_in_float32():
    row = torch.full((1, 4096), 1.0, dtype=torch.float16, device="npu")
    column = torch.full((4096, 1), 0.1, dtype=torch.float16, device="npu")
    exact = 4096 * float(torch.tensor(0.1, dtype=torch.float16))
    assert abs((row @ column).item() - exact) < 0.25  # half a unit in the last place of float16 there


def waits_of_the_host_are_counted_by_reason():
    x = torch.tensor([0.0, 1.0], device="npu")
    host = torch.empty(2)
    for reason, wait in {
        "item": x[0].item,
        "d2h": x.cpu,
        "aten::nonzero": x.nonzero,
        "synchronize": torch.npu.synchronize,
        "aten::masked_select": lambda: x.masked_select(x > 0),
        "aten::equal": lambda: torch.equal(x, x),
    }.items():
        simnpu.reset_counts()
        wait()
        assert simnpu.sync_counts() == {reason: 1}, (reason, simnpu.sync_counts())
    simnpu.reset_counts()
    if x[1] > 0 and float(x[1]) == 1.0:
        x.tolist()
    x[x > 0]
    x[x > 0] = 1
    assert simnpu.sync_counts() == {"item": 2, "d2h": 1, "aten::nonzero": 2}, simnpu.sync_counts()
    assert simnpu.sync_count() == 5
    simnpu.reset_counts()
    host.copy_(x, non_blocking=True)
    torch.tensor([1.0]).to("npu", non_blocking=True)
    x.sum().backward if False else x * 2
    assert simnpu.sync_count() == 0


def waits_warn_or_raise_where_asked_to():
    x = torch.ones(1, device="npu")
    torch.npu.set_sync_debug_mode("error")
    try:
        _raises(RuntimeError, x.item, "synchronizing")
    finally:
        torch.npu.set_sync_debug_mode("default")
    assert torch.npu.get_sync_debug_mode() == 0
    _raises(ValueError, lambda: torch.npu.set_sync_debug_mode("loud"))


def operators_are_counted():
    simnpu.reset_counts()
    x = torch.ones(2, 2, device="npu")
    x @ x
    assert simnpu.op_counts()["aten::mm"] == 1


def a_blocked_operator_raises_and_works_again_afterwards():
    x = torch.ones(3, device="npu")
    with simnpu.blocked("sort", "aten::add"):
        _raises(NotImplementedError, lambda: x.sort(), "aten::sort", "npu")
        _raises(NotImplementedError, lambda: x + 1, "aten::add")
    x.sort()
    assert (x + 1).tolist() == [2, 2, 2]
    for name, layer in {"convolution": torch.nn.Conv1d(1, 1, 1), "linear": torch.nn.Linear(3, 3)}.items():
        layer.npu()(torch.ones(1, 1, 3).npu())
        with simnpu.blocked(name):
            _raises(NotImplementedError, lambda layer=layer: layer(torch.ones(1, 1, 3).npu()), name)
            layer.cpu()(torch.ones(1, 1, 3))
        layer.npu()(torch.ones(1, 1, 3).npu())
    _raises(ValueError, lambda: simnpu.blocked("no_such_operator").__enter__())
    _raises(ValueError, lambda: simnpu.blocked("add.Tensor").__enter__())


def a_dispatch_mode_sees_the_operators():
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Mode():
        torch.nn.Linear(4, 4).to("npu")(torch.randn(2, 4, device="npu")).sum().backward()
    assert "aten.addmm.default" in seen


def function_transforms_work():
    x = torch.ones(3, 2, device="npu")
    assert torch.func.grad(lambda w: (w**2).sum())(x).tolist() == [[2, 2]] * 3
    assert torch.func.vmap(lambda row: row * 2)(x).is_npu


def not_simulated_sparse_tensors():
    _raises(NotImplementedError, lambda: torch.eye(3).to_sparse().to("npu"), "npu")


def not_simulated_an_out_tensor_of_the_wrong_size_above_one_element():
    one = torch.ones(3, device="npu")
    _raises(RuntimeError, lambda: torch.add(one, one, out=torch.ones(2, device="npu")))
