"""The baseline file, and which finding takes which entry: what did not change does not come back."""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from amplint.baseline import Baseline, BaselineError, Entry, compare, read, write
from amplint.config import Settings
from amplint.finding import Confidence, Finding, Severity, Span
from amplint.runner import RunResult, run
from amplint.source import Source, source_from_text

SETTINGS = Settings(select=("AMP1", "AMP2"))

CODE = """\
import torch
from torch.cuda.amp import GradScaler, autocast


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.scaler = GradScaler()

    def step(self, batch):
        with autocast():
            loss = self.model(batch).mean()
        self.scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def evaluate(self, batch):
        with autocast():
            first = self.model(batch)
        with autocast():
            second = self.model(batch)
        return first, second
"""


def found(*texts: str, name: str = "train.py", mark: str = "here(") -> RunResult:
    """A run with a finding at each `mark` of the texts; the first is called `name`, the others `1.py`, .."""
    result = RunResult()
    for number, text in enumerate(texts):
        source = source_from_text(text, name if not number else f"{number}.py")
        result.sources[source.filename] = source
        result.findings += [finding(source, at, mark) for at in places(text, mark)]
    return result


def places(text: str, mark: str) -> list[int]:
    return [at for at in range(len(text)) if text.startswith(mark, at)]


def finding(source: Source, at: int, mark: str) -> Finding:
    span = Span(at, at + len(mark))
    start, end = source.position(span.start), source.position(span.end)
    return Finding("AMP201", "a", "m", Severity.ERROR, Confidence.HIGH, source.filename, span, start, end)


def baseline_of(result: RunResult, folder: Path) -> Baseline:
    return Baseline(folder / "b.json", compare(result, Baseline(folder / "b.json"), folder).new)


def shown(before: str, after: str, folder: Path, mark: str = "here(") -> list[int]:
    """Rows of the findings in `after` that the baseline of `before` does not have."""
    known = baseline_of(found(before, mark=mark), folder)
    (folder / "train.py").write_text(after)
    return [each.start.row for each in compare(found(after, mark=mark), known, folder).shown]


# what is the same finding


@pytest.mark.parametrize(
    "after",
    [
        "import a\n\n\ndef f():\n    here(1)\n",
        "def f():\n\n    # why\n    here(1)  # so\n",
        "def f():\n    here( 1 )\n",
        "def f():\n    here(\n        1,\n    )\n",
        "def f():\r\n\there(1)\r\n",
        "def g():\n    here(1)\n",
        "class A:\n    async def f(self):\n        if a:\n            here(1)\n",
        "def f():\n    here(1); \n",
    ],
)
def test_a_statement_that_says_the_same_stays_known(after: str, tmp_path: Path) -> None:
    expected = [] if ";" not in after else [2]
    assert shown("def f():\n    here(1)\n", after, tmp_path) == expected


@pytest.mark.parametrize("after", ["def f():\n    here(2)\n", "def f():\n    x = here(1)\n"])
def test_a_statement_that_changed_is_new(after: str, tmp_path: Path) -> None:
    assert shown("def f():\n    here(1)\n", after, tmp_path) == [2]


def test_one_more_of_the_same_is_new(tmp_path: Path) -> None:
    before = "def f():\n    here(1)\n\n\ndef g():\n    here(1)\n"
    assert shown(before, before, tmp_path) == []
    assert shown(before, before + "    here(1)\n", tmp_path) == [7]
    assert shown(before, before + "\n\ndef h():\n    here(1)\n", tmp_path) == [10]


def test_a_copy_in_another_function_is_the_new_one_wherever_it_stands(tmp_path: Path) -> None:
    after = "def a():\n    here(1)\n\n\ndef f():\n    here(1)\n"
    assert shown("def f():\n    here(1)\n", after, tmp_path) == [2]


def test_two_findings_of_one_statement_are_told_apart(tmp_path: Path) -> None:
    assert shown("x = [here(1), here(2)]\n", "x = [here(1), here(2)]\n", tmp_path) == []


