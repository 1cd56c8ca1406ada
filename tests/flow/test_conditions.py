"""Conditions as formulas: what follows from what."""

from __future__ import annotations

import pytest

from amplint.flow import conditions as c
from amplint.flow.state import Phase, Pool, merge
from amplint.model import ir

from .checking import model_of

X, Y = c.Ref(("f:x",)), c.Ref(("f:y",))


def formula(text: str) -> c.Formula:
    """The formula of an expression over the parameters of a function."""
    from amplint.flow.objects import Objects

    model = model_of(f"def f(x, y, z):\n    if {text}:\n        pass\n")
    objects = Objects(model)
    branch = objects.functions["f"].body[0]
    assert isinstance(branch, ir.If)
    return objects.lift.formula(branch.test)


def implied(known: str, asked: str) -> bool | None:
    """The value of `asked` wherever `known` holds; None when it can be either."""
    values = {c.evaluate(formula(asked), state) for state in c.assume(formula(known), True, {})}
    return values.pop() if len(values) == 1 else None


@pytest.mark.parametrize(
    ("known", "asked", "value"),
    [
        ("x", "x", True),
        ("not x", "x", False),
        ("x", "x is not None", True),
        ("x is None", "x", False),
        ("x is not None", "x", None),
        ("x is None", "x == 'a'", False),
        ("x == 'a'", "x == 'b'", False),
        ("x == 'a'", "x != 'b'", True),
        ("x == 'a'", "x in ('a', 'b')", True),
        ("x == 'c'", "x in ('a', 'b')", False),
        ("x > 0", "x", True),
        ("x > 0", "x != 0", True),
        ("x > 0", "x > 1", None),
        ("x > 1", "x > 0", True),
        ("x <= 0", "x > 1", False),
        ("x < y", "y > x", True),
        ("x < y", "x > y", False),
        ("x >= y", "x < y", False),
        ("x % y == 0", "not x % y", True),
        ("(x + 1) % y == 0", "(x + 1) % y != 0", False),
        ("x and y", "x", True),
        ("x or y", "x", None),
        ("not (x or y)", "y", False),
        ("x is True", "x", True),
        ("x == False", "x", False),
        ("not x", "x > 0", False),
        ("x.a.b", "x.a.b", True),
        ("x['k']", "x['k']", True),
        ("x.a", "x.b", None),
        ("x.ready(y)", "x.ready(y)", True),
        ("x.ready(y)", "x.ready(z)", None),
        ("bool(x)", "x", True),
        ("y if x else z", "x and y or not x and z", True),
    ],
)
def test_implications(known: str, asked: str, value: bool | None) -> None:
    assert implied(known, asked) is value


def test_literals_are_decided_at_once() -> None:
    assert formula("1 > 2") is False
    assert formula("'a' == 'a'") is True
    assert formula("None is None") is True
    assert formula("not 0") is True


def test_what_is_not_modelled_is_never_assumed() -> None:
    assert c.assume(formula("(lambda: x)()"), True, {}) == [{}]


def test_ways_to_satisfy_a_disjunction_are_disjoint() -> None:
    ways = c.assume(formula("x or y"), True, {})
    assert len(ways) == 2
    assert all(not first.items() <= second.items() for first, second in [ways, ways[::-1]])


def test_contradictions_leave_no_way() -> None:
    state = c.assume(formula("x"), True, {})[0]
    assert c.assume(formula("x is None"), True, state) == []


def test_states_that_differ_in_one_assumption_become_one() -> None:
    atom = c.Atom("truth", X)
    pool = Pool()
    assert [s.known for s in merge([pool.state({atom: True}), pool.state({atom: False})])] == [{}]


def test_states_with_other_facts_stay_apart() -> None:
    atom = c.Atom("truth", X)
    pool = Pool()
    scaled = pool.state({atom: True}, {}, {("f:s",): Phase("scaled", 1)})
    assert len(merge([scaled, pool.state({atom: False})])) == 2


def test_a_covered_state_is_dropped() -> None:
    atom = c.Atom("truth", X)
    pool = Pool()
    assert [s.known for s in merge([pool.state({atom: True}), pool.state()])] == [{}]


def test_assignment_forgets_the_path_and_what_lies_behind_it() -> None:
    whole, part, other = (c.Atom("truth", c.Ref(path)) for path in [("f:x",), ("f:x", "a"), ("f:y",)])
    state = Pool().state({whole: True, part: True, other: True})
    assert list(state.forget(("f:x",)).known) == [other]
    assert list(state.forget(("f:x", "a")).known) == [whole, other]


def test_assignment_to_an_attribute_forgets_what_methods_said() -> None:
    ready = c.truth(c.Op("call", (c.Ref(("f:x", "ready")),)))
    assert isinstance(ready, c.Atom)
    assert Pool().state({ready: True}).forget(("f:x", "count")).known == {}
