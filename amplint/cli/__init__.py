"""The command line. Commands parse options and print; each is a file of its own, loaded when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import IO, Any, NoReturn

import click

#: Exit codes; a run with nothing left to report ends with 0.
FINDINGS_REMAIN = 1
FAILED = 2
INTERRUPTED = 130

_COMMANDS = {
    "check": "amplint.cli.check:check",
    "fix": "amplint.cli.check:fix",
    "rule": "amplint.cli.rule:rule",
    "ops": "amplint.cli.ops:ops",
    "config": "amplint.cli.config:config",
    "shim": "amplint.cli.shim:shim",
    "run": "amplint.cli.run:run",
    "clean": "amplint.cli.clean:clean",
    "lsp": "amplint.cli.lsp:lsp",
    "new-rule": "amplint.cli.new_rule:new_rule",
}


class UserError(click.ClickException):
    """What somebody can mend without reading amplint's code: shown as one line, exit 2."""

    exit_code = FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message to stderr."""
        complain(f"error: {self.message}")


class CommandLine(click.Group):
    """Imports a command when it is called; its failures are never mistaken for findings."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None for an unknown one."""
        target = _COMMANDS.get(cmd_name)
        if target is None:
            return None
        from importlib import import_module

        module, attribute = target.split(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line; click's own handling would exit with 1 when interrupted or on a crash."""
        rest = {**extra, "complete_var": complete_var, "windows_expand_args": windows_expand_args}
        if not standalone_mode:
            return super().main(args, prog_name, standalone_mode=False, **rest)
        _accept_any_text()
        try:
            sys.exit(super().main(args, prog_name, standalone_mode=False, **rest))
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except click.Abort:
            complain("interrupted, nothing half-written")
            sys.exit(INTERRUPTED)
        except Exception:
            _crash()


@click.group(cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, _, asked: _print_version(ctx) if asked else None,
    help="Show the version and exit.",
)
def main() -> None:
    """Find mixed-precision bugs and CUDA-only AMP code in PyTorch training code, and rewrite it.

    Exit code 0: nothing left to report; 1: findings remain; 2: wrong usage, broken configuration, a file
    that cannot be read or written, or an internal error.
    """


def emit(text: str | bytes) -> None:
    """Write to stdout. A reader that went away (`| head`) is not an error; a full disk is.

    UserError when stdout cannot be written.
    """
    try:
        if isinstance(text, bytes):
            sys.stdout.flush()
            sys.stdout.buffer.write(text)
        else:
            sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered would fail once more when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise UserError(f"stdout cannot be written: {error.strerror}") from error


def complain(text: str) -> None:
    """Write a message to stderr, if there is one, on lines of its own."""
    if text:
        print(text.rstrip("\n"), file=sys.stderr, flush=True)


def is_terminal(stream: IO[str]) -> bool:
    """Whether somebody looks at the stream through a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def wants_color(stream: IO[str]) -> bool:
    """Whether the stream is a terminal and NO_COLOR (https://no-color.org) is not set."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def _accept_any_text() -> None:
    """File names and sources may hold what the locale cannot encode; reporting them must not fail."""
    from io import TextIOWrapper

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_version(ctx: click.Context) -> NoReturn:
    from amplint import __version__

    emit(f"amplint {__version__}\n")
    ctx.exit()


def _crash() -> NoReturn:
    import traceback

    traceback.print_exc()
    complain("error: amplint failed; this is a bug in amplint, please report it with the lines above")
    sys.exit(FAILED)
