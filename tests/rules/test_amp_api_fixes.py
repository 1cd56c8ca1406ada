"""What the ports of the AMP1 rules write, and what they leave alone."""

from __future__ import annotations

from textwrap import dedent

import pytest
from amp_cases import DEVICE, body, code, codes, fix, found, is_untouched, reasons

from amplint import check_source

# Arguments by name


@pytest.mark.parametrize(
    "before, after",
    [
        ("autocast()", "dtype=torch.float16"),
        ("autocast(True)", "dtype=torch.float16, enabled=True"),
        ("autocast(use_amp)", "dtype=torch.float16, enabled=use_amp"),
        ("autocast(enabled=use_amp)", "dtype=torch.float16, enabled=use_amp"),
        ("autocast(False)", "dtype=torch.float16, enabled=False"),
        ("autocast(dtype=torch.bfloat16)", "dtype=torch.bfloat16"),
        ("autocast(use_amp, dtype)", "enabled=use_amp, dtype=dtype"),
        ("autocast(True, torch.float16, False)", "enabled=True, dtype=torch.float16, cache_enabled=False"),
        ("autocast(cache_enabled=False)", "dtype=torch.float16, cache_enabled=False"),
        ("autocast((a and b))", "dtype=torch.float16, enabled=(a and b)"),
        ("autocast(use_amp,)", "dtype=torch.float16, enabled=use_amp,"),
    ],
)
def test_autocast_gets_its_arguments_by_name(before: str, after: str) -> None:
    text = f"import torch\nfrom torch.cuda.amp import autocast\nx = {before}\n"
    assert body(text) == f"import torch\nx = torch.autocast(AMP_DEVICE, {after})\n"


@pytest.mark.parametrize(
    "before, after",
    [
        ("GradScaler()", "AMP_DEVICE"),
        ("GradScaler(1024.0)", "AMP_DEVICE, init_scale=1024.0"),
        ("GradScaler(2.0**16, 2.0)", "AMP_DEVICE, init_scale=2.0**16, growth_factor=2.0"),
        ("GradScaler(init_scale, enabled=use_amp)", "AMP_DEVICE, init_scale=init_scale, enabled=use_amp"),
        ("GradScaler(enabled=use_amp)", "AMP_DEVICE, enabled=use_amp"),
        ("GradScaler(enabled=False)", "AMP_DEVICE, enabled=False"),
        (
            "GradScaler(1024.0, 2.0, 0.5, 2000, use_amp)",
            "AMP_DEVICE, init_scale=1024.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000,"
            " enabled=use_amp",
        ),
    ],
)
def test_the_scaler_gets_its_arguments_by_name(before: str, after: str) -> None:
    text = f"import torch\nfrom torch.cuda.amp import GradScaler\nx = {before}\n"
    assert body(text) == f"import torch\nx = torch.amp.GradScaler({after})\n"


@pytest.mark.parametrize(
    "call, why",
    [
        ("GradScaler(use_amp)", "only the author knows"),
        ("GradScaler(args.amp)", "only the author knows"),
        ("GradScaler(thing)", "cannot be told"),
        ("GradScaler('cuda')", "cannot be told"),
        ("GradScaler(*args)", "passed with * or **"),
        ("GradScaler(**options)", "passed with * or **"),
        ("GradScaler(dynamic=True)", "no parameter 'dynamic'"),
        ("GradScaler(1.0, 2.0, 0.5, 2000, True, None)", "more arguments"),
        ("[GradScaler]", "stored"),
        ("register(GradScaler)", "passed on as a value"),
        ("functools.partial(GradScaler, 1024.0)", "by position"),
    ],
)
def test_a_scaler_of_unclear_meaning_is_left_alone(call: str, why: str) -> None:
    text = f"import functools, torch\nfrom torch.cuda.amp import GradScaler\nx = {call}\n"
    assert is_untouched(text)
    assert any(why in reason for reason in reasons(text))


@pytest.mark.parametrize(
    "call, why",
    [
        ("autocast('cuda')", "not a device"),
        ("autocast(**options)", "passed with * or **"),
        ("autocast(device_type='cuda')", "no parameter"),
        ("autocast(True, d, False, 4)", "more arguments"),
        ("wrap(autocast)", "passed on as a value"),
        ("functools.partial(autocast, True)", "by position"),
    ],
)
def test_an_autocast_of_unclear_meaning_is_left_alone(call: str, why: str) -> None:
    text = f"import functools, torch\nfrom torch.cuda.amp import autocast\nx = {call}\n"
    assert is_untouched(text)
    assert any(why in reason for reason in reasons(text))


