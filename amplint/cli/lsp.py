"""`amplint lsp`: the language server."""

from __future__ import annotations

import click

from amplint.cli import UserError


@click.command(short_help="Answer an editor (the language server protocol).")
def lsp() -> None:
    """Answer an editor over stdin and stdout (the language server protocol). Needs the extra `lsp`."""
    try:
        from amplint.lsp.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise UserError(
            "the language server needs the extra `lsp`: pip install 'amplint[lsp]', or '.[lsp]' in a checkout"
        ) from error
    if not serve():
        click.get_current_context().exit(1)
