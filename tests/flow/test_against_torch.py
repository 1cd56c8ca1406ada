"""Random GradScaler programs, run by torch and read by amplint: the two must say the same.

A program is a straight line of calls on one scaler and one or two optimizers. Each statement of its text is executed
for real (CPU, scale 1024), and what the gradients were before and after it is kept. Every backward adds exactly 1 to
the gradient of each net that it reaches, or 1024 if its loss is scaled, and nothing overflows or is clipped away: so
the gradient divided by the number of backwards since the last zero_grad says whether it is scaled (more than 1),
right (1), or divided too often (less than 1). The run stops at the first exception; amplint reads the whole text, and
what it says of later statements does not count.

What agreement means, line by line, at default confidence:

- AMP201: must stand at a clip of scaled gradients that a later step takes (with nothing zeroed between; where that is
  a plain step, AMP203 at the step is as good); must not stand at a clip of gradients that are not scaled, or of none.
  Free: a clip of scaled gradients that no step takes.
- AMP203: must stand at a plain step that takes scaled gradients; must not stand at a plain step of gradients that no
  scaled loss has added to, or anywhere else. Free: plain steps after `unscale_`, or after a step through the scaler.
- AMP204: must stand at a scaler step where a second one raises, if there are gradients and a scaled loss has added to
  some since the last `update`; must not stand at a call
  that an `update` follows before the optimizer's next call. Free: calls that nothing follows.
- AMP205: must stand at the `unscale_` that raises because of another one, if there are gradients of a scaled loss
  that no step has taken; must not stand anywhere else.
- AMP206: must stand at the `update` that raises since nothing was stepped or unscaled after a scaled backward whose
  gradients are still there; must not stand at an `update` that is accepted.
- AMP207: must stand at the last of the backwards whose gradients a scaler step takes, if none of the losses was
  scaled; must not stand at anything else than a backward of a loss that is not scaled. Free: sums of both kinds.
- AMP208: must stand at the `unscale_` that raises because it comes after the step, if no backward is between (with
  one between, AMP204 at the step is as good), and at a clip between a step and the zero_grad of what it took; must
  not stand at a clip of gradients that no step has taken, or at an `unscale_` that is accepted.
- AMP216: must stand at a zero_grad that throws away gradients of a scaled loss that no step has taken, if the
  optimizer steps next, with no backward, no zero_grad and no update between; must not stand at any other statement
  than a zero_grad of gradients that no step has taken.

Statements behind the first one with a finding are free: what a broken program does next is nobody's promise. So are a
plain step and a clip of sums of scaled and unscaled gradients, also of those that a step has taken and nothing zeroed.

What must stand is required of programs with one optimizer. With two, amplint does not know which of them a loss has
gradients for, and is silent where that decides; what must not stand must not stand there either.

A comparison of a rule that is not installed is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from textwrap import indent

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from amplint import check_source
from amplint.registry import all_rules

torch = pytest.importorskip("torch")

SCALE = 1024.0
NETS = ("a", "b")

#: What is rendered for each operation, with {n} for the net.
CALLS = {
    "unscale": "scaler.unscale_(opt_{n})",
    "clip": "torch.nn.utils.clip_grad_norm_(net_{n}.parameters(), max_norm)",
    "step": "scaler.step(opt_{n})",
    "plain-step": "opt_{n}.step()",
    "zero": "opt_{n}.zero_grad()",
    "update": "scaler.update()",
}


@dataclass(frozen=True)
class Op:
    """One statement: what is done, and with which nets."""

    kind: str
    nets: str = ""

    @property
    def text(self) -> str:
        if self.kind in CALLS:
            return CALLS[self.kind].format(n=self.nets)
        loss = " + ".join(f"net_{n}(x)" for n in self.nets)
        loss = f"({loss}).mean()" if len(self.nets) > 1 else f"{loss}.mean()"
        return f"scaler.scale({loss}).backward()" if self.kind == "scaled" else f"{loss}.backward()"


@dataclass(frozen=True)
class Program:
    nets: str
    ops: tuple[Op, ...]

    @property
    def setup(self) -> list[str]:
        made = [f"opt_{n} = torch.optim.SGD(net_{n}.parameters(), lr=0.1)" for n in self.nets]
        return [*made, f'scaler = torch.amp.GradScaler("cpu", init_scale={SCALE})']

    @property
    def head(self) -> str:
        nets = ", ".join(f"net_{n}" for n in self.nets)
        return f"import torch\n\n\ndef train({nets}, x, max_norm):\n" + indent(
            "\n".join(self.setup) + "\n", "    "
        )

    @property
    def text(self) -> str:
        return self.head + "".join(f"    {op.text}\n" for op in self.ops)

    @property
    def first_row(self) -> int:
        """The row of the first operation."""
        return self.head.count("\n") + 1


@dataclass(frozen=True)
class Net:
    """What is known of one net's gradients at one moment."""

    #: The real gradient; None where there is none.
    grad: float | None = None
    #: Backwards since it was zeroed, those of scaled losses among them.
    backwards: int = 0
    scaled: int = 0
    #: A step took them, and no backward has added to them since.
    is_taken: bool = False

    @property
    def is_scaled(self) -> bool:
        return self.grad is not None and self.grad > self.backwards


