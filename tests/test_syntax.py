from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider

from amplint.finding import Position
from amplint.source import source_from_text
from amplint.syntax.children import CHILDREN
from amplint.syntax.depth import MAX_DEPTH, MAX_PIECES
from amplint.syntax.parse import parse
from amplint.syntax.positions import PositionsLost, Spans
from amplint.syntax.syntax_error import SyntaxProblem
from amplint.syntax.tree import Tree, children

SAMPLE = textwrap.dedent('''\
    #!/usr/bin/env python
    """Docstring with \\ttab and ünïcode 𝒳."""

    from __future__ import annotations

    import a.b.c as d, torch
    from .. import (x,
        y as z,  # why
    )
    from .m import *


    @deco
    @deco.with_call(1, *args, key="v", **kw)
    class C(Base, metaclass=M):
        attr: int = 3; other = (yield_) = 4

        @property
        async def f(self, a, /, b: int = 1, *rest, c, d=2, **more) -> "T":
            async with ctx() as e, other:
                async for i, *j in aiter(): await i
                else:
                    pass
            return [k async for k in self if k if not k]

    def g(*, k): global n; n = k

    def deep():
        def inner():
            nonlocal_ = lambda u, *v, w=1: (u, v, w)
            return nonlocal_
        return inner
    match command:
        case [1, *tail] if tail: pass
        case {"k": v, **others}: pass
        case Point(x=0, y=a.b) | (None as q): pass
        case -1 | "s" "t": pass
        case _: pass
    try:
        raise E from cause
    except (A, B) as err:
        del err, z[0]
    except E:
        ...
    else: assert ok, "msg"
    finally:
        while (n := n - 1) > 0 < 3 != 4:
            if n: break
            elif m: continue
            else: pass
    with (open("f") as f1, g() as f2,):
        f"{x!r:>{width}} {{}} {y['k']}" f'a' "b"
    t = ((((1 + 2)) * -(3)) ** 2, {1, 2}, {**d, 1: 2}, {k: v for k, v in z}, {s for s in t})
    t[1:2, ..., ::3] @= not a if b else (yield) or c and d
    t = a < b is not c not in d; print(x, \\
        y)
    async def gen(): x = await y; yield from z
    if True:
    \tpass
    last = (  # comment
        1,

        [2
        , 3],
    )
    ''')  # fmt: skip


def visited_fields(kind: type[cst.CSTNode]) -> list[str]:
    """Fields that LibCST itself visits as children, in its order, read off its source."""
    source = textwrap.dedent(inspect.getsource(kind._visit_and_replace_children))
    found: list[str] = []
    for call in ast.walk(ast.parse(source)):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id.startswith("visit_")
        ):
            name = call.args[1]
            if isinstance(name, ast.Constant):
                found.append(str(name.value))
    return found


def node_classes() -> list[type[cst.CSTNode]]:
    found = [
        value
        for value in vars(cst).values()
        if isinstance(value, type)
        and issubclass(value, cst.CSTNode)
        and not inspect.isabstract(value)
        and "_visit_and_replace_children" in vars(value)
        and not value.__module__.endswith("whitespace")
    ]
    return sorted(set(found), key=lambda kind: kind.__name__)


def punctuation(name: str) -> bool:
    """Whether a field holds whitespace, a comment or punctuation by its name."""
    parts = (
        "whitespace",
        "comma",
        "semicolon",
        "paren",
        "lpar",
        "rpar",
        "bracket",
        "brace",
        "colon",
        "equal",
        "dot",
    )
    return any(part in name for part in parts) or name in {
        "header", "footer", "indent", "leading_lines", "lines_after_decorators", "trailing_whitespace", "newline",
        "asynchronous", "relative", "star", "posonly_ind", "separator", "lines_after_module_docstring",
        "leading_whitespace", "empty_lines", "rest_star", "indicator",
    }  # fmt: skip


@pytest.mark.parametrize("kind", node_classes(), ids=lambda kind: kind.__name__)
def test_the_table_of_children_is_that_of_the_installed_libcst(kind: type[cst.CSTNode]) -> None:
    expected = {name for name in visited_fields(kind) if not punctuation(name)}
    assert set(CHILDREN.get(kind.__name__, ())) == expected


