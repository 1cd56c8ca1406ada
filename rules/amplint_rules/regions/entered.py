"""What the rules about autocast regions share: how a finding says where the region is."""

from __future__ import annotations

import libcst as cst

from amplint.flow import conditions as c
from amplint.flow.classes import Classes
from amplint.flow.precision.notes import Notes
from amplint.flow.spans import Event
from amplint.rule import Context
from amplint_rules.precision import evidence

#: Bases of autograd functions.
FUNCTIONS = ("torch.autograd.Function", "torch.autograd.function.Function")
#: Methods of a model that compute with its weights.
COMPUTES = ("forward", "generate", "encode", "decode", "encode_text", "encode_image", "get_text_features")


def seen(ctx: Context) -> Notes:
    """What was seen of the file; regions for NPU count as regions for CUDA there."""
    return evidence.notes(ctx)


def entered(ctx: Context, event: Event) -> list[tuple[cst.CSTNode, str]]:
    """The region that counts where something happens, and the calls that lead there, for a trace."""
    nodes = ctx.model.tree.nodes
    calls = [(nodes[call.site], "which leads here") for call in event.calls]
    return [(nodes[event.innermost.site], "the autocast region"), *calls]


def is_function(classes: Classes, klass: str | None) -> bool:
    """Whether a class is an autograd function."""
    return klass in classes.by_name and any(
        name in FUNCTIONS for bases in classes.foreign(klass or "") for name in bases
    )


def written(path: c.Path) -> str:
    """A path as it is written in the code."""
    return ".".join([path[0].rpartition(":")[2].rpartition(".")[2], *path[1:]])
