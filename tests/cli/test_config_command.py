from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from amplint.config import load_settings
from amplint.registry import all_rules
from amplint.report.settings import InForce, as_text


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def shown(amplint) -> Any:
    """What `amplint config` says, as an object."""

    def call(*args: str) -> Any:
        result = amplint("config", *args, "--output-format", "json")
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.isascii() and result.stdout.endswith("}\n")
        return json.loads(result.stdout)

    return call


def test_every_setting_is_shown_with_its_default(shown) -> None:
    settings = shown()["settings"]
    assert {entry["source"] for entry in settings.values()} == {"default"}
    assert settings["soc"]["value"] == "910B" and settings["torch"]["value"] == "2.7"
    assert settings["select"]["value"] == ["AMP1", "AMP2", "AMP3", "AMP5", "AMP9"]
    assert settings["cache-dir"]["value"] == str(Path.cwd() / ".amplint_cache")
    assert settings["per-file-ignores"]["value"] == {} and settings["ignore"]["value"] == []


def test_a_setting_is_shown_with_the_file_that_it_comes_from(shown) -> None:
    Path("base.toml").write_text('soc = "950"\ntorch = "2.3"\n')
    Path("amplint.toml").write_text('extend = "base.toml"\ntorch = "2.5"\ncache-dir = "c"\n')
    found = shown()
    settings = found["settings"]
    assert found["root"] == str(Path.cwd())
    assert settings["soc"] == {"value": "950", "source": str(Path("base.toml").absolute())}
    assert settings["torch"] == {"value": "2.5", "source": str(Path("amplint.toml").absolute())}
    assert settings["cache-dir"]["value"] == str(Path("c").absolute())
    assert settings["style"] == {"value": "auto", "source": "default"}


def test_tables_and_lists_keep_their_shape(shown) -> None:
    Path("amplint.toml").write_text(
        'ignore = ["AMP2"]\n[per-file-ignores]\n"a/" = ["AMP1", "AMP3"]\n[severity]\nAMP1 = "info"\n'
        '[aliases]\n"my.amp" = "torch.amp"\n'
    )
    values = {name: entry["value"] for name, entry in shown()["settings"].items()}
    assert values["ignore"] == ["AMP2"] and values["severity"] == {"AMP1": "info"}
    assert values["per-file-ignores"] == {"a/": ["AMP1", "AMP3"]}
    assert values["aliases"] == {"my.amp": "torch.amp"}


def test_the_path_decides_which_configuration_is_shown(shown) -> None:
    Path("inner").mkdir()
    Path("inner/amplint.toml").write_text('soc = "950"\n')
    Path("inner/train.py").touch()
    assert shown()["settings"]["soc"]["value"] == "910B"
    assert shown("inner")["settings"]["soc"]["value"] == "950"
    assert shown("inner/train.py")["settings"]["soc"]["value"] == "950"
    assert shown("inner", "--isolated")["settings"]["soc"]["value"] == "910B"
    assert shown("--config", "inner/amplint.toml")["settings"]["soc"]["value"] == "950"


def test_what_follows_from_the_settings_is_shown(shown) -> None:
    Path("requirements.txt").write_text("torch>=2.3\ntorch_npu\n")
    found = shown()
    requirements = str(Path("requirements.txt").absolute())
    assert found["target"] == {"value": "npu", "torch_npu": requirements}
    assert found["style"] == {"value": "shim"}
    assert found["settings"]["torch"] == {"value": "2.3", "source": requirements}
    assert found["settings"]["target"]["value"] == "auto"
    assert "AMP4" in found["settings"]["select"]["value"]


def test_the_selected_rules_are_counted(shown) -> None:
    Path("amplint.toml").write_text('select = ["AMP201", "AMP308"]\nignore = ["AMP308"]\n')
    assert shown()["rules"] == {"selected": 1, "installed": len(all_rules()), "codes": ["AMP201"]}


