"""Runs `main` of scripts one after another and tells what AMP did: `watch.py NAME=SCRIPT,arg,... NAME=...`.

The last line of the output is JSON: name -> losses, dtypes of the layers' outputs inside and outside autocast,
devices of the parameters, scales of the gradient scaler after each update, skipped and taken steps.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook


class Watch:
    def __init__(self) -> None:
        self.seen: dict[str, list] = {"inside": [], "outside": [], "devices": [], "scales": [], "steps": []}
        nn.modules.module.register_module_forward_hook(self._layer)
        scaler = torch.amp.GradScaler
        update = scaler.update

        def updated(this, *args, **kwargs):
            update(this, *args, **kwargs)
            self.seen["scales"].append(this.get_scale() if this.is_enabled() else None)

        scaler.update = updated
        register_optimizer_step_post_hook(lambda *_: self.seen["steps"].append(1))

    def _layer(self, module, inputs, output) -> None:
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            self._add("devices", output.device.type)
            autocast = torch.is_autocast_enabled("npu") and output.device.type == "npu"
            self._add("inside" if autocast else "outside", str(output.dtype).removeprefix("torch."))

    def _add(self, what, value) -> None:
        if value not in self.seen[what]:
            self.seen[what].append(value)


def run(script: Path, arguments: list[str]) -> dict:
    watch.seen = {name: [] for name in watch.seen}
    known = set(sys.modules)
    sys.path.insert(0, str(script.parent))
    try:
        losses = importlib.import_module(script.stem).main(arguments)
    finally:
        sys.path.remove(str(script.parent))
        for name in set(sys.modules) - known:
            if str(script.parent) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
        importlib.invalidate_caches()
    return {"losses": losses, **watch.seen}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    watch = Watch()
    outcome = {}
    for each in sys.argv[1:]:
        name, _, command = each.partition("=")
        script, *arguments = command.split(",")
        outcome[name] = run(Path(script), arguments)
    print("\n" + json.dumps(outcome))
