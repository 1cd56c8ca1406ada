"""What an import means: in the layouts that projects have, and compared with Python's own search."""

from __future__ import annotations

import importlib
import itertools
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplint.gate import admit
from amplint.project.resolve import NOT_IN_RUN, Resolution, Resolver
from amplint.source import source_from_text


def resolver(*files: str, folder: str = "", **texts: str) -> Resolver:
    """A project of empty `files` and of files with text: `pkg__train` is pkg/train.py."""
    project = dict.fromkeys(files, "")
    for name, text in texts.items():
        parts = name.replace("__init__", "\0").split("__")
        project["/".join(parts).replace("/\0", "/__init__").replace("\0", "/__init__") + ".py"] = text
    return Resolver({name: imports(text) for name, text in project.items()}, folder)


def imports(text: str) -> tuple[tuple[str, str], ...]:
    seen = admit(source_from_text(text, "a.py"), []).outline
    assert seen is not None
    return tuple(seen.imports)


# Where absolute imports lead


@pytest.mark.parametrize("root", ["", "src/", "python/lib/", "/home/me/checkout/"])
def test_a_package_is_found_whatever_folder_it_is_in(root: str) -> None:
    run = resolver(f"{root}pkg/__init__.py", f"{root}pkg/amp.py", "tests/test_amp.py")
    assert run.module("tests/test_amp.py", "pkg").files == (f"{root}pkg/__init__.py",)
    assert run.module("tests/test_amp.py", "pkg.amp").files == (f"{root}pkg/amp.py",)


def test_a_package_without_init_is_found() -> None:
    run = resolver("src/space/amp.py", "src/space/deep/er/losses.py", "tests/test_amp.py")
    assert run.module("tests/test_amp.py", "space.amp").files == ("src/space/amp.py",)
    assert run.module("tests/test_amp.py", "space.deep.er.losses").files == ("src/space/deep/er/losses.py",)


def test_a_folder_without_init_is_no_file() -> None:
    run = resolver("src/space/amp.py", "train.py")
    assert run.module("train.py", "space") == Resolution((), NOT_IN_RUN)
    assert run.name("train.py", "space", "amp").files == ("src/space/amp.py",)


def test_a_script_finds_its_helper_first() -> None:
    run = resolver("one/train.py", "one/utils.py", "two/train.py", "two/utils.py", "utils.py")
    assert run.module("one/train.py", "utils").files == ("one/utils.py",)
    assert run.module("two/train.py", "utils").files == ("two/utils.py",)


def test_a_folder_beside_the_script_comes_first_too() -> None:
    run = resolver("one/train.py", "one/utils/amp.py", "two/utils/amp.py")
    assert run.module("one/train.py", "utils.amp").files == ("one/utils/amp.py",)


def test_a_package_elsewhere_may_shadow_a_mere_folder_beside_the_script() -> None:
    run = resolver("one/train.py", "one/utils/amp.py", "src/utils/__init__.py", "src/utils/amp.py")
    found = run.module("one/train.py", "utils.amp")
    assert found.files == () and found.candidates == ("one/utils/amp.py", "src/utils/amp.py")


def test_the_package_that_a_file_lies_in_is_meant_and_no_copy_of_it() -> None:
    files = [
        f"{root}/pkg/{name}.py" for root in ("src", "build/lib") for name in ("__init__", "amp", "sub/x")
    ]
    run = resolver(*files, "tests/test_amp.py")
    assert run.module("src/pkg/sub/x.py", "pkg.amp").files == ("src/pkg/amp.py",)
    assert run.module("build/lib/pkg/__init__.py", "pkg.amp").files == ("build/lib/pkg/amp.py",)
    assert run.module("tests/test_amp.py", "pkg.amp") == Resolution(
        ("build/lib/pkg/amp.py", "src/pkg/amp.py"), "ambiguous: build/lib/pkg/amp.py, src/pkg/amp.py"
    )


def test_a_module_that_is_missing_in_its_package_is_not_found_in_another() -> None:
    run = resolver("src/pkg/__init__.py", "src/pkg/train.py", "old/pkg/__init__.py", "old/pkg/amp.py")
    found = run.module("src/pkg/train.py", "pkg.amp")
    assert found.files == () and found.candidates == ("old/pkg/amp.py",)


def test_a_module_beside_a_file_of_a_package_may_be_meant_or_not() -> None:
    run = resolver("pkg/__init__.py", "pkg/train.py", "pkg/datasets.py")
    assert run.module("pkg/train.py", "datasets") == Resolution(
        ("pkg/datasets.py",), "ambiguous: pkg/datasets.py, or outside of this run"
    )


