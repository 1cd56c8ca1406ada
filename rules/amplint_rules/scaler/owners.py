"""The objects of frameworks that own a scaler which no code of the file touches.

`facts/scaler_owners.tsv` says of each which method scales the loss, which ones clip (and unscale first), what gives
back optimizers whose `step` is the scaler's `step` and `update`, and in which precisions there is a scaler. Its column
`form` says what owns: the `object` that a class makes, the `engine` that a function gives back first (which steps
itself), or each object of a class with that `base`. `unknown` is how sure a report is where nothing in the file tells
the precision (empty: none is made).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from amplint import facts
from amplint.finding import Confidence
from amplint.rule import Context

#: What a test is about that chooses between a framework and plain torch, or between precisions.
_MODES = re.compile(
    r"deepspeed|\bds_|_ds\b|zero_stage|colossal|booster|engine|accelerate\b|distributed_type|fsdp|apex|amp\b|amp_"
    r"|fp16|bf16|half|precision|scaler|distplan|plugin|strategy|backend",
    re.IGNORECASE,
)
#: Methods that change a dictionary.
_CHANGES = ("update", "setdefault", "pop", "clear")
#: Arguments of a tensor's own `backward`.
_OF_TENSORS = ("retain_graph", "create_graph", "inputs")


@dataclass(frozen=True, slots=True)
class Owner:
    """An object that owns a scaler: what makes it, and its row of the table."""

    name: str
    made: cst.Call | cst.ClassDef
    row: dict[str, str]
    #: Whether there is a scaler: True where it is written out, False where there is none, None where nothing tells.
    scales: bool | None

    @property
    def form(self) -> str:
        """What owns the scaler: an `object`, an `engine`, or an instance of a `base`."""
        return self.row["form"]

    def methods(self, column: str) -> list[str]:
        """The methods that a column names."""
        return [name for name in self.row[column].split(",") if name]

    @property
    def may_scale(self) -> bool:
        """Whether what is done past it is worth a word, though it has no scaler, or though nothing tells."""
        unknown = self.row["unknown"]
        return bool(unknown) if self.scales is None else self.scales or unknown == "medium"

    @property
    def confidence(self) -> Confidence:
        """Medium, and low where it is certain to have no scaler, or seldom has one and nothing tells."""
        if self.scales is None:
            return Confidence(self.row["unknown"] or "low")
        return Confidence.MEDIUM if self.scales else Confidence.LOW

    @property
    def accumulates(self) -> bool:
        """Whether it is made with more than one micro-step per step, as far as the text tells."""
        first, *others = self.methods("accumulates") or [""]
        steps = argument(self.made, first)
        if steps is not None:
            return not (isinstance(steps, cst.Integer) and steps.evaluated_value == 1)
        return any(argument(self.made, name) is not None for name in others)


@dataclass(slots=True)
class Owners:
    """The owners in a file, by how they are written."""

    made: dict[str, Owner] = field(default_factory=dict)
    #: What they gave back for optimizers and models, and engines, which step themselves; each with its owner.
    prepared: list[tuple[cst.BaseExpression, Owner]] = field(default_factory=list)
    #: Names of their scalers.
    scalers: set[str] = field(default_factory=set)
    #: Classes whose objects are owners.
    classes: list[Owner] = field(default_factory=list)

    def columns(self, column: str) -> set[str]:
        """The methods of all of them that a column names."""
        return {name for owner in self.made.values() for name in owner.methods(column)}


def owners(ctx: Context) -> Owners:
    """The owners of scalers in the file."""
    known = ctx.memo.get("scaler owners")
    if isinstance(known, Owners):
        return known
    found = Owners()
    tree, names = ctx.model.tree, ctx.model.names
    rows = [row for row in facts.table("scaler_owners") if row["class"].rpartition(".")[2] in tree.text]
    by_class = {row["class"]: row for row in rows}
    for call in tree.of_type(cst.Call) if rows else ():
        assign = _assign(ctx, call)
        for name in names.resolve(call.func) if assign is not None else ():
            row = by_class.get(name)
            if row is not None and row["form"] != "base" and assign is not None:
                _note(ctx, call, assign, row, found)
    for assign in tree.of_type(cst.Assign) if found.made else ():
        value, targets = assign.value, [part.target for part in assign.targets]
        if isinstance(value, cst.Call):
            owner = found.made.get(called_on(ctx, value))
            if owner is None or last(value) not in owner.methods("prepare"):
                continue
            for target in targets:
                found.prepared.extend((part, owner) for part in _parts(target))
        elif isinstance(value, cst.Attribute):
            scalers = [f"{n}.{s}" for n, owner in found.made.items() for s in owner.methods("scaler")]
            if tree.code(value) in scalers:
                found.scalers.update(map(tree.code, targets))
    if any(row["form"] == "base" for row in rows):
        found.classes.extend(_subclasses(ctx, by_class))
    ctx.memo["scaler owners"] = found
    return found


def _assign(ctx: Context, call: cst.Call) -> cst.Assign | None:
    """The assignment of what a call returns, or of the first part of it."""
    tree = ctx.model.tree
    above = tree.parent(call)
    if isinstance(above, cst.Subscript) and tree.code(above)[len(tree.code(call)) :].strip("[ ]") == "0":
        above = tree.parent(above)
    return above if isinstance(above, cst.Assign) else None


def _note(ctx: Context, call: cst.Call, assign: cst.Assign, row: dict[str, str], found: Owners) -> None:
    scales = _scales(ctx, call, row)
    for target in (part.target for part in assign.targets):
        holder = _parts(target)[0] if row["form"] == "engine" and _parts(target) else target
        owner = Owner(ctx.model.tree.code(holder), call, row, scales)
        found.made[owner.name] = owner
        if row["form"] == "engine":
            found.prepared.append((holder, owner))


def _parts(target: cst.BaseExpression) -> list[cst.BaseExpression]:
    return [e.value for e in target.elements] if isinstance(target, (cst.Tuple, cst.List)) else [target]


def _subclasses(ctx: Context, by_class: dict[str, dict[str, str]]) -> Iterator[Owner]:
    """Classes of the file with a base of the table, directly or through one another."""
    names = ctx.model.names
    known: dict[str, dict[str, str]] = {}
    for klass in ctx.model.tree.of_type(cst.ClassDef):
        for base in klass.bases:
            row = known.get(base.value.value) if isinstance(base.value, cst.Name) else None
            for name in names.resolve(base.value):
                row = by_class.get(name, row)
            if row is not None and row["form"] == "base":
                known[klass.name.value] = row
                yield Owner("self", klass, row, _configured(ctx, row["precision"]))
                break


def _configured(ctx: Context, wanted: str) -> bool | None:
    """Whether a call of the file sets a precision; False where all that do choose bfloat16."""
    chosen = set()
    for call in ctx.model.tree.of_type(cst.Call):
        for name in (wanted, "bf16"):
            value = argument(call, name)
            if value is not None and not (isinstance(value, cst.Name) and value.value == "False"):
                chosen.add(name if isinstance(value, cst.Name) and value.value == "True" else "")
    return True if wanted in chosen else (False if chosen == {"bf16"} else None)


# -- the precision an owner is made with --------------------------------------------------------------------


def _scales(ctx: Context, call: cst.Call, row: dict[str, str]) -> bool | None:
    """Whether an owner has a scaler, by the argument that decides."""
    plain = row["plain"].split(",")
    for name in row["precision"].split(","):
        first, _, second = name.partition(".")
        value = argument(call, first)
        if value is None:
            continue
        if second:
            maker = _value_of(ctx, value, cst.Call)
            if isinstance(maker, cst.Call) and last(maker) in plain:
                return False
            value = argument(maker, second) if isinstance(maker, cst.Call) else None
            if value is None:
                return None
        if row["scaling"].count("."):
            return _in_dict(ctx, value, row["scaling"].split("."))
        text = value.evaluated_value if isinstance(value, cst.SimpleString) else None
        text = value.value if isinstance(value, cst.Integer) else text
        if text in plain:
            return False
        return True if text in row["scaling"].split(",") else None
    if "default" in plain and not any(arg.star for arg in call.args):
        return False
    return None


def _value_of(ctx: Context, value: cst.BaseExpression, kind: type[cst.CSTNode]) -> cst.BaseExpression | None:
    """An expression of some kind: itself, or the one thing that its name is bound to and that nothing changes."""
    if isinstance(value, kind) or not isinstance(value, cst.Name):
        return value if isinstance(value, kind) else None
    tree, name = ctx.model.tree, value.value
    bound = ctx.model.names.scope_of(value).lookup(name)
    changes = (call for call in methods(ctx, _CHANGES) if called_on(ctx, call) == name)
    parts = (part.target for assign in tree.of_type(cst.Assign) for part in assign.targets)
    if any(isinstance(part, cst.Subscript) and tree.code(part).startswith(f"{name}[") for part in parts):
        return None
    if len(bound) != 1 or bound[0].kind != "assign" or next(changes, None) is not None:
        return None
    return bound[0].value if isinstance(bound[0].value, kind) else None


def _in_dict(ctx: Context, value: cst.BaseExpression, path: list[str]) -> bool | None:
    """What a dictionary written in the file says at a path: True for what may be, False for what is not."""
    for key in path:
        found = _value_of(ctx, value, cst.Dict)
        if not isinstance(found, cst.Dict) or any(
            isinstance(e, cst.StarredDictElement) for e in found.elements
        ):
            return None
        values = {
            e.key.evaluated_value: e.value
            for e in found.elements
            if isinstance(e, cst.DictElement) and isinstance(e.key, cst.SimpleString)
        }
        if key not in values:
            others = {"amp", "torch_autocast"} & values.keys() or len(values) < len(found.elements)
            return None if others else False
        value = values[key]
    return not (isinstance(value, cst.Name) and value.value == "False")


# -- calls --------------------------------------------------------------------------------------------------


def methods(ctx: Context, wanted: Iterable[str]) -> Iterator[cst.Call]:
    """The calls of methods of these names."""
    names = frozenset(wanted)
    for call in ctx.model.tree.of_type(cst.Call) if names else ():
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in names:
            yield call


def is_plain_backward(ctx: Context, call: cst.Call, found: Owners) -> bool:
    """Whether a call of `backward` is a tensor's own, of something that nothing in the same line scaled."""
    if any(arg.keyword is None or arg.keyword.value not in _OF_TENSORS for arg in call.args):
        return False
    if called_on(ctx, call) in found.made or any(is_same(ctx, call, part) for part, _ in found.prepared):
        return False
    return not any(last(part).startswith("scale") for part in calls_in(ctx, call.func))


