"""Break correct GradScaler code of real projects in six ways and count how many of the breakages are found.

    python tests/corpus/mutate_protocol.py CHECKOUT [CHECKOUT ...] [--only drop-update] [--folder train.py] [--quiet] [--diff]

Each CHECKOUT is one project, or a folder of projects. Every `scaler.step(optimizer)` whose scaler also scales in the
same file is a site. Of a site that a mutation makes wrong for certain one mutant is made, and checked together with
the files that use its class and what these import; of the others it is said why not. A mutant counts as found when it has a finding of the
expected code that the original does not have, at default confidence. An original that has such a finding in the
function at hand is noisy, unless two readers have called the finding right (verdicts.jsonl): then it is no site.
Exits 1 when less than nine of ten mutants of a mutation are found, or when an original is noisy. Slow: not part of
the test suite.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import re
import sys
import tempfile
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from amplint.config import load_settings
from amplint.finding import Finding
from amplint.registry import all_rules
from amplint.runner import run

VERDICTS = Path(__file__).with_name("verdicts.jsonl")
SHARE = 0.9
#: Files that may be checked with a mutant; further users of its class are left out.
COMPANY = 40
#: What the tests of accumulation are made of: a remainder, or a name such as these.
WINDOW = re.compile(
    r"%|accum|update_freq|update_grad|need_update|update_params|sync|last_opt_step|is_last|should_step|do_step|step_now",
    re.IGNORECASE,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Block = list[ast.stmt]


class NotApplicable(Exception):
    """Why a mutation is no bug, or is not to be had, at a site."""


class Module:
    """One parsed file, with the parent of every node."""

    def __init__(self, tree: Path, path: Path) -> None:
        self.tree = tree
        self.name = path.relative_to(tree).as_posix()
        self.text = path.read_text(encoding="utf-8")
        self.lines = self.text.splitlines(keepends=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.root = ast.parse(self.text)
        self.parents = {child: node for node in ast.walk(self.root) for child in ast.iter_child_nodes(node)}
        #: Calls of methods, and of functions by their module.
        self.calls = [node for node in ast.walk(self.root) if isinstance(node, ast.Call) and method(node)]

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around `node`, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def scope(self, node: ast.AST) -> ast.AST:
        """The function that runs `node`, or the module."""
        return next((n for n in self.above(node) if isinstance(n, Function)), self.root)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        return next((n for n in self.above(node) if isinstance(n, ast.ClassDef)), None)

    def statement(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def block(self, stmt: ast.AST) -> Block:
        """The block that `stmt` stands in."""
        parent = self.parents[stmt]
        for field in ("body", "orelse", "finalbody"):
            block = getattr(parent, field, None)
            if isinstance(block, list) and any(s is stmt for s in block):
                return block
        raise NotApplicable("in a handler or a match")

    def route(self, node: ast.AST) -> list[tuple[Block, int]]:
        """The blocks from the function's down to the one with `node`, with the index taken in each."""
        scope = self.scope(node)
        stmts = [n for n in (node, *self.above(node)) if isinstance(n, ast.stmt)]
        inside = stmts[: next((i for i, n in enumerate(stmts) if n is scope), len(stmts))]
        return [(self.block(s), index(self.block(s), s)) for s in reversed(inside)]


@dataclass(frozen=True)
class Site:
    """One `scaler.step(optimizer)`."""

    module: Module
    step: ast.Call

    @cached_property
    def scaler(self) -> str:
        return owner(self.step)

    @cached_property
    def optimizer(self) -> str:
        return ast.unparse(self.step.args[0])

    @cached_property
    def scope(self) -> ast.AST:
        return self.module.scope(self.step)

    @property
    def place(self) -> str:
        return f"{self.module.tree.name}/{self.module.name}:{self.step.lineno}"

    def own(self, attribute: str, everywhere: bool = False) -> list[ast.Call]:
        """The calls of the scaler's method, in this function or in the whole class or file."""
        calls = [c for c in self.module.calls if method(c) == attribute and owner(c) == self.scaler]
        if not everywhere:
            return [c for c in calls if self.module.scope(c) is self.scope]
        if not self.scaler.startswith("self."):
            return calls
        return [c for c in calls if self.module.class_of(c) is self.module.class_of(self.step)]


