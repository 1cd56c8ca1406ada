from __future__ import annotations

import pytest

from amplint.finding import (
    Applicability,
    Confidence,
    Edit,
    Fix,
    FixKind,
    InternalError,
    Note,
    Position,
    Severity,
    Span,
)
from amplint.report import text
from amplint.report.frame import Look
from amplint.runner import FileChange, FixMode, RunResult
from amplint.source import SourceError, source_from_text

PLAIN = Look()
SOURCE = source_from_text("scale()\nclip(x)\nstep()\n", "train.py")
CHECK = FixMode()
FIX = FixMode(ports=True, write=True)


def result(*findings: object, source=SOURCE, **fields: object) -> RunResult:
    fields.setdefault("files", 1)
    return RunResult(list(findings), sources={source.filename: source}, **fields)  # type: ignore[arg-type]


def a_fix(kind: FixKind = FixKind.PORT, applicability: Applicability = Applicability.SAFE) -> Fix:
    return Fix(kind, applicability, "do it right", (Edit(Span(0, 0), "x\n"),))


def test_a_finding_is_told_in_full(finding) -> None:
    fix = Fix(
        FixKind.REPAIR, Applicability.SAFE, "unscale before clipping", (Edit(Span(8, 8), "unscale()\n"),)
    )
    trace = (Note("train.py", Position(1, 1), "scaled here"), Note("train.py", Position(2, 1), "clipped"))
    assert text.render(result(finding(SOURCE, "clip(x)", fix=fix, trace=trace)), PLAIN) == (
        "train.py:2:1: AMP201 clip-before-unscale  clipped while still scaled\n"
        "      1 | scale()\n"
        "    > 2 | clip(x)\n"
        "        | ^^^^^^^ error\n"
        "      3 | step()\n"
        "  1. train.py:1: scaled here\n"
        "  2. train.py:2: clipped\n"
        "  fix (repair, safe): unscale before clipping\n"
        "    1   scale()\n"
        "      + unscale()\n"
        "    2   clip(x)\n"
        "\n"
    )


def test_the_reason_for_no_fix_is_told(finding) -> None:
    shown = text.render(result(finding(SOURCE, "clip", no_fix_reason="two optimizers")), PLAIN)
    assert shown.endswith("  no fix: two optimizers\n\n")


def test_a_confidence_that_is_not_high_stands_beside_the_severity(finding) -> None:
    reported = finding(SOURCE, "clip", severity=Severity.WARNING, confidence=Confidence.MEDIUM)
    assert "^^^^ warning, medium confidence\n" in text.render(result(reported), PLAIN)


def test_a_finding_without_a_source_has_no_frame_and_no_excerpt(finding) -> None:
    shown = text.render(RunResult([finding(SOURCE, "clip", fix=a_fix())]), PLAIN)
    assert shown == (
        "train.py:2:1: AMP201 clip-before-unscale  clipped while still scaled\n"
        "  fix (port, safe): do it right\n\n"
    )


def test_newlines_and_escapes_in_messages_and_names_do_not_reach_the_terminal(finding) -> None:
    note = Note("a\nb.py", Position(1, 1), "x\x1b[2J")
    reported = finding(SOURCE, "clip", filename="a\nb.py", message="one\ntwo\udc80", trace=(note,))
    shown = text.render(RunResult([reported]), PLAIN)
    assert shown.count("\n") == 3
    assert r"a\nb.py:2:1:" in shown and r"one\ntwo\udc80" in shown and r"x\x1b[2J" in shown


@pytest.mark.parametrize(
    ("severity", "code"), [(Severity.ERROR, "31"), (Severity.WARNING, "33"), (Severity.INFO, "36")]
)
def test_the_color_tells_the_severity(finding, severity: Severity, code: str) -> None:
    shown = text.render(result(finding(SOURCE, "clip", severity=severity)), Look(color=True))
    assert f"\x1b[{code};1mAMP201 clip-before-unscale\x1b[0m" in shown


def test_without_a_terminal_there_is_no_escape_and_no_trailing_blank(finding) -> None:
    fix = Fix(FixKind.PORT, Applicability.SAFE, "", (Edit(Span(8, 15), "\n"),))
    shown = text.render(result(finding(SOURCE, "clip", fix=fix)), PLAIN)
    assert "\x1b" not in shown
    assert all(line == line.rstrip() for line in shown.split("\n"))


AMP1 = {"code": "AMP101", "name": "cuda-amp-autocast", "severity": Severity.WARNING}
USES = source_from_text("import a\nb()\nc()\nd()\n", "train.py")


def test_uses_of_one_cuda_symbol_in_a_file_are_told_once(finding) -> None:
    uses = [finding(USES, word, **AMP1, fix=a_fix()) for word in ("import", "b()", "c()")]
    shown = text.render(result(*uses, source=USES), PLAIN)
    assert shown.count("AMP101") == 1
    assert "  and at 2 more places: 2:1, 3:1\n" in shown


def test_many_places_go_on_over_lines_of_a_fixed_width(finding) -> None:
    many = source_from_text("amp()\n" * 60, "train.py")
    uses = [
        finding(many, "amp", **AMP1, start=Position(row, 1), end=Position(row, 4)) for row in range(1, 61)
    ]
    lines = [
        line for line in text.render(result(*uses, source=many), PLAIN).splitlines() if ":1," in line[9:]
    ]
    assert len(lines) > 2 and all(len(line) <= 100 for line in lines)