def test_the_table_of_children_names_no_class_that_libcst_does_not_have() -> None:
    newer = {
        "LazyImport",
        "LazyImportFrom",
        "TemplatedString",
        "TemplatedStringExpression",
        "StarredDictComp",
    }
    assert {name for name in CHILDREN if not hasattr(cst, name)} <= newer


def tree_of(text: str) -> Tree:
    return Tree(cst.parse_module(text), text)


def test_children_come_in_the_order_of_the_text() -> None:
    tree = tree_of(SAMPLE)
    starts = [tree.span(node).start for node in tree.nodes if not isinstance(node, cst.Module)]
    disorder = [
        (tree.code(one), tree.code(two))
        for node in tree.nodes
        # `a if b else c` and `async def` begin with something else than their first field
        if not isinstance(node, (cst.Module, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp))
        for one, two in zip(children(node), children(node)[1:], strict=False)
        if tree.span(one).start > tree.span(two).start
    ]
    assert starts and disorder == []


def test_a_tree_holds_every_node_but_whitespace_and_punctuation() -> None:
    module = cst.parse_module(SAMPLE)
    seen: set[int] = set()

    class All(cst.CSTVisitor):
        def on_visit(self, node: cst.CSTNode) -> bool:
            seen.add(id(node))
            return True

    module.visit(All())
    kept = {id(node) for node in Tree(module, SAMPLE).nodes}
    assert kept <= seen
    assert len(kept) == len(Tree(module, SAMPLE).nodes)


def test_parents_and_insides_agree() -> None:
    tree = tree_of(SAMPLE)
    for node in tree.nodes:
        for outer in tree.ancestors(node):
            assert tree.inside(node, outer) and not tree.inside(outer, node)
    (call, *_) = tree.of_type(cst.Call)
    assert tree.within(call)[0] is call
    assert not tree.inside(tree.module, call)


def variants() -> list[object]:
    return [
        pytest.param(SAMPLE, id="plain"),
        pytest.param(SAMPLE.replace("\n", "\r\n"), id="crlf"),
        pytest.param(SAMPLE.rstrip("\n").replace("\n", "\r"), id="cr"),
        pytest.param(SAMPLE.replace("    ", "\t"), id="tabs"),
        pytest.param(SAMPLE.rstrip("\n"), id="no-final-newline"),
        pytest.param(SAMPLE.replace("pass\n", "pass\r\n"), id="mixed-newlines"),
        pytest.param("", id="empty"),
        pytest.param("# only a comment", id="comment"),
        pytest.param("x", id="one-name"),
        pytest.param("\n\n\n", id="blank"),
    ]


@pytest.mark.parametrize("text", variants())
def test_spans_are_those_of_libcsts_position_provider(text: str) -> None:
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    expected = wrapper.resolve(PositionProvider)
    source = source_from_text(text, "a.py")
    last = len(source.line_starts)
    tree = Tree(wrapper.module, text)

    def offset(line: int, column: int) -> int:
        # without a final newline LibCST lets the module end on a row that does not exist
        return source.offset(Position(line, column + 1)) if line <= last else len(text)

    for node in tree.nodes:
        place = expected[node]
        span = tree.span(node)
        wanted = (offset(place.start.line, place.start.column), offset(place.end.line, place.end.column))
        assert (span.start, span.end) == wanted, type(node).__name__


def test_every_meaningful_node_of_a_tree_has_a_span() -> None:
    tree = tree_of(SAMPLE)
    assert all(0 <= tree.span(node).start <= tree.span(node).end <= len(SAMPLE) for node in tree.nodes)


LOSSY = [
    pytest.param("x = 1\n\fdef f():\n    return target\n", id="form feed"),
    pytest.param("\fimport os\ntarget = os\n", id="form feed first"),
    pytest.param("a = 1\ntarget\r", id="lone final CR"),
    pytest.param("\\\ntarget\n", id="joined empty row"),
    pytest.param("def f():\n    a\n\\\n    target\n", id="joined row in a block"),
    pytest.param("def f():\n    a\n \\\r\n    target\n", id="joined row, CRLF"),
    pytest.param("target\n   ", id="spaces at the end"),
]


@pytest.mark.parametrize("text", LOSSY)
def test_spans_line_up_with_the_text_where_libcst_loses_some_of_it(text: str) -> None:
    tree = tree_of(text)
    found = [node for node in tree.of_type(cst.Name) if node.value == "target"]
    assert [tree.code(node) for node in found] == ["target"] * len(found) != []
    assert all(tree.code(node) == node.value for node in tree.of_type(cst.Name))


