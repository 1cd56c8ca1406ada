"""Trains a small GAN on points from a ring of Gaussians, in mixed precision."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.cuda import amp


class BiasedLeakyReLU(torch.autograd.Function):
    """`leaky_relu(x + bias) * sqrt(2)`; keeps one boolean mask for the backward pass instead of the input."""

    @staticmethod
    @amp.custom_fwd(cast_inputs=torch.float32)
    def forward(ctx, x, bias, slope):
        shifted = x + bias
        positive = shifted > 0
        ctx.save_for_backward(positive)
        ctx.slope = slope
        return torch.where(positive, shifted, shifted * slope) * math.sqrt(2.0)

    @staticmethod
    @amp.custom_bwd
    def backward(ctx, grad_output):
        (positive,) = ctx.saved_tensors
        grad = torch.where(positive, grad_output, grad_output * ctx.slope) * math.sqrt(2.0)
        return grad, grad.sum(dim=0), None


class BiasedLinear(nn.Module):
    """A linear layer with the activation above; the bias lives in the activation."""

    def __init__(self, in_features: int, out_features: int, slope: float = 0.2):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_features))
        self.slope = slope

    def forward(self, x):
        return BiasedLeakyReLU.apply(self.linear(x), self.bias, self.slope)


class Generator(nn.Module):
    def __init__(self, latent: int, hidden: int):
        super().__init__()
        self.layers = nn.Sequential(
            BiasedLinear(latent, hidden), BiasedLinear(hidden, hidden), nn.Linear(hidden, 2)
        )

    def forward(self, z):
        return self.layers(z)


class Discriminator(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.layers = nn.Sequential(
            BiasedLinear(2, hidden), BiasedLinear(hidden, hidden), nn.Linear(hidden, 1)
        )

    def forward(self, points):
        return self.layers(points).squeeze(1)


def sample_ring(count: int, modes: int = 8, radius: float = 2.0) -> torch.Tensor:
    """`count` points around `modes` centres on a circle, shape [count, 2]."""
    angle = 2 * math.pi * torch.randint(modes, (count,)) / modes
    centres = radius * torch.stack([angle.cos(), angle.sin()], dim=1)
    return centres + 0.05 * torch.randn(count, 2)


def adversarial_loss(logits: torch.Tensor, real: bool) -> torch.Tensor:
    target = torch.ones_like(logits) if real else torch.zeros_like(logits)
    return F.binary_cross_entropy_with_logits(logits, target)


def parse_args(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--latent", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--clip-d", type=float, default=0.5, help="gradient norm limit of the discriminator")
    parser.add_argument("--clip-g", type=float, default=1.0, help="gradient norm limit of the generator")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv=None) -> list[float]:
    args = parse_args(argv)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    generator = Generator(args.latent, args.hidden).to(device)
    discriminator = Discriminator(args.hidden).to(device)
    opt_g = torch.optim.Adam(generator.parameters(), lr=args.lr, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(discriminator.parameters(), lr=args.lr, betas=(0.5, 0.999))
    scaler = amp.GradScaler()

    losses = []
    for step in range(args.steps):
        real = sample_ring(args.batch_size).to(device)
        z = torch.randn(args.batch_size, args.latent).to(device)

        opt_d.zero_grad(set_to_none=True)
        with amp.autocast() and torch.no_grad():
            fake = generator(z)
        with amp.autocast():
            loss_d = adversarial_loss(discriminator(real), True) + adversarial_loss(
                discriminator(fake), False
            )
        scaler.scale(loss_d).backward()
        nn.utils.clip_grad_norm_(discriminator.parameters(), args.clip_d)
        scaler.step(opt_d)

        opt_g.zero_grad(set_to_none=True)
        with amp.autocast():
            loss_g = adversarial_loss(discriminator(generator(z)), True)
        scaler.scale(loss_g).backward()
        scaler.unscale_(opt_g)
        nn.utils.clip_grad_norm_(generator.parameters(), args.clip_g)
        scaler.step(opt_g)

        scaler.update()
        losses += [loss_d.item(), loss_g.item()]
        print(f"step {step} loss_d {losses[-2]:.4f} loss_g {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
