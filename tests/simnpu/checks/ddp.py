"""Two processes: DistributedDataParallel over hccl, with autocast, the scaler and clipping. For `torchrun`."""

import os

import torch
import torch.distributed as dist
from torch import nn


def main():
    rank = int(os.environ["LOCAL_RANK"])
    assert torch.npu.device_count() == 2
    torch.npu.set_device(rank)
    dist.init_process_group("hccl")
    assert dist.get_backend() == "hccl"
    assert dist.is_hccl_available()
    collectives(rank)
    same_weights_after_training(rank)
    every_rank_skips_when_one_overflows(rank)
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} done")


def collectives(rank):
    x = torch.full((2,), rank + 1.0, device="npu")
    dist.all_reduce(x)
    assert x.tolist() == [3, 3]
    x = torch.full((2,), float(rank), device="npu")
    dist.broadcast(x, src=1)
    assert x.tolist() == [1, 1]
    parts = [torch.zeros(1, device="npu") for _ in range(2)]
    dist.all_gather(parts, torch.full((1,), float(rank), device="npu"))
    assert [part.item() for part in parts] == [0, 1]
    whole = torch.zeros(2, device="npu")
    dist.all_gather_into_tensor(whole, torch.full((1,), float(rank), device="npu"))
    assert whole.tolist() == [0, 1]
    part = torch.zeros(1, device="npu")
    dist.reduce_scatter_tensor(part, torch.tensor([1.0, 2.0], device="npu"))
    assert part.item() == 2 * (rank + 1)
    if rank == 0:
        dist.send(torch.ones(1, device="npu"), dst=1)
    else:
        received = torch.zeros(1, device="npu")
        dist.recv(received, src=0)
        assert received.item() == 1
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": 0}, {"rank": 1}]
    work = dist.all_reduce(torch.ones(1, device="npu"), async_op=True)
    work.wait()
    assert work.is_completed()


def trained(rank, overflow_on=None):
    torch.manual_seed(0)
    device = torch.device("npu", rank)
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4).to(device), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("npu", init_scale=1024.0)
    for step in range(3):
        optimizer.zero_grad()
        x = torch.full((2, 4), float(rank + step), device=device)
        if step == 1 and rank == overflow_on:
            x[0, 0] = float("inf")
        with torch.autocast("npu", dtype=torch.float16):
            out = model(x)
        assert out.dtype is torch.float16
        scaler.scale(out.float().pow(2).mean()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    both = [torch.zeros_like(weights) for _ in range(2)]
    dist.all_gather(both, weights)
    assert torch.equal(both[0], both[1])
    assert weights.isfinite().all()
    return scaler.get_scale()


def same_weights_after_training(rank):
    assert trained(rank) == 1024


def every_rank_skips_when_one_overflows(rank):
    assert trained(rank, overflow_on=1) == 512


if __name__ == "__main__":
    main()
