"""Trains a small CNN to tell striped, dotted and shaded synthetic images apart."""

import argparse

import torch
from torch import nn
from torch.cuda.amp import autocast
from torch.utils.data import DataLoader, TensorDataset
from trainer import Trainer, TrainerConfig

NUM_CLASSES = 4


class SmallCNN(nn.Module):
    """Two convolutional stages and a linear head."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
        )
        self.head = nn.Linear(2 * width, NUM_CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images).flatten(1))


def make_patterns(count: int, size: int, generator: torch.Generator) -> TensorDataset:
    """Noisy images of vertical stripes, horizontal stripes, a checkerboard and a gradient."""
    rows = torch.arange(size).view(-1, 1).expand(size, size)
    columns = rows.t()
    patterns = torch.stack(
        [
            (columns % 4 < 2).float(),
            (rows % 4 < 2).float(),
            ((rows + columns) % 2).float(),
            columns.float() / size,
        ]
    )
    labels = torch.randint(NUM_CLASSES, (count,), generator=generator)
    noise = torch.randn(count, size, size, generator=generator)
    images = patterns[labels] + 0.5 * noise
    return TensorDataset(images.unsqueeze(1), labels)


@torch.no_grad()
@autocast()
def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> tuple[float, float]:
    """Mean loss and accuracy over `loader`."""
    model.eval()
    criterion = nn.CrossEntropyLoss(reduction="sum")
    total_loss, correct, seen = 0.0, 0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        logits = model(images)
        total_loss += criterion(logits, labels).item()
        correct += (logits.argmax(dim=1) == labels).sum().item()
        seen += labels.numel()
    return total_loss / seen, correct / seen


def parse_args(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--max-norm", type=float, default=1.0, help="0 switches gradient clipping off")
    parser.add_argument("--no-amp", dest="amp", action="store_false", help="train in float32")
    parser.add_argument("--checkpoint", help="write the state of the run here after every epoch")
    parser.add_argument("--resume", help="go on from this checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv=None) -> list[float]:
    args = parse_args(argv)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_set = make_patterns(args.samples, args.image_size, generator)
    val_set = make_patterns(args.samples // 4, args.image_size, generator)
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True, generator=generator)
    val_loader = DataLoader(val_set, args.batch_size)

    config = TrainerConfig(lr=args.lr, max_norm=args.max_norm, epochs=args.epochs, amp=args.amp)
    trainer = Trainer(SmallCNN(), config, device)
    if args.resume:
        trainer.load_state_dict(torch.load(args.resume, map_location=device))

    losses = []
    while trainer.epoch < args.epochs:
        epoch_losses = trainer.train_epoch(train_loader)
        for step, loss in enumerate(epoch_losses):
            print(f"epoch {trainer.epoch} step {step} loss {loss:.4f}")
        val_loss, accuracy = evaluate(trainer.model, val_loader, device)
        print(f"epoch {trainer.epoch} validation loss {val_loss:.4f} accuracy {accuracy:.3f}")
        losses += [*epoch_losses, val_loss]
        if args.checkpoint:
            torch.save(trainer.state_dict(), args.checkpoint)
    return losses


if __name__ == "__main__":
    main()
