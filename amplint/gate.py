"""May this file concern any selected rule? Decided on the text alone, without parsing it."""

from __future__ import annotations

from amplint.source import Source


def admits(source: Source, words: tuple[str, ...] | None) -> bool:
    """Whether one of `words` stands in the file; None admits every file."""
    if words is None:
        return True
    text = source.text
    return any(word in text for word in words)
