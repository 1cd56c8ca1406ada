from __future__ import annotations

import pickle
from dataclasses import fields, is_dataclass
from textwrap import dedent
from typing import Any

import libcst as cst
import pytest

from amplint.config import Settings
from amplint.engine import model_of
from amplint.model import ir
from amplint.model.module import ModuleModel
from amplint.source import source_from_text


def model(text: str) -> ModuleModel:
    made = model_of(source_from_text(dedent(text).lstrip("\n"), "a.py"), Settings())
    assert isinstance(made, ModuleModel), made
    return made


def body(text: str, name: str = "") -> ir.Block:
    function = model(text).function(name)
    assert function is not None
    return function.body


def statement(text: str) -> Any:
    (only,) = body(text + "\n")
    return only


def expression(text: str) -> Any:
    lowered = statement(text)
    assert isinstance(lowered, ir.Do)
    return lowered.value


def show(node: object) -> object:
    """An expression as nested tuples without sites and qualified names."""
    if isinstance(node, tuple):
        return tuple(show(part) for part in node)
    if not is_dataclass(node):
        return node
    if isinstance(node, ir.Name):
        return node.id
    if isinstance(node, ir.Const):
        return ("const", node.value)
    hidden = {"site", "names", "scope"}
    return (type(node).__name__, *(show(getattr(node, f.name)) for f in fields(node) if f.name not in hidden))


@pytest.mark.parametrize(
    ("text", "lowered"),
    [
        ("a.b", ("Attr", "a", "b")),
        ("a(b, *c, d=e, **f)", None),
        ("a + b * c", ("Binary", "+", "a", ("Binary", "*", "b", "c"))),
        ("a @ b // c", ("Binary", "//", ("Binary", "@", "a", "b"), "c")),
        ("-a", ("Unary", "-", "a")),
        ("not a", ("Unary", "not", "a")),
        ("a and b or c", ("Bool", "or", ("Bool", "and", "a", "b"), "c")),
        ("a < b", ("Compare", "<", "a", "b")),
        ("a is not None", ("Compare", "is not", "a", ("const", None))),
        ("a not in b", ("Compare", "not in", "a", "b")),
        ("a < b <= c", ("Bool", "and", ("Compare", "<", "a", "b"), ("Compare", "<=", "b", "c"))),
        ("a if b else c", ("IfExp", "b", "a", "c")),
        ("(a := b)", ("Walrus", "a", "b")),
        ("a[b]", ("Subscript", "a", "b")),
        ("a[b, c]", ("Subscript", "a", ("Items", "tuple", ("b", "c")))),
        ("(a, b)", ("Items", "tuple", ("a", "b"))),
        ("[a, *b]", ("Items", "list", ("a", ("Star", "b")))),
        ("{a: b, **c}", ("Items", "dict", ("a", "b", ("Star", "c")))),
        ("True", ("const", True)),
        ("1.5", ("const", 1.5)),
        ("'a' 'b'", ("const", "ab")),
        ("((a))", "a"),
    ],
)
def test_expressions_keep_their_meaning(text: str, lowered: object) -> None:
    found = show(expression(text))
    assert lowered is None or found == lowered


def test_arguments_keep_their_order_keywords_and_stars() -> None:
    call = expression("f(a, *b, c=d, **e)")
    assert [(show(arg.value), arg.keyword, arg.star) for arg in call.args] == [
        ("a", None, ""),
        ("b", None, "*"),
        ("d", "c", ""),
        ("e", None, "**"),
    ]


@pytest.mark.parametrize(
    "text", ["f'{a.b}'", "await_(a.b)", "a[b:a.b]", "lambda: a.b", "[a.b for c in d]", "{a.b}"]
)
def test_no_part_of_an_expression_is_lost(text: str) -> None:
    assert "('Attr', 'a', 'b')" in repr(show(expression(text)))


def test_a_literal_without_a_value_does_not_stop_the_lowering() -> None:
    source = source_from_text("x = " + "1" * 5000 + "\ny = '\\N{no such character}'\n", "a.py")
    made = model_of(source, Settings())
    if isinstance(made, ModuleModel):
        function = made.function("")
        assert function is not None and not any(isinstance(s.value, ir.Const) for s in function.body)  # type: ignore[union-attr]


@pytest.mark.filterwarnings("error")
def test_an_odd_escape_warns_nobody() -> None:
    assert show(expression(r"f('\d')")) == ("Call", "f", (("Arg", ("const", "\\d"), None, ""),))


def test_small_statements_in_one_row_are_all_there_in_order() -> None:
    found = body("a = 1; b += 2; c; del d; assert e\n")
    assert [type(s).__name__ for s in found] == ["Assign", "AugAssign", "Do", "Delete", "Assert"]
    assert found[1].op == "+"  # type: ignore[union-attr]


def test_statements_without_effect_on_values_are_left_out() -> None:
    assert body("import a\nfrom b import c\npass\nglobal d\n") == ()


def test_a_chain_of_elif_is_nested() -> None:
    lowered = statement("if a:\n    b\nelif c:\n    d\nelse:\n    e")
    assert show(lowered.test) == "a" and [type(s).__name__ for s in lowered.orelse] == ["If"]
    (inner,) = lowered.orelse
    assert show(inner.test) == "c" and len(inner.body) == len(inner.orelse) == 1


def test_a_suite_in_the_row_of_its_header_is_a_body() -> None:
    assert [type(s).__name__ for s in statement("if a: b; c = 1").body] == ["Do", "Assign"]


