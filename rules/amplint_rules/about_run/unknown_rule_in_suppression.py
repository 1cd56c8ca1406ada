"""A suppression names a rule that does not exist, so it silences nothing."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from amplint.finding import Applicability, Edit, Fix, FixKind, Severity
from amplint.registry import nearest
from amplint.rule import Context, Report, Rule
from amplint.suppress import Directive


def check(ctx: Context) -> Iterable[Report]:
    """Report words in brackets that mean no installed rule."""
    for directive, words in ctx.audit.unknown():
        for word in words:
            near = nearest(word)
            hint = f"; did you mean `{near}`?" if near else ""
            yield Report(
                directive.code_spans[(directive.codes or ()).index(word)],
                f"`{word}` is no rule{hint}",
                fix=partial(_fix, ctx, directive, word, near),
            )


def _fix(ctx: Context, directive: Directive, word: str, near: str | None) -> Fix:
    if near is None:
        edits = ctx.audit.removal(directive, (word,))
        return Fix(FixKind.PORT, Applicability.UNSAFE, f"remove {word}", edits)
    place = directive.code_spans[(directive.codes or ()).index(word)]
    return Fix(FixKind.PORT, Applicability.UNSAFE, f"write {near}", (Edit(place, near),))


RULE = Rule(
    code="AMP902",
    name="unknown-rule-in-suppression",
    summary="a suppression names a rule that does not exist, so it silences nothing",
    severity=Severity.WARNING,
    check=check,
    words=("amplint:",),
    fixable="sometimes",
    about_run=True,
    module=__name__,
)
