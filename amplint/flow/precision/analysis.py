"""Runs a file from its entry points, and keeps what was seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from amplint.flow import walk
from amplint.flow.classes import Classes
from amplint.flow.lift import last, names
from amplint.flow.precision import names as known
from amplint.flow.precision.lattice import ANY, F32, LOW
from amplint.flow.precision.machine import BUDGET, Files, Machine, OutOfSteps
from amplint.flow.precision.notes import Notes
from amplint.flow.precision.operators import CUDA, Ambient, Rules
from amplint.flow.precision.relevance import Relevance
from amplint.flow.precision.state import Object, State
from amplint.flow.precision.values import Ref, Value
from amplint.flow.remembered import Remembered
from amplint.model import ir
from amplint.model.units import is_elsewhere

if TYPE_CHECKING:
    from amplint.model.linked import Elsewhere
    from amplint.model.module import ModuleModel
    from amplint.model.ondemand import OnDemand

#: What nobody knows of a place that nobody calls: whether there is a region around it.
_UNKNOWN = Ambient(None, frozenset(("float16", "bfloat16")))
#: Switches that are tried, one at a time.
_MOST_SWITCHES = 2
#: Calls that say that a function is a loop of its own, which no region surrounds.
_DRIVES = frozenset(("backward", "zero_grad", "autocast", "step", "unscale_"))


class Precision:
    """What was seen of one file, for one backend."""

    def __init__(self, files: OnDemand, notes: Notes) -> None:
        self.files = files
        self.notes = notes


_RESULTS: Remembered[ModuleModel, dict[Rules, Precision]] = Remembered("precision_analysis")


def precision_of(
    model: ModuleModel,
    elsewhere: Elsewhere | None = None,
    backend: str = CUDA,
    torch: tuple[int, int] = (2, 13),
) -> Precision:
    """What was seen of a file, looked at with those that it uses; computed once for each backend and version."""
    from amplint.model.ondemand import OnDemand

    rules = Rules(backend, torch)
    cached = _RESULTS.setdefault(model, {})
    if rules not in cached:
        files = OnDemand(model, elsewhere)
        cached[rules] = Precision(files, interpret(files.functions, files.classes, rules, files))
    return cached[rules]


def interpret(
    functions: Mapping[str, ir.Function],
    classes: Mapping[str, ir.Class],
    rules: Rules,
    files: Files | None = None,
    budget: int = BUDGET,
) -> Notes:
    """Run the code of the module, then every function that it did not reach.

    Where a switch decides whether something becomes low precision, all is run once more with the switch on: what
    follows is then certain on that path, and what asks for the same switch again is known.
    """

    relevance = Relevance(functions, Classes(classes))

    def run(assumed: Mapping[str, bool], steps: int) -> Notes:
        default = frozenset((F32,))
        return _run(Machine(functions, Classes(classes), rules, default, files, steps, assumed, relevance))

    notes = run({}, budget)
    for name in notes.switches[:_MOST_SWITCHES]:
        notes.add(run({name: True}, budget // 2))
    notes.settle()
    return notes


def _run(machine: Machine) -> Notes:
    try:
        machine.run_module()
    except OutOfSteps:
        machine.notes.gave_up += 1
    after = machine.state.copy()
    for name in _entries(machine.functions):
        if name in machine.notes.entered or not machine.relevance.makes_low(name):
            continue
        machine.state = after.copy()
        machine.refill()
        try:
            _enter(machine, machine.functions[name], after)
        except OutOfSteps:
            machine.notes.gave_up += 1
    return machine.notes


def _entries(functions: Mapping[str, ir.Function]) -> Iterator[str]:
    """The functions of the file itself, those first that nobody calls, and of these those that drive others."""
    own = [name for name in functions if name and not is_elsewhere(name)]
    called: set[str] = set()
    drives: set[str] = set()
    for name in ("", *own):
        words = {last(e.func) for e in walk.expressions(functions[name].body) if isinstance(e, ir.Call)}
        called |= words
        if not words.isdisjoint(_DRIVES):
            drives.add(name)
    yield from sorted(own, key=lambda name: (name.rpartition(".")[2] in called, name not in drives))


def _drives(function: ir.Function) -> bool:
    return any(
        isinstance(expr, ir.Call)
        and (last(expr.func) in _DRIVES or any(known.is_autocast(name) for name in names(expr.func)))
        for expr in walk.expressions(function.body)
    )


def _enter(machine: Machine, function: ir.Function, base: State) -> None:
    """Run a function of which nobody knows how it is called; `base` keeps the object that its method is called on."""
    is_free = _drives(function) or any(
        known.is_autocast(n)
        for d in function.decorators
        for n in names(d.func if isinstance(d, ir.Call) else d)
    )
    machine.around = Ambient() if is_free else _UNKNOWN
    me: Value | None = None
    skip = 0
    if function.owner is not None and function.owner in machine.classes.by_name and not function.is_static:
        me = _instance(machine, function.owner, function.site)
        base.heap.update(machine.state.heap)
        skip = 1
        if function.qualname.endswith(".__init__"):
            return
    arguments = machine.unknown_arguments(function, skip)
    machine.invoke(function.qualname, me, (), arguments, function.site)


def _instance(machine: Machine, klass: str, site: int) -> Value:
    """An instance of which nobody knows how it was made; what its constructor did not cast may have been cast since."""
    ref = Ref(("<self>", klass))
    if ref.key in machine.state.heap:
        return ref
    machine.state.heap[ref.key] = Object(klass, (), ANY, is_own=True, site=site)
    init = machine.classes.method(klass, "__init__")
    if init is not None:
        arguments = machine.unknown_arguments(machine.functions[init], 1)
        machine.invoke(init, ref, (), arguments, site)
    if machine.is_module(ref):
        machine.cast_module(ref, ANY, site, "", keeps=LOW)
    return ref
