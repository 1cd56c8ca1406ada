"""Applying fixes to a text: import edits merge, overlaps are skipped. `verify` judges the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from amplint.finding import Edit, Fix, ImportRemoval, Span


@dataclass(frozen=True, slots=True)
class Applied:
    """A text after some fixes, and those that were left for the next pass because they overlap."""

    text: str
    fixes: tuple[Fix, ...]
    skipped: tuple[Fix, ...]


def apply(text: str, fixes: Iterable[Fix]) -> Applied:
    """Apply fixes in the order of their first edit; each whole or not at all.

    Equal edits of several fixes count once, names that several fixes take out of one import go together, and
    a fix that overlaps an earlier one is skipped.
    """
    ordered = sorted(set(fixes), key=lambda fix: (min(edit.span for edit in fix.edits), fix.message))
    taken: list[Edit] = []
    removals: dict[Span, ImportRemoval] = {}
    done: list[Fix] = []
    skipped: list[Fix] = []
    for fix in ordered:
        merged = dict(removals)
        for removal in fix.imports:
            earlier = merged.get(removal.statement)
            merged[removal.statement] = removal if earlier is None else earlier.merged(removal)
        plain = [edit for edit in fix.plain_edits if edit not in taken]
        imports = [edit for removal in merged.values() for edit in removal.edits()]
        if _overlap([*taken, *plain, *imports]):
            skipped.append(fix)
            continue
        taken.extend(plain)
        removals = merged
        done.append(fix)
    edits = [*taken, *(edit for removal in removals.values() for edit in removal.edits())]
    return Applied(apply_edits(text, edits), tuple(done), tuple(skipped))


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """The text with all `edits` made; they must not overlap."""
    parts: list[str] = []
    place = 0
    for edit in sorted(set(edits), key=lambda edit: edit.sort_key):
        parts.append(text[place : edit.span.start])
        parts.append(edit.content)
        place = edit.span.end
    parts.append(text[place:])
    return "".join(parts)


def _overlap(edits: Sequence[Edit]) -> bool:
    """Whether two edits touch the same text, or insert different things at one place."""
    ordered = sorted(edits, key=lambda edit: edit.sort_key)
    for one, two in pairwise(ordered):
        if two.span.start < one.span.end:
            return True
        both_insert = one.span.start == one.span.end == two.span.start == two.span.end
        if both_insert and one.content != two.content and not (one.lines and two.lines):
            return True
    return False
