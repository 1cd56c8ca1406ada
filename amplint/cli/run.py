"""`amplint run`: a training script under observation."""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

import click

from amplint.cli import UserError

_ABORT, _NOTIFY = "abort", "notify"


class _Overflow(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """`N=abort` or `N=notify`."""

    name = "N=abort|notify"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, str]:
        """The number of skipped steps, and what is done then."""
        number, _, action = str(value).partition("=")
        if not number.isdecimal() or not int(number) or action not in (_ABORT, _NOTIFY):
            self.fail(f"{value!r} is not N=abort or N=notify with N from 1", param, ctx)
        return int(number), action


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--record", metavar="DIR", help="Write what was observed to this folder, and a page to look at."
)
@click.option(
    "--every",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="Look closely at one step in N: dtypes, activations, gradients, updates.",
)
@click.option(
    "--on-overflow",
    type=_Overflow(),
    metavar="N=abort|notify",
    help="After N skipped steps in a row, end the script (exit code 3), or say so on stderr.",
)
@click.option("-m", "module", is_flag=True, help="PROGRAM is the name of a module.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    record: str | None,
    every: int,
    on_overflow: tuple[int, str] | None,
    module: bool,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run a training script, unchanged, and watch its mixed precision.

    What is wrong is told on stderr when the script has ended, at the line of the script. Its output, exit
    code and signals are its own. Under torchrun: `torchrun ... -m amplint run train.py`.
    """
    if not program:
        raise click.UsageError("the path of the script is empty")
    if not module and not os.path.exists(program):
        raise UserError(f"{program} does not exist")
    limit, action = on_overflow or (0, _NOTIFY)
    options = {"record": record, "every": every, "overflow_limit": limit, "overflow_action": action}
    _become([json.dumps(options), "-m" if module else "--", program, *arguments])


def _become(arguments: list[str]) -> NoReturn:
    """Replace this process by a fresh interpreter: the script meets no trace of the command line."""
    import subprocess

    launcher = os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "runtime", "launch.py"
    )
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = [sys.executable, *flags, launcher, *arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":  # there exec starts a second process and ends this one
        sys.exit(subprocess.call(command))
    os.execv(sys.executable, command)
