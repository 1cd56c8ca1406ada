"""What the scenario has to show in every editor."""

from __future__ import annotations

from .conftest import SAMPLE

CLIP = "        nn.utils.clip_grad_norm_"


def is_as_it_should_be(seen):
    """Check what an editor showed, and what became of the sample."""
    assert "problem" not in seen, seen["problem"]
    assert "clip-before-unscale" in seen["hover"]
    assert "line 17: the loss is scaled here by scaler" in seen["hover"]

    sample = (SAMPLE / "train.py").read_text()
    assert seen["before"] == sample
    assert "Ignore AMP201 here, with a reason" in seen["offered"]
    assert seen["after_fix"] == sample.replace(CLIP, f"        scaler.unscale_(optimizer)\n{CLIP}")
    assert seen["after_undo"] == sample
    assert "torch.cuda.amp" not in seen["after_fix_all"]
    assert "unscale_" not in seen["after_fix_all"]  # a repair changes numbers: not unasked
    assert seen["after_second_undo"] == sample
