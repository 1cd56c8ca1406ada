"""Programs over torch's operators: written at random, executed for real, and read by amplint.

A program is written one statement at a time, and each is executed as it is written: what torch refuses is left out.
Then its whole text is executed with every variable looked at where it is assigned and read, and amplint says what it
claims of the same places. `mistakes` are the claims that are not true.
"""

from __future__ import annotations

import ast
import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any
from unittest.mock import patch

import libcst
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from amplint.flow.precision.analysis import interpret
from amplint.flow.precision.lattice import UNKNOWN
from amplint.flow.precision.operators import CPU, CUDA, NPU, Rules, operators
from amplint.flow.precision.values import (
    Dtype,
    Either,
    Many,
    Number,
    Py,
    Sequence_,
    Tensor,
    Value,
)
from amplint.model.module import ModuleModel
from amplint.model.ondemand import OnDemand
from amplint.source import source_from_text

from .precision_calls import MODULES, NOT_CALLED, calls

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
SHAPES = {(4, 4): "m", (4,): "v", (): "s", (2, 4, 4): "b", (2, 4, 4, 4): "i", (2, 4, 4, 4, 4): "j"}
FLOATS = ("torch.float16", "torch.bfloat16", "torch.float32", "torch.float64")
OTHERS = ("torch.int64", "torch.int32", "torch.bool", "torch.uint8")
NUMBERS = ("2", "0.5", "1", "-1.5", "True", "3.0")
_HOLE = re.compile(r"\{([mvsbijlLkdc])(?::(\d))?\}")
_NAMES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int64: "int64",
    torch.int32: "int",
    torch.int16: "int",
    torch.int8: "int",
    torch.uint8: "int",
    torch.bool: "bool",
    torch.complex64: "complex",
    torch.complex128: "complex",
    torch.complex32: "complex",
}


@dataclass
class Program:
    """A text, and which operator stands in which row."""

    text: str
    labels: dict[int, str]


@dataclass
class Report:
    """What was compared."""

    programs: int = 0
    #: Values that are tensors, and those of them with a claimed dtype.
    tensors: int = 0
    claimed: int = 0
    #: Claims that a tensor has dimensions, or none.
    shapes: int = 0
    #: Claims of numbers, dtypes and the like.
    others: int = 0
    #: Operator -> how often it ran, and how often its dtype was claimed.
    ran: Counter[str] = field(default_factory=Counter)
    ran_claimed: Counter[str] = field(default_factory=Counter)
    mistakes: list[str] = field(default_factory=list)
    gave_up: int = 0

    def add(self, other: Report) -> None:
        """Take over what another one counted."""
        for name in ("programs", "tensors", "claimed", "shapes", "others", "gave_up"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.ran += other.ran
        self.ran_claimed += other.ran_claimed
        self.mistakes += other.mistakes


# -- execution ------------------------------------------------------------------------------------------------


class _Watched(ast.NodeTransformer):
    """Every variable is looked at where it is read and where it was assigned."""

    @staticmethod
    def is_watched(name: str) -> bool:
        return bool(re.fullmatch(r"t\d+|[abx]", name))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and self.is_watched(node.id):
            return _look(node, node)
        return node

    def visit_Assign(self, node: ast.Assign) -> list[ast.AST]:
        self.generic_visit(node)
        return [node, *_after(node.targets)]

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.AST]:
        self.generic_visit(node)
        return [node, *_after([node.target])]


def _look(node: ast.Name, value: ast.expr) -> ast.Call:
    place = [ast.Constant(node.lineno), ast.Constant(node.col_offset + 1)]
    return ast.copy_location(
        ast.Call(ast.Name("_look", ast.Load()), [*place, ast.Name(node.id, ast.Load())], []), node
    )


def _after(targets: list[ast.expr]) -> Iterator[ast.AST]:
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield ast.copy_location(ast.Expr(_look(node, node)), node)


class _OneDtype(TorchDispatchMode):
    """Refuses what kernels refuse: products of tensors of several dtypes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _PRODUCTS.match(func.overloadpacket.__name__):
            dtypes = {each.dtype for each in args if isinstance(each, torch.Tensor)}
            if len(dtypes) > 1:
                raise RuntimeError("several dtypes")
        return func(*args, **(kwargs or {}))


_PRODUCTS = re.compile(r"(add|badd)?(mm|bmm|mv)$|v?dot$|.*convolution|.*attention|_?prelu|linear")
_new_parameter = torch.nn.Parameter.__new__


def _frozen(cls: type, data: Any = None, requires_grad: bool = True) -> Any:
    """A parameter that needs no gradient, for which torch would ask the GPU's libraries."""
    return _new_parameter(cls, data, False)


