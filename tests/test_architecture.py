"""The arrows between the parts: read off the imports of every module, and off what a run really loads."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TREES = {"amplint": ROOT / "amplint", "amplint_rules": ROOT / "rules" / "amplint_rules"}

#: Part -> the other parts that it may import, at the top of a module or inside a function. A part is a module
#: or a package with all that is below it; where two match, the longer name counts (`amplint.model.ir`).
ARROWS: dict[str, set[str]] = {
    # leaves: data that every part may use
    "amplint.finding": set(),
    "amplint.facts": set(),
    "amplint.config": set(),
    "amplint.cancel": set(),
    "amplint.notebook": {"amplint.finding"},
    "amplint.source": {"amplint.finding", "amplint.notebook"},
    "amplint.suppress": {"amplint.finding", "amplint.source"},
    "amplint.fix": {"amplint.finding"},
    "amplint.rule": {"amplint.finding"},
    # from text to meaning
    "amplint.syntax": {"amplint.cancel", "amplint.finding", "amplint.source"},
    "amplint.model.ir": set(),
    "amplint.model.units": set(),
    "amplint.model.ondemand": {
        "amplint.model",
        "amplint.model.ir",
        "amplint.model.linked",
        "amplint.model.units",
    },
    "amplint.model.linked": {
        "amplint.model",
        "amplint.model.ir",
        "amplint.model.units",
        "amplint.source",
    },
    "amplint.model": {
        "amplint.facts",
        "amplint.finding",
        "amplint.model.ir",
        "amplint.model.units",
        "amplint.source",
        "amplint.syntax",
    },
    "amplint.flow": {
        "amplint.cancel",
        "amplint.facts",
        "amplint.finding",
        "amplint.model.ir",
        "amplint.model.linked",
        "amplint.model.ondemand",
        "amplint.model.units",
    },
    "amplint.project": {
        "amplint.facts",
        "amplint.finding",
        "amplint.flow",
        "amplint.model",
        "amplint.model.units",
        "amplint.source",
    },
    "amplint.port": {
        "amplint.config",
        "amplint.facts",
        "amplint.finding",
        "amplint.model",
        "amplint.rule",
        "amplint.syntax",
    },
    # one run
    "amplint.rule_index": {"amplint.finding", "amplint.rule"},
    "amplint.installed": set(),
    "amplint.registry": {"amplint.config", "amplint.installed", "amplint.rule", "amplint.rule_index"},
    "amplint.discover": {"amplint.config", "amplint.source"},
    "amplint.audit": {
        "amplint.finding",
        "amplint.registry",
        "amplint.rule",
        "amplint.source",
        "amplint.suppress",
    },
    "amplint.mentions": set(),
    "amplint.gate": {"amplint.mentions", "amplint.rule", "amplint.source", "amplint.syntax"},
    "amplint.verify": {"amplint.finding", "amplint.model"},
    "amplint.engine": {
        "amplint.audit",
        "amplint.cancel",
        "amplint.config",
        "amplint.discover",
        "amplint.facts",
        "amplint.finding",
        "amplint.fix",
        "amplint.gate",
        "amplint.model",
        "amplint.notebook",
        "amplint.project",
        "amplint.registry",
        "amplint.rule",
        "amplint.source",
        "amplint.suppress",
        "amplint.syntax",
    },
    "amplint.work": {
        "amplint.config",
        "amplint.engine",
        "amplint.finding",
        "amplint.fix",
        "amplint.flow",
        "amplint.gate",
        "amplint.model",
        "amplint.project",
        "amplint.rule",
        "amplint.source",
        "amplint.syntax",
        "amplint.verify",
    },
    "amplint.baseline": {
        "amplint.finding",
        "amplint.source",
        "amplint.syntax",
    },
    "amplint.ignores": {
        "amplint.finding",
        "amplint.fix",
        "amplint.source",
        "amplint.suppress",
        "amplint.syntax",
    },
    "amplint.pool": set(),
    "amplint.cachedir": {"amplint.config"},
    "amplint.cache": {"amplint.cachedir", "amplint.finding"},
    "amplint.runner": {
        "amplint.cache",
        "amplint.cachedir",
        "amplint.config",
        "amplint.discover",
        "amplint.finding",
        "amplint.installed",
        "amplint.pool",
        "amplint.project",
        "amplint.registry",
        "amplint.rule",
        "amplint.source",
        "amplint.work",
    },
    "amplint.changes": {"amplint.finding", "amplint.source"},
    "amplint.report": {"amplint.config", "amplint.finding", "amplint.fix", "amplint.source"},
    # what people call
    "amplint.lsp": {
        "amplint",
        "amplint.baseline",
        "amplint.cancel",
        "amplint.config",
        "amplint.discover",
        "amplint.engine",
        "amplint.finding",
        "amplint.flow",
        "amplint.ignores",
        "amplint.model",
        "amplint.notebook",
        "amplint.pool",
        "amplint.project",
        "amplint.registry",
        "amplint.rule",
        "amplint.source",
        "amplint.syntax",
        "amplint.work",
    },
    "amplint.scaffold": set(),
    "amplint.cli": {
        "amplint",
        "amplint.baseline",
        "amplint.cachedir",
        "amplint.changes",
        "amplint.config",
        "amplint.discover",
        "amplint.facts",
        "amplint.finding",
        "amplint.ignores",
        "amplint.lsp",
        "amplint.registry",
        "amplint.report",
        "amplint.runner",
        "amplint.scaffold",
        "amplint.source",
    },
    "amplint.__main__": {"amplint.cli"},
    "amplint": {"amplint.finding", "amplint.runner"},
    # runs in the user's training process, and knows nothing of the linter
    "amplint.runtime": set(),
    "amplint.simnpu": set(),
    # rules see the model and the analyses, never how a run is made of them
    "amplint_rules": {
        "amplint.config",
        "amplint.facts",
        "amplint.finding",
        "amplint.flow",
        "amplint.gate",
        "amplint.model",
        "amplint.model.ir",
        "amplint.model.units",
        "amplint.port",
        "amplint.registry",
        "amplint.rule",
        "amplint.suppress",
        "amplint.syntax",
    },
}

#: Package from outside the standard library -> the parts that may import it.
OUTSIDE: dict[str, set[str]] = {
    "click": {"amplint.cli"},
    "jinja2": {"amplint.report"},
    "libcst": {"amplint.engine", "amplint.model", "amplint.port", "amplint.syntax", "amplint_rules"},
    "lsprotocol": {"amplint.lsp"},
    "pathspec": {"amplint.discover"},
    "pygls": {"amplint.lsp"},
    "rich": {"amplint.report"},
    "tomli": {"amplint.config"},
    "torch": {"amplint.runtime", "amplint.simnpu"},
    "torch_npu": {"amplint.runtime", "amplint.simnpu"},
}

#: Modules that decide whether a file is worth LibCST, and so must not load it.
BEFORE_LIBCST = (
    "amplint",
    "amplint.baseline",
    "amplint.changes",
    "amplint.cli",
    "amplint.cli.check",
    "amplint.cli.clean",
    "amplint.cli.config",
    "amplint.cli.lsp",
    "amplint.cli.new_rule",
    "amplint.cli.ops",
    "amplint.cli.old_code",
    "amplint.cli.rule",
    "amplint.cli.shim",
    "amplint.config",
    "amplint.discover",
    "amplint.gate",
    "amplint.ignores",
    "amplint.notebook.cells",
    "amplint.notebook.document",
    "amplint.registry",
    "amplint.runner",
    "amplint.source",
    "amplint.suppress",
)

#: Packages that `import amplint.cli` leaves to the commands that need them.
HEAVY = ("jinja2", "libcst", "pygls", "rich", "torch", "torch_npu")


@dataclass(frozen=True)
class Import:
    """One imported module, as far as the statement tells what is a module."""

    name: str
    row: int
    #: Under `if TYPE_CHECKING:`, hence for annotations only.
    for_types: bool


def modules() -> dict[str, Path]:
    """Every module of both packages, by dotted name."""
    found = {}
    for package, folder in TREES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(module: str, source: str) -> list[Import]:
    """What a module imports anywhere in it, relative imports resolved."""
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(source)
    typed = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    return [
        Import(name, node.lineno, id(node) in typed)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in imported_names(node, package)
    ]


def imported_names(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    origin = node.module or ""
    if node.level:
        parents = package.split(".")
        base = ".".join(parents[: len(parents) - node.level + 1])
        origin = f"{base}.{origin}" if origin else base
    for alias in node.names:
        name = f"{origin}.{alias.name}"
        yield name if name in MODULES else origin


def part_of(module: str, parts: set[str]) -> str | None:
    """The longest of `parts` that a module is or stands below; `amplint` is the package's own module only."""
    names = module.split(".")
    for length in range(len(names), 0, -1):
        part = ".".join(names[:length])
        if part in parts and not (part == "amplint" and length < len(names)):
            return part
    return None


