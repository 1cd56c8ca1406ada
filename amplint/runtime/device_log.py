"""Single values that stay on their device until many are copied to the host at once.

Reading one value of an accelerator makes the host wait for it. Here a value is copied into a buffer on its
own device, in order with the work that computes it; one copy per device brings all of them over.
"""

from typing import Any, Dict, List, Tuple

import torch

#: Values per block of a buffer; a block is made when the last one is full.
_BLOCK = 256

#: Values that wait at most, per device; those of a run that never steps an optimizer would pile up.
MOST = 1 << 16

#: What a value is, for whoever put it there.
Tag = Tuple[Any, ...]


class _Buffer:
    """Blocks of float32 on one device, and a view of every element (indexing costs more than the copy)."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.blocks: List[torch.Tensor] = []
        self.slots: List[torch.Tensor] = []
        self.tags: List[Tag] = []

    def put(self, value: torch.Tensor, tag: Tag) -> None:
        if len(self.tags) == len(self.slots):
            block = torch.zeros(_BLOCK, dtype=torch.float32, device=self.device)
            self.blocks.append(block)
            self.slots.extend(block[index] for index in range(_BLOCK))
        self.slots[len(self.tags)].copy_(value.reshape(()) if value.dim() else value, non_blocking=True)
        self.tags.append(tag)

    def drain(self) -> List[Tuple[Tag, float]]:
        used = self.blocks[: -(-len(self.tags) // _BLOCK)]
        values = (used[0] if len(used) == 1 else torch.cat(used)).tolist()
        found = list(zip(self.tags, values[: len(self.tags)], strict=True))
        self.tags = []
        return found


class DeviceLog:
    """Values by tag; `put` makes no device wait, `drain` waits once per device."""

    def __init__(self) -> None:
        self._buffers: Dict[torch.device, _Buffer] = {}

    def put(self, value: torch.Tensor, tag: Tag) -> None:
        """Note a tensor of one element. Others, and those that are no plain tensors, are left out."""
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.numel() != 1 or value.is_meta:
            return
        if value.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return
        buffer = self._buffers.get(value.device)
        if buffer is None:
            buffer = self._buffers[value.device] = _Buffer(value.device)
        if len(buffer.tags) >= MOST:
            return
        buffer.put(value.detach() if value.requires_grad else value, tag)

    def drain(self) -> List[Tuple[Tag, float]]:
        """Everything noted since the last time, by device and in order."""
        found: List[Tuple[Tag, float]] = []
        for buffer in self._buffers.values():
            if buffer.tags:
                found.extend(buffer.drain())
        return found
