"""AMP307: casts of tensors whose result is dropped."""

from __future__ import annotations

import pytest
from amp_cases import codes, fix, found, reasons

SELECT = ["AMP307"]


def rows(text: str) -> list[int]:
    return [row for row, _ in codes(text, select=SELECT)]


@pytest.mark.parametrize(
    "cast", ["float()", "half()", "bfloat16()", "double()", "to(d)", "cuda()", "type(t)"]
)
def test_every_cast_of_a_tensor_is_found(cast: str) -> None:
    assert rows(f"import torch\nx = torch.zeros(3)\nx.{cast}\n") == [3]


@pytest.mark.parametrize("call", ["cpu()", "add_(1)", "requires_grad_()", "backward()", "long()", "item()"])
def test_other_methods_are_silent(call: str) -> None:
    assert rows(f"import torch\nx = torch.zeros(3)\nx.{call}\n") == []


@pytest.mark.parametrize(
    "value",
    [
        "torch.zeros(3)",
        "torch.stack(parts)",
        "torch.nn.functional.softmax(y, -1)",
        "F.relu(y)",
        "torch.from_numpy(a) / 255",
        "1 - torch.rand(3)",
        "-torch.rand(3)",
        "torch.rand(3) > 0.5",
        "torch.rand(3)[0]",
        "y.unsqueeze(0)",
        "y.masked_fill(mask, 0).mean()",
        "torch.tensor(a) if a else torch.zeros(3)",
        "torch.zeros(3).to(d)",
        "torch.nn.Parameter(y)",
        "torch.zeros(3).T",
    ],
)
def test_what_torch_makes_is_a_tensor(value: str) -> None:
    assert rows(f"import torch\nimport torch.nn.functional as F\nx = {value}\nx.float()\n") == [4]


@pytest.mark.parametrize(
    "value",
    [
        "torch.nn.Linear(3, 3)",
        "torch.nn.MSELoss()",
        "make(3)",
        "model",
        "y.clone()",
        "y.mean()",
        "np.clip(y, 0, 1)",
        "np.tril(y)",
        "torch.load(path)",
        "torch.compile(model)",
        "torch.jit.load(path)",
        "torch.hub.load(path)",
        "torch.chunk(y, 2)",
        "torch.zeros(3) if a else model",
        "torch.max(y, 0)",
        "'%s' % torch.zeros(3)",
        "None",
    ],
)
def test_what_may_be_a_module_or_anything_else_is_silent(value: str) -> None:
    assert rows(f"import numpy as np\nimport torch\nx = {value}\nx.float()\n") == []


@pytest.mark.parametrize(
    "note, is_known",
    [
        ("torch.Tensor", True),
        ("Tensor", True),
        ("Optional[Tensor]", True),
        ("Tensor | None", True),
        ("nn.Module", False),
        ("Tensor | nn.Module", False),
        ("Any", False),
        ("'Tensor'", False),
        ("Dict[str, Tensor]", False),
    ],
)
def test_parameters_are_known_by_their_annotation(note: str, is_known: bool) -> None:
    header = "import torch\nfrom torch import Tensor, nn\nfrom typing import *\nfrom typing import Optional\n"
    assert rows(f"{header}def f(x: {note}):\n    x.half()\n") == ([6] if is_known else [])


@pytest.mark.parametrize(
    "use, is_known",
    [
        ("x * 2", True),
        ("2 - x", True),
        ("x @ w", True),
        ("x[:, 0]", True),
        ("x.shape[0]", True),
        ("x.size(0)", True),
        ("x.data.fill_(0)", True),
        ("x + y", False),  # lists, too
        ("x | y", False),
        ("'%s' % x", False),
        ("x[0]", False),  # a ModuleList, too
        ("x.dim", False),
        ("x.size", False),
        ("x.dtype", False),
        ("x.device", False),
        ("x(y)", False),
        ("x.parameters()", False),
        ("f(x)", False),
    ],
)
def test_what_is_computed_with_is_a_tensor(use: str, is_known: bool) -> None:
    assert rows(f"import torch\ndef f(x, y):\n    x.half()\n    return {use}\n") == ([3] if is_known else [])


def test_a_name_that_first_holds_a_module_and_then_its_output_is_silent() -> None:
    text = "import torch\ndef f(net, x):\n    net.half()\n    net = net(x)\n    return net * 2\n"
    assert rows(text) == []


