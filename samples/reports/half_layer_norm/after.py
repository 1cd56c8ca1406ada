"""An encoder of sensor readings near 2000: parameters and readings in float32, layers in float16 by autocast."""

import argparse

import torch
from torch import nn

DEVICE = torch.accelerator.current_accelerator() or torch.device("cpu")


class Encoder(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.feed = nn.Linear(size, size)

    def forward(self, x):
        scaled = self.norm(x)
        return scaled, self.feed(scaled)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--float32", action="store_true", help="train in float32")
    amp = not parser.parse_args(arguments).float32
    torch.manual_seed(0)
    model = Encoder().to(DEVICE)
    readings = 2000.25 + 0.2 * torch.rand(8, 64, device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(DEVICE.type, enabled=amp)
    with torch.autocast(DEVICE.type, dtype=torch.float16, enabled=amp):
        scaled, features = model(readings)
        loss = features.float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    spread = scaled.float().std().item()
    print(f"spread of the normalized readings: {spread:.3f}")
    return spread


if __name__ == "__main__":
    main()