def at_run_time(module: str) -> list[Import]:
    return [each for each in imports(module, MODULES[module].read_text("utf-8")) if not each.for_types]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_belongs_to_a_part_of_the_map(module):
    assert part_of(module, set(ARROWS)), f"{module} is in no part; say in ARROWS what it may import"


def test_the_map_names_no_part_that_is_gone():
    assert [part for part in ARROWS if part not in MODULES] == []


@pytest.mark.parametrize("module", MODULES)
def test_imports_follow_the_arrows(module):
    own = part_of(module, set(ARROWS))
    wrong = [
        f"row {each.row}: {each.name}"
        for each in at_run_time(module)
        if each.name.split(".")[0] in TREES
        and (target := part_of(each.name, set(ARROWS))) != own
        and target not in ARROWS.get(own or "", set())
    ]
    assert wrong == []


def test_the_arrows_make_no_circle():
    done: list[str] = []
    while rest := [part for part in ARROWS if part not in done]:
        free = [part for part in rest if ARROWS[part] <= {*done, part}]
        assert free, f"these import each other: {rest}"
        done += free


@pytest.mark.parametrize("module", MODULES)
def test_packages_from_outside_are_imported_only_where_they_belong(module):
    wrong = [
        f"row {each.row}: {each.name}"
        for each in at_run_time(module)
        if (package := each.name.split(".")[0]) not in {*sys.stdlib_module_names, *TREES}
        and part_of(module, OUTSIDE.get(package, set())) is None
    ]
    assert wrong == []


