from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent

import libcst as cst
import pytest

from amplint.model.names import Binding, Names, Scope, literal_value, string_value
from amplint.source import source_from_text
from amplint.syntax.parse import parse
from amplint.syntax.tree import Tree

AUTOCAST = "torch.cuda.amp.autocast"


def names_of(text: str, module: str = "", aliases: dict[str, str] | None = None) -> Names:
    text = dedent(text).lstrip("\n")
    parsed = parse(source_from_text(text, "a.py"))
    assert isinstance(parsed, cst.Module)
    return Names(Tree(parsed, text), module, aliases)


def used(text: str, module: str = "", aliases: dict[str, str] | None = None) -> tuple[str, ...]:
    """What the function of the one call `USE(..)` has as its argument, else of the last call, can denote."""
    names = names_of(text, module, aliases)
    calls = [
        c for c in names.tree.of_type(cst.Call) if isinstance(c.func, cst.Name) and c.func.value == "USE"
    ]
    assert len(calls) == 1
    return names.resolve(calls[0].args[0].value)


def scope(names: Names, qualname: str) -> Scope:
    return next(scope for scope in names.scopes if scope.qualname == qualname)


def kinds(names: Names, name: str, qualname: str = "") -> list[str]:
    return [binding.kind for binding in scope(names, qualname).bindings.get(name, [])]


# Imports


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nUSE(torch.cuda.amp.autocast)",
        "import torch as t\nUSE(t.cuda.amp.autocast)",
        "import torch.cuda\nUSE(torch.cuda.amp.autocast)",
        "import torch.cuda.amp as amp\nUSE(amp.autocast)",
        "from torch import cuda\nUSE(cuda.amp.autocast)",
        "from torch.cuda import amp as a\nUSE(a.autocast)",
        "from torch.cuda.amp import autocast\nUSE(autocast)",
        "from torch.cuda.amp import (\n    GradScaler,\n    autocast as ac,\n)\nUSE(ac)",
        "import torch\nac = torch.cuda.amp.autocast\nUSE(ac)",
        "import torch\namp = torch.cuda.amp\nac = amp.autocast\nUSE(ac)",
        "import torch\nac: object = torch.cuda.amp.autocast\nUSE(ac)",
        "import torch\n(ac, other) = torch.cuda.amp.autocast, 1\nUSE(ac)",
        "import torch\na = b = torch.cuda.amp.autocast\nUSE(a)",
        "import torch\nif (ac := torch.cuda.amp.autocast): USE(ac)",
        "import torch\nUSE((x := torch.cuda.amp.autocast))",
        "import functools, torch\nac = functools.partial(torch.cuda.amp.autocast, enabled=True)\nUSE(ac)",
        "from functools import partial as p\nfrom torch.cuda.amp import autocast\nUSE(p(autocast))",
        "import torch\nUSE(getattr(torch.cuda.amp, 'autocast'))",
        "import torch\nUSE(getattr(torch.cuda.amp, 'auto' 'cast'))",
        "def f():\n    from torch.cuda.amp import autocast\n    USE(autocast)",
        "from torch.cuda.amp import autocast\ndef f():\n    def g():\n        USE(autocast)",
        "from torch.cuda.amp import autocast\nclass C:\n    def f(self):\n        USE(autocast)",
        "def f():\n    global ac\n    from torch.cuda.amp import autocast as ac\ndef g():\n    USE(ac)",
        "def f():\n    USE(later)\nfrom torch.cuda.amp import autocast as later",
        "from torch.cuda.amp import autocast\nf = lambda: USE(autocast)",
        "from torch.cuda.amp import autocast\nx = [USE(autocast) for y in z]",
        "from torch.cuda.amp import autocast\nx = f'{USE(autocast)}'",
        "from torch.cuda.amp import autocast\n@USE(autocast)\ndef f(): pass",
    ],
)
def test_an_expression_denotes_what_its_import_or_assignment_says(text: str) -> None:
    assert used(text + "\n") == (AUTOCAST,)