def test_only_what_can_reach_the_statement_counts() -> None:
    text = """
    import torch
    def f(a):
        x = torch.nn.Linear(3, 3)
        x.half()
        x = torch.zeros(3)
        x.half()
    """
    assert rows(text) == [6]
    text = """
    import torch
    def f(a):
        x = torch.zeros(3)
        for _ in a:
            x.half()
            x = make(x)
    """
    assert rows(text) == []
    text = """
    import torch
    def f(a):
        x = torch.zeros(3)
        if a:
            x = make(x)
        x.half()
    """
    assert rows(text) == []


@pytest.mark.parametrize(
    "loop, is_known",
    [
        ("for x in model.parameters():", True),
        ("for n, x in model.named_parameters():", True),
        ("for n, x in model.named_buffers(recurse=False):", True),
        ("for n, x in model.state_dict().items():", True),
        ("for x in model.state_dict().values():", True),
        ("for x in model.modules():", False),
        ("for n, x in model.named_modules():", False),
        ("for x, n in model.named_parameters():", False),
        ("for x in model.named_parameters():", False),
        ("for n, x in models.items():", False),
        ("for x in loader:", False),
        ("for x in models:", False),
    ],
)
def test_loops_over_parameters_give_tensors(loop: str, is_known: bool) -> None:
    assert rows(f"import torch\n{loop}\n    x.float()\n") == ([3] if is_known else [])


@pytest.mark.parametrize(
    "value, is_known",
    [("torch.zeros(3)", True), ("torch.nn.Linear(3, 3)", False), ("torch.zeros(3), 1", False), ("x", False)],
)
def test_an_attribute_is_what_the_class_assigns_to_it(value: str, is_known: bool) -> None:
    text = f"""
    import torch
    class A:
        def __init__(self, x):
            self.a = {value}
        def go(self, d):
            self.a.to(d)
            self.b.to(d)
            d.a.to(d)
    """
    assert rows(text) == ([6] if is_known else [])


def test_a_registered_buffer_is_a_tensor() -> None:
    text = """
    import torch
    class A(torch.nn.Module):
        def __init__(self):
            self.register_buffer("scale", torch.ones(3))
            self.scale.half()
    """
    assert rows(text) == [5]


@pytest.mark.parametrize(
    "text",
    [
        "x = torch.zeros(3)\nx = x.half()\n",
        "x = torch.zeros(3)\nprint(x.half())\n",
        "x = torch.zeros(3)\nx.half().mul_(2)\n",
        "torch.zeros(3).cuda()\n",
        "x = torch.zeros(3)\nx[0].cuda()\n",
        "x = torch.zeros(3)\ntry:\n    x.cuda()\nexcept RuntimeError:\n    pass\n",
        "x = torch.zeros(3)\nwith pytest.raises(TypeError):\n    x.half()\n",
        "x = torch.zeros(3)\nwith self.assertRaises(TypeError):\n    x.half()\n",
        "x = torch.zeros(3)\nf = lambda: x.half()\n",
        "def f():\n    '''x.half()'''\n",
        "x = torch.zeros(3, dtype=q.dtype, device=d)\nx.mul_(2)\nx.to(q.dtype)\n",
        "x = torch.zeros(3, dtype=q.dtype, device=d)\nx.to(device=d, dtype=q.dtype)\n",
    ],
)
def test_a_result_that_is_taken_and_a_test_of_the_cast_are_silent(text: str) -> None:
    assert rows(f"import torch\n{text}") == []


def test_a_tensor_made_with_another_dtype_or_none_is_found() -> None:
    assert rows("import torch\nx = torch.zeros(3, dtype=q.dtype)\nx.to(d, q.dtype)\n") == [3]
    assert rows("import torch\nx = torch.zeros(q.dtype)\nx.to(q.dtype)\n") == [3]


def test_a_cast_in_the_handler_of_a_try_is_found() -> None:
    text = "import torch\nx = torch.zeros(3)\ntry:\n    f()\nexcept E:\n    x.half()\n"
    assert rows(text) == [6]


def test_the_fix_keeps_the_result_and_is_unsafe() -> None:
    text = "import torch\nx = torch.zeros(3)\nx.to(d,\n     non_blocking=True)\n"
    assert fix(text, select=SELECT, repair=True) == text.replace("x.to", "x = x.to")
    assert fix(text, select=SELECT, repair=True, unsafe=False) == text
    (finding,) = found(text, select=SELECT)
    assert finding.fix is not None
    assert (finding.fix.kind.value, finding.fix.applicability.value) == ("repair", "unsafe")


def test_the_variable_of_a_loop_has_no_fix_but_the_reason() -> None:
    text = "for p in model.parameters():\n    p.float()\n"
    assert fix(text, select=SELECT, repair=True) == text
    assert len(reasons(text, select=SELECT)) == 1
