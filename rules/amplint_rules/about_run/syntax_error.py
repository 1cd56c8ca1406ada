"""A file that cannot be parsed is not checked, and says so."""

from __future__ import annotations

from collections.abc import Iterable

from amplint.finding import Severity
from amplint.rule import Context, Report, Rule


def check(ctx: Context) -> Iterable[Report]:
    """Nothing: a file that has a model was parsed. The engine reports those that have none."""
    return ()


RULE = Rule(
    code="AMP900",
    name="syntax-error",
    summary="the file cannot be parsed, so nothing in it was checked",
    severity=Severity.ERROR,
    check=check,
    about_run=True,
    module=__name__,
)
