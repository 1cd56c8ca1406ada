"""Runs `main` of scripts: `reports.py FOLDER`. The last line of the output is JSON: script -> its figure.

What is mended is also run in float32.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from pathlib import Path


def figure(script: Path, *arguments: str) -> str:
    spec = importlib.util.spec_from_file_location(f"{script.parent.name}_{script.stem}", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(float(module.main(list(arguments))))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    found = {
        f"{script.parent.name}/{script.stem}": figure(script) for script in sorted(folder.glob("*/*.py"))
    }
    for script in sorted(folder.glob("*/after.py")):
        found[f"{script.parent.name}/float32"] = figure(script, "--float32")
    print(json.dumps(found))