@pytest.mark.parametrize("module", [name for name in MODULES if part_of(name, {"amplint.flow"})])
def test_the_analyses_see_no_syntax_even_in_annotations(module):
    source = MODULES[module].read_text("utf-8")
    wrong = [each for each in imports(module, source) if each.name.startswith(("libcst", "amplint.syntax"))]
    assert wrong == []


def test_nothing_reaches_the_built_in_rules_but_through_the_registry():
    wrong = [
        f"{module}: row {each.row}"
        for module in MODULES
        if module.startswith("amplint.")
        for each in imports(module, MODULES[module].read_text("utf-8"))
        if each.name.startswith("amplint_rules")
    ]
    assert wrong == []


def test_relative_imports_and_annotations_are_read_as_they_are_meant():
    source = (
        "from . import guards\nfrom ..source import Source\nif TYPE_CHECKING:\n    import libcst as cst\n"
    )
    assert imports("amplint.model.module", source) == [
        Import("amplint.model.guards", 1, False),
        Import("amplint.source", 2, False),
        Import("libcst", 4, True),
    ]


def loaded(code: str, **environment: str) -> list[str]:
    """The modules that a fresh interpreter has loaded after running `code`."""
    code = f"{code}\nimport json, sys\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    names = json.loads(run.stdout.splitlines()[-1])
    assert isinstance(names, list)
    return names


def packages(names: list[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def test_importing_the_command_line_loads_nothing_heavy():
    assert packages(loaded("import amplint.cli")).isdisjoint(HEAVY)


@pytest.mark.parametrize("module", BEFORE_LIBCST)
def test_what_runs_before_a_file_is_worth_parsing_does_not_load_libcst(module):
    assert "libcst" not in packages(loaded(f"import {module}"))


def test_the_analyses_load_without_libcst():
    names = [name for name in MODULES if part_of(name, {"amplint.flow"})]
    assert "libcst" not in packages(loaded("import " + ", ".join(names)))


@pytest.fixture
def traps(tmp_path) -> Path:
    """A folder whose torch and torch_npu, and the linted project beside them, tell when they are imported."""
    for name in ("torch", "torch_npu", "helper"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')\n")
    (tmp_path / "train.py").write_text(
        "import helper\nimport torch\nimport torch_npu\nfrom torch.cuda.amp import autocast\n\n"
        f"open({str(tmp_path / 'imported')!r}, 'a').write('train ')\n\n\n"
        "def step(model, x):\n    with autocast() and torch.no_grad():\n        return model(x)\n"
    )
    return tmp_path


@pytest.mark.parametrize("command", ["check", "fix", "rule", "config", "shim", "clean"])
def test_a_command_imports_neither_torch_nor_what_it_lints(command, traps):
    arguments = {
        "check": [str(traps / "train.py")],
        "fix": ["--repair", str(traps / "train.py")],
        "rule": ["--all"],
        "config": [str(traps)],
        "shim": ["--vendor", str(traps / "_amp.py")],
        "clean": [str(traps)],
    }[command]
    code = (
        "from amplint.cli import main\n"
        f"try:\n    main({[command, *arguments]!r})\n"
        "except SystemExit as end:\n    assert end.code in (None, 0, 1), end.code"
    )
    names = loaded(code, PYTHONPATH=str(traps))
    assert not (traps / "imported").exists()
    assert packages(names).isdisjoint({"torch", "torch_npu", "train", "helper"})
    assert not [name for name in names if name.startswith(("amplint.runtime", "amplint.simnpu"))]


def test_the_shim_needs_torch_and_the_standard_library_only():
    names = {each.name.split(".")[0] for each in at_run_time("amplint.runtime")}
    assert names <= {"torch", "torch_npu", *sys.stdlib_module_names}
