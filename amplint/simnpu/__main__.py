"""`python -m amplint.simnpu PROGRAM args...`: runs a program, and all that it starts, with a simulated NPU."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from amplint.simnpu import CHIPS, OVERLAY, Settings
from amplint.simnpu.settings import TRANSFER, from_environment


def main(arguments: Sequence[str] | None = None) -> None:
    """Replace this process by the program; its exit code, output and signals are its own.

    Raises:
        SystemExit: 2 for wrong usage, 127 if there is no such program.
    """
    options = _parse(arguments)
    try:
        given = from_environment()
        settings = Settings(
            soc=options.soc or given.soc,
            devices=given.devices if options.devices is None else options.devices,
            blocklist=given.blocklist | frozenset(options.block),
        )
    except ValueError as error:
        print(f"amplint.simnpu: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    environment = {**os.environ, **settings.environment()}
    path = [str(OVERLAY), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(path)
    environment.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
    if options.transfer:
        environment[TRANSFER] = "1"
    _become(_command(options), environment)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m amplint.simnpu",
        description="Run a program with a device called npu that executes on the CPU.",
    )
    parser.add_argument("--soc", choices=CHIPS, help="the chip (default 910B)")
    parser.add_argument("--devices", type=int, help="reported devices (default: 1, or one per local rank)")
    parser.add_argument(
        "--block", action="append", default=[], metavar="OP", help="operator that raises; may be repeated"
    )
    parser.add_argument(
        "--transfer", action="store_true", help="rename CUDA too, as torch_npu.contrib.transfer_to_npu does"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module")
    parser.add_argument("program", metavar="PROGRAM", help="a Python file, or a command such as torchrun")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...")
    return parser.parse_args(arguments)


def _command(options: argparse.Namespace) -> list[str]:
    # the flags of this interpreter (-W, -X, -O, ...) are meant for the program
    python = [sys.executable, *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]
    if options.module:
        return [*python, "-m", options.program, *options.arguments]
    file = Path(options.program)
    if file.is_file() and (file.suffix == ".py" or not os.access(file, os.X_OK)):
        return [*python, options.program, *options.arguments]
    command = shutil.which(options.program, path=_search_path())
    if command is None:
        print(f"amplint.simnpu: no such program: {options.program}", file=sys.stderr)
        raise SystemExit(127)
    return [command, *options.arguments]


def _search_path() -> str:
    """Commands of this environment first, whether or not it is activated."""
    return os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])


def _become(command: list[str], environment: dict[str, str]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execvpe(command[0], command, environment)
    raise SystemExit(subprocess.call(command, env=environment))  # other systems' exec does not wait


if __name__ == "__main__":
    main()