def test_one_use_that_cannot_be_rewritten_keeps_all_uses_and_the_import() -> None:
    text = """
    import torch
    from torch.cuda.amp import autocast, GradScaler
    with autocast(), autocast(**options):
        scaler = GradScaler()
    """
    assert body(text) == code("""
    import torch
    from torch.cuda.amp import autocast
    with autocast(), autocast(**options):
        scaler = torch.amp.GradScaler(AMP_DEVICE)
    """)


# Spellings


@pytest.mark.parametrize(
    "imported, name",
    [
        ("from torch.cuda.amp import autocast", "autocast"),
        ("from torch.cuda.amp import autocast as ac", "ac"),
        ("from torch.cuda.amp.autocast_mode import autocast", "autocast"),
        ("from torch.cuda import amp", "amp.autocast"),
        ("from torch.cuda import amp as mixed", "mixed.autocast"),
        ("import torch.cuda.amp as amp", "amp.autocast"),
        ("import torch.cuda.amp", "torch.cuda.amp.autocast"),
        ("from torch.cuda.amp import autocast_mode", "autocast_mode.autocast"),
        ("from torch import cuda", "cuda.amp.autocast"),
        ("from torch.cuda.amp import autocast\nfrom torch.cuda.amp import autocast", "autocast"),
    ],
)
def test_every_spelling_becomes_the_same_call(imported: str, name: str) -> None:
    text = f"import torch\n{imported}\nx = {name}(True)\n"
    kept = f"{imported}\n" if imported == "from torch import cuda" else ""
    call = "x = torch.autocast(AMP_DEVICE, dtype=torch.float16, enabled=True)\n"
    assert body(text) == f"import torch\n{kept}{call}"


@pytest.mark.parametrize(
    "imported",
    [
        "from torch.cuda import amp",
        "import torch.cuda.amp as amp",
        "import torch.cuda.amp\namp = torch.cuda.amp",
    ],
)
@pytest.mark.parametrize("style", ["torch", "shim"])
def test_a_module_alias_never_stands_before_the_module(imported: str, style: str) -> None:
    result = fix(f"{imported}\nx = amp.grad_scaler.GradScaler()\n", style=style)
    assert "amp.amp" not in result
    assert "amp.grad_scaler" not in result
    assert "amp.torch" not in result


@pytest.mark.parametrize(
    "imported",
    ["from torch.cuda.amp import autocast", "from torch import nn\nfrom torch.cuda.amp import autocast"],
)
def test_the_root_is_imported_where_it_was_not(imported: str) -> None:
    result = body(f"{imported}\nx = autocast()\n")
    assert result.startswith("import torch\n")
    assert "from torch.cuda" not in result


def test_the_root_under_another_name_is_used() -> None:
    text = "import torch as th\nfrom torch.cuda.amp import autocast\nx = autocast(True, th.bfloat16)\n"
    result = fix(text)
    assert "AMP_DEVICE = getattr(th.accelerator." in result
    assert "x = th.autocast(AMP_DEVICE, enabled=True, dtype=th.bfloat16)" in result


def test_an_import_of_another_module_called_torch_is_no_root() -> None:
    text = "from mycorp import torch\nfrom torch.cuda.amp import autocast\nx = autocast()\n"
    assert is_untouched(text)


def test_the_import_of_the_module_leaves_torch_bound() -> None:
    text = "import torch.cuda.amp\nx = torch.cuda.amp.autocast()\ny = torch.ones(1)\n"
    assert body(text) == code("""
    import torch
    x = torch.autocast(AMP_DEVICE, dtype=torch.float16)
    y = torch.ones(1)
    """)


def test_decorators_with_and_without_a_call() -> None:
    text = """
    import torch
    from torch.cuda.amp import autocast, custom_bwd, custom_fwd
    @autocast()
    def predict(x): pass
    @custom_fwd
    def forward(ctx): pass
    @custom_fwd(cast_inputs=torch.float32)
    def other(ctx): pass
    @custom_bwd
    def backward(ctx): pass
    """
    assert body(text) == code("""
    import torch
    @torch.autocast(AMP_DEVICE, dtype=torch.float16)
    def predict(x): pass
    @torch.amp.custom_fwd(device_type=AMP_DEVICE)
    def forward(ctx): pass
    @torch.amp.custom_fwd(cast_inputs=torch.float32, device_type=AMP_DEVICE)
    def other(ctx): pass
    @torch.amp.custom_bwd(device_type=AMP_DEVICE)
    def backward(ctx): pass
    """)


