"""What is seen of a file while an autocast region is entered."""

from __future__ import annotations

import pytest

from amplint.flow.spans import Span, spans_of

from .checking import model_of


def spans(text: str) -> tuple[Span, ...]:
    return spans_of(model_of(text)).all


def seen(text: str, *wanted: str) -> list[tuple[str, bool, int]]:
    """The wanted calls in order: what is called, whether gradients are off, and how many regions are entered."""
    return [
        (event.path[-1].rpartition(":")[2], event.no_grad, len(event.regions))
        for span in spans(text)
        for event in span.events
        if event.path is not None and event.path[-1].rpartition(":")[2] in wanted
    ]


def test_calls_outside_a_region_are_no_part_of_a_span() -> None:
    text = """
import torch
def step(model, x):
    before(x)
    with torch.autocast("cuda"):
        model(x)
    after(x)
"""
    assert seen(text, "before", "model", "after") == [("model", False, 1)]


def test_what_a_function_of_the_file_does_is_seen_where_it_is_called_in_a_region() -> None:
    text = """
import torch
def helper(model, x):
    with torch.no_grad():
        model(x)
def step(model, x):
    with torch.autocast("cuda"):
        helper(model, x)
"""
    assert seen(text, "model") == [("model", True, 1)]


def test_the_body_of_a_loop_is_gone_through_twice() -> None:
    text = """
import torch
def step(model, xs):
    with torch.autocast("cuda"):
        for x in xs:
            model(x)
"""
    assert seen(text, "model") == [("model", False, 1), ("model", False, 1)]


def test_an_exit_stack_keeps_a_region_until_its_with_ends() -> None:
    text = """
import contextlib, torch
def step(model, x, amp):
    with contextlib.ExitStack() as stack:
        before(x)
        if amp:
            stack.enter_context(torch.autocast("cuda"))
        model(x)
    after(x)
"""
    assert seen(text, "before", "model", "after") == [("model", False, 1)]


def test_a_context_manager_of_the_file_runs_around_the_body() -> None:
    text = """
import contextlib, torch
@contextlib.contextmanager
def swapped(a):
    first(a)
    yield
    last(a)
def step(model, a, x):
    with torch.autocast("cuda"):
        with swapped(a):
            model(x)
"""
    assert [name for name, _, _ in seen(text, "first", "model", "last")] == ["first", "model", "last"]


def test_a_module_is_the_same_one_inside_a_function_that_it_is_handed_to() -> None:
    text = """
import torch
def run(net, x):
    return net(x)
def step(model, x):
    with torch.autocast("cuda"):
        run(model, x)
        model(x)
"""
    paths = {
        event.path
        for span in spans(text)
        for event in span.events
        if event.callee is None and event.path is not None
    }
    assert paths == {("step:model",)}


def test_two_instances_of_one_class_are_told_apart() -> None:
    text = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.layer(x)
def step(x):
    a = Net()
    b = Net()
    with torch.autocast("cuda"):
        a(x)
        b(x)
"""
    layers = [
        event.path
        for span in spans(text)
        for event in span.events
        if event.path is not None and event.path[-1] == "layer"
    ]
    assert layers == [("step:a", "layer"), ("step:b", "layer")]


@pytest.mark.parametrize("text", ["", "import torch\n", "with open('x') as f:\n    f.read()\n"])
def test_a_file_without_regions_has_no_spans(text: str) -> None:
    assert spans(text) == ()
