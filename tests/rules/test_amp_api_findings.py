"""What the AMP1 rules report, and above all what they do not."""

from __future__ import annotations

import pytest
from amp_cases import codes, found

from amplint.finding import Severity

AUTOCAST = [
    "from torch.cuda.amp import autocast\nautocast()\n",
    "from torch.cuda.amp import autocast as ac\nac(enabled=False)\n",
    "from torch.cuda.amp.autocast_mode import autocast\nautocast()\n",
]


@pytest.mark.parametrize("text", AUTOCAST)
def test_the_import_and_the_use_are_findings_of_their_own(text: str) -> None:
    assert codes(text) == [(1, "AMP101"), (2, "AMP101")]


@pytest.mark.parametrize(
    "text",
    [
        "from torch.cuda import amp\namp.autocast()\n",
        "import torch.cuda.amp as amp\namp.autocast()\n",
        "import torch.cuda.amp\ntorch.cuda.amp.autocast()\n",
        "from torch.cuda.amp import autocast_mode\nautocast_mode.autocast()\n",
    ],
)
def test_an_import_of_the_module_is_the_module_rules(text: str) -> None:
    assert codes(text) == [(1, "AMP107"), (2, "AMP101")]


@pytest.mark.parametrize(
    "use",
    [
        "torch.cuda.amp.GradScaler()",
        "torch.cuda.amp.grad_scaler.GradScaler()",
        "scaler: torch.cuda.amp.GradScaler = None",
        "isinstance(scaler, torch.cuda.amp.GradScaler)",
        "make = torch.cuda.amp.GradScaler",
        "def f(scaler: torch.cuda.amp.GradScaler = None): pass",
        "def f(make=torch.cuda.amp.GradScaler): pass",
        "class Mine(torch.cuda.amp.GradScaler): pass",
        "x = {'scaler': torch.cuda.amp.GradScaler}",
        "x = lambda: torch.cuda.amp.GradScaler()",
        "x = [torch.cuda.amp.GradScaler() for _ in range(2)]",
        "torch.cuda.amp.GradScaler.scale(scaler, loss)",
    ],
)
def test_a_scaler_is_found_wherever_it_is_named(use: str) -> None:
    assert codes(f"import torch\n{use}\n") == [(2, "AMP102")]


def test_names_of_a_submodule_are_found_through_it() -> None:
    text = """
    from torch.cuda import amp
    from torch.cuda.amp import grad_scaler
    one, two = amp.grad_scaler.GradScaler(), grad_scaler.OptState
    """
    assert codes(text) == [(1, "AMP107"), (2, "AMP107"), (3, "AMP102"), (3, "AMP102")]


def test_a_local_import_is_found_in_its_function() -> None:
    text = """
    def train():
        from torch.cuda.amp import autocast
        with autocast():
            pass

    def other(autocast):
        with autocast():
            pass
    """
    assert codes(text) == [(2, "AMP101"), (3, "AMP101")]


def test_a_star_import_and_what_comes_from_it_are_found() -> None:
    text = "from torch.cuda.amp import *\nwith autocast():\n    scaler = GradScaler()\n"
    assert codes(text) == [(1, "AMP107"), (2, "AMP101"), (3, "AMP102")]


def test_a_name_that_the_module_defines_itself_hides_the_star_import() -> None:
    text = "from torch.cuda.amp import *\ndef autocast(): pass\nautocast()\n"
    assert codes(text) == [(1, "AMP107")]


def test_the_severity_follows_the_target() -> None:
    text = AUTOCAST[0]
    assert {f.severity for f in found(text)} == {Severity.ERROR}
    assert {f.severity for f in found(text, target="cuda")} == {Severity.WARNING}


def test_an_alias_of_the_configuration_is_followed() -> None:
    text = "from mycorp.amp import half_autocast\nhalf_autocast()\n"
    assert codes(text) == []
    aliases = (("mycorp.amp.half_autocast", "torch.cuda.amp.autocast"),)
    assert codes(text, aliases=aliases) == [(1, "AMP101"), (2, "AMP101")]


# Text and other people's names


