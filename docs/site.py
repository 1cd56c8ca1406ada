"""What mkdocs cannot read from this folder: pages of rules, their index, the options of commands, and the order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from amplint.cli import main
from amplint.registry import all_rules, page
from amplint.rule import Rule

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

#: What the first four characters of a code stand for.
FAMILIES = {
    "AMP1": "CUDA-only AMP code",
    "AMP2": "The GradScaler protocol",
    "AMP3": "Dtypes and autocast regions",
    "AMP4": "Other CUDA-only code",
    "AMP5": "Configuration files",
    "AMP8": "Ascend NPU",
    "AMP9": "About the run itself",
}

_LINK = re.compile(r"\]\((\.\./[^)\s]+)\)")

#: Pages in the order of the menu; those that stand on no list come after the others.
SECTIONS = {
    "Use": ("cli.md", "editors.md", "notebooks.md", "pre-commit.md", "ci.md", "old-code.md"),
    "On NPU and at run time": ("shim.md", "verifier.md", "simnpu.md"),
    "Reference": ("configuration.md", "json.md", "commands.md", "performance.md"),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and say what stands where in the menu."""
    from mkdocs.structure.files import File

    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    config.nav = menu([file.src_uri for file in files.documentation_pages()])
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Let links to what is elsewhere in the repository lead to the pages that the site has of it."""
    names = {
        f"../rules/{rule.module.replace('.', '/')}.md": f"rules/{rule.name}.md" for rule in built_in_rules()
    }
    names["../README.md#rules"] = "rules/index.md"
    return _LINK.sub(lambda link: f"]({names.get(link[1], link[1])})", markdown)


def generated() -> dict[str, str]:
    """The generated pages: path -> Markdown."""
    rules = built_in_rules()
    pages = {f"rules/{rule.name}.md": page(rule) for rule in rules}
    return {"rules/index.md": index(rules), **pages, "commands.md": commands()}


def built_in_rules() -> list[Rule]:
    """The rules that come with amplint, in order of code."""
    return [rule for rule in all_rules() if rule.module.startswith("amplint_rules.")]


def families(rules: list[Rule]) -> dict[str, list[Rule]]:
    """Rules by the beginning of their codes."""
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        found.setdefault(rule.code[:4], []).append(rule)
    return found


def index(rules: list[Rule]) -> str:
    """The page that lists all rules."""
    blocks = [
        "# Rules\n\n`amplint rule CODE` prints the page of a rule, and `amplint rule --all` all of them.\n"
    ]
    for family, members in families(rules).items():
        rows = "".join(
            f"| {rule.code} | [{rule.name}]({rule.name}.md) | {rule.summary} | {severity(rule)} | {rule.fixable} |\n"
            for rule in members
        )
        head = "| code | name | finds | severity | fix |\n|---|---|---|---|---|\n"
        blocks.append(f"## {FAMILIES[family]} ({family})\n\n{head}{rows}")
    return "\n".join(blocks)


def severity(rule: Rule) -> str:
    """The severity by default, and when it is another one or the rule is not checked."""
    words = [rule.severity.value]
    if rule.npu_severity is not None:
        words.append(f"{rule.npu_severity.value} for npu")
    words += ["preview"] if rule.preview else []
    words += ["off by default"] if rule.off_by_default else []
    return ", ".join(words)


def commands() -> str:
    """The page with what `--help` says of every command."""
    blocks = ["# Commands and options\n\nWhat `amplint --help` and `amplint COMMAND --help` print.\n"]
    for name, text in helps():
        blocks.append(f"## {name}\n\n```text\n{text}\n```\n")
    return "\n".join(blocks)


def helps() -> Iterator[tuple[str, str]]:
    """Each command with its help."""
    outer = click.Context(main, info_name="amplint", terminal_width=100, **main.context_settings)
    yield "amplint", main.get_help(outer)
    for name in main.list_commands(outer):
        command = main.get_command(outer, name)
        if command is not None and not command.hidden:
            yield f"amplint {name}", command.get_help(click.Context(command, parent=outer, info_name=name))


def menu(present: list[str]) -> list[object]:
    """The menu over the pages that are there."""
    listed = {path for paths in SECTIONS.values() for path in paths}
    rest = sorted({path for path in present if "/" not in path} - listed - {"index.md"})
    sections: list[object] = [
        {title: [path for path in paths if path in present]} for title, paths in SECTIONS.items()
    ]
    rules = [
        {FAMILIES[family]: [{f"{rule.code} {rule.name}": f"rules/{rule.name}.md"} for rule in members]}
        for family, members in families(built_in_rules()).items()
    ]
    return ["index.md", *sections, *rest, {"Rules": ["rules/index.md", *rules]}]