@dataclass(frozen=True)
class Mutant:
    text: str
    #: The row that is wrong now, in the original.
    row: int


def method(call: ast.Call) -> str:
    """The name of the method that is called, or ""."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def owner(call: ast.Call) -> str:
    """What the method is called on, as text."""
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def is_same(node: ast.expr, text: str) -> bool:
    return ast.unparse(node) == text


def index(block: Block, stmt: ast.AST) -> int:
    return next(i for i, s in enumerate(block) if s is stmt)


def holds(outer: ast.AST, inner: ast.AST) -> bool:
    return any(node is inner for node in ast.walk(outer))


def rows(stmt: ast.stmt) -> tuple[int, int]:
    return stmt.lineno, stmt.end_lineno or stmt.lineno


def text_of(module: Module, first: int, last: int) -> str:
    return textwrap.dedent("".join(module.lines[first - 1 : last]))


def meeting(module: Module, a: ast.AST, b: ast.AST) -> tuple[Block, int, int] | None:
    """The innermost block with both nodes and where they stand in it, or None if they exclude each other."""
    pairs = zip(module.route(a), module.route(b), strict=False)
    common = [(x[0], x[1], y[1]) for x, y in pairs if x[0] is y[0]]
    if not common:
        return None
    block, i, j = common[-1]
    return None if i == j and module.statement(a) is not module.statement(b) else (block, i, j)


# Texts


def edited(module: Module, removed: list[tuple[int, int]], added: list[tuple[int, str]]) -> str:
    """The module's text without the rows of `removed`, with `added` before its rows."""
    gone = {row for first, last in removed for row in range(first, last + 1)}
    found = []
    for row in range(1, len(module.lines) + 2):
        found += [text for at, text in added if at == row]
        if row <= len(module.lines) and row not in gone:
            found.append(module.lines[row - 1])
    return "".join(found)


def placeholder(module: Module, stmts: list[ast.stmt]) -> list[tuple[int, str]]:
    """A `pass` where taking out `stmts` of one block would leave it empty."""
    block = module.block(stmts[0])
    if len(stmts) < len(block):
        return []
    return [(stmts[0].lineno, " " * stmts[0].col_offset + "pass\n")]


def without(module: Module, stmts: list[ast.stmt]) -> str:
    added = [line for stmt in stmts for line in placeholder(module, [stmt])]
    return edited(module, [rows(s) for s in stmts], added)


def moved(module: Module, stmts: list[ast.stmt], guards: list[str], row: int, column: int) -> str:
    """The text with neighbouring `stmts` under `guards` before `row`."""
    first, last = stmts[0].lineno, rows(stmts[-1])[1]
    text = text_of(module, first, last)
    for guard in reversed(guards):
        text = f"{guard}\n{textwrap.indent(text, '    ')}"
    return edited(
        module, [(first, last)], [*placeholder(module, stmts), (row, textwrap.indent(text, " " * column))]
    )


# Accumulation


@dataclass(frozen=True)
class Window:
    """Where the boundary of an accumulation window stands: before `before` and after `after` runs every micro-step."""

    outer: ast.stmt
    before: tuple[int, int]
    after: tuple[int, int]