@pytest.mark.parametrize(
    "other",
    [
        {"filename": "other.py"},
        {"code": "AMP102"},
        {"severity": Severity.INFO},
        {"fix": None, "no_fix_reason": "*args"},
        {"fix": a_fix(applicability=Applicability.UNSAFE)},
    ],
)
def test_uses_that_differ_in_what_matters_are_told_apart(finding, other: dict[str, object]) -> None:
    first = finding(USES, "b()", **AMP1, fix=a_fix())
    second = finding(USES, "c()", **({**AMP1, "fix": a_fix()} | other))
    shown = text.render(result(first, second, source=USES), PLAIN)
    assert "more place" not in shown and shown.count("do it right") == 2 - ("no_fix_reason" in other)


def test_findings_of_other_families_are_never_grouped(finding) -> None:
    shown = text.render(result(finding(SOURCE, "scale"), finding(SOURCE, "clip")), PLAIN)
    assert shown.count("AMP201") == 2


def test_the_summary_counts_findings_by_severity(finding) -> None:
    findings = [
        finding(SOURCE, "clip", severity=severity)
        for severity in (Severity.ERROR, Severity.ERROR, Severity.WARNING, Severity.INFO)
    ]
    assert text.summary(result(*findings), CHECK) == "4 findings in 1 file (2 errors, 1 warning, 1 info).\n"


def test_the_summary_says_when_there_is_nothing() -> None:
    assert text.summary(RunResult(files=12), CHECK) == "No findings in 12 files.\n"
    assert text.summary(RunResult(files=1), CHECK) == "No findings in 1 file.\n"
    assert text.summary(RunResult(), CHECK) == ""


def test_the_summary_says_which_option_fixes_how_much(finding) -> None:
    kinds = [
        (FixKind.PORT, Applicability.SAFE),
        (FixKind.PORT, Applicability.SAFE),
        (FixKind.PORT, Applicability.UNSAFE),
        (FixKind.REPAIR, Applicability.SAFE),
        (FixKind.REPAIR, Applicability.UNSAFE),
        (FixKind.REPAIR, Applicability.UNSAFE),
        (FixKind.REPAIR, Applicability.DISPLAY),
    ]
    found = result(*(finding(SOURCE, "clip", fix=a_fix(*kind)) for kind in kinds))
    assert text.summary(found, CHECK).splitlines()[1:] == [
        "2 fixable with `amplint fix`.",
        "1 repair changes numbers and waits for `amplint fix --repair`.",
        "1 unsafe port needs a look first: `amplint fix --unsafe-fixes`.",
        "2 unsafe repairs need a look first: `amplint fix --repair --unsafe-fixes`.",
    ]
    assert text.summary(found, FIX).splitlines()[1:] == text.summary(found, CHECK).splitlines()[2:]
    everything = FixMode(ports=True, repairs=True, unsafe=True, write=True)
    assert text.summary(found, everything).splitlines()[1:] == []


def test_unsafe_fixes_alone_fix_nothing_and_are_still_counted(finding) -> None:
    found = result(finding(SOURCE, "clip", fix=a_fix(applicability=Applicability.UNSAFE)))
    assert "1 unsafe port needs" in text.summary(found, FixMode(unsafe=True))


def test_the_summary_tells_what_was_fixed_and_what_is_left(finding) -> None:
    port = finding(SOURCE, "clip", **AMP1)
    change = FileChange(SOURCE, "", (port, port, finding(SOURCE, "clip")))
    fixed = "3 findings in 1 file: 2 AMP101 (cuda-amp-autocast), 1 AMP201 (clip-before-unscale).\n"
    assert text.summary(result(changes=[change]), FIX) == f"Fixed {fixed}No findings left in 1 file.\n"
    left = text.summary(result(finding(SOURCE, "clip"), changes=[change]), FIX)
    assert left == f"Fixed {fixed}1 finding left in 1 file (1 error).\n"
    assert text.summary(result(changes=[change]), FixMode(ports=True)).startswith(f"Would fix {fixed}")


@pytest.mark.parametrize(
    ("before", "after", "is_told"),
    [
        ("", "from amplint.runtime import autocast\n", True),
        ("", "from amplint import runtime\n", True),
        ("", "from pkg._amp import autocast\n", False),
        ("import amplint.runtime\n", "from amplint import runtime\n", False),
    ],
)
def test_the_summary_says_when_the_code_begins_to_need_the_shim(before, after, is_told) -> None:
    change = FileChange(source_from_text(before, "a.py"), after, ())
    assert ("amplint shim --vendor" in text.summary(result(changes=[change]), FIX)) is is_told


def test_statistics_count_by_rule_and_then_what_was_analysed(finding) -> None:
    findings = [finding(SOURCE, "clip"), finding(SOURCE, "step"), finding(SOURCE, "scale", **AMP1)]
    counted = result(*findings, statistics={"gave up": 0, "functions": 120})
    assert text.statistics(counted) == (
        "  2  AMP201 clip-before-unscale\n  1  AMP101 cuda-amp-autocast\n120  functions\n  0  gave up\n"
    )
    assert text.statistics(RunResult()) == ""


def test_a_problem_is_one_line_with_its_place_where_it_has_one() -> None:
    assert text.problem(SourceError("a.py", "does not exist"), PLAIN) == "error: a.py: does not exist"
    assert text.problem(SourceError("a.py", "NUL", Position(3, 2)), PLAIN) == "error: a.py:3:2: NUL"


def test_internal_errors_are_lines_and_one_traceback() -> None:
    errors = [
        InternalError("a.py", "KeyError: 1", "AMP201", "Traceback\n  one\n"),
        InternalError("b.py", "KeyError: 2", None, "Traceback\n  two\n"),
    ]
    lines = list(text.internal_errors(errors, PLAIN))
    assert lines[:3] == [
        "internal error: AMP201 in a.py: KeyError: 1",
        "internal error: b.py: KeyError: 2",
        "Traceback\n  one",
    ]
    assert "report" in lines[3] and len(lines) == 4
    assert list(text.internal_errors([], PLAIN)) == []
