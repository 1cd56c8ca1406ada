"""A suppression whose last day has passed silences nothing any more."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from amplint.finding import Applicability, Fix, FixKind, Severity
from amplint.rule import Context, Report, Rule
from amplint.suppress import Directive


def check(ctx: Context) -> Iterable[Report]:
    """Report directives whose `until=` is a day before this one."""
    for directive in ctx.audit.expired():
        yield Report(
            directive.span,
            f"the suppression was meant to work until {directive.until}; what it silenced is reported again",
            fix=partial(_fix, ctx, directive),
        )


def _fix(ctx: Context, directive: Directive) -> Fix:
    edits = ctx.audit.removal(directive)
    return Fix(FixKind.PORT, Applicability.SAFE, "remove the expired suppression", edits)


RULE = Rule(
    code="AMP903",
    name="expired-suppression",
    summary="the last day of a suppression has passed, so it silences nothing any more",
    severity=Severity.WARNING,
    check=check,
    words=("amplint:",),
    fixable="safe",
    about_run=True,
    module=__name__,
)
