"""What the tests of the AMP1 rules share: short ways to check and to fix a text."""

from __future__ import annotations

import textwrap
from typing import Any

from amplint import check_source, fix_source
from amplint.finding import Finding

#: How a module asks for its device from torch 2.7 on.
DEVICE = (
    '# Device type for AMP; "cuda" without an accelerator, so that AMP stays disabled there.\n'
    "AMP_DEVICE = getattr("
    'torch.accelerator.current_accelerator(), "type", "cuda")\n'
)


def code(text: str) -> str:
    """A triple-quoted text without its first newline and its indentation."""
    return textwrap.dedent(text).removeprefix("\n")


def found(text: str, filename: str = "train.py", **settings: Any) -> list[Finding]:
    settings.setdefault("target", "npu")
    return check_source(code(text), filename, select=settings.pop("select", ["AMP1", "AMP308"]), **settings)


def codes(text: str, **settings: Any) -> list[tuple[int, str]]:
    return [(finding.start.row, finding.code) for finding in found(text, **settings)]


def fix(text: str, filename: str = "train.py", style: str = "torch", **settings: Any) -> str:
    """The text after all safe and unsafe ports."""
    settings.setdefault("target", "npu")
    settings.setdefault("unsafe", True)
    select = settings.pop("select", ["AMP1", "AMP308"])
    once = fix_source(code(text), filename, select=select, style=style, **settings)
    assert fix_source(once, filename, select=select, style=style, **settings) == once, (
        "a second run changes it"
    )
    return once


def body(text: str, **settings: Any) -> str:
    """As `fix`, without the lines that define the device."""
    result = fix(text, **settings)
    for definition in (f"\n{DEVICE}\n", f"\n{DEVICE}"):
        if definition in result:
            return result.replace(definition, "", 1)
    return result


def reasons(text: str, **settings: Any) -> set[str]:
    """Why findings have no fix."""
    return {f.no_fix_reason for f in found(text, style="torch", **settings) if f.no_fix_reason is not None}


def is_untouched(text: str, **settings: Any) -> bool:
    return fix(text, **settings) == code(text)