@pytest.mark.parametrize(
    "text",
    [
        "import torchvision\nUSE(torchvision.cuda.amp.autocast)",
        "autocast = make()\nUSE(autocast)",
        "from torch.cuda.amp import autocast\ndef f(autocast):\n    USE(autocast)",
        "from torch.cuda.amp import autocast\ndef f(*autocast):\n    USE(autocast)",
        "from torch.cuda.amp import autocast\ndef f(*, autocast=None):\n    USE(autocast)",
        "from torch.cuda.amp import autocast\nf = lambda autocast: USE(autocast)",
        "from torch.cuda.amp import autocast\nx = [USE(autocast) for autocast in y]",
        "from torch.cuda.amp import autocast\nx = {k: USE(autocast) for k, autocast in y}",
        "from torch.cuda.amp import autocast\ndef f():\n    for autocast in y: USE(autocast)",
        "from torch.cuda.amp import autocast\ndef f():\n    with y as autocast: USE(autocast)",
        "from torch.cuda.amp import autocast\ndef f():\n    try: pass\n    except E as autocast: USE(autocast)",
        "from torch.cuda.amp import autocast\ndef f():\n    match y:\n        case [*autocast]: USE(autocast)",
        "from torch.cuda.amp import autocast\ndef f():\n    match y:\n        case {**autocast}: USE(autocast)",
        "from torch.cuda.amp import autocast\ndef f():\n    match y:\n        case P(a=autocast): USE(autocast)",
        "def f():\n    from torch.cuda.amp import autocast\nUSE(autocast)",
        "class C:\n    from torch.cuda.amp import autocast\n    def f(self): USE(autocast)",
        "class C:\n    from torch.cuda.amp import autocast\n    x = [USE(autocast) for y in z]",
        "import torch\nUSE(torch.cuda.amp.autocast())",
        "import torch\nUSE(getattr(torch.cuda.amp, name))",
        "import torch\nUSE(torch.cuda.amp['autocast'])",
        "import torch\n(a, b) = torch.cuda.amp.autocast\nUSE(a)",
        "import torch\n(a, *b) = torch.cuda.amp.autocast, 1\nUSE(b)",
        "import torch\nx.autocast = torch.cuda.amp.autocast\nUSE(autocast)",
        "from torch.cuda.amp import autocast\nUSE('autocast')",
    ],
)
def test_what_is_shadowed_unknown_or_elsewhere_does_not_denote_it(text: str) -> None:
    assert AUTOCAST not in used(text + "\n")


def test_a_def_of_the_same_name_is_another_thing() -> None:
    assert used("from m import autocast\ndef f():\n    def autocast(): pass\n    USE(autocast)\n") == (
        "__main__.f.autocast",
    )


def test_an_import_of_a_submodule_binds_its_first_part() -> None:
    names = names_of("import torch.cuda.amp\n")
    assert [(b.name, b.kind, b.origin) for b in names.module_scope.bindings["torch"]] == [
        ("torch", "import", "torch")
    ]
    assert "torch.cuda.amp" not in names.module_scope.bindings


def test_names_inside_import_statements_are_no_references() -> None:
    assert names_of("import a.b as c\nfrom d import e as f\n").references == []


def test_a_chain_of_attributes_is_one_reference_and_calls_end_it() -> None:
    names = names_of("torch.cuda.amp.autocast(a.b).c\n")
    assert [(r.root.value, r.attributes) for r in names.references] == [
        ("torch", ("cuda", "amp", "autocast")),
        ("a", ("b",)),
    ]


# Several candidates


def test_conditional_imports_are_candidates_in_the_order_of_the_text() -> None:
    text = """
    if new:
        from torch.amp import autocast
    elif old:
        from torch.cuda.amp import autocast
    else:
        autocast = None
    USE(autocast)
    """
    assert used(text) == ("torch.amp.autocast", AUTOCAST, "builtins.None")


def test_a_failed_import_with_a_dummy_class_leaves_both_candidates() -> None:
    text = """
    try:
        from torch.cuda.amp import GradScaler
    except ImportError:
        class GradScaler: pass
    USE(GradScaler)
    """
    assert used(text, "pkg.amp") == ("torch.cuda.amp.GradScaler", "pkg.amp.GradScaler")


def test_a_choice_between_two_is_both_of_them_in_order() -> None:
    text = "from contextlib import nullcontext\nimport torch\nUSE(nullcontext if a else torch.autocast)\n"
    assert used(text) == ("contextlib.nullcontext", "torch.autocast")
    assert used("import torch\nUSE(torch.autocast or torch.amp)\n") == ("torch.autocast", "torch.amp")


def test_the_default_of_getattr_is_a_candidate() -> None:
    text = "import torch\nUSE(getattr(torch, 'autocast', torch.cuda.amp.autocast))\n"
    assert used(text) == ("torch.autocast", AUTOCAST)


def test_what_is_deleted_or_changed_in_place_may_be_something_else() -> None:
    assert used("from torch.cuda.amp import autocast as a\ndel a\nUSE(a)\n") == (AUTOCAST, "")
    assert used("from torch.cuda.amp import autocast as a\na += 1\nUSE(a)\n") == (AUTOCAST, "")


