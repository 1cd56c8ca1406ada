"""AMP308: contexts joined by `and`."""

from __future__ import annotations

import pytest
from amp_cases import codes, fix, found, reasons

IMPORTS = "import torch\n"


@pytest.mark.parametrize(
    "item",
    [
        "torch.autocast(d) and torch.no_grad()",
        "torch.no_grad() and torch.autocast(d)",
        "self.autocast() and model.no_sync()",
        "model.ema_scope() and lock()",
        "torch.inference_mode() and profile() and log()",
        "torch.autocast(d) and torch.no_grad() as both",
        "open(path), torch.autocast(d) and torch.no_grad()",
    ],
)
def test_contexts_joined_by_and_are_found(item: str) -> None:
    assert codes(f"{IMPORTS}with {item}:\n    pass\n") == [(2, "AMP308")]


def test_it_is_found_in_async_with_too() -> None:
    assert codes("async def f():\n    async with no_sync() and no_grad():\n        pass\n") == [(2, "AMP308")]


@pytest.mark.parametrize(
    "item",
    [
        "torch.autocast(d), torch.no_grad()",
        "torch.autocast(d, enabled=a and b)",
        "torch.autocast(d) if amp else nullcontext()",
        "amp and torch.autocast(d) or nullcontext()",
        "enabled and torch.autocast(d)",
        "torch.autocast(d) or torch.no_grad()",
        "lock() and open(path)",
        "(torch.autocast(d), torch.no_grad())[a and b]",
    ],
)
def test_other_items_are_silent(item: str) -> None:
    assert codes(f"{IMPORTS}with {item}:\n    pass\n") == []


def test_and_outside_a_with_is_silent() -> None:
    assert codes(f"{IMPORTS}both = torch.autocast(d) and torch.no_grad()\n") == []


@pytest.mark.parametrize(
    "before, after",
    [
        ("autocast(d) and no_grad()", "autocast(d), no_grad()"),
        ("autocast(d)  and  no_grad()", "autocast(d), no_grad()"),
        ("autocast(d)and no_grad()", "autocast(d), no_grad()"),
        ("autocast(d) and no_grad() and lock()", "autocast(d), no_grad(), lock()"),
        ("autocast(d) and no_grad() as x", "autocast(d), no_grad() as x"),
        ("a() as y, autocast(d) and no_grad()", "a() as y, autocast(d), no_grad()"),
    ],
)
def test_the_fix_enters_all_contexts(before: str, after: str) -> None:
    assert fix(f"with {before}:\n    pass\n", repair=True) == f"with {after}:\n    pass\n"


def test_it_is_a_repair_and_no_port() -> None:
    text = "with autocast(d) and no_grad():\n    pass\n"
    assert fix(text) == text
    (finding,) = found(text)
    assert finding.fix is not None
    assert (finding.fix.kind.value, finding.fix.applicability.value) == ("repair", "safe")


@pytest.mark.parametrize(
    "item",
    [
        "(autocast(d) and no_grad())",
        "(autocast(d)) and no_grad()",
        "(autocast(d) and no_grad()) and lock()",
        "autocast(d) and \\\n        no_grad()",
    ],
)
def test_parentheses_and_line_breaks_beside_and_are_left_alone(item: str) -> None:
    text = f"with {item}:\n    pass\n"
    assert fix(text, repair=True) == text
    assert len(reasons(text)) == 1


def test_the_message_names_what_is_lost() -> None:
    (finding,) = found("with autocast(d) and no_grad():\n    pass\n")
    assert "`no_grad()` is entered, `autocast(d)` never" in finding.message