def test_a_folder_that_is_a_package_is_no_root() -> None:
    run = resolver("pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/amp.py", "train.py")
    assert run.module("train.py", "sub.amp").files == ()
    assert run.module("train.py", "sub.amp").candidates == ("pkg/sub/amp.py",)


def test_the_helper_of_other_scripts_may_be_meant_or_not() -> None:
    run = resolver("one/train.py", "two/utils.py", "helpers.py")
    assert run.module("one/train.py", "utils").files == ()
    assert run.module("one/train.py", "utils").candidates == ("two/utils.py",)
    assert run.module("one/train.py", "helpers").files == ("helpers.py",)


def test_a_module_called_like_one_of_the_standard_library_may_be_meant_or_not() -> None:
    run = resolver("train.py", "logging.py", "types/__init__.py", "types/a.py", "types/b.py")
    assert run.module("train.py", "logging").files == ()
    assert run.module("train.py", "logging").candidates == ("logging.py",)
    assert run.module("types/a.py", "types.b").files == ("types/b.py",)


@pytest.mark.parametrize("origin", ["torch", "torch.cuda.amp", "pkg.other", "amp", "pkg.amp.ac", ""])
def test_what_is_not_in_the_run_is_said_not_to_be(origin: str) -> None:
    run = resolver("pkg/__init__.py", "pkg/amp.pyx", "pkg/amps.py", "bpkg/ampere.py", "train.py")
    assert run.module("train.py", origin) == Resolution((), NOT_IN_RUN)


def test_a_package_comes_before_a_module_and_a_module_before_a_folder() -> None:
    run = resolver("a.py", "a/__init__.py", "b.py", "b/c.py", "train.py")
    assert run.module("train.py", "a").files == ("a/__init__.py",)
    assert run.module("train.py", "b").files == ("b.py",)
    assert run.module("train.py", "b.c").files == ()


def test_a_stub_is_found_with_its_module_and_meant_without_it() -> None:
    run = resolver("pkg/__init__.py", "pkg/__init__.pyi", "pkg/a.py", "pkg/a.pyi", "pkg/native.pyi", "t.py")
    assert run.module("t.py", "pkg") == Resolution(("pkg/__init__.py", "pkg/__init__.pyi"))
    assert run.module("t.py", "pkg").files == ("pkg/__init__.py",)
    assert run.name("t.py", "pkg", "a").candidates == ("pkg/a.py", "pkg/a.pyi")
    assert run.name("t.py", "pkg", "a").files == ("pkg/a.py",)
    assert run.module("t.py", "pkg.native").files == ("pkg/native.pyi",)


def test_the_folder_of_the_run_can_be_inside_of_a_package() -> None:
    files = ("amp.py", "__init__.py", "/srv/other/lib/train.py", "../tools/x.py")
    run = resolver(*files, folder="/home/me/pkg")
    assert run.module("amp.py", "pkg").files == ("__init__.py",)
    assert run.module("__init__.py", "pkg.amp").files == ("amp.py",)
    assert run.module("amp.py", "..tools.x").files == ("../tools/x.py",)
    assert run.module("../tools/x.py", "lib.train").files == ("/srv/other/lib/train.py",)


# Where relative imports lead

RELATIVE = ("a/__init__.py", "a/b/__init__.py", "a/b/c.py", "a/b/d.py", "a/d.py", "d.py", "x/a/d.py")


@pytest.mark.parametrize(
    ("importer", "origin", "file"),
    [
        ("a/b/c.py", ".", "a/b/__init__.py"),
        ("a/b/__init__.py", ".", "a/b/__init__.py"),
        ("a/b/c.py", ".d", "a/b/d.py"),
        ("a/b/c.py", "..d", "a/d.py"),
        ("a/b/c.py", "..", "a/__init__.py"),
        ("a/b/c.py", "..b.d", "a/b/d.py"),
        ("a/b/c.py", "...d", "d.py"),
        ("a/b/c.py", "....d", None),
        ("a/b/c.py", "...", None),
        ("a/d.py", ".c", None),
        ("x/a/d.py", "..d", None),
        ("x/a/d.py", ".d", "x/a/d.py"),
        ("a/b/c.py", ".d.c", None),
    ],
)
def test_a_relative_import_means_one_file_or_none(importer: str, origin: str, file: str | None) -> None:
    found = resolver(*RELATIVE).module(importer, origin)
    assert found == (Resolution((), NOT_IN_RUN) if file is None else Resolution((file,)))