@pytest.mark.parametrize(
    "text",
    [
        '"""torch.cuda.amp.autocast()"""\n',
        "# from torch.cuda.amp import autocast\n",
        "import warnings\nwarnings.filterwarnings('ignore', '.*torch.cuda.amp.autocast.*')\n",
        "options = {'torch.cuda.amp': 1, 'autocast': 2}\noptions['autocast']\n",
        "class C:\n    CUDA = 'torch.cuda.amp'\n    autocast = 1\nC.CUDA, C.autocast\n",
        "log('GradScaler of torch.cuda.amp at', model.cuda.amp.GradScaler)\n",
        "from apex import amp\namp.initialize()\n",
        "from torch import amp\namp.autocast(device)\n",
        "from fairseq.optim import GradScaler\nGradScaler()\n",
        "class GradScaler:\n    def __init__(self, enabled): pass\nGradScaler(True)\n",
        "class autocast:\n    pass\nautocast(enabled=True)\n",
        "def custom_fwd(f): return f\n@custom_fwd\ndef forward(ctx): pass\n",
        "from .torch.cuda.amp import autocast\nautocast()\n",
        "from mytorch.cuda.amp import autocast\nautocast()\n",
        "import torch.cuda\ntorch.cuda.empty_cache()\n",
        "self.torch.cuda.amp.autocast()\n",
    ],
)
def test_text_and_names_of_others_are_silent(text: str) -> None:
    assert codes(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.cuda.amp = torch.xpu.amp\n",
        "import torch\ntorch.cuda.amp.autocast = mine\n",
        "import torch\ntorch.cuda.amp.GradScaler.step = step\n",
        "import torch\ntorch.cuda.amp.autocast, other = mine, 1\n",
        "import torch\ndel torch.cuda.amp.autocast\n",
    ],
)
def test_a_monkey_patch_is_silent(text: str) -> None:
    assert codes(text) == []


# Guards


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    from torch.amp import GradScaler\n"
        "except ImportError:\n    from torch.cuda.amp import GradScaler\n",
        "try:\n    from torch import amp\n"
        "except (ImportError, AttributeError):\n    from torch.cuda import amp\n",
        "try:\n    import torch_npu\nexcept ImportError:\n    from torch.cuda.amp import autocast\n",
        "try:\n    from torch.amp import autocast\nexcept:\n    from torch.cuda.amp import autocast\n",
        "try:\n    from torch.cuda.amp import autocast\n"
        "except ImportError:\n    from torch_npu.npu.amp import autocast\n",
    ],
)
def test_an_arm_of_an_import_with_a_fallback_is_silent(text: str) -> None:
    assert codes(text + "x = 1\n") == []


@pytest.mark.parametrize("use", ["GradScaler()", "isinstance(x, GradScaler)"])
def test_uses_of_a_name_with_a_fallback_are_silent(use: str) -> None:
    text = f"""
    try:
        from torch.amp import GradScaler
    except ImportError:
        from torch.cuda.amp import GradScaler
    {use}
    """
    assert [c for c in codes(text) if c[1] == "AMP102"] == []


@pytest.mark.parametrize(
    "test, silent",
    [
        ("version.parse(torch.__version__) < version.parse('2.4')", "body"),
        ("version.parse(torch.__version__) >= version.parse('2.4')", "else"),
        ("TORCH_VERSION <= (2, 3)", "body"),
        ("is_torch_greater_or_equal('2.4')", "else"),
        ("not hasattr(torch.amp, 'GradScaler')", "body"),
        ("hasattr(torch, 'autocast')", "else"),
    ],
)
def test_the_arm_for_an_older_torch_is_silent(test: str, silent: str) -> None:
    arms = {"body": "x = 1", "else": "x = 1"} | {silent: "x = torch.cuda.amp.GradScaler()"}
    text = f"if {test}:\n    {arms['body']}\nelse:\n    {arms['else']}\n"
    assert codes(f"import torch\n{text}") == []


def test_a_version_check_without_another_arm_for_newer_releases_is_no_guard() -> None:
    text = "import torch\nif torch.__version__ >= '1.6':\n    from torch.cuda.amp import autocast\n"
    assert codes(text) == [(3, "AMP101")]


@pytest.mark.parametrize(
    "text",
    [
        "if device.type == 'npu':\n    c = torch.npu.amp.autocast()\n"
        "else:\n    c = torch.cuda.amp.autocast()\n",
        "if device.type == 'cuda':\n    c = torch.cuda.amp.autocast()\n"
        "elif is_npu:\n    c = torch_npu.amp()\n",
        "if is_cuda:\n    c = torch.cuda.amp.autocast()\nelse:\n    c = torch.autocast(device.type)\n",
        "c = torch_npu.npu.amp.autocast() if npu else torch.cuda.amp.autocast()\n",
        "c = {'npu': torch.npu.amp.autocast, 'cuda': torch.cuda.amp.autocast}[kind]\n",
        "def f():\n    if npu_available():\n        return 1\n    return torch.cuda.amp.autocast()\n",
        "if x == 'cpu':\n    pass\nelif x == 'xpu':\n"
        "    c = torch.xpu.amp\nelse:\n    c = torch.autocast('cuda')\n",
        "s = torch.amp.GradScaler('npu') if npu else torch.amp.GradScaler('cuda')\n",
    ],
)
def test_the_cuda_arm_of_a_dispatch_that_serves_npu_is_silent(text: str) -> None:
    assert codes(f"import torch\n{text}") == []


