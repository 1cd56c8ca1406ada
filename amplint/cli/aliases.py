"""Whether the targets of `aliases` are names that some rule knows."""

from __future__ import annotations

from amplint.cli import complain
from amplint.config import Settings


def warn_of_unknown_targets(settings: Settings) -> None:
    """Say which aliases stand for a name that means nothing to any rule, and what may have been meant."""
    if not settings.aliases:
        return
    import difflib

    from amplint import facts
    from amplint.registry import BUILT_IN, all_rules

    known = facts.known_names()
    words = {word for rule in all_rules() if not rule.module.startswith(BUILT_IN) for word in rule.words}
    for name, alias in settings.aliases:
        target = _meaning(alias, dict(settings.aliases))
        if target in known or target.rpartition(".")[2] in words:
            continue
        near = difflib.get_close_matches(target, sorted(known), n=1, cutoff=0.75)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        source = settings.source_of("aliases")
        complain(f"warning: {source}: aliases.{name}: no rule knows {target!r}{hint}")


def _meaning(name: str, aliases: dict[str, str]) -> str:
    """What a name stands for when it, or a module that it is in, is an alias itself."""
    seen = set()
    while name not in seen:
        seen.add(name)
        parts = name.split(".")
        for size in range(len(parts), 0, -1):
            head = ".".join(parts[:size])
            if head in aliases:
                name = ".".join([aliases[head], *parts[size:]])
                break
    return name
