"""Stopping an analysis midway: whoever runs one says when it is of no use any more, and loops in it ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Cancelled(BaseException):
    """Nobody wants the result any more. No `Exception`: what handles failures of rules must not catch it."""


class _Question:
    """The question whether to stop; nothing is asked unless somebody set it."""

    asked: Callable[[], bool] | None = None


@contextmanager
def stopping_when(asked: Callable[[], bool]) -> Iterator[None]:
    """Let `checkpoint` raise `Cancelled` inside this block once `asked` gives true."""
    before, _Question.asked = _Question.asked, asked
    try:
        yield
    finally:
        _Question.asked = before


def checkpoint() -> None:
    """Raise `Cancelled` if the analysis at hand is to stop."""
    asked = _Question.asked
    if asked is not None and asked():
        raise Cancelled
