"""Findings made by hand: what a run would give, without a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from amplint.finding import Confidence, Edit, Finding, Severity, Span
from amplint.source import Source

Make = Callable[..., Finding]


def make_finding(source: Source, place: str, **fields: object) -> Finding:
    """A finding on the first occurrence of `place` in the source."""
    start = source.text.index(place)
    span = Span(start, start + len(place))
    values: dict[str, object] = {
        "code": "AMP201",
        "name": "clip-before-unscale",
        "message": "clipped while still scaled",
        "severity": Severity.ERROR,
        "confidence": Confidence.HIGH,
        "filename": source.filename,
        "span": span,
        "start": source.position(span.start),
        "end": source.position(span.end),
    }
    return Finding(**(values | fields))  # type: ignore[arg-type]


def make_edit(source: Source, old: str, new: str) -> Edit:
    """Replace the first occurrence of `old`."""
    start = source.text.index(old)
    return Edit(Span(start, start + len(old)), new)


@pytest.fixture
def finding() -> Make:
    return make_finding


@pytest.fixture
def edit() -> Callable[[Source, str, str], Edit]:
    return make_edit