def test_autocast_as_a_decorator_without_a_call_is_left_alone() -> None:
    text = "import torch\n@torch.cuda.amp.autocast\ndef f(): pass\n"
    assert is_untouched(text)
    assert any("no function" in reason for reason in reasons(text))


def test_annotations_follow_the_class() -> None:
    text = """
    import torch
    from typing import Optional
    from torch.cuda.amp import GradScaler
    scaler: Optional[GradScaler] = None
    def train(scaler: GradScaler = None, *, other: "int" = 1) -> GradScaler:
        assert isinstance(scaler, GradScaler) and type(scaler) is GradScaler
    """
    assert body(text) == code("""
    import torch
    from typing import Optional
    scaler: Optional[torch.amp.GradScaler] = None
    def train(scaler: torch.amp.GradScaler = None, *, other: "int" = 1) -> torch.amp.GradScaler:
        assert isinstance(scaler, torch.amp.GradScaler) and type(scaler) is torch.amp.GradScaler
    """)


def test_an_import_that_an_annotation_as_text_needs_stays() -> None:
    text = """
    import torch
    from torch.cuda.amp import GradScaler
    def train(scaler: "GradScaler"):
        other = GradScaler()
    """
    assert body(text) == code("""
    import torch
    from torch.cuda.amp import GradScaler
    def train(scaler: "GradScaler"):
        other = torch.amp.GradScaler(AMP_DEVICE)
    """)


def test_partials_are_rewritten_by_name() -> None:
    text = """
    import torch
    from functools import partial
    half = partial(torch.cuda.amp.autocast, enabled=use_amp)
    with half():
        pass
    """
    assert body(text) == code("""
    import torch
    from functools import partial
    half = partial(torch.autocast, AMP_DEVICE, dtype=torch.float16, enabled=use_amp)
    with half():
        pass
    """)


def test_a_partial_of_a_stored_callable_is_no_new_finding() -> None:
    text = "import torch\nac = torch.cuda.amp.autocast\nwith ac(enabled=False):\n    pass\n"
    result = fix(text)
    assert "ac = functools.partial(torch.autocast, AMP_DEVICE, dtype=torch.float16)\n" in result
    assert codes(result) == []


@pytest.mark.parametrize(
    "calls, safe",
    [("ac()", True), ("ac(enabled=x)", True), ("ac(True)", False), ("pass", False), ("ac(**kw)", False)],
)
def test_a_stored_callable_is_safe_only_when_all_calls_are_by_keyword(calls: str, safe: bool) -> None:
    text = f"import torch\nac = torch.cuda.amp.autocast\n{calls}\n"
    assert is_untouched(text, unsafe=False) is not safe


def test_a_class_attribute_is_no_partial() -> None:
    assert is_untouched("import torch\nclass C:\n    region = torch.cuda.amp.autocast\n")


def test_a_subclass_keeps_its_base_and_the_import() -> None:
    text = """
    import torch
    from torch.cuda.amp import GradScaler
    class Mine(GradScaler):
        pass
    scaler = GradScaler()
    """
    assert is_untouched(text)


def test_items_of_one_with_statement_are_rewritten_together() -> None:
    text = (
        "import torch\n"
        "with torch.cuda.amp.autocast(False), torch.no_grad(), torch.cuda.amp.autocast(): pass\n"
    )
    assert body(text) == (
        "import torch\nwith torch.autocast(AMP_DEVICE, dtype=torch.float16, enabled=False), torch.no_grad(),"
        " torch.autocast(AMP_DEVICE, dtype=torch.float16): pass\n"
    )


def test_a_local_import_goes_with_its_uses() -> None:
    text = """
    import torch
    def train():
        from torch.cuda.amp import autocast
        with autocast(): pass
    def prepare():
        from torch.cuda.amp import autocast
    """
    assert body(text) == code("""
    import torch
    def train():
        with torch.autocast(AMP_DEVICE, dtype=torch.float16): pass
    def prepare():
        pass
    """)


def test_torch_that_is_imported_in_the_function_only_is_left_alone() -> None:
    text = "def f():\n    import torch\n    from torch.cuda.amp import autocast\n    with autocast(): pass\n"
    assert is_untouched(text)
    assert any("not imported at the top" in reason for reason in reasons(text))


