from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from amplint.cli import main
from amplint.registry import all_rules

from .conftest import ROOT

SITE = re.search(r"^site_url: (\S+)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def test_the_site_has_the_text_of_amplint_rule_all_in_the_same_order(site):
    generated = site.generated()
    pages = [text for path, text in generated.items() if path.startswith("rules/") and "index" not in path]
    assert len(pages) == len(site.built_in_rules()) > 60
    printed = CliRunner().invoke(main, ["rule", "--all"]).stdout
    assert "\n".join(page.rstrip("\n") + "\n" for page in pages) == printed


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_a_finding_names_the_address_of_the_page_of_its_rule(rule, site):
    assert rule.url.startswith(SITE)
    assert f"{rule.url.removeprefix(SITE)}.md" in site.generated()


def test_the_index_of_rules_says_what_is_known_of_each(site):
    text = site.generated()["rules/index.md"]
    for rule in site.built_in_rules():
        row = f"| {rule.code} | [{rule.name}]({rule.name}.md) | {rule.summary} | {rule.severity.value}"
        assert text.count(row) == 1
    assert re.search(r"^\| AMP101 .* warning, error for npu \|", text, re.MULTILINE)
    assert re.search(r"^\| AMP215 .*, off by default \|", text, re.MULTILINE)


def test_the_rules_are_grouped_by_family(site):
    text = site.generated()["rules/index.md"]
    groups = re.split(r"^## .* \((AMP\d)\)$", text, flags=re.MULTILINE)[1:]
    for family, rows in zip(groups[::2], groups[1::2], strict=True):
        codes = re.findall(r"^\| (AMP\d+) ", rows, re.MULTILINE)
        assert codes and all(code.startswith(family) for code in codes)


def test_every_command_and_every_option_is_on_the_page_of_commands(site):
    text = site.generated()["commands.md"]
    context = click.Context(main)
    for name in main.list_commands(context):
        section = text.split(f"\n## amplint {name}\n")[1].split("\n## ")[0]
        command = main.get_command(context, name)
        assert "-h, --help" in section
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[0] in section


def test_the_page_of_commands_does_not_depend_on_the_terminal(site, monkeypatch):
    before = site.commands()
    monkeypatch.setenv("COLUMNS", "40")
    assert site.commands() == before


def test_every_page_is_in_the_menu_once(site):
    menu = str(site.menu([path.name for path in PAGES]))
    assert [path.name for path in PAGES if menu.count(f"'{path.name}'") != 1] == []


def test_a_page_that_stands_on_no_list_comes_into_the_menu(site):
    assert "new.md" in site.menu(["index.md", "new.md"])


def test_the_menu_names_no_page_that_is_not_there(site):
    assert "ci.md" not in str(site.menu(["index.md", "cli.md"]))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_begins_with_its_title(path):
    assert path.read_text("utf-8").startswith("# ")


def test_the_first_page_leads_to_every_page_for_an_integration(site):
    text = (ROOT / "docs" / "index.md").read_text("utf-8")
    pages = {path.name for path in PAGES} - {"index.md", "performance.md"}
    assert {page for page in pages if f"]({page}" not in text} == set()


def test_links_into_the_repository_lead_to_pages_of_the_site(site):
    text = (
        "[a](../rules/amplint_rules/values/with_and.md) [all](../README.md#rules) [b](ci.md) [c](../LICENSE)"
    )
    expected = "[a](rules/with-and.md) [all](rules/index.md) [b](ci.md) [c](../LICENSE)"
    assert site.on_page_markdown(text, page=None) == expected