@pytest.mark.parametrize(
    ("importer", "origin", "name", "file"),
    [
        ("a/b/c.py", ".", "d", "a/b/d.py"),
        ("a/b/c.py", "..", "d", "a/d.py"),
        ("a/b/c.py", "..", "b", "a/b/__init__.py"),
        ("a/b/c.py", "..", "autocast", "a/__init__.py"),
        ("x/a/d.py", ".", "d", "x/a/d.py"),
    ],
)
def test_a_name_after_dots_is_a_submodule_or_else_in_the_package(
    importer: str, origin: str, name: str, file: str
) -> None:
    assert resolver(*RELATIVE).name(importer, origin, name).files == (file,)


# Where names come from


def test_a_name_is_followed_through_reexports() -> None:
    run = resolver(
        "a/b/amp.py", a__init__="from .b import ac, step\n", a__b__init__="from .amp import ac\n", t=""
    )
    assert run.name("t.py", "a", "ac").files == ("a/b/amp.py",)
    assert run.name("t.py", "a", "step").files == ("a/b/__init__.py",)
    assert run.name("t.py", "a", "other").files == ("a/__init__.py",)
    assert run.name("t.py", "a", "*").files == ("a/__init__.py",)


def test_a_package_that_imports_its_submodule_offers_the_submodule() -> None:
    run = resolver("a/amp.py", a__init__="from . import amp\n", t="")
    assert run.name("t.py", "a", "amp").files == ("a/amp.py",)


def test_a_function_with_the_name_of_its_module_is_in_that_file() -> None:
    run = resolver("a/focal.py", a__init__="from .focal import focal\n", t="")
    assert run.name("t.py", "a", "focal").files == ("a/focal.py",)


def test_a_name_taken_from_elsewhere_hides_a_submodule() -> None:
    run = resolver("a/amp.py", "a/impl.py", a__init__="from .impl import amp\n", t="")
    assert run.name("t.py", "a", "amp").files == ()
    assert set(run.name("t.py", "a", "amp").candidates) == {"a/amp.py", "a/impl.py"}


def test_both_ways_of_an_optional_import_are_kept() -> None:
    text = "try:\n    from .fast import ac\nexcept ImportError:\n    from .slow import ac\n"
    run = resolver("a/fast.py", "a/slow.py", a__init__=text, t="")
    assert sorted(run.name("t.py", "a", "ac").files) == ["a/fast.py", "a/slow.py"]
    run = resolver("a/slow.py", a__init__=text, t="")
    assert run.name("t.py", "a", "ac") == Resolution(
        ("a/slow.py",), "ambiguous: a/slow.py, or outside of this run"
    )


def test_a_star_may_bring_the_name() -> None:
    run = resolver("a/deep.py", a__init__="from .amp import *\n", a__amp="from .deep import *\n", t="")
    found = run.name("t.py", "a", "ac")
    assert found.candidates == ("a/__init__.py", "a/amp.py", "a/deep.py")
    assert found.reason == "ambiguous: a/__init__.py, a/amp.py, a/deep.py"


def test_a_module_whose_attribute_is_used_is_not_the_source_of_a_name() -> None:
    text = "from . import functional as F\nimport b.losses\ndef focal(x): F.focal(x)\nb.losses.dice\n"
    run = resolver("a/functional.py", "b/losses.py", a__init__=text, t="")
    for name, other in (("focal", "a/functional.py"), ("dice", "b/losses.py")):
        found = run.name("t.py", "a", name)
        assert found.files == () and set(found.candidates) == {"a/__init__.py", other}


def test_a_circle_of_reexports_ends() -> None:
    texts = {
        "a": "from .b import x\nfrom .b import *\n",
        "b": "from .c import x\n",
        "c": "from .a import x, y\n",
    }
    run = resolver(t="", **texts)
    assert run.name("t.py", "a", "x").files == ()
    assert set(run.name("t.py", "a", "x").candidates) == {"a.py", "b.py", "c.py"}
    run = resolver(t="", a__init__="from . import native\n")
    assert run.name("t.py", "a", "native") == Resolution(
        ("a/__init__.py",), "ambiguous: a/__init__.py, or outside of this run"
    )


