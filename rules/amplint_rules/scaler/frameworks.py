"""What code does past a framework's object that owns a scaler which no code of the file touches.

`facts/scaler_owners.tsv` says of each class which method scales the loss, which ones clip (and unscale first), what
gives back optimizers whose `step` is the scaler's `step` and `update`, and in which precisions there is a scaler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from amplint import facts
from amplint.finding import Confidence
from amplint.rule import Context, Report

_TORCH_CLIPS = ("clip_grad_norm_", "clip_grad_value_")
_RAW_CLIPS = tuple(f"torch.nn.utils{part}.{name}" for part in ("", ".clip_grad") for name in _TORCH_CLIPS)
_SCALER = ("scale", "step", "unscale_", "update")


@dataclass(frozen=True, slots=True)
class _Owner:
    """An object that owns a scaler: the call that makes it, and its row of the table."""

    made: cst.Call
    row: dict[str, str]

    def methods(self, column: str) -> list[str]:
        """The methods that a column names."""
        return [name for name in self.row[column].split(",") if name]

    @property
    def confidence(self) -> Confidence:
        """Medium, and low where it is certain to have no scaler."""
        precision = _argument(self.made, self.row["precision"])
        unscaled = self.row["plain"].split(",")
        if precision is None:
            return Confidence.LOW if "default" in unscaled else Confidence.MEDIUM
        text = precision.evaluated_value if isinstance(precision, cst.SimpleString) else None
        text = precision.value if isinstance(precision, cst.Integer) else text
        return Confidence.LOW if text in unscaled else Confidence.MEDIUM

    @property
    def accumulates(self) -> bool:
        """Whether it is made with more than one micro-step per step, as far as the text tells."""
        first, *others = self.methods("accumulates") or [""]
        steps = _argument(self.made, first)
        if steps is not None:
            return not (isinstance(steps, cst.Integer) and steps.evaluated_value == 1)
        return any(_argument(self.made, name) is not None for name in others)


@dataclass(slots=True)
class _Owners:
    """The owners in a file, by how they are written."""

    made: dict[str, _Owner] = field(default_factory=dict)
    #: What they gave back for optimizers and models.
    prepared: list[cst.BaseExpression] = field(default_factory=list)
    #: Names of their scalers.
    scalers: set[str] = field(default_factory=set)

    def columns(self, column: str) -> set[str]:
        """The methods of all of them that a column names."""
        return {name for owner in self.made.values() for name in owner.methods(column)}


def unguarded_clips(ctx: Context) -> Iterable[Report]:
    """Clips by an owner that accumulates gradients, in a file that never asks whether it synchronises.

    On a micro-step without a step the scaler is not updated, and the next clip raises.
    """
    found = _owners(ctx)
    for call in _methods(ctx, found.columns("clips")):
        name = _called_on(ctx, call)
        owner = found.made.get(name)
        if owner is None or not owner.accumulates or owner.row["synced"] in ctx.model.tree.text:
            continue
        reason = f"put the clip under `if {name}.{owner.row['synced']}:`, with what uses its result"
        yield Report(
            call,
            f"{_written(call)} unscales the gradients on every micro-step, whether or not {name} synchronises: "
            "with fp16 the second one of a window raises",
            confidence=Confidence.MEDIUM,
            trace=[
                (owner.made, "gradients are accumulated over several micro-steps"),
                (call, f"unscaled and clipped here without a test of {owner.row['synced']}"),
            ],
            fix=lambda reason=reason: reason,  # type: ignore[misc]
        )


def bypasses(ctx: Context) -> Iterable[Report]:
    """Plain backwards for a prepared optimizer, and calls of the owner's own scaler."""
    found = _owners(ctx)
    if not found.made:
        return
    name, owner = next(iter(found.made.items()))
    for call in _methods(ctx, ("backward",)):
        if call.args or _called_on(ctx, call) in found.made:
            continue
        step = next(_steps(ctx, call, found), None)
        if step is None:
            continue
        yield Report(
            call,
            f"this loss is not scaled, but {_called_on(ctx, step)}.step() is one of {name}: with fp16 it divides "
            f"the gradients by the loss scale; {name}.{owner.row['backward']}(loss) scales",
            confidence=owner.confidence,
            trace=[
                (owner.made, f"{name} owns the scaler"),
                (call, "plain backward"),
                (step, "and its step"),
            ],
            fix=lambda name=name, method=owner.row["backward"]: f"call {name}.{method}(loss)",  # type: ignore[misc]
        )
    for call in _methods(ctx, _SCALER):
        called = _called_on(ctx, call)
        own = [n for n, owner in found.made.items() for s in owner.methods("scaler") if called == f"{n}.{s}"]
        if called not in found.scalers and not own:
            continue
        yield Report(
            call,
            f"{called} belongs to {name}, which calls it itself: this {_written(call)} is one too many",
            confidence=owner.confidence,
            trace=[(owner.made, f"{name} owns the scaler")],
            fix=lambda name=name: f"leave the scaler to {name}",  # type: ignore[misc]
        )


