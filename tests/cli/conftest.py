from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from amplint.cli import main
from amplint.finding import Confidence, Finding, Severity, Span
from amplint.runner import RunResult
from amplint.source import Source, source_from_text

SOURCE = source_from_text("scale()\nclip(x)\nstep()\n", "train.py")


def make_finding(source: Source = SOURCE, place: str = "clip(x)", **fields: Any) -> Finding:
    """A finding on the first occurrence of `place`."""
    start = source.text.index(place)
    span = Span(start, start + len(place))
    values: dict[str, Any] = {
        "code": "AMP201",
        "name": "clip-before-unscale",
        "message": "clipped while still scaled",
        "severity": Severity.ERROR,
        "confidence": Confidence.HIGH,
        "filename": source.filename,
        "span": span,
        "start": source.position(span.start),
        "end": source.position(span.end),
    }
    return Finding(**(values | fields))


class FakeRun:
    """Stands for `amplint.runner.run`: keeps what it is called with, gives what it is told to."""

    def __init__(self) -> None:
        self.result = RunResult(files=1)
        self.error: BaseException | None = None
        self.paths: list[Path] = []
        self.settings: Any = None
        self.keywords: dict[str, Any] = {}
        self.calls = 0

    def __call__(self, paths: list[Path], settings: Any, **keywords: Any) -> RunResult:
        self.calls += 1
        self.paths, self.settings, self.keywords = list(paths), settings, keywords
        if self.error is not None:
            raise self.error
        return self.result

    def finds(self, *findings: Finding, source: Source = SOURCE) -> None:
        """Let the next runs find these."""
        self.result = RunResult(list(findings), sources={source.filename: source}, files=1)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeRun:
    """A fake run, in an empty working directory."""
    fake = FakeRun()
    monkeypatch.setattr("amplint.runner.run", fake)
    monkeypatch.chdir(tmp_path)
    return fake


@pytest.fixture
def amplint() -> Callable[..., Result]:
    """Call the command line with some arguments."""

    def call(*args: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(main, list(args), input=stdin, prog_name="amplint")

    return call


@pytest.fixture
def finding() -> Callable[..., Finding]:
    return make_finding


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what is asked of every format for the one that needs a library that is not installed."""
    parameters = getattr(item, "callspec", None)
    if parameters is not None and parameters.params.get("output_format") == "html":
        pytest.importorskip("jinja2")
