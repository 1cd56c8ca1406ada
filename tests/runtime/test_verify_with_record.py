"""`amplint check --with-record`: which static findings a run confirmed."""

from __future__ import annotations

import json
import textwrap

import pytest

from amplint.cli import main

SOURCE = textwrap.dedent(
    """
    import torch
    from torch.nn.utils import clip_grad_norm_


    def train(model, optimizer, batches):
        scaler = torch.amp.GradScaler("npu")
        for batch in batches:
            scaler.scale(model(batch)).backward()
            clip_grad_norm_(
                model.parameters(),
                1.0,
            )
            scaler.step(optimizer)
            scaler.update()


    def other(model, optimizer, batches):
        scaler = torch.amp.GradScaler("npu")
        for batch in batches:
            scaler.scale(model(batch)).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    """
)


def line(code="AMP201", row=11, step=17, filename="train.py", rank=0):
    location = {"row": row, "column": 1}
    found = {
        "code": code,
        "filename": filename,
        "location": location,
        "end_location": location,
        "step": step,
        "rank": rank,
    }
    return {"event": "finding", "finding": found}


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SOURCE)
    (tmp_path / "seen").mkdir()

    def run(*lines, options=()):
        head = {"event": "run", "schema": 1, "folder": str(tmp_path)}
        text = "".join(json.dumps(each) + "\n" for each in (head, *lines))
        (tmp_path / "seen" / "rank0.jsonl").write_text(text + '{"event": "st')
        arguments = ["check", "--isolated", "--no-cache", "--select", "AMP201", *options, "train.py"]
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        return ended.value.code, capsys.readouterr().out

    return run


def test_a_finding_that_the_run_showed_in_its_statement_is_marked_and_others_are_not(check):
    code, out = check(line(), options=["--with-record", "seen", "--output-format", "concise"])
    first, second = (each for each in out.splitlines() if "AMP201" in each and each.startswith("train.py"))
    assert code == 1
    assert first.endswith("(confirmed by the run at step 17)")
    assert "confirmed" not in second


def test_json_gets_one_more_key_only_with_the_option(check):
    _, out = check(line(), options=["--with-record", "seen", "--output-format", "json"])
    assert [each["confirmed"] for each in json.loads(out)] == [{"step": 17, "rank": 0}, None]
    assert {list(each)[-1] for each in json.loads(out)} == {"confirmed"}
    _, out = check(line(), options=["--output-format", "json"])
    assert all("confirmed" not in each for each in json.loads(out))


@pytest.mark.parametrize(
    "other",
    [line(code="AMP203"), line(row=14), line(filename="train2.py"), {"event": "finding", "finding": {}}],
)
def test_what_the_run_showed_elsewhere_confirms_nothing(check, other):
    _, out = check(other, options=["--with-record", "seen"])
    assert "confirmed" not in out


def test_the_earliest_step_is_told_and_only_the_last_run_counts(check):
    again = {"event": "run", "schema": 1, "folder": ""}
    lines = [line(step=3), again, line(step=9), line(step=5)]
    _, out = check(*lines, options=["--with-record", "seen", "--output-format", "jsonl"])
    assert json.loads(out.splitlines()[0])["confirmed"] == {"step": 5, "rank": 0}


def test_a_folder_without_a_record_is_wrong_usage(check):
    code, _ = check(options=["--with-record", "nothing"])
    assert code == 2


def test_codes_of_the_verifier_have_the_names_of_the_static_rules():
    from amplint.registry import all_rules
    from amplint.runtime.observed import KINDS

    names = {rule.code: rule.name for rule in all_rules()}
    shared = KINDS.keys() & names.keys()
    assert "AMP201" in shared
    assert {code: KINDS[code][0] for code in shared} == {code: names[code] for code in shared}


def test_a_region_or_scaler_that_the_run_saw_was_for_cuda_confirms_the_old_class_too(check, tmp_path):
    text = "import torch\nscaler = torch.cuda.amp.GradScaler()\nwith torch.cuda.amp.autocast():\n    pass\n"
    (tmp_path / "old.py").write_text(text)
    lines = [line("AMP105", 2, filename="old.py"), line("AMP104", 3, 5, filename="old.py")]
    options = ["--select", "AMP101,AMP102", "--output-format", "json", "--with-record", "seen", "old.py"]
    _, out = check(*lines, options=options)
    found = [(each["code"], each["confirmed"]) for each in json.loads(out) if each["filename"] == "old.py"]
    assert found == [("AMP102", {"step": 17, "rank": 0}), ("AMP101", {"step": 5, "rank": 0})]