def scalings(ctx: Context, near: cst.CSTNode, found: Owners) -> Iterator[tuple[cst.Call, Owner]]:
    """The calls of owners and of what they prepared that scale a loss, in the function of `near`."""
    names = ctx.model.names
    for call in methods(ctx, found.columns("backward") | found.columns("scales")):
        if names.scope_of(call) is not names.scope_of(near):
            continue
        owner = found.made.get(called_on(ctx, call))
        if owner is not None and owner.form != "engine":
            yield call, owner
        elif call.args:
            yield from ((call, o) for part, o in found.prepared if is_same(ctx, call, part))


def steps(ctx: Context, near: cst.CSTNode, found: Owners) -> Iterator[tuple[cst.Call, Owner]]:
    """Steps of prepared optimizers and of engines in the function of `near`, where both may run."""
    names = ctx.model.names
    for call in methods(ctx, ("step",)):
        if names.scope_of(call) is not names.scope_of(near) or not in_one_mode(ctx, near, call):
            continue
        for part, owner in found.prepared:
            if owner.form != "engine" and "opt" not in called_on(ctx, call).lower():
                continue
            if is_same(ctx, call, part) and may_both_run(ctx, part, call):
                yield call, owner


def is_same(ctx: Context, call: cst.Call, prepared: cst.BaseExpression) -> bool:
    """Whether the method is called on what was prepared: the same name of the same scope, or an attribute."""
    names, written = ctx.model.names, ctx.model.tree.code(prepared)
    if called_on(ctx, call) != written:
        return False
    if not isinstance(prepared, cst.Name):
        return True
    return names.scope_of(call).owner(written) is names.scope_of(prepared).owner(written)