@pytest.mark.parametrize(
    "text",
    [
        "c = torch.cuda.amp.autocast() if torch.cuda.is_available() else None\n",
        "c = contextlib.nullcontext() if cpu else torch.cuda.amp.autocast()\n",
        "if is_cuda:  c = torch.cuda.amp.autocast()\nelse: c = torch.cpu.amp.autocast()\n",
        "c = {'cpu': None, 'cuda': torch.cuda.amp.autocast}[kind]\n",
        "if device.type == 'cuda': c = torch.autocast('cuda')\n"
        "elif device.type == 'cpu': c = nullcontext()\n",
    ],
)
def test_arms_for_the_cpu_or_nothing_are_no_dispatch(text: str) -> None:
    rows = [row for row, _ in codes(f"import torch\n{text}", select=["AMP101", "AMP104"])]
    assert rows == [2]


def test_a_fallback_that_sets_none_is_no_guard() -> None:
    text = """
    try:
        from torch.cuda.amp import autocast
    except ImportError:
        autocast = None
    """
    assert codes(text) == [(2, "AMP101")]


def test_under_transfer_to_npu_what_it_patches_is_information() -> None:
    text = """
    import torch
    from torch_npu.contrib import transfer_to_npu
    from torch.cuda.amp import autocast
    with autocast(), torch.autocast("cuda"):
        scaler = torch.amp.GradScaler()
    """
    assert [(f.code, f.severity) for f in found(text)] == [
        ("AMP101", Severity.INFO),
        ("AMP101", Severity.INFO),
        ("AMP104", Severity.INFO),
        ("AMP105", Severity.INFO),
    ]


def test_under_transfer_to_npu_decorators_for_cuda_stay_errors() -> None:
    text = """
    import torch
    import torch_npu.contrib.transfer_to_npu
    forward = torch.amp.custom_fwd(device_type="cuda")
    """
    assert [(f.code, f.severity) for f in found(text)] == [("AMP103", Severity.ERROR)]


# The device-agnostic API with CUDA in it


@pytest.mark.parametrize(
    "call",
    [
        'torch.autocast("cuda")',
        'torch.autocast(device_type="cuda", dtype=torch.float16)',
        'torch.amp.autocast("cuda", enabled=False)',
        'torch.amp.autocast_mode.autocast(("cu" "da"))',
        'functools.partial(torch.autocast, "cuda")',
        'functools.partial(torch.autocast, device_type="cuda")',
    ],
)
def test_autocast_with_cuda_written_into_it_is_found(call: str) -> None:
    assert codes(f"import functools, torch\nx = {call}\n") == [(2, "AMP104")]


@pytest.mark.parametrize(
    "call",
    [
        'torch.autocast("npu")',
        "torch.autocast(device)",
        'torch.autocast("cpu", dtype=torch.bfloat16)',
        "torch.autocast(device_type=device.type)",
        "torch.autocast(*args)",
        "torch.autocast(**options)",
        "functools.partial(torch.autocast, device)",
        "functools.partial(torch.autocast)",
        'autocast("cuda")',
        'torch.device("cuda")',
        'torch.amp.is_autocast_available("cuda")',
    ],
)
def test_other_devices_and_other_calls_are_silent(call: str) -> None:
    assert codes(f"import functools, torch\nx = {call}\n") == []


def test_a_disabled_region_says_what_it_fails_to_protect() -> None:
    (finding,) = found('import torch\nx = torch.autocast("cuda", enabled=False)\n')
    assert "does not disable an NPU region" in finding.message


@pytest.mark.parametrize(
    "arguments", ["", '"cuda"', 'device="cuda"', "enabled=use_amp", "init_scale=2.0**10"]
)
def test_a_scaler_without_a_device_is_found(arguments: str) -> None:
    assert codes(f"import torch\nx = torch.amp.GradScaler({arguments})\n") == [(2, "AMP105")]


@pytest.mark.parametrize(
    "arguments", ['"npu"', "device", "device=device.type", "*args", "**options", "backend, 8.0"]
)
def test_a_scaler_with_a_device_is_silent(arguments: str) -> None:
    assert codes(f"import torch\nx = torch.amp.GradScaler({arguments})\n") == []


