"""The first files of a new rule: its module, its page and its test, and its entry in `MODULES`."""

from __future__ import annotations

import ast
import io
import keyword
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: Where the built-in rules are in a checkout of amplint.
BUILT_IN = Path("rules", "amplint_rules")

_CODE = re.compile(r"AMP\d{3}", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class ScaffoldError(Exception):
    """A rule that cannot be made; the message is one line, and nothing was written."""


@dataclass(frozen=True, slots=True)
class KnownRule:
    """A rule that is there already."""

    code: str
    name: str


@dataclass(frozen=True, slots=True)
class Scaffold:
    """What is written for a rule."""

    #: Path -> text of the files to create.
    created: dict[Path, str]
    #: The package's `__init__.py`, and its text with the new module in `MODULES`.
    registry: Path
    registered: str

    def write(self) -> None:
        """Create the files, the entry in `MODULES` last. ScaffoldError, and none of them stays, on a failure."""
        done: list[Path] = []
        try:
            for path, text in self.created.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "x", encoding="utf-8", newline="\n") as file:
                    done.append(path)
                    file.write(text)
            self.registry.write_bytes(self.registered.encode("utf-8"))
        except OSError as error:
            for path in done:
                with suppress(OSError):
                    path.unlink()
            raise ScaffoldError(f"{error.filename} cannot be written: {error.strerror}") from error


def checkout_package(start: Path) -> Path:
    """The package of the built-in rules in the checkout around `start`. ScaffoldError when there is none."""
    for parent in (start, *start.parents):
        if (parent / BUILT_IN / "__init__.py").is_file():
            return parent / BUILT_IN
    raise ScaffoldError("this is no checkout of amplint; --package PATH names another package of rules")


def prepare(
    code: str, name: str, package: Path, family: str | None, installed: Iterable[KnownRule]
) -> Scaffold:
    """Everything to write for the rule `code` called `name` in the folder `package`; writes nothing.

    `family` is the folder within the package; None is that of the rule with the nearest code of the same
    hundred. `installed` rules must have neither the code nor the name. ScaffoldError says what is wrong.
    """
    _check_spelling(code, name, family)
    if not (package / "__init__.py").is_file():
        raise ScaffoldError(f"{package} is not a Python package: it has no __init__.py")
    there = _rules_below(package)
    for known in (*there.values(), *installed):
        if known.code == code:
            raise ScaffoldError(f"{code} is the code of {known.name}; codes are never used twice")
        if known.name == name:
            raise ScaffoldError(f"{name} is the name of {known.code}; names are never used twice")
    folder = _nearest_family(code, package, there) if family is None else family
    home = package.joinpath(*folder.split("."))
    stem = name.replace("-", "_")
    root = _project_root(package)
    tests = root / "tests" / "rules" if (root / "tests" / "rules").is_dir() else root / "tests"
    gap = "\n" if (root / "amplint" / "__init__.py").is_file() else ""  # isort's sections
    fields = {"code": code, "name": name, "gap": gap}
    created = {
        home / f"{stem}.py": _MODULE.format(**fields),
        home / f"{stem}.md": _PAGE.format(**fields),
        tests / f"test_{stem}.py": _TEST.format(**fields),
    }
    if folder and not (home / "__init__.py").exists():
        created = {home / "__init__.py": f'"""TODO: what the rules of {code[:4]} are about."""\n', **created}
    for path in created:
        if os.path.lexists(path):
            raise ScaffoldError(f"{path} exists already")
    registry = package / "__init__.py"
    module = f"{folder}.{stem}" if folder else stem
    codes = {dotted: known.code for dotted, known in there.items()}
    return Scaffold(created, registry, _registered(registry, module, code, codes))


def _check_spelling(code: str, name: str, family: str | None) -> None:
    if not _CODE.fullmatch(code):
        raise ScaffoldError(f"{code!r} is not a code: AMP and three digits")
    if not _NAME.fullmatch(name):
        raise ScaffoldError(
            f"{name!r} is not a name: words of a-z and 0-9 with dashes between, clip-before-unscale"
        )
    if name == "all" or re.fullmatch(r"amp\d*", name) or keyword.iskeyword(name):
        raise ScaffoldError(f"{name!r} means something else already, choose another name")
    if family is not None and not (
        family.isidentifier() and family.isascii() and not keyword.iskeyword(family)
    ):
        raise ScaffoldError(f"{family!r} is not a folder that Python can import from")


