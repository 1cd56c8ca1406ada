"""A short run of the fuzzers, the same every time; `tests/corpus/fuzz.py` is the long one over real trees."""

from __future__ import annotations

from random import Random

import hypothesmith
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import failures, mutate

#: What the damaged sources are made of: together they have a finding of most kinds.
SEEDS = (
    '''"""Train."""
from __future__ import annotations

import torch
from torch.cuda.amp import GradScaler, autocast  # AMP


def train(model, loader, opt, use_amp=True):
    scaler = GradScaler(2.0**10, enabled=use_amp)
    for step, (x, y) in enumerate(loader):
        with autocast(use_amp), torch.no_grad():
            loss = model(x, y)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if step % 2 == 0:
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
    return scaler
''',
    """import torch.cuda.amp as amp
import torch.nn.utils as u; from torch import cuda

__all__ = ["amp", "Trainer"]

try:
    from torch.cuda.amp import custom_fwd, custom_bwd
except ImportError:
    custom_fwd = custom_bwd = lambda f: f


class Trainer:
    def __init__(self, model, opt):
        self.model, self.opt = model, opt
        self.scaler = amp.GradScaler()

    @amp.autocast()
    def loss(self, x): return self.model(x.half())

    def step(self, x):
        self.scaler.scale(self.loss(x)).backward()
        self.scaler.unscale_(self.opt)
        u.clip_grad_norm_(self.model.parameters(), max_norm=1.0)
        self.scaler.step(self.opt)
        self.scaler.update()


class F(torch.autograd.Function):
    @staticmethod
    @custom_fwd(cast_inputs=torch.float16)
    def forward(ctx, x): return x

    @staticmethod
    @custom_bwd
    def backward(ctx, g): return g
""",
    """import torch
from torch.cuda import amp
from torch import autocast as ac
from torch.cuda.amp import (
    autocast as old,  # kept
    GradScaler,
)
# amplint: disable[AMP102] measured
s = GradScaler(init_scale=1024.)
# amplint: enable[AMP102]
if torch.cuda.is_available():
    context = old(enabled=True, dtype=torch.bfloat16)
else:
    context = ac('cpu')
with context and torch.no_grad():
    x = torch.ones(3, device="cuda")
    x.half()
    y = (x.half() + 1e-8).float()
with amp.autocast(), torch.autocast("cuda", torch.float16):  # amplint: ignore[AMP101] until=2001-01-01 old
    print(f"{x.half()!r:>{10}} {torch.get_autocast_gpu_dtype()}"); torch.set_autocast_enabled(False)
match torch.is_autocast_enabled():
    case True: print(torch.finfo(torch.float16).eps)
lambda *a, **k: amp.autocast(*a, **k)
""",
)

STYLES = ("torch", "shim")
QUIET = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_the_sources_that_get_damaged_keep_every_promise_undamaged(number, style):
    assert failures(SEEDS[number], style=style) == []


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=80, **QUIET)
@given(seed=st.integers(0, 2**32), source=st.sampled_from(SEEDS))
def test_damaged_sources_are_checked_and_fixed_without_a_fault(style, seed, source):
    text = mutate(source, Random(seed))
    assert failures(text, style=style) == [], text


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=10, **QUIET)
@given(code=hypothesmith.from_grammar(), source=st.sampled_from(SEEDS), before=st.booleans())
def test_any_program_of_the_grammar_beside_real_code_is_checked_and_fixed_without_a_fault(
    style, code, source, before
):
    text = code + "\n" + source if before else source + code
    assert failures(text, style=style) == [], text


@settings(max_examples=10, **QUIET)
@given(code=hypothesmith.from_node())
def test_any_tree_that_libcst_can_print_is_checked_and_fixed_without_a_fault(code):
    assert failures(code, style="torch") == [], code


@settings(max_examples=100, **QUIET)
@given(text=st.text(max_size=200))
def test_any_text_at_all_is_checked_and_fixed_without_a_fault(text):
    assert failures(text + "\nfrom torch.cuda.amp import autocast\n", style="torch") == []
