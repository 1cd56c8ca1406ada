"""What one file's variables and attributes hold, worked out once for all rules."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from amplint.flow.objects import Objects

if TYPE_CHECKING:
    from amplint.model.module import ModuleModel

_FOUND: WeakKeyDictionary[ModuleModel, Objects] = WeakKeyDictionary()


def objects_of(model: ModuleModel) -> Objects:
    """The `Objects` of one file, made once and shared by all rules."""
    found = _FOUND.get(model)
    if found is None:
        found = _FOUND[model] = Objects(model)
    return found