def raw_clips(ctx: Context) -> Iterable[Report]:
    """torch's clipping of gradients that an owner has scaled."""
    found = _owners(ctx)
    names = ctx.model.names
    if any(word in ctx.model.tree.text for word in found.columns("unscale")):
        return
    for call in ctx.model.tree.of_type(cst.Call) if found.made else ():
        if not any(name in _RAW_CLIPS for name in names.resolve(call.func)):
            continue
        around = [
            other
            for other in _methods(ctx, found.columns("backward"))
            if _called_on(ctx, other) in found.made and names.scope_of(other) is names.scope_of(call)
        ]
        step = next(_steps(ctx, call, found), None)
        if not around or step is None:
            continue
        name = _called_on(ctx, around[0])
        owner = found.made[name]
        clips = owner.methods("clips")
        own = _last(call) if _last(call) in clips else clips[0]
        yield Report(
            call,
            f"{_written(call)} of torch acts on gradients that {name}.{owner.row['backward']} has scaled (with "
            f"fp16); {name}.{own} unscales first",
            confidence=owner.confidence,
            trace=[(around[0], "the loss is scaled here, and so are its gradients"), (call, "clipped here")],
            fix=lambda name=name: f"clip with {name}'s own method",  # type: ignore[misc]
        )


def _owners(ctx: Context) -> _Owners:
    """The owners of scalers in the file."""
    known = ctx.memo.get("scaler owners")
    if isinstance(known, _Owners):
        return known
    found = _Owners()
    tree, names = ctx.model.tree, ctx.model.names
    rows = [row for row in facts.table("scaler_owners") if row["class"].rpartition(".")[2] in tree.text]
    for call in tree.of_type(cst.Call) if rows else ():
        target = tree.parent(call)
        named = names.resolve(call.func) if isinstance(target, cst.Assign) else ()
        for row in rows:
            if row["class"] in named and isinstance(target, cst.Assign):
                found.made.update((tree.code(part.target), _Owner(call, row)) for part in target.targets)
    for assign in tree.of_type(cst.Assign) if found.made else ():
        value, targets = assign.value, [part.target for part in assign.targets]
        if isinstance(value, cst.Call):
            owner = found.made.get(_called_on(ctx, value))
            if owner is None or _last(value) not in owner.methods("prepare"):
                continue
            for target in targets:
                parts = [e.value for e in target.elements] if isinstance(target, cst.Tuple) else [target]
                found.prepared.extend(parts)
        elif isinstance(value, cst.Attribute):
            scalers = [f"{n}.{s}" for n, owner in found.made.items() for s in owner.methods("scaler")]
            if tree.code(value) in scalers:
                found.scalers.update(map(tree.code, targets))
    ctx.memo["scaler owners"] = found
    return found


def _methods(ctx: Context, wanted: Iterable[str]) -> Iterator[cst.Call]:
    names = frozenset(wanted)
    for call in ctx.model.tree.of_type(cst.Call) if names else ():
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in names:
            yield call


def _steps(ctx: Context, near: cst.CSTNode, found: _Owners) -> Iterator[cst.Call]:
    """Steps of prepared optimizers in the function of `near`."""
    names = ctx.model.names
    for call in _methods(ctx, ("step",)):
        if "opt" not in _called_on(ctx, call).lower() or names.scope_of(call) is not names.scope_of(near):
            continue
        if any(_is_same(ctx, call, other) for other in found.prepared):
            yield call


def _is_same(ctx: Context, call: cst.Call, prepared: cst.BaseExpression) -> bool:
    """Whether the method is called on what was prepared: the same name of the same scope, or an attribute."""
    names, written = ctx.model.names, ctx.model.tree.code(prepared)
    if _called_on(ctx, call) != written:
        return False
    if not isinstance(prepared, cst.Name):
        return True
    return names.scope_of(call).owner(written) is names.scope_of(prepared).owner(written)


def _called_on(ctx: Context, call: cst.Call) -> str:
    return ctx.model.tree.code(call.func.value) if isinstance(call.func, cst.Attribute) else ""


def _last(call: cst.Call) -> str:
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value
    return call.func.value if isinstance(call.func, cst.Name) else ""


def _written(call: cst.Call) -> str:
    return f"{_last(call)}()" if _last(call) == "update" else _last(call)


def _argument(call: cst.Call, name: str) -> cst.BaseExpression | None:
    return next((a.value for a in call.args if a.keyword is not None and a.keyword.value == name), None)
