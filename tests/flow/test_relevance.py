"""Which functions can make anything low precision, told before any is run."""

from __future__ import annotations

from textwrap import dedent

import pytest

from amplint.config import Settings
from amplint.engine import model_of
from amplint.flow.classes import Classes
from amplint.flow.precision.relevance import Relevance
from amplint.model.module import ModuleModel
from amplint.model.ondemand import OnDemand
from amplint.source import source_from_text


def low(text: str) -> set[str]:
    model = model_of(source_from_text(dedent(text), "train.py"), Settings())
    assert isinstance(model, ModuleModel)
    files = OnDemand(model)
    relevance = Relevance(files.functions, Classes(files.classes))
    return {name for name in model.function_names if relevance.makes_low(name)}


@pytest.mark.parametrize(
    ("body", "is_low"),
    [
        ("return x.half()", True),
        ("return x.to(torch.float16)", True),
        ("return x.to(torch.half)", True),
        ("with torch.autocast('cuda'): return x", True),
        ("return load(x, 'float16')", True),
        ("return Net.from_pretrained(x, torch_dtype=x)", True),
        ("return x.half().dtype == torch.float16", True),
        ("return x.dtype == torch.float16", False),
        ("return {torch.float16: 2}[x.dtype]", False),
        ("return x['fp16']", False),
        ("return isinstance(x, torch.HalfTensor)", False),
        ("return Net.from_pretrained(x)", False),
        ("self.initialize()", False),
        ("return x if self.fp16 else None", False),
    ],
)
def test_what_a_function_does(body, is_low):
    assert ("f" in low(f"import torch\ndef f(self, x):\n    {body}\n")) is is_low


def test_a_caller_gets_what_is_given_back_and_not_what_stays_inside():
    text = """
    import torch
    def gives(x): return x.half()
    def gets(x): return gives(x) + 1
    def keeps(x): torch.save(deepcopy(x).half(), "x.pt")
    def calls(x): keeps(x)
    def changes(m): m.half()
    def owner(m):
        changes(m)
        return m
    def builds():
        net = torch.nn.Linear(2, 2)
        keeps(net)
    def other(x): return x
    """
    assert low(text) == {"gives", "gets", "keeps", "changes", "owner", "builds"}


def test_methods_share_what_is_left_in_the_object():
    text = """
    import torch
    class A:
        def put(self, x): self.x = x.half()
        def get(self): return self.x.sum()
        def also(self): self.y = self.x
        def then(self): return self.y
        def apart(self, z): return self.z
    """
    assert low(text) == {"A.put", "A.get", "A.also", "A.then"}


def test_an_object_that_is_cast_or_handed_on_shares_everything():
    text = """
    import torch
    class A:
        def cast(self): self.half()
        def apart(self, z): return self.z
    class B:
        def give(self): change(self, torch.float16)
        def apart(self, z): return self.z
    """
    assert low(text) == {"A.cast", "A.apart", "B.give", "B.apart"}
