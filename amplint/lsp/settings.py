"""What an editor may set, and which configuration is in force for a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from amplint.config import ConfigError, Settings, load_settings
from amplint.discover import discover

#: Settings of an editor that are settings of a run, by their names there; they win over configuration files.
_FOR_RUNS = {
    "select": "select",
    "extendSelect": "extend-select",
    "ignore": "ignore",
    "target": "target",
    "soc": "soc",
    "torch": "torch",
    "style": "style",
    "preview": "preview",
    "minConfidence": "min-confidence",
}


@dataclass(frozen=True)
class EditorSettings:
    """The settings of one editor (or of one of its folders)."""

    #: (name as in a configuration file, value) of settings for runs.
    overrides: tuple[tuple[str, Any], ...] = ()
    #: A configuration file to use instead of the nearest one; relative to the folder.
    configuration: str | None = None
    #: Milliseconds without a keystroke before a pushed check begins.
    debounce: int = 150
    inlay_hints: bool = False
    code_lens: bool = False
    #: Whether "fix all" makes safe repairs, which change numbers, as well as safe ports.
    repair: bool = False
    #: Whether findings that are in the baseline are left out.
    baseline: bool = True
    #: What "ignore here" gives as the reason.
    ignore_reason: str = "TODO: say why"
    #: What was wrong with the settings, in one line each.
    problems: tuple[str, ...] = ()


def read_editor_settings(given: object) -> EditorSettings:
    """Settings from what an editor sent: an object, or one with such an object under "amplint" or "settings"."""
    if isinstance(given, Mapping):
        for key in ("settings", "amplint"):
            inner = given.get(key)
            given = inner if isinstance(inner, Mapping) else given
    if not isinstance(given, Mapping):
        return EditorSettings()
    found: dict[str, Any] = {}
    overrides: list[tuple[str, Any]] = []
    problems: list[str] = []
    names = {_camel(field.name): field.name for field in fields(EditorSettings)} | {"config": "configuration"}
    for key, value in given.items():
        if value is None:
            continue
        if key in _FOR_RUNS:
            expected = _SHAPES.get(key, str)
            if expected is list and isinstance(value, list) and all(isinstance(each, str) for each in value):
                value = tuple(value)
            elif not isinstance(value, str if expected is list else expected):
                problems.append(f"{key}: expected {_NOUNS[expected]}")
                continue
            problem = _objection(_FOR_RUNS[key], value)
            if problem is None:
                overrides.append((_FOR_RUNS[key], value))
            else:
                problems.append(problem)
        elif key in names and names[key] not in ("overrides", "problems"):
            expected = {"debounce": int, "configuration": str, "ignore_reason": str}.get(names[key], bool)
            if isinstance(value, expected) and not (expected is int and isinstance(value, bool)):
                found[names[key]] = value
            elif value != "":
                problems.append(f"{key}: expected {_NOUNS[expected]}")
        elif key not in _FOR_EXTENSIONS:
            problems.append(f"unknown setting {key!r}")
    if found.get("configuration") == "":
        del found["configuration"]
    return EditorSettings(tuple(overrides), **found, problems=tuple(problems))


def _objection(name: str, value: object) -> str | None:
    """Why a setting of runs cannot have a value, or None."""
    from amplint.registry import NoRules, UnknownRule, select_rules

    try:
        select_rules(load_settings(Path(os.curdir), isolated=True, overrides={name: value}))
    except ConfigError as error:
        return str(error).removeprefix("command line: ")
    except (UnknownRule, NoRules) as error:
        return f"{name}: {error}"
    return None


#: What settings of runs are, where that is not a text.
_SHAPES: dict[str, type] = {"select": list, "extendSelect": list, "ignore": list, "preview": bool}
_NOUNS: dict[type, str] = {
    int: "a number",
    str: "a text",
    bool: "true or false",
    list: "a list of texts",
}
#: What extensions set for themselves.
_FOR_EXTENSIONS = frozenset({"enable", "path", "interpreter", "trace", "importStrategy", "args"})


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


@dataclass(frozen=True)
class Scope:
    """What a file is checked under: names are shown relative to `base`, imports may lead to all files below it."""

    base: str
    settings: Settings
    #: Whether findings that are in the baseline are left out.
    baseline: bool = True


class Scopes:
    """The scopes of the files of an editor; reads configuration files, once each until it is told to forget."""

    def __init__(self) -> None:
        self._folders: dict[tuple[str, str, EditorSettings], Settings | ConfigError] = {}
        self._excluded: dict[tuple[str, Scope], bool] = {}

    def forget(self) -> None:
        """Read everything again when it is next asked for."""
        self._folders.clear()
        self._excluded.clear()

    def of(self, path: str | None, base: str, editor: EditorSettings) -> Scope:
        """The scope of a file (None: one that was never saved) in the workspace folder `base`.

        Raises `ConfigError`.
        """
        folder = os.path.dirname(path) if path is not None else base
        key = (folder, base, editor)
        found = self._folders.get(key)
        if found is None:
            try:
                found = _load(folder, base, editor)
            except ConfigError as error:
                found = error
            self._folders[key] = found
        if isinstance(found, ConfigError):
            raise found
        return Scope(base, found, editor.baseline)

    def excludes(self, path: str, scope: Scope) -> bool:
        """Whether the configuration excludes a file from checks."""
        key = (path, scope)
        if os.path.isdir(path):
            return True
        if key not in self._excluded:
            given = replace(scope.settings, force_exclude=True)
            found = discover([Path(path)], given, Path(scope.base))
            self._excluded[key] = not found.names and os.path.isfile(path)
        return self._excluded[key]


def _load(folder: str, base: str, editor: EditorSettings) -> Settings:
    from amplint.registry import NoRules, UnknownRule, select_rules

    file = None
    if editor.configuration is not None:
        file = Path(base, os.path.expanduser(editor.configuration))
    settings = load_settings(Path(folder), config_file=file, overrides=dict(editor.overrides))
    settings = replace(settings, sources=())
    try:
        select_rules(settings)
    except (UnknownRule, NoRules) as error:
        raise ConfigError(str(error)) from error
    return settings