@pytest.mark.parametrize("guard", ["if FAST:", "try:"])
def test_torch_that_is_imported_under_a_condition_is_left_alone(guard: str) -> None:
    end = "except ImportError:\n    pass\n" if guard == "try:" else ""
    text = f"{guard}\n    import torch\n{end}def f():\n    return torch.cuda.amp.autocast()\n"
    assert is_untouched(text)


def test_a_star_import_is_left_alone() -> None:
    text = "import torch\nfrom torch.cuda.amp import *\nwith autocast(): pass\n"
    assert is_untouched(text)
    assert reasons(text) == {
        "names from a star import cannot be told apart",
        "line 3: it comes from a star import",
    }


@pytest.mark.parametrize("exports", ['["autocast"]', '("autocast", "train")'])
def test_an_exported_name_stays_and_its_uses_change(exports: str) -> None:
    text = f"import torch\nfrom torch.cuda.amp import autocast\n__all__ = {exports}\nx = autocast()\n"
    assert body(text) == (
        f"import torch\nfrom torch.cuda.amp import autocast\n__all__ = {exports}\n"
        "x = torch.autocast(AMP_DEVICE, dtype=torch.float16)\n"
    )
    assert "__all__ exports autocast" in reasons(text)


def test_a_package_may_offer_what_it_imports() -> None:
    text = "from torch.cuda.amp import autocast\n"
    assert is_untouched(text, filename="pkg/__init__.py")
    assert fix(text, filename="pkg/train.py") == ""


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    from torch.cuda.amp import autocast\nexcept ImportError:\n"
        "    autocast = None\nx = autocast()\n",
        "if cuda:\n    from torch.cuda.amp import autocast\nelse:\n    autocast = cpu\nx = autocast()\n",
        "from torch.cuda.amp import autocast\ndef autocast(): pass\nx = autocast()\n",
        "from torch.cuda.amp import autocast\nautocast = wrap(autocast)\nx = autocast()\n",
    ],
)
def test_a_name_with_several_meanings_is_left_alone(text: str) -> None:
    assert is_untouched(f"import torch\n{text}")


@pytest.mark.parametrize(
    "patch",
    ["torch.cuda.amp = mine", "torch.cuda.amp.autocast = mine", "torch.cuda.amp.autocast.__init__ = mine"],
)
def test_a_patched_module_is_left_alone(patch: str) -> None:
    text = f"import torch\n{patch}\nx = torch.cuda.amp.autocast()\n"
    assert is_untouched(text)
    assert any("line 2 patches torch.cuda.amp" in reason for reason in reasons(text))


def test_other_attributes_called_cuda_are_left_alone() -> None:
    text = """
    import torch
    class C:
        CUDA = "torch.cuda.amp"
        cuda = {"torch.cuda.amp.autocast": 1}
    def f(model):
        '''torch.cuda.amp.autocast(True)'''
        model.cuda().amp, C.CUDA, torch.cuda.nvtx.range_push("torch.cuda.amp")  # torch.cuda.amp.autocast
        return torch.cuda.amp.autocast()
    """
    result = body(text)
    assert result == code(text).replace(
        "return torch.cuda.amp.autocast()", "return torch.autocast(AMP_DEVICE, dtype=torch.float16)"
    )


def test_a_guarded_use_keeps_the_import() -> None:
    text = """
    import torch
    from torch.cuda.amp import autocast
    def region(device):
        if device.type == "npu":
            return torch.npu.amp.autocast()
        return autocast()
    with autocast():
        pass
    """
    assert body(text) == code("""
    import torch
    from torch.cuda.amp import autocast
    def region(device):
        if device.type == "npu":
            return torch.npu.amp.autocast()
        return autocast()
    with torch.autocast(AMP_DEVICE, dtype=torch.float16):
        pass
    """)


@pytest.mark.parametrize("style", ["torch", "shim"])
def test_a_suppressed_use_is_not_rewritten_and_keeps_its_import(style: str) -> None:
    text = """
    import torch
    from torch.cuda.amp import GradScaler, autocast
    x = autocast()  # amplint: ignore[AMP101] measures CUDA
    y = GradScaler()
    """
    result = fix(text, style=style)
    assert "from torch.cuda.amp import autocast\n" in result
    assert "x = autocast()  # amplint: ignore[AMP101] measures CUDA\n" in result
    assert "y = GradScaler()" not in result or "runtime import GradScaler" in result


