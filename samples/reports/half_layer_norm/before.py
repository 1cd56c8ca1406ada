"""An encoder of sensor readings near 2000 that was made half as a whole, its LayerNorm with it."""

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


def main(arguments=()):
    torch.manual_seed(0)
    model = Encoder().to(DEVICE).half()
    readings = (2000.25 + 0.2 * torch.rand(8, 64, device=DEVICE)).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaled, features = model(readings)
    loss = features.float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    spread = scaled.float().std().item()
    print(f"spread of the normalized readings: {spread:.3f}")
    return spread


if __name__ == "__main__":
    main()
