"""`amplint new-rule`: the first files of a rule."""

from __future__ import annotations

from pathlib import Path

import click

from amplint.cli import UserError, emit


@click.command("new-rule", short_help="Begin a rule of your own.")
@click.argument("code", metavar="CODE")
@click.argument("name", metavar="NAME")
@click.option("--family", metavar="FOLDER", help="Folder for it; by default that of the nearest code.")
@click.option(
    "--package",
    metavar="PATH",
    help="Folder of the package to add it to, instead of the built-in rules of this checkout.",
)
def new_rule(code: str, name: str, family: str | None, package: str | None) -> None:
    """Begin a rule in a checkout of amplint, or in a package of your own: AMP123, some-name.

    Writes a module, its page and a test, and adds the module to MODULES of the package. The page and the
    test say TODO where something is to be filled in, and the tests fail until that is done.
    """
    from amplint.discover import display_name
    from amplint.registry import NoRules, all_rules
    from amplint.scaffold import KnownRule, ScaffoldError, checkout_package, prepare

    if package == "" or family == "":
        raise click.UsageError("--package and --family need the name of a folder")
    try:
        installed = [KnownRule(rule.code, rule.name) for rule in all_rules()]
    except NoRules as error:
        raise UserError(str(error)) from error
    try:
        folder = checkout_package(Path.cwd()) if package is None else Path(package)
        made = prepare(code, name, folder, family, installed)
        made.write()
    except ScaffoldError as error:
        raise UserError(str(error)) from error
    for path in made.created:
        emit(f"wrote {display_name(path, Path.cwd())}\n")
    emit(f"added it to MODULES in {display_name(made.registry, Path.cwd())}\n")
    index = " and write the index: python -m amplint.rule_index amplint_rules" if package is None else ""
    emit(f"next: fill in what says TODO (rules in preview are checked when they are named){index}\n")
