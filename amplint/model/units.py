"""How the parts of several modules that are looked at together are told apart.

Sites of the module itself are those of its own tree. Every other module is a unit with a number; its sites begin at
a multiple of `UNIT`, and its definitions are called `<2>.NativeScaler.__call__`.
"""

from __future__ import annotations

UNIT = 10_000_000
#: What begins the names of what stands for libraries, in place of files.
LIBRARY = "<library>/"


def is_own(site: int) -> bool:
    """Whether a site is in the module itself."""
    return site < UNIT


def is_elsewhere(qualname: str) -> bool:
    """Whether a function belongs to one of the other modules."""
    return qualname.startswith("<")


def is_library(filename: str) -> bool:
    """Whether this is no file of the run, but what amplint knows of a library (`facts/libraries`)."""
    return filename.startswith(LIBRARY)