def test_questions_about_certainty_and_possibility_differ() -> None:
    names = names_of("if a:\n    from x import f\nelse:\n    from y import f\nf\n")
    (reference,) = [r for r in names.references if r.root.value == "f"]
    assert names.may_be(reference.root, "x.f") and names.is_name(reference.root, "x.f", "y.f")
    assert not names.is_name(reference.root, "x.f")
    assert not names.may_be(reference.root, "f")


def test_no_more_than_sixteen_candidates_are_kept() -> None:
    text = "".join(f"from m{i} import f\n" for i in range(40)) + "USE(f)\n"
    assert used(text) == tuple(f"m{i}.f" for i in range(16))


# Relative and star imports


def test_relative_imports_are_made_absolute_where_the_module_is_known() -> None:
    assert used("from .amp import f\nUSE(f)\n", "pkg.sub.mod") == ("pkg.sub.amp.f",)
    assert used("from .. import amp\nUSE(amp.f)\n", "pkg.sub.mod") == ("pkg.amp.f",)
    assert used("from . import amp\nUSE(amp)\n", "pkg.mod") == ("pkg.amp",)


def test_relative_imports_keep_their_dots_where_it_is_not() -> None:
    assert used("from .amp import f\nUSE(f)\n") == (".amp.f",)
    assert used("from .. import f\nUSE(f)\n") == ("..f",)
    assert used("from ... import f\nUSE(f)\n", "pkg.mod") == ("...f",)


def test_an_unbound_name_may_come_from_any_star_import() -> None:
    assert used("from torch.cuda.amp import *\nfrom m import *\nUSE(autocast)\n") == (
        AUTOCAST,
        "m.autocast",
        "",
    )


def test_a_bound_name_or_a_builtin_does_not_come_from_a_star_import() -> None:
    assert used("from m import *\nfrom n import f\nUSE(f)\n") == ("n.f",)
    assert used("from m import *\nUSE(print)\n") == ("builtins.print",)


def test_without_a_star_import_an_unbound_name_is_unknown() -> None:
    assert used("USE(autocast)\n") == ("",)
    assert used("USE(len)\n") == ("builtins.len",)


def test_torch_from_a_star_import_is_torch() -> None:
    assert used("from utils import *\nUSE(torch.cuda.amp.autocast)\n") == (AUTOCAST,)


# Aliases of names


def test_names_of_moved_modules_are_folded() -> None:
    aliases = {"torch.amp.autocast": "torch.autocast", "old.pkg": "new.pkg", "a": "b", "b": "a"}
    assert used("from torch.amp import autocast\nUSE(autocast)\n", aliases=aliases) == ("torch.autocast",)
    assert used("import old\nUSE(old.pkg.f)\n", aliases=aliases) == ("new.pkg.f",)
    assert used("import older\nUSE(older.pkg.f)\n", aliases=aliases) == ("older.pkg.f",)


def test_aliases_in_a_circle_end() -> None:
    names = names_of("", aliases={"a": "b", "b": "a", "c": "c.d", "e": "e"})
    assert names.canonical("a.x") == "a.x"
    assert names.canonical("c.x") == "c.d.x"
    assert names.canonical("e") == "e"


def test_the_longest_alias_is_followed_first_and_only_whole_parts_count() -> None:
    names = names_of("", aliases={"a": "short", "a.b": "long"})
    assert names.canonical("a.b.c") == "long.c"
    assert names.canonical("a.bc") == "short.bc"
    assert names.canonical("") == "" and names.canonical(".a") == ".a"


# Scopes


def test_a_class_body_sees_its_own_names_and_methods_do_not() -> None:
    inside = "class C:\n    from torch.cuda.amp import autocast\n    USE(autocast)\n"
    assert used(inside) == (AUTOCAST,)
    method = (
        "import autocast\nclass C:\n    from torch.cuda.amp import autocast\n    def f(self): USE(autocast)\n"
    )
    assert used(method) == ("autocast",)


def test_the_first_iterable_of_a_comprehension_is_evaluated_outside() -> None:
    own = "class C:\n    from torch.cuda.amp import autocast as xs\n    y = [x for x in USE(xs)]\n"
    assert used(own) == (AUTOCAST,)
    same = "from torch.cuda.amp import autocast as x\ny = [x for x in USE(x)]\n"
    assert used(same) == (AUTOCAST,)


