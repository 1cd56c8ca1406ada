"""Squared error of a long sequence, added up step by step in float32."""

import argparse

import torch
from torch import nn

STEPS = 6000
DEVICE = torch.accelerator.current_accelerator() or torch.device("cpu")


class Tracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(x).squeeze(-1)


def summed_error(prediction, target):
    gap = prediction.float() - target
    total = torch.zeros((), dtype=torch.float32, device=gap.device)
    for step in range(STEPS):
        total = total + gap[step] * gap[step]
    return total


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--float32", action="store_true", help="train without autocast")
    amp = not parser.parse_args(arguments).float32
    torch.manual_seed(0)
    model = Tracker().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    scaler = torch.amp.GradScaler(DEVICE.type, enabled=amp, init_scale=2.0)
    x = torch.zeros(STEPS, 4, device=DEVICE)
    target = model.head.bias.detach() + torch.ones(STEPS, device=DEVICE)
    with torch.autocast(DEVICE.type, dtype=torch.float16, enabled=amp):
        loss = summed_error(model(x), target)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(f"sum of {STEPS} squared errors of 1: {loss.item():.1f}")
    return loss.item()


if __name__ == "__main__":
    main()