def test_only_the_header_of_a_block_counts(tmp_path: Path) -> None:
    assert shown("with here(1):\n    a()\n", "with here(1):\n    b()\n    c()\n", tmp_path) == []


def test_a_formatted_string_is_one_token_in_every_version_of_python(tmp_path: Path) -> None:
    known = baseline_of(found('here(f"{a!r:>{b}} and {c}")\n'), tmp_path)
    assert [entry.digest for entry in known.entries] == ["2a706c66318c3962"]


def test_comments_are_known_by_what_they_say(tmp_path: Path) -> None:
    before = "f()  # amplint: ignore[AMP101] x\n"
    after = "\ng(1)\nf(2)  #  amplint:  ignore[AMP101]   x\n"
    assert shown(before, before, tmp_path, mark="# ") == []
    assert shown("f()  # here(x)\n", "g()\n# here(x)\n", tmp_path) == []
    assert shown(before, after, tmp_path, mark="#") == []
    assert shown(before, after.replace("x", "y"), tmp_path, mark="#") == [3]


def test_a_file_that_cannot_be_tokenized_is_known_by_its_row(tmp_path: Path) -> None:
    before = "def f():\n  print 'here('\n x = (\n"
    assert shown(before, "\n" + before, tmp_path) == []


def test_a_file_that_moved_keeps_what_is_known(tmp_path: Path) -> None:
    text = "def f():\n    here(1)\n"
    known = baseline_of(found(text), tmp_path)
    moved = found(text, name="pkg/train.py")
    assert compare(moved, known, tmp_path).shown == []
    (tmp_path / "train.py").write_text(text)  # a copy
    assert len(compare(moved, known, tmp_path).shown) == 1


def test_what_is_left_of_a_baseline_is_told(tmp_path: Path) -> None:
    known = baseline_of(found("here(1)\nhere(1)\nhere(2)\n"), tmp_path)
    compared = compare(found("here(1)\n"), known, tmp_path)
    assert (len(compared.hidden), compared.left.total()) == (1, 2)


def test_paths_are_relative_to_the_baseline_whatever_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    known = baseline_of(found("here(1)\n", name="src/a.py"), tmp_path)
    assert [entry.path for entry in known.entries] == ["src/a.py"]
    assert compare(found("here(1)\n", name="a.py"), known, tmp_path / "src").shown == []
    assert compare(found("here(1)\n", name=str(tmp_path / "src" / "a.py")), known, Path("/")).shown == []


# the file


def test_a_baseline_is_written_a_line_for_each_entry_in_order(tmp_path: Path) -> None:
    baseline = Baseline(tmp_path / "b.json")
    entries = Counter({Entry("b.py", "AMP201", "", "0"): 1, Entry("a.py", "AMP102", "A.f", "1"): 2})
    assert write(baseline, entries)
    assert (tmp_path / "b.json").read_text() == (
        "[\n"
        '{"path": "a.py", "code": "AMP102", "within": "A.f", "digest": "1", "count": 2},\n'
        '{"path": "b.py", "code": "AMP201", "within": "", "digest": "0", "count": 1},\n'
        '{"amplint-baseline": 1}\n'
        "]\n"
    )
    assert read(tmp_path / "b.json").entries == entries
    assert not write(read(tmp_path / "b.json"), entries)


def test_entries_are_added_and_taken_away_without_touching_other_lines(tmp_path: Path) -> None:
    entries = Counter({Entry(f"{n}.py", "AMP201", "f", "0"): 1 for n in range(9)})
    baseline = Baseline(tmp_path / "b.json")
    write(baseline, entries)
    before = baseline.data or b""
    write(baseline, entries - Counter({Entry("8.py", "AMP201", "f", "0"): 1}))
    after = baseline.data or b""
    assert len(set(before.splitlines()) ^ set(after.splitlines())) == 1


