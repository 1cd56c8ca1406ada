"""Trains a small model in mixed precision; has what amplint finds."""

import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast


def train(images: torch.Tensor, labels: torch.Tensor) -> None:
    model = nn.Linear(784, 10).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = GradScaler()
    for _ in range(100):
        optimizer.zero_grad()
        with autocast():
            logits = model(images)
            loss = nn.functional.cross_entropy(logits, labels)
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
