from __future__ import annotations

import subprocess
import sys

import pytest

import amplint
from amplint import check_source, fix_source
from amplint.finding import Severity
from amplint.registry import UnknownRule

BAD = "from torch.cuda.amp import autocast\nwith autocast():\n    pass\n"
REPAIR = "import torch\nwith torch.autocast('cuda') and torch.no_grad():\n    pass\n"


def test_findings_come_in_order_with_their_places_and_the_name_given() -> None:
    found = check_source(BAD, "train.py", target="npu")
    assert [(f.filename, f.start.row, f.start.column, f.code) for f in found] == [
        ("train.py", 1, 28, "AMP101"),
        ("train.py", 2, 6, "AMP101"),
    ]
    assert all((f.fix is None) != (f.no_fix_reason is None) and f.fingerprint and f.url for f in found)


@pytest.mark.parametrize(
    "text",
    ["", "\n", "x = 1\n", "# torch.cuda.amp.autocast\n", "'''from torch.cuda.amp import autocast'''\n"],
)
def test_code_without_mistakes_has_no_findings(text: str) -> None:
    assert check_source(text, select=["ALL"], target="npu") == []


def test_settings_are_those_of_the_configuration() -> None:
    assert check_source(BAD, select=["AMP2"]) == []
    assert check_source(BAD, ignore=("AMP1",)) == []
    assert {f.severity for f in check_source(BAD, target="npu")} == {Severity.ERROR}
    assert {f.severity for f in check_source(BAD, target="cuda")} == {Severity.WARNING}
    assert {f.severity for f in check_source(BAD, severity=(("AMP101", "info"),))} == {Severity.INFO}


def test_one_rule_may_be_selected_as_text() -> None:
    assert check_source(BAD, select="AMP101") == check_source(BAD, select=["AMP101"]) != []


def test_no_configuration_on_disk_is_read(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "amplint.toml").write_text('ignore = ["ALL"]\n')
    monkeypatch.chdir(tmp_path)
    assert check_source(BAD) != []


def test_an_unknown_rule_is_an_error_and_not_ignored() -> None:
    with pytest.raises(
        UnknownRule, match="unknown rule 'cuda-amp-autocas'; did you mean 'cuda-amp-autocast'"
    ):
        check_source(BAD, select=["cuda-amp-autocas"])


def test_an_unknown_setting_is_an_error() -> None:
    with pytest.raises(TypeError, match="targt"):
        check_source(BAD, targt="npu")


@pytest.mark.parametrize("text", ["x = (\n", "a\0b\n", "\ud800\n", "print 'a'\n"])
def test_text_that_cannot_be_parsed_is_a_finding(text: str) -> None:
    (finding,) = check_source(text, "a.py")
    assert finding.code == "AMP900" and finding.fix is None
    assert fix_source(text, "a.py") == text


def test_text_that_cannot_be_parsed_is_no_finding_of_other_rules() -> None:
    assert check_source("x = (\n", select=["AMP101"]) == []
    assert check_source("a\0b\n", select=["AMP101"]) == []


def test_safe_ports_are_applied_and_a_second_time_changes_nothing() -> None:
    fixed = fix_source(BAD, "train.py", target="npu")
    assert "torch.cuda.amp" not in fixed and fixed.count("with ") == 1
    assert fix_source(fixed, "train.py", target="npu") == fixed
    assert [f for f in check_source(fixed, "train.py", target="npu") if f.code == "AMP101"] == []


def test_repairs_are_applied_only_when_asked_for() -> None:
    assert fix_source(REPAIR, select=["AMP308"]) == REPAIR
    assert fix_source(REPAIR, select=["AMP308"], repair=True) == REPAIR.replace(" and", ",")


@pytest.mark.parametrize("text", [BAD.replace("\n", "\r\n"), "\ufeff" + BAD, BAD.rstrip(), BAD + "# ünï \f"])
def test_what_is_around_a_fix_stays(text: str) -> None:
    fixed = fix_source(text, target="npu")
    assert fixed != text
    assert fixed.startswith("\ufeff") == text.startswith("\ufeff")
    assert ("\r\n" in fixed) == ("\r\n" in text) and fixed.endswith(text[-6:])


def test_text_without_findings_comes_back_as_it_is() -> None:
    text = "\ufeffx = 1\r\ny = 2\r\tz"
    assert fix_source(text) == text


def test_an_internal_error_is_raised_and_no_findings_are_passed_off_as_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("amplint.engine.check", broken)
    with pytest.raises(RuntimeError, match="ZeroDivisionError: oh"):
        check_source(BAD)
    with pytest.raises(RuntimeError, match="ZeroDivisionError: oh"):
        fix_source(BAD)


def test_what_is_public_is_named() -> None:
    assert set(amplint.__all__) == {"__version__", "check_source", "fix_source"}
    assert all(hasattr(amplint, name) for name in amplint.__all__)


def test_importing_the_package_loads_no_parser() -> None:
    code = "import sys, amplint; sys.exit(bool({'libcst', 'torch', 'click', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
