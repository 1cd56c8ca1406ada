"""`amplint check` and `amplint fix`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from amplint.cli import (
    FAILED,
    FINDINGS_REMAIN,
    UserError,
    complain,
    emit,
    is_terminal,
    old_code,
    wants_color,
)
from amplint.cli.aliases import warn_of_unknown_targets
from amplint.config import (
    CONFIDENCES,
    SEVERITIES,
    SOCS,
    STYLES,
    TARGETS,
    ConfigError,
    Settings,
    load_settings,
)
from amplint.report import FOR_PROGRAMS, FORMATS

if TYPE_CHECKING:
    from amplint.changes import Changes
    from amplint.finding import Finding
    from amplint.report.confirmed import Seen
    from amplint.report.frame import Look
    from amplint.report.progress import Progress
    from amplint.runner import FixMode, RunResult
    from amplint.source import Source

_NO_FILES = "warning: no Python files or notebooks found"
_RULES = "Codes, beginnings of codes (AMP2), names or ALL; comma-separated, repeatable."

#: Options that are settings under another name; None means that the configuration decides.
_SETTINGS = (
    click.Option(["--select"], multiple=True, metavar="RULES", help=f"Rules to check. {_RULES}"),
    click.Option(["--extend-select"], multiple=True, metavar="RULES", help="Rules to check as well."),
    click.Option(["--ignore"], multiple=True, metavar="RULES", help="Rules not to check."),
    click.Option(
        ["--target"],
        type=click.Choice(TARGETS),
        help="Device to run on; auto is npu if the project depends on torch_npu.",
    ),
    click.Option(["--soc"], type=click.Choice(SOCS), help="Ascend chip to run on."),
    click.Option(["--torch"], metavar="VERSION", help='Oldest torch that the code supports, or "auto".'),
    click.Option(["--style"], type=click.Choice(STYLES), help="What fixes write: plain torch or the shim."),
    click.Option(
        ["--min-confidence"], type=click.Choice(CONFIDENCES), help="Leave out what is less certain."
    ),
    click.Option(["--preview"], is_flag=True, default=None, help="Check rules in preview as well."),
    click.Option(
        ["--exclude"],
        multiple=True,
        metavar="PATTERNS",
        help="What to leave out, as in .gitignore, instead of what is configured.",
    ),
    click.Option(
        ["--force-exclude"], is_flag=True, default=None, help="Leave them out even if PATHS names them."
    ),
    click.Option(["--output-format"], type=click.Choice(FORMATS), help="Format of the findings."),
    click.Option(["--cache-dir"], metavar="PATH", help="Folder of the cache."),
    click.Option(["--baseline"], metavar="FILE", help="Known findings, which are not reported."),
)

_OTHERS = (
    click.Option(["--fix"], is_flag=True, help="Apply the safe ports: the meaning on CUDA stays as it is."),
    click.Option(
        ["--repair"],
        is_flag=True,
        help="Apply the safe repairs as well, which change numbers because the"
        " numbers were wrong. Implies --fix, unless --diff is given.",
    ),
    click.Option(["--unsafe-fixes"], is_flag=True, help="With --fix, --repair or --diff: unsafe fixes, too."),
    click.Option(["--diff"], is_flag=True, help="Show what --fix would change as a diff; write nothing."),
    click.Option(
        ["--output-file"],
        metavar="PATH",
        help="Write the report to this file instead of stdout, which gets the summary.",
    ),
    click.Option(
        ["--diff-base"],
        metavar="REV",
        help="Report only what is on lines that changed since the merge base with this git revision.",
    ),
    click.Option(["--statistics"], is_flag=True, help="Count findings by rule, and what was analysed."),
    click.Option(
        ["--fail-on"],
        type=click.Choice((*SEVERITIES, "never")),
        default="info",
        show_default=True,
        help="Severity from which on findings make the exit code 1.",
    ),
    click.Option(["--exit-zero"], is_flag=True, help="Exit with 0 even if findings remain: --fail-on never."),
    click.Option(
        ["--show-files"], is_flag=True, help="List the files that would be checked, and do no more."
    ),
    click.Option(
        ["--show-settings"], is_flag=True, help="Print the settings of this run, as `amplint config` does."
    ),
    click.Option(["--isolated"], is_flag=True, help="Read no configuration and no dependencies."),
    click.Option(["--config"], metavar="FILE", help="Configuration to use instead of the nearest one."),
    click.Option(
        ["-j", "--jobs"],
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Processes to check with; 0, the default: as many as there are CPUs.",
    ),
    click.Option(["--no-cache"], is_flag=True, help="Neither read nor write the cache."),
    click.Option(["--no-baseline"], is_flag=True, help="Report what is in the baseline as well."),
    click.Option(
        ["--write-baseline"],
        is_flag=False,
        flag_value="",
        metavar="[FILE.json]",
        help="Take all findings into the baseline, by default amplint-baseline.json beside the configuration.",
    ),
    click.Option(
        ["--prune-baseline/--no-prune-baseline"],
        default=None,
        help="Take out of the baseline what is gone; by default if PATHS have all of it, and not in CI.",
    ),
    click.Option(
        ["--add-ignore"],
        metavar="REASON",
        help="Silence the findings that are left by comments in their files, with this reason.",
    ),
    click.Option(["--stdin-filename"], metavar="NAME", help="What the code on stdin is called (PATHS is -)."),
    click.Option(
        ["--with-record"],
        metavar="DIR",
        help="Mark the findings that a run confirmed: DIR is that of `amplint run --record DIR`.",
    ),
    click.Option(
        ["--explain-flow"],
        metavar="FILE:LINE",
        help="Say what the analyses of the GradScaler protocol and of dtypes believe there, and do no more.",
    ),
    click.Option(["-q", "--quiet"], is_flag=True, help="Findings only: no summary, no progress bar."),
)


@dataclass(frozen=True, slots=True)
class _Options:
    """Options that are no settings."""

    fix: bool
    repair: bool
    unsafe_fixes: bool
    diff: bool
    output_file: str | None
    diff_base: str | None
    statistics: bool
    fail_on: str
    exit_zero: bool
    show_files: bool
    show_settings: bool
    isolated: bool
    config: str | None
    jobs: int
    no_cache: bool
    no_baseline: bool
    write_baseline: str | None
    prune_baseline: bool | None
    add_ignore: str | None
    stdin_filename: str | None
    with_record: str | None
    explain_flow: str | None
    quiet: bool

    @property
    def mode(self) -> FixMode:
        """Which fixes the run applies."""
        from amplint.runner import FixMode

        return FixMode(
            ports=self.fix or self.repair or self.diff,
            repairs=self.repair,
            unsafe=self.unsafe_fixes,
            write=(self.fix or self.repair) and not self.diff,
        )


def _command(name: str, short: str, text: str, *, fix: bool) -> click.Command:
    options = [copy(option) for option in (*_OTHERS, *_SETTINGS)]
    for option in options:
        option.hidden = fix and option.name == "fix"  # accepted, and says nothing new
    return click.Command(
        name,
        params=[click.Argument(["paths"], nargs=-1, metavar="[PATHS]..."), *options],
        callback=partial(_run, always_fix=fix),
        short_help=short,
        help=text,
    )


def _run(paths: tuple[str, ...], always_fix: bool, **values: Any) -> None:
    """Check what the command line says, print the result, and exit."""
    overrides = {name: values.pop(name) for name in [option.name or "" for option in _SETTINGS]}
    values["fix"] = values["fix"] or always_fix
    if values["write_baseline"] is not None:
        file, paths = old_code.named_file(values["write_baseline"], paths)
        overrides["baseline"] = overrides["baseline"] if file is None else file
    options = _Options(**values)
    paths = paths or (".",)
    _refuse_contradictions(paths, options, overrides)
    settings = _settings(paths, options, overrides)
    if options.show_settings:
        from amplint.cli.config import print_settings

        print_settings(settings, "text")
        return
    if options.show_files:
        click.get_current_context().exit(_show_files([Path(path) for path in paths], settings, options))
    if options.explain_flow is not None:
        from amplint.cli.explain_flow import explain_flow

        emit(explain_flow(options.explain_flow, [Path(path) for path in paths if path != "-"], settings))
        return
    stdin = _read_stdin(options) if paths == ("-",) else None
    changes = None if options.diff_base is None else _changes(options.diff_base, Path(paths[0]))
    result = _adopted([Path(path) for path in paths], settings, options, stdin)
    if changes is not None:
        _leave_out_unchanged(result, changes, options)
    if options.output_file is not None:
        _write_report(result, options, settings)
    if options.diff:
        _print_diffs(result)
    elif stdin is not None and options.mode.write:
        emit(_fixed(stdin, result))
    elif options.output_file is not None:
        emit(_summary(result, options))
    else:
        emit(_report(result, options, settings, _look(sys.stdout)))
    _print_to_stderr(result, options, settings, stdin)
    click.get_current_context().exit(_exit_code(result, options))


def _refuse_contradictions(paths: Sequence[str], options: _Options, overrides: dict[str, Any]) -> None:
    if "" in paths:  # an unset shell variable, which must not mean the working directory
        raise click.UsageError("a path is empty")
    if "-" in paths and len(paths) > 1:
        raise click.UsageError("the path - stands alone")
    if options.stdin_filename is not None and "-" not in paths:
        raise click.UsageError("--stdin-filename goes with the path -")
    if overrides["select"] and not _split(overrides["select"]):
        raise click.UsageError("--select names no rule")
    output_format = overrides["output_format"]
    if options.output_file is not None:
        _refuse_output_file(options.output_file)
    elif output_format in FOR_PROGRAMS and (options.diff or ("-" in paths and options.mode.write)):
        raise click.UsageError(
            f"--output-format {output_format}: the diff or the fixed code already takes stdout"
        )
    if options.diff_base is not None and (options.mode.ports or "-" in paths):
        raise click.UsageError(
            "--diff-base goes with checking files: fixes would not stop at the changed lines, and code on stdin is in"
            " no repository"
        )
    if options.diff_base is not None and (options.write_baseline is not None or options.prune_baseline):
        raise click.UsageError("--diff-base leaves findings out, which the baseline would then lose")
    if options.diff_base is not None and options.add_ignore is not None:
        raise click.UsageError("--diff-base goes without --add-ignore, which silences findings on all lines")
    if options.add_ignore is not None:
        old_code.check_reason(options.add_ignore, paths_given=tuple(paths) != (".",))
    for name, wanted in (
        ("--write-baseline", options.write_baseline is not None),
        ("--add-ignore", options.add_ignore is not None),
    ):
        if wanted and options.diff:
            raise click.UsageError(f"{name} writes, and --diff does not")
        if wanted and "-" in paths:
            raise click.UsageError(f"{name} needs files and folders, not code on stdin")
    if options.write_baseline is not None and options.add_ignore is not None:
        raise click.UsageError("--write-baseline and --add-ignore exclude each other")
    if options.no_baseline and (
        options.write_baseline is not None or options.prune_baseline or overrides["baseline"] is not None
    ):
        raise click.UsageError("--no-baseline goes with no other option about the baseline")
    if options.show_files and options.show_settings:
        raise click.UsageError("--show-files and --show-settings exclude each other")
    if options.show_files and "-" in paths:
        raise click.UsageError("--show-files needs files and folders, not code on stdin")


def _refuse_output_file(path: str) -> None:
    """UsageError for a file that cannot be meant, before the run rather than behind it."""
    from amplint.discover import SUFFIXES

    folder = os.path.dirname(path) or "."
    if not path or os.path.isdir(path):
        raise click.UsageError(f"--output-file needs the path of a file, not {path!r}")
    if path.endswith(SUFFIXES):
        raise click.UsageError(f"--output-file {path}: the report would replace Python code")
    if not os.path.isdir(folder):
        raise click.UsageError(f"--output-file {path}: there is no folder {folder}")


def _settings(paths: Sequence[str], options: _Options, overrides: dict[str, Any]) -> Settings:
    """Settings for the first path; UserError when they cannot be used."""
    for name, value in overrides.items():
        if isinstance(value, tuple):
            overrides[name] = _split(value) if value else None
    start = options.stdin_filename or "." if paths[0] == "-" else paths[0]
    config = None if options.config is None else Path(options.config)
    try:
        settings = load_settings(
            Path(start), isolated=options.isolated, config_file=config, overrides=overrides
        )
    except ConfigError as error:
        raise UserError(str(error)) from error
    if settings.output_format == "html":
        from amplint.cli.ci_reports import check_html

        check_html()
    warn_of_unknown_targets(settings)
    return settings


def _split(values: Sequence[str]) -> tuple[str, ...]:
    parts = (part.strip() for value in values for part in value.split(","))
    return tuple(part for part in parts if part)


def _show_files(paths: Sequence[Path], settings: Settings, options: _Options) -> int:
    """Print the files that `paths` lead to, one per line; the exit code."""
    from amplint.discover import discover, display_name
    from amplint.report import text

    found = discover(paths, settings, Path.cwd())
    emit("".join(f"{display_name(file, Path.cwd())}\n" for file in found.files))
    for problem in found.problems:
        complain(text.problem(problem, _look(sys.stderr)))
    if not (found.files or found.problems or options.quiet):
        complain(_NO_FILES)
    return FAILED if found.problems else 0


def _read_stdin(options: _Options) -> Source:
    """The code on stdin. UserError when it is no Python text."""
    from amplint.discover import display_name
    from amplint.source import SourceError, source_from_bytes

    name = options.stdin_filename
    shown = display_name(Path(name), Path.cwd()) if name else "-"
    try:
        return source_from_bytes(sys.stdin.buffer.read(), shown)
    except SourceError as error:
        raise UserError(str(error)) from error


def _adopted(paths: Sequence[Path], settings: Settings, options: _Options, stdin: Source | None) -> RunResult:
    """The run, without what the baseline has, and with what is left silenced if that is asked for."""
    writing = options.write_baseline is not None
    baseline = old_code.open_baseline(
        settings, isolated=options.isolated, switched_off=options.no_baseline, writing=writing
    )
    result = _checked(paths, settings, options, stdin)
    use = old_code.Use(
        tuple(paths),
        write=writing,
        prune=options.prune_baseline,
        fixes=options.mode.write,
        only_read=stdin is not None or options.diff,
    )
    if baseline is not None:
        result = old_code.with_baseline(result, baseline, settings, use)
    if options.add_ignore is None or not old_code.add_ignores(result, options.add_ignore):
        return result
    again = _checked(paths, settings, replace(options, fix=False, repair=False), None)
    if baseline is not None:
        again = old_code.with_baseline(again, baseline, settings, replace(use, only_read=True))
    return old_code.joined(result, again)


def _checked(paths: Sequence[Path], settings: Settings, options: _Options, stdin: Source | None) -> RunResult:
    """The run itself, behind a progress bar where somebody can see it."""
    from amplint import runner
    from amplint.registry import NoRules, UnknownRule, select_rules

    try:
        with _progress(options, stdin) as progress:
            result = runner.run(
                [] if stdin is not None else paths,
                settings,
                fix=options.mode,
                cwd=Path.cwd(),
                stdin=stdin,
                progress=None if progress is None else progress.update,
                jobs=options.jobs,
                use_cache=not options.no_cache,
            )
        if not options.quiet and not select_rules(settings):
            complain("note: no rule is selected")
    except (UnknownRule, NoRules) as error:
        raise UserError(str(error)) from error
    return result


def _progress(options: _Options, stdin: Source | None) -> AbstractContextManager[Progress | None]:
    if options.quiet or stdin is not None or not is_terminal(sys.stderr):
        return nullcontext()
    from amplint.report.progress import Progress

    return Progress()


def _look(stream: TextIO) -> Look:
    from amplint.report.frame import Look

    return Look(wants_color(stream), stream.encoding)


def _changes(revision: str, path: Path) -> Changes:
    """What has changed since a revision of the repository that a path is in. UserError when git cannot say."""
    from amplint.changes import Changes, GitError

    try:
        return Changes(revision, path if path.is_dir() else path.parent)
    except GitError as error:
        raise UserError(f"--diff-base: {error}") from error


def _leave_out_unchanged(result: RunResult, changes: Changes, options: _Options) -> None:
    """Take the findings out that are about unchanged lines, and say on stderr how many these are."""
    from amplint.changes import GitError

    cwd = Path.cwd()
    found = result.findings

    def touched(findings: list[Finding]) -> list[Finding]:
        return [
            each
            for each in findings
            if changes.touches(each, result.sources.get(each.filename), cwd / each.filename)
        ]

    try:
        result.findings = touched(found)
        result.in_baseline = touched(result.in_baseline)
    except GitError as error:
        raise UserError(f"--diff-base: {error}") from error
    if options.quiet:
        return
    if left_out := len(found) - len(result.findings):
        noun = "finding" if left_out == 1 else "findings"
        complain(f"note: {left_out} {noun} on lines unchanged since {options.diff_base} left out")
    outside = sum(changes.is_outside(cwd / name) for name in {each.filename for each in result.findings})
    if outside:
        files = "1 file" if outside == 1 else f"{outside} files"
        complain(f"note: {files} outside the repository {changes.top}: every line there counts as changed")


def _write_report(result: RunResult, options: _Options, settings: Settings) -> None:
    """Write `--output-file`. UserError when that fails."""
    from amplint.report.frame import Look
    from amplint.source import SourceError, write_file

    assert options.output_file is not None
    text = _report(result, options, settings, Look())
    try:
        write_file(Path(options.output_file), text.encode("utf-8", "backslashreplace"))
    except SourceError as error:
        raise UserError(f"--output-file {error}") from error


def _summary(result: RunResult, options: _Options) -> str:
    """What there is for people where the report itself went elsewhere."""
    from amplint.report import text

    counts = text.statistics(result) if options.statistics else ""
    return counts + ("" if options.quiet else text.summary(result, options.mode))


def _report(result: RunResult, options: _Options, settings: Settings, look: Look, name: str = "") -> str:
    """The report in the format of this name, by default in the one of the settings."""
    from amplint.report import concise, json, text

    output_format = name or settings.output_format
    more = None
    if options.with_record is not None:
        from amplint.report import confirmed

        record, cwd = _record(options.with_record), Path.cwd()
        if output_format in ("json", "jsonl"):
            more = partial(confirmed.in_json, record=record, cwd=cwd)
        else:
            result = replace(result, findings=confirmed.in_words(result.findings, record, cwd))
    if output_format == "json":
        return json.render(result, more)
    if output_format == "jsonl":
        return json.render_lines(result, more)
    if output_format in FOR_PROGRAMS:
        from amplint.cli.ci_reports import report

        return report(output_format, result, options.mode, settings, look)
    if output_format == "concise":
        findings = concise.render(result, options.mode, look)
    else:
        findings = text.render(result, look)
    return findings + _summary(result, options)


def _record(folder: str) -> list[Seen]:
    """What a run found. UserError when its record cannot be read."""
    from amplint.report import confirmed

    try:
        return confirmed.read_record(Path(folder))
    except OSError as error:
        raise UserError(f"--with-record: {error}") from error


def _print_diffs(result: RunResult) -> None:
    from amplint.report import diff

    for change in result.changes:
        if is_terminal(sys.stdout):
            emit(diff.colored_file_diff(change, _look(sys.stdout)))
        else:
            emit(diff.file_diff(change))


def _fixed(stdin: Source, result: RunResult) -> bytes:
    """The code from stdin after the fixes. UserError when its encoding has no bytes for it."""
    from amplint.source import SourceError

    try:
        return stdin.encode(result.changes[0].new_text) if result.changes else stdin.data
    except SourceError as error:
        raise UserError(str(error)) from error


def _print_to_stderr(result: RunResult, options: _Options, settings: Settings, stdin: Source | None) -> None:
    """Failures, and what belongs to the report when something else took stdout."""
    from amplint.report import text

    look = _look(sys.stderr)
    if options.diff:
        complain(_summary(result, options))
    elif stdin is not None and options.mode.write:
        if options.output_file is not None:
            complain(_summary(result, options))
        else:
            complain(_report(result, options, settings, look, _for_people(settings)))
    elif options.output_file is None and settings.output_format in FOR_PROGRAMS:
        complain(text.statistics(result) if options.statistics else "")
        complain("" if options.quiet else text.notes(result))
    for problem in result.problems:
        complain(text.problem(problem, look))
    for line in text.internal_errors(result.internal_errors, look):
        complain(line)
    if not (result.files or result.problems or options.quiet):
        complain(_NO_FILES)


def _for_people(settings: Settings) -> str:
    return "text" if settings.output_format in FOR_PROGRAMS else settings.output_format


def _exit_code(result: RunResult, options: _Options) -> int:
    if result.internal_errors or result.problems:
        return FAILED
    return FINDINGS_REMAIN if _fails(result, options) else 0


def _fails(result: RunResult, options: _Options) -> bool:
    """Whether something is left, or in a diff, that is as severe as `--fail-on` says."""
    if options.exit_zero or options.fail_on == "never":
        return False
    shown = [fixed for change in result.changes for fixed in change.fixed] if options.diff else []
    if result.fixed_beyond_baseline is not None:
        shown = result.fixed_beyond_baseline if options.diff else []
    elif options.diff and options.fail_on == SEVERITIES[-1]:  # any change counts, whatever it fixes
        return bool(result.findings or result.changes)
    severe = SEVERITIES[: SEVERITIES.index(options.fail_on) + 1]
    return any(finding.severity.value in severe for finding in (*result.findings, *shown))


check = _command(
    "check",
    "Find mixed-precision bugs and CUDA-only AMP code.",
    "Find mixed-precision bugs and CUDA-only AMP code in PATHS: files and folders, by default the working"
    " directory, or - for code on stdin.",
    fix=False,
)
fix = _command(
    "fix",
    "Rewrite what can be rewritten.",
    "Make AMP code device-agnostic: `amplint check --fix`. Without --repair, what the code computes on CUDA"
    " stays as it is. Code on stdin (-) comes back on stdout, and the report on stderr.",
    fix=True,
)