def test_at_least_one_of_these_texts_is_really_lost_by_libcst() -> None:
    texts = [str(case.values[0]) for case in LOSSY]
    assert any(cst.parse_module(text).code != text for text in texts)


@pytest.mark.parametrize(
    ("code", "text"),
    [("x = 1\n", "y = 1\n"), ("x = 1\n", "x = 1; z\n"), ("x = 1\ny = 2\n", "x = 1\n"), ("a\n", "b a\n")],
)
def test_a_tree_of_another_text_has_no_spans(code: str, text: str) -> None:
    with pytest.raises(PositionsLost):
        Spans(cst.parse_module(code), text)


def problem(text: str) -> SyntaxProblem:
    found = parse(source_from_text(text, "a.py"))
    assert isinstance(found, SyntaxProblem)
    return found


@pytest.mark.parametrize(
    ("text", "row", "column"),
    [
        ("x = (\n", 1, 5),
        ("x = 1\n  y = 2\n", 2, None),
        ("a = 1\r\nb = é é\r\n", 2, 7),
        ('x = "ünï" +\n', 1, None),
        ("def f(:\n    pass\n", 1, 7),
    ],
)
def test_a_syntax_error_has_its_row_and_column(text: str, row: int, column: int | None) -> None:
    place = problem(text).position
    assert place.row == row
    assert column is None or place.column == column


@pytest.mark.parametrize("text", ["print 'hello'\n", "exec 'x'\n", "raise E, 'text'\n", "a <> b\n"])
def test_python_2_is_a_syntax_error_and_not_a_crash(text: str) -> None:
    assert problem(text).message


@pytest.mark.parametrize("text", ["x = '\ud800'\n", "\ud800\n", "x = 'a' b'c'\n", "return1_000_\n\x1a"])
def test_odd_texts_are_parsed_or_have_a_problem(text: str) -> None:
    assert isinstance(parse(source_from_text(text, "a.py")), (cst.Module, SyntaxProblem))


def test_what_python_accepts_and_libcst_does_not_is_said_to_be_so() -> None:
    text = "def f():\n\\\n   return 1\n"
    ast.parse(text)
    found = parse(source_from_text(text, "a.py"))
    if isinstance(found, SyntaxProblem):
        assert found.message.startswith("LibCST, which amplint parses with, does not accept it (")
        assert "error at" not in found.message and "\n" not in found.message


