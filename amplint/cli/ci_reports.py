"""The reports that CI servers take, and what they need besides the result of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from amplint import __version__
from amplint.cli import UserError

if TYPE_CHECKING:
    from amplint.config import Settings
    from amplint.report.frame import Look
    from amplint.report.markdown import Link
    from amplint.report.sarif import Driver
    from amplint.runner import FixMode, RunResult


def report(output_format: str, result: RunResult, mode: FixMode, settings: Settings, look: Look) -> str:
    """The report in one of the formats sarif, github, gitlab, junit, markdown and html."""
    if output_format == "sarif":
        from amplint.report import sarif

        return sarif.render(result, _driver(result, settings), Path.cwd())
    if output_format == "github":
        from amplint.report import github

        return github.render(result, look)
    if output_format == "gitlab":
        from amplint.report import gitlab

        return gitlab.render(result)
    if output_format == "junit":
        from amplint.report import junit

        return junit.render(result, __version__)
    if output_format == "html":
        from amplint.report import html

        return html.render(result, mode, Path.cwd())
    from amplint.report import markdown

    return markdown.render(result, mode, _link(os.environ))


def check_html() -> None:
    """UserError when the library that the HTML report is written with is not installed."""
    from importlib.util import find_spec

    if find_spec("jinja2") is None:
        raise UserError("--output-format html needs jinja2: pip install 'amplint[html]'")


def _driver(result: RunResult, settings: Settings) -> Driver:
    """The rules in force, and others that findings are of (a syntax error is one whatever is selected)."""
    from amplint.registry import find_rule, page, select_rules
    from amplint.report.sarif import Driver

    rules = {rule.code: rule for rule in select_rules(settings)}
    found = (*result.findings, *result.in_baseline)
    for code in {finding.code for finding in found} - rules.keys():
        rule = find_rule(code)
        if rule is not None:
            rules[code] = rule
    return Driver(__version__, [rules[code] for code in sorted(rules)], page)


def _link(environment: Mapping[str, str]) -> Link:
    """Links to the checked commit, where GitHub's runner says which one that is."""
    from amplint.report.markdown import blob_link

    server, repository, commit = (
        environment.get(f"GITHUB_{name}") for name in ("SERVER_URL", "REPOSITORY", "SHA")
    )
    if server and repository and commit:
        return blob_link(f"{server}/{repository}/blob/{commit}")
    return lambda finding: None
