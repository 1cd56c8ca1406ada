"""Values that know their hash: parts of abstract states are looked up in dictionaries over and over again."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T", bound="Hashed")


class Hashed:
    """Base of frozen dataclasses under `hashed_once`. The hash is no field, so it is neither compared nor pickled."""

    __slots__ = ("_hash",)
    _hash: int


def hashed_once(kind: type[T]) -> type[T]:
    """Make a frozen dataclass remember its hash."""
    of_fields = kind.__hash__

    def remembered(self: Hashed) -> int:
        try:
            return self._hash
        except AttributeError:
            found = of_fields(self)
            object.__setattr__(self, "_hash", found)
            return found

    kind.__hash__ = remembered  # type: ignore[assignment,method-assign]  # nothing but a `Hashed` gets here
    return kind