@pytest.mark.skipif(subprocess.run(["git", "--version"], check=False).returncode != 0, reason="needs git")
def test_branches_that_both_change_it_merge_with_the_union_driver(tmp_path: Path) -> None:
    def entry(name: str) -> Counter[Entry]:
        return Counter({Entry(name, "AMP201", "f", "0"): 1})

    for name, entries in (("base", entry("m")), ("one", entry("m") + entry("x")), ("two", entry("y"))):
        write(Baseline(tmp_path / name), entries)
    merged = subprocess.run(
        ["git", "merge-file", "--union", "-p", "one", "base", "two"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    (tmp_path / "merged").write_bytes(merged.stdout)
    assert set(read(tmp_path / "merged").entries) >= {*entry("x"), *entry("y")}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ("[\n<<<<<<< ours\n]", "keep the lines of both sides"),
        ("{}", "not a baseline"),
        ("[]", "not a baseline"),
        ('[{"amplint-baseline": 2}]', "a newer amplint wrote it"),
        ('[1, {"amplint-baseline": 1}]', "element 1: expected an object"),
        ('[{"path": "a.py"}, {"amplint-baseline": 1}]', "element 1: expected the strings"),
        (
            '[{"path": "", "code": "", "within": "", "digest": "", "count": 0}, {"amplint-baseline": 1}]',
            "a count from 1",
        ),
        ("\xff", "not valid JSON"),
    ],
)
def test_what_is_no_baseline_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(BaselineError, match=message) as caught:
        read(tmp_path / "b.json")
    assert "\n" not in str(caught.value) and str(tmp_path / "b.json") in str(caught.value)


def test_a_baseline_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    baseline = Baseline(tmp_path / "b.json")
    write(baseline, Counter())
    (tmp_path / "b.json").write_text("mine")
    with pytest.raises(BaselineError, match="was changed since it was read"):
        write(baseline, Counter({Entry("a", "AMP201", "", "0"): 1}))
    assert (tmp_path / "b.json").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["b.json"]


# real findings under random edits


def shifted(text: str, rng: random.Random) -> str:
    """The text with blank rows, comments, other statements, blanks behind code, or a function renamed."""
    rows = text.split("\n")
    starts = [n for n, row in enumerate(rows) if row.strip() and not row.lstrip().startswith("#")]
    row = rng.choice(starts)
    indent = rows[row][: len(rows[row]) - len(rows[row].lstrip())]
    kind = rng.randrange(5)
    if kind == 0:
        rows.insert(row, " " * rng.randrange(3))
    elif kind == 1:
        rows.insert(row, f"{indent}# {rng.random()}")
    elif kind == 2:
        rows.insert(row, f"{indent}other_{rng.randrange(9)} = {rng.random()}")
    elif kind == 3:
        rows[row] += "  # autocast" if "#" not in rows[row] else " "
    else:
        old = rng.choice(["evaluate", "Trainer"])
        number = rng.randrange(99)
        return (
            "\n".join(rows).replace(f"{old}", f"{old}{number}", 1).replace(f"{number}{number}", str(number))
        )
    return "\n".join(rows)


@pytest.mark.parametrize("seed", range(4))
def test_no_finding_comes_back_under_random_edits_elsewhere(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path = tmp_path / "train.py"
    path.write_text(CODE)
    known = baseline_of(run([path], SETTINGS, cwd=tmp_path), tmp_path)
    assert known.entries.total() > 5
    text = CODE
    for _ in range(5):
        for _ in range(12):
            text = shifted(text, rng)
        path.write_text(text)
        result = run([path], SETTINGS, cwd=tmp_path)
        compared = compare(result, known, tmp_path)
        assert [(each.code, each.start) for each in compared.shown] == []
        assert not compared.left


def test_a_baseline_is_read_as_json_by_other_programs(tmp_path: Path) -> None:
    write(Baseline(tmp_path / "b.json"), Counter({Entry("ä\udc80.py", "AMP201", "", "0"): 1}))
    assert json.loads((tmp_path / "b.json").read_text("ascii"))[0]["path"] == "ä\udc80.py"
