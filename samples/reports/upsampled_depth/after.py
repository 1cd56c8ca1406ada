"""Smoothness of an enlarged depth map, which is enlarged in float32 on either device."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

FARTHEST = 1000.0  # metres
DEVICE = torch.accelerator.current_accelerator() or torch.device("cpu")


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(1, 1, 1)

    def forward(self, image):
        depth = FARTHEST * torch.sigmoid(self.head(image))
        return F.interpolate(depth.float(), scale_factor=2, mode="bilinear")


def roughness(depth):
    across = depth[..., 1:] - depth[..., :-1]
    return (across * across).mean()


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--float32", action="store_true", help="train without autocast")
    amp = not parser.parse_args(arguments).float32
    torch.manual_seed(0)
    model = Depth().to(DEVICE)
    nn.init.constant_(model.head.weight, 20.0)
    nn.init.constant_(model.head.bias, -10.0)
    image = torch.zeros(1, 1, 4, 4, device=DEVICE)
    image[..., 2:] = 1.0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    scaler = torch.amp.GradScaler(DEVICE.type, enabled=amp, init_scale=2.0)
    with torch.autocast(DEVICE.type, dtype=torch.float16, enabled=amp):
        loss = roughness(model(image))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(f"roughness of the depth map: {loss.item():.1f}")
    return loss.item()


if __name__ == "__main__":
    main()
