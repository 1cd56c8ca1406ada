"""How programs are sliced and run: bounds, recursion, order, and what the result says about itself."""

from __future__ import annotations

import pickle

import pytest

from amplint.finding import Confidence
from amplint.flow import conditions as c
from amplint.flow import protocol as p
from amplint.flow import typestate
from amplint.flow.objects import Objects
from amplint.flow.pruning import Pruner, nodes
from amplint.flow.scaler import analyse, scaler_analysis
from amplint.flow.slicing import Slicer

from .checking import IMPORTS, clips, is_admitted, model_of

BAD = (
    IMPORTS
    + """
def train(model, optimizer, scaler, loss, a, b, c):
    if a:
        log(loss)
    if b:
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    if c:
        log(loss)
"""
)


def programs(text: str) -> dict[str, p.Program]:
    objects = Objects(model_of(text))
    slicer = Slicer(objects)
    return Pruner(objects, {name: slicer.program(f) for name, f in objects.functions.items()}).result()


def test_only_events_and_their_guards_remain() -> None:
    kinds = [type(node).__name__ for node in nodes(programs(BAD)["train"])]
    assert kinds == ["Branch", "Backward", "Clip", "Invoke", "Invoke"]


def test_a_call_of_a_function_that_does_nothing_is_no_event() -> None:
    text = BAD.replace("log(loss)", "save(scaler)") + "\n\ndef save(scaler):\n    keep(scaler.state_dict())\n"
    assert [type(node).__name__ for node in programs(text)["train"]] == ["Branch"]
    elsewhere = text.replace("def save", "def other")
    assert [type(node).__name__ for node in programs(elsewhere)["train"]] == ["Branch"] * 3


def test_programs_can_be_serialised() -> None:
    found = programs(BAD)
    assert pickle.loads(pickle.dumps(found)) == found


def test_result_is_computed_once_per_model() -> None:
    model = model_of(BAD)
    assert scaler_analysis(model) is scaler_analysis(model)


def test_file_without_a_scaler_is_not_looked_at() -> None:
    analysis = analyse(model_of("x = 1\n"))
    assert analysis.clips_before_unscale == ()
    assert analysis.gave_up == 0


@pytest.mark.parametrize(
    "text",
    [
        "loss.backward()\nclip_grad_norm_(model.parameters(), 1.0)\n",
        "self.manual_backward(loss)\nclip_grad_norm_(model.parameters(), 1.0)\n",
        "scaler.scale(x)\nclip_grad_norm_(model.parameters(), 1.0)\n",
        "plot.scale(x)\np.grad.zero_()\n",
    ],
)
def test_files_without_all_parts_of_the_mistake_are_kept_out(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_admitted(text)

    assert analyse(model_of(text)).clips_before_unscale == ()


@pytest.mark.parametrize(
    "text",
    [
        "from timm.utils import dispatch_clip_grad as bound\nscaler.scale(loss).backward()\nbound(params, 1)\n",
        "from torch.nn.utils import clip_grad_value_ as f\nscaler.scale(loss).backward()\nf(params, 1)\n",
        "scaler.scale(loss).backward()\np.grad.clamp_(-1, 1)\n",
        "scaler.scale(loss).backward()\np.grad *= 1 / total_norm(p.grad)\n",
        "self.automatic_optimization = False\nself.manual_backward(x)\nclip_grad_norm_(params, 1)\n",
    ],
)
def test_files_with_all_parts_of_the_mistake_are_let_in(text: str) -> None:
    assert is_admitted(text)


def test_remembered_hashes_stay_in_their_process() -> None:
    atom = c.Atom("truth", c.Ref(("f:x",)))
    assert hash(atom) == hash(c.Atom("truth", c.Ref(("f:x",))))
    read = pickle.loads(pickle.dumps(atom))
    assert read == atom
    assert not hasattr(read, "_hash")


def test_optimizers_that_are_met_late_are_known_from_the_start() -> None:
    body = """
    def train(a, b, batches):
        oa, ob = torch.optim.SGD(a.parameters()), torch.optim.SGD(b.parameters())
        scaler = torch.amp.GradScaler("cuda")
        for loss in batches:
            scaler.scale(loss).backward()
            clip_grad_norm_(b.parameters(), 1.0)
            scaler.unscale_(oa)
            scaler.step(oa)
            scaler.step(ob)
            scaler.update()
    """
    assert len(clips(body)) == 1


def test_too_many_steps_are_counted_and_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typestate, "_MOST_STEPS", 2)
    analysis = analyse(model_of(BAD))
    assert analysis.clips_before_unscale == ()
    assert analysis.gave_up == 1


