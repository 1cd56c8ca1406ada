"""The cache: warm runs give what cold ones give, and nothing that happens to its file can hurt."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from amplint import installed, runner
from amplint.config import Settings
from amplint.finding import Finding
from amplint.runner import FixMode, RunResult, run

BAD = "import torch\nwith torch.cuda.amp.autocast():\n    pass\n"
CLEAN = "import torch\nx = torch.ones(3)\n"
PIECES = [
    "from torch.cuda.amp import autocast\n",
    "from torch.cuda.amp import GradScaler as S\ns = S()\n",
    "with torch.autocast('cuda'):\n    pass\n",
    "def f(scaler, loss, opt, m):\n    scaler.scale(loss).backward()\n"
    "    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n    scaler.step(opt)\n    scaler.update()\n",
    "x = 1\n",
    "autocast = 3\n",
    "def broken(:\n",
]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(target="npu", cache_dir=tmp_path / "cache")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "bad.py").write_text(BAD)
    (root / "clean.py").write_text(CLEAN)
    return root


def key(finding: Finding) -> tuple[object, ...]:
    fix = finding.fix
    edits = None if fix is None else (fix.kind, fix.applicability, fix.message, fix.edits)
    return (
        finding.sort_key,
        finding.end,
        finding.span,
        finding.severity,
        finding.confidence,
        finding.trace,
        finding.no_fix_reason,
        finding.fingerprint,
        edits,
    )


def keys(result: RunResult) -> list[tuple[object, ...]]:
    return [key(finding) for finding in result.findings]


def cached(root: Path, settings: Settings, **options: object) -> RunResult:
    return run([root], settings, cwd=root, use_cache=True, **options)  # type: ignore[arg-type]


def cache_file(settings: Settings) -> Path:
    assert settings.cache_dir is not None
    (only,) = settings.cache_dir.glob("*.json")
    return only


def no_check(*_: object, **__: object) -> None:
    raise AssertionError("a file was checked although the cache knows it")


def test_a_warm_run_gives_what_the_cold_one_gave_without_checking_anything(tree, settings, monkeypatch):
    cold = cached(tree, settings)
    assert cold.findings
    monkeypatch.setattr(runner, "_outcome", no_check)
    monkeypatch.setattr(runner, "extract_path", no_check)
    warm = cached(tree, settings)
    assert keys(warm) == keys(cold)
    assert set(warm.sources) == set(cold.sources)


def test_a_touched_file_with_the_same_content_is_not_checked_again(tree, settings, monkeypatch):
    cold = cached(tree, settings)
    os.utime(tree / "bad.py", ns=(1, 1))
    monkeypatch.setattr(runner, "_outcome", no_check)
    assert keys(cached(tree, settings)) == keys(cold)


def test_an_edit_of_the_same_size_is_seen(tree, settings):
    cached(tree, settings)
    path = tree / "bad.py"
    path.write_text(BAD.replace("torch.cuda.amp", "torch.cuta.amp"))
    os.utime(path, ns=(2, 2))
    assert cached(tree, settings).findings == []


@pytest.mark.parametrize(
    "change", [{"target": "cuda"}, {"select": ("AMP102",)}, {"style": "shim"}, {"torch": (2, 0)}]
)
def test_another_configuration_does_not_see_the_entries(tree, settings, change):
    cached(tree, settings)
    other = replace(settings, **change)
    assert keys(cached(tree, other)) == keys(run([tree], other, cwd=tree))


def test_another_commit_of_amplint_does_not_see_the_entries(tree, settings, monkeypatch):
    cached(tree, settings)
    monkeypatch.setattr(installed, "own_code", lambda: "of another commit")
    cached(tree, settings)
    assert len(list(settings.cache_dir.glob("*.json"))) == 2


def test_an_importer_that_appears_elsewhere_changes_the_fix_of_an_unchanged_file(tmp_path, settings):
    root = tmp_path / "pkg"
    root.mkdir()
    (root / "amp_tools.py").write_text("from torch.cuda.amp import autocast\nwith autocast():\n    pass\n")
    before = cached(root, settings)
    (root / "train.py").write_text("from amp_tools import autocast\n")
    after = cached(root, settings)
    assert keys(after) == keys(run([root], settings, cwd=root))
    assert keys(after) != keys(before)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data.replace(b"AMP101", b"AMP999"),
        lambda data: b"\x80\x04\x95" + data,
        lambda data: b"[]",
        lambda data: data.split(b"\n")[0] + b"\n" + b"[" * 100_000,
    ],
)
def test_a_damaged_cache_counts_as_absent(tree, settings, damage):
    cold = cached(tree, settings)
    path = cache_file(settings)
    path.write_bytes(damage(path.read_bytes()))
    assert keys(cached(tree, settings)) == keys(cold)


def test_an_entry_of_another_shape_is_ignored_even_with_a_right_checksum(tree, settings):
    from amplint.cache import _checksum

    cold = cached(tree, settings)
    path = cache_file(settings)
    body = json.loads(path.read_text().partition("\n")[2])
    text = json.dumps({name: ["what", {"is": "this"}] for name in body})
    path.write_text(f"{_checksum(text)}\n{text}")
    assert keys(cached(tree, settings)) == keys(cold)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_cache_folder_is_no_error(tree, settings):
    settings.cache_dir.mkdir()
    settings.cache_dir.chmod(0o500)
    assert cached(tree, settings).findings


def test_a_file_in_the_place_of_the_cache_folder_is_no_error(tree, settings):
    settings.cache_dir.write_text("not a folder")
    assert cached(tree, settings).findings
    assert settings.cache_dir.read_text() == "not a folder"


def test_a_finding_that_depends_on_the_day_is_not_kept(tree, settings, monkeypatch):
    text = BAD.replace("():\n", "():  # amplint: ignore[AMP101] until=2999-01-01 later\n")
    (tree / "bad.py").write_text(text)
    cached(tree, settings)
    monkeypatch.setattr(runner, "_outcome", no_check)
    with pytest.raises(AssertionError):
        cached(tree, settings)


def test_fixing_does_not_trust_the_cache_for_the_text_it_writes(tree, settings):
    cached(tree, settings)
    result = cached(tree, settings, fix=FixMode(ports=True, write=True))
    assert [change.source.filename for change in result.changes] == ["bad.py"]
    assert "torch.autocast(" in (tree / "bad.py").read_text()
    assert cached(tree, settings).findings == []


def test_warm_equals_cold_after_random_edits_of_a_project(tmp_path, settings):
    choose = random.Random(7)
    root = tmp_path / "project"
    root.mkdir()
    names = [f"m{i}.py" for i in range(20)]

    def text() -> str:
        head = [f"from m{choose.randrange(20)} import {choose.choice(['autocast', 'S', '*', 'x'])}\n"]
        body = choose.choices(PIECES, k=choose.randrange(4))
        return "import torch\n" + "".join(choose.sample(head, choose.randrange(2)) + body)

    for name in names:
        (root / name).write_text(text())
    for _ in range(12):
        warm = cached(root, settings)
        cold = run([root], settings, cwd=root)
        assert keys(warm) == keys(cold)
        for name in choose.sample(names, 3):
            path = root / name
            if path.exists() and choose.random() < 0.2:
                path.unlink()
            else:
                path.write_text(text())