@dataclass(frozen=True)
class Done:
    """One executed statement."""

    op: Op
    before: dict[str, Net]
    after: dict[str, Net]
    error: str = ""

    @property
    def net(self) -> Net:
        """The net of an operation with one, before it."""
        return self.before[self.op.nets]


def run(program: Program) -> list[Done]:
    """Execute a program up to its first exception."""
    names: dict[str, object] = {"torch": torch, "x": torch.ones(1, 2), "max_norm": 1e9}
    modules = {n: torch.nn.Linear(2, 1) for n in program.nets}
    names.update({f"net_{n}": module for n, module in modules.items()})
    for line in program.setup:
        exec(line, names)
    states = dict.fromkeys(program.nets, Net())
    done: list[Done] = []
    for op in program.ops:
        error = ""
        try:
            exec(op.text, names)
        except (RuntimeError, AssertionError) as raised:
            error = f"{type(raised).__name__}: {raised}"
        grads = {n: m.bias.grad.item() if m.bias.grad is not None else None for n, m in modules.items()}
        after = {n: follow(op, n, states[n], grads[n], not error) for n in program.nets}
        done.append(Done(op, states, after, error))
        states = after
        if error:
            break
    return done


def follow(op: Op, name: str, net: Net, grad: float | None, is_good: bool) -> Net:
    """A net's state after a statement that left it with `grad`."""
    if name not in op.nets or not is_good:
        return Net(grad, net.backwards, net.scaled, net.is_taken)
    if op.kind == "zero":
        return Net()
    if op.kind in ("scaled", "plain"):
        return Net(grad, net.backwards + 1, net.scaled + (op.kind == "scaled"))
    is_taken = net.is_taken or (op.kind in ("step", "plain-step") and grad is not None)
    return Net(grad, net.backwards, net.scaled, is_taken)


@dataclass(frozen=True)
class Case:
    """A program, what torch did, and the indexes of the operations at which amplint reports each code."""

    program: Program
    done: list[Done]
    found: dict[str, frozenset[int]]

    def at(self, code: str) -> frozenset[int]:
        return self.found.get(code, frozenset())

    def since(self, index: int, *kinds: str, nets: str = "") -> int | None:
        """The last operation before `index` of one of `kinds` (with one of `nets`, if given)."""
        return next((i for i in reversed(range(index)) if self._is(i, kinds, nets)), None)

    def until(self, index: int, *kinds: str, nets: str = "") -> int | None:
        """The first operation after `index` of one of `kinds`."""
        return next((i for i in range(index + 1, len(self.done)) if self._is(i, kinds, nets)), None)

    def _is(self, index: int, kinds: tuple[str, ...], nets: str) -> bool:
        op = self.done[index].op
        return op.kind in kinds and (not nets or bool(set(op.nets) & set(nets)))

    def is_told_before(self, wrong: str) -> bool:
        """Whether an earlier statement than the one that `wrong` names has a finding already."""
        named = re.search(r"operation (\d+)", wrong)
        told = [row for rows in self.found.values() for row in rows]
        return named is not None and any(row < int(named[1]) for row in told)

    def show(self) -> str:
        """The program with what happened and what was found beside it."""
        shown = [self.program.head.rstrip()]
        for i, done in enumerate(self.done):
            codes = " ".join(sorted(code for code, rows in self.found.items() if i in rows))
            grads = " ".join(
                f"{n}:{net.grad:g}/{net.backwards}" for n, net in done.before.items() if net.grad
            )
            shown.append(f"    {done.op.text:<66}# {codes:<8} grads {grads or 'none'} {done.error}")
        shown += [f"    {op.text:<66}# not reached" for op in self.program.ops[len(self.done) :]]
        return "\n".join(shown)


