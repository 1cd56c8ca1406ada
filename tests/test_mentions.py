from __future__ import annotations

import ast

import pytest

from amplint.mentions import made_low


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("x = x.half()", "half"),
        ("self.half()", "half"),
        ("cast = x.half", "half"),
        ("x = x.to(torch.float16)", "float16"),
        ("x = x.to(torch.half)", "half"),
        ("def f(x, dtype: torch.dtype = torch.bfloat16): pass", "bfloat16"),
        ("kinds = {'fp16': torch.float16}", "float16"),
        ("kind = torch.float16 if fast else torch.float32", "float16"),
        ("x = getattr(torch, 'float16')", "float16"),
        ("x = getattr(x, 'half')()", "half"),
        ("from torch import half", "half"),
        ("from torch import float16 as f16", "float16"),
        ("with torch.autocast('cuda'): pass", "autocast"),
        ("@custom_fwd\ndef f(ctx, x): pass", "custom_fwd"),
        ("t = Trainer(precision='bf16-mixed')", "bf16-mixed"),
        ("assert x.half().dtype == torch.float16", "half"),
        ("x = torch.cuda.HalfTensor(3)", "HalfTensor"),
        ("x = np.float16(x)", "float16"),
    ],
)
def test_what_makes_something_low_is_seen(line, word):
    assert word in made_low(ast.parse(line), line)


@pytest.mark.parametrize(
    "line",
    [
        "ok = x.dtype == torch.float16",
        "ok = x.dtype in (torch.float16, torch.bfloat16)",
        "size = {torch.float16: 2, torch.half: 2}",
        "ok = isinstance(x, torch.HalfTensor)",
        "x: torch.HalfTensor = None",
        "def f(x: torch.cuda.HalfTensor) -> torch.HalfTensor: pass",
        "if self.half: pass",
        "half = n // 2",
        "x = jnp.asarray(x, jnp.bfloat16)",
        "x = tf.cast(x, tf.float16)",
        "'float16'",
        "x.autocasting = 3",
        "from torch import float16",
    ],
)
def test_what_only_names_it_is_not(line):
    assert not made_low(ast.parse(line), line)
