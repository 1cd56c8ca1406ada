"""`amplint rule`: the page of a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from amplint.cli import UserError, emit

if TYPE_CHECKING:
    from amplint.rule import Rule


@click.command(short_help="Explain a rule.")
@click.argument("rule_name", metavar="CODE|NAME", required=False)
@click.option("--all", "every", is_flag=True, help="Print the pages of all rules.")
@click.option(
    "--output-format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="The page as it is, or an object (with --all a list) that also has code, severity and so on.",
)
def rule(rule_name: str | None, every: bool, output_format: str) -> None:
    """Explain a rule: what it finds, why it matters, and what its fix does."""
    from amplint.registry import NoRules, all_rules

    if every == (rule_name is not None):
        raise click.UsageError("name one rule, or give --all")
    try:
        rules = all_rules() if rule_name is None else (_known_rule(rule_name),)
    except NoRules as error:
        raise UserError(str(error)) from error
    if output_format == "json":
        import json

        described = [_described(each) for each in rules]
        emit(json.dumps(described if every else described[0], indent=2) + "\n")
    else:
        emit("\n".join(_page(each).rstrip("\n") + "\n" for each in rules))


def _known_rule(text: str) -> Rule:
    from amplint.registry import UnknownRule, check_selectors, find_rule

    found = find_rule(text)
    if found is not None:
        return found
    try:
        check_selectors([text])
    except UnknownRule as error:
        raise UserError(str(error)) from error
    raise UserError(f"{text!r} means several rules; name one, or give --all")


def _page(rule: Rule) -> str:
    """A rule's page, or what there is to say of a third party's rule that has none."""
    from amplint.registry import page

    try:
        return page(rule)
    except FileNotFoundError:
        return f"# {rule.name} ({rule.code})\n\n{rule.summary}.\n"


def _described(rule: Rule) -> dict[str, object]:
    return {
        "code": rule.code,
        "name": rule.name,
        "summary": rule.summary,
        "severity": rule.severity.value,
        "confidence": rule.confidence.value,
        "fixable": rule.fixable,
        "preview": rule.preview,
        "off_by_default": rule.off_by_default,
        "page": _page(rule),
    }
