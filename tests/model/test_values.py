"""What a variable can hold where it is used, and which of that is evidently a tensor or a device."""

from __future__ import annotations

import libcst as cst
import pytest

from amplint.config import Settings
from amplint.engine import model_of
from amplint.model.module import ModuleModel
from amplint.model.names import Binding
from amplint.model.tensors import is_device, is_tensor
from amplint.source import source_from_text


def probe(text: str) -> tuple[ModuleModel, cst.BaseExpression]:
    """The model of a text, and the argument of its call of `probe`."""
    model = model_of(source_from_text(text, "train.py"), Settings())
    assert isinstance(model, ModuleModel)
    (call,) = (
        c for c in model.tree.of_type(cst.Call) if isinstance(c.func, cst.Name) and c.func.value == "probe"
    )
    return model, call.args[0].value


def held(text: str) -> list[str]:
    """Source text of what the argument can hold; bindings by their kind."""
    model, node = probe(text)
    return [
        source.kind if isinstance(source, Binding) else model.tree.code(source)
        for source in model.values.sources(node)
    ]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x = 1\nprobe(x)\n", ["1"]),
        ("x = 1\nx = 2\nprobe(x)\n", ["2"]),
        ("x = 1\nif a():\n    x = 2\nprobe(x)\n", ["1", "2"]),
        ("if a():\n    x = 1\nelse:\n    x = 2\nprobe(x)\n", ["1", "2"]),
        ("x = 1\nwhile a():\n    probe(x)\n    x = 2\n", ["1", "2"]),
        ("x = 1\nwhile a():\n    x = 3\n    probe(x)\n    x = 2\n", ["3"]),
        ("x = 1\nprobe(x)\nx = 2\n", ["1"]),
        ("x = 1\ny = x\nprobe(y)\n", ["1"]),
        ("x = 1 if a() else 2\nprobe(x)\n", ["1", "2"]),
        ("probe((x := 1))\n", ["1"]),
        ("x, y = 1, 2\nprobe(y)\n", ["2"]),
        ("x = None\nprobe(x)\n", ["None"]),
        ("def f(x):\n    probe(x)\n", ["param"]),
        ("def f(x):\n    x = 1\n    probe(x)\n", ["1"]),
        ("for x in a():\n    probe(x)\n", ["loop"]),
        ("x = 1\ndef f():\n    probe(x)\nx = 2\n", ["1", "2"]),
        ("probe(x)\n", []),
        ("x = y\nprobe(x)\n", []),
        ("x = x\nprobe(x)\n", []),
    ],
)
def test_only_what_can_reach_the_place_is_held(text: str, expected: list[str]) -> None:
    assert held(text) == expected


def test_attributes_of_self_hold_what_any_method_assigns() -> None:
    text = "class A:\n    def f(self):\n        self.x = 1\n    def g(self):\n        self.x = 2\n        probe(self.x)\n"
    assert held(text) == ["1", "2"]
    assert held(text.replace("self.x = 2", "self.x, y = h()")) == []
    assert held(text.replace("self.x = 2", "self.x += 2")) == []
    assert held("class A:\n    def f(self, o):\n        o.x = 1\n        probe(o.x)\n") == ["o.x"]


def test_a_choice_can_be_kept_whole() -> None:
    model, node = probe("x = 1 if a() else 2\nprobe(x)\n")
    (source,) = model.values.sources(node, choices=True)
    assert isinstance(source, cst.IfExp)


def test_a_long_chain_and_a_circle_of_names_end() -> None:
    chain = "".join(f"x{n + 1} = x{n}\n" for n in range(500))
    assert held(f"x0 = 1\n{chain}probe(x500)\n") == []
    assert held("while a():\n    x = y\n    y = x\nprobe(x)\n") == []


@pytest.mark.parametrize(
    "value, is_one",
    [
        ("torch.zeros(3)", True),
        ("torch.zeros(3) if a else None", True),
        ("None", False),
        ("torch.zeros(3) + model", True),
        ("[1] + [2]", False),
        ("x", False),
    ],
)
def test_tensors_are_told_by_what_makes_them(value: str, is_one: bool) -> None:
    assert is_tensor(*probe(f"import torch\ny = {value}\nprobe(y)\n")) is is_one


def test_a_long_expression_is_no_reason_to_recurse_without_end() -> None:
    text = "import torch\nx = " + " + ".join(["torch.zeros(3)"] * 300) + "\nprobe(x)\n"
    assert is_tensor(*probe(text)) in (True, False)


@pytest.mark.parametrize(
    "value, is_one",
    [
        ("torch.device('npu')", True),
        ("torch.zeros(3).device", True),
        ("model.device", False),
        ("'cuda'", False),
        ("torch.device('npu') if a else 'cpu'", False),
    ],
)
def test_devices_are_told_by_what_makes_them(value: str, is_one: bool) -> None:
    assert is_device(*probe(f"import torch\nd = {value}\nprobe(d)\n")) is is_one