def window(site: Site) -> Window:
    """The accumulation that a step ends. Raises NotApplicable."""
    backward = [c for c in site.own("scale") if c.lineno < site.step.lineno]
    if not backward:
        return caller_window(site)
    scaled = backward[-1]
    found = condition(site.module, site.step)
    if found is not None and not holds(found, scaled):
        decided(site, found)
        return found_window(site.module, found)
    met = meeting(site.module, scaled, site.step)
    if met is not None:
        block, i, j = met
        for stmt in block[i + 1 : j]:
            if not isinstance(stmt, ast.If) or not isinstance(stmt.body[-1], ast.Continue):
                continue
            if WINDOW.search(ast.unparse(stmt.test)):
                at = (stmt.lineno, stmt.col_offset)
                return Window(stmt, at, at)
        loops = [n for n in ast.walk(block[i]) if isinstance(n, ast.For | ast.While) and holds(n, scaled)]
        if loops:
            end = rows(loops[-1].body[-1])[1] + 1
            at = (end, loops[-1].body[0].col_offset)
            return Window(block[i], at, at)
    raise NotApplicable("no accumulation around the step")


def condition(module: Module, node: ast.AST) -> ast.If | None:
    """The `if` around `node`, in its function, that tests for the end of a window."""
    inner: ast.AST = node
    for outer in module.above(node):
        if isinstance(outer, Function):
            return None
        if isinstance(outer, ast.If) and inner is not outer.test and WINDOW.search(ast.unparse(outer.test)):
            return outer
        inner = outer
    return None


def decided(site: Site, found: ast.If) -> None:
    """Raise NotApplicable where callers decide by a parameter, and none in the files at hand does."""
    if not isinstance(found.test, ast.Name) or not isinstance(site.scope, Function):
        return
    name = found.test.id
    given = site.scope.args
    if name not in [a.arg for a in (*given.args, *given.kwonlyargs)]:
        return
    texts = [sources(site.module.tree)[file] for file in files_of(site)]
    if not any(re.search(rf"[(,]\s*{name}=(?!True)", text) for text in texts):
        raise NotApplicable(f"no caller in these files gives {name}")


def found_window(module: Module, found: ast.If) -> Window:
    if module.lines[found.lineno - 1].lstrip().startswith("elif"):
        raise NotApplicable("the accumulation is tested in an elif")
    return Window(found, (found.lineno, found.col_offset), (rows(found)[1] + 1, found.col_offset))


def caller_window(site: Site) -> Window:
    """The window of the method that calls the one with the step."""
    if not isinstance(site.scope, Function) or not site.scaler.startswith("self."):
        raise NotApplicable("the backward is in another function")
    calls = [c for c in site.module.calls if ast.unparse(c.func) == f"self.{site.scope.name}"]
    found = [condition(site.module, c) for c in calls]
    if len(calls) != 1 or found[0] is None:
        raise NotApplicable("the backward is in another function, and no accumulation around its call")
    return found_window(site.module, found[0])


def guards_of(site: Site, stmt: ast.stmt, outer: ast.stmt) -> list[str]:
    """The tests between `outer` and `stmt`, outermost first, as lines. Raises NotApplicable for other blocks."""
    found: list[str] = []
    node: ast.AST = stmt
    for above in site.module.above(stmt):
        if above is outer or above is site.module.parents[outer] or isinstance(above, Function):
            return found[::-1]
        if not isinstance(above, ast.If):
            raise NotApplicable("between loops or with-blocks")
        test = ast.unparse(above.test)
        found.append(f"if {test}:" if any(s is node for s in above.body) else f"if not ({test}):")
        node = above
    return found[::-1]


# The six mutations