def test_a_rule_that_may_not_fix_keeps_what_it_is_about() -> None:
    text = "import torch\nfrom torch.cuda.amp import GradScaler, autocast\nx, y = autocast(), GradScaler()\n"
    assert body(text, unfixable=("AMP102",)) == (
        "import torch\nfrom torch.cuda.amp import GradScaler\n"
        "x, y = torch.autocast(AMP_DEVICE, dtype=torch.float16), GradScaler()\n"
    )


# The device


def test_a_device_that_is_there_is_used() -> None:
    text = f"import torch\n{DEVICE.replace('AMP_DEVICE', 'KIND')}x = torch.cuda.amp.autocast()\n"
    assert fix(text).endswith("x = torch.autocast(KIND, dtype=torch.float16)\n")


@pytest.mark.parametrize("taken", ["AMP_DEVICE = 1", "def f(AMP_DEVICE): pass", "print(AMP_DEVICE)"])
def test_a_taken_name_is_not_used_for_the_device(taken: str) -> None:
    result = fix(f"import torch\nx = torch.cuda.amp.autocast()\n{taken}\n")
    assert "x = torch.autocast(AMP_DEVICE_TYPE, dtype=torch.float16)" in result


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nx = torch.cuda.amp.autocast()\nimport os\n",
        "def f(): pass\nimport torch\n@torch.cuda.amp.autocast()\ndef g(): pass\nimport os\n",
        "'''doc'''\nfrom __future__ import annotations\nimport os\nos.x = 1\nimport torch\n"
        "x = torch.cuda.amp.autocast()\n",
        "import torch\ntry:\n    import torch_npu\nexcept ImportError:\n    torch_npu = None\n"
        "x = torch.cuda.amp.autocast()\n",
        "from torch import nn\nclass C:\n    def f(self, y=1): pass\n"
        "import torch\nx = torch.cuda.amp.autocast()\n",
    ],
)
def test_the_device_is_defined_between_the_import_of_torch_and_its_first_use(text: str) -> None:
    lines = fix(text).splitlines()
    defined = next(i for i, line in enumerate(lines) if line.startswith("AMP_DEVICE ="))
    used = next(i for i, line in enumerate(lines) if "torch.autocast(" in line)
    assert lines.index("import torch") < defined < used
    assert not any("import torch_npu" in line for line in lines[defined:])


def test_the_device_definition_does_not_initialise_the_driver_before_the_module_chooses_its_devices() -> None:
    choice = 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"'
    result = fix(f"import os\nimport torch\n{choice}\nx = torch.cuda.amp.autocast()\n")
    assert "check_available" not in result
    assert "is_available" not in result


# By release


def test_before_2_7_the_device_is_found_without_torch_accelerator() -> None:
    result = fix("import torch\nx = torch.cuda.amp.GradScaler()\n", torch=(2, 4))
    assert 'AMP_DEVICE = "npu" if hasattr(torch, "npu") else "cuda"\n' in result
    assert "x = torch.amp.GradScaler(AMP_DEVICE)\n" in result


ALL = """
import torch
from torch.cuda.amp import GradScaler, autocast, custom_fwd
x, y, z = autocast(), GradScaler(), custom_fwd(cast_inputs=None)
"""


@pytest.mark.parametrize(
    "release, stays",
    [
        ((2, 4), []),
        ((2, 3), ["custom_fwd"]),
        ((2, 2), ["GradScaler", "custom_fwd"]),
        ((2, 0), ["GradScaler", "custom_fwd"]),
        ((1, 9), ["GradScaler", "autocast", "custom_fwd"]),
    ],
)
def test_what_a_release_does_not_have_is_not_written(release: tuple[int, int], stays: list[str]) -> None:
    result = fix(ALL, torch=release)
    kept = f"from torch.cuda.amp import {', '.join(stays)}\n"
    assert (kept in result) if stays else ("torch.cuda" not in result)
    assert "torch.accelerator" not in result


@pytest.mark.parametrize("release", [(2, 0), (2, 2), (2, 4), (2, 6)])
def test_auto_is_the_shim_below_2_7(release: tuple[int, int]) -> None:
    expected = ALL.lstrip("\n").replace("torch.cuda.amp", "amplint.runtime")
    assert fix(ALL, style="auto", torch=release) == expected


def test_auto_is_the_shim_on_a_chip_that_saturates() -> None:
    assert "amplint.runtime" in fix(ALL, style="auto", soc="910A")
    assert "amplint.runtime" not in fix(ALL, style="auto")


# The shim