def test_later_iterables_and_conditions_of_a_comprehension_are_evaluated_inside() -> None:
    assert used("from m import x\ny = [x for x in z if USE(x)]\n") == ("",)
    assert used("from m import x\ny = [w for x in z for w in USE(x)]\n") == ("",)


def test_a_walrus_in_a_comprehension_binds_outside_of_it() -> None:
    names = names_of("def f(z):\n    [y for x in z if (y := x)]\n    return y\n")
    assert kinds(names, "y", "f") == ["walrus"]
    assert all("y" not in s.bindings for s in names.scopes if s.kind == "comprehension")


def test_global_and_nonlocal_bind_where_they_say() -> None:
    text = """
    def outer():
        def inner():
            nonlocal late
            global top
            late = 1
            top = 2
        late = 0
        return inner
    """
    names = names_of(text)
    assert kinds(names, "late", "outer") == ["assign", "assign"]
    assert kinds(names, "late") == []
    assert kinds(names, "top") == ["assign"]
    assert scope(names, "outer.inner").bindings == {}
    (first, second) = scope(names, "outer").bindings["late"]
    assert names.tree.number(first.node) < names.tree.number(second.node)
    assert first.scope is second.scope is scope(names, "outer")


def test_nonlocal_never_means_the_module() -> None:
    names = names_of("x = 0\ndef outer():\n    def inner():\n        nonlocal x\n        x = 1\n    x = 2\n")
    assert kinds(names, "x") == ["assign"] and kinds(names, "x", "outer") == ["assign", "assign"]


@pytest.mark.parametrize(
    "header",
    [
        "@USE(x)\ndef f(x): pass",
        "def f(x=USE(x)): pass",
        "def f(x: USE(x)): pass",
        "def f(x) -> USE(x): pass",
        "def f(*x: USE(x)): pass",
        "def f(*, x=USE(x)): pass",
        "f = lambda x=USE(x): x",
        "class x(USE(x)): pass",
        "class f(metaclass=USE(x)):\n    x = 1",
        "@USE(x)\nclass f:\n    x = 1",
    ],
)
def test_decorators_defaults_annotations_and_bases_are_evaluated_outside(header: str) -> None:
    found = used(f"from m import x\n{header}\n")
    assert found[0] == "m.x"
    assert "" not in found


def test_every_way_to_bind_a_name_is_known_by_its_kind() -> None:
    text = """
    import a
    b = 1
    (c, d) = e()
    def f(g): pass
    class h: pass
    for i in j: pass
    with k as l: pass
    try: pass
    except m as n: pass
    (o := 1)
    del p
    q += 1
    """
    names = names_of(text)
    bound = {name: [b.kind for b in found] for name, found in names.module_scope.bindings.items()}
    assert bound == {
        "a": ["import"], "b": ["assign"], "c": ["unpack"], "d": ["unpack"], "f": ["def"], "h": ["class"],
        "i": ["loop"], "l": ["with"], "n": ["except"], "o": ["walrus"], "p": ["delete"], "q": ["other"],
    }  # fmt: skip
    assert kinds(names, "g", "f") == ["param"]


def test_attributes_and_subscripts_bind_no_name() -> None:
    assert names_of("a.b = 1\nc[d] = 2\nfor e.f in g: pass\n").module_scope.bindings == {}


def test_type_parameters_of_a_class_are_bound_in_it() -> None:
    names = names_of("class C[T: int](Base[T]):\n    x: T\n")
    assert kinds(names, "T", "C") == ["other"]
    assert {"int", "Base"} <= {r.root.value for r in names.references}


def test_every_node_that_can_be_asked_for_has_a_scope() -> None:
    text = """
    class C[T: int](Base, metaclass=M):
        x: int = [a for a in b if c for d in e]
        def f(self, y: int = 1, *z, w=2, **v) -> None:
            match y:
                case P(q=1) | {"k": r, **s}: pass
    """
    names = names_of(text)
    expressions = [
        n for n in names.tree.nodes if isinstance(n, (cst.Call, cst.Attribute, cst.ListComp, cst.CompFor))
    ]
    assert all(names.scope_of(node) for node in expressions)


# Circles


@pytest.mark.parametrize(
    "text",
    [
        "a = a\nUSE(a)\n",
        "a = b\nb = a\nUSE(a)\n",
        "a = a.b\nUSE(a)\n",
        "a = a or a\nUSE(a)\n",
        "a = a()\nUSE(a)\n",
        "import functools\na = functools.partial(a)\nUSE(a)\n",
    ],
)
def test_a_name_that_means_itself_is_unknown_and_ends(text: str) -> None:
    assert used(text) == ("",)