def _rules_below(package: Path) -> dict[str, KnownRule]:
    """The rules of a package by dotted module name, read off the text: what is being written need not run."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        dotted = ".".join(path.relative_to(package).with_suffix("").parts)
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Rule":
                words = {
                    each.arg: each.value.value
                    for each in node.keywords
                    if isinstance(each.value, ast.Constant)
                }
                if "code" in words and "name" in words:
                    found[dotted] = KnownRule(str(words["code"]), str(words["name"]))
    return found


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise ScaffoldError(f"{path} cannot be read: {error}") from error


def _nearest_family(code: str, package: Path, there: dict[str, KnownRule]) -> str:
    """The folder, dotted, of the rule with the nearest code of the same hundred; "" is the package itself."""
    near = sorted(
        (abs(int(known.code[3:]) - int(code[3:])), dotted)
        for dotted, known in there.items()
        if _CODE.fullmatch(known.code) and known.code[:4] == code[:4]
    )
    if near:
        return near[0][1].rpartition(".")[0]
    if any("." in dotted for dotted in there):
        raise ScaffoldError(f"{package} has no rules of {code[:4]} yet; --family names the folder for them")
    return ""


def _project_root(package: Path) -> Path:
    """The folder of the project that a package belongs to, or the one that the package lies in."""
    package = Path(os.path.abspath(package))
    for parent in package.parents:
        if (parent / "pyproject.toml").is_file() or (parent / ".git").exists():
            return parent
    return package.parent


def _registered(registry: Path, module: str, code: str, codes: dict[str, str]) -> str:
    """The text of `registry` with `module` in `MODULES`, before the first module with a higher code."""
    value = _modules(registry)
    text = registry.read_bytes().decode("utf-8")
    names = [str(item.value) for item in value.elts if isinstance(item, ast.Constant)]
    index = next((i for i, each in enumerate(names) if codes.get(each, "") > code), len(names))
    lines = list(io.StringIO(text, newline=""))
    rows = [item.lineno for item in value.elts]
    one_per_row = len({value.lineno, *rows}) == len(rows) + 1 and value.elts != []
    if not one_per_row or not re.search(r",\s*(#.*)?$", lines[rows[-1] - 1]):
        if "#" in (ast.get_source_segment(text, value) or ""):
            raise ScaffoldError(f"{registry}: write MODULES with one module per line, and a comma after each")
        names.insert(index, module)
        return _replaced(lines, value, _written(names, isinstance(value, ast.Tuple)))
    row = rows[index] - 1 if index < len(rows) else rows[-1]
    newline = "\r\n" if lines[rows[-1] - 1].endswith("\r\n") else "\n"
    return "".join([*lines[:row], f'    "{module}",{newline}', *lines[row:]])


def _written(names: list[str], as_tuple: bool) -> str:
    """A tuple or list as ruff writes it: one name per line, but a tuple of one name on one line."""
    if as_tuple and len(names) == 1:
        return f'("{names[0]}",)'
    body = "".join(f'    "{name}",\n' for name in names)
    return f"(\n{body})" if as_tuple else f"[\n{body}]"


def _modules(registry: Path) -> ast.Tuple | ast.List:
    for node in _parsed(registry).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "MODULES" for target in targets):
                value = node.value
                if isinstance(value, (ast.Tuple, ast.List)) and all(
                    isinstance(item, ast.Constant) and isinstance(item.value, str) for item in value.elts
                ):
                    return value
    raise ScaffoldError(f"{registry} has no MODULES, a tuple of module names, to add the rule to")


def _replaced(lines: list[str], node: ast.expr, content: str) -> str:
    """The text with `content` in place of `node` (columns of `ast` are bytes)."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    first, last = lines[node.lineno - 1].encode(), lines[node.end_lineno - 1].encode()
    before, behind = first[: node.col_offset].decode(), last[node.end_col_offset :].decode()
    return "".join([*lines[: node.lineno - 1], before, content, behind, *lines[node.end_lineno :]])


_MODULE = '''\
"""TODO: one line on what goes wrong."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst
{gap}from amplint.finding import Severity
from amplint.rule import Context, Report, Rule


def check(ctx: Context) -> Iterable[Report]:
    """Report every TODO."""
    for call in ctx.model.tree.of_type(cst.Call):
        if "todo.todo" in ctx.model.names.resolve(call.func):
            yield Report(call, "TODO: what is wrong here, with the names of the code")


RULE = Rule(
    code="{code}",
    name="{name}",
    summary="TODO: what it finds, in one line, without a full stop",
    severity=Severity.WARNING,
    check=check,
    words=("todo",),
    preview=True,
    module=__name__,
)
'''

_PAGE = """\
# {name} ({code})

TODO: what the rule finds, and what goes wrong at run time, in one paragraph.

## Bad

```python
raise NotImplementedError("TODO: code that is wrong")  # {code}
```

TODO: the same through an alias.

## Good

TODO: three blocks at least, among them code that looks wrong and is right.

## Why

TODO: the mechanism, numbers, links to documentation.

## Fix safety

TODO: what the fix changes and when there is none, or why there is never one.
"""

_TEST = '''\
"""{code}: TODO."""

from __future__ import annotations

import pytest
{gap}from amplint import check_source

CODE = "{code}"


def rows(text: str) -> list[int]:
    findings = check_source(text, "train.py", select=[CODE], target="npu")
    return [finding.start.row for finding in findings]


@pytest.mark.parametrize("text", ["raise NotImplementedError('TODO')\\n"])
def test_todo_is_found(text: str) -> None:
    assert rows(text) == [1]


@pytest.mark.parametrize("text", ["raise NotImplementedError('TODO')\\n"])
def test_what_looks_like_it_is_silent(text: str) -> None:
    assert rows(text) == []
'''
