"""Documents as the analyses see them, and what these say of them in the document's own places."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from amplint.finding import Finding, Note, Position, Span
from amplint.lsp.messages import Replaced, Unsaved
from amplint.source import Source, source_from_cells, source_from_text


def source_of(document: Unsaved) -> Source:
    """A document as the analyses see it. SourceError when it is no text that Python reads."""
    if document.cells is None:
        source = source_from_text(document.text, document.filename)
    else:
        source = source_from_cells(document.cells, document.filename)
    return replace(source, path=Path(document.path)) if document.path is not None else source


def edits_between(document: Unsaved, before: Source, after: Source) -> tuple[Replaced, ...]:
    """What turns a document into another one, or each cell of a notebook."""
    if before.cells is None or after.cells is None:
        return differences(before.text, after.text, len(document.text) - len(before.text))
    pairs = zip(before.cells.sources, after.cells.sources, strict=True)
    return tuple(
        replace(each, cell=number)
        for number, (old, new) in enumerate(pairs, 1)
        if old is not None and new is not None
        for each in differences(old, new)
    )


def shown_parts(finding: Finding) -> tuple[object, ...]:
    """All of a finding that a client is told, but for its edits: these are made when they are asked for."""
    fix = finding.fix
    return (
        finding.fingerprint,
        finding.span,
        finding.severity.value,
        finding.message,
        finding.trace,
        finding.no_fix_reason,
        (fix.kind.value, fix.applicability.value, fix.message) if fix is not None else None,
    )


def in_file(finding: Finding, source: Source, raw: Source) -> Finding:
    """A finding in a notebook that is not open: at the rows of its file, with the cell in words, and without a fix."""
    first, last = source.file_rows(finding.start.row, finding.end.row)
    place = source.place(finding.start)
    start, end = Position(first, 1), Position(last, len(raw.line_text(last)) + 1)
    return replace(
        finding,
        message=f"{finding.message} (cell {place.cell}, line {place.row})",
        start=start,
        end=end,
        span=Span(raw.offset(start), raw.line_starts[last - 1] + end.column - 1),
        trace=tuple(_note_in_file(note, finding, source) for note in finding.trace),
        fix=None,
        no_fix_reason="not while the notebook is not open",
    )


def _note_in_file(note: Note, finding: Finding, source: Source) -> Note:
    if note.filename != finding.filename:
        return note
    return Note(note.filename, Position(source.file_rows(note.start.row, note.start.row)[0], 1), note.message)


def differences(before: str, after: str, shift: int = 0) -> tuple[Replaced, ...]:
    """What turns one text into another, row by row; offsets are moved by `shift`."""
    from difflib import SequenceMatcher

    if before == after:
        return ()
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    starts = [shift]
    for line in old:
        starts.append(starts[-1] + len(line))
    return tuple(
        Replaced(starts[i], starts[j], "".join(new[k:m]))
        for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if tag != "equal"
    )
