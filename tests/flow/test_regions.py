"""Which dtypes autocast regions can have, and which losses come from them."""

from __future__ import annotations

import pytest

from amplint.flow.regions import regions_of

from .checking import model_of


def kinds(text: str) -> list[list[str]]:
    return [sorted(region.kinds) for region in regions_of(model_of("import torch\n" + text)).all]


def losses(text: str) -> int:
    return len(regions_of(model_of("import torch\n" + text)).losses)


@pytest.mark.parametrize(
    "made, expected",
    [
        ("torch.autocast('cuda')", ["float16"]),
        ("torch.autocast('npu:0')", ["float16"]),
        ("torch.autocast('cpu')", ["bfloat16"]),
        ("torch.autocast(device.type)", ["bfloat16", "float16"]),
        ("torch.autocast('cuda', torch.bfloat16)", ["bfloat16"]),
        ("torch.cuda.amp.autocast(True, torch.half)", ["float16"]),
        ("torch.autocast('cuda', dtype=getattr(torch, 'bfloat16'))", ["bfloat16"]),
        ("torch.autocast('cuda', dtype={'a': torch.float16, 'b': torch.bfloat16}['b'])", ["bfloat16"]),
        (
            "torch.autocast('cuda', dtype={'a': torch.float16, 'b': torch.bfloat16}[x])",
            ["bfloat16", "float16"],
        ),
        ("torch.autocast('cuda', dtype=torch.float16 if x else None)", ["float16"]),
        ("torch.autocast('cuda', dtype=x.dtype)", [""]),
        ("torch.autocast('cuda', **x)", [""]),
    ],
)
def test_the_dtypes_of_a_region(made: str, expected: list[str]) -> None:
    assert kinds(f"def f(x, device):\n    with {made}:\n        pass\n") == [expected]


def test_a_variable_with_several_values_is_none_of_them_for_certain() -> None:
    text = """
def f(x):
    dtype = torch.float16
    if x.dtype:
        dtype = x.dtype
    with torch.autocast("cuda", dtype=dtype):
        pass
"""
    assert kinds(text) == [["", "float16"]]


def test_a_field_of_a_class_may_be_given_another_value() -> None:
    text = """
class Config:
    dtype: torch.dtype = torch.bfloat16

def f():
    config = Config(dtype=torch.float16)
    with torch.autocast("cuda", dtype=config.dtype):
        pass
"""
    assert kinds(text) == [["bfloat16", "float16"]]


def test_a_default_that_is_set_elsewhere_is_not_known() -> None:
    text = "torch.set_autocast_gpu_dtype(torch.bfloat16)\nwith torch.autocast('cuda'):\n    pass\n"
    assert kinds(text) == [[""]]


def test_a_loss_of_the_other_branch_comes_from_no_region() -> None:
    text = """
def f(model, x, amp):
    if amp:
        with torch.autocast("cuda"):
            loss = model(x)
    else:
        loss = model(x)
        loss.backward()
"""
    assert losses(text) == 0


@pytest.mark.parametrize("flag, expected", [("True", 1), ("False", 0)])
def test_a_call_that_never_comes_to_the_region(flag: str, expected: int) -> None:
    text = f"""
def loss_of(model, x, low=False):
    if low:
        with torch.autocast("cuda"):
            return model(x)
    return model(x)

def f(model, x):
    loss = loss_of(model, x, low={flag})
    loss.backward()
"""
    assert losses(text) == expected


def test_what_is_detached_or_computed_without_gradients_does_not_count() -> None:
    text = """
def f(model, teacher, x):
    with torch.no_grad(), torch.autocast("cuda"):
        target = teacher(x)
    with torch.autocast("cuda"):
        other = teacher(x)
    loss = (model(x) - target - other.detach()).mean()
    loss.backward()
"""
    assert losses(text) == 0
