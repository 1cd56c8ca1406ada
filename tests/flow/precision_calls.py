"""How the operators of `facts/tensor_ops.tsv` are called: arguments with placeholders, and the forms that follow.

Placeholders: {m} a matrix (4, 4), {v} a vector (4,), {s} a tensor without dimensions, {b} (2, 4, 4), {i} (2, 4, 4, 4),
{j} (2, 4, 4, 4, 4), {l} four indices below 4, {L} a matrix of them, {k} a mask (4, 4), {d} a dtype, {c} a Python
number. What follows a colon numbers the operands: {m:2} is another matrix, which may have another dtype.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as functional
from torch import Tensor, linalg, special

from amplint.flow.precision.operators import operators

_REDUCED = (
    "{m}",
    "{m}, dim=1",
    "{m}, 1",
    "{m}, 1, True",
    "{m}, dim=-1, keepdim=True",
    "{s}",
    "{v}, 0",
    "{b}, (0, 1)",
)
_TWO = (
    "{m}, {m:2}",
    "{m}, {v:2}",
    "{m}, {s:2}",
    "{s}, {m:2}",
    "{s}, {s:2}",
    "{m}, {c}",
    "{s}, {c}",
    "{m}, other={m:2}",
)
_ONE = ("{m}", "{s}", "{b}", "input={m}")
_LOSS = ("{m}, {m:2}", "{m}, {m:2}, reduction='none'", "{m}, {m:2}, reduction='sum'", "{s}, {s:2}")
_CLASSES = ("{m}, {l}", "{m}, {l}, reduction='none'", "{m}, {l}, reduction='sum'")
_SHAPED = ("4, 4", "(4, 4)", "4, 4, dtype={d}", "4", "(2, 4, 4), dtype={d}", "()", "size=(4, 4)")

#: Operator -> the arguments that it is called with. The rest take one tensor, or two where they promote.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("amax", "amin", "mean", "sum", "nansum", "nanmean", "std", "var", "all", "any", "argmax", "argmin"), _REDUCED),
    **dict.fromkeys(("mean", "sum", "nansum", "nanmean"), (*_REDUCED, "{m}, dtype={d}", "{m}, 1, dtype={d}", "{m}, dim=(0, 1)")),
    "prod": ("{m}", "{m}, 1", "{m}, dim=1, keepdim=True", "{s}", "{m}, dtype={d}", "{m}, 1, dtype={d}"),
    "std": (*_REDUCED, "{m}, False", "{m}, unbiased=False", "{m}, correction=0"),
    "var": (*_REDUCED, "{m}, False", "{m}, unbiased=False", "{m}, correction=0"),
    "count_nonzero": ("{m}", "{m}, dim=1", "{m}, 1"),
    "norm": ("{m}", "{m}, 2", "{m}, p=2, dim=1", "{m}, 2, 1", "{m}, 2, 1, True", "{m}, dim=-1, keepdim=True", "{v}", "{m}, p='fro'", "{m}, dtype={d}", "{s}"),
    "linalg_vector_norm": ("{m}", "{m}, 2", "{m}, dim=1", "{v}", "{m}, 2, dim=1, keepdim=True", "{m}, dtype={d}"),
    "linalg_matrix_norm": ("{m}", "{b}", "{m}, 'fro'", "{m}, 1"),
    "nuclear_norm": ("{m}", "{m}, keepdim=True"),
    "frobenius_norm": ("{m}, dim=1", "{m}, dim=(0, 1)"),
    "logsumexp": ("{m}, 1", "{m}, dim=1", "{m}, dim=-1, keepdim=True", "{b}, (0, 1)", "{s}, 0", "{v}, 0"),
    "logcumsumexp": ("{m}, 1", "{m}, dim=1", "{v}, 0"),
    "quantile": ("{m}, 0.5", "{m}, 0.5, dim=1", "{m}, 0.5, dim=1, keepdim=True", "{m}, q={s:2}", "{m}, {v:2}.abs().clamp(max=1), dim=1"),
    "nanquantile": ("{m}, 0.5", "{m}, 0.5, dim=1", "{m}, 0.5, dim=1, keepdim=True"),
    "trace": ("{m}",),
    **dict.fromkeys(("max", "min"), ("{m}", "{m}, 1", "{m}, dim=1", "{m}, dim=-1, keepdim=True", "{m}, {m:2}", "{s}", "{m}, other={m:2}", "{v}, {s:2}")),
    **dict.fromkeys(("median", "nanmedian"), ("{m}", "{m}, 1", "{m}, dim=1, keepdim=True", "{s}")),
    "mode": ("{m}", "{m}, 1", "{v}"),
    "aminmax": ("{m}", "{m}, dim=1", "{m}, dim=1, keepdim=True"),
    "kthvalue": ("{m}, 1", "{m}, 2, 1", "{m}, k=2, dim=1, keepdim=True", "{v}, 1"),
    **dict.fromkeys(("cummax", "cummin"), ("{m}, 1", "{m}, dim=0", "{v}, 0")),
    "sort": ("{m}", "{m}, 1", "{m}, dim=1, descending=True", "{v}"),
    "argsort": ("{m}", "{m}, dim=1", "{v}"),
    "topk": ("{m}, 2", "{m}, k=2, dim=0", "{v}, 2"),
    "unique": ("{m}", "{v}", "{m}, return_inverse=True", "{m}, return_counts=True", "{m}, True, True"),
    **dict.fromkeys(("cumsum", "cumprod"), ("{m}, 1", "{m}, dim=1", "{m}, 1, dtype={d}", "{v}, 0", "{s}, 0")),
    **dict.fromkeys(("softmax", "log_softmax"), ("{m}, 1", "{m}, dim=-1", "{m}, dim=-1, dtype={d}", "{m}, -1, dtype={d}", "{s}, 0", "{i}, dim=1")),
    "softmin": ("{m}, dim=1", "{m}, dim=1, dtype={d}"),
    "gumbel_softmax": ("{m}", "{m}, tau=0.5, dim=-1", "{m}, hard=True"),
    "expand_as": ("{v}, {m:2}", "{s}, {m:2}"),
    "expand": ("{v}, 4, 4", "{s}, 4", "{v}, (4, 4)", "{m}, -1, -1"),
    "broadcast_to": ("{v}, (4, 4)", "{s}, (4,)"),
    "repeat": ("{v}, 2", "{m}, 1, 2"),
    "tile": ("{v}, (2,)", "{m}, (1, 2)"),
    "repeat_interleave": ("{m}, 2", "{m}, 2, dim=1"),
    **dict.fromkeys(("reshape", "view"), ("{m}, 16", "{m}, -1", "{m}, (2, 8)", "{m}, 2, 8", "{v}, 2, 2", "{s}, 1", "{m}[:1, :1], ()")),
    "reshape_as": ("{m}, {m:2}",),
    "view_as": ("{m}, {m:2}",),
    **dict.fromkeys(("flatten", "ravel"), ("{m}", "{s}", "{b}")),
    **dict.fromkeys(("squeeze",), ("{m}", "{m}[:1, :1]", "{v}[:1]", "{m}[:1], 0", "{s}", "{m}[:, :1], dim=-1")),
    "unsqueeze": ("{m}, 0", "{s}, 0", "{v}, -1", "{m}, dim=1"),
    **dict.fromkeys(("transpose", "swapaxes", "moveaxis", "movedim"), ("{m}, 0, 1", "{b}, 1, 2", "{m}, -2, -1")),
    "t": ("{m}", "{v}", "{s}"),
    "permute": ("{m}, (1, 0)", "{b}, (2, 0, 1)", "{m}, dims=(1, 0)"),
    "unflatten": ("{m}, 1, (2, 2)", "{v}, 0, (2, 2)"),
    "narrow": ("{m}, 0, 0, 2", "{v}, 0, 1, 2"),
    "select": ("{m}, 0, 1", "{v}, 0, 1", "{b}, 1, 0"),
    "index_select": ("{m}, 0, {l}", "{m}, dim=1, index={l}", "{v}, 0, {l}"),
    **dict.fromkeys(("gather",), ("{m}, 1, {L}", "{m}, dim=0, index={L}")),
    "take": ("{m}, {l}", "{m}, {L}"),
    "take_along_dim": ("{m}, {L}, 1", "{m}, {L}, dim=0"),
    "masked_select": ("{m}, {k}", "{m}, mask={k}"),
    "masked_fill": ("{m}, {k}, 0.0", "{m}, {k}, {c}", "{m}, mask={k}, value=1", "{m}, {k}, {s:2}", "{s}, {k}, 1.0"),
    "masked_scatter": ("{m}, {k}, {m:2}",),
    "scatter": ("{m}, 1, {L}, {m:2}", "{m}, 1, {L}, 1.0", "{m}, dim=1, index={L}, src={m:2}"),
    "scatter_add": ("{m}, 1, {L}, {m:2}", "{m}, dim=0, index={L}, src={m:2}"),
    "scatter_reduce": ("{m}, 1, {L}, {m:2}, 'sum'", "{m}, 1, {L}, {m:2}, reduce='mean'"),
    "index_add": ("{m}, 0, {l}, {m:2}", "{m}, 0, {l}, {m:2}, alpha=2"),
    "index_copy": ("{m}, 0, {l}, {m:2}",),
    "index_fill": ("{m}, 0, {l}, 1.0", "{m}, 0, {l}, {s:2}"),
    "index_put": ("{m}, ({l},), {v:2}", "{m}, ({l},), {s:2}", "{m}, ({l}, {l}), {v:2}"),
    "where": ("{k}, {m}, {m:2}", "{k}, {m}, 0.0", "{k}, {c}, {m}", "{k}, {s}, {m:2}", "{k}, {m}, {s:2}", "{k}, {c}, {c}", "{k}, input={m}, other={m:2}", "{k}, {s}, {c}"),
    **dict.fromkeys(("clamp", "clip"), ("{m}, 0", "{m}, 0.0, 1.0", "{m}, min=0", "{m}, max=1.0", "{m}, min={s:2}", "{m}, {m:2}, {m:3}", "{m}, min={m:2}", "{m}, None, 1.5", "{s}, 0.5")),
    **dict.fromkeys(("clamp_min", "clamp_max"), ("{m}, 0", "{m}, 0.5", "{m}, {m:2}", "{m}, {s:2}", "{s}, 0.5")),
    "nan_to_num": ("{m}", "{m}, 0.0", "{s}"),
    "logit": ("{m}", "{m}, 1e-6", "{m}, eps=1e-6"),
    "lerp": ("{m}, {m:2}, 0.5", "{m}, {m:2}, {m:3}", "{m}, {m:2}, {s:3}", "{m}, {m:2}, weight=0.5"),
    **dict.fromkeys(("addcmul", "addcdiv"), ("{m}, {m:2}, {m:3}", "{m}, {m:2}, {m:3}, value=0.5", "{v}, {s:2}, {v:3}", "{m}, {s:2}, {s:3}")),
    "add": (*_TWO, "{m}, {m:2}, alpha=2"),
    "sub": (*_TWO, "{m}, {m:2}, alpha=2"),
    **dict.fromkeys(("div", "divide"), (*_TWO, "{m}, {m:2}, rounding_mode='floor'", "{m}, 2, rounding_mode='trunc'")),
    "pow": ("{m}, 2", "{m}, 2.0", "{m}, 0.5", "{m}, {m:2}", "2.0, {m}", "2, {m}", "{m}, exponent=2", "{s}, {m:2}", "{m}, {s:2}", "{s}, 2", "{m}, {c}"),
    "float_power_": ("{m}, 2",),
    "square": _ONE,
    "equal": ("{m}, {m:2}",),
    "allclose": ("{m}, {m:2}",),
    "isclose": ("{m}, {m:2}",),
    "isin": ("{m}, {m:2}", "{m}, {v:2}"),
    "bernoulli": ("{m}.float().sigmoid().type_as({m})", "{m}.clone(), 0.5"),
    "renorm": ("{m}, 2, 0, 1.0",),
    "diff": ("{m}", "{v}", "{m}, dim=0"),
    **dict.fromkeys(("diag", "diag_embed"), ("{v}", "{m}")),
    "diagonal": ("{m}", "{b}, dim1=1, dim2=2"),
    **dict.fromkeys(("tril", "triu"), ("{m}", "{m}, 1")),
    **dict.fromkeys(("flip",), ("{m}, (0,)", "{m}, [1]")),
    "roll": ("{m}, 1", "{m}, 1, 0"),
    "rot90": ("{m}",),
    **dict.fromkeys(("chunk",), ("{m}, 2", "{m}, 2, dim=1", "{v}, 2")),
    "split": ("{m}, 2", "{m}, 2, dim=1", "{m}, [1, 3]"),
    "split_with_sizes": ("{m}, [1, 3]",),
    "tensor_split": ("{m}, 2", "{m}, 2, dim=1"),
    "unbind": ("{m}", "{m}, 1", "{v}"),
    "hsplit": ("{m}, 2",),
    "vsplit": ("{m}, 2",),
    "dsplit": ("{b}, 2",),
    "unfold": ("{m}, 0, 2, 1", "{i}, 2", "{i}, kernel_size=2"),
    "fold": ("{b}, (3, 2), (1, 2)", "{m:2}.reshape(1, 4, 4), (3, 3), (2, 2)"),
    **dict.fromkeys(("cat", "concat", "concatenate"), ("[{m}, {m:2}]", "({m}, {m:2}), dim=1", "({m}, {m:2}, {m:3})", "tensors=[{m}, {m:2}]", "[{v}, {v:2}], -1")),
    **dict.fromkeys(("stack", "hstack", "vstack", "dstack", "column_stack"), ("[{m}, {m:2}]", "({m}, {m:2}, {m:3})", "[{v}, {v:2}]", "[{s}, {s:2}]")),
    "block_diag": ("{m}, {m:2}", "{m}, {s:2}", "{v}"),
    "meshgrid": ("{v}, {v:2}, indexing='ij'", "[{v}, {v:2}]"),
    "broadcast_tensors": ("{m}, {v:2}", "{m}, {s:2}"),
    **dict.fromkeys(("atleast_1d", "atleast_2d"), ("{m}", "{s}", "{v}")),
    **dict.fromkeys(("matmul",), ("{m}, {m:2}", "{b}, {m:2}", "{m}, {v:2}", "{v}, {v:2}", "{v}, {m:2}", "{b}, {b:2}", "{m}, other={m:2}")),
    "mm": ("{m}, {m:2}", "{m}, mat2={m:2}"),
    "bmm": ("{b}, {b:2}",),
    "mv": ("{m}, {v:2}",),
    **dict.fromkeys(("dot", "vdot"), ("{v}, {v:2}",)),
    "inner": ("{v}, {v:2}", "{m}, {m:2}", "{m}, {v:2}", "{s}, {m:2}"),
    **dict.fromkeys(("outer", "ger"), ("{v}, {v:2}",)),
    "kron": ("{m}, {m:2}", "{v}, {v:2}", "{m}, {s:2}"),
    "cross": ("{m}[:, :3], {m:2}[:, :3]", "{m}[:, :3], {m:2}[:, :3], dim=1"),
    "linalg_cross": ("{m}[:, :3], {m:2}[:, :3]",),
    "linalg_vecdot": ("{m}, {m:2}", "{v}, {v:2}"),
    "linalg_multi_dot": ("[{m}, {m:2}]", "({m}, {m:2}, {m:3})"),
    "chain_matmul": ("{m}, {m:2}", "{m}, {m:2}, {m:3}"),
    "tensordot": ("{m}, {m:2}, 1", "{m}, {m:2}, dims=2", "{m}, {m:2}, dims=([1], [0])"),
    "einsum": ("'ij,jk->ik', {m}, {m:2}", "'ij,ij->', {m}, {m:2}", "'bij,jk->bik', {b}, {m:2}", "'i,j->ij', {v}, {v:2}", "'ij->ji', {m}", "'ij->', {m}", "'i,i', {v}, {v:2}", "'ij,j->i', [{m}, {v:2}]"),
    **dict.fromkeys(("addmm",), ("{m}, {m:2}, {m:3}", "{v}, {m:2}, {m:3}", "{m}, {m:2}, {m:3}, beta=0.5", "{s}, {m:2}, {m:3}")),
    "addmv": ("{v}, {m:2}, {v:3}",),
    "addr": ("{m}, {v:2}, {v:3}",),
    "addbmm": ("{m}, {b:2}, {b:3}",),
    "baddbmm": ("{b}, {b:2}, {b:3}", "{m}, {b:2}, {b:3}, alpha=0.5", "{s}, {b:2}, {b:3}"),
    "linear": ("{m}, {m:2}", "{m}, {m:2}, {v:3}", "{b}, weight={m:2}", "{v}, {m:2}", "{m}, {v:2}", "{m}, {m:2}, bias={v:3}"),
    "bilinear": ("{m}, {m:2}, {b:3}", "{v}, {v:2}, {b:3}"),
    "conv1d": ("{b}, {b:2}", "{b}, {b:2}, {v:3}[:2]", "{b}, weight={b:2}, padding=1"),
    "conv2d": ("{i}, {i:2}", "{i}, {i:2}, padding=1", "{i}, weight={i:2}, bias={v:3}[:2]"),
    "conv3d": ("{j}, {j:2}",),
    "conv_transpose1d": ("{b}, {b:2}.repeat(2, 1, 1)",),
    "conv_transpose2d": ("{i}, {i:2}.repeat(2, 1, 1, 1)", "{i}, weight={i:2}.repeat(2, 1, 1, 1), bias={v:3}"),
    "conv_transpose3d": ("{j}, {j:2}.repeat(2, 1, 1, 1, 1)",),
    "scaled_dot_product_attention": ("{b}, {b:2}, {b:3}", "{i}, {i:2}, {i:3}", "{i}, {i:2}, {i:3}, is_causal=True", "query={b}, key={b:2}, value={b:3}", "{b}, {b:2}, {b:3}, attn_mask={m:4}", "{b}, {b:2}, {b:3}, attn_mask={k}"),
    "cdist": ("{m}, {m:2}", "{b}, {b:2}", "{m}, {m:2}, p=1"),
    "pdist": ("{m}",),
    "dist": ("{m}, {m:2}", "{v}, {v:2}, 1"),
    "cosine_similarity": ("{m}, {m:2}", "{m}, {m:2}, dim=-1", "{v}, {v:2}, dim=0"),
    "pairwise_distance": ("{m}, {m:2}", "{v}, {v:2}", "{m}, {m:2}, keepdim=True"),
    "normalize": ("{m}", "{m}, dim=-1", "{v}, dim=0", "{m}, p=1, dim=1", "{b}, 2.0, -1"),
    "embedding": ("{l}, {m}", "{L}, weight={m}"),
    "embedding_bag": ("{L}, {m}", "{L}, weight={m}, mode='sum'"),
    "one_hot": ("{l}", "{L}, 4", "{l}, num_classes=5"),
    "bincount": ("{l}",),
    "multinomial": ("{m}.float().softmax(1), 2", "{v}.float().softmax(0), 1"),
    "bucketize": ("{m}, {v:2}.sort()[0]", "0.5, {v}.sort()[0]", "{s}, {v:2}.sort().values"),
    "searchsorted": ("{v}.sort()[0], {m:2}", "{v}.sort().values, 0.5", "{v}.sort()[0], {s:2}"),
    "nonzero": ("{m}", "{k}", "{v}, as_tuple=True"),
    "layer_norm": ("{m}, (4,)", "{m}, (4,), {v:2}, {v:3}", "{b}, [4], weight={v:2}", "{m}, {m:2}.shape[-1:]"),
    "rms_norm": ("{m}, (4,)", "{m}, (4,), {v:2}", "{b}, [4], weight={v:2}, eps=1e-5"),
    "group_norm": ("{i}, 2", "{i}, 2, {v:2}, {v:3}", "{m}, 2", "{i}, num_groups=4"),
    "instance_norm": ("{i}", "{b}", "{i}, weight={v:2}, bias={v:3}"),
    "batch_norm": ("{i}, {v:2}.detach().clone(), {v:2}.detach().abs() + 1", "{i}, {v:2}.detach().clone(), {v:2}.detach().clone(), {v:3}, {v:3}, True", "{m}, {v:2}.detach().clone(), {v:2}.detach().abs() + 1, {v:3}, {v:3}"),
    "local_response_norm": ("{i}, 2",),
    **dict.fromkeys(("dropout", "alpha_dropout", "feature_dropout"), ("{m}, 0.5, True", "{m}, p=0.5, training=False", "{i}, 0.1, True")),
    "dropout1d": ("{b}", "{b}, training=False"),
    "dropout2d": ("{i}", "{i}, 0.5, False"),
    "dropout3d": ("{j}",),
    "glu": ("{m}", "{m}, dim=0"),
    "prelu": ("{m}, {v:2}", "{m}, {v:2}[:1]", "{s}, {s:2}", "{i}, weight={v:2}"),
    "threshold": ("{m}, 0.1, 0.0",),
    "leaky_relu": ("{m}", "{m}, 0.1", "{m}, negative_slope=0.2"),
    "hardtanh": ("{m}", "{m}, 0.0, 1.0"),
    "hardtanh_": ("{m}.clone()",),
    "log_sigmoid": (),
    "softplus": ("{m}", "{m}, beta=2", "{s}"),
    **dict.fromkeys(("l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "soft_margin_loss", "hinge_embedding_loss", "multilabel_soft_margin_loss", "poisson_nll_loss", "kl_div"), _LOSS),
    "kl_div": (*_LOSS, "{m}, {m:2}, reduction='batchmean'", "{m}, target={m:2}, log_target=True"),
    "smooth_l1_loss": (*_LOSS, "{m}, {m:2}, beta=0.5"),
    "binary_cross_entropy_with_logits": (*_LOSS, "{m}, {m:2}, pos_weight={v:3}", "{m}, {m:2}, weight={m:3}", "{m}, target={m:2}"),
    "binary_cross_entropy": ("{m}.sigmoid(), {m:2}.sigmoid()", "{m}.sigmoid(), {m:2}.sigmoid(), reduction='none'"),
    "cross_entropy": (*_CLASSES, "{m}, {m:2}.softmax(1)", "{m}, {l}, label_smoothing=0.1", "{m}, target={l}", "{m}, {l}, weight={v:2}", "{b}, {L}[:2]"),
    "nll_loss": (*_CLASSES, "{m}, {l}, {v:2}"),
    "multi_margin_loss": _CLASSES,
    "multilabel_margin_loss": ("{m}, {L}", "{m}, {L}, reduction='none'"),
    "ctc_loss": ("{b}.log_softmax(2), {L}[:4, :1].clamp(min=1), torch.full((4,), 2), torch.ones(4, dtype=torch.long)",),
    "cosine_embedding_loss": ("{m}, {m:2}, torch.ones(4)", "{m}, {m:2}, {v:3}.sign()", "{m}, {m:2}, torch.ones(4), reduction='none'"),
    "margin_ranking_loss": ("{v}, {v:2}, {v:3}", "{v}, {v:2}, {v:3}, reduction='none'"),
    "triplet_margin_loss": ("{m}, {m:2}, {m:3}", "{m}, {m:2}, {m:3}, reduction='none'"),
    **dict.fromkeys(("avg_pool1d", "max_pool1d", "adaptive_avg_pool1d", "adaptive_max_pool1d"), ("{b}, 2",)),
    "max_pool1d": ("{b}, 2", "{b}, 2, return_indices=True"),
    **dict.fromkeys(("avg_pool2d", "max_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d"), ("{i}, 2", "{i}, (2, 2)")),
    "max_pool2d": ("{i}, 2", "{i}, 2, return_indices=True", "{i}, kernel_size=2, stride=2"),
    **dict.fromkeys(("avg_pool3d", "max_pool3d", "adaptive_avg_pool3d", "adaptive_max_pool3d"), ("{j}, 2",)),
    "lp_pool2d": ("{i}, 2, 2",),
    "interpolate": ("{i}, scale_factor=2", "{i}, size=(8, 8), mode='bilinear'", "{i}, (8, 8), mode='bicubic', align_corners=False", "{b}, scale_factor=2, mode='linear'", "{i}, scale_factor=0.5, mode='area'", "{j}, scale_factor=2, mode='trilinear'", "{i}, scale_factor=2, mode='nearest-exact'", "{i}, size=(2, 2), mode='bilinear', antialias=True"),
    "upsample": ("{i}, scale_factor=2", "{i}, (8, 8), mode='bilinear'"),
    **dict.fromkeys(("upsample_nearest", "upsample_bilinear"), ("{i}, scale_factor=2",)),
    "grid_sample": ("{i}, {i:2}[..., :2], align_corners=False", "{i}, grid={i:2}[..., :2], mode='nearest', align_corners=True"),
    "pad": ("{m}, (1, 1)", "{i}, (1, 1, 1, 1), mode='reflect'", "{i}, (1, 1, 1, 1), mode='replicate'", "{i}, (1, 1), value=1.0", "{b}, (1, 1), mode='reflect'", "{i}, (1, 1, 1, 1), 'circular'"),
    "pixel_shuffle": ("{i}, 2",),
    "pixel_unshuffle": ("{i}, 2",),
    "channel_shuffle": ("{i}, 2",),
    **dict.fromkeys(("zeros", "ones", "empty", "rand", "randn"), _SHAPED),
    "eye": ("4", "4, dtype={d}", "4, 4"),
    "full": ("(4, 4), {c}", "(4,), 1.0", "(4,), 1", "(4,), True", "(), 1.0", "(4, 4), {c}, dtype={d}", "size=(4,), fill_value=2.0", "(4,), fill_value=1"),
    "empty_strided": ("(4, 4), (4, 1)", "(4, 4), (4, 1), dtype={d}"),
    "arange": ("4", "4.0", "0, 4", "0, 4.0", "4, dtype={d}", "0, 4, 0.5", "start=0, end=4", "0, 4, dtype={d}", "end=4.0"),
    "range": ("0, 3", "0, 3, dtype={d}"),
    **dict.fromkeys(("linspace", "logspace"), ("0, 1, 4", "0, 1, steps=4, dtype={d}", "0.0, 1.0, 4")),
    "randint": ("4, (4,)", "0, 4, (4, 4)", "0, 4, size=(4,), dtype={d}", "high=4, size=(4,)"),
    "randperm": ("4", "4, dtype={d}"),
    **dict.fromkeys(("tril_indices", "triu_indices"), ("4, 4",)),
    **dict.fromkeys(("hamming_window", "hann_window"), ("4", "4, dtype={d}")),
    "normal": ("0.0, 1.0, (4, 4)", "0.0, 1.0, size=(4,), dtype={d}", "{m}, 1.0", "{m}, {m:2}.abs()", "mean={m}, std=1.0", "0.0, {m}.abs()"),
    **dict.fromkeys(("zeros_like", "ones_like", "empty_like", "rand_like", "randn_like"), ("{m}", "{s}", "{m}, dtype={d}", "{l}", "input={m}")),
    "full_like": ("{m}, 1", "{m}, 0.5", "{l}, 1", "{m}, 1, dtype={d}", "{s}, fill_value=2.0"),
    "randint_like": ("{m}, 4", "{l}, 4", "{m}, 0, 4"),
    **dict.fromkeys(("new_zeros", "new_ones", "new_empty"), ("{m}, 4", "{m}, (4, 4)", "{m}, 2, 4", "{s}, (4,), dtype={d}", "{m}, ()")),
    "new_full": ("{m}, (4,), 1.0", "{m}, (4,), 1", "{m}, (), 0.5", "{m}, (4, 4), 1, dtype={d}"),
    "new_tensor": ("{m}, 1.0", "{m}, [1, 2]", "{m}, [1.0, 2.0]", "{l}, 1.0", "{m}, 1, dtype={d}"),
    **dict.fromkeys(("tensor", "as_tensor", "asarray"), ("1.0", "1", "True", "[1.0, 2.0]", "[1, 2]", "[1, 2.0]", "[True, False]", "[1.0, 2.0], dtype={d}", "{c}", "2, dtype={d}", "[[1.0], [2.0]]", "(1, 2)", "{m}", "[]")),
    "scalar_tensor": ("1.0", "1", "1.0, dtype={d}", "{c}"),
    "complex": ("{m}.float(), {m:2}.float()",),
    "polar": ("{m}.float(), {m:2}.float()",),
    "view_as_complex": ("{m}.float().reshape(4, 2, 2)",),
    "view_as_real": ("torch.complex({m}.float(), {m:2}.float())",),
    **dict.fromkeys(("from_numpy", "frombuffer", "load"), ()),
    **dict.fromkeys(("cuda", "npu", "xpu", "alias", "view_", "unfold_"), ()),
    "cpu": (),
    "fill": ("{m}, 1.0", "{m}, 1", "{m}, {s:2}", "{s}, 0.5"),
    "hypot": _TWO,
    "dim": ("{m}",),
    "size": ("{m}", "{m}, 0"),
    "stride": ("{m}", "{m}, 0"),
    "item": ("{s}",),
    "tolist": ("{m}", "{s}"),
    "numpy": (),
    "get_device": (),
    "is_tensor": ("{m}",),
    "requires_grad_": ("{m}.clone(), False",),
    "clone": ("{m}", "{s}", "{m}, memory_format=torch.preserve_format"),
    "bitwise_not": ("{l}", "{k}"),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), ("{l}, {l:2}", "{k}, {k:2}", "{L}, 1", "{k}, True", "{k}, {L}")),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), ("{m}, {m:2}", "{k}, {m:2}", "{s}, {s:2}")),
    "gelu": ("{m}", "{m}, approximate='tanh'"),
}  # fmt: skip

#: Rows of the table that nothing here calls: devices that are not there, files, and names of torch's insides.
NOT_CALLED = frozenset(op for op, given in ARGUMENTS.items() if not given)

_MODULES = {
    "{m}": ("Linear(4, 4)", "Linear(4, 4, bias=False)", "LayerNorm(4)", "LayerNorm((4, 4))", "BatchNorm1d(4)", "RMSNorm(4)",
            "GroupNorm(2, 4)", "ReLU()", "GELU()", "SiLU()", "Sigmoid()", "Tanh()", "Softmax(dim=-1)", "LogSoftmax(dim=1)",
            "Softplus()", "Dropout(0.1)", "Identity()", "PReLU()", "LeakyReLU(0.1)", "ELU()", "Mish()", "Hardswish()",
            "Flatten()", "LayerNorm(4, elementwise_affine=False)", "BatchNorm1d(4, affine=False)", "Softmin(dim=1)", "CELU()", "GLU()",
            "Hardsigmoid()", "Hardtanh()", "LogSigmoid()", "ReLU6()", "SELU()", "Softsign()", "Threshold(0.1, 0.0)",
            "Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4))", "Sequential(nn.Linear(4, 4), nn.Softmax(-1))", "AlphaDropout()"),
    "{b}": ("Conv1d(4, 4, 1)", "BatchNorm1d(4)", "Linear(4, 4)", "LayerNorm(4)", "InstanceNorm1d(4)", "AvgPool1d(2)", "MaxPool1d(2)",
            "ConvTranspose1d(4, 4, 1)", "AdaptiveAvgPool1d(2)", "AdaptiveMaxPool1d(2)", "Dropout1d()", "RMSNorm(4)"),
    "{i}": ("Conv2d(4, 4, 3, padding=1)", "BatchNorm2d(4)", "GroupNorm(2, 4)", "MaxPool2d(2)", "AvgPool2d(2)", "AdaptiveAvgPool2d(1)",
            "Upsample(scale_factor=2)", "ConvTranspose2d(4, 4, 1)", "InstanceNorm2d(4, affine=True)", "PixelShuffle(2)", "Dropout2d()",
            "ReflectionPad2d(1)", "ZeroPad2d(1)", "LocalResponseNorm(2)", "Softmax2d()", "UpsamplingBilinear2d(scale_factor=2)", "Unfold(2)",
            "PixelUnshuffle(2)", "ConstantPad2d(1, 0.5)", "ReplicationPad2d(1)", "AdaptiveMaxPool2d(1)", "Upsample(scale_factor=2, mode='bilinear')",
            "Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU())", "UpsamplingNearest2d(scale_factor=2)"),
    "{j}": ("Conv3d(4, 4, 1)", "BatchNorm3d(4)", "AvgPool3d(2)", "MaxPool3d(2)", "ConvTranspose3d(4, 4, 1)", "AdaptiveAvgPool3d(1)", "InstanceNorm3d(4)"),
    "{l}": ("Embedding(4, 4)", "Embedding(8, 2)"),
    "{L}": ("EmbeddingBag(4, 4)", "Embedding(4, 4)"),
    "{m}, {m:2}": ("MSELoss()", "L1Loss()", "SmoothL1Loss()", "HuberLoss()", "BCEWithLogitsLoss()", "KLDivLoss()", "BCELoss()",
                   "L1Loss(reduction='none')", "MSELoss(reduction='sum')", "CosineSimilarity()", "PairwiseDistance()", "Bilinear(4, 4, 2)",
                   "PoissonNLLLoss()", "SoftMarginLoss()", "HingeEmbeddingLoss()", "MultiLabelSoftMarginLoss()", "KLDivLoss(reduction='batchmean')"),
    "{m}, {l}": ("CrossEntropyLoss()", "CrossEntropyLoss(label_smoothing=0.1)", "NLLLoss()", "CrossEntropyLoss(reduction='none')", "MultiMarginLoss()"),
    "{m}, {m:2}, {m:3}": ("TripletMarginLoss()",),
    "{v}, {v:2}, {v:3}": ("MarginRankingLoss()",),
    "{m}, {m:2}, {v:3}": ("CosineEmbeddingLoss()",),
}  # fmt: skip
MODULES = tuple((each, given) for given, made in _MODULES.items() for each in made)


def arguments(op: str) -> tuple[str, ...]:
    """The arguments that an operator is called with."""
    if op in ARGUMENTS:
        return ARGUMENTS[op]
    row = operators()[op]
    if row.result in ("promote", "divide", "logical") or op in ("eq", "ne", "lt", "le", "gt", "ge"):
        return _TWO
    return _ONE


def calls(op: str, every: bool = True) -> Iterator[str]:
    """Every way in which an operator is called: as a function, a method, in place, into `out`; or two usual ones."""
    given = arguments(op)
    for index, each in enumerate(given):
        forms = list(_forms(op, each))
        if every:
            yield from forms
        elif forms and index in (0, len(given) - 1):
            yield next((form for form in forms if form.startswith("F.")), forms[0])


def _forms(op: str, given: str) -> Iterator[str]:
    if op in ("T", "H", "mT", "mH"):
        yield f"{given}.{op}"
        return
    places = (("torch", torch), ("F", functional), ("torch.special", special))
    found = [f"{name}.{op}({given})" for name, place in places if hasattr(place, op)]
    short = op.removeprefix("linalg_")
    if short != op and hasattr(linalg, short):
        found.append(f"torch.linalg.{short}({given})")
    yield from found
    if (
        found
        and op != "chain_matmul"
        and "dtype=" not in given
        and "'" not in given
        and found[0].startswith("torch.")
    ):
        yield f"{found[0][:-1]}, out=torch.empty(0, dtype={{d}}))"
    first, rest = _split(given)
    if not first.startswith("{") or first.startswith("{c"):
        return
    if hasattr(Tensor, op):
        yield f"{first}.{op}({rest})"
    if hasattr(Tensor, f"{op}_"):
        yield f"{first}.clone().{op}_({rest})"


def _split(given: str) -> tuple[str, str]:
    """The first argument, and the others."""
    depth = 0
    for index, character in enumerate(given):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            return given[:index], given[index + 1 :].strip()
    return given, ""
