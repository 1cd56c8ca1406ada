"""Settings: what is in force for a run, and where each value came from.

Settings come from `amplint.toml` or `[tool.amplint]` in pyproject.toml, the nearest one above the linted
path, from what that file extends, and from the command line. Nothing of the linted project is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: What `exclude` is unless it is set; names match at any depth, patterns are gitignore's.
DEFAULT_EXCLUDE = (
    ".git",
    ".hg",
    ".svn",
    ".venv",
    "venv",
    "__pycache__",
    "node_modules",
    ".tox",
    ".nox",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    "build",
    "dist",
    "site-packages",
    ".eggs",
    "*.egg-info",
    ".ipynb_checkpoints",
)

TARGETS = ("auto", "cuda", "npu")
SOCS = ("910A", "910B", "910C", "950")
STYLES = ("auto", "torch", "shim")
SEVERITIES = ("error", "warning", "info")
CONFIDENCES = ("high", "medium", "low")
OUTPUT_FORMATS = (
    "text",
    "concise",
    "json",
    "jsonl",
    "sarif",
    "github",
    "gitlab",
    "junit",
    "markdown",
    "html",
)

#: The minimum torch when the project names none: the first one in which `torch.accelerator` is complete.
DEFAULT_TORCH = (2, 7)

#: The name of the baseline, in the folder of the configuration or else the working directory.
BASELINE = "amplint-baseline.json"

#: Where a value comes from when nobody set it.
DEFAULT_SOURCE = "default"


class ConfigError(Exception):
    """A configuration that cannot be used; the message is one line and names the file and the key."""


@dataclass(frozen=True)
class Settings:
    """What is in force for a run. Hashable; equal settings give equal results."""

    #: Codes, families and names of rules, unvalidated; None is the default selection.
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    #: (gitignore pattern relative to `root`, rules silenced in the files that it matches).
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    #: Gitignore patterns relative to `root`; setting `exclude` replaces the defaults.
    exclude: tuple[str, ...] = DEFAULT_EXCLUDE
    extend_exclude: tuple[str, ...] = ()
    #: Excluded files stay excluded when they are named explicitly.
    force_exclude: bool = False
    respect_gitignore: bool = True
    #: One of `TARGETS`; see `effective_target`.
    target: str = "auto"
    #: One of `SOCS`.
    soc: str = "910B"
    #: The oldest torch release the project supports, (major, minor).
    torch: tuple[int, int] = DEFAULT_TORCH
    #: One of `STYLES`; see `effective_style`.
    style: str = "auto"
    #: Dotted name of the module that rewritten code imports the shim from.
    shim_module: str = "amplint.runtime"
    fixable: tuple[str, ...] = ("ALL",)
    unfixable: tuple[str, ...] = ()
    #: (code, family or name, one of `SEVERITIES`).
    severity: tuple[tuple[str, str], ...] = ()
    #: One of `CONFIDENCES`.
    min_confidence: str = "medium"
    preview: bool = False
    #: One of `OUTPUT_FORMATS`.
    output_format: str = "text"
    #: Absolute; None is the default place.
    cache_dir: Path | None = None
    #: Absolute; None is the default place, where there need not be one.
    baseline: Path | None = None
    #: (the project's dotted name, the dotted name that it stands for).
    aliases: tuple[tuple[str, str], ...] = ()
    #: (rule name, its (option, value) pairs); lists are tuples, tables are tuples of pairs.
    rule_options: tuple[tuple[str, tuple[tuple[str, object], ...]], ...] = ()
    #: Folder of the configuration file in force; None without one.
    root: Path | None = None
    #: Whether torch_npu is among the project's dependencies.
    requires_npu: bool = False
    #: (name of the field, where its value came from), for the fields that are not at their default.
    sources: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def effective_target(self) -> str:
        """`npu` or `cuda`; `auto` is npu when the project depends on torch_npu."""
        if self.target == "auto":
            return "npu" if self.requires_npu else "cuda"
        return self.target

    @property
    def effective_style(self) -> str:
        """`torch` or `shim`; `auto` is the shim below torch 2.7 and on 910A (its scaler is torch_npu's)."""
        if self.style == "auto":
            return "shim" if self.torch < DEFAULT_TORCH or self.soc == "910A" else "torch"
        return self.style

    def baseline_file(self, cwd: Path) -> Path:
        """Where the baseline of a run in `cwd` is; there need not be one."""
        return self.baseline or (self.root or cwd) / BASELINE

    def options(self, rule: str) -> dict[str, object]:
        """Options of the rule of this name, as set in `[tool.amplint.rules.<rule>]`."""
        return dict(dict(self.rule_options).get(rule, ()))

    def source_of(self, name: str) -> str:
        """Where the value of a field came from: a file, the command line or `default`."""
        return dict(self.sources).get(name, DEFAULT_SOURCE)

    def in_force(self) -> Iterator[tuple[str, object, str]]:
        """Every setting: its name in a configuration file, its value, and where that came from."""
        for key in _READERS:
            name = _field_name(key)
            yield key, getattr(self, name), self.source_of(name)


def load_settings(
    start: Path,
    *,
    isolated: bool = False,
    config_file: Path | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Settings for what lies at `start`, a folder or a file.

    The nearest folder from there upward with an `amplint.toml` or a pyproject.toml with `[tool.amplint]`
    decides, unless `config_file` names another file, or `isolated` says that neither configuration nor
    dependencies are read. `overrides` come from the command line: setting names, spelled with dashes or
    underscores, to values; None means not given, lists may be given as comma-separated text, and `extend-`
    lists add to those of the files.

    ConfigError for files that are missing, broken or extend each other, and for unknown or wrong settings.
    """
    start = Path(os.path.abspath(start))
    folder = start if start.is_dir() else start.parent
    if isolated and config_file is not None:
        raise ConfigError("an isolated run cannot have a configuration file")
    merged = _Merged()
    if not isolated:
        if config_file is not None:
            found: Path | None = Path(os.path.abspath(config_file))
        else:
            found = _nearest_config(folder)
        if found is not None:
            _merge_file(merged, found, ())
            merged.values["root"] = found.parent
    for key, value in (overrides or {}).items():
        if value is not None:
            _merge_setting(merged, key.replace("_", "-"), value, "command line", Path.cwd(), from_toml=False)
    _resolve_dependencies(merged, None if isolated else folder)
    return Settings(**merged.values, sources=tuple(sorted(merged.sources.items())))


@dataclass
class _Merged:
    """Settings while files and overrides are laid over each other; keys are the names of the fields."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


# Reading files


def _nearest_config(folder: Path) -> Path | None:
    for parent in (folder, *folder.parents):
        own = parent / "amplint.toml"
        if os.path.isfile(own):
            return own
        project = parent / "pyproject.toml"
        if os.path.isfile(project) and _amplint_table(project) is not None:
            return project
    return None


def _amplint_table(path: Path) -> Mapping[str, object] | None:
    """The settings in a configuration file; None for a pyproject.toml without `[tool.amplint]`."""
    data = _read_bytes(path)
    if path.name != "pyproject.toml":
        return _parse_toml(path, data)
    if b"amplint" not in data:  # spares nearly every project the TOML parser, and broken files a complaint
        return None
    tool = _parse_toml(path, data).get("tool")
    table = tool.get("amplint") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ConfigError(f"{path}: tool.amplint: expected a table, got {_type_name(table)}")
    return table


def _read_bytes(path: Path) -> bytes:
    try:
        if not os.path.isfile(path):
            raise ConfigError(f"{path}: no such configuration file")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _parse_toml(path: Path, data: bytes) -> dict[str, Any]:
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise ConfigError(f"{path}: not valid TOML: {' '.join(str(error).split())}") from error


def _merge_file(merged: _Merged, path: Path, chain: tuple[str, ...]) -> None:
    """Lay a file's settings over `merged`, after those of the file that it extends."""
    identity = os.path.realpath(path)
    if identity in chain:
        raise ConfigError(f"{path}: extend: this file extends itself, through {chain[-1]}")
    table = _amplint_table(path)
    if table is None:
        raise ConfigError(f"{path}: there is no [tool.amplint] in it")
    if "extend" in table:
        base = _text(table["extend"], f"{path}: extend")
        base_path = path.parent / os.path.expanduser(base)
        if not os.path.isfile(base_path):
            raise ConfigError(f"{path}: extend: {base!r} does not exist")
        _merge_file(merged, base_path, (*chain, identity))
    for key, value in table.items():
        if key != "extend":
            _merge_setting(merged, key, value, str(path), path.parent, from_toml=True)


# One setting


def _merge_setting(
    merged: _Merged, key: str, value: object, source: str, folder: Path, *, from_toml: bool
) -> None:
    """Check one setting and lay it over `merged`; relative paths are relative to `folder`."""
    where = f"{source}: {key}"
    read = _READERS.get(key)
    if read is None:
        hint = _did_you_mean(key, (*_READERS, "extend"))
        if key == "tool" and from_toml:
            hint = "; outside of a pyproject.toml settings stand without [tool.amplint]"
        raise ConfigError(f"{source}: unknown setting {key!r}{hint}")
    if read is _names and isinstance(value, str) and not from_toml:
        value = [part for part in map(str.strip, value.split(",")) if part]
    result: Any = read(value, where)
    name = _field_name(key)
    if read is _path:
        result = Path(os.path.abspath(folder / os.path.expanduser(result)))
    elif key.startswith("extend-"):
        result = tuple(dict.fromkeys((*merged.values.get(name, ()), *result)))
    elif read in _TABLE_READERS:
        result = tuple({**dict(merged.values.get(name, ())), **dict(result)}.items())
    if key == "torch" and result is None:  # "auto" takes back what an extended file said
        merged.values.pop(name, None)
        merged.sources.pop(name, None)
        return
    merged.values[name] = result
    merged.sources[name] = source


def _text(value: object, where: str) -> str:
    if not isinstance(value, (str, Path)):
        raise ConfigError(f"{where}: expected a string, got {_type_name(value)}")
    return str(value)


def _path(value: object, where: str) -> str:
    """A path; an empty one, which would mean the folder of the configuration, is refused."""
    text = _text(value, where)
    if not text.strip():
        raise ConfigError(f"{where}: expected a path, got an empty string")
    return text


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: expected true or false, got {_type_name(value)}")
    return value


def _names(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{where}: expected a list of strings, got {_type_name(value)}")
    for element in value:
        if not isinstance(element, str):
            raise ConfigError(f"{where}: expected a list of strings, got a list with {_type_name(element)}")
    return tuple(value)


def _choice(*choices: str) -> Callable[[object, str], str]:
    def read(value: object, where: str) -> str:
        text = _text(value, where)
        if text not in choices:
            hint = _did_you_mean(text, choices) or f"; expected one of {', '.join(choices)}"
            raise ConfigError(f"{where}: unknown value {text!r}{hint}")
        return text

    return read


def _table(value: object, where: str) -> Iterable[tuple[str, object]]:
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        return value
    raise ConfigError(f"{where}: expected a table, got {_type_name(value)}")


def _per_file_ignores(value: object, where: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((pattern, _names(rules, f"{where}.{pattern!r}")) for pattern, rules in _table(value, where))


def _severity(value: object, where: str) -> tuple[tuple[str, str], ...]:
    read = _choice(*SEVERITIES)
    return tuple((rule, read(severity, f"{where}.{rule}")) for rule, severity in _table(value, where))


def _aliases(value: object, where: str) -> tuple[tuple[str, str], ...]:
    return tuple(_flat_aliases(value, where, ""))


def _flat_aliases(value: object, where: str, prefix: str) -> Iterator[tuple[str, str]]:
    """Pairs of dotted names; a dotted key without quotes is a table of tables to TOML, and means the same."""
    for key, target in _table(value, where):
        name = prefix + key
        if isinstance(target, Mapping):
            yield from _flat_aliases(target, f"{where}.{key}", f"{name}.")
        else:
            yield _dotted_name(name, where), _dotted_name(target, f"{where}.{key}")


def _dotted_name(value: object, where: str) -> str:
    text = _text(value, where)
    if not all(part.isidentifier() for part in text.split(".")):
        raise ConfigError(f"{where}: {text!r} is not a dotted name")
    return text


def _rule_options(value: object, where: str) -> tuple[tuple[str, tuple[tuple[str, object], ...]], ...]:
    return tuple(
        (rule, tuple((option, _frozen(content)) for option, content in _table(options, f"{where}.{rule}")))
        for rule, options in _table(value, where)
    )


def _frozen(value: object) -> object:
    if isinstance(value, Mapping):
        return tuple((key, _frozen(content)) for key, content in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(element) for element in value)
    return value


def _torch(value: object, where: str) -> tuple[int, int] | None:
    """A torch release; None for `auto`. A number is refused: TOML reads 2.10 as 2.1."""
    if isinstance(value, tuple) and len(value) == 2 and all(type(part) is int for part in value):
        return value
    if not isinstance(value, str):
        raise ConfigError(f'{where}: expected a string such as "2.4" or "auto", got {_type_name(value)}')
    if value == "auto":
        return None
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)*", value)
    if match is None:
        raise ConfigError(f'{where}: expected a version such as "2.4" or "auto", got {value!r}')
    return int(match[1]), int(match[2])


_READERS: dict[str, Callable[[object, str], Any]] = {
    "select": _names,
    "ignore": _names,
    "extend-select": _names,
    "per-file-ignores": _per_file_ignores,
    "exclude": _names,
    "extend-exclude": _names,
    "force-exclude": _flag,
    "respect-gitignore": _flag,
    "target": _choice(*TARGETS),
    "soc": _choice(*SOCS),
    "torch": _torch,
    "style": _choice(*STYLES),
    "shim-module": _dotted_name,
    "fixable": _names,
    "unfixable": _names,
    "severity": _severity,
    "min-confidence": _choice(*CONFIDENCES),
    "preview": _flag,
    "output-format": _choice(*OUTPUT_FORMATS),
    "cache-dir": _path,
    "baseline": _path,
    "aliases": _aliases,
    "rules": _rule_options,
}
_TABLE_READERS = (_per_file_ignores, _severity, _aliases, _rule_options)
_FIELD_NAMES = {"rules": "rule_options"}


def _field_name(key: str) -> str:
    """The field of `Settings` that a setting is kept in."""
    return _FIELD_NAMES.get(key, key.replace("-", "_"))


def _type_name(value: object) -> str:
    """What a TOML author calls the type of a value."""
    names: dict[type, str] = {
        bool: "a boolean",
        int: "an integer",
        float: "a float",
        str: "a string",
        list: "a list",
        dict: "a table",
    }
    return names.get(type(value), type(value).__name__)


def _did_you_mean(text: str, choices: Iterable[str]) -> str:
    from difflib import get_close_matches

    lowered = {choice.lower(): choice for choice in choices}
    matches = get_close_matches(text.lower().replace("_", "-"), lowered, n=1)
    return f"; did you mean {lowered[matches[0]]!r}?" if matches else ""


# Dependencies


@dataclass
class _Requirements:
    """What the project's files say about torch and torch_npu."""

    #: (oldest release, the file that says so).
    torch: tuple[tuple[int, int], str] | None = None
    #: The file that names torch_npu.
    npu: str | None = None

    def read(self, path: Path, requirements: Iterable[str]) -> None:
        """Take in requirements of equal standing; those read earlier are believed before them."""
        bounds = []
        for requirement in requirements:
            name, versions = _split_requirement(requirement)
            if name == "torch-npu":
                self.npu = self.npu or str(path)
            elif name == "torch" and (bound := _oldest_release(versions)) is not None:
                bounds.append(bound)
        if bounds and self.torch is None:
            self.torch = min(bounds), str(path)


def _resolve_dependencies(merged: _Merged, folder: Path | None) -> None:
    """Fill in what `auto` means for the project around `folder`; None for an isolated run."""
    target = merged.values.get("target", "auto")
    if folder is None or ("torch" in merged.values and target != "auto"):
        return
    found = _project_requirements(folder)
    if "torch" not in merged.values and found.torch is not None:
        merged.values["torch"], merged.sources["torch"] = found.torch
    if found.npu is not None:
        merged.values["requires_npu"], merged.sources["requires_npu"] = True, found.npu


def _project_requirements(folder: Path) -> _Requirements:
    """Read upward from `folder` to the root of its project: a packaging file or a repository.

    Within a folder, dependencies are believed before extras, and these before requirement files, which
    tend to pin what one machine has.
    """
    result = _Requirements()
    for parent in (folder, *folder.parents):
        packaging = [
            (path, *found)
            for path, read in ((parent / "pyproject.toml", _pyproject), (parent / "setup.cfg", _setup_cfg))
            if os.path.isfile(path) and (found := read(path)) is not None
        ]
        for path, dependencies, _ in packaging:
            result.read(path, dependencies)
        for path, _, extras in packaging:
            result.read(path, extras)
        for path in (*sorted(parent.glob("requirements*.txt")), *sorted(parent.glob("requirements/*.txt"))):
            if os.path.isfile(path):
                result.read(path, _requirement_lines(path))
        if packaging or os.path.isfile(parent / "setup.py") or os.path.exists(parent / ".git"):
            break
    return result


def _pyproject(path: Path) -> tuple[list[str], list[str]] | None:
    """Dependencies and extras in a pyproject.toml; None when it packages nothing (or cannot be read)."""
    try:
        document = _parse_toml(path, _read_bytes(path))
    except ConfigError:
        return None  # without [tool.amplint] in it, this file is not ours to complain about
    project = _subtable(document, "project")
    poetry = _subtable(document, "tool", "poetry")
    if not (project or poetry or "build-system" in document):
        return None
    extras: list[str] = []
    groups = (_subtable(project, "optional-dependencies"), _subtable(document, "dependency-groups"))
    for group in (content for table in groups for content in table.values()):
        extras += _strings(group)
    for table in (poetry, *_subtable(poetry, "group").values()):
        if table is not poetry:
            extras += _poetry(_subtable(table, "dependencies"))
    return _strings(project.get("dependencies")) + _poetry(_subtable(poetry, "dependencies")), extras


def _subtable(document: object, *keys: str) -> dict[str, Any]:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def _strings(value: object) -> list[str]:
    return [element for element in value if isinstance(element, str)] if isinstance(value, list) else []


def _poetry(table: Mapping[str, object]) -> list[str]:
    """Poetry's table of names and version constraints as requirement lines."""
    versions = {name: _subtable(table, name).get("version", content) for name, content in table.items()}
    return [f"{name} {version if isinstance(version, str) else ''}" for name, version in versions.items()]


def _setup_cfg(path: Path) -> tuple[list[str], list[str]] | None:
    """Dependencies and extras in a setup.cfg; None when it packages nothing (or cannot be read)."""
    from configparser import ConfigParser, Error

    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(_decoded(path))
    except Error:
        return None
    if not (parser.has_section("metadata") or parser.has_section("options")):
        return None
    dependencies = parser.get("options", "install_requires", fallback="").splitlines()
    extras: list[str] = []
    if parser.has_section("options.extras_require"):
        for _, group in parser.items("options.extras_require"):
            extras += group.splitlines()
    return dependencies, extras


def _requirement_lines(path: Path) -> list[str]:
    """Lines of a requirements file, continued ones joined, without comments and options such as --hash."""
    text = re.sub(r"\\\r?\n", " ", _decoded(path))
    return [re.sub(r"(?:^|\s)(?:#|--?[a-z]).*", "", line) for line in text.splitlines()]


def _decoded(path: Path) -> str:
    """Text of a file that is only searched; unreadable ones are empty, odd bytes become U+FFFD."""
    try:
        data = path.read_bytes()
    except OSError:
        return ""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):  # `pip freeze >` in PowerShell
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def _split_requirement(line: str) -> tuple[str, str]:
    """Normalised name and version part of a requirement (PEP 508), two empty strings for anything else."""
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^]]*\])?([^;]*)", line)
    if match is None:
        return "", ""
    return re.sub(r"[-_.]+", "-", match[1]).lower(), match[2]


def _oldest_release(versions: str) -> tuple[int, int] | None:
    """The oldest torch release a version part allows; None when it says nothing that matters.

    Where only newer releases are excluded, the newest one allowed stands in, if the default is newer still.
    """
    if "@" in versions:  # a wheel's address: torch-2.1.0%2Bcu118-cp310-...
        match = re.search(r"/torch-(\d+)\.(\d+)", versions)
        return (int(match[1]), int(match[2])) if match else None
    lower: list[tuple[int, int]] = []
    upper: list[tuple[int, int]] = []
    for operator, version in re.findall(r"([<>=!~^]*)\s*v?(\d+(?:\.\d+)*)[^,|\s]*", versions):
        numbers = [*map(int, version.split(".")), 0, 0][:3]
        release = numbers[0], numbers[1]
        if operator in ("<", "<="):
            excluded = operator == "<" and numbers[2] == 0 and release[1] > 0
            upper.append((release[0], release[1] - 1) if excluded else release)
        elif operator != "!=":
            lower.append(release)
    if lower:
        return max(lower)
    return min(upper) if upper and min(upper) < DEFAULT_TORCH else None