def test_loops_and_try_keep_all_their_parts() -> None:
    loop = statement("for a in b:\n    break\nelse:\n    c")
    assert isinstance(loop.body[0], ir.Jump) and loop.body[0].kind == "break" and len(loop.orelse) == 1
    tried = statement(
        "try:\n    a\nexcept (E, F) as e:\n    b\nexcept:\n    raise\nelse:\n    c\nfinally:\n    d"
    )
    assert [len(part) for part in (tried.body, tried.handlers, tried.orelse, tried.final)] == [1, 2, 1, 1]
    assert show(tried.handlers[0].types) == ("E", "F") and tried.handlers[0].name == "e"
    assert tried.handlers[1].types == () and tried.handlers[1].name is None


def test_with_items_keep_what_they_are_bound_to() -> None:
    lowered = statement("with a() as b, c:\n    d")
    assert [(type(item).__name__, show(bound)) for item, bound in lowered.items] == [
        ("Call", "b"),
        ("Name", None),
    ]


@pytest.mark.parametrize(
    ("last", "exhaustive"),
    [
        ("case _: b", True),
        ("case x: b", True),
        ("case _ if c: b", False),
        ("case [_]: b", False),
        ("case 1: b", False),
    ],
)
def test_a_match_is_exhaustive_only_when_its_last_case_takes_everything(last: str, exhaustive: bool) -> None:
    lowered = statement(f"match a:\n    case 0: c\n    {last}")
    assert isinstance(lowered, ir.Match) and len(lowered.cases) == 2
    flags = [getattr(lowered, f.name) for f in fields(lowered) if isinstance(getattr(lowered, f.name), bool)]
    assert flags == [exhaustive]


def test_parameters_keep_kind_default_and_annotation() -> None:
    function = model("def f(a, /, b: int = 1, *c, d, **e): pass\n").function("f")
    assert function is not None
    assert [
        (p.name, p.star, p.keyword_only, show(p.default), show(p.annotation)) for p in function.params
    ] == [
        ("a", "", False, None, None),
        ("b", "", False, ("const", 1), "int"),
        ("c", "*", False, None, None),
        ("d", "", True, None, None),
        ("e", "**", False, None, None),
    ]


def test_functions_and_methods_are_found_by_their_dotted_name() -> None:
    made = model("""
    def f():
        def g(): pass
    class C:
        @staticmethod
        def s(): pass
        def m(self): pass
        class D:
            def n(self): pass
    """)
    assert made.function_names == ("", "f", "f.g", "C.s", "C.m", "C.D.n")
    assert {name: made.function(name).owner for name in made.function_names[1:]} == {  # type: ignore[union-attr]
        "f": None, "f.g": None, "C.s": "C", "C.m": "C", "C.D.n": "C.D",
    }  # fmt: skip
    assert made.function("C.s").is_static and not made.function("C.m").is_static  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["g", "C", "f.g.h", "<lambda>"])
def test_what_is_no_function_is_not_lowered(name: str) -> None:
    assert model("def f(): pass\nclass C: pass\nx = lambda: 1\n").function(name) is None


def test_of_two_functions_with_one_name_the_last_counts() -> None:
    made = model("if a:\n    def f(): return 1\nelse:\n    def f(): return 2\n")
    function = made.function("f")
    assert function is not None and show(function.body[0].value) == ("const", 2)  # type: ignore[union-attr]


def test_classes_know_their_bases_and_methods() -> None:
    made = model("""
    import torch
    class A(torch.nn.Module, *others, metaclass=M):
        x = 1
        def f(self): pass
        f = staticmethod(f)
        def g(self): pass
    class B(A): pass
    """)
    assert made.classes["A"].bases == (("torch.nn.Module",),)
    assert made.classes["A"].methods == (("g", "A.g"),)
    assert [type(s).__name__ for s in made.classes["A"].body] == ["Assign", "Assign"]
    assert made.classes["B"].bases == (("__main__.A",),)


def test_a_name_knows_the_scope_that_binds_it_and_what_it_denotes() -> None:
    made = model("import torch\nglobal_ = 1\ndef f(a):\n    a, global_, torch.cuda, unknown\n")
    function = made.function("f")
    assert function is not None
    items = function.body[0].value.items  # type: ignore[union-attr]
    assert [getattr(item, "scope", None) for item in items] == ["f", "", None, None]
    assert items[2].names == ("torch.cuda",) and items[0].names == ()


def test_sites_lead_back_to_the_nodes() -> None:
    made = model("def f():\n    scaler.step(optimizer)\n")
    function = made.function("f")
    assert function is not None
    call = function.body[0].value  # type: ignore[union-attr]
    node = made.tree.nodes[call.site]
    assert isinstance(node, cst.Call) and made.tree.code(node) == "scaler.step(optimizer)"
    assert isinstance(made.tree.nodes[function.site], cst.FunctionDef)


def test_a_lowered_module_is_the_same_after_a_journey_to_another_process() -> None:
    made = model("def f(a, *b):\n    with c() as d:\n        return [x for x in a if x] or f'{d}'\n")
    function = made.function("f")
    assert pickle.loads(pickle.dumps(function)) == function


def test_the_same_text_is_lowered_to_the_same() -> None:
    text = "import torch\ndef f(a):\n    for i in a:\n        torch.add(i, 1)\n"
    assert model(text).function("f") == model(text).function("f")
