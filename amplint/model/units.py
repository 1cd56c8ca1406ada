"""How the parts of several modules that are looked at together are told apart.

Sites of the module itself are those of its own tree. Every other module is a unit with a number; its sites begin at
a multiple of `UNIT`, and its definitions are called `<2>.NativeScaler.__call__`.
"""

from __future__ import annotations

UNIT = 10_000_000


def is_own(site: int) -> bool:
    """Whether a site is in the module itself."""
    return site < UNIT


def is_elsewhere(qualname: str) -> bool:
    """Whether a function belongs to one of the other modules."""
    return qualname.startswith("<")
