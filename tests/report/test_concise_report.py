from __future__ import annotations

import pytest

from amplint.finding import Applicability, Fix, FixKind, Note, Position, Severity
from amplint.report.concise import render
from amplint.report.frame import Look
from amplint.runner import FixMode, RunResult
from amplint.source import source_from_text

SOURCE = source_from_text("scale()\nclip(x)\nstep()\n", "pkg/train.py")
PLAIN = Look()


def rendered(*findings: object, unsafe: bool = False, look: Look = PLAIN) -> str:
    result = RunResult(list(findings), sources={SOURCE.filename: SOURCE})  # type: ignore[arg-type]
    return render(result, FixMode(unsafe=unsafe), look)


def test_nothing_found_is_no_line() -> None:
    assert rendered() == ""


def test_a_finding_is_its_place_its_code_and_its_message(finding) -> None:
    assert rendered(finding(SOURCE, "clip")) == "pkg/train.py:2:1: AMP201 clipped while still scaled\n"


@pytest.mark.parametrize(
    ("kind", "applicability", "mark", "mark_when_unsafe"),
    [
        (FixKind.PORT, Applicability.SAFE, "[*] ", "[*] "),
        (FixKind.REPAIR, Applicability.SAFE, "[+] ", "[+] "),
        (FixKind.PORT, Applicability.UNSAFE, "", "[*] "),
        (FixKind.REPAIR, Applicability.UNSAFE, "", "[+] "),
        (FixKind.PORT, Applicability.DISPLAY, "", ""),
        (FixKind.REPAIR, Applicability.DISPLAY, "", ""),
    ],
)
def test_a_mark_says_which_command_fixes_it(
    finding, edit, kind, applicability, mark: str, mark_when_unsafe: str
) -> None:
    fix = Fix(kind, applicability, "", (edit(SOURCE, "clip", "cut"),))
    fixable = finding(SOURCE, "clip", fix=fix)
    line = "pkg/train.py:2:1: AMP201 {}clipped while still scaled\n"
    assert rendered(fixable) == line.format(mark)
    assert rendered(fixable, unsafe=True) == line.format(mark_when_unsafe)


def test_there_are_no_frames_traces_or_reasons(finding) -> None:
    trace = (Note("pkg/loss.py", Position(1, 3), "scaled here"),)
    text = rendered(finding(SOURCE, "clip", trace=trace, no_fix_reason="two optimizers"))
    assert text.count("\n") == 1 and "scaled here" not in text and "two optimizers" not in text


def test_equal_findings_of_a_file_have_a_line_each(finding) -> None:
    findings = [finding(SOURCE, place, code="AMP101") for place in ("scale", "clip", "step")]
    assert [line.split(":")[1] for line in rendered(*findings).splitlines()] == ["1", "2", "3"]


def test_a_newline_in_a_name_or_a_message_does_not_begin_a_line(finding) -> None:
    text = rendered(finding(SOURCE, "clip", filename="a\nb.py", message="one\r\ntwo \x1b[0m"))
    assert text == "a\\nb.py:2:1: AMP201 one\\r\\ntwo \\x1b[0m\n"


def test_colors_are_for_those_who_want_them(finding) -> None:
    warning = finding(SOURCE, "clip", severity=Severity.WARNING)
    assert "\x1b[33;1mAMP201\x1b[0m" in rendered(warning, look=Look(color=True))
    assert "\x1b" not in rendered(warning)
