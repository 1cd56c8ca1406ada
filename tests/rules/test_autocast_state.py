"""AMP106: the autocast state read or set without a device."""

from __future__ import annotations

import pytest
from amp_cases import body, codes, fix, found, is_untouched, reasons

SELECT = ["AMP106"]


def rows(text: str) -> list[int]:
    return [row for row, _ in codes(text, select=SELECT)]


@pytest.mark.parametrize(
    "imported, call",
    [
        ("import torch", "torch.is_autocast_enabled()"),
        ("import torch as t", "t.get_autocast_gpu_dtype()"),
        ("from torch import is_autocast_enabled", "is_autocast_enabled()"),
        ("from torch import is_autocast_enabled as on", "on()"),
        ("import torch", "torch.set_autocast_enabled(flag)"),
        ("import torch", "torch.set_autocast_gpu_dtype(torch.bfloat16)"),
        ("import torch", "torch.is_autocast_enabled('cuda')"),
        ("import torch", "torch.get_autocast_dtype('cuda')"),
        ("import torch", "torch.set_autocast_enabled('cuda', False)"),
        ("import torch", "torch.set_autocast_dtype('cuda', d)"),
        ("import torch\nis_on = torch.is_autocast_enabled", "is_on()"),
    ],
)
def test_state_of_cuda_is_found_however_it_is_spelled(imported: str, call: str) -> None:
    assert rows(f"{imported}\nx = {call}\n") == [imported.count("\n") + 2]


@pytest.mark.parametrize(
    "call",
    [
        "torch.is_autocast_enabled(device_type)",
        "torch.is_autocast_enabled('npu')",
        "torch.get_autocast_dtype(x.device.type)",
        "torch.set_autocast_enabled(device_type, flag)",
        "torch.is_autocast_cpu_enabled()",
        "torch.set_autocast_cpu_enabled(flag)",
        "torch.get_autocast_cpu_dtype()",
        "torch.npu.is_autocast_enabled()",
        "torch.is_autocast_cache_enabled()",
        "torch.clear_autocast_cache()",
        "torch.autocast_increment_nesting()",
        "self.is_autocast_enabled()",
        "is_autocast_enabled()",
        "hasattr(torch, 'is_autocast_enabled')",
        "'torch.is_autocast_enabled()'",
    ],
)
def test_state_of_a_named_device_or_of_all_devices_is_silent(call: str) -> None:
    assert rows(f"import torch\nx = {call}\n") == []


def test_nesting_by_hand_is_found_only_beside_calls_that_set_the_state_of_cuda() -> None:
    nesting = "torch.autocast_increment_nesting()\ntorch.autocast_decrement_nesting()\n"
    assert rows(f"import torch\ntorch.set_autocast_enabled(True)\n{nesting}") == [2, 3, 4]
    assert rows(f"import torch\ntorch.set_autocast_enabled(device, True)\n{nesting}") == []
    assert rows(f"import torch\nx = torch.is_autocast_enabled()\n{nesting}") == [2]


@pytest.mark.parametrize(
    "text",
    [
        """
        import torch
        def f(device):
            try:
                return torch.is_autocast_enabled(device)
            except TypeError:
                return torch.is_autocast_enabled()
        """,
        """
        import torch
        if hasattr(torch, "get_autocast_dtype"):
            dtype = torch.get_autocast_dtype(kind)
        else:
            dtype = torch.get_autocast_gpu_dtype()
        """,
        """
        import torch
        from packaging import version
        def f(x):
            if version.parse(torch.__version__) < version.parse("2.4"):
                return torch.get_autocast_gpu_dtype()
            return torch.get_autocast_dtype(x.device.type)
        """,
        """
        import torch
        state = torch.npu.is_autocast_enabled() if kind == "npu" else torch.is_autocast_enabled()
        """,
        """
        import torch
        def kernel(x):
            if not x.is_cuda:
                raise ValueError("needs a tensor on CUDA")
            if x.dim() == 4:
                return x.to(torch.get_autocast_gpu_dtype())
        """,
        """
        import torch
        def kernel(x, y):
            assert x.is_cuda and y.is_cuda, "needs tensors on CUDA"
            return x.to(torch.get_autocast_gpu_dtype())
        """,
    ],
)
def test_a_guarded_call_is_silent(text: str) -> None:
    assert rows(text) == []


