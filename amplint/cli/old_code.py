"""What `amplint check` has for old code: the baseline, and comments that silence what is left."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from amplint.cli import UserError, complain
from amplint.config import Settings

if TYPE_CHECKING:
    from amplint.baseline import Baseline, Compared, Coverage, Entry
    from amplint.finding import Finding
    from amplint.runner import RunResult

#: With one of these on the command line a run finds other things than the runs that the baseline is for.
_NARROWING = ("min_confidence", "target", "soc", "torch")
#: How many entries a message names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Use:
    """What a run does with a baseline."""

    paths: tuple[Path, ...]
    #: Take everything that is found into it.
    write: bool = False
    #: Take out of it what is gone; None: if the run saw all of it, and not in CI.
    prune: bool | None = None
    #: The run wrote fixed files.
    fixes: bool = False
    #: Only tell findings apart: the run is about a text that is no file (yet).
    only_read: bool = False


def open_baseline(
    settings: Settings, *, isolated: bool, switched_off: bool, writing: bool
) -> Baseline | None:
    """The baseline of a run, None when there is none. UserError when it cannot be used."""
    path = settings.baseline_file(Path.cwd())
    if switched_off or (isolated and settings.baseline is None and not writing):
        return None
    there = os.path.lexists(path)
    if not there and settings.baseline is None and not writing:
        return None
    from amplint.baseline import Baseline, BaselineError, read

    if writing and not there:
        return Baseline(path)
    try:
        return read(path)
    except BaselineError as error:
        raise UserError(f"{error}{'; remove it to write a new one' if writing else ''}") from error


def with_baseline(result: RunResult, baseline: Baseline, settings: Settings, use: Use) -> RunResult:
    """A run without what the baseline has; what became of the baseline is in its notes.

    UserError when the baseline is to be written and cannot be.
    """
    from amplint.baseline import compare

    compared = compare(result, baseline, Path.cwd())
    shown, hidden = compared.shown, compared.hidden
    notes = []
    if use.write:
        notes = [_written(result, baseline, compared, settings, use)]
        shown, hidden = [], [*hidden, *shown]
    elif not use.only_read:
        notes = _kept_up(result, baseline, compared, settings, use)
    return replace(
        result,
        findings=shown,
        in_baseline=sorted(hidden, key=lambda finding: finding.sort_key),
        fixed_beyond_baseline=compared.fixed,
        notes=[*result.notes, *notes],
    )


def _written(result: RunResult, baseline: Baseline, compared: Compared, settings: Settings, use: Use) -> str:
    """Take all findings of a run into the baseline, and what it would have found out of it."""
    from amplint.baseline import BaselineError, gone, write

    dropped = gone(compared, baseline, _coverage(result, settings, use))
    entries = compared.kept + compared.new + (compared.left - dropped)
    try:
        write(baseline, entries)
    except BaselineError as error:
        raise UserError(str(error)) from error
    count, new, lost = entries.total(), compared.new.total(), dropped.total()
    noun = "finding" if count == 1 else "findings"
    return f"Wrote {count} {noun} to {_shown(baseline)} ({new} new, {lost} gone)."


def _kept_up(
    result: RunResult, baseline: Baseline, compared: Compared, settings: Settings, use: Use
) -> list[str]:
    """Say what of the baseline is gone, and take it out where the run may."""
    from amplint.baseline import BaselineError, gone, real_paths, write

    covered = _coverage(result, settings, use)
    is_narrow = any(settings.source_of(name) == "command line" for name in _NARROWING)
    stale: Counter[Entry] = Counter() if is_narrow else gone(compared, baseline, covered)
    dropped: Counter[Entry] = Counter()
    is_whole = all(covered.is_below(baseline.file(entry)) for entry in baseline.entries)
    prunes = (is_whole and not is_narrow and not _in_ci()) if use.prune is None else use.prune
    if prunes:
        dropped = stale
    elif use.fixes and result.changes and use.prune is None:
        changed = real_paths((change.source.filename for change in result.changes), Path.cwd())
        dropped = Counter({e: n for e, n in stale.items() if baseline.file(e) in changed})
    notes = []
    if prunes or (use.fixes and result.changes and use.prune is None):
        try:
            if write(baseline, compared.kept + (compared.left - dropped)):
                notes = [_updated(baseline, dropped)]
        except BaselineError as error:
            complain(f"warning: {error}")
            dropped = Counter()
    if stale - dropped:
        notes.append(_stale(baseline, stale - dropped))
    return notes


def _coverage(result: RunResult, settings: Settings, use: Use) -> Coverage:
    from amplint.baseline import Coverage, failed_files, real_paths
    from amplint.registry import select_rules

    cwd = Path.cwd()
    folders = [os.path.realpath(path) for path in use.paths if path.is_dir()]
    if result.problems or settings.source_of("exclude") == "command line":
        folders = []  # that a file was not looked at says nothing
    return Coverage(
        real_paths(result.names, cwd),
        tuple(folders),
        failed_files(result, cwd),
        frozenset(rule.code for rule in select_rules(settings)),
    )


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def _shown(baseline: Baseline) -> str:
    from amplint.discover import display_name

    return display_name(baseline.path, Path.cwd())


def _updated(baseline: Baseline, dropped: Counter[Entry]) -> str:
    if not dropped:
        return f"Updated {_shown(baseline)}: findings moved to other names."
    gone = "1 finding is gone" if dropped.total() == 1 else f"{dropped.total()} findings are gone"
    return f"Updated {_shown(baseline)}: {gone}."


def _stale(baseline: Baseline, stale: Counter[Entry]) -> str:
    places = [
        f"{entry.path}: {entry.code}{f' in {entry.within}' if entry.within else ''}"
        for entry in sorted(stale)[:_NAMED]
    ]
    places += ["..."] if len(stale) > _NAMED else []
    count = "1 finding" if stale.total() == 1 else f"{stale.total()} findings"
    return (
        f"{count} of {_shown(baseline)} {'is' if stale.total() == 1 else 'are'} gone ({', '.join(places)}):"
        " `amplint check --prune-baseline` takes what is gone out of it."
    )


def check_reason(reason: str, *, paths_given: bool) -> None:
    """UsageError when a text cannot be the reason of a suppression, or is a path that was meant to be checked."""
    from datetime import date

    from amplint.ignores import objection

    problem = objection(reason, date.today())
    if problem is not None:
        raise click.UsageError(f"--add-ignore: {problem}")
    if not paths_given and os.path.exists(reason):
        raise click.UsageError(f"--add-ignore: {reason!r} is a path, and the reason comes before the paths")


def add_ignores(result: RunResult, reason: str) -> bool:
    """Silence the findings of a run by comments in their files; whether a file was changed.

    Files that cannot be written are among the problems of the run afterwards, and its notes say what was done.
    Findings about suppressions get no comment: they have fixes.
    """
    from datetime import date

    from amplint.ignores import silence
    from amplint.registry import all_rules
    from amplint.source import SourceError, write_atomic

    about_comments = {rule.code for rule in all_rules() if rule.about_run and rule.code != "AMP900"}
    by_file: dict[str, list[Finding]] = {}
    for finding in result.findings:
        if finding.code not in about_comments:
            by_file.setdefault(finding.filename, []).append(finding)
    comments = files = 0
    for name, findings in by_file.items():
        source = result.sources[name]
        try:
            silenced = silence(source, findings, reason, date.today())
            if silenced.comments:
                write_atomic(source, silenced.source.text)
                comments, files = comments + silenced.comments, files + 1
        except SourceError as error:
            result.problems.append(error)
    if comments:
        result.notes.append(f"Silenced findings by {_count(comments, 'comment')} in {_count(files, 'file')}.")
    return comments > 0


def joined(result: RunResult, again: RunResult) -> RunResult:
    """A run that fixed files and silenced findings, with what another one found afterwards."""
    known = {str(problem) for problem in result.problems}
    return replace(
        result,
        findings=again.findings,
        sources=again.sources,
        in_baseline=again.in_baseline,
        internal_errors=list(dict.fromkeys([*result.internal_errors, *again.internal_errors])),
        problems=[*result.problems, *(each for each in again.problems if str(each) not in known)],
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def named_file(value: str | None, paths: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """What `--write-baseline [FILE]` took, as (FILE, paths): only a name that ends in .json is taken for FILE.

    UsageError when it is neither such a name nor that of something to be checked.
    """
    if not value or value.lower().endswith(".json"):
        return value or None, tuple(paths)
    if not os.path.lexists(value):
        raise click.UsageError(
            f"--write-baseline: {value!r} does not exist, and the name of a baseline ends in .json"
        )
    return None, (value, *paths)
