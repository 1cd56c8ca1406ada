"""AMP109: device types that are objects, or carry an index."""

from __future__ import annotations

import pytest
from amp_cases import body, codes, fix, found, is_untouched, reasons

SELECT = ["AMP104", "AMP109"]


def rows(text: str) -> list[int]:
    return [row for row, code in codes(text, select=SELECT) if code == "AMP109"]


def region(device: str, before: str = "") -> str:
    return f"import torch\n{before}with torch.autocast({device}, dtype=torch.bfloat16):\n    pass\n"


@pytest.mark.parametrize(
    "device",
    [
        "'cuda:0'",
        "'npu:1'",
        "device_type='cuda:0'",
        "f'cuda:{rank}'",
        "f'{kind}:{rank}'",
        "str(device)",
        "str(args.device)",
        "torch.device('cuda')",
        "torch.accelerator.current_accelerator()",
        "torch.zeros(3).device",
        "'cuda:0' if fast else 'cpu'",
        "torch.device('cuda' if fast else 'cpu')",
    ],
)
def test_a_device_type_that_is_none_is_found(device: str) -> None:
    assert rows(region(device)) == [2]


@pytest.mark.parametrize(
    "device",
    [
        "'cuda'",
        "'npu'",
        "device",
        "device.type",
        "args.device",
        "x.device.type",
        "x.device",
        "self.device",
        "str(device_type)",
        "str(device.type)",
        "str(a, b)",
        "f'{kind}'",
        "f'cuda'",
        "torch.device(device).type",
        "'cuda' if fast else 'cpu'",
        "torch.device('cuda') if fast else 'cpu'",
        "*args",
    ],
)
def test_a_device_type_that_may_be_one_is_silent(device: str) -> None:
    assert rows(region(device)) == []


@pytest.mark.parametrize(
    "before",
    [
        "device = torch.device('cuda')\n",
        "device = torch.device('cuda') if fast else torch.device('cpu')\n",
        "device = 'cuda'\ndevice = torch.device(device)\n",
        "device = 'cuda:0'\n",
        "name = f'cuda:{rank}'\ndevice = name\n",
        "x = torch.ones(3)\ndevice = x.device\n",
        "device = 'cuda'\nif fast:\n    device = 'cuda:0'\nelse:\n    device = 'cuda:1'\n",
    ],
)
def test_variables_are_followed(before: str) -> None:
    assert rows(region("device", before)) == [before.count("\n") + 2]


def test_a_variable_that_is_turned_into_the_type_is_silent() -> None:
    assert rows(region("device", "device = torch.device('cuda:0')\ndevice = device.type\n")) == []
    assert rows(region("device", "device = torch.device('cuda')\nif old:\n    device = 'cuda'\n")) == []
    assert rows(region("device", "device = 'cuda:0'\ndevice = device.split(':')[0]\n")) == []


@pytest.mark.parametrize(
    "params, expected",
    [
        ("device: torch.device", [3]),
        ("x: torch.Tensor", []),
        ("device: str", []),
        ("device: 'torch.device | str'", []),
        ("device=torch.device('cuda')", []),
    ],
)
def test_parameters_are_known_by_their_annotation_only(params: str, expected: list[int]) -> None:
    text = f"import torch\ndef f({params}):\n    with torch.autocast(device):\n        pass\n"
    assert rows(text) == expected


def test_an_attribute_that_only_ever_holds_a_device_is_found() -> None:
    text = """
    import torch
    class Trainer:
        def __init__(self, rank):
            self.device = torch.device("npu", rank)
        def step(self, x):
            with torch.autocast(self.device):
                return x
    """
    assert rows(text) == [6]
    assert (
        rows(text.replace("def step", "def use(self, d):\n            self.device = d\n        def step"))
        == []
    )


@pytest.mark.parametrize("name", ["custom_fwd", "custom_bwd"])
def test_the_decorators_are_found_by_keyword(name: str) -> None:
    text = f"import torch\n@torch.amp.{name}(device_type='npu:0')\ndef f(ctx, x):\n    return x\n"
    assert rows(text) == [2]
    assert rows(text.replace("npu:0", "npu")) == []


def test_a_scaler_and_other_functions_take_both() -> None:
    text = "import torch\nx = torch.amp.GradScaler('npu:0')\ny = torch.zeros(3, device='npu:0')\n"
    assert rows(text) == []


def test_a_guarded_region_is_silent() -> None:
    text = """
    import torch
    if kind == "npu":
        ctx = torch.autocast("npu")
    else:
        ctx = torch.autocast("cuda:0")
    """
    assert rows(text) == []


def test_an_object_is_an_error_whatever_the_target() -> None:
    (finding,) = found(region("torch.device('npu')"), select=SELECT, target="cuda")
    assert finding.severity.value == "error"
    (finding,) = found(region("'npu:0'"), select=SELECT, target="cuda")
    assert finding.severity.value == "warning"


@pytest.mark.parametrize(
    "before, after",
    [
        ("torch.device(d)", "torch.device(d).type"),
        ("(a or torch.device(d)) if b else c", None),
        ("torch.zeros(3).device", "torch.zeros(3).device.type"),
        ("torch.device(d) if c else torch.device(e)", "(torch.device(d) if c else torch.device(e)).type"),
        ("str(device)", "torch.device(device).type"),
        ("str(torch.device(d))", "torch.device(d).type"),
        ("'npu:0'", '"npu"'),
        ("f'npu:{rank}'", '"npu"'),
        ("'cuda:0'", "AMP_DEVICE"),
        ("f'cuda:{rank}'", "AMP_DEVICE"),
        ("device_type='cuda:0'", "device_type=AMP_DEVICE"),
    ],
)
def test_the_fix_leaves_the_bare_type(before: str, after: str | None) -> None:
    text = region(before)
    assert body(text, select=SELECT) == (region(after) if after else text)


def test_a_variable_with_an_index_stays_what_it_is_elsewhere() -> None:
    text = "import torch\nd = 'cuda:0'\nx = torch.zeros(3, device=d)\nr = torch.autocast(d)\n"
    assert body(text, select=SELECT) == text.replace("autocast(d)", "autocast(torch.device(d).type)")


def test_without_a_name_for_torch_the_fix_imports_it_or_says_why_not() -> None:
    text = "from torch import autocast\nr = autocast(str(device))\n"
    assert fix(text, select=SELECT) == (
        "import torch\nfrom torch import autocast\nr = autocast(torch.device(device).type)\n"
    )
    assert is_untouched(f"torch = 3\n{text}", select=SELECT)
    assert len(reasons(f"torch = 3\n{text}", select=SELECT)) == 1


def test_a_type_that_is_decided_elsewhere_has_no_fix() -> None:
    text = region("f'{kind}:{rank}'")
    assert is_untouched(text, select=SELECT)
    assert reasons(text, select=SELECT) == {"what stands before the index is decided elsewhere"}
