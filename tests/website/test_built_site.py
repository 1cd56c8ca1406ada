"""The site as mkdocs builds it."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from amplint.registry import all_rules, page

from .conftest import ROOT
from .test_pages_of_the_site import SITE

pytest.importorskip("material", reason="mkdocs-material is not installed: pip install '.[docs]'")
pytestmark = pytest.mark.slow

#: Elements that take a file from somewhere when a page is shown.
_LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, which AMPLINT_SITE names where it was built before."""
    if "AMPLINT_SITE" in os.environ:
        return Path(os.environ["AMPLINT_SITE"])
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class Article(HTMLParser):
    """What a page says: the text of its article, its blocks of code, and what it loads and links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words = ""
        self.code: list[str] = []
        self.loads: list[str] = []
        self.links: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in _LOADING and values.get(_LOADING[tag]) and values.get("rel") != "canonical":
            self.loads.append(str(values[_LOADING[tag]]))
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        if tag == "article" or (self._inside and tag in ("pre", "a", "nav", "button")):
            self._inside.append("permalink" if values.get("class") == "headerlink" else tag)
            if tag == "pre":
                self.code.append("")

    def handle_endtag(self, tag: str) -> None:
        if self._inside and (self._inside[-1] == tag or (tag == "a" and self._inside[-1] == "permalink")):
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside and self._inside[-1] == "pre":
            self.code[-1] += data
        elif self._inside and self._inside[-1] in ("article", "a"):
            self.words += data


def plain(markdown: str) -> tuple[str, list[str]]:
    """The words of a page without markup and blanks, and its blocks of code."""
    parts = re.split(r"^```\w*\n(.*?)^```$", markdown, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^((#+|[-*]|\d+\.) +|\|[-:| ]+\|$)", "", "".join(parts[::2]), flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return squeezed(text), parts[1::2]


def squeezed(text: str) -> str:
    """Without blanks, and without what is markup in Markdown wherever it stands."""
    return re.sub(r"[\s`*|\\]", "", html.unescape(text))


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_the_page_of_a_rule_shows_the_text_that_amplint_rule_prints(rule, built):
    file = built / rule.url.removeprefix(SITE) / "index.html"
    article = Article(file.read_text("utf-8"))
    words, code = plain(page(rule))
    assert article.code == code
    assert squeezed(article.words) == words


def pages(built: Path) -> dict[Path, Article]:
    return {path: Article(path.read_text("utf-8")) for path in sorted(built.rglob("*.html"))}


def test_every_page_is_built_and_asks_no_other_server_for_anything(built):
    found = pages(built)
    names = {path.parent.name for path in found}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"} <= names
    foreign = {
        load for article in found.values() for load in article.loads if re.match(r"(https?:)?//", load)
    }
    assert foreign == set()


def test_links_to_the_site_itself_lead_to_pages_that_it_has(built):
    links = {link for article in pages(built).values() for link in article.links if link.startswith(SITE)}
    assert links
    lost = [link for link in links if not (built / link.removeprefix(SITE).split("#")[0]).exists()]
    assert lost == []


def test_the_script_that_makes_the_site_is_no_part_of_it(built):
    assert not list(built.rglob("*.py"))
