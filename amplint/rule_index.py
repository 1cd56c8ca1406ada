"""Rules known without loading their modules: an index of everything but the checks themselves.

The gate, the cache, `--help` and `amplint rule` need a rule's code, words and status; its check, which loads LibCST, is
imported when a file that passed the gate is checked. A package writes its index with
`python -m amplint.rule_index PACKAGE`; a package without one, or with one about other modules, is simply imported.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from amplint.finding import Confidence, Severity
from amplint.rule import Context, Report, Rule

if TYPE_CHECKING:
    from amplint.gate import Outline

NAME = "index.json"


@dataclass(frozen=True, slots=True)
class DeferredCheck:
    """The check of a rule module, imported when it is first run."""

    module: str

    def __call__(self, ctx: Context) -> Iterable[Report]:
        """Run the module's check."""
        rule: Rule = import_module(self.module).RULE
        return rule.check(ctx)


@dataclass(frozen=True, slots=True)
class DeferredShape:
    """A predicate over outlines, imported when it is first asked; its module does not load LibCST."""

    module: str
    function: str

    def __call__(self, outline: Outline) -> bool:
        """Ask the predicate."""
        shape: Callable[[Outline], bool] = getattr(import_module(self.module), self.function)
        return shape(outline)


def dump(rules: Iterable[Rule]) -> str:
    """The index of `rules` as JSON text."""
    return json.dumps([_entry(rule) for rule in rules], indent=1) + "\n"


def load(package: str, modules: Sequence[str]) -> tuple[Rule, ...] | None:
    """Rules of a package from its index; None when it has none, or one that is about other modules."""
    try:  # not importlib.resources, which loads zipfile
        with open(os.path.join(next(iter(import_module(package).__path__)), NAME), encoding="utf-8") as file:
            entries = json.load(file)
        rules = tuple(_rule(entry) for entry in entries)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return rules if [rule.module for rule in rules] == [f"{package}.{name}" for name in modules] else None


def _entry(rule: Rule) -> dict[str, Any]:
    shape = rule.shape
    return {
        "code": rule.code,
        "name": rule.name,
        "summary": rule.summary,
        "severity": rule.severity.value,
        "words": list(rule.words),
        "shape": None if shape is None else [shape.__module__, shape.__name__],
        "confidence": rule.confidence.value,
        "preview": rule.preview,
        "off_by_default": rule.off_by_default,
        "fixable": rule.fixable,
        "npu_severity": None if rule.npu_severity is None else rule.npu_severity.value,
        "about_run": rule.about_run,
        "module": rule.module,
    }


def _rule(entry: dict[str, Any]) -> Rule:
    shape = entry["shape"]
    npu = entry["npu_severity"]
    return Rule(
        code=entry["code"],
        name=entry["name"],
        summary=entry["summary"],
        severity=Severity(entry["severity"]),
        check=DeferredCheck(entry["module"]),
        words=tuple(entry["words"]),
        shape=None if shape is None else DeferredShape(*shape),
        confidence=Confidence(entry["confidence"]),
        preview=entry["preview"],
        off_by_default=entry["off_by_default"],
        fixable=entry["fixable"],
        npu_severity=None if npu is None else Severity(npu),
        about_run=entry["about_run"],
        module=entry["module"],
    )


def main(package: str) -> None:
    """Write the index of `package` beside its modules."""
    from pathlib import Path

    found = import_module(package)
    rules = [import_module(f"{package}.{name}").RULE for name in found.MODULES]
    folder = Path(str(found.__file__)).parent
    (folder / NAME).write_text(dump(rules), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
