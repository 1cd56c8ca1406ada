"""Autocast regions without a dtype in code whose settings choose one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import libcst as cst

from amplint.finding import Applicability, Confidence, Edit, Fix, FixKind, Severity, Span
from amplint.flow import conditions as c
from amplint.flow import walk
from amplint.flow.dtypes import BF16, FP16
from amplint.flow.held import Held, objects_of
from amplint.flow.lift import last, names
from amplint.flow.regions import Region, regions_of
from amplint.model import ir
from amplint.rule import Context, Report, Rule
from amplint_rules import shapes

_BF16 = frozenset(("bfloat16", "bf16", "torch.bfloat16", "bf16-mixed", "bfloat16-mixed"))
_LOW = _BF16 | {"float16", "fp16", "half", "torch.float16", "torch.half", "16-mixed"}
#: What `getattr(torch, ..)` takes.
_OF_TORCH = frozenset(("bfloat16", "float16", "half"))
#: Flags that stand for bfloat16.
_FLAG = re.compile(r"(?:^|_)(?:bf16|bfloat16)$", re.IGNORECASE)
_BY_HAND = "give autocast the dtype that the settings name"


@dataclass(slots=True)
class _Setting:
    """A variable or attribute that names a dtype, by its last name."""

    name: str
    #: The strings that it is or is compared with.
    values: set[str] = field(default_factory=set)
    #: Where something is decided by it: (an expression that is the setting, function).
    uses: list[tuple[ir.Expr, str]] = field(default_factory=list)
    #: Of these, the ones that decide about a scaler or look up a torch.dtype.
    strong: list[tuple[ir.Expr, str]] = field(default_factory=list)


def check(ctx: Context) -> Iterable[Report]:
    """Report regions whose dtype is left to the default although the file is told another one."""
    held = objects_of(ctx.model)
    regions = [r for r in regions_of(ctx.model).all if _is_default(r)]
    if not regions:
        return
    settings = [s for s in _settings(held).values() if s.uses and s.values & _BF16]
    for region in regions:
        where = c.both(region.enabled, regions_of(ctx.model).guard(region.site))
        found = _enabled_for_bf16(ctx, held, region, where)
        yield from found if found else _ignored(ctx, held, region, where, settings)


def _is_default(region: Region) -> bool:
    """Whether a region that may be enabled has no dtype, on a device whose default is float16."""
    return (
        region.enabled is not False
        and set(region.devices) != {"cpu"}
        and region.kinds <= {FP16, BF16}
        and FP16 in region.kinds
        and all(choice.site == region.site for choice in region.dtypes)
    )


def _enabled_for_bf16(ctx: Context, held: Held, region: Region, where: c.Formula) -> list[Report]:
    """A region that is there because of a flag or setting that means bfloat16."""
    for atom in _wanted(where):
        is_flag = (
            atom.kind == "truth" and isinstance(atom.left, c.Ref) and bool(_FLAG.search(atom.left.path[-1]))
        )
        is_text = atom.kind == "eq" and any(
            isinstance(t, c.Lit) and t.value in _BF16 for t in (atom.left, atom.right)
        )
        if not (is_flag or is_text) or not held.may_be(where, atom):
            continue
        path = next(iter(c.atom_paths(atom)), ("?",))
        written = ".".join([path[0].rpartition(":")[2].rpartition(".")[2], *path[1:]])
        return [
            Report(
                ctx.model.tree.nodes[region.site],
                f"this region is there where `{written}` asks for bfloat16, and without a dtype it computes in float16",
                fix=lambda: _BY_HAND,
            )
        ]
    return []


def _wanted(formula: c.Formula, holds: bool = True) -> Iterator[c.Atom]:
    """The atoms that are to be true where a formula is, rather than false."""
    if isinstance(formula, c.Atom) and holds:
        yield formula
    elif isinstance(formula, c.Not):
        yield from _wanted(formula.part, not holds)
    elif isinstance(formula, (c.And, c.Or)):
        for part in formula.parts:
            yield from _wanted(part, holds)


def _ignored(
    ctx: Context, held: Held, region: Region, where: c.Formula, settings: list[_Setting]
) -> Iterator[Report]:
    asked = {
        path[-1].rpartition(":")[2]
        for path in (*c.formula_paths(where), *c.formula_paths(held.expand(where)))
    }
    here = (region.function, held.functions[region.function].owner)
    found: list[tuple[bool, ir.Expr, _Setting]] = []
    for setting in settings:
        if setting.name in asked:
            return  # this is the arm for one of the dtypes
        near = [expr for expr, function in setting.strong if _is_near(held, function, here)]
        found.append((bool(near), (near or [setting.uses[0][0]])[0], setting))
    if not found:
        return
    is_near, use, setting = max(found, key=lambda item: item[0])
    nodes = ctx.model.tree.nodes
    yield Report(
        nodes[region.site],
        f"this region computes in float16 whatever `{ctx.model.tree.code(nodes[use.site])}` says, which may ask for "
        "bfloat16: give it the dtype",
        confidence=Confidence.MEDIUM if is_near else Confidence.LOW,
        trace=[(nodes[use.site], "the dtype is chosen here"), (nodes[region.site], "the region has none")],
        fix=partial(_fix, ctx, region, setting),
    )


def _is_near(held: Held, function: str, here: tuple[str, str | None]) -> bool:
    """Whether two functions are one, parts of one class, or one of them the code of the module."""
    owner = held.functions[function].owner
    return function == here[0] or "" in (function, here[0]) or (owner is not None and owner == here[1])


def _fix(ctx: Context, region: Region, setting: _Setting) -> Fix | str:
    """`dtype=getattr(torch, setting)`, where the setting is spelled as torch does and known in this function."""
    tree = ctx.model.tree
    call = tree.nodes[region.site]
    here = next((expr for expr, function in setting.uses if function == region.function), None)
    if here is None or not setting.values <= _OF_TORCH or not isinstance(call, cst.Call):
        return _BY_HAND
    if "torch" not in ctx.model.names.resolve(cst.Name("torch")) and not ctx.model.names.scope_of(
        call
    ).lookup("torch"):
        return _BY_HAND
    if any(arg.star for arg in call.args):
        return _BY_HAND
    end = tree.span(call).end - 1
    before = ", " if call.args and tree.text[:end].rstrip()[-1] != "," else ""
    text = f"{before}dtype=getattr(torch, {tree.code(tree.nodes[here.site])})"
    return Fix(
        FixKind.REPAIR,
        Applicability.UNSAFE,
        "Give autocast the dtype of the settings",
        (Edit(Span(end, end), text),),
    )


# -- settings -------------------------------------------------------------------------------------------------------


def _settings(held: Held) -> dict[str, _Setting]:
    found: dict[str, _Setting] = {}

    def of(name: str) -> _Setting:
        return found.setdefault(name, _Setting(name))

    for owner, function in held.functions.items():
        for param in function.params:
            if param.default is not None and (texts := _texts(param.default)):
                of(param.name).values |= texts
        for stmt in walk.statements(function.body):
            if isinstance(stmt, ir.Assign) and stmt.value is not None and isinstance(stmt.value, ir.Const):
                for target in stmt.targets:
                    if last(target) and (texts := _texts(stmt.value)):
                        of(last(target)).values |= texts
        for expr in walk.expressions(function.body):
            _read(held, expr, owner, of)
    for klass in held.classes.by_name.values():
        for stmt in klass.body:
            if isinstance(stmt, ir.Assign) and stmt.value is not None and (texts := _texts(stmt.value)):
                for target in stmt.targets:
                    of(last(target)).values |= texts
    return found


def _read(held: Held, expr: ir.Expr, owner: str, of: Callable[[str], _Setting]) -> None:
    if isinstance(expr, ir.Compare) and expr.op in ("==", "!=", "in", "not in"):
        for side, other in ((expr.left, expr.right), (expr.right, expr.left)):
            texts = _texts(other)
            if last(side) and texts:
                of(last(side)).values |= texts
                of(last(side)).uses.append((side, owner))
    elif isinstance(expr, ir.Subscript) and last(expr.index):
        texts = _keys(held, expr.value)
        if texts:
            of(last(expr.index)).values |= texts
            of(last(expr.index)).uses.append((expr.index, owner))
            of(last(expr.index)).strong.append((expr.index, owner))
    elif isinstance(expr, ir.IfExp):
        kinds = {name for arm in (expr.body, expr.orelse) for name in names(arm)}
        if kinds & {"torch.bfloat16"} and kinds & {"torch.float16", "torch.half"}:
            _decides(expr.test, owner, of)
    elif isinstance(expr, ir.Call):
        _read_call(held, expr, owner, of)


def _read_call(held: Held, call: ir.Call, owner: str, of: Callable[[str], _Setting]) -> None:
    args = call.args
    if names(call.func) == ("builtins.getattr",) and len(args) > 1 and names(args[0].value) == ("torch",):
        if last(args[1].value):
            of(last(args[1].value)).uses.append((args[1].value, owner))
            of(last(args[1].value)).strong.append((args[1].value, owner))
    elif last(call.func) == "add_argument" and args:
        options = [a.value.value for a in args if a.keyword is None and isinstance(a.value, ir.Const)]
        longest = max((str(option).lstrip("-") for option in options), key=len, default="")
        texts = {t for a in args if a.keyword in ("default", "choices") for t in _texts(a.value)}
        if longest and texts:
            of(longest.replace("-", "_")).values |= texts
    elif held.lift.constructs_scaler(call):
        for arg in args:
            _decides(arg.value, owner, of)


def _decides(test: ir.Expr, owner: str, of: Callable[[str], _Setting]) -> None:
    """Note what decides about a scaler, or between two dtypes: a comparison, or a flag for bfloat16."""
    for inner in walk.inside(test):
        if isinstance(inner, ir.Compare):
            for side, other in ((inner.left, inner.right), (inner.right, inner.left)):
                if last(side) and _texts(other):
                    of(last(side)).strong.append((side, owner))
        elif _FLAG.search(last(inner)):
            of(last(inner)).values.add("bf16")
            of(last(inner)).uses.append((inner, owner))
            of(last(inner)).strong.append((inner, owner))


def _texts(expr: ir.Expr) -> set[str]:
    """The names of low-precision dtypes among strings that are written out."""
    parts = expr.items if isinstance(expr, ir.Items) and expr.kind != "dict" else (expr,)
    return {part.value for part in parts if isinstance(part, ir.Const) and isinstance(part.value, str)} & _LOW


def _keys(held: Held, table: ir.Expr) -> set[str]:
    """The same for the keys of a dictionary that is written out."""
    path = held.lift.path(table)
    values = [b.value for b in held.values(path)] if path is not None else [table]
    keys = [k for v in values if isinstance(v, ir.Items) and v.kind == "dict" for k in v.items[::2]]
    return {text for key in keys for text in _texts(key)}


RULE = Rule(
    code="AMP318",
    name="autocast-dtype-ignored",
    summary="an autocast region has no dtype although the settings choose one",
    severity=Severity.WARNING,
    check=check,
    words=("autocast",),
    shape=shapes.autocast_dtype_ignored,
    confidence=Confidence.MEDIUM,
    fixable="sometimes",
    module=__name__,
)