@pytest.mark.parametrize(
    "check",
    [
        "assert torch.cuda.is_available()",
        "if not torch.cuda.is_available(): raise SystemExit",
        "if x.is_cuda: raise ValueError",
        "assert not x.is_cuda",
        "if not x.is_cuda: x = x.contiguous()",
    ],
)
def test_a_program_that_wants_cuda_to_start_is_to_be_ported(check: str) -> None:
    text = f"import torch\ndef f(x):\n    {check}\n    return torch.get_autocast_gpu_dtype()\n"
    assert rows(text) == [4]


@pytest.mark.parametrize(
    "before, after",
    [
        ("torch.is_autocast_enabled()", "torch.is_autocast_enabled(AMP_DEVICE)"),
        ("torch.get_autocast_gpu_dtype()", "torch.get_autocast_dtype(AMP_DEVICE)"),
        ("torch.set_autocast_enabled(flag)", "torch.set_autocast_enabled(AMP_DEVICE, flag)"),
        ("torch.set_autocast_gpu_dtype( d )", "torch.set_autocast_dtype( AMP_DEVICE, d )"),
        ("torch.get_autocast_dtype('cuda')", "torch.get_autocast_dtype(AMP_DEVICE)"),
        ("torch.set_autocast_enabled('cuda', flag)", "torch.set_autocast_enabled(AMP_DEVICE, flag)"),
    ],
)
def test_the_device_comes_first(before: str, after: str) -> None:
    assert body(f"import torch\nx = {before}\n", select=SELECT) == f"import torch\nx = {after}\n"


def test_a_function_with_a_name_of_its_own_keeps_it() -> None:
    text = "import torch\nfrom torch import is_autocast_enabled as on\nx = on()\n"
    assert body(text, select=SELECT).endswith("x = on(AMP_DEVICE)\n")


@pytest.mark.parametrize(
    "before, after",
    [
        ("torch.is_autocast_enabled()", "runtime.is_autocast_enabled()"),
        ("torch.get_autocast_gpu_dtype()", "runtime.get_autocast_dtype()"),
        ("torch.set_autocast_enabled(flag)", "torch.set_autocast_enabled(runtime.device_type(), flag)"),
    ],
)
def test_the_shim_answers_where_it_can(before: str, after: str) -> None:
    text = f"import torch\nx = {before}\n"
    expected = f"from amplint import runtime\nimport torch\nx = {after}\n"
    assert fix(text, select=SELECT, style="shim") == expected


def test_the_shim_answers_for_an_older_torch_too() -> None:
    text = "import torch\nx = torch.is_autocast_enabled()\n"
    assert "runtime.is_autocast_enabled()" in fix(text, select=SELECT, style="shim", torch=(2, 1))


@pytest.mark.parametrize("call", ["is_autocast_enabled()", "get_autocast_gpu_dtype()"])
def test_below_torch_2_4_there_is_no_fix_but_the_reason(call: str) -> None:
    text = f"import torch\nx = torch.{call}\n"
    assert is_untouched(text, select=SELECT, torch=(2, 3))
    (reason,) = reasons(text, select=SELECT, torch=(2, 3))
    assert "from torch 2.4 on" in reason


@pytest.mark.parametrize("text", ["torch.set_autocast_enabled(*a)", "torch.set_autocast_enabled(enabled=a)"])
def test_an_argument_that_is_not_passed_by_position_has_no_fix(text: str) -> None:
    assert is_untouched(f"import torch\nx = {text}\n", select=SELECT)


def test_it_stays_an_error_under_transfer_to_npu_which_does_not_cover_it() -> None:
    text = "import torch\nfrom torch_npu.contrib import transfer_to_npu\nx = torch.is_autocast_enabled()\n"
    (finding,) = found(text, select=SELECT)
    assert finding.severity.value == "error"


def test_from_2_14_on_the_switch_is_that_of_the_current_accelerator() -> None:
    text = "import torch\ntorch.is_autocast_enabled()\ntorch.get_autocast_gpu_dtype()\n"
    assert [row for row, _ in codes(text, select=SELECT, torch=(2, 13))] == [2, 3]
    assert [row for row, _ in codes(text, select=SELECT, torch=(2, 14))] == [3]
