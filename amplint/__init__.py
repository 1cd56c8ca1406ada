"""amplint: finds mixed-precision bugs and CUDA-only AMP code in PyTorch training code, and rewrites it.

The library API is `check_source` and `fix_source`; everything else may change between releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplint.finding import Finding

__version__ = "0.1.0"

__all__ = ["__version__", "check_source", "fix_source"]


def check_source(
    text: str, filename: str = "<string>", *, select: Sequence[str] | None = None, **settings: object
) -> list[Finding]:
    """Findings of one module given as text, in order of line, column, code.

    Under a filename that ends in .ipynb the text is that of a notebook, and rows are those of the module that it makes.

    `select` and `settings` are those of the configuration (`target="npu"`, `torch=(2, 4)`, `style="shim"`, ..).
    Raises `RuntimeError` on an internal error and `registry.UnknownRule` for a rule that does not exist.
    """
    from amplint.runner import FixMode, run_text

    return run_text(text, filename, FixMode(), select, settings).findings


def fix_source(
    text: str,
    filename: str = "<string>",
    *,
    select: Sequence[str] | None = None,
    repair: bool = False,
    unsafe: bool = False,
    **settings: object,
) -> str:
    """The module's text with every safe port applied, with `repair` safe repairs too, with `unsafe` unsafe ones.

    Raises as `check_source` does.
    """
    from amplint.runner import FixMode, run_text

    result = run_text(text, filename, FixMode(ports=True, repairs=repair, unsafe=unsafe), select, settings)
    if not result.changes:
        return text
    change = result.changes[0]
    if change.source.cells is not None:
        return change.source.encode(change.new_text).decode("utf-8", "surrogatepass")
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    return mark + result.changes[0].new_text.removeprefix("\ufeff")