def test_a_panic_of_the_native_parser_is_a_problem_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panics(_: str) -> cst.Module:
        raise PanicException("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr(cst, "parse_module", panics)
    assert "unwrap" in problem("x = 1\n").message


def test_an_interrupt_while_parsing_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> cst.Module:
        raise KeyboardInterrupt

    monkeypatch.setattr(cst, "parse_module", interrupted)
    with pytest.raises(KeyboardInterrupt):
        parse(source_from_text("x = 1\n", "a.py"))


#: Name -> an expression that makes a text nested or chained n times.
SHAPES = {
    "parentheses": '"x = " + "(" * n + "1" + ")" * n + "\\n"',
    "subscripts": '"x = a" + "[0]" * n + "\\n"',
    "attributes": '"x = a" + ".b" * n + "\\n"',
    "calls": '"x = a" + "()" * n + "\\n"',
    "method calls over rows": '"x = (a\\n" + "    .b()\\n" * n + ")\\n"',
    "sum": '"x = " + " + ".join("a" * n) + "\\n"',
    "unary operators": '"x = " + "-" * n + "a\\n"',
    "not": '"x = " + "not " * n + "a\\n"',
    "and": '"x = " + " and ".join("a" * n) + "\\n"',
    "or": '"x = " + " or ".join("a" * n) + "\\n"',
    "conditional expressions": '"x = " + "a if b else " * n + "c\\n"',
    "strings": '"x = " + "\'a\' " * n + "\\n"',
    "strings over rows": '"x = (" + "\'a\'\\n" * n + ")\\n"',
    "formatted strings": '"x = " + "f\'{a}\' " * n + "\\n"',
    "clauses of a comprehension": '"x = [a " + "for a in b " * n + "]\\n"',
    "lambdas": '"x = " + "lambda: " * n + "1\\n"',
    "elif": '"if a:\\n    pass\\n" + "elif a:\\n    pass\\n" * n',
    "dots of an import": '"import " + ".".join("a" * n) + "\\n"',
    "dots of a from import": '"from " + ".".join("a" * n) + " import b\\n"',
    "newer grammar": '"type X = int\\nx = " + " + ".join("a" * n) + "\\n"',
    "Python 2": '"print 1\\nx = " + "-" * n + "a\\n"',
    "lambdas with commas in Python 2": '"print 1\\nx = " + "lambda a, b: " * n + "a\\n"',
}  # fmt: skip

PROGRAM = """
import json, sys
from amplint import check_source, fix_source
import libcst
for name, (shape, n, fixes) in json.loads(sys.argv[1]).items():
    deep = eval(shape)
    text = deep + "from torch.cuda.amp import autocast\\nwith autocast():\\n    pass\\n"
    found = check_source(text, "a.py", select=["AMP1", "AMP2", "AMP3", "AMP9"], target="npu")
    print(json.dumps([name, [[finding.code, finding.message] for finding in found]]), flush=True)
    if fixes:
        fixed = fix_source(text, "a.py", target="npu")
        assert fixed != text and deep[:-1] in fixed, "not fixed"
        assert libcst.parse_module(text).code == text
"""


@cache
def checked(deep: bool) -> dict[str, list[tuple[str, str]]]:
    """Findings by shape; in a process of its own, which a stack that overflows would take along."""
    chosen = [name for name in SHAPES if deep or not ("Python 2" in name or "newer" in name)]
    task = {name: (SHAPES[name], 10_000 if deep else just_under(name), not deep) for name in chosen}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(task)], capture_output=True, text=True, check=False
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:], results[-1:])
    return {name: [(code, message) for code, message in found] for name, found in results}


@pytest.mark.parametrize("shape", SHAPES)
def test_ten_thousand_levels_are_a_finding_and_never_a_crash(shape: str) -> None:
    ((code, message),) = checked(deep=True)[shape]
    assert code == "AMP900"
    if shape not in ("newer grammar", "Python 2", "lambdas with commas in Python 2"):
        assert message == "cannot be parsed: nested too deeply to be analysed"


def just_under(shape: str) -> int:
    if shape == "parentheses":
        return 190
    if shape in ("strings", "strings over rows", "formatted strings", "elif"):
        return MAX_PIECES - 20
    if shape == "method calls over rows":
        return MAX_DEPTH // 2 - 20
    return MAX_DEPTH - 20


@pytest.mark.parametrize("shape", [name for name in SHAPES if not ("Python 2" in name or "newer" in name)])
def test_just_under_the_limit_everything_works(shape: str) -> None:
    assert [code for code, _ in checked(deep=False)[shape]] == ["AMP101", "AMP101"]


FLAT = [
    "x = [" + "1, " * 20_000 + "]\n",
    "x = {\n" + "    'k': [1, 2, 'a'],\n" * 3000 + "}\n",
    "f(" + "a=b.c + d[0], " * 200 + ")\n",
    '"""' + 'don\'t "quote" me. ' * 2000 + '"""\n',
    "x = '" + "a" * 100_000 + "'\n",
    "x = ['" + "a" * 4000 + "', " + "'b', " * 4000 + "]\n",
    "x = (0\n" + "    + a.b.c(d)\n    - 1\n" * 100 + ")\n",
    "@d\n" * 3000 + "def f(): pass\n",
    "if a:\n    pass\n" * 3000,
]


@pytest.mark.parametrize("text", FLAT, ids=range(len(FLAT)))
def test_long_but_flat_texts_are_not_called_nested(text: str) -> None:
    assert isinstance(parse(source_from_text(text, "a.py")), cst.Module)


def test_an_unclosed_bracket_far_up_keeps_pythons_own_message() -> None:
    found = problem("x = foo(1,\n" + "y = a + b - c\n" * 2000)
    assert found.message != "nested too deeply to be analysed"


def test_this_repository_is_parsed_whole() -> None:
    package = Path(parse.__code__.co_filename).parents[1]
    for path in sorted(package.rglob("*.py")):
        assert isinstance(parse(source_from_text(path.read_text(encoding="utf-8"), path.name)), cst.Module)