@pytest.mark.parametrize(
    "before, after",
    [
        ("from torch.cuda.amp import autocast", "from amplint.runtime import autocast"),
        ("from torch.cuda.amp import autocast as ac", "from amplint.runtime import autocast as ac"),
        ("from torch.cuda.amp.autocast_mode import autocast", "from amplint.runtime import autocast"),
        ("from torch.cuda import amp", "from amplint import runtime as amp"),
        ("import torch.cuda.amp as amp", "import amplint.runtime as amp"),
        (
            "import torch; from torch.cuda.amp import autocast",
            "import torch; from amplint.runtime import autocast",
        ),
        (
            "try: from torch.cuda.amp import autocast\nexcept ImportError: raise",
            "try: from amplint.runtime import autocast\nexcept ImportError: raise",
        ),
        (
            "def f():\n    from torch.cuda.amp import autocast\n    return autocast(True)",
            "def f():\n    from amplint.runtime import autocast\n    return autocast(True)",
        ),
    ],
)
def test_the_shim_changes_the_import_in_its_place(before: str, after: str) -> None:
    assert fix(f"{before}  # noqa: F401\n", style="shim") == f"{after}  # noqa: F401\n"


@pytest.mark.parametrize(
    "use",
    [
        "GradScaler(1024.0, *args)",
        "GradScaler(**options)",
        "register(GradScaler)",
        "functools.partial(GradScaler, 1024.0)",
        "[GradScaler]",
    ],
)
def test_the_shim_keeps_uses_as_they_are(use: str) -> None:
    text = f"from torch.cuda.amp import GradScaler\nx = {use}\nclass Mine(GradScaler): pass\n"
    assert fix(text, style="shim") == text.replace("torch.cuda.amp", "amplint.runtime")


def test_the_shim_keeps_exports_and_fallbacks() -> None:
    text = """
    __all__ = ["autocast"]
    try:
        from torch.cuda.amp import GradScaler, autocast
    except ImportError:
        GradScaler = autocast = None
    def f(scaler: "GradScaler"): pass
    """
    assert fix(text, style="shim") == code(text).replace("torch.cuda.amp", "amplint.runtime")


def test_the_shim_has_no_submodules() -> None:
    text = "from torch.cuda import amp\nx, y = amp.grad_scaler.GradScaler(), amp.autocast()\n"
    expected = "from amplint import runtime as amp\nx, y = amp.GradScaler(), amp.autocast()\n"
    assert fix(text, style="shim") == expected


def test_chains_from_torch_use_the_shim_by_its_module() -> None:
    text = "import torch\nwith torch.cuda.amp.autocast(True):\n    runtime_of = 1\n"
    expected = "from amplint import runtime\nimport torch\nwith runtime.autocast(True):\n    runtime_of = 1\n"
    assert fix(text, style="shim") == expected


def test_a_taken_name_is_not_used_for_the_shim() -> None:
    text = "import torch\ndef f(runtime):\n    return torch.cuda.amp.autocast()\n"
    expected = (
        "from amplint import runtime as amp_runtime\nimport torch\ndef f(runtime):\n"
        "    return amp_runtime.autocast()\n"
    )
    assert fix(text, style="shim") == expected


def test_names_that_stay_are_imported_from_where_they_were() -> None:
    text = """
    import torch
    from torch.cuda import Event, amp
    from torch.cuda.amp import (
        custom_fwd,  # amplint: ignore[AMP103] CUDA kernels
        autocast,  # casts
    )
    x = amp.autocast(), autocast()
    """
    assert fix(text, style="shim") == code("""
    import torch
    from amplint import runtime as amp
    from torch.cuda import Event
    from amplint.runtime import autocast
    from torch.cuda.amp import (
        custom_fwd,  # amplint: ignore[AMP103] CUDA kernels
    )
    x = amp.autocast(), autocast()
    """)


@pytest.mark.parametrize(
    "module, imported, chain",
    [
        ("mycorp.amp_shim", "from mycorp.amp_shim import autocast", "from mycorp import amp_shim"),
        ("amp_shim", "from amp_shim import autocast", "import amp_shim"),
        ("a.b.amp_shim", "from a.b.amp_shim import autocast", "from a.b import amp_shim"),
    ],
)
def test_the_shim_can_be_the_projects_own_copy(module: str, imported: str, chain: str) -> None:
    text = "import torch\nfrom torch.cuda.amp import autocast\nx = autocast(), torch.cuda.amp.autocast()\n"
    expected = f"{chain}\nimport torch\n{imported}\nx = autocast(), amp_shim.autocast()\n"
    assert fix(text, style="shim", shim_module=module) == expected