def clipped(site: Site) -> tuple[ast.Call, ast.Call]:
    """`unscale_` and the clip that needs it. Raises NotApplicable."""
    ordered(site)
    module = site.module
    unscales = [c for c in site.own("unscale_") if c.args and is_same(c.args[0], site.optimizer)]
    unscales = [c for c in unscales if c.lineno < site.step.lineno]
    if not unscales:
        raise NotApplicable("no unscale_ in the function")
    calls = [n for n in ast.walk(site.scope) if isinstance(n, ast.Call) and module.scope(n) is site.scope]
    clips = [c for c in calls if re.search(r"clip\w*gra|_clip|clip_", ast.unparse(c.func).rpartition(".")[2])]
    pairs = [
        (u, c)
        for u in unscales
        for c in clips
        if u.lineno < c.lineno < site.step.lineno
        and (met := meeting(module, u, c)) is not None
        and met[1] < met[2]
    ]
    if not pairs:
        raise NotApplicable("no clip between unscale_ and step")
    unscale, clip = max(pairs, key=lambda pair: (pair[0].lineno, -pair[1].lineno))
    values = [v.value for v in (*clip.args, *(k.value for k in clip.keywords)) if isinstance(v, ast.Constant)]
    if any(v is None or (v == 0 and v is not False) for v in values):
        raise NotApplicable("the clip has no bound: it only measures")
    return unscale, clip


def drop_unscale(site: Site) -> Mutant:
    unscale, clip = clipped(site)
    return Mutant(without(site.module, [site.module.statement(unscale)]), clip.lineno)


def clip_first(site: Site) -> Mutant:
    """The clip stands before `unscale_`, but still behind the backward."""
    unscale, clip = clipped(site)
    module = site.module
    met = meeting(module, unscale, clip)
    assert met is not None
    block, above, below = met
    source, target = block[below], block[above]
    if holds(source, site.step):
        source = module.statement(clip)
        row, text = rows(source)[1] + 1, text_of(module, *rows(module.statement(unscale)))
        gone = module.statement(unscale)
        added = [*placeholder(module, [gone]), (row, textwrap.indent(text, " " * source.col_offset))]
        return Mutant(edited(module, [rows(gone)], added), clip.lineno)
    if any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in ast.walk(target)):
        target = module.statement(unscale)
    return Mutant(moved(module, [source], [], target.lineno, target.col_offset), clip.lineno)


def drop_update(site: Site) -> Mutant:
    updates = site.own("update", everywhere=True)
    updates = [c for c in updates if module_wide(site) or site.module.scope(c) is site.scope]
    if not updates:
        raise NotApplicable("update stands elsewhere")
    return Mutant(without(site.module, [site.module.statement(c) for c in updates]), site.step.lineno)


def module_wide(site: Site) -> bool:
    """Whether an update in another function may be the one of this step."""
    return site.scaler.startswith("self.") or not site.own("update")


def bypass(site: Site) -> Mutant:
    ordered(site)
    step, module = site.step, site.module
    if not isinstance(step.args[0], ast.Name | ast.Attribute | ast.Subscript):
        raise NotApplicable("the optimizer has no name")
    rest = [ast.unparse(a) for a in step.args[1:]]
    rest += [
        f"{k.arg}={ast.unparse(k.value)}" if k.arg else f"**{ast.unparse(k.value)}" for k in step.keywords
    ]
    lines = list(module.lines)
    first, last = step.lineno - 1, (step.end_lineno or step.lineno) - 1
    head = lines[first].encode()[: step.col_offset].decode()
    tail = lines[last].encode()[step.end_col_offset :].decode()
    lines[first : last + 1] = [f"{head}{site.optimizer}.step({', '.join(rest)}){tail}"]
    return Mutant("".join(lines), step.lineno)


def unscale_every_micro_step(site: Site) -> Mutant:
    found = window(site)
    unscale, clip = clipped(site)
    met = meeting(site.module, unscale, clip)
    assert met is not None
    block, i, j = met
    group = block[i : j + 1]
    if any(holds(stmt, site.step) for stmt in group):
        raise NotApplicable("unscale_ and step in one statement")
    if site.module.scope(found.outer) is site.scope and unscale.lineno < found.before[0]:
        raise NotApplicable("unscale_ runs on every micro-step already")
    guards = guards_of(site, group[0], found.outer)
    return Mutant(moved(site.module, group, guards, *found.before), unscale.lineno)


