"""The names that aliases may stand for are those that the code of amplint and its rules names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from amplint import facts

ROOT = Path(__file__).resolve().parents[1]
NAME = re.compile(
    r"(?:torch|torch_npu|apex|accelerate|lightning|pytorch_lightning|timm|fairscale)(?:\.[A-Za-z_]\w*)+"
)


def test_every_qualified_name_in_the_code_is_known() -> None:
    folders = [ROOT / "amplint" / name for name in ("flow", "model", "port", "project")] + [ROOT / "rules"]
    named = {
        node.value
        for folder in folders
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value)
    }
    assert len(named) > 50
    assert sorted(named - facts.known_names()) == [], "add them to amplint/facts/names.tsv"