# The device-agnostic API with CUDA in it


@pytest.mark.parametrize(
    "before, after",
    [
        ('torch.autocast("cuda")', "torch.autocast(AMP_DEVICE)"),
        ('torch.autocast(("cuda"))', "torch.autocast((AMP_DEVICE))"),
        ('torch.autocast("cuda", enabled=False)', "torch.autocast(AMP_DEVICE, enabled=False)"),
        ('torch.autocast("cuda", torch.bfloat16)', "torch.autocast(AMP_DEVICE, torch.bfloat16)"),
        ('torch.autocast(device_type="cuda")', "torch.autocast(device_type=AMP_DEVICE)"),
        ('torch.amp.autocast("cuda", dtype=d)', "torch.amp.autocast(AMP_DEVICE, dtype=d)"),
        ('torch.autocast("cuda", **kw)', "torch.autocast(AMP_DEVICE, **kw)"),
        ("torch.amp.GradScaler()", "torch.amp.GradScaler(AMP_DEVICE)"),
        ('torch.amp.GradScaler("cuda", 8.0)', "torch.amp.GradScaler(AMP_DEVICE, 8.0)"),
        ("torch.amp.GradScaler(enabled=e)", "torch.amp.GradScaler(AMP_DEVICE, enabled=e)"),
        ('torch.amp.custom_bwd(device_type="cuda")', "torch.amp.custom_bwd(device_type=AMP_DEVICE)"),
    ],
)
def test_a_device_that_is_written_in_is_replaced(before: str, after: str) -> None:
    assert body(f"import torch\nx = {before}\n") == f"import torch\nx = {after}\n"


@pytest.mark.parametrize(
    "before, after",
    [
        ("torch.autocast(d, True)", "torch.autocast(d, enabled=True)"),
        ("torch.autocast(d, use_amp)", "torch.autocast(d, enabled=use_amp)"),
        (
            "torch.autocast(d, (a == b), cache_enabled=c)",
            "torch.autocast(d, enabled=(a == b), cache_enabled=c)",
        ),
        ("torch.autocast()", "torch.autocast(AMP_DEVICE)"),
        ("torch.autocast(dtype=d)", "torch.autocast(AMP_DEVICE, dtype=d)"),
        ("torch.autocast(enabled=False)", "torch.autocast(AMP_DEVICE, enabled=False)"),
        ("torch.amp.GradScaler(use_amp)", "torch.amp.GradScaler(AMP_DEVICE, enabled=use_amp)"),
        ("torch.amp.GradScaler(2.0**10)", "torch.amp.GradScaler(AMP_DEVICE, init_scale=2.0**10)"),
        ("torch.amp.GradScaler(d, False)", "torch.amp.GradScaler(d, enabled=False)"),
        ("torch.cuda.amp.GradScaler(False)", "torch.amp.GradScaler(AMP_DEVICE, enabled=False)"),
    ],
)
def test_a_repair_names_the_argument_that_was_meant(before: str, after: str) -> None:
    text = f"import torch\nx = {before}\n"
    assert body(text, repair=True) == f"import torch\nx = {after}\n"
    if "cuda" not in before:
        assert is_untouched(text)


@pytest.mark.parametrize(
    "flag, safe", [("True", True), ("not debug", True), ("use_amp", False), ("args.amp", False)]
)
def test_a_repair_of_a_mere_name_is_unsafe(flag: str, safe: bool) -> None:
    text = f"import torch\nx = torch.autocast(d, {flag})\n"
    assert is_untouched(text, repair=True, unsafe=False) is not safe


@pytest.mark.parametrize(
    "call",
    [
        "torch.autocast(d, True, enabled=x)",
        "torch.autocast(d, True, True)",
        "torch.amp.GradScaler(use_amp, 1024.0)",
        "torch.amp.GradScaler(use_amp, enabled=True)",
        "torch_npu.npu.amp.GradScaler(8.0, 2.0, 0.5, 2000, False)",
    ],
)
def test_a_repair_with_two_readings_is_not_made(call: str) -> None:
    assert is_untouched(f"import torch, torch_npu\nx = {call}\n", repair=True)


