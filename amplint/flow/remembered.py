"""What is computed once for each model, and goes with it.

Results lead back to their models, so that a `WeakKeyDictionary` of them would never let either go.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

OwnerT = TypeVar("OwnerT")
ResultT = TypeVar("ResultT")


_PREFIX = "_remembered_"


class Remembered(Generic[OwnerT, ResultT]):
    """One kind of result; each owner keeps its own."""

    def __init__(self, name: str) -> None:
        self._name = _PREFIX + name

    def get(self, owner: OwnerT) -> ResultT | None:
        """The result of an owner, None before it was set."""
        found: ResultT | None = self._of(owner).get(self._name)
        return found

    def __setitem__(self, owner: OwnerT, result: ResultT) -> None:
        self._of(owner)[self._name] = result

    def setdefault(self, owner: OwnerT, default: ResultT) -> ResultT:
        """The result of an owner, which is `default` if none was set."""
        found: ResultT = self._of(owner).setdefault(self._name, default)
        return found

    def _of(self, owner: OwnerT) -> dict[str, Any]:
        return owner.__dict__


def forget(owner: object) -> None:
    """Drop what was computed for an owner: it may depend on other files, which may have changed."""
    for name in [name for name in owner.__dict__ if name.startswith(_PREFIX)]:
        del owner.__dict__[name]
