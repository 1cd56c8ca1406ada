"""The rules that are installed, found through the entry point group `amplint.rules`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from amplint import rule_index
from amplint.config import Settings
from amplint.installed import entry_points
from amplint.rule import Rule

if TYPE_CHECKING:
    from amplint.gate import Outline

GROUP = "amplint.rules"
#: The package of amplint's own rules.
BUILT_IN = "amplint_rules."

#: Families in the default selection; target npu adds `NPU_FAMILIES`.
DEFAULT_FAMILIES = ("AMP1", "AMP2", "AMP3", "AMP5", "AMP9")
NPU_FAMILIES = ("AMP4", "AMP8")


class UnknownRule(ValueError):
    """A code, family or name that no installed rule has; the message suggests a near one."""


class NoRules(RuntimeError):
    """No package provides rules: the installation is broken."""


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every installed rule, in order of code. Raises `NoRules` when there is none."""
    rules: dict[str, Rule] = {}
    for _, name in entry_points(GROUP):
        module = import_module(name)
        provided = getattr(module, "rules", None)
        for rule in provided() if callable(provided) else ():
            rules.setdefault(rule.code, rule)
    if not rules:
        raise NoRules(
            f"no rules found: no installed package has the entry point group '{GROUP}'; reinstall amplint"
        )
    return tuple(rules[code] for code in sorted(rules))


def find_rule(text: str) -> Rule | None:
    """The rule of this code or name (in any case), or None."""
    wanted = text.strip().lower()
    return next((r for r in all_rules() if wanted in (r.code.lower(), r.name.lower())), None)


def page(rule: Rule) -> str:
    """The rule's page: documentation, examples and tests in one Markdown text."""
    from importlib import resources

    package, _, name = rule.module.rpartition(".")
    return resources.files(package).joinpath(f"{name}.md").read_text(encoding="utf-8")


def matches(rule: Rule, selector: str) -> bool:
    """Whether `selector` (ALL, a code, the beginning of one, or a name) means this rule."""
    wanted = selector.strip()
    if wanted.upper() == "ALL" or wanted.lower() == rule.name:
        return True
    return bool(wanted) and rule.code.startswith(wanted.upper())


def check_selectors(selectors: Iterable[str]) -> None:
    """Raise `UnknownRule` for the first selector that means no installed rule and is no known family."""
    for selector in selectors:
        if not is_known(selector):
            near = nearest(selector)
            hint = f"; did you mean {near!r}?" if near else "; `amplint rule --all` lists them"
            raise UnknownRule(f"unknown rule {selector!r}{hint}")


def is_known(selector: str) -> bool:
    """Whether `selector` means an installed rule, or is a family that may have rules in another version."""
    families = (*DEFAULT_FAMILIES, *NPU_FAMILIES, "AMP", "AMP6", "AMP7")
    return selector.strip().upper() in families or any(matches(rule, selector) for rule in all_rules())


def nearest(selector: str) -> str | None:
    """The code or name that is spelled most like `selector`, if one is."""
    known = [*(rule.code for rule in all_rules()), *(rule.name for rule in all_rules()), "ALL"]
    for text in (selector, selector.upper()):
        near = difflib.get_close_matches(text, known, n=1)
        if near:
            return near[0]
    return None


def select_rules(settings: Settings) -> tuple[Rule, ...]:
    """The rules in force under `settings`. Raises `UnknownRule` for selectors that mean nothing.

    The project's own names for what rules look for (`aliases`) count as words of every rule.
    """
    named = {
        "select": settings.select or (),
        "ignore": settings.ignore,
        "extend_select": settings.extend_select,
        "per_file_ignores": [code for _, codes in settings.per_file_ignores for code in codes],
        "fixable": settings.fixable,
        "unfixable": settings.unfixable,
        "severity": [key for key, _ in settings.severity],
    }
    for setting, selectors in named.items():
        try:
            check_selectors(selectors)
        except UnknownRule as error:
            where = settings.source_of(setting)
            if not where.endswith(".toml"):
                raise
            raise UnknownRule(f"{where}: {setting.replace('_', '-')}: {error}") from error
    for name, options in settings.rule_options:
        _check_options(name, [option for option, _ in options], settings.source_of("rule_options"))
    chosen = tuple(rule for rule in all_rules() if _is_selected(rule, settings))
    words = tuple(dict.fromkeys(name.rpartition(".")[2] for name, _ in settings.aliases))
    return tuple(_with_words(rule, words) for rule in chosen) if words else chosen


def _check_options(name: str, options: Sequence[str], where: str) -> None:
    """Raise `UnknownRule` for options of a rule that is not installed, or has none."""
    rule = next((rule for rule in all_rules() if rule.name == name), None)
    if rule is None:
        found = find_rule(name)
        near = found.name if found is not None else nearest(name)
        hint = f"; did you mean {near!r}?" if near else "; `amplint rule --all` lists them"
        raise UnknownRule(f"{where}: rules.{name}: there is no rule of this name{hint}")
    if options and rule.module.startswith(BUILT_IN):
        raise UnknownRule(f"{where}: rules.{name}.{options[0]}: {rule.code} has no options")


def default_rules(settings: Settings) -> tuple[Rule, ...]:
    """The rules that a run for the same target checks when nothing is selected, ignored or in preview."""
    bare = Settings(target=settings.effective_target)
    return tuple(rule for rule in all_rules() if _is_selected(rule, bare))


def _with_words(rule: Rule, words: tuple[str, ...]) -> Rule:
    """The rule with further words that may lead to findings of it."""
    shape = rule.shape

    def wider(outline: Outline) -> bool:
        return shape is None or shape(outline) or any(word in outline.names for word in words)

    return replace(
        rule,
        words=(*rule.words, *words) if rule.words else (),
        shape=None if shape is None else wider,
    )


def _is_selected(rule: Rule, settings: Settings) -> bool:
    chosen = _strength(rule, default_selection(settings) if settings.select is None else settings.select)
    chosen = max(chosen, _strength(rule, settings.extend_select))
    named = [*(settings.select or ()), *settings.extend_select]
    if chosen <= _strength(rule, settings.ignore):
        return False
    asked_for = any(s.strip().upper() in ("ALL", rule.code) or s.strip().lower() == rule.name for s in named)
    if rule.preview and not (settings.preview or asked_for):
        return False
    return not (rule.off_by_default and not asked_for)


def default_selection(settings: Settings) -> tuple[str, ...]:
    """The families that are checked when the settings select nothing."""
    return DEFAULT_FAMILIES + (NPU_FAMILIES if settings.effective_target == "npu" else ())


def _strength(rule: Rule, selectors: Sequence[str]) -> int:
    """How exactly the selectors mean the rule: the most exact one wins; 0 when none does."""
    best = 0
    for selector in selectors:
        if matches(rule, selector):
            exact = 100 if selector.strip().lower() == rule.name else len(selector.strip())
            best = max(best, 1 if selector.strip().upper() == "ALL" else exact)
    return best


def load_rules(package: ModuleType, modules: Sequence[str]) -> tuple[Rule, ...]:
    """The rules of a package: from its index, or the `RULE` objects of its modules when that is absent or stale."""
    indexed = rule_index.load(package.__name__, modules)
    if indexed is not None:
        return indexed
    return tuple(import_module(f"{package.__name__}.{name}").RULE for name in modules)
