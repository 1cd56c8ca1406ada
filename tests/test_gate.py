from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplint.config import Settings
from amplint.finding import Severity
from amplint.gate import Outline, admit
from amplint.project.link import ModuleIndex, Project
from amplint.registry import all_rules, select_rules
from amplint.rule import Rule
from amplint.source import source_from_text
from amplint.work import Checker

SETTINGS = Settings(select=("ALL",), target="npu", min_confidence="low")


def outlined(text: str) -> Outline:
    return Outline(ast.parse(text), text)


def admitted(text: str, rules: tuple[Rule, ...] | None = None) -> set[str]:
    chosen = select_rules(SETTINGS) if rules is None else rules
    return {rule.code for rule in admit(source_from_text(text, "a.py"), chosen).rules}


def found(text: str) -> set[str]:
    """Codes found with the gate off."""
    open_to_all = tuple(replace(rule, words=(), shape=None) for rule in select_rules(SETTINGS))
    checker = Checker(SETTINGS, open_to_all, Project())
    return {finding.code for finding in checker.check(source_from_text(text, "a.py")).findings}


def rule(*words: str, shape: object = None) -> Rule:
    return Rule("AMP999", "fake", "fake", Severity.ERROR, lambda ctx: (), words=words, shape=shape)  # type: ignore[arg-type]


# What ast says


def test_the_outline_has_every_identifier_that_can_name_an_api() -> None:
    text = "import a.b as c\nfrom .d.e import f as g, h\ni.j(k=l)[m]\n"
    text += "@n\ndef o(p: q = r) -> s: t\nclass u(v, w=x): y = z\n"
    names = outlined(text).names
    assert {
        "a",
        "b",
        "d",
        "e",
        "f",
        "h",
        "i",
        "j",
        "k",
        "l",
        "m",
        "n",
        "q",
        "r",
        "s",
        "t",
        "v",
        "w",
        "x",
        "z",
    } <= names


def test_the_outline_has_short_strings_because_of_getattr_and_no_long_ones() -> None:
    names = outlined(f"getattr(torch, 'auto' 'cast')\nx = '{'a' * 300}'\nb'bytes'\n").names
    assert "autocast" in names
    assert not any(len(name) > 200 for name in names) and "bytes" not in names


def test_the_outline_has_no_words_of_comments() -> None:
    assert "autocast" not in outlined("x = 1  # autocast\n").names


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("with a() and b(): pass", True),
        ("with (a() and b()) as c: pass", True),
        ("with x, a() and b(): pass", True),
        ("async def f():\n    async with a() and b(): pass", True),
        ("def f():\n    if x:\n        with a() and b(): pass", True),
        ("with a() or b(): pass", False),
        ("with f(a() and b()): pass", False),
        ("a() and b()", False),
    ],
)
def test_the_outline_tells_a_with_that_joins_by_and(text: str, has: bool) -> None:
    assert outlined(text + "\n").has_with_and is has


def test_the_outline_tells_what_is_taken_from_where() -> None:
    text = "from a.b import c as d, e\nfrom . import f\nfrom ..g import *\nimport h\ndef x():\n    from i import j\n"
    assert sorted(outlined(text).imports) == [
        (".", "f"), ("..g", "*"), ("a.b", "c"), ("a.b", "e"), ("i", "j"),
    ]  # fmt: skip


def test_an_attribute_of_an_imported_module_is_taken_from_it() -> None:
    text = "import losses\nimport a.b as m\nimport p.q\nfrom . import r\nfrom .s import t as u\n"
    text += "losses.focal, m.x.y, p.q.z, r.v(), u.w\n"
    taken = set(outlined(text).imports)
    assert {
        ("losses", "focal"),
        ("a.b", "x"),
        ("a.b.x", "y"),
        ("p.q", "z"),
        (".r", "v"),
        (".s.t", "w"),
    } <= taken


def test_attributes_of_variables_torch_and_the_standard_library_are_not_taken_from_a_module() -> None:
    text = "import os, torch, numpy as np\nfrom torch import nn\nself.a\nx.y\nos.path\n"
    text += "torch.cuda\nnp.zeros\nnn.Linear\nf().g\n"
    assert outlined(text).imports == [("torch", "nn")]


