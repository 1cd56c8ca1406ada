"""Who takes a name from a module: what keeps a fix from removing it."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplint.config import Settings
from amplint.gate import admit
from amplint.project.link import ModuleIndex, Project
from amplint.project.resolve import NOT_IN_RUN, Resolution
from amplint.runner import FixMode, run
from amplint.source import source_from_text

TAKES = "from utils import ac\n"


def project(files: dict[str, str], folder: str = "") -> Project:
    return Project((ModuleIndex(name, imports(text)) for name, text in files.items()), folder)


def imports(text: str) -> tuple[tuple[str, str], ...]:
    seen = admit(source_from_text(text, "a.py"), []).outline
    assert seen is not None
    return tuple(seen.imports)


# Relative imports


def test_a_relative_import_takes_from_one_file_only() -> None:
    found = project({"a/amp.py": "", "b/amp.py": "", "amp.py": "", "a/x.py": "from .amp import ac\n"})
    assert found.takers("a/amp.py", "ac") == ["a/x.py"]
    assert found.takers("b/amp.py", "ac") == found.takers("amp.py", "ac") == []


@pytest.mark.parametrize(
    "text",
    [
        "from .. import ac\n",
        "from .. import *\n",
        "from ..sub import other\nfrom .. import ac\n",
        "from ... import pkg\npkg.ac\n",
    ],
)
def test_what_is_taken_from_a_package_by_dots_is_taken_from_its_init(text: str) -> None:
    found = project({"pkg/__init__.py": "", "pkg/sub/x.py": text, "pkg/sub/__init__.py": ""})
    assert found.takers("pkg/__init__.py", "ac") == ["pkg/sub/x.py"]
    assert found.takers("pkg/sub/__init__.py", "ac") == []


# Absolute imports


def test_each_script_of_a_monorepo_takes_from_the_helper_beside_it() -> None:
    found = project({"one/train.py": TAKES, "one/utils.py": "", "two/train.py": TAKES, "two/utils.py": ""})
    assert found.takers("one/utils.py", "ac") == ["one/train.py"]
    assert found.takers("two/utils.py", "ac") == ["two/train.py"]


def test_a_script_without_helper_may_take_from_any() -> None:
    found = project({"three/train.py": TAKES, "one/utils.py": "", "two/utils.py": ""})
    assert found.takers("one/utils.py", "ac") == found.takers("two/utils.py", "ac") == ["three/train.py"]


def test_a_file_of_a_package_may_take_from_the_module_beside_it_or_from_the_one_above() -> None:
    found = project({"pkg/__init__.py": "", "pkg/train.py": TAKES, "pkg/utils.py": "", "utils.py": ""})
    assert found.takers("pkg/utils.py", "ac") == found.takers("utils.py", "ac") == ["pkg/train.py"]


def test_a_package_takes_from_itself_and_not_from_a_copy() -> None:
    files = {f"{root}/pkg/{name}.py": "" for root in ("src", "build") for name in ("__init__", "amp")}
    found = project(
        {**files, "src/pkg/x.py": "from pkg.amp import ac\n", "t.py": "import pkg.amp\npkg.amp.ac\n"}
    )
    assert found.takers("src/pkg/amp.py", "ac") == ["src/pkg/x.py", "t.py"]
    assert found.takers("build/pkg/amp.py", "ac") == ["t.py"]


def test_a_module_called_like_one_of_the_standard_library_keeps_its_takers() -> None:
    files = {"logging.py": "", "other/logging.py": "", "train.py": "from logging import ac\n"}
    assert project(files).takers("logging.py", "ac") == ["train.py"]
    assert project(files).takers("other/logging.py", "ac") == ["train.py"]


def test_a_stub_and_its_module_have_the_same_takers() -> None:
    found = project({"pkg/amp.py": "", "pkg/amp.pyi": "", "pkg/x.py": "from .amp import ac\n"})
    assert found.takers("pkg/amp.py", "ac") == found.takers("pkg/amp.pyi", "ac") == ["pkg/x.py"]


def test_a_run_in_the_folder_of_a_package_knows_the_package_by_its_name() -> None:
    files = {"amp.py": "", "train.py": "from pkg.amp import ac\n"}
    assert project(files, "/home/me/pkg").takers("amp.py", "ac") == ["train.py"]
    assert project(files, "/home/me/other").takers("amp.py", "ac") == []


# Through other modules


def test_takers_of_takers_come_after_them() -> None:
    found = project(
        {
            "pkg/amp.py": "",
            "pkg/__init__.py": "from .amp import ac\n",
            "pkg/x.py": "from . import *\n",
            "a.py": "from pkg import ac\n",
            "b.py": "from a import ac\n",
            "c.py": "from pkg import other\n",
        }
    )
    assert found.takers("pkg/amp.py", "ac") == ["pkg/__init__.py", "a.py", "pkg/x.py", "b.py"]
    assert found.takers("pkg/__init__.py", "ac") == ["a.py", "pkg/x.py", "b.py"]
    assert found.takers("c.py", "ac") == []


def test_a_circle_of_takers_ends() -> None:
    texts = {"a.py": "from b import ac\n", "b.py": "from c import *\n", "c.py": "from a import ac\n"}
    assert project(texts).takers("a.py", "ac") == ["c.py", "b.py"]


def test_both_ways_of_an_optional_import_are_taken_from() -> None:
    text = "try:\n    from .fast import ac\nexcept ImportError:\n    from .slow import ac\n"
    found = project({"a/fast.py": "", "a/slow.py": "", "a/__init__.py": text, "t.py": "from a import ac\n"})
    for name in ("a/fast.py", "a/slow.py"):
        assert found.takers(name, "ac") == ["a/__init__.py", "t.py"]


@pytest.mark.parametrize(
    "text",
    [
        "from .impl import compat\n",
        "from .impl import *\n",
        "from .impl import compat as amp\n",
        "from pkg.impl import compat\n",
        "from .other import compat\n",
    ],
)
@pytest.mark.parametrize("use", ["from pkg import {0}\n{0}.ac\n", "import pkg\nx = pkg.{0}.ac\n"])
def test_a_module_that_a_package_imports_from_elsewhere_is_taken_from(text: str, use: str) -> None:
    files = {"pkg/__init__.py": text, "pkg/impl/__init__.py": "", "pkg/impl/compat.py": ""}
    files["pkg/other.py"] = "from .impl import compat\n"
    files["t.py"] = use.format("amp" if " as " in text else "compat")
    assert project(files).takers("pkg/impl/compat.py", "ac") == ["t.py"]


def test_an_attribute_of_what_a_module_defines_is_taken_from_no_module() -> None:
    files = {"amp.py": "", "pkg/__init__.py": "def make(): pass\n", "t.py": "from pkg import make\nmake.ac\n"}
    assert project(files).takers("amp.py", "ac") == []
    assert project(files).takers("pkg/__init__.py", "ac") == []


MODULES = ("p/__init__", "p/a", "p/b", "p/q/__init__", "p/q/c", "train")


@st.composite
def texts(draw: st.DrawFn) -> dict[str, list[tuple[str, str]]]:
    """Module -> what it takes from which other module."""
    taken = st.tuples(st.sampled_from(MODULES), st.sampled_from(["ac", "other", "*"]))
    return {module: draw(st.lists(taken, max_size=3)) for module in MODULES}


def written_as(importer: str, module: str, absolute: bool) -> str:
    """How `importer` names `module`."""
    parts = module.removesuffix("/__init__").split("/")
    if absolute or importer == "train" or module == "train":
        return ".".join(parts)
    folder = importer.split("/")[:-1]
    same = 1 if parts[:2] != ["p", "q"] or folder != ["p", "q"] else 2
    return "." * (len(folder) - same + 1) + ".".join(parts[same:])


@settings(max_examples=150, derandomize=True, database=None, deadline=None)
@given(taken=texts(), name=st.sampled_from(["ac", "other"]), absolute=st.booleans())
def test_takers_are_those_that_can_be_reached(taken, name, absolute):
    files = {
        f"{module}.py": "".join(f"from {written_as(module, m, absolute)} import {n}\n" for m, n in pairs)
        for module, pairs in taken.items()
    }
    run = project(files)
    for module in MODULES:
        wanted = {module}
        while (
            more := {m for m, pairs in taken.items() for o, n in pairs if o in wanted and n in (name, "*")}
            - wanted
        ):
            wanted |= more
        assert set(run.takers(f"{module}.py", name)) == {f"{m}.py" for m in wanted - {module}}


# Questions and their answers


def test_questions_are_noted_with_their_answers_failed_ones_too() -> None:
    run = project({"a.py": "", "b.py": "from a import ac\n"})
    asked = run.record()
    assert run.takers("a.py", "ac") == ["b.py"] and run.takers("a.py", "none") == []
    assert run.meaning("a.py", "b", "x") == Resolution(("b.py",))
    assert run.meaning("a.py", "lost") == Resolution((), NOT_IN_RUN)
    assert asked == {"ac": ("b.py",), "none": (), "b x": ("", "b.py"), "lost *": (NOT_IN_RUN,)}
    assert run.holds("a.py", asked) and run.record() == {}


@pytest.mark.parametrize(
    ("question", "change"),
    [
        ("none", {"c.py": "from a import none\n"}),
        ("ac", {"b.py": ""}),
        ("lost *", {"lost/__init__.py": ""}),
        ("b x", {"b.py": "from c import x\n", "c.py": ""}),
        ("b x", {"b/__init__.py": ""}),
    ],
)
def test_an_answer_holds_no_more_when_the_files_say_something_else(
    question: str, change: dict[str, str]
) -> None:
    files = {"a.py": "", "b.py": "from a import ac\n"}
    answers = {"ac": ("b.py",), "none": (), "b x": ("", "b.py"), "lost *": (NOT_IN_RUN,)}
    assert project(files).holds("a.py", answers)
    assert not project({**files, **change}).holds("a.py", {question: answers[question]})


def test_a_question_about_a_file_that_is_not_in_the_run_changes_no_other_answer() -> None:
    run = project({"x/train.py": TAKES, "y/utils.py": ""})
    assert run.takers("x/utils.py", "ac") == ["x/train.py"]
    assert run.takers("y/utils.py", "ac") == ["x/train.py"]


def test_a_pickled_project_gives_the_same_answers() -> None:
    run = project({"a.py": "", "b.py": "from a import ac\n"}, "/home")
    before = pickle.dumps(run)
    assert run.takers("a.py", "ac") == ["b.py"]
    assert len(pickle.dumps(run)) == len(before)
    assert pickle.loads(pickle.dumps(run)).takers("a.py", "ac") == ["b.py"]


def test_the_order_of_files_does_not_matter() -> None:
    files = {"x/t.py": TAKES, "y/t.py": TAKES, "y/utils.py": "", "z/utils.py": "from x.t import *\n"}
    answers = {
        tuple(project(dict(order)).takers("z/utils.py", "ac"))
        for order in (files.items(), reversed(files.items()))
    }
    assert answers == {("x/t.py",)}


def test_packages_full_of_stars_are_linked_in_no_time() -> None:
    files = {f"m/p{i}/__init__.py": "from .a import *\nfrom .b import *\n" for i in range(300)}
    files |= {
        f"m/p{i}/{name}.py": f"from ... import m\nm.p{i}.ac, m.x{i}.ac\n" for i in range(300) for name in "ab"
    }
    files["m/__init__.py"] = "".join(f"from .p{i} import *\n" for i in range(300))
    run = project(files)
    start = time.process_time()
    run.takers("m/p7/a.py", "ac")
    assert time.process_time() - start < 2


# In a run


def test_a_helper_is_fixed_although_another_project_takes_the_name_from_its_own(tmp_path: Path) -> None:
    helper = "from torch.cuda.amp import autocast as ac\nwith ac():\n    pass\n"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "utils.py").write_text(helper)
    (tmp_path / "one" / "train.py").write_text(TAKES)
    chosen = Settings(select=("AMP1",), target="npu", style="torch")
    result = run([tmp_path], chosen, cwd=tmp_path, fix=FixMode(ports=True))
    left = {change.source.filename: "import autocast as ac" in change.new_text for change in result.changes}
    assert left == {"one/utils.py": True, "two/utils.py": False}


def test_a_file_that_cannot_be_parsed_is_a_file_of_the_run_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "utils.py").write_text("def broken(:\n")
    (tmp_path / "one" / "train.py").write_text(TAKES)
    (tmp_path / "utils.py").write_text("from torch.cuda.amp import autocast as ac\nwith ac():\n    pass\n")
    chosen = Settings(select=("AMP1",), target="npu", style="torch")
    result = run([tmp_path], chosen, cwd=tmp_path, fix=FixMode(ports=True))
    assert ["import autocast as ac" in change.new_text for change in result.changes] == [False]