@cache
def case_of(program: Program) -> Case:
    done = run(program)
    found: dict[str, set[int]] = {}
    for finding in check_source(program.text, "train.py", select=["AMP2"]):
        index = finding.start.row - program.first_row
        if index < len(done):
            found.setdefault(finding.code, set()).add(index)
    return Case(program, done, {code: frozenset(rows) for code, rows in found.items()})


# The comparisons: each says what is wrong with a case, or "".


def clips_of_scaled_gradients(case: Case) -> str:
    for i, done in enumerate(case.done):
        if done.op.kind != "clip":
            if i in case.at("AMP201"):
                return f"AMP201 at {done.op.text}"
            continue
        nets = done.op.nets
        step = case.until(i, "step", "plain-step", nets=nets)
        gone = case.until(i, "zero", nets=nets)
        is_consumed = step is not None and not case.done[step].error and (gone is None or step < gone)
        is_told = i in case.at("AMP201") or (step is not None and step in case.at("AMP203"))
        taken = case.done[step] if step is not None else done
        stepped, zeroed = case.since(i, "step", nets=nets), case.since(i, "zero", nets=nets)
        is_sum = done.net.scaled < done.net.backwards or (
            stepped is not None and (zeroed is None or zeroed < stepped) and not done.net.is_taken
        )
        is_free = is_sum or (taken.op.kind == "plain-step" and taken.net.scaled < taken.net.backwards)
        if done.net.is_scaled and is_consumed and not is_told and not is_free:
            return f"no AMP201 at operation {i}: the clip sees {done.net.grad:g}, and a step takes it"
        if not done.net.is_scaled and i in case.at("AMP201"):
            return f"AMP201 at operation {i}: the clip sees {done.net.grad}, as it should"
    return ""


def steps_past_the_scaler(case: Case) -> str:
    for i, done in enumerate(case.done):
        if done.op.kind != "plain-step":
            if i in case.at("AMP203"):
                return f"AMP203 at {done.op.text}"
        elif done.net.is_scaled and done.net.scaled == done.net.backwards and i not in case.at("AMP203"):
            return f"no AMP203 at operation {i}: the step takes {done.net.grad:g} of {done.net.backwards}"
        elif not done.net.scaled and i in case.at("AMP203"):
            return f"AMP203 at operation {i}: no scaled loss has added to these gradients"
    return ""


def steps_without_update(case: Case) -> str:
    last = len(case.done) - 1
    if case.done[last].error.startswith("RuntimeError: step() has already"):
        first = case.since(last, "step", nets=case.done[last].op.nets)
        assert first is not None
        scaled, update = case.since(last, "scaled"), case.since(last, "update")
        is_in_use = scaled is not None and (update is None or update < scaled) and case.done[last].net.scaled
        if is_in_use and first not in case.at("AMP204"):
            return f"no AMP204 at operation {first}: operation {last} raises"
    for i in sorted(case.at("AMP204")):
        op = case.done[i].op
        if op.kind not in ("step", "unscale"):
            return f"AMP204 at {op.text}"
        update = case.until(i, "update")
        again = case.until(i, "step", "unscale", nets=op.nets)
        if update is not None and not case.done[update].error and (again is None or update < again):
            return f"AMP204 at operation {i}: operation {update} is its update"
    return ""


def repeated_unscales(case: Case) -> str:
    for i, done in enumerate(case.done):
        is_second = done.error.startswith("RuntimeError: unscale_() has already")
        if is_second and done.net.scaled and not done.net.is_taken and i not in case.at("AMP205"):
            return f"no AMP205 at operation {i}: it raises"
        if not is_second and i in case.at("AMP205"):
            return f"AMP205 at operation {i}: it does not raise"
    return ""