def update_every_micro_step(site: Site) -> Mutant:
    found = window(site)
    updates = site.own("update")
    if len(updates) != 1:
        raise NotApplicable("update stands elsewhere" if not updates else "several updates")
    if isinstance(found.outer, ast.If) and not all(
        holds(found.outer, c) for c in near(site, found, "unscale_")
    ):
        raise NotApplicable("unscale_ runs on every micro-step already")
    stmt = site.module.statement(updates[0])
    guards = guards_of(site, stmt, found.outer)
    return Mutant(moved(site.module, [stmt], guards, *found.after), stmt.lineno)


def near(site: Site, found: Window, method: str) -> list[ast.Call]:
    """The scaler's calls of `method` in the function of the window."""
    scope = site.module.scope(found.outer)
    return [c for c in site.own(method, everywhere=True) if site.module.scope(c) is scope]


MUTATIONS: dict[str, tuple[str, Callable[[Site], Mutant]]] = {
    "drop-unscale": ("AMP201", drop_unscale),
    "clip-first": ("AMP201", clip_first),
    "drop-update": ("AMP204", drop_update),
    "bypass": ("AMP203", bypass),
    "unscale-every-micro-step": ("AMP205", unscale_every_micro_step),
    "update-every-micro-step": ("AMP206", update_every_micro_step),
}


# Sites and the files that belong to them


def projects(folders: list[Path]) -> Iterator[Path]:
    """The projects: folders with code or a README at their top, or else the folders in them."""
    for folder in folders:
        inner = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
        top = [*folder.glob("*.py"), *folder.glob("README*"), *folder.glob("*/__init__.py")]
        yield from [folder] if top else inner


@cache
def sources(tree: Path) -> dict[str, str]:
    """The text of every Python file of a project."""
    found = {}
    for path in sorted(tree.rglob("*.py")):
        try:
            found[path.relative_to(tree).as_posix()] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
    return found


def sites(tree: Path, part: str) -> Iterator[Site]:
    """The steps of a project, in order of file and line."""
    for name, text in sources(tree).items():
        if part not in f"{tree.name}/{name}" or "caler" not in text or ".step(" not in text:
            continue
        try:
            module = Module(tree, tree / name)
        except SyntaxError:
            continue
        steps = [c for c in module.calls if method(c) == "step" and c.args]
        steps = [c for c in steps if "scaler" in owner(c).lower().rpartition(".")[2]]
        yield from (Site(module, c) for c in sorted(steps, key=lambda c: c.lineno))


def scales(site: Site) -> list[ast.Call]:
    """The calls of the scaler's `scale` in the file. Raises NotApplicable when there are none, or it never scales."""
    calls = [c for c in site.module.calls if method(c) == "scale" and owner(c) == site.scaler]
    if not calls:
        raise NotApplicable("scale() of this scaler stands in another file")
    made = [
        node.value
        for node in ast.walk(site.module.root)
        if isinstance(node, ast.Assign) and any(is_same(target, site.scaler) for target in node.targets)
    ]
    if made and all(isinstance(m, ast.Call) and "enabled=False" in ast.unparse(m) for m in made):
        raise NotApplicable("the scaler is made with enabled=False")
    return calls


def ordered(site: Site) -> None:
    """Raise NotApplicable where no function of the files at hand leads both to the backward and to the step."""
    scopes = [site.module.scope(c) for c in scales(site)]
    if site.scope in scopes:
        return
    names = {scope.name for scope in scopes if isinstance(scope, Function)}
    step = site.scope.name if isinstance(site.scope, Function) else ""
    graph = call_graph(site.module.tree, files_of(site))
    if not any(step in led and names & led for led in (reached(graph, name) for name in graph)):
        raise NotApplicable("who calls the backward and the step is not in these files")