def test_dropped_assumptions_lower_the_confidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typestate, "_MOST_STATES", 3)
    text = (
        IMPORTS
        + """
def train(model, optimizer, scaler, loss, a, b):
    n = m = 1
    if a:
        n = 2
    if b:
        m = 2
    if n == m:
        optimizer.zero_grad()
    scaler.scale(loss).backward()
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
    )
    found = analyse(model_of(text)).clips_before_unscale
    assert [clip.confidence for clip in found] == [Confidence.MEDIUM]


def test_recursion_comes_to_an_end() -> None:
    body = """
    def train(model, optimizer, scaler, loss, depth):
        scaler.scale(loss).backward()
        if depth:
            train(model, optimizer, scaler, loss, depth - 1)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert isinstance(clips(body), list)


def test_many_independent_conditions_do_not_explode() -> None:
    tests = "\n".join(f"    if f{i}:\n        scaler.unscale_(o{i})" for i in range(12))
    text = (
        IMPORTS
        + f"""
def train(model, scaler, loss, {", ".join(f"f{i}, o{i}" for i in range(12))}):
    scaler.scale(loss).backward()
{tests}
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(o0)
    scaler.update()
"""
    )
    assert all(clip.confidence is Confidence.LOW for clip in analyse(model_of(text)).clips_before_unscale)


def test_counter_in_a_loop_comes_to_an_end() -> None:
    body = """
    def train(model, optimizer, scaler, loss):
        i = j = 0
        while i < 100:
            i, j = j + 1, i + 1
            scaler.scale(loss).backward()
            if i % 4 == 0:
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
    """
    assert len(clips(body)) == 1


def test_nested_loops_and_breaks_reach_a_fixpoint() -> None:
    body = """
    def train(model, optimizer, scaler, epochs, loader, limit):
        for epoch in epochs:
            for step, loss in enumerate(loader):
                if step > limit:
                    break
                scaler.scale(loss).backward()
                if step % 2:
                    continue
                scaler.unscale_(optimizer)
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
            else:
                continue
    """
    assert clips(body) == []


def test_two_instances_of_one_wrapper_are_two_scalers() -> None:
    body = """
    class Wrapper:
        def __init__(self):
            self.s = torch.amp.GradScaler("cuda")
        def backward(self, loss):
            self.s.scale(loss).backward()
        def unscale(self, optimizer):
            self.s.unscale_(optimizer)
        def step(self, optimizer):
            self.s.step(optimizer)
            self.s.update()

    def train(model, optimizer, loss):
        one, two = Wrapper(), Wrapper()
        one.backward(loss)
        two.unscale(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        one.step(optimizer)
    """
    assert len(clips(body)) == 1


def test_override_in_a_subclass_of_the_file_is_considered() -> None:
    body = """
    class Base:
        def __init__(self):
            self.scaler = torch.amp.GradScaler("cuda")
        def prepare(self):
            print("nothing to prepare")
        def fit(self, loss):
            self.scaler.scale(loss).backward()
            self.prepare()
            clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()

    class Mixed(Base):
        def prepare(self):
            self.scaler.unscale_(self.optimizer)
    """
    assert clips(body) == []


def test_super_reaches_the_base_method() -> None:
    body = """
    class Base:
        def prepare(self):
            self.scaler.unscale_(self.optimizer)

    class Trainer(Base):
        def prepare(self):
            super().prepare()
        def fit(self, loss):
            self.scaler.scale(loss).backward()
            self.prepare()
            clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
    """
    assert clips(body) == []


def test_match_statement_takes_every_arm() -> None:
    body = """
    def train(model, optimizer, scaler, loss, mode):
        match mode:
            case "amp":
                scaler.scale(loss).backward()
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
            case _:
                loss.backward()
    """
    assert len(clips(body)) == 1


def test_a_loop_that_changes_nothing_ends() -> None:
    body = """
    def step(model, optimizer, scaler, loss, names):
        for name in names:
            scaler.load_state_dict(name)
        scaler.scale(loss).backward()
        for name in names:
            if name in names:
                continue
            scaler.load_state_dict(name)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert len(clips(body)) == 1
