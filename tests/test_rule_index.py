"""The index of the rules says what their modules say, and keeps LibCST away from runs that do not need it."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module, resources

import amplint_rules
import pytest

from amplint import rule_index
from amplint.registry import all_rules, load_rules

MODULES = [import_module(f"amplint_rules.{name}").RULE for name in amplint_rules.MODULES]


def test_the_index_says_what_the_rule_modules_say():
    """Run `python -m amplint.rule_index amplint_rules` after changing a rule's head."""
    written = resources.files("amplint_rules").joinpath(rule_index.NAME).read_text("utf-8")
    assert written == rule_index.dump(MODULES)


def test_rules_from_the_index_check_what_their_modules_check():
    built_in = [rule for rule in all_rules() if rule.module.startswith("amplint_rules.")]
    assert [rule.code for rule in built_in] == sorted(rule.code for rule in MODULES)
    assert all(isinstance(rule.check, rule_index.DeferredCheck) for rule in built_in)


@pytest.mark.parametrize("text", ["[]", "{}", "not json", '[{"code": "AMP101"}]', "null"])
def test_a_stale_or_broken_index_is_not_used(monkeypatch, tmp_path, text):
    (tmp_path / rule_index.NAME).write_text(text)
    monkeypatch.setattr(amplint_rules, "__path__", [str(tmp_path)])
    assert [rule.code for rule in load_rules(amplint_rules, amplint_rules.MODULES)] == [
        r.code for r in MODULES
    ]


def test_an_index_about_other_modules_is_not_used():
    assert rule_index.load("amplint_rules", [*amplint_rules.MODULES, "amp_api.new_one"]) is None


@pytest.mark.parametrize("text", ["x = 1\n", "import torch\nautocast = torch\nwith x and y:\n    pass\n", ""])
def test_a_run_in_which_nothing_passes_the_gate_does_not_load_libcst(tmp_path, text):
    (tmp_path / "a.py").write_text(text)
    program = (
        "import sys; from amplint.cli import main; main(['check', '--isolated', '--select', 'AMP2', 'a.py'])"
    )
    code = f"import sys, atexit; atexit.register(lambda: print('libcst' in sys.modules)); {program}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


def test_a_warm_run_does_not_load_libcst(tmp_path):
    (tmp_path / "a.py").write_text("import torch\nwith torch.cuda.amp.autocast():\n    pass\n")
    program = "from amplint.cli import main; main(['check', '--target', 'npu', 'a.py'])"
    code = f"import sys, atexit; atexit.register(lambda: print('libcst' in sys.modules)); {program}"
    runs = [
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        for _ in range(2)
    ]
    assert [done.stdout.splitlines()[-1] for done in runs] == ["True", "False"]
    assert runs[0].stdout.splitlines()[:-1] == runs[1].stdout.splitlines()[:-1]