@cache
def call_graph(tree: Path, files: tuple[str, ...]) -> dict[str, set[str]]:
    """Names of functions to the names of functions that they call by name, or on themselves."""
    found: dict[str, set[str]] = {}
    for file in files:
        try:
            module = Module(tree, tree / file)
        except SyntaxError:
            continue
        for node in ast.walk(module.root):
            if isinstance(node, ast.Call):
                scope, name = (
                    module.scope(node),
                    ast.unparse(node.func).removeprefix("self.").removeprefix("super()."),
                )
                if isinstance(scope, Function) and name.isidentifier():
                    found.setdefault(scope.name, set()).add(name)
    return found


def reached(graph: dict[str, set[str]], name: str) -> set[str]:
    """`name` and the functions that it leads to."""
    found, new = {name}, {name}
    while new:
        new = {called for caller in new for called in graph.get(caller, ())} - found
        found |= new
    return found


def imported(tree: Path, name: str) -> set[str]:
    """The project's files that a file imports from."""
    files = sources(tree)
    try:
        root = ast.parse(files[name])
    except SyntaxError:
        return set()
    folder = Path(name).parent
    found = set()
    for node in ast.walk(root):
        if isinstance(node, ast.Import):
            dotted = [(folder, a.name) for a in node.names] + [(Path(), a.name) for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = folder if node.level <= 1 else folder.joinpath(*[".."] * (node.level - 1))
            base = Path(*_normal(base.parts))
            bases = [base] if node.level else [folder, Path()]
            start = f"{node.module}." if node.module else ""
            dotted = [(b, f"{start}{a.name}") for b in bases for a in node.names]
            dotted += [(b, node.module) for b in bases if node.module]
        else:
            continue
        for base, module in dotted:
            stem = (base / module.replace(".", "/")).as_posix()
            found |= {f for f in (f"{stem}.py", f"{stem}/__init__.py") if f in files}
    return found


def _normal(parts: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for part in parts:
        if part == ".." and found:
            found.pop()
        else:
            found.append(part)
    return found


@cache
def company(tree: Path, name: str, klass: str) -> tuple[str, ...]:
    """A file, the files that use its class `klass`, if any, and what all these import."""
    files = sources(tree)
    word = re.compile(rf"\b{re.escape(klass)}\b")
    users = [f for f, text in files.items() if klass and f != name and word.search(text)][:COMPANY]
    near = [f for user in (name, *users) for f in sorted(imported(tree, user))]
    found = list(dict.fromkeys([name, *users, *near]))[:COMPANY]
    packages = {p.as_posix() for f in found for p in (parent / "__init__.py" for parent in Path(f).parents)}
    return tuple(dict.fromkeys([*found, *sorted(packages & set(files))]))


def files_of(site: Site) -> tuple[str, ...]:
    """The files to check together: what the site's file imports, and the users of a class that holds the scaler."""
    klass = site.module.class_of(site.step)
    holder = klass.name if klass is not None and site.scaler.startswith("self.") else ""
    return company(site.module.tree, site.module.name, holder)


# Checking


def findings(site: Site, text: str, code: str) -> list[Finding]:
    """The findings of one code with `text` as the site's file."""
    files = sources(site.module.tree)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / site.module.tree.name
        for name in files_of(site):
            place = root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text if name == site.module.name else files[name], encoding="utf-8")
        settings = load_settings(root, isolated=True, overrides={"select": [code]})
        result = run([root], settings, cwd=root, jobs=1)
    for error in result.internal_errors:
        sys.exit(f"internal error in {site.place}: {error.message}")
    return result.findings


def right() -> set[str]:
    """The findings that two readers have called right."""
    rows = [json.loads(line) for line in VERDICTS.read_text(encoding="utf-8").splitlines()]
    votes = Counter(row["fingerprint"] for row in rows if row["verdict"] == "right")
    return {fingerprint for fingerprint, count in votes.items() if count > 1}


class Tally:
    """What became of the mutants of one mutation."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name, self.code = name, MUTATIONS[name][0]
        self.quiet, self.diff = options.quiet, options.diff
        self.total = self.found = self.noisy = 0
        self.skipped: list[str] = []
        self.texts: set[tuple[str, str]] = set()
        self.originals: dict[str, list[Finding]] = {}

    def try_site(self, site: Site, known: set[str]) -> None:
        try:
            scales(site)
            mutant = MUTATIONS[self.name][1](site)
            self.judge(site, mutant, known)
        except NotApplicable as reason:
            self.skipped.append(f"{site.place} {reason}")

    def judge(self, site: Site, mutant: Mutant, known: set[str]) -> None:
        if (site.module.name, mutant.text) in self.texts:
            raise NotApplicable("the same mutant as at the step before")
        self.texts.add((site.module.name, mutant.text))
        try:
            ast.parse(mutant.text)
        except SyntaxError as error:
            raise NotApplicable(f"the mutant does not parse: {error}") from None
        before = self.before(site)
        here = [f for f in before if within(site, f)]
        if any(f"{site.module.tree.name}:{f.fingerprint}" in known for f in here):
            raise NotApplicable("the original has this bug")
        old = {f.fingerprint for f in before}
        after = [f for f in findings(site, mutant.text, self.code) if f.fingerprint not in old]
        self.total += 1
        self.found += bool(after)
        self.noisy += bool(here)
        place = f"{site.module.tree.name}/{site.module.name}:{mutant.row}"
        if here:
            print(
                f"NOISY  {place} original reports {self.code} at row {here[0].start.row}: {here[0].message}"
            )
        if self.diff and not (after and self.quiet):
            a, b = site.module.text.splitlines(), mutant.text.splitlines()
            print(*difflib.unified_diff(a, b, "original", "mutant", lineterm="", n=6), sep="\n")
        if not after:
            print(f"MISSED {place} {self.name}")
        elif not self.quiet:
            at = ", ".join(f"{f.filename}:{f.start.row}" for f in after)
            print(f"found  {place} {self.name}: at {at}")

    def before(self, site: Site) -> list[Finding]:
        key = f"{site.module.tree}/{site.module.name} {' '.join(files_of(site))}"
        if key not in self.originals:
            self.originals[key] = findings(site, site.module.text, self.code)
        return self.originals[key]

    @property
    def is_good(self) -> bool:
        return not self.noisy and self.found >= SHARE * self.total > 0


def within(site: Site, finding: Finding) -> bool:
    """Whether a finding lies in the function of the site."""
    if finding.filename != site.module.name:
        return False
    if not isinstance(site.scope, ast.stmt):
        return True
    first, last = rows(site.scope)
    return first <= finding.start.row <= last


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--only", choices=MUTATIONS, action="append", help="this mutation alone; repeatable")
    parser.add_argument("--folder", default="", help="only sites whose path contains this text")
    parser.add_argument("--quiet", action="store_true", help="print misses and counts only")
    parser.add_argument(
        "--diff", action="store_true", help="print what each mutant changes; with --quiet, each miss"
    )
    options = parser.parse_args(arguments)
    codes = {rule.code for rule in all_rules()}
    tallies = [Tally(name, options) for name in options.only or MUTATIONS]
    known = right()
    places = [site for tree in projects(options.checkouts) for site in sites(tree.resolve(), options.folder)]
    for tally in tallies:
        if tally.code in codes:
            for site in places:
                tally.try_site(site, known)
        if not options.quiet:
            print(*(f"not applicable to {tally.name}: {line}" for line in tally.skipped), sep="\n")
    for tally in tallies:
        if tally.code not in codes:
            print(f"{tally.name}: no rule {tally.code}")
        else:
            print(
                f"{tally.name} ({tally.code}): {tally.found} of {tally.total} mutants found, {tally.noisy} noisy"
                f" originals, {len(tally.skipped)} sites not applicable"
            )
    return 0 if all(tally.is_good for tally in tallies) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
