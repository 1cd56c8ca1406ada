"""Several processes give what one gives, and one that dies takes nothing with it."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from amplint import pool, runner
from amplint.config import Settings
from amplint.runner import FixMode, run

SETTINGS = Settings(target="npu")
PIECES = [
    "from torch.cuda.amp import autocast\nwith autocast():\n    pass\n",
    "def f(scaler, loss, opt, m):\n    scaler.scale(loss).backward()\n"
    "    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n    scaler.step(opt)\n    scaler.update()\n",
    "with torch.autocast('cuda') and torch.no_grad():\n    pass\n",
    "x = 1\n",
    "def broken(:\n",
]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enough files for several batches."""
    monkeypatch.setattr(runner, "_FEW_BYTES", 0)
    monkeypatch.setattr(pool, "_BATCH", 600)
    choose = random.Random(3)
    root = tmp_path / "tree"
    root.mkdir()
    for i in range(40):
        (root / f"m{i}.py").write_text("import torch\n" + "".join(choose.choices(PIECES, k=2)))
    return root


def everything(root: Path, **options: object) -> tuple[object, ...]:
    result = run([root], SETTINGS, cwd=root, **options)  # type: ignore[arg-type]
    texts = [(change.source.filename, change.new_text) for change in result.changes]
    return (result.findings, result.internal_errors, [str(p) for p in result.problems], texts, result.files)


def test_many_processes_give_what_one_gives(tree):
    one = everything(tree, jobs=1)
    assert one[0]
    assert everything(tree, jobs=3) == one


def test_many_processes_fix_what_one_fixes(tree):
    mode = FixMode(ports=True, repairs=True)
    one = everything(tree, jobs=1, fix=mode)
    assert one[3]
    assert everything(tree, jobs=2, fix=mode) == one


def test_few_files_start_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "run_batches", None)
    (tmp_path / "a.py").write_text("import torch\n")
    assert run([tmp_path], SETTINGS, cwd=tmp_path, jobs=8).files == 1


def test_batches_begin_with_the_biggest_items_and_lose_none():
    sizes = {f"f{i}": (i * 7919) % 900_000 for i in range(50)}
    found = pool.batches(list(sizes), lambda name: sizes[name])
    assert sorted(name for batch in found for name in batch) == sorted(sizes)
    firsts = [sizes[batch[0]] for batch in found]
    assert firsts == sorted(firsts, reverse=True)


def start() -> None:
    """Initializer of the workers below."""


def kill_on_seven(items: list[int]) -> list[int]:
    """Work that dies of one item, as native code does."""
    for item in items:
        if item == 7:
            os.kill(os.getpid(), signal.SIGKILL)
    return items


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_dies_costs_only_the_item_that_killed_it(workers):
    todo = [[1, 2, 3], [4, 7, 5, 6], [8, 9]]
    found = list(pool.run_batches(kill_on_seven, todo, workers=workers, initializer=start, arguments=()))
    assert [item.item for item in found if isinstance(item, pool.Lost)] == [7]
    assert sorted(item for item in found if isinstance(item, int)) == [1, 2, 3, 4, 5, 6, 8, 9]


def test_a_file_that_kills_its_process_is_an_internal_error_and_the_others_are_checked(tree, monkeypatch):
    wanted = everything(tree, jobs=1)[0]

    def dying(work, todo, **options):
        for batch in todo:
            for item in batch:
                if item[1] == "m3.py" and work is runner._check_batch:
                    yield pool.Lost(item)
                else:
                    yield from real(work, [[item]], **options)

    real = pool.run_batches

    def in_process(work, todo, *, workers, initializer, arguments):
        initializer(*arguments)
        for batch in todo:
            yield from work(batch)

    real = in_process
    monkeypatch.setattr(pool, "run_batches", dying)
    result = run([tree], SETTINGS, cwd=tree, jobs=2)
    assert [error.filename for error in result.internal_errors] == ["m3.py"]
    assert result.findings == [finding for finding in wanted if finding.filename != "m3.py"]