# Admission


def test_a_file_without_any_word_is_not_admitted_but_its_imports_are_known() -> None:
    admission = admit(source_from_text("from compat import ac\n", "a.py"), [rule("autocast")])
    assert admission.rules == () and admission.problem is None
    assert admission.outline is not None and admission.outline.imports == [("compat", "ac")]


def test_a_word_admits_and_a_shape_can_still_refuse() -> None:
    text = "x = 'autocast'\n"
    assert admitted(text, (rule("autocast"),)) == {"AMP999"}
    assert admitted(text, (rule("autocast", shape=lambda seen: False),)) == set()
    assert admitted(text, (rule("GradScaler", shape=lambda seen: True),)) == set()


def test_a_rule_without_words_is_asked_about_every_file() -> None:
    assert admitted("", (rule(),)) == {"AMP999"}


@pytest.mark.parametrize(
    "text", ["x = (\n", "print 'autocast'\n", "(" * 300 + ")" * 300 + "\n", "a = '\ud800'\n"]
)
def test_what_ast_cannot_parse_has_a_problem_and_no_outline(text: str) -> None:
    admission = admit(source_from_text(text, "a.py"), [rule("autocast", shape=lambda seen: False)])
    assert admission.problem is not None and admission.outline is None
    assert bool(admission.rules) == ("autocast" in text)


def test_the_gate_imports_no_libcst() -> None:
    code = "import sys, amplint.gate; sys.exit('libcst' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# It admits more than what fires, never less

HEADS = st.sampled_from([
    "import torch\n", "import torch as t\n", "from torch.cuda import amp\n", "from torch.cuda.amp import *\n",
    "import torch.cuda.amp as amp\n", "from torch.cuda.amp import autocast, GradScaler\n", "from torch import *\n",
    "from torch.cuda.amp import autocast as ac\n", "import torch.cuda.amp\n", "from torch import autocast, amp\n",
    "from torch.cuda.amp.grad_scaler import GradScaler\n", "from torch.cuda.amp.autocast_mode import autocast\n",
    "from torch.cuda.amp import custom_fwd, custom_bwd\n", "import torch_npu\n", "",
    "import functools\n", "from torch.nn.utils import clip_grad_norm_\n",
])  # fmt: skip
CALLABLES = st.sampled_from([
    "torch.cuda.amp.autocast", "t.cuda.amp.autocast", "amp.autocast", "autocast", "ac", "GradScaler",
    "amp.GradScaler", "torch.cuda.amp.GradScaler", "torch.amp.GradScaler", "torch.autocast", "torch.amp.autocast",
    "getattr(torch.cuda.amp, 'autocast')", "getattr(amp, 'GradScaler')", "amp.grad_scaler.GradScaler",
    "functools.partial(torch.cuda.amp.autocast, enabled=x)", "torch.cuda.amp.custom_fwd", "custom_bwd",
    "torch.is_autocast_enabled", "torch.get_autocast_gpu_dtype", "x.float", "x.half", "no_grad", "torch.no_grad",
])  # fmt: skip
ARGUMENTS = st.sampled_from(
    [
        "",
        "True",
        "x",
        "'cuda'",
        "device_type='cuda'",
        "enabled=x",
        "'cuda', torch.float16",
        "x, y",
        "*a",
        "'npu'",
        "2.0**16",
    ]
)
CALLS = st.builds(lambda name, arguments: f"{name}({arguments})", CALLABLES, ARGUMENTS)
STATEMENTS = st.one_of(
    CALLS,
    st.builds(lambda call: f"v = {call}", CALLS),
    st.builds(lambda call: f"with {call}: pass", CALLS),
    st.builds(lambda one, two: f"with {one} and {two}: pass", CALLS, CALLS),
    st.builds(lambda one, two: f"with (\n    {one}\n    and {two}\n): pass", CALLS, CALLS),
    st.builds(lambda name: f"v = {name}", CALLABLES),
    st.builds(lambda name: f"v: {name} = None", CALLABLES),
    st.builds(lambda call: f"@{call}\ndef f(): pass", CALLS),
    st.builds(lambda name: f"def f(a: {name} = None): pass", CALLABLES),
    st.builds(lambda name: f"class C({name}): pass", CALLABLES),
    st.sampled_from(
        [
            "scaler.scale(loss).backward(); clip_grad_norm_(p, 1.0); scaler.step(opt); scaler.update()",
            "for p in q: p.grad.clamp_(0)",
            "x.float()",
            "x = 1  # amplint: ignore[AMP101]",
        ]
    ),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(HEADS, max_size=3), st.lists(STATEMENTS, min_size=1, max_size=3), st.booleans(), st.booleans()
)
def test_every_rule_that_fires_with_the_gate_off_is_admitted(
    heads: list[str], statements: list[str], nested: bool, carriage: bool
) -> None:
    body = "\n".join(statements) + "\n"
    if nested:
        body = "def outer(scaler, opt, loss, x):\n" + "".join(f"    {row}\n" for row in body.splitlines())
    text = "".join(heads) + body
    if carriage:
        text = text.replace("\n", "\r\n")
    assert found(text) <= admitted(text)


