"""Code actions: fix this, fix all of this rule, fix all that is safe, ignore here; edits of several places late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lsprotocol import types as t

from amplint.lsp.messages import Rewritten
from amplint.lsp.results import Result

FIX_ALL = "source.fixAll.amplint"
NOTEBOOK_FIX_ALL = "notebook.source.fixAll.amplint"
KINDS: list[t.CodeActionKind | str] = [t.CodeActionKind.QuickFix, FIX_ALL, NOTEBOOK_FIX_ALL]


#: (URI, version) -> edits of that document.
Changes = dict[tuple[str, int | None], list[t.TextEdit | t.AnnotatedTextEdit | t.SnippetTextEdit]]


def wants(only: Sequence[t.CodeActionKind | str] | None, kind: str) -> bool:
    """Whether a client that asks for these kinds (None: for any) wants one of this kind."""
    if not only:
        return True
    asked = [getattr(each, "value", each) for each in only]
    return any(kind == each or kind.startswith(f"{each}.") for each in asked)


def actions(
    uri: str, result: Result, found: Sequence[t.Diagnostic], only: Sequence[t.CodeActionKind | str] | None
) -> Iterator[t.CodeAction]:
    """The actions for the diagnostics `found` at a place of a document or a cell."""
    everything = result.everything
    where = "notebook" if result.in_cell is not None else "file"
    if wants(only, "quickfix"):
        for diagnostic in found:
            yield from _fixes(uri, result.version, diagnostic)
        for code, name in dict.fromkeys((str(d.code), _data(d)["name"]) for d in found):
            if sum(str(d.code) == code and _is_safe(d) for d in everything) > 1:
                yield _late(f"Fix all {code} ({name}) in this {where}", "quickfix", uri, rule=code)
        for diagnostic in found:
            code = str(diagnostic.code)
            if code != "AMP900":
                late = _late(
                    f"Ignore {code} here, with a reason",
                    "quickfix",
                    uri,
                    ignore=_data(diagnostic)["fingerprint"],
                )
                late.diagnostics = [diagnostic]
                yield late
    if wants(only, FIX_ALL) and (only or any(map(_is_safe, everything))):
        yield _late("Fix all that is safe (amplint)", FIX_ALL, uri)
    if only and wants(only, NOTEBOOK_FIX_ALL) and result.in_cell is not None:
        yield _late("Fix all that is safe in the notebook (amplint)", NOTEBOOK_FIX_ALL, uri)


def _fixes(uri: str, version: int | None, diagnostic: t.Diagnostic) -> Iterator[t.CodeAction]:
    fix = _data(diagnostic).get("fix")
    if fix is None or fix["applicability"] == "display":
        return
    kind = "" if fix["kind"] == "port" else "repair, "
    mark = "" if fix["applicability"] == "safe" else f" ({kind}needs a look)" if kind else " (needs a look)"
    changes: Changes = {}
    for edit in fix["edits"]:
        span = t.Range(t.Position(**edit["range"]["start"]), t.Position(**edit["range"]["end"]))
        document = (edit["uri"], edit["version"]) if "uri" in edit else (uri, version)
        changes.setdefault(document, []).append(t.TextEdit(span, edit["newText"]))
    yield t.CodeAction(
        title=f"{_sentence(fix['message'])}{mark}",
        kind=t.CodeActionKind.QuickFix,
        diagnostics=[diagnostic],
        is_preferred=fix["applicability"] == "safe",
        edit=workspace_edit(changes),
    )


def _data(diagnostic: t.Diagnostic) -> dict[str, Any]:
    """What travels with a diagnostic, see `diagnostics.data_of`."""
    return diagnostic.data if isinstance(diagnostic.data, dict) else {}


def _is_safe(diagnostic: t.Diagnostic) -> bool:
    fix = _data(diagnostic).get("fix")
    return fix is not None and fix["applicability"] == "safe"


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
