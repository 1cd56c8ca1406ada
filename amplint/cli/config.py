"""`amplint config`: the settings in force."""

from __future__ import annotations

from pathlib import Path

import click

from amplint.cli import UserError, emit
from amplint.cli.aliases import warn_of_unknown_targets
from amplint.config import ConfigError, Settings, load_settings


@click.command(short_help="Print the settings in force, and where they come from.")
@click.argument("path", metavar="[PATH]", default=".", type=click.Path(exists=True))
@click.option("--isolated", is_flag=True, help="Read no configuration and no dependencies.")
@click.option(
    "--config", "config_file", metavar="FILE", help="Configuration to use instead of the nearest one."
)
@click.option(
    "--output-format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Settings as in an amplint.toml, or an object.",
)
def config(path: str, isolated: bool, config_file: str | None, output_format: str) -> None:
    """Print the settings in force for PATH, by default the working directory, and where each comes from.

    `amplint check --show-settings` does so for a run with other options.
    """
    file = None if config_file is None else Path(config_file)
    try:
        settings = load_settings(Path(path), isolated=isolated, config_file=file)
    except ConfigError as error:
        raise UserError(str(error)) from error
    warn_of_unknown_targets(settings)
    print_settings(settings, output_format)


def print_settings(settings: Settings, output_format: str) -> None:
    """Print settings, and what follows from them, as `text` or `json`.

    UserError when they name a rule that is not installed.
    """
    from amplint.cachedir import cache_folder
    from amplint.registry import NoRules, UnknownRule, all_rules, default_selection, select_rules
    from amplint.report import settings as report

    baseline = settings.baseline_file(Path.cwd())
    try:
        rules = select_rules(settings)
        in_force = report.InForce(
            settings,
            default_selection(settings),
            cache_folder(settings, Path.cwd()),
            baseline if settings.baseline is not None or baseline.exists() else None,
            tuple(rule.code for rule in rules),
            len(all_rules()),
        )
    except (UnknownRule, NoRules) as error:
        raise UserError(str(error)) from error
    emit(report.as_json(in_force) if output_format == "json" else report.as_text(in_force))
