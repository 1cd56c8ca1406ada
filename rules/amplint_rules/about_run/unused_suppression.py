"""A suppression that silences nothing would hide the next mistake in its place."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from amplint.finding import Applicability, Fix, FixKind, Severity
from amplint.rule import Context, Report, Rule
from amplint.suppress import KINDS, Directive


def check(ctx: Context) -> Iterable[Report]:
    """Report directives, or codes in them, that silenced nothing although their rules ran."""
    for directive, words in ctx.audit.unused():
        if directive.problem is not None:
            yield Report(
                directive.span,
                f"the suppression silences nothing: {directive.problem}",
                fix=lambda: "only the author knows what it was meant to silence",
            )
            continue
        what = ", ".join(f"`{word}`" for word in words) or "the suppression"
        verb = "silence" if len(words) > 1 else "silences"
        yield Report(directive.span, f"{what} {verb} nothing here", fix=partial(_fix, ctx, directive, words))


def _fix(ctx: Context, directive: Directive, words: tuple[str, ...]) -> Fix:
    edits = ctx.audit.removal(directive, words)
    return Fix(FixKind.PORT, Applicability.SAFE, "remove what silences nothing", edits)


RULE = Rule(
    code="AMP901",
    name="unused-suppression",
    summary="a suppression silences nothing, and would hide the next mistake in its place",
    severity=Severity.WARNING,
    check=check,
    words=("amplint:", *(f"amplint {kind}[" for kind in KINDS), *(f"AMP{family}" for family in range(1, 10))),
    fixable="safe",
    about_run=True,
    module=__name__,
)