def test_every_finding_has_a_fix_or_a_reason() -> None:
    text = """
    import torch
    from torch.cuda.amp import *
    from torch.cuda.amp import autocast, GradScaler
    from torch.cuda import amp
    x = autocast(), GradScaler(use_amp), amp.autocast(*a), amp.common, torch.autocast("cuda", True)
    """
    for style in ("torch", "shim"):
        assert all((f.fix is None) == bool(f.no_fix_reason) for f in found(text, style=style))


# Text


CRLF = "import torch\r\nfrom torch.cuda.amp import autocast\r\ndef f():\r\n\twith autocast():\r\n\t\tpass"
FEED = (
    "import torch\n\x0c\nfrom torch.cuda.amp import autocast  # c\n\x0c\n"
    "def f():\n    with autocast(): pass\n\x0c\n"
)


def test_crlf_tabs_and_a_missing_final_newline_stay() -> None:
    device = DEVICE.replace("\n", "\r\n")
    assert fix(CRLF) == (
        f"import torch\r\n\r\n{device}\r\ndef f():\r\n"
        "\twith torch.autocast(AMP_DEVICE, dtype=torch.float16):\r\n\t\tpass"
    )
    assert fix(CRLF, style="shim") == CRLF.replace("torch.cuda.amp", "amplint.runtime")


def test_form_feeds_stay() -> None:
    assert fix(FEED, style="shim") == FEED.replace("torch.cuda.amp", "amplint.runtime")
    result = fix(FEED)
    assert result.count("\x0c") == 3
    assert "def f():\n    with torch.autocast(AMP_DEVICE, dtype=torch.float16): pass\n\x0c\n" in result


def test_a_byte_order_mark_stays() -> None:
    text = "\ufeffimport torch\nfrom torch.cuda.amp import autocast\nx = autocast()\n"
    assert fix(text, style="shim") == text.replace("torch.cuda.amp", "amplint.runtime")
    assert fix(text).startswith("\ufeffimport torch\n\n# Device")


def test_comments_inside_arguments_stay() -> None:
    text = """
    import torch
    x = torch.cuda.amp.GradScaler(  # the scaler
        # starts low
        1024.0,  # 2**10

        enabled = use_amp , # by flag
        # end
    )
    """
    assert body(text) == code("""
    import torch
    x = torch.amp.GradScaler(  # the scaler
        # starts low
        AMP_DEVICE, init_scale=1024.0,  # 2**10

        enabled = use_amp , # by flag
        # end
    )
    """)


@pytest.mark.parametrize(
    "before, after",
    [
        ("(\n    GradScaler,  # one\n    autocast,  # two\n)", "(\n    GradScaler,  # one\n)"),
        ("(\n    GradScaler,  # one\n    autocast  # two\n)", "(\n    GradScaler,  # one\n)"),
        ("(\n    autocast,  # two\n    # three\n    GradScaler,\n)", "(\n    # three\n    GradScaler,\n)"),
        ("(\n    autocast, GradScaler,\n)", "(\n    GradScaler,\n)"),
        ("(GradScaler, autocast,\n    )", "(GradScaler,\n    )"),
        ("(GradScaler, autocast)", "(GradScaler)"),
        ("autocast, GradScaler", "GradScaler"),
        ("GradScaler, \\\n    autocast", "GradScaler"),
        ("autocast, \\\n    GradScaler", "GradScaler"),
    ],
)
def test_the_layout_of_names_that_stay_is_kept(before: str, after: str) -> None:
    text = f"import torch\nfrom torch.cuda.amp import {before}\nx = autocast()\n"
    expected = (
        f"import torch\nfrom torch.cuda.amp import {after}\n"
        "x = torch.autocast(AMP_DEVICE, dtype=torch.float16)\n"
    )
    assert body(text, select=["AMP101"]) == expected


@pytest.mark.parametrize("style", ["torch", "shim"])
def test_every_result_is_silent_and_stable(style: str) -> None:
    result = fix(ALL, style=style)
    assert check_source(result, "train.py", select=["AMP1"], target="npu", style=style) == []
    assert fix(result, style=style) == result


def test_a_block_does_not_begin_with_the_empty_row_that_followed_an_import() -> None:
    text = """
    import torch
    def f(x):
        from torch.cuda.amp import autocast

        with autocast():
            return x
    """
    result = fix(dedent(text).lstrip())
    assert "def f(x):\n    with torch.autocast(AMP_DEVICE, dtype=torch.float16):\n" in result
    kept = fix(
        "import torch\ndef f(x):\n    'text'\n    from torch.cuda.amp import autocast\n\n    autocast()\n"
    )
    assert "    'text'\n\n    torch.autocast(" in kept
