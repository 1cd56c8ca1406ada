"""Whether the targets of `aliases` are names that some rule knows."""

from __future__ import annotations

from amplint.cli import complain
from amplint.config import Settings

#: Packages whose rules' names are in amplint's tables.
_BUILT_IN = "amplint_rules."


def warn_of_unknown_targets(settings: Settings) -> None:
    """Say which aliases stand for a name that means nothing to any rule, and what may have been meant."""
    if not settings.aliases:
        return
    import difflib

    from amplint import facts
    from amplint.registry import all_rules

    known = facts.known_names()
    keys = {name for name, _ in settings.aliases}
    words = {word for rule in all_rules() if not rule.module.startswith(_BUILT_IN) for word in rule.words}
    for name, target in settings.aliases:
        if target in known or target in keys or target.rpartition(".")[2] in words:
            continue
        near = difflib.get_close_matches(target, sorted(known), n=1, cutoff=0.75)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        source = settings.source_of("aliases")
        complain(f"warning: {source}: aliases.{name}: no rule knows {target!r}{hint}")
