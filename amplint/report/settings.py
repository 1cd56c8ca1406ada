"""Settings as they are in force: as the text of an amplint.toml, or as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from amplint.config import Settings

#: Behind longer settings the origin stands where they end.
_ALIGNED = 60


@dataclass(frozen=True, slots=True)
class InForce:
    """Settings, and what follows from them."""

    settings: Settings
    #: What is selected where `select` is not set.
    default_select: tuple[str, ...]
    #: Where the cache is.
    cache: Path
    #: The baseline; None when there is none.
    baseline: Path | None
    #: Codes of the selected rules.
    rules: tuple[str, ...]
    #: How many rules there are.
    installed: int

    def rows(self) -> list[tuple[str, object, str]]:
        """Every setting: name, value as TOML and JSON know it, and where the value comes from."""
        return [(key, self._value(key, value), source) for key, value, source in self.settings.in_force()]

    def _value(self, key: str, value: object) -> object:
        if key == "select" and value is None:
            return sorted(self.default_select)
        if key == "cache-dir":
            return str(self.cache)
        if key == "baseline":
            return None if self.baseline is None else str(self.baseline)
        if key == "torch" and isinstance(value, tuple):
            return ".".join(map(str, value))
        if key in ("per-file-ignores", "severity", "aliases", "rules"):
            assert isinstance(value, tuple)
            return {name: _thawed(content) for name, content in value}
        return _thawed(value)


def as_text(in_force: InForce) -> str:
    """An amplint.toml with every setting, its origin as a comment, and what follows from them as comments."""
    settings = in_force.settings
    rows = [
        (f"{key} = {_toml(value)}", source) for key, value, source in in_force.rows() if value is not None
    ]
    width = max(len(setting) for setting, _ in rows if len(setting) <= _ALIGNED)
    target = settings.effective_target
    if settings.target == "auto" and settings.requires_npu:
        target += f", because {settings.source_of('requires_npu')} names torch_npu"
    lines = [
        f"# configuration: {settings.root or 'none'}",
        *(f"{setting:<{width}}  # {source}" for setting, source in rows),
        "",
        f"# target in force: {target}",
        f"# style in force: {settings.effective_style}",
        f"# rules selected: {len(in_force.rules)} of {in_force.installed}",
    ]
    return "".join(line + "\n" for line in lines)


def as_json(in_force: InForce) -> str:
    """An object with `root`, `settings`, `target`, `style` and `rules`; ASCII only, a final newline."""
    settings = in_force.settings
    shown = {
        "root": None if settings.root is None else str(settings.root),
        "settings": {key: {"value": value, "source": source} for key, value, source in in_force.rows()},
        "target": {
            "value": settings.effective_target,
            "torch_npu": settings.source_of("requires_npu") if settings.requires_npu else None,
        },
        "style": {"value": settings.effective_style},
        "rules": {
            "selected": len(in_force.rules),
            "installed": in_force.installed,
            "codes": list(in_force.rules),
        },
    }
    return json.dumps(shown, indent=2, default=str) + "\n"


def _thawed(value: object) -> object:
    """Tuples as lists, tuples of pairs as tables."""
    if not isinstance(value, tuple):
        return value
    if value and all(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    ):
        return {key: _thawed(content) for key, content in value}
    return [_thawed(element) for element in value]


def _toml(value: object) -> str:
    """A value in one line of TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        pairs = ", ".join(f"{_toml(str(key))} = {_toml(content)}" for key, content in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    return str(value)
