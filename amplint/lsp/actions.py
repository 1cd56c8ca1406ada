"""Code actions: fix this, fix all of this rule, fix all that is safe, ignore here; edits of several places late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lsprotocol import types as t

from amplint.lsp.messages import Rewritten
from amplint.lsp.positions import Text

FIX_ALL = "source.fixAll.amplint"
KINDS: list[t.CodeActionKind | str] = [t.CodeActionKind.QuickFix, FIX_ALL]


def wants(only: Sequence[t.CodeActionKind | str] | None, kind: str) -> bool:
    """Whether a client that asks for these kinds (None: for any) wants one of this kind."""
    if not only:
        return True
    asked = [getattr(each, "value", each) for each in only]
    return any(kind == each or kind.startswith(f"{each}.") for each in asked)


def actions(
    uri: str,
    version: int | None,
    found: Sequence[t.Diagnostic],
    everything: Sequence[t.Diagnostic],
    only: Sequence[t.CodeActionKind | str] | None,
) -> Iterator[t.CodeAction]:
    """The actions for the diagnostics `found` at a place, among `everything` that is known of the document."""
    if wants(only, "quickfix"):
        for diagnostic in found:
            yield from _fixes(uri, version, diagnostic)
        for code, name in dict.fromkeys((str(d.code), _data(d)["name"]) for d in found):
            if sum(str(d.code) == code and _is_safe(d) for d in everything) > 1:
                yield _late(f"Fix all {code} ({name}) in this file", "quickfix", uri, rule=code)
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


def _fixes(uri: str, version: int | None, diagnostic: t.Diagnostic) -> Iterator[t.CodeAction]:
    fix = _data(diagnostic).get("fix")
    if fix is None or fix["applicability"] == "display":
        return
    kind = "" if fix["kind"] == "port" else "repair, "
    mark = "" if fix["applicability"] == "safe" else f" ({kind}needs a look)" if kind else " (needs a look)"
    edits = [
        t.TextEdit(
            t.Range(t.Position(**edit["range"]["start"]), t.Position(**edit["range"]["end"])), edit["newText"]
        )
        for edit in fix["edits"]
    ]
    yield t.CodeAction(
        title=f"{_sentence(fix['message'])}{mark}",
        kind=t.CodeActionKind.QuickFix,
        diagnostics=[diagnostic],
        is_preferred=fix["applicability"] == "safe",
        edit=workspace_edit(uri, version, edits),
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


def workspace_edit(uri: str, version: int | None, edits: Sequence[t.TextEdit]) -> t.WorkspaceEdit:
    """An edit of one document, that a client refuses when the document has changed meanwhile."""
    document = t.OptionalVersionedTextDocumentIdentifier(uri=uri, version=version)
    return t.WorkspaceEdit(document_changes=[t.TextDocumentEdit(text_document=document, edits=list(edits))])


def edit_of(uri: str, version: int | None, text: Text, made: Rewritten) -> t.WorkspaceEdit:
    """What fixing a document would do to it, as an edit."""
    edits = [
        t.TextEdit(t.Range(text.to_client(each.start), text.to_client(each.end)), each.content)
        for each in made.edits
    ]
    return workspace_edit(uri, version, edits)