def updates_without_step(case: Case) -> str:
    for i, done in enumerate(case.done):
        is_refused = done.error.startswith("AssertionError: No inf checks were recorded prior to update")
        if is_refused and is_pending(case, i) and i not in case.at("AMP206"):
            return f"no AMP206 at operation {i}: it raises"
        if not is_refused and i in case.at("AMP206"):
            return f"AMP206 at operation {i}: it does not raise"
    return ""


def is_pending(case: Case, index: int) -> bool:
    """Whether since the last update a scaled loss has left gradients, and nothing was stepped or unscaled."""
    update = case.since(index, "update")
    start = 0 if update is None else update + 1
    rows = case.done[start:index]
    if any(d.op.kind in ("step", "unscale", "plain-step") for d in rows):
        return False
    reached = {n for d in rows if d.op.kind == "scaled" for n in d.op.nets}
    return any(case.done[index].before[n].scaled for n in reached)


def backwards_without_scale(case: Case) -> str:
    for i, done in enumerate(case.done):
        if i in case.at("AMP207") and done.op.kind != "plain":
            return f"AMP207 at {done.op.text}"
        if (
            done.op.kind != "step"
            or done.error
            or done.net.is_taken
            or not done.net.backwards
            or done.net.scaled
        ):
            continue
        backward = case.since(i, "plain", nets=done.op.nets)
        if backward is not None and backward not in case.at("AMP207"):
            return f"no AMP207 at operation {backward}: operation {i} divides its gradients by the scale"
    return ""


def late_unscales(case: Case) -> str:
    last = len(case.done) - 1
    done = case.done[last]
    if not done.error.startswith("RuntimeError: unscale_() is being called after step"):
        wrong = [i for i in case.at("AMP208") if case.done[i].op.kind not in ("unscale", "clip")]
        wrong += [i for i in case.at("AMP208") if case.done[i].op.kind == "unscale"]
        return f"AMP208 at operation {wrong[0]}: it does not raise" if wrong else ""
    step = case.since(last, "step", nets=done.op.nets)
    backward = case.since(last, "scaled", "plain", nets=done.op.nets)
    assert step is not None and backward is not None
    is_told = last in case.at("AMP208") or (backward > step and step in case.at("AMP204"))
    if done.net.grad is not None and not is_told:
        return f"no AMP208 at operation {last}: it raises"
    return ""


def clips_after_step(case: Case) -> str:
    for i, done in enumerate(case.done):
        if done.op.kind != "clip":
            continue
        nets = done.op.nets
        after = case.until(i, "zero", "scaled", "plain", "step", "plain-step", nets=nets)
        is_lost = after is not None and case.done[after].op.kind == "zero"
        step = case.since(i, "step", "plain-step", nets=nets)
        is_scaler_step = step is not None and case.done[step].op.kind == "step"
        if done.net.is_taken and is_lost and is_scaler_step and i not in case.at("AMP208"):
            return f"no AMP208 at operation {i}: its gradients were taken before, and are zeroed next"
        if not done.net.is_taken and i in case.at("AMP208"):
            return f"AMP208 at operation {i}: no step has taken these gradients"
    return ""


def misplaced_zero_grads(case: Case) -> str:
    for i, done in enumerate(case.done):
        if done.op.kind != "zero":
            if i in case.at("AMP216"):
                return f"AMP216 at {done.op.text}"
            continue
        is_lost = bool(done.net.backwards) and not done.net.is_taken
        after = case.until(i, "zero", "scaled", "plain", "step", "plain-step", nets=done.op.nets)
        update = case.until(i, "update")
        is_wanted = (
            after is not None and case.done[after].op.kind == "step" and (update is None or after < update)
        )
        if is_lost and done.net.scaled and is_wanted and i not in case.at("AMP216"):
            return f"no AMP216 at operation {i}: the gradients are lost, and wanted at operation {after}"
        if not is_lost and i in case.at("AMP216"):
            return f"AMP216 at operation {i}: no gradients are lost"
    return ""


COMPARISONS: list[tuple[str, Callable[[Case], str]]] = [
    ("AMP201", clips_of_scaled_gradients),
    ("AMP203", steps_past_the_scaler),
    ("AMP204", steps_without_update),
    ("AMP205", repeated_unscales),
    ("AMP206", updates_without_step),
    ("AMP207", backwards_without_scale),
    ("AMP208", late_unscales),
    ("AMP208", clips_after_step),
    ("AMP216", misplaced_zero_grads),
]