def test_a_long_chain_of_reexports_is_no_problem() -> None:
    texts = {f"m{i}": f"from .m{i + 1} import x\n" for i in range(3000)}
    assert resolver("m3000.py", **texts).name("m0.py", ".m0", "x").files == ("m3000.py",)


def test_a_reason_names_a_few_files_and_candidates_are_all() -> None:
    found = resolver("train.py", *(f"p{i}/utils.py" for i in range(9))).module("train.py", "utils")
    assert len(found.candidates) == 9 and found.reason.endswith("p4/utils.py and 4 more")


# What Python says

PARTS = st.sampled_from(["a", "b", "src"])
ROOTS = ("", "src/", "lib/")
PATHS = st.builds(
    "{}{}{}".format,
    st.sampled_from(ROOTS),
    st.lists(PARTS, min_size=1, max_size=3).map("/".join),
    st.sampled_from([".py", "/__init__.py", "/a.py"]),
)
TREES = st.sets(PATHS, min_size=2, max_size=8)
ORIGINS = st.lists(PARTS, min_size=1, max_size=3).map(".".join)
STEADY = {"derandomize": True, "database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}


@contextmanager
def written(tree: set[str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder).resolve()
        for name in sorted(tree):
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            (base / name).touch()
        importlib.invalidate_caches()
        yield base
        for path in [path for path in sys.path_importer_cache if path.startswith(str(base))]:
            del sys.path_importer_cache[path]


def python_finds(path: list[str], parts: list[str]) -> tuple[str | None, list[str]]:
    """The file that `parts` are imported from when `sys.path` is `path`, and where submodules are looked for."""
    origin = None
    for part in parts:
        spec = PathFinder.find_spec(part, path)
        if spec is None:
            return None, []
        origin, places = spec.origin, spec.submodule_search_locations
        # An iterated namespace path looks itself up in the real sys.path.
        path = list(getattr(places, "_path", places) or [])
    return origin, path


def python_takes(path: list[str], parts: list[str], name: str) -> str | None:
    """The file that `from parts import name` looks into at last; there are no names but submodules."""
    origin, places = python_finds(path, parts)
    return (python_finds(places, [name])[0] if places else None) or origin


def search_paths(base: Path, tree: set[str], importer: str) -> Iterator[list[str]]:
    """Every `sys.path` that may be in force: the script's folder, its own packages' roots, and roots in any order."""
    place = PurePosixPath(importer).parent
    packages = {PurePosixPath(name).parent for name in tree if name.endswith("/__init__.py")}
    own = [f.parent for f in (place, *place.parents) if f in packages and f.parent not in packages]
    for some in itertools.permutations(own):
        for others in itertools.permutations(ROOTS):
            path = [str(base / root) for root in (*some, *others)]
            yield [str(base / place), *path]
            if place in packages:  # it may as well be imported
                yield path


@settings(max_examples=120, **STEADY)
@given(tree=TREES, origin=ORIGINS, data=st.data())
def test_what_python_finds_is_a_candidate_and_what_is_certain_is_right(tree, origin, data):
    importer = data.draw(st.sampled_from(sorted(tree)))
    name = data.draw(PARTS)
    run = Resolver(dict.fromkeys(tree, ()))
    module, taken = run.module(importer, origin), run.name(importer, origin, name)
    with written(tree) as base:
        for path in search_paths(base, tree, importer):
            parts = origin.split(".")
            for found, ours in (
                (python_finds(path, parts)[0], module),
                (python_takes(path, parts, name), taken),
            ):
                if found is None:  # something else is in the way
                    continue
                file = Path(found).relative_to(base).as_posix()
                assert file in ours.candidates
                assert ours.files in ((), (file,))


@settings(max_examples=60, **STEADY)
@given(tree=TREES, level=st.integers(1, 3), parts=st.lists(PARTS, max_size=2), data=st.data())
def test_relative_imports_mean_what_python_takes_them_for(tree, level, parts, data):
    importer = data.draw(st.sampled_from(sorted(tree)))
    ours = Resolver(dict.fromkeys(tree, ())).module(importer, "." * level + ".".join(parts))
    with written(tree) as base:
        package = (base / importer).parents[level - 1]
        if not package.is_relative_to(base):
            assert ours.candidates == ()
            return
        path, names = ([str(package)], parts) if parts else ([str(package.parent)], [package.name])
        found, _ = python_finds(path, names)
        if package == base and not parts:
            found = None
        wanted = () if found is None else (Path(found).relative_to(base).as_posix(),)
        assert ours.files == ours.candidates == wanted
