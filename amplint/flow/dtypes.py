"""Which dtypes an expression can stand for, and under which tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from amplint.flow import conditions as c
from amplint.flow.held import Held
from amplint.flow.lift import names
from amplint.model import ir

FP16, BF16, FP32 = "float16", "bfloat16", "float32"
#: No dtype is given (None), so that the default of the place counts; and one that cannot be told.
DEFAULT, UNKNOWN = "default", ""
_KINDS = {
    "float16": FP16,
    "half": FP16,
    "bfloat16": BF16,
    "float32": FP32,
    "float": FP32,
    "float64": "other",
    "double": "other",
}
_DEEPEST = 8
_SOMEHOW = c.truth(c.Unknown())


@dataclass(frozen=True, slots=True)
class Choice:
    """One dtype that an expression can stand for."""

    kind: str
    #: Where it is that one.
    guard: c.Formula
    #: Where it is written.
    site: int


def choices(held: Held, expr: ir.Expr | None, depth: int = 0) -> tuple[Choice, ...]:
    """Every dtype that `expr` can stand for; `UNKNOWN` is among them where that is not all."""
    if expr is None:
        return ()
    if depth > _DEEPEST:
        return (Choice(UNKNOWN, True, expr.site),)
    return tuple(dict.fromkeys(_choices(held, expr, depth)))


def _choices(held: Held, expr: ir.Expr, depth: int) -> Iterator[Choice]:
    if isinstance(expr, ir.Const):
        yield Choice(DEFAULT if expr.value is None else UNKNOWN, True, expr.site)
    elif isinstance(expr, ir.IfExp):
        test = held.lift.formula(expr.test)
        yield from _under(test, choices(held, expr.body, depth + 1))
        yield from _under(c.negate(test), choices(held, expr.orelse, depth + 1))
    elif isinstance(expr, ir.Bool):
        yield from choices(held, expr.left, depth + 1)
        yield from choices(held, expr.right, depth + 1)
    elif isinstance(expr, ir.Subscript):
        yield from _from_table(held, expr.value, expr.index, None, expr, depth)
    elif isinstance(expr, ir.Call):
        yield from _from_call(held, expr, depth)
    elif isinstance(expr, (ir.Name, ir.Attr)):
        yield from _from_name(held, expr, depth)
    else:
        yield Choice(UNKNOWN, True, expr.site)


def _under(guard: c.Formula, found: tuple[Choice, ...]) -> Iterator[Choice]:
    for choice in found:
        yield replace(choice, guard=c.both(guard, choice.guard))


def _from_name(held: Held, expr: ir.Name | ir.Attr, depth: int) -> Iterator[Choice]:
    known = [_KINDS.get(name.removeprefix("torch.")) for name in names(expr) if name.startswith("torch.")]
    path = held.lift.path(expr)
    if known and (len(names(expr)) == 1 or path is None or not held.values(path)):
        if len(known) < len(names(expr)):
            yield Choice(UNKNOWN, True, expr.site)
        for kind in known:
            yield Choice(kind or UNKNOWN, True, expr.site)
        return
    found = False
    for value, guard in assigned(held, path) if path is not None else ():
        found = True
        if value is None:
            yield Choice(UNKNOWN, guard, expr.site)
        else:
            yield from _under(guard, choices(held, value, depth + 1))
    if not found:
        yield Choice(UNKNOWN, True, expr.site)


def assigned(held: Held, path: c.Path) -> Iterator[tuple[ir.Expr | None, c.Formula]]:
    """What `path` can hold (None: not to be told), and under which tests."""
    if not held.values(path) and not held.is_param(path):
        path = held.resolved(path)
    bindings = held.values(path)
    if held.is_param(path):
        args, complete = held.given(path)
        for arg in args:
            yield arg, True
        if not complete:
            yield None, True
    for index, binding in enumerate(bindings):
        later = [b for b in bindings[index + 1 :] if b.function == binding.function]
        overridden = [c.negate(c.both(*b.guards)) for b in later if b.guards]
        yield binding.value, c.both(*binding.guards, *overridden)
    if len(path) > 1 and bindings:
        # a field of a class whose value an instance may be given
        home = held.home(path)
        klass = home[0].removesuffix(".self")
        for placed in held.calls if home[0].endswith(".self") else ():
            if held.classes.klass(names(placed.call.func)) == klass:
                for given in placed.call.args:
                    if given.keyword == home[-1] or given.star:
                        yield (None if given.star else given.value), True


def _from_call(held: Held, expr: ir.Call, depth: int) -> Iterator[Choice]:
    func, args = expr.func, expr.args
    if isinstance(func, ir.Attr) and func.attr == "get" and args and not names(func):
        default = args[1].value if len(args) > 1 else None
        yield from _from_table(held, func.value, args[0].value, default, expr, depth)
        return
    if names(func) == ("builtins.getattr",) and len(args) > 1 and names(args[0].value) == ("torch",):
        for text, guard in texts(held, args[1].value, depth + 1):
            yield Choice(_KINDS.get(text or "", UNKNOWN), guard, expr.site)
        return
    called = held.lift.called(expr)
    results = held.results(called) if called is not None else ()
    for result in results:
        found = choices(held, result, depth + 1)
        yield from found if len(results) == 1 else _under(_SOMEHOW, found)
    if not results:
        yield Choice(UNKNOWN, True, expr.site)


def _from_table(
    held: Held, table: ir.Expr, key: ir.Expr, default: ir.Expr | None, whole: ir.Expr, depth: int
) -> Iterator[Choice]:
    """`TABLE[key]` and `TABLE.get(key, default)` of a dictionary that is written out."""
    display = _display(held, table)
    if display is None:
        yield Choice(UNKNOWN, True, whole.site)
        return
    term = held.lift.term(key)
    rows = [(k, v) for k, v in zip(display.items[::2], display.items[1::2], strict=False)]
    keys = [held.lift.term(k) for k, _ in rows]
    for text, test in texts(held, key, depth + 1):
        for row, (_, value) in zip(keys, rows, strict=True):
            if text is None:
                yield from _under(c.both(test, c.equal(term, row)), choices(held, value, depth + 1))
            elif row == c.Lit(text):
                yield from _under(test, choices(held, value, depth + 1))
        if default is not None and (text is None or c.Lit(text) not in keys):
            missing = () if text is not None else [c.negate(c.equal(term, row)) for row in keys]
            yield from _under(c.both(test, *missing), choices(held, default, depth + 1))


def _display(held: Held, expr: ir.Expr) -> ir.Items | None:
    """The dictionary that `expr` is, where it is written out without `**`."""
    path = held.lift.path(expr)
    if path is not None:
        found = held.values(path)
        value = found[0].value if len(found) == 1 else None
    else:
        value = expr
    if not isinstance(value, ir.Items) or value.kind != "dict":
        return None
    return None if any(isinstance(item, ir.Star) for item in value.items) else value


def texts(held: Held, expr: ir.Expr, depth: int = 0) -> Iterator[tuple[str | None, c.Formula]]:
    """The strings that `expr` can be (None: any), and under which tests."""
    if isinstance(expr, ir.Const) and isinstance(expr.value, str):
        yield expr.value, True
    elif isinstance(expr, ir.IfExp) and depth <= _DEEPEST:
        test = held.lift.formula(expr.test)
        for branch, guard in ((expr.body, test), (expr.orelse, c.negate(test))):
            for text, inner in texts(held, branch, depth + 1):
                yield text, c.both(guard, inner)
    else:
        path = held.lift.path(expr) if depth <= _DEEPEST else None
        found = list(assigned(held, path)) if path is not None else []
        for value, guard in found:
            for text, inner in texts(held, value, depth + 1) if value is not None else [(None, True)]:
                yield text, c.both(guard, inner)
        if not found:
            yield None, True