def may_both_run(ctx: Context, one: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Whether one run may come by both: no test is true for one of them and false for the other."""
    here, there = _tests(ctx, one), _tests(ctx, other)
    return all(there.get(test, arm) is arm for test, arm in here.items())


def in_one_mode(ctx: Context, one: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Whether, moreover, no test that stands around one of them only chooses between frameworks or precisions."""
    tests = _tests(ctx, one).keys() ^ _tests(ctx, other).keys()
    return may_both_run(ctx, one, other) and not any(map(_MODES.search, tests))


def _tests(ctx: Context, node: cst.CSTNode) -> dict[str, bool]:
    """The tests around a node within its function, as written, and which arm it stands in."""
    found: dict[str, bool] = {}
    below = node
    for outer in ctx.model.tree.ancestors(node):
        if isinstance(outer, (cst.FunctionDef, cst.Lambda)):
            break
        if isinstance(outer, (cst.If, cst.IfExp)) and below is not outer.test:
            test, arm = outer.test, below is outer.body
            while isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
                test, arm = test.expression, not arm
            found.setdefault(ctx.model.tree.code(test), arm)
        below = outer
    return found


def calls_in(ctx: Context, node: cst.CSTNode) -> Iterator[cst.Call]:
    """The calls in an expression or a block."""
    return (part for part in ctx.model.tree.within(node) if isinstance(part, cst.Call))


def called_on(ctx: Context, call: cst.Call) -> str:
    """What a method is called on, as written."""
    return ctx.model.tree.code(call.func.value) if isinstance(call.func, cst.Attribute) else ""


def last(call: cst.Call) -> str:
    """The last part of the name of what is called."""
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value
    return call.func.value if isinstance(call.func, cst.Name) else ""


def argument(call: cst.CSTNode, name: str) -> cst.BaseExpression | None:
    """The argument of a keyword."""
    args = call.args if isinstance(call, cst.Call) else ()
    return next((a.value for a in args if a.keyword is not None and a.keyword.value == name), None)