def test_the_text_is_a_configuration_that_means_the_same(amplint) -> None:
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    Path("amplint.toml").write_text(
        'select = ["AMP2"]\nsoc = "950"\nexclude = ["a b", "q\\"\\\\"]\nshim-module = "pkg._amp"\n'
        '[per-file-ignores]\n"a/#" = ["AMP1"]\n[severity]\nAMP1 = "info"\n[aliases]\n"my.amp" = "torch.amp"\n'
    )
    before = load_settings(Path.cwd())
    text = amplint("config").stdout
    assert tomllib.loads(text)["soc"] == "950"
    Path("amplint.toml").write_text(text)
    after = load_settings(Path.cwd())
    assert [
        (key, value, after_value)
        for (key, value, _), (_, after_value, _) in zip(before.in_force(), after.in_force(), strict=True)
        if value != after_value and key != "cache-dir"
    ] == []


def test_options_of_rules_keep_their_shape() -> None:
    Path("amplint.toml").write_text(
        '[rules.some-rule]\nnames = ["eps"]\nlimits = {low = 1, high = 2.5}\nstrict = true\n'
    )
    settings = load_settings(Path.cwd())
    in_force = InForce(settings, (), Path("c"), None, (), 1)
    values = {name: value for name, value, _ in in_force.rows()}
    assert values["rules"] == {
        "some-rule": {"names": ["eps"], "limits": {"low": 1, "high": 2.5}, "strict": True}
    }
    Path("amplint.toml").write_text(as_text(in_force))
    assert load_settings(Path.cwd()).rule_options == settings.rule_options


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[rules.no-such-rule]\nx = 1\n", "rules.no-such-rule: there is no rule of this name"),
        (
            "[rules.AMP201]\nx = 1\n",
            "rules.AMP201: there is no rule of this name; did you mean 'clip-before-unscale'?",
        ),
        ("[rules.clip-before-unscale]\nx = 1\n", "rules.clip-before-unscale.x: AMP201 has no options"),
        ("[tool.amplint]\nsoc = '950'\n", "settings stand without [tool.amplint]"),
    ],
)
def test_options_that_no_rule_has_are_refused(amplint, text, problem) -> None:
    Path("amplint.toml").write_text(text)
    found = amplint("config")
    assert found.exit_code == 2 and problem in found.stderr


def test_the_text_says_what_follows_from_the_settings(amplint) -> None:
    Path("amplint.toml").write_text('select = ["AMP201"]\n')
    Path("requirements.txt").write_text("torch_npu\n")
    lines = amplint("config").stdout.splitlines()
    assert lines[0] == f"# configuration: {Path.cwd()}"
    assert lines[-3:] == [
        f"# target in force: npu, because {Path('requirements.txt').absolute()} names torch_npu",
        "# style in force: torch",
        f"# rules selected: 1 of {len(all_rules())}",
    ]


def test_without_a_configuration_the_text_says_so(amplint) -> None:
    lines = amplint("config", "--isolated").stdout.splitlines()
    assert lines[0] == "# configuration: none"
    assert "# target in force: cuda" in lines


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("selct = []", "did you mean 'select'"),
        ('select = ["AMP2O1"]', "amplint.toml: select: unknown rule 'AMP2O1'"),
        ('per-file-ignores = {"a.py" = ["AMP2O1"]}', "amplint.toml: per-file-ignores: unknown rule 'AMP2O1'"),
        ("[", "not valid TOML"),
        ('cache-dir = ""', "cache-dir: expected a path, got an empty string"),
    ],
)
def test_a_broken_configuration_is_one_line_and_exit_2(amplint, toml: str, message: str) -> None:
    Path("amplint.toml").write_text(toml)
    result = amplint("config")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("args", [("gone",), ("",), ("a", "b"), ("--output-format", "toml")])
def test_wrong_usage_is_told_without_a_traceback(amplint, args) -> None:
    result = amplint("config", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr and result.stderr


def test_nothing_is_written(amplint) -> None:
    amplint("config")
    assert [path.name for path in Path.cwd().iterdir()] == [".git"]
