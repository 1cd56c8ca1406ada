"""A small trainer: one optimizer, mixed precision, gradient clipping, resumable state."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast


@dataclass
class TrainerConfig:
    """Settings of one run; `max_norm` 0 switches gradient clipping off."""

    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    max_norm: float = 1.0
    label_smoothing: float = 0.1
    epochs: int = 2
    amp: bool = True


class Trainer:
    """Owns the optimizer, its schedule and the loss scaler of one model."""

    def __init__(self, model: nn.Module, config: TrainerConfig, device: torch.device):
        self.model = model.to(device)
        self.config = config
        self.device = device
        self.criterion = nn.CrossEntropyLoss(label_smoothing=config.label_smoothing)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=config.lr,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            nesterov=True,
        )
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=config.epochs)
        self.scaler = GradScaler(enabled=config.amp)
        self.epoch = 0

    def train_epoch(self, loader) -> list[float]:
        """Trains on every batch of `loader` once and returns the loss of each step."""
        self.model.train()
        losses = []
        for images, labels in loader:
            images = images.to(self.device, non_blocking=True)
            labels = labels.to(self.device, non_blocking=True)
            losses.append(self.train_step(images, labels))
        self.scheduler.step()
        self.epoch += 1
        return losses

    def train_step(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """One optimizer step on one batch; returns the loss before the step."""
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(enabled=self.config.amp):
            logits = self.model(images)
            loss = self.criterion(logits, labels)

        self.scaler.scale(loss).backward()
        self._clip_gradients()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    def _clip_gradients(self) -> None:
        if self.config.max_norm > 0:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_norm)

    def state_dict(self) -> dict:
        """Everything that a resumed run needs to go on as if it had never stopped."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "epoch": self.epoch,
        }

    def load_state_dict(self, state: dict) -> None:
        """Restores what `state_dict` returned."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.scaler.load_state_dict(state["scaler"])
        self.epoch = state["epoch"]
