"""Runs a script or a module as `python` itself would, under observation from the moment it imports torch.

This file is run as a program by `amplint run`, and imports nothing but the standard library: a script that
sets OMP_NUM_THREADS before it imports torch finds torch not imported yet. Arguments: the options of the
observation as JSON, `-m` or `--`, then the module or the script, then the arguments of it.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import runpy
import sys
import types
from typing import Any, Dict, Optional, Sequence, Tuple

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Starts the observation when torch has been imported, whoever imports it."""

    def __init__(self, options: Dict[str, Any]) -> None:
        self._options = options
        self._busy = False

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[types.ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """Torch's own spec, whose loader reports back; None for everything else."""
        if name != "torch" or self._busy:
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec("torch")
        finally:
            self._busy = False
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                execute(module)
                self._start()

            loader.exec_module = exec_module
        return spec

    def _start(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            _start_observation(self._options)
        except Exception as error:  # observation must not keep the script from running
            print(f"amplint: the run cannot be observed: {error!r}", file=sys.stderr, flush=True)


def _start_observation(options: Dict[str, Any]) -> None:
    sys.path.insert(0, _ROOT)
    try:
        from amplint.runtime import verify
    finally:
        sys.path.remove(_ROOT)
    verify.start(verify.Options(**options))


def _without_own_frames(kind: Any, error: Any, traceback: Any) -> None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        traceback = traceback.tb_next
    if error is not None:
        error.__traceback__ = traceback
    sys.__excepthook__(kind, error, traceback)


def _script(path: str) -> Tuple[Any, types.ModuleType]:
    """Code of a script and a fresh `__main__` for it."""
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        _begin_path_with(path)
        return _details(*runpy._get_main_module_details())  # type: ignore[attr-defined]
    import io

    path = os.path.join(os.getcwd(), path)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __cached__=None, __spec__=None)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    _begin_path_with(os.path.dirname(os.path.realpath(path)))
    return code, main


def _begin_path_with(folder: str) -> None:
    """Put the program's folder where Python put this file's (with -P, neither is there)."""
    own = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0]) == own:
        sys.path[0] = folder


def _module(name: str) -> Tuple[Any, types.ModuleType]:
    _begin_path_with(os.getcwd())
    return _details(*runpy._get_module_details(name))  # type: ignore[attr-defined]


def _details(name: str, spec: Any, code: Any) -> Tuple[Any, types.ModuleType]:
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=spec.origin, __cached__=spec.cached, __spec__=spec)
    main.__loader__, main.__package__ = spec.loader, spec.parent
    sys.argv[0] = spec.origin or name
    return code, main


def main() -> None:
    """Read the arguments of this program, then become the other one."""
    options, kind, target, *arguments = sys.argv[1:]
    sys.argv = [target, *arguments]
    sys.meta_path.insert(0, _AfterTorch(json.loads(options)))
    sys.excepthook = _without_own_frames
    try:
        code, module = _module(target) if kind == "-m" else _script(target)
    except (ImportError, OSError) as error:
        sys.exit(f"{os.path.basename(sys.executable)}: {error}")
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


if __name__ == "__main__":
    main()
