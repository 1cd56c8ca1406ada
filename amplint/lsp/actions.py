"""Code actions: fix this, fix all of this rule, fix all that is safe, ignore here; edits of several places late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lsprotocol import types as t

from amplint.finding import Applicability, Finding, FixKind
from amplint.lsp.messages import Rewritten
from amplint.lsp.results import Changes, Result

FIX_ALL = "source.fixAll.amplint"
NOTEBOOK_FIX_ALL = "notebook.source.fixAll.amplint"
KINDS: list[t.CodeActionKind | str] = [t.CodeActionKind.QuickFix, FIX_ALL, NOTEBOOK_FIX_ALL]


def wants(only: Sequence[t.CodeActionKind | str] | None, kind: str) -> bool:
    """Whether a client that asks for these kinds (None: for any) wants one of this kind."""
    if not only:
        return True
    asked = [getattr(each, "value", each) for each in only]
    return any(kind == each or kind.startswith(f"{each}.") for each in asked)


def actions(
    uri: str,
    result: Result,
    found: Sequence[tuple[Finding, t.Diagnostic]],
    only: Sequence[t.CodeActionKind | str] | None,
) -> Iterator[t.CodeAction]:
    """The actions for what was `found` at a place of a document or a cell."""
    everything = result.everything
    where = "notebook" if result.in_cell is not None else "file"
    if wants(only, "quickfix"):
        for finding, diagnostic in found:
            yield from _fixes(uri, result, finding, diagnostic)
        for code, name in dict.fromkeys((finding.code, finding.name) for finding, _ in found):
            if sum(each.code == code and _is_safe(each) for each in everything) > 1:
                yield _late(f"Fix all {code} ({name}) in this {where}", "quickfix", uri, rule=code)
        for finding, diagnostic in found:
            if finding.code != "AMP900":
                title = f"Ignore {finding.code} here, with a reason"
                late = _late(title, "quickfix", uri, ignore=finding.fingerprint)
                late.diagnostics = [diagnostic]
                yield late
    if wants(only, FIX_ALL) and (only or any(map(_is_safe, everything))):
        yield _late("Fix all that is safe (amplint)", FIX_ALL, uri)
    if only and wants(only, NOTEBOOK_FIX_ALL) and result.in_cell is not None:
        yield _late("Fix all that is safe in the notebook (amplint)", NOTEBOOK_FIX_ALL, uri)


def _fixes(uri: str, result: Result, finding: Finding, diagnostic: t.Diagnostic) -> Iterator[t.CodeAction]:
    fix = finding.fix
    if fix is None or fix.applicability is Applicability.DISPLAY:
        return
    kind = "" if fix.kind is FixKind.PORT else "repair, "
    mark = f" ({kind}needs a look)" if fix.applicability is Applicability.UNSAFE else ""
    yield t.CodeAction(
        title=f"{_sentence(fix.message)}{mark}",
        kind=t.CodeActionKind.QuickFix,
        diagnostics=[diagnostic],
        is_preferred=fix.applicability is Applicability.SAFE,
        edit=workspace_edit(result.edits(uri, fix)),
    )


def _is_safe(finding: Finding) -> bool:
    return finding.fix is not None and finding.fix.applicability is Applicability.SAFE


def _late(title: str, kind: str, uri: str, **data: Any) -> t.CodeAction:
    """An action whose edit is made when it is chosen."""
    return t.CodeAction(title=title, kind=kind, data={"uri": uri, **data})


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def workspace_edit(changes: Changes) -> t.WorkspaceEdit:
    """An edit of documents, that a client refuses when one of them has changed meanwhile."""
    return t.WorkspaceEdit(
        document_changes=[
            t.TextDocumentEdit(t.OptionalVersionedTextDocumentIdentifier(uri=uri, version=version), edits)
            for (uri, version), edits in changes.items()
        ]
    )


def edit_of(uri: str, result: Result, made: Rewritten) -> t.WorkspaceEdit:
    """What fixing a document or a notebook would do to it, as an edit."""
    changes: Changes = {}
    for each in made.edits:
        page = result.pages[each.cell] if each.cell is not None else None
        document = (page.uri, page.version) if page is not None else (uri, result.version)
        text = page.text if page is not None else result.text
        span = t.Range(text.to_client(each.start), text.to_client(each.end))
        changes.setdefault(document, []).append(t.TextEdit(span, each.content))
    return workspace_edit(changes)
