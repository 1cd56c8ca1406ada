"""Runs the checks of one file in this process: `python -m amplint.simnpu run.py FILE`; JSON on the last line."""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
import warnings
from pathlib import Path


def main(path: str) -> None:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    outcome = {}
    for name, check in list(vars(module).items()):
        if getattr(check, "__module__", None) == module.__name__ and not name.startswith("_"):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    check()
                outcome[name] = None
            except BaseException:
                outcome[name] = traceback.format_exc()
    print("\n" + json.dumps(outcome))


if __name__ == "__main__":
    main(sys.argv[1])