def test_the_words_of_this_check_make_most_rules_fire() -> None:
    text = "import torch\nfrom torch.cuda.amp import autocast, GradScaler\nwith autocast(True): pass\n"
    text += "GradScaler(True)\nwith autocast() and torch.no_grad(): pass\ntorch.autocast('cuda')\n"
    assert {"AMP101", "AMP102", "AMP308"} <= found(text)


def test_every_file_of_the_repository_is_admitted_for_what_is_found_in_it() -> None:
    samples = sorted((Path(__file__).resolve().parents[1] / "samples").rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in samples]
    assert texts and any(found(text) for text in texts)
    assert all(found(text) <= admitted(text) for text in texts)


# What other files take


def project(**texts: str) -> Project:
    files = {name.replace("__", "/") + ".py": text for name, text in texts.items()}
    return Project(ModuleIndex(name, tuple(outlined(text).imports)) for name, text in files.items())


@pytest.mark.parametrize(
    "text",
    [
        "from compat import ac\n",
        "from .compat import ac\n",
        "from pkg.compat import ac as b\n",
        "from compat import *\n",
        "import compat\ncompat.ac()\n",
        "import pkg.compat\nx = pkg.compat.ac\n",
        "import pkg.compat as c\nc.ac\n",
        "from . import compat\ncompat.ac\n",
        "from pkg import compat as c\ndef f():\n    with c.ac(): pass\n",
        "def f():\n    from pkg.compat import ac\n",
    ],
)
def test_a_name_that_another_file_takes_is_known_to_be_taken(text: str) -> None:
    assert project(pkg__compat="", pkg__train=text).takers("pkg/compat.py", "ac") == ["pkg/train.py"]


@pytest.mark.parametrize(
    "text",
    [
        "from compat import other\n",
        "from ..compat import ac\n",
        "import compat\ncompat.other()\n",
        "import compat\nac()\n",
        "from incompat import ac\n",
        "compat.ac()\n",
        "from pkg.compat.sub import ac\n",
    ],
)
def test_a_name_that_is_not_taken_from_this_module_may_go(text: str) -> None:
    assert project(pkg__compat="", pkg__train=text).takers("pkg/compat.py", "ac") == []


def test_a_file_does_not_take_from_itself() -> None:
    assert project(pkg__compat="from pkg.compat import ac\n").takers("pkg/compat.py", "ac") == []


def test_a_package_is_meant_by_its_folder() -> None:
    found = Project([ModuleIndex("train.py", (("pkg", "ac"),))])
    assert found.takers("src/pkg/__init__.py", "ac") == ["train.py"]


def test_all_rules_have_words_or_are_about_every_file() -> None:
    assert [rule.code for rule in all_rules() if not rule.words and rule.shape is None] == ["AMP900"]
