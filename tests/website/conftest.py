"""The script beside the pages that makes the rest of the site."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("amplint_docs_site", ROOT / "docs" / "site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
