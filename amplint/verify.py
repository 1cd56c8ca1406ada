"""Is a rewritten file right? Compared with the file before: names bound, findings gone, none new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from amplint.finding import Finding
from amplint.model.module import ModuleModel

_UNUSED = "AMP901"


def objection(
    before: ModuleModel | None,
    after: ModuleModel | None,
    findings_before: Sequence[Finding],
    findings_after: Sequence[Finding],
    fixed: Sequence[Finding],
) -> str | None:
    """Why the text after a fix is not right, or None."""
    if after is None:
        return "the result cannot be parsed"
    if before is not None:
        lost = unbound_names(after) - unbound_names(before)
        if lost:
            return f"the result uses {', '.join(sorted(lost))} without binding it"
        unexported = _unbound_exports(after) - _unbound_exports(before)
        if unexported:
            return f"the result exports {', '.join(sorted(unexported))} without binding it"
    was = Counter(f.code for f in findings_before)
    now = Counter(f.code for f in findings_after)
    gone = Counter(f.code for f in fixed)
    others = any(code != _UNUSED for code in gone)
    for code in sorted(now):
        if code == _UNUSED and others:
            continue  # what silenced a finding that is gone now silences nothing
        if now[code] > was[code] - gone[code]:
            kind = "still there" if gone[code] else "new"
            return f"a finding of {code} is {kind} after it"
    return None


def unbound_names(model: ModuleModel) -> frozenset[str]:
    """Names that are used but bound nowhere in the file (and are no builtins); star imports hide everything."""
    if model.names.module_scope.stars:
        return frozenset()
    return frozenset(
        reference.root.value
        for reference in model.names.references
        if not reference.scope.lookup(reference.root.value) and model.names.resolve(reference.root) == ("",)
    )


def _unbound_exports(model: ModuleModel) -> frozenset[str]:
    """Names in `__all__` that the module does not bind."""
    scope = model.names.module_scope
    if scope.stars or "__getattr__" in scope.bindings:
        return frozenset()
    return frozenset(name for name in model.names.exported or () if name not in scope.bindings)
