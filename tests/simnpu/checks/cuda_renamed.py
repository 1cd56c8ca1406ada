"""transfer_to_npu: what it renames, and what it leaves alone as the real one does."""

import contextlib
import io
import math
import os
import sys
import warnings
from pathlib import Path

import torch
from torch import nn


def _raises(kind, function):
    try:
        function()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def cuda_is_available_and_tensors_go_to_npu():
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    for x in (
        torch.ones(2).cuda(),
        torch.ones(2).to("cuda"),
        torch.ones(2).to("cuda:0"),
        torch.ones(2).to(torch.device("cuda")),
        torch.ones(2).to(0),
        torch.ones(2, device="cuda"),
        torch.tensor([1.0, 1.0], device=torch.device("cuda", 0)),
        torch.ones(1).new_ones(2, device="cuda"),
        torch.zeros_like(torch.ones(2), device="cuda") + 1,
    ):
        assert x.device == torch.device("npu", 0)
        assert x.is_cuda
        assert x.tolist() == [1, 1]
    assert nn.Linear(2, 2).cuda().weight.is_npu
    assert nn.Linear(2, 2).to("cuda").weight.is_npu


def the_device_object_keeps_its_name():
    assert torch.device("cuda").type == "cuda"
    assert torch.ones(2).to("cuda").device.type != "cuda"


def a_default_device_and_a_map_location_of_cuda_mean_npu():
    with torch.device("cuda"):
        assert torch.zeros(2).is_npu
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    for location in ("cuda", "cuda:0", {"cpu": "cuda:0"}, torch.device("cuda")):
        file.seek(0)
        assert torch.load(file, map_location=location).is_npu


def mixed_precision_of_torch_cuda_runs_on_npu():
    from torch.cuda.amp import GradScaler, autocast

    model = nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = GradScaler(init_scale=16.0)
    with autocast():
        out = model(torch.ones(2, 4).cuda())
    assert out.dtype is torch.float16
    scaler.scale(out.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert model(torch.ones(2, 4).cuda()).dtype is torch.bfloat16
    with torch.autocast(device_type="cuda"):
        assert model(torch.ones(2, 4).cuda()).dtype is torch.float16


def the_scaler_of_torch_amp_stays_enabled_for_cuda():
    scaler = torch.amp.GradScaler()
    assert scaler.is_enabled()
    assert scaler._device == "cuda"


def functions_of_torch_cuda_ask_the_npu():
    torch.cuda.set_device(0)
    torch.cuda.set_device("cuda:0")
    torch.cuda.synchronize()
    torch.cuda.manual_seed_all(1)
    assert torch.cuda.get_device_name("cuda:0") == "Ascend910B1"
    assert torch.cuda.get_device_capability() is None
    assert (torch.version.cuda is None) == (not torch.backends.cuda.is_built())
    assert torch.cuda.memory_allocated() == 0
    with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
    assert isinstance(torch.ones(1).cuda(), torch.cuda.FloatTensor)
    assert torch.Generator(device="cuda").device.type == "npu"


def what_the_real_one_leaves_alone_still_fails():
    with warnings.catch_warnings():
        if not torch.backends.cuda.is_built():
            _raises(RuntimeError, lambda: torch.cuda.nvtx.range_push("x"))
        _raises(
            (RuntimeError, TypeError, ValueError), lambda: torch.ones(1).npu().type("torch.cuda.FloatTensor")
        )


def the_backend_nccl_means_hccl():
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    store = dist.HashStore()
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    assert dist.get_backend() == "hccl"
    x = torch.ones(2).cuda()
    dist.all_reduce(x)
    assert x.tolist() == [1, 1]
    dist.destroy_process_group()


def scripting_returns_what_it_was_given():
    model = nn.Linear(1, 1)
    assert torch.jit.script(model) is model


def a_sample_trains_in_mixed_precision_as_it_is():
    sample = Path(__file__).parents[3] / "samples" / "classification"
    sys.path.insert(0, str(sample))
    try:
        import train

        dtypes = set()
        hook = nn.modules.module.register_module_forward_hook(lambda *call: dtypes.add(call[2].dtype))
        with contextlib.redirect_stdout(io.StringIO()):
            losses = train.main(["--epochs", "1", "--samples", "64"])
        hook.remove()
    finally:
        sys.path.remove(str(sample))
    assert torch.float16 in dtypes
    assert all(math.isfinite(loss) for loss in losses)