@contextmanager
def on(device: str) -> Iterator[None]:
    """New tensors lie on a device; those of CUDA have no values, and need no GPU."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        if device == CPU:
            yield
            return
        if device == CUDA and not torch.cuda.is_available():
            logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
            stack.enter_context(patch("torch.cuda.amp.common.amp_definitely_not_available", bool))
            stack.enter_context(
                patch("torch.amp.autocast_mode.torch.cuda.is_bf16_supported", lambda *_: True)
            )
            # what would ask the GPU's libraries
            for name in ("kaiming_uniform_", "uniform_", "normal_"):
                stack.enter_context(patch(f"torch.nn.init.{name}", lambda tensor, *args, **given: tensor))
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            stack.enter_context(torch.no_grad())
            stack.enter_context(patch.object(torch.nn.Parameter, "__new__", _frozen))
            stack.enter_context(FakeTensorMode())
            stack.enter_context(_OneDtype())
        torch.set_default_device(device)
        try:
            yield
        finally:
            torch.set_default_device(None)


def execute(program: Program, device: str) -> list[tuple[int, int, Any]]:
    """What each variable was, in order: row, column, value. Ends at the first exception."""
    seen: list[tuple[int, int, Any]] = []

    def look(row: int, column: int, value: Any) -> Any:
        seen.append((row, column, described(value)))
        return value

    tree = ast.fix_missing_locations(_Watched().visit(ast.parse(program.text)))
    with on(device), suppress(Exception):
        exec(compile(tree, "program", "exec"), {"_look": look, "__name__": "program"})
    return seen


@dataclass(frozen=True)
class Real:
    """A real tensor."""

    dtype: str
    dim: int


def described(value: Any) -> Any:
    """A value, with tensors and dtypes as amplint names them."""
    if isinstance(value, torch.Tensor):
        return Real(_NAMES[value.dtype], value.dim())
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, (tuple, list)):
        return [described(each) for each in value]
    if isinstance(value, torch.dtype):
        return _NAMES[value]
    return value


# -- comparison -----------------------------------------------------------------------------------------------


def model_of(text: str) -> ModuleModel:
    source = source_from_text(text, "program.py")
    return ModuleModel(source, libcst.parse_module(source.text))


def compare(program: Program, device: str, seen: list[tuple[int, int, Any]], rules: Rules) -> Report:
    """What amplint claims, against what was seen."""
    report = Report(programs=1)
    model = model_of(program.text)
    files = OnDemand(model)
    notes = interpret(files.functions, files.classes, rules, files)
    report.gave_up = int(notes.gave_up > 0)
    claims: dict[tuple[int, int], Value] = {}
    for site, (value, _) in notes.names.items():
        node = model.tree.nodes.get(site) if isinstance(model.tree.nodes, dict) else model.tree.nodes[site]
        if node is None:
            continue
        position = model.source.position(model.tree.span(node).start)
        claims[position.row, position.column] = value
    lines = program.text.splitlines()
    counted: set[tuple[int, int]] = set()
    #: What was wrong before, whose results are wrong as well.
    spoiled: set[str] = set()
    for row, column, real in seen:
        at = (row, column)
        claim = claims.get(at)
        is_first = at not in counted
        counted.add(at)
        is_target = bool(re.match(r"\s*[\w, ()]+ [-+*/@]?= ", lines[row - 1])) and column < lines[
            row - 1
        ].find("=")
        label = program.labels.get(row, "") if is_target else ""
        if claim is None:
            if is_target and not notes.gave_up and not notes.passed_over:
                report.mistakes.append(f"not reached: {lines[row - 1].strip()}")
            continue
        wrong = _wrong(claim, real, report if is_first and is_target else Report(), label)
        names = set(re.findall(r"\b(?:[tm]\d+|[abx])\b", lines[row - 1])) if wrong else set()
        if wrong and names.isdisjoint(spoiled):
            report.mistakes.append(f"[{rules.backend}] {label}: {lines[row - 1].strip()}  # {wrong}")
        spoiled |= names
    return report


def _wrong(claim: Value, real: Any, report: Report, label: str) -> str:
    """What is not true of a claim; empty where it is right."""
    if isinstance(real, Real):
        report.tensors += 1
        report.ran[label] += 1
    if isinstance(claim, Either):
        found = [_wrong(one, real, Report(), "") for one in claim.values]
        return "" if "" in found else found[0]
    if isinstance(claim, Tensor):
        if not isinstance(real, Real):
            return f"claimed a tensor, is {real!r}"
        if UNKNOWN not in claim.dtypes:
            report.claimed += 1
            report.ran_claimed[label] += 1
            if real.dtype not in claim.dtypes:
                return f"claimed {'/'.join(sorted(claim.dtypes))}, is {real.dtype}"
        if claim.is_scalar is not None:
            report.shapes += 1
            if claim.is_scalar != (real.dim == 0):
                return f"claimed {'no ' if claim.is_scalar else ''}dimensions, has {real.dim}"
        return ""
    if isinstance(claim, (Sequence_, Many)):
        if isinstance(real, Real) or not isinstance(real, (list, tuple)):
            return f"claimed several values, is {real!r}"
        if isinstance(claim, Sequence_) and len(claim.items) != len(real):
            return f"claimed {len(claim.items)} values, is {real!r}"
        each = claim.items if isinstance(claim, Sequence_) else [claim.element] * len(real)
        return next((w for c, r in zip(each, real, strict=True) if (w := _wrong(c, r, report, label))), "")
    if isinstance(claim, (Py, Number, Dtype)):
        report.others += 1
        report.ran[label] += 1
        report.ran_claimed[label] += 1
        return "" if _is_true(claim, real) else f"claimed {claim}, is {real!r}"
    return ""


def _is_true(claim: Py | Number | Dtype, real: Any) -> bool:
    if isinstance(claim, Dtype):
        return isinstance(real, str) and (UNKNOWN in claim.dtypes or real in claim.dtypes)
    if isinstance(claim, Number):
        kinds = {"int": (int,), "float": (float,), "bool": (bool,)}.get(
            claim.kind, (int, float, bool, complex)
        )
        return isinstance(real, kinds)
    return type(real) is type(claim.value) and (real == claim.value or real != real)


def check(program: Program, device: str) -> Report:
    """Execute a program, and compare."""
    return compare(program, device, execute(program, device), Rules(device))


# -- writing --------------------------------------------------------------------------------------------------


class Writer:
    """Writes the statements of one function, and executes each as it is written."""

    def __init__(self, shared: Shared, indent: int = 1) -> None:
        self.shared = shared
        self.random = shared.random
        self.env: dict[str, Any] = dict(shared.env)
        self.lines: list[str] = []
        self.labels: dict[int, str] = {}
        self.indent = indent
        #: Kind -> variables.
        self.pool: dict[str, list[str]] = {}
        self.modules: list[tuple[str, str]] = []

    def put(self, text: str, label: str = "") -> None:
        """Write a line as it is."""
        self.lines.append("    " * self.indent + text)
        if label:
            self.labels[len(self.lines) - 1] = label

    def attempt(self, text: str, label: str = "") -> bool:
        """Write a statement, if torch takes it."""
        if ".double()" in text and self.shared.device == NPU:
            return False
        try:
            exec(_compiled(text), self.env)
        except Exception:
            return False
        self.put(text, label)
        return True

    def new(self) -> str:
        self.shared.count += 1
        return f"t{self.shared.count}"

    def keep(self, name: str) -> None:
        """Let later statements use a variable."""
        value = self.env.get(name)
        if not isinstance(value, torch.Tensor) or value.is_complex():
            return
        kind = SHAPES.get(tuple(value.shape))
        if kind is not None:
            names = self.pool.setdefault(kind, [])
            if name in names:
                names.remove(name)
            names.append(name)
        if value.dtype is torch.bool and kind == "m":
            self.pool.setdefault("k", []).append(name)

    def assign(self, expression: str, label: str = "") -> bool:
        """A new variable for an expression, or now and then an old one."""
        old = [n for n in self.pool.get("m", ()) if n.startswith("t")]
        name = self.random.choice(old) if old and self.random.random() < 0.15 else self.new()
        if not self.attempt(f"{name} = {expression}", label):
            return False
        for kind, names in self.pool.items():
            if kind in SHAPES.values() and name in names:
                names.remove(name)
            if kind in ("k", "l", "L") and name in names:
                names.remove(name)
        self.keep(name)
        return True

    def fill(self, template: str) -> str:
        """A template with operands in its holes."""
        chosen: dict[str, str] = {}

        def operand(match: re.Match[str]) -> str:
            kind = match[1]
            if kind == "d":
                return self.random.choice(self.shared.floats if self.random.random() < 0.85 else OTHERS)
            if kind == "c":
                return self.random.choice(NUMBERS)
            hole = match[0]
            if hole not in chosen:
                chosen[hole] = self.operand(kind)
            return chosen[hole]

        return _HOLE.sub(operand, template)

    def operand(self, kind: str) -> str:
        names = self.pool.get(kind, ())
        if not names or (kind not in "lLk" and self.random.random() < 0.12):
            return self.make(kind)
        recent = names[-5:] if self.random.random() < 0.5 else names
        return self.random.choice(list(recent))

    def make(self, kind: str) -> str:
        """A new tensor of some shape."""
        name = self.new()
        shape = next((s for s, k in SHAPES.items() if k == kind), (4,))
        dtype = self.random.choice(self.shared.floats if self.random.random() < 0.85 else OTHERS)
        if kind in "lL":
            made = f"torch.randint(0, 4, {'(4,)' if kind == 'l' else '(4, 4)'})"
        elif kind == "k":
            made = "torch.rand(4, 4) > 0.5"
        elif dtype not in FLOATS:
            made = f"torch.randint(0, 2, {shape}).to({dtype})"
        elif self.random.random() < 0.3:
            made = f"torch.randn({shape}).to({dtype})"
        elif kind == "s" and self.random.random() < 0.4:
            made = self.random.choice(
                ("torch.tensor(0.5)", "torch.tensor(2)", f"torch.tensor(1.5, dtype={dtype})")
            )
        else:
            made = f"torch.randn({shape}, dtype={dtype})"
        self.attempt(f"{name} = {made}")
        self.keep(name)
        if kind in "lL":
            self.pool.setdefault(kind, []).append(name)
        return name

    # -- statements -----------------------------------------------------------------------------------------

    def statements(self, count: int, depth: int = 0) -> None:
        for _ in range(count):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        kinds: list[tuple[Callable[[], object], int]] = [
            (self.call, 46),
            (self.operator, 12),
            (self.cast, 10),
            (self.index, 6),
            (self.module, 10),
            (self.in_place, 5),
            (self.several, 2),
            (self.callee, 6 if self.shared.callees else 0),
        ]
        if depth < 3:
            kinds += [
                (lambda: self.region(depth), 7),
                (lambda: self.branch(depth), 3),
                (lambda: self.loop(depth), 2),
            ]
        weights = [weight for _, weight in kinds]
        at = self.random.randrange(sum(weights))
        for kind, weight in kinds:
            at -= weight
            if at < 0:
                kind()
                return

    def call(self) -> None:
        op, template = self.random.choice(all_calls())
        self.assign(self.fill(template), op)

    def operator(self) -> None:
        template, op = self.random.choice(_OPERATORS)
        self.assign(self.fill(template), op)

    def cast(self) -> None:
        kind = self.random.choice("mmmvsbi")
        self.assign(self.fill(self.random.choice(_CASTS).replace("{m", "{" + kind)), "cast")

    def index(self) -> None:
        template = self.random.choice(_INDEXED)
        if " = " in template:
            self.attempt(self.fill(template), "setitem")
        else:
            self.assign(self.fill(template), "index")

    def in_place(self) -> None:
        names = [n for kind in "mvs" for n in self.pool.get(kind, ()) if n.startswith("t")]
        if not names:
            return
        name = self.random.choice(names)
        template = self.random.choice(_IN_PLACE).replace("{x}", name)
        if self.attempt(self.fill(template), "in place"):
            self.keep(name)

    def several(self) -> None:
        template = self.random.choice(_SEVERAL)
        first, second = self.new(), self.new()
        if self.attempt(f"{first}, {second} = {self.fill(template)}", "several"):
            self.keep(first)
            self.keep(second)

    def module(self) -> None:
        if self.modules and self.random.random() < 0.5:
            made, given = self.random.choice(self.modules)
            self.assign(f"{made}({self.fill(given)})", "module")
            return
        made, given = self.random.choice(MODULES)
        cast = self.random.choice(
            ("", "", ".half()", ".to(torch.bfloat16)", ".to(dtype=torch.float16)", ".double()", ".eval()")
        )
        if self.random.random() < 0.3:
            self.assign(f"nn.{made}{cast}({self.fill(given)})", "module")
            return
        self.shared.count += 1
        name = f"m{self.shared.count}"
        if self.attempt(f"{name} = nn.{made}{cast}"):
            self.modules.append((name, given))
            self.assign(f"{name}({self.fill(given)})", "module")
            if self.random.random() < 0.3:
                self.attempt(
                    self.random.choice(
                        (f"{name}.half()", f"{name} = {name}.to(torch.bfloat16)", f"{name}.float()")
                    )
                )
                self.assign(f"{name}({self.fill(given)})", "module")

    def callee(self) -> None:
        self.assign(self.fill(self.random.choice(self.shared.callees)), "callee")

    # -- blocks ---------------------------------------------------------------------------------------------

    def region(self, depth: int) -> None:
        text = self.shared.region()
        self.put(f"with {text}:")
        before = len(self.lines)
        self.indent += 1
        with ExitStack() as stack:
            for each in re.split(r", (?=torch\.no_grad)", text):
                stack.enter_context(eval(each, self.env))
            self.statements(self.random.randrange(1, 6), depth + 1)
        if len(self.lines) == before:
            self.put("pass")
        self.indent -= 1

    def branch(self, depth: int) -> None:
        test = self.fill(self.random.choice(_TESTS))
        holds = bool(eval(test, self.env))
        name = self.new()
        self.put(f"if {test}:")
        for wanted in (True, False):
            if not wanted:
                self.put("else:")
            env, pool, modules = (
                dict(self.env),
                {k: list(v) for k, v in self.pool.items()},
                list(self.modules),
            )
            self.indent += 1
            self.statements(self.random.randrange(0, 3), depth + 1)
            if not self.attempt(f"{name} = {self.fill(self.random.choice(_PLAIN))}"):
                self.attempt(f"{name} = torch.zeros(4, 4)")
            self.indent -= 1
            if wanted != holds:
                self.env, self.pool, self.modules = env, pool, modules
        self.keep(name)

    def loop(self, depth: int) -> None:
        names = [n for n in self.pool.get("m", ()) if n.startswith("t")]
        if not names:
            return
        name = self.random.choice(names)
        lines = len(self.lines)
        self.put(f"for _ in range({self.random.choice('123')}):")
        self.indent += 1
        for _ in range(self.random.randrange(1, 3)):
            self.attempt(f"{name} = {self.fill(self.random.choice(_PLAIN).replace('{m}', name))}")
        self.indent -= 1
        written = self.lines[lines:]
        try:
            assert len(written) > 1
            exec("\n".join(line[4 * self.indent :] for line in written), self.env)
        except Exception:
            del self.lines[lines:]
        self.keep(name)


class Shared:
    """What the functions of one program have in common."""

    def __init__(self, random: Random, device: str) -> None:
        self.random = random
        self.device = device
        #: An NPU has no float64: torch_npu gives float32 in its place, which amplint does not say.
        self.floats = FLOATS[:3] if device == NPU else FLOATS
        self.count = 0
        self.env: dict[str, Any] = {"__name__": "program"}
        exec(HEAD, self.env)
        self.callees: list[str] = []

    def region(self) -> str:
        """An autocast region."""
        dtype = self.random.choice(("torch.float16", "torch.bfloat16"))
        return self.random.choice(_REGIONS).format(device=self.device, dtype=dtype)


def _compiled(text: str) -> Any:
    return compile(text, "statement", "exec")


@cache
def all_calls() -> tuple[tuple[str, str], ...]:
    """Every operator with the forms of its calls; each operator is as likely as any other."""
    return tuple((op, form) for op in operators() if op not in NOT_CALLED for form in _of(op))


def _of(op: str) -> list[str]:
    found = list(calls(op))
    times = max(1, 12 // max(len(found), 1))
    return (found * times)[:40] if len(found) * times > 40 else found * times


_REGIONS = (
    "torch.autocast('{device}', dtype={dtype})",
    "torch.autocast(device_type='{device}', dtype={dtype})",
    "torch.amp.autocast('{device}', {dtype})",
    "torch.autocast('{device}')",
    "torch.autocast('{device}', enabled=False)",
    "torch.autocast('{device}', dtype={dtype}, enabled=True)",
    "torch.autocast('{device}', dtype={dtype}, enabled=False)",
    "torch.autocast('{device}', dtype={dtype}), torch.no_grad()",
    "torch.{device}.amp.autocast(dtype={dtype})",
    "torch.no_grad()",
)
_OPERATORS = tuple(
    (template, op)
    for symbol, op in (("+", "add"), ("-", "sub"), ("*", "mul"), ("/", "div"), ("//", "floor_divide"), ("%", "remainder"), ("**", "pow"))
    for template in (
        f"{{m}} {symbol} {{m:2}}",
        f"{{m}} {symbol} {{c}}",
        f"{{c}} {symbol} {{m}}",
        f"{{m}} {symbol} {{s:2}}",
        f"{{s}} {symbol} {{m:2}}",
        f"{{s}} {symbol} {{s:2}}",
        f"{{s}} {symbol} {{c}}",
        f"{{v}} {symbol} {{m:2}}",
    )
) + tuple(
    (template, "operator")
    for template in (
        "{m} @ {m:2}", "{b} @ {m:2}", "{m} @ {v:2}", "{v} @ {v:2}", "-{m}", "+{m}", "abs({m})", "~{k}", "~{l}", "-{s}",
        "{m} == {m:2}", "{m} < {c}", "{c} >= {m}", "{s} != {s:2}", "{m} > {s:2}", "{k} & {k:2}", "{k} | {k:2}", "{l} ^ {l:2}",
        "{L} & 1", "{l} << 1", "{l} >> 1", "{m} + {m:2} * {s:3}", "({m} - {m:2}).abs().mean()", "{m} / {m:2}.sum() * {c}",
        "sum([{m}, {m:2}])", "{m} if {m:2} is not None else {m:3}", "{m}.softmax(-1) @ {m:2}", "({m} @ {m:2}).relu() + {m}",
        "torch.exp({m} - {m}.max(dim=-1, keepdim=True)[0])", "{m} * ({m} > 0)", "{m}.mean() + {m:2}", "{m} * {m:2}.dim()",
        "{m} / {m:2}.size(0)", "{m} * float({s})", "{m} + {s:2}.item()", "{l} / 2", "{l} // 2", "{l} * 0.5", "{l} + {k}.sum()",
        "{m}.shape[0] * {s}", "max({s}, {s:2})", "F.relu({m} @ {m:2}, inplace=True)", "{l}.float() / {m:2}", "{m} * {l}", "{k} * {s:2}", "{k} + {k:2}",
        "{k} * 2", "{k} * 2.0", "{l} ** 2", "2 ** {l}", "{l} * {s:2}", "{l} % 2",
    )
)  # fmt: skip
_CASTS = (
    "{m}.half()", "{m}.bfloat16()", "{m}.float()", "{m}.double()", "{m}.to({d})", "{m}.to({m:2})", "{m}.type_as({m:2})", "{m}.to(dtype={d})",
    "{m}.to({m:2}.dtype)", "{m}.to('cpu', {d}).to({m})", "{m}.to({m:2}.device)", "{m}.type({d})", "{m}.long()", "{m}.int()", "{m}.bool()",
    "{m}.to({m:2}.device, {d})", "{m}.clone().detach().half()", "{m}.to({d}, copy=True)", "{m}.to({d}, non_blocking=True)", "{m}.to(other={m:2})",
    "torch.zeros(4, 4, dtype={m}.dtype)", "torch.zeros_like({m}, dtype={d})", "torch.as_tensor({m}, dtype={d})", "{m}.type(torch.{m:2}.dtype)",
    "{m}.contiguous().to({d})", "{m}.data.half()", "{m}.view({d})", "torch.tensor({s}.item())", "{m}.new_zeros(4, 4)", "{m}.new_tensor([1.0, 2.0])",
    "{m}.requires_grad_(False)", "nn.Parameter({m}, requires_grad=False)", "torch.nn.Parameter({m}.float(), False)",
)  # fmt: skip
_INDEXED = (
    "{m}[0]", "{m}[0, 1]", "{m}[:, 0]", "{m}[{k}]", "{m}[None]", "{m}[..., 0]", "{m}[{l}]", "{b}[0, 0, 0]", "{v}[0]", "{v}[1:]", "{m}[-1]", "{v}[-1]",
    "{m}[:2, 1:]", "{b}[:, 0]", "{s}[None]", "{m}[[0, 1]]", "{i}[0]", "{m}[0][1]", "{b}[{l}[0]]", "{v}[{l}]", "{m}[{l}, {l:2}]", "{s}[...]", "{v}[None, :]",
    "{m}[0] = {v:2}", "{m}[{k}] = {c}", "{m}[:, 0] = {s:2}", "{m}[{l}] = {v:2}",
)  # fmt: skip
_IN_PLACE = (
    "{x} += {m:2}", "{x} *= {c}", "{x} -= {s:2}", "{x} /= 2", "{x} **= 2", "{x} //= 2", "{x} *= {s:2}", "{x}.add_({m:2})", "{x}.mul_(2.0)", "{x}.zero_()",
    "{x}.clamp_(0, 1)", "{x}.copy_({m:2})", "{x}.fill_(1.0)", "{x}.sub_({s:2})", "{x}.relu_()", "{x}.masked_fill_({k}, 0.0)", "{x}.normal_()", "{x} = {x} + {s:2}",
    "{x}.div_({s:2})", "torch.add({m}, {m:2}, out={m:3})", "{x}.exp_()", "{x} %= 2",
)  # fmt: skip
_SEVERAL = (
    "{m}.chunk(2)", "torch.chunk({m}, 2, dim=1)", "{m}.max(dim=1)", "torch.topk({m}, 2)", "{m}.sort()", "{m}.split(2)", "torch.std_mean({m})", "{m}, {s}",
    "{m}.half(), {m:2}.float()", "torch.broadcast_tensors({m}, {v:2})", "torch.meshgrid({v}, {v:2}, indexing='ij')", "{m}[:2]", "{m}.shape", "({m} @ {m:2}, {m}.dtype)",
    "torch.aminmax({m})", "{m}.cummax(0)", "torch.var_mean({m}, dim=1)", "torch.min({m}, 0)", "{m}[:2].unbind(0)", "F.max_pool2d({i}, 2, return_indices=True)",
)  # fmt: skip
_PLAIN = (
    "{m}.half()", "{m} * 2.0", "{m} @ {m}", "{m} + {m:2}", "{m}.float()", "{m}.relu()", "torch.exp({m})", "{m}.to({d})", "{m} / 2", "F.softmax({m}, dim=-1)",
    "{m} * {s:2}", "F.linear({m}, {m:2})",
)  # fmt: skip
_TESTS = (
    "True", "False", "not True", "1 > 2", "1 < 2 and True", "{m}.dim() == 2", "{m}.shape[0] > 5", "{m}.dtype == torch.float16", "{m}.dtype is torch.float32",
    "{m}.dtype in (torch.float16, torch.bfloat16)", "{m}.dtype != torch.bfloat16", "{m}.is_floating_point()", "torch.is_autocast_enabled()", "{m} is None",
    "isinstance({m}, torch.Tensor)", "torch.is_tensor({m})", "{m}.requires_grad", "{m}.dtype == {m:2}.dtype",
)  # fmt: skip


def write(random: Random, device: str, count: int = 24) -> Program:
    """A program."""
    shared = Shared(random, device)
    lines: list[str] = HEAD.splitlines()
    labels: dict[int, str] = {}

    def take(writer: Writer) -> None:
        labels.update({len(lines) + at + 1: label for at, label in writer.labels.items()})
        lines.extend(writer.lines)

    with on(device), torch.random.fork_rng([]):
        torch.manual_seed(0)
        if random.random() < 0.4:
            _helper(shared, lines, take)
        if random.random() < 0.3:
            _helper(shared, lines, take)
        if random.random() < 0.3:
            _class(shared, lines, take)
        main = Writer(shared)
        for kind in "mmmvsb":
            main.make(kind)
        main.statements(count)
        lines.extend(["", "", "def main():"])
        take(main)
        lines.extend(["", "", "main()"])
    return Program("\n".join(lines) + "\n", labels)


def _helper(shared: Shared, lines: list[str], take: Callable[[Writer], None]) -> None:
    """A function of two tensors."""
    shared.count += 1
    name = f"helper{shared.count}"
    body = Writer(shared)
    decorator = shared.region() if shared.random.random() < 0.4 else ""
    for param in "ab":
        body.env[param] = torch.randn(4, 4, dtype=eval(shared.random.choice(shared.floats), shared.env))
        body.keep(param)
    decorator = decorator.partition(", torch.no_grad")[0]
    with ExitStack() as stack:
        if decorator:
            stack.enter_context(eval(decorator, shared.env))
        body.statements(shared.random.randrange(1, 5), 1)
        result = body.fill(shared.random.choice(("{m}", "{m}, {m:2}", "{m} + {m:2}", "{m}.sum()")))
        if not body.attempt(f"return_ = {result}"):
            return
    body.lines[-1] = f"    return {result}"
    start = len(lines)
    lines.extend(["", "", *([f"@{decorator}"] if decorator else []), f"def {name}(a, b):"])
    take(body)
    exec("\n".join(lines[start:]), shared.env)
    tuple_at = "[0]" if ", " in result and "(" not in result else ""
    shared.callees += [f"{name}({{m}}, {{m:2}}){tuple_at}", f"{name}({{m}}, b={{m:2}}){tuple_at}"]


def _class(shared: Shared, lines: list[str], take: Callable[[Writer], None]) -> None:
    """A module with layers, a parameter and a buffer."""
    shared.count += 1
    name = f"Net{shared.count}"
    made = [m for m in MODULES if m[1] == "{m}"]
    layers = [(f"self.m{i}", *shared.random.choice(made)) for i in range(2)]
    inits = [
        "super().__init__()",
        *(f"{layer} = nn.{made}" for layer, made, _ in layers),
        f"self.scale = nn.Parameter(torch.ones({shared.random.choice(('4', '4, 4', '()'))}))",
        "self.register_buffer('table', torch.ones(4))",
    ]
    start = len(lines)
    lines.extend(
        [
            "",
            "",
            f"class {name}(nn.Module):",
            "    def __init__(self):",
            *(f"        {line}" for line in inits),
            "",
            "    def forward(self, x):",
        ]
    )
    exec("\n".join([*lines[start:], "        return x"]), shared.env)
    body = Writer(shared, 2)
    body.env["self"] = shared.env[name]()
    body.env["x"] = torch.randn(4, 4)
    body.keep("x")
    body.modules = [(layer, given) for layer, _, given in layers]
    with ExitStack() as stack:
        if shared.random.random() < 0.3:
            text = shared.random.choice(
                (
                    "torch.autocast('{device}', enabled=False)",
                    "torch.autocast('{device}', dtype=torch.bfloat16)",
                )
            ).format(device=shared.device)
            body.put(f"with {text}:")
            body.indent += 1
            stack.enter_context(eval(text, shared.env))
        for layer, given in body.modules:
            body.assign(f"{layer}({body.fill(given)})", "module")
        for template in shared.random.sample(
            (
                "{m} * self.scale",
                "{m} + self.table",
                "{m} @ {m}",
                "{m}.to(self.scale.dtype)",
                "{m}.type_as(self.m0.weight)",
                "self.table.to({m}) * {m}",
            ),
            2,
        ):
            body.assign(body.fill(template), "field")
        body.statements(shared.random.randrange(0, 3), 2)
        body.put(f"return {body.operand('m')}")
    take(body)
    exec("\n".join(lines[start:]), shared.env)
    cast = ("", ".half()", ".to(torch.bfloat16)", ".eval()", ".to(dtype=torch.float16).float()")
    shared.callees += [f"{name}(){each}({{m}})" for each in cast]


# -- every row of the table -----------------------------------------------------------------------------------


def table_programs(
    device: str, first: str, others: str, region: str, forms: Mapping[str, list[str]]
) -> Iterator[Program]:
    """Every operator with its first operand of one dtype and the others of another, in a region ("" for none)."""
    env: dict[str, Any] = {"__name__": "program"}
    setup: list[str] = []
    exec(HEAD, env)
    for shape, kind in SHAPES.items():
        for name, dtype in (
            (f"{kind}1", first),
            (f"{kind}2", others),
            (f"{kind}3", others),
            (f"{kind}4", others),
        ):
            text = f"torch.ones({shape}).mul(0.5).to({dtype})"
            setup.append(f"{name} = {text}")
    setup += [f"l{n} = torch.randint(0, 4, (4,))" for n in "123"] + [
        f"L{n} = torch.randint(0, 4, (4, 4))" for n in "123"
    ]
    setup += [f"k{n} = torch.rand(4, 4) > 0.5" for n in "123"]
    with on(device):
        exec("\n".join(setup), env)
        statements: list[tuple[str, str]] = []
        with ExitStack() as stack:
            if region:
                stack.enter_context(eval(region, env))
            for op, templates in forms.items():
                for template in templates:
                    for number in ("2", "0.5") if "{c}" in template else ("",):
                        text = _HOLE.sub(
                            lambda m, number=number: (
                                number if m[1] == "c" else others if m[1] == "d" else f"{m[1]}{m[2] or 1}"
                            ),
                            template,
                        )
                        try:
                            exec(_compiled(f"t0 = {text}"), env)
                        except Exception:
                            continue
                        statements.append((op, text))
    for at in range(0, len(statements), 400):
        lines = [*HEAD.splitlines(), "", "", "def main():", *(f"    {line}" for line in setup)]
        lines.append(f"    with {region or 'torch.enable_grad()'}:")
        labels = {}
        for number, (op, text) in enumerate(statements[at : at + 400]):
            lines.append(f"        t{number} = {text}")
            labels[len(lines)] = op
        lines.extend(["", "", "main()"])
        yield Program("\n".join(lines) + "\n", labels)


def all_forms(every: bool = True) -> dict[str, list[str]]:
    """Operator -> the forms of its calls; or two of them."""
    found: dict[str, list[str]] = {}
    for op in operators():
        if op in NOT_CALLED:
            continue
        found[op] = list(dict.fromkeys(calls(op, every)))
    return found