def test_a_wrapped_import_under_its_own_name_keeps_its_origin() -> None:
    text = "from functools import partial\nfrom torch.cuda.amp import autocast\n"
    text += "autocast = partial(autocast)\nUSE(autocast)\n"
    assert used(text) == (AUTOCAST, "")


def everything(names: Names, backwards: bool) -> dict[int, tuple[str, ...]]:
    nodes = [n for n in names.tree.nodes if isinstance(n, (cst.Name, cst.Attribute, cst.Call, cst.IfExp))]
    if backwards:
        nodes.reverse()
    return {names.tree.number(node): names.resolve(node) for node in nodes}


CIRCLE = """
import torch
a = torch.x
b = a if p else c
c = b.d
a = c or b
def f():
    global b
    b = a
    e = b
    e = e.f
    return e
"""


def test_what_a_name_in_a_circle_means_does_not_depend_on_the_order_of_questions() -> None:
    assert everything(names_of(CIRCLE), False) == everything(names_of(CIRCLE), True)


def test_many_names_in_a_circle_are_given_up_without_trying_every_way() -> None:
    names = [f"v{i}" for i in range(40)]
    text = "".join(f"{n} = {' or '.join(m for m in names if m != n)}\n" for n in names) + "USE(v0)\n"
    assert "" in used(text)


def test_a_long_chain_of_names_does_not_exhaust_the_stack() -> None:
    text = "import torch\nv0 = torch\n" + "".join(f"v{i + 1} = v{i}\n" for i in range(5000)) + "USE(v5000)\n"
    assert used(text) == ("",)
    short = "import torch\nv0 = torch\n" + "".join(f"v{i + 1} = v{i}\n" for i in range(100)) + "USE(v100)\n"
    assert used(short) == ("torch",)


def test_results_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "import libcst as cst, sys\n"
        "from amplint.model.names import Names\nfrom amplint.syntax.tree import Tree\n"
        "text = sys.stdin.read()\nnames = Names(Tree(cst.parse_module(text), text))\n"
        "for r in names.references: print(r.root.value, r.attributes, names.resolve(r.node))\n"
        "for s in names.scopes: print(s.qualname, list(s.bindings), names.exported)\n"
    )
    text = CIRCLE + "".join(f"from m{i} import *\n" for i in range(9)) + "__all__ = ['u', 'a']\nu\nv\n"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1 and "torch" in outputs.pop()


# __all__


@pytest.mark.parametrize(
    ("text", "exported"),
    [
        ("__all__ = ['a', \"b\"]\n", ("a", "b")),
        ("__all__ = ('a',)\n__all__ += ['b']\n", ("a", "b")),
        ("__all__: list[str] = ['a']\n", ("a",)),
        ("__all__ = ['a'] + other.__all__\n", ("a",)),
        ("__all__ = []\n__all__.append('a')\n__all__.extend(['b', 'a'])\n", ("b", "a")),
        ("__all__ = ['a' 'b']\n", ("ab", "a", "b")),
        ("__all__ = other.__all__\n", None),
        ("x = ['a']\n", None),
        ("def f():\n    __all__ = ['a']\n", None),
    ],
)
def test_what_a_module_exports_is_read_off_every_statement_about_it(
    text: str, exported: tuple[str, ...] | None
) -> None:
    found = names_of(text).exported
    assert (found is None) == (exported is None)
    assert set(found or ()) == set(exported or ())


# Literals


def expression(text: str) -> cst.BaseExpression:
    return cst.parse_expression(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'a'", "a"),
        ("'a' \"b\"", "ab"),
        (r"r'\d'", r"\d"),
        ("'\\x41'", "A"),
        ("12", None),
        ("f'a'", None),
        ("b'a'", None),
        ("a", None),
    ],
)
def test_the_value_of_a_plain_string_is_known_and_of_nothing_else(text: str, value: str | None) -> None:
    assert string_value(expression(text)) == value


@pytest.mark.filterwarnings("error")
def test_an_odd_escape_in_the_linted_code_warns_nobody() -> None:
    assert string_value(expression(r"'\d'")) == r"\d"


@pytest.mark.parametrize("text", [r"'\N{nothing of that name}'", "1" * 5000])
def test_a_literal_that_only_libcst_accepts_has_no_value(text: str) -> None:
    assert literal_value(expression(text)) is None


def test_bindings_are_told_apart_by_identity() -> None:
    names = names_of("a = 1\na = 1\n")
    (one, two) = names.module_scope.bindings["a"]
    assert isinstance(one, Binding) and one != two
