"""A project's own names for what rules look for: found by the gate, the engine and the rules alike."""

from __future__ import annotations

import pytest

from amplint import check_source, fix_source
from amplint.config import Settings
from amplint.gate import admit
from amplint.registry import all_rules, select_rules
from amplint.source import source_from_text

ALIASES = (("mycorp.amp.half", "torch.cuda.amp.autocast"), ("mycorp.scaling", "torch.cuda.amp.grad_scaler"))


@pytest.mark.parametrize(
    "text, code",
    [
        ("from mycorp.amp import half\nwith half():\n    pass\n", "AMP101"),
        ("import mycorp.amp as m\nwith m.half():\n    pass\n", "AMP101"),
        ("from mycorp import scaling\nx = scaling.GradScaler()\n", "AMP102"),
    ],
)
def test_an_alias_is_found_though_no_word_of_its_rule_occurs(text: str, code: str) -> None:
    assert code in {f.code for f in check_source(text, "train.py", aliases=ALIASES)}
    assert check_source(text, "train.py") == []


def test_an_alias_of_a_deeper_name_is_rewritten_as_what_it_stands_for() -> None:
    text = "import torch\nfrom mycorp.amp import half\n\nwith half():\n    pass\n"
    fixed = fix_source(text, "train.py", aliases=ALIASES, style="torch")
    assert "with torch.autocast(AMP_DEVICE, dtype=torch.float16):" in fixed


def test_only_the_last_part_of_an_alias_leads_to_parsing() -> None:
    rules = select_rules(Settings(aliases=ALIASES, select=("AMP101",)))
    assert admit(source_from_text("from x import half\n", "a.py"), rules).rules
    assert not admit(source_from_text("from mycorp import amp\n", "a.py"), rules).rules


def test_an_alias_passes_the_shape_of_a_rule_only_where_it_is_a_name() -> None:
    rules = select_rules(Settings(aliases=ALIASES, select=("AMP308",)))
    assert admit(source_from_text("with half() and lock:\n    pass\n", "a.py"), rules).rules
    assert admit(source_from_text("from mycorp.amp import half\n", "a.py"), rules).rules
    assert not admit(source_from_text("# half\nx = a and b\n", "a.py"), rules).rules


def test_without_aliases_rules_are_what_they_are() -> None:
    assert all(rule in all_rules() for rule in select_rules(Settings()))