def test_half_migrated_files_are_found_on_both_sides() -> None:
    text = """
    import torch
    from torch.cuda.amp import GradScaler
    scaler = GradScaler()
    other = torch.amp.GradScaler("cuda")
    with torch.autocast(device.type):
        pass
    """
    assert codes(text) == [(2, "AMP102"), (3, "AMP102"), (4, "AMP105")]


# Arguments in the wrong place


@pytest.mark.parametrize(
    "call, rules",
    [
        ("torch.amp.GradScaler(use_amp)", ["AMP110"]),
        ("torch.amp.GradScaler(False)", ["AMP110"]),
        ("torch.amp.GradScaler(1024.0)", ["AMP110"]),
        ("torch.amp.GradScaler(not debug)", ["AMP110"]),
        ("torch.GradScaler(args.amp)", ["AMP110"]),
        ("torch.amp.GradScaler(device, True)", ["AMP110"]),
        ("torch.cuda.amp.GradScaler(use_amp)", ["AMP102", "AMP110"]),
        ("torch.cuda.amp.GradScaler(True)", ["AMP102", "AMP110"]),
        ("torch_npu.npu.amp.GradScaler(use_amp)", ["AMP110"]),
        ("torch_npu.npu.amp.GradScaler(65536.0, 2.0, 0.5, 2000, False)", ["AMP110"]),
    ],
)
def test_scaler_arguments_in_the_wrong_place_are_found(call: str, rules: list[str]) -> None:
    assert codes(f"import torch, torch_npu\nx = {call}\n") == [(2, rule) for rule in rules]


@pytest.mark.parametrize(
    "call",
    [
        "torch.amp.GradScaler(device.type, enabled=use_amp)",
        "torch.amp.GradScaler(device, 1024.0, 2.0, 0.5, 2000, use_amp)",
        "torch.amp.GradScaler(kind)",
        "torch_npu.npu.amp.GradScaler(65536.0, 2.0, 0.5, 2000)",
        "torch_npu.npu.amp.GradScaler(enabled=use_amp)",
        "GradScaler(use_amp)",
    ],
)
def test_scaler_arguments_in_their_place_are_silent(call: str) -> None:
    assert codes(f"import torch, torch_npu\nx = {call}\n") == []


@pytest.mark.parametrize("flag", ["True", "use_amp", "args.amp", "not debug", "epoch > 3", "self.enabled"])
def test_a_switch_in_the_place_of_the_dtype_is_found(flag: str) -> None:
    assert codes(f"import torch\nx = torch.autocast(device, {flag})\n") == [(2, "AMP111")]


@pytest.mark.parametrize(
    "dtype", ["torch.float16", "dtype", "amp_dtype", "self.dtype", "None", "DTYPES[kind]"]
)
def test_a_dtype_in_its_place_is_silent(dtype: str) -> None:
    assert codes(f"import torch\nx = torch.autocast(device, {dtype})\n") == []


def test_a_switch_that_is_assigned_a_dtype_is_a_dtype() -> None:
    assert codes("import torch\namp = torch.bfloat16\nx = torch.autocast(device, amp)\n") == []


@pytest.mark.parametrize("arguments", ["", "dtype=torch.float16", "enabled=use_amp", "cache_enabled=False"])
def test_autocast_without_a_device_is_found(arguments: str) -> None:
    assert codes(f"import torch\nx = torch.amp.autocast({arguments})\n") == [(2, "AMP113")]


@pytest.mark.parametrize(
    "text",
    [
        "x = torch.autocast(**options)",
        "x = torch.autocast(*args)",
        "x = torch.autocast(device_type=kind)",
        "x = torch.autocast",
        "region = functools.partial(torch.autocast, device)\nx = region()",
        "region = functools.partial(torch.autocast, device)\nother = region\nx = other(enabled=False)",
    ],
)
def test_autocast_whose_device_may_come_from_elsewhere_is_silent(text: str) -> None:
    assert codes(f"import functools, torch\n{text}\n") == []


# Suppressions


@pytest.mark.parametrize(
    "comment", ["# amplint: ignore[AMP101] CUDA only", "# noqa: AMP101", "# amplint: ignore"]
)
def test_a_suppressed_use_is_silent(comment: str) -> None:
    assert codes(f"import torch\nx = torch.cuda.amp.autocast()  {comment}\n") == []


def test_a_suppression_of_another_rule_silences_nothing() -> None:
    assert codes("import torch\nx = torch.cuda.amp.autocast()  # amplint: ignore[AMP102]\n") == [
        (2, "AMP101")
    ]