# Programs


def operations(nets: str, is_apart: bool) -> st.SearchStrategy[Op]:
    """One operation of a program with these nets."""
    reached = st.sampled_from([*nets] if is_apart else [nets])
    one = st.sampled_from([*nets])
    kinds = st.sampled_from(["unscale", "clip", "step", "zero", "unscale", "clip", "step", "plain-step"])
    return st.one_of(
        st.builds(Op, st.just("scaled"), reached),
        st.builds(Op, st.sampled_from(["scaled", "scaled", "plain"]), reached),
        st.builds(Op, kinds, one),
        st.builds(Op, kinds, one),
        st.just(Op("update")),
    )


def iteration(nets: str, is_apart: bool) -> list[Op]:
    """A right one."""
    ops = [Op("zero", n) for n in nets]
    ops += [Op("scaled", n) for n in nets] if is_apart else [Op("scaled", nets)]
    for n in nets:
        ops += [Op("unscale", n), Op("clip", n), Op("step", n)]
    return [*ops, Op("update")]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A scaled backward and any calls in any order, or one or two right iterations with up to three calls lost, added or moved."""
    nets, is_apart = draw(st.sampled_from(["a", "a", "ab"])), False
    operation = operations(nets, is_apart)
    if draw(st.booleans()):
        first = Op("scaled", nets)
        return Program(nets, (first, *draw(st.lists(operation, min_size=1, max_size=11))))
    ops = iteration(nets, is_apart) * draw(st.integers(1, 2))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(ops) - 1))
        change = draw(st.sampled_from(["lose", "add", "move"]))
        moved = [draw(operation)] if change == "add" else [ops.pop(at)]
        if change != "lose":
            to = draw(st.integers(0, len(ops)))
            ops[to:to] = moved
        if not ops:
            break
    return Program(nets, tuple(ops or [Op("update")]))


def compare(code: str, comparison: Callable[[Case], str], examples: int) -> None:
    if all(rule.code != code for rule in all_rules()):
        pytest.skip(f"no rule {code}")

    @settings(
        max_examples=examples,
        phases=(Phase.generate, Phase.shrink),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def agree(program: Program) -> None:
        case = case_of(program)
        wrong = comparison(case)
        if wrong.startswith("no ") and program.nets != "a":
            wrong = ""  # which optimizer's gradients a backward makes is not told from the text
        if case.is_told_before(wrong):
            wrong = ""
        assert not wrong, f"{wrong}\n{case.show()}"

    agree()


NAMES = [f"{code}-{comparison.__name__}" for code, comparison in COMPARISONS]


@pytest.mark.parametrize(("code", "comparison"), COMPARISONS, ids=NAMES)
def test_amplint_agrees_with_torch(code: str, comparison: Callable[[Case], str]) -> None:
    compare(code, comparison, 150)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "comparison"), COMPARISONS, ids=NAMES)
def test_amplint_agrees_with_torch_on_many_programs(code: str, comparison: Callable[[Case], str]) -> None:
    compare(code, comparison, 3000)


@pytest.mark.parametrize("nets, is_apart", [("a", False), ("ab", False), ("ab", True)])
def test_a_right_iteration_has_no_findings(nets: str, is_apart: bool) -> None:
    case = case_of(Program(nets, tuple(iteration(nets, is_apart) * 2)))
    assert not case.found and not any(done.error for done in case.done), case.show()
    taken = [done.after[done.op.nets] for done in case.done if done.op.kind == "step"]
    assert [net.grad for net in taken] == [1.0] * len(taken)


def test_what_torch_does_is_seen() -> None:
    scaled, clip, step = Op("scaled", "a"), Op("clip", "a"), Op("step", "a")
    clipped = run(Program("a", (scaled, clip, step)))
    assert clipped[1].net == Net(SCALE, 1, 1) and clipped[2].after["a"] == Net(1.0, 1, 1, True)
    twice = run(Program("a", (scaled, step, step, clip)))
    assert len(twice) == 3 and "step() has already been called" in twice[2].error
