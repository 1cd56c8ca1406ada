from __future__ import annotations

import dataclasses
import os
import pickle
import sys
from pathlib import Path

import pytest

from amplint.config import DEFAULT_EXCLUDE, ConfigError, Settings, load_settings


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository, so that nothing above it counts."""
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    (root / "src" / "pkg").mkdir(parents=True)
    return root


def configure(folder: Path, text: str, name: str = "amplint.toml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def complaint(folder: Path, text: str, name: str = "amplint.toml") -> str:
    path = configure(folder, text, name)
    with pytest.raises(ConfigError) as caught:
        load_settings(folder)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message.replace(str(path), "FILE")


# Defaults


def test_the_defaults_are_the_documented_ones() -> None:
    settings = Settings()
    assert settings.select is None
    assert (settings.target, settings.soc, settings.torch, settings.style) == ("auto", "910B", (2, 7), "auto")
    assert (settings.min_confidence, settings.output_format) == ("medium", "text")
    assert settings.shim_module == "amplint.runtime"
    assert settings.fixable == ("ALL",)
    assert not settings.preview
    assert not settings.force_exclude
    assert settings.respect_gitignore
    assert {".git", "venv", "build", "*.egg-info"} <= set(settings.exclude)


def test_a_project_without_configuration_gets_the_defaults(project: Path) -> None:
    settings = load_settings(project)
    assert settings == Settings()
    assert settings.sources == ()
    assert settings.root is None


def test_settings_are_frozen_hashable_and_survive_pickling(project: Path) -> None:
    configure(
        project, 'select = ["AMP2"]\n[rules.eps-underflow]\nnames = ["eps", "tiny"]\nlimits = {low = 1}\n'
    )
    settings = load_settings(project)
    assert hash(settings) == hash(pickle.loads(pickle.dumps(settings)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.select = None  # type: ignore[misc]


def test_where_values_come_from_does_not_make_settings_differ() -> None:
    assert Settings(sources=(("soc", "a.toml"),)) == Settings()


# Reading every setting


def test_every_setting_is_read_from_amplint_toml(project: Path) -> None:
    path = configure(
        project,
        """
        select = ["AMP2", "clip-before-unscale"]
        ignore = ["AMP203"]
        extend-select = ["AMP8"]
        exclude = ["legacy/"]
        extend-exclude = ["gen_*.py"]
        force-exclude = true
        respect-gitignore = false
        target = "npu"
        soc = "950"
        torch = "2.4"
        style = "shim"
        shim-module = "pkg._amp"
        fixable = ["AMP1"]
        unfixable = ["AMP101"]
        min-confidence = "low"
        preview = true
        output-format = "sarif"
        cache-dir = ".cache"
        baseline = "known.json"
        [per-file-ignores]
        "tests/*" = ["AMP2", "AMP3"]
        [severity]
        AMP101 = "info"
        [aliases]
        "mycorp.amp.autocast" = "torch.cuda.amp.autocast"
        [rules.eps-underflow]
        names = ["eps"]
        minimum = 1e-7
        """,
    )
    expected = Settings(
        select=("AMP2", "clip-before-unscale"),
        ignore=("AMP203",),
        extend_select=("AMP8",),
        per_file_ignores=(("tests/*", ("AMP2", "AMP3")),),
        exclude=("legacy/",),
        extend_exclude=("gen_*.py",),
        force_exclude=True,
        respect_gitignore=False,
        target="npu",
        soc="950",
        torch=(2, 4),
        style="shim",
        shim_module="pkg._amp",
        fixable=("AMP1",),
        unfixable=("AMP101",),
        severity=(("AMP101", "info"),),
        min_confidence="low",
        preview=True,
        output_format="sarif",
        cache_dir=project / ".cache",
        baseline=project / "known.json",
        aliases=(("mycorp.amp.autocast", "torch.cuda.amp.autocast"),),
        rule_options=(("eps-underflow", (("names", ("eps",)), ("minimum", 1e-7))),),
        root=project,
    )
    settings = load_settings(project)
    assert settings == expected
    assert settings.options("eps-underflow") == {"names": ("eps",), "minimum": 1e-7}
    assert settings.options("other-rule") == {}
    assert settings.source_of("soc") == str(path)
    unset = {"root", "requires_npu", "sources"}
    assert {field.name for field in dataclasses.fields(Settings)} - unset == dict(settings.sources).keys()


def test_pyproject_is_read_from_its_table(project: Path) -> None:
    path = configure(project, '[tool.other]\nsoc = "x"\n[tool.amplint]\nsoc = "910C"\n', "pyproject.toml")
    settings = load_settings(project)
    assert settings.soc == "910C"
    assert settings.source_of("soc") == str(path)
    assert settings.source_of("style") == "default"


def test_rule_options_in_pyproject_live_in_the_rules_table(project: Path) -> None:
    configure(project, "[tool.amplint.rules.eps-underflow]\nminimum = 1\n", "pyproject.toml")
    assert load_settings(project).options("eps-underflow") == {"minimum": 1}


def test_codes_are_not_validated_here(project: Path) -> None:
    configure(project, 'select = ["NOPE999"]\n')
    assert load_settings(project).select == ("NOPE999",)


def test_an_empty_selection_is_not_the_default_one(project: Path) -> None:
    configure(project, "select = []\n")
    assert load_settings(project).select == ()


def test_an_alias_key_without_quotes_means_the_same(project: Path) -> None:
    configure(
        project, '[aliases]\nmycorp.amp.autocast = "torch.autocast"\nmycorp.Scaler = "torch.amp.GradScaler"\n'
    )
    assert load_settings(project).aliases == (
        ("mycorp.amp.autocast", "torch.autocast"),
        ("mycorp.Scaler", "torch.amp.GradScaler"),
    )


def test_a_bom_and_crlf_in_the_file_do_not_matter(project: Path) -> None:
    (project / "amplint.toml").write_bytes(b'\xef\xbb\xbfsoc = "950"\r\n')
    assert load_settings(project).soc == "950"


def test_an_empty_file_is_a_configuration_too(project: Path) -> None:
    configure(project, "")
    assert load_settings(project).root == project


# Which file


def test_the_nearest_file_upward_wins(project: Path) -> None:
    configure(project, 'soc = "950"\n')
    assert load_settings(project / "src" / "pkg").soc == "950"
    configure(project / "src", 'style = "shim"\n')
    settings = load_settings(project / "src" / "pkg")
    assert (settings.soc, settings.style, settings.root) == ("910B", "shim", project / "src")


def test_a_file_as_start_means_its_folder(project: Path) -> None:
    configure(project, 'soc = "950"\n')
    script = configure(project / "src", "x = 1\n", "train.py")
    assert load_settings(script).soc == "950"


def test_amplint_toml_beats_pyproject_in_the_same_folder(project: Path) -> None:
    configure(project, '[tool.amplint]\nsoc = "950"\nstyle = "shim"\n', "pyproject.toml")
    configure(project, 'soc = "910C"\n')
    settings = load_settings(project)
    assert (settings.soc, settings.style) == ("910C", "auto")


def test_a_pyproject_without_the_table_is_passed_over(project: Path) -> None:
    configure(project, 'soc = "950"\n')
    configure(project / "src", '[project]\nname = "amplint-users"\n', "pyproject.toml")
    assert load_settings(project / "src").soc == "950"


def test_a_broken_pyproject_that_does_not_mention_us_is_passed_over(project: Path) -> None:
    configure(project, 'soc = "950"\n')
    configure(project / "src", "[[[\ntorch", "pyproject.toml")
    assert load_settings(project / "src").soc == "950"


def test_a_folder_named_like_the_file_is_passed_over(project: Path) -> None:
    (project / "amplint.toml").mkdir()
    (project / "pyproject.toml").mkdir()
    assert load_settings(project) == Settings()


@pytest.mark.skipif(os.name != "posix", reason="FIFOs")
def test_a_fifo_named_like_the_file_is_not_waited_for(project: Path) -> None:
    os.mkfifo(project / "amplint.toml")
    os.mkfifo(project / "requirements.txt")
    assert load_settings(project) == Settings()


def test_a_file_given_explicitly_beats_the_nearest(project: Path, tmp_path: Path) -> None:
    configure(project, 'soc = "950"\n')
    other = configure(tmp_path / "etc", 'style = "torch"\n', "house.toml")
    settings = load_settings(project, config_file=other)
    assert (settings.soc, settings.style, settings.root) == ("910B", "torch", other.parent)


def test_a_file_given_explicitly_must_exist(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml: no such configuration file"):
        load_settings(project, config_file=project / "gone.toml")


def test_a_pyproject_given_explicitly_must_have_the_table(project: Path) -> None:
    path = configure(project, "[project]\n", "pyproject.toml")
    with pytest.raises(ConfigError, match=r"no \[tool\.amplint\]"):
        load_settings(project, config_file=path)


def test_an_isolated_run_reads_nothing(project: Path) -> None:
    configure(project, 'soc = "950"\nnonsense = 1\n')
    configure(project, "torch==2.1\ntorch_npu\n", "requirements.txt")
    settings = load_settings(project, isolated=True)
    assert settings == Settings()
    assert settings.effective_target == "cuda"


def test_an_isolated_run_takes_overrides(project: Path) -> None:
    assert load_settings(project, isolated=True, overrides={"torch": "2.3"}).torch == (2, 3)


def test_an_isolated_run_cannot_have_a_file(project: Path) -> None:
    path = configure(project, "")
    with pytest.raises(ConfigError, match="isolated"):
        load_settings(project, isolated=True, config_file=path)


# Extend


def test_a_file_extends_another_key_by_key(project: Path) -> None:
    base = configure(project / "etc", 'soc = "950"\nstyle = "shim"\ncache-dir = "c"\n', "base.toml")
    own = configure(project, 'extend = "etc/base.toml"\nstyle = "torch"\n')
    settings = load_settings(project)
    assert (settings.soc, settings.style) == ("950", "torch")
    assert (settings.source_of("soc"), settings.source_of("style")) == (str(base), str(own))
    assert settings.root == project
    assert settings.cache_dir == project / "etc" / "c"


def test_extend_reaches_through_several_files_and_pyproject(project: Path) -> None:
    configure(project, '[tool.amplint]\nsoc = "950"\n', "pyproject.toml")
    configure(project / "src", 'extend = "../pyproject.toml"\npreview = true\n')
    configure(project / "src" / "pkg", 'extend = "../amplint.toml"\nstyle = "shim"\n')
    settings = load_settings(project / "src" / "pkg")
    assert (settings.soc, settings.preview, settings.style) == ("950", True, "shim")


def test_lists_replace_but_extend_lists_add_and_tables_merge(project: Path) -> None:
    configure(
        project,
        'ignore = ["A"]\nextend-select = ["B"]\nextend-exclude = ["x"]\n'
        '[severity]\nAMP1 = "info"\nAMP2 = "info"\n[per-file-ignores]\n"a" = ["A"]\n',
        "base.toml",
    )
    configure(
        project,
        'extend = "base.toml"\nignore = ["C"]\nextend-select = ["D", "B"]\nextend-exclude = ["y"]\n'
        '[severity]\nAMP2 = "error"\n[per-file-ignores]\n"b" = ["B"]\n',
    )
    settings = load_settings(project)
    assert settings.ignore == ("C",)
    assert settings.extend_select == ("B", "D")
    assert settings.extend_exclude == ("x", "y")
    assert settings.severity == (("AMP1", "info"), ("AMP2", "error"))
    assert settings.per_file_ignores == (("a", ("A",)), ("b", ("B",)))


def test_torch_auto_takes_back_what_an_extended_file_says(project: Path) -> None:
    configure(project, 'torch = "2.1"\n', "base.toml")
    configure(project, 'extend = "base.toml"\ntorch = "auto"\n')
    settings = load_settings(project)
    assert settings.torch == (2, 7)
    assert settings.source_of("torch") == "default"


def test_a_file_that_extends_itself_is_an_error(project: Path) -> None:
    assert "extends itself" in complaint(project, 'extend = "amplint.toml"\n')


def test_files_that_extend_each_other_are_an_error(project: Path) -> None:
    configure(project, 'extend = "amplint.toml"\n', "base.toml")
    configure(project, 'extend = "base.toml"\n')
    with pytest.raises(ConfigError, match="extends itself"):
        load_settings(project)


@pytest.mark.skipif(os.name != "posix", reason="symbolic links")
def test_a_cycle_behind_a_link_is_an_error(project: Path) -> None:
    (project / "base.toml").symlink_to("amplint.toml")
    configure(project, 'extend = "base.toml"\n')
    with pytest.raises(ConfigError, match="extends itself"):
        load_settings(project)


def test_two_files_may_extend_the_same_one(project: Path) -> None:
    configure(project, 'soc = "950"\n', "base.toml")
    configure(project, 'extend = "base.toml"\n')
    configure(project / "src", 'extend = "../base.toml"\n')
    assert load_settings(project).soc == load_settings(project / "src").soc == "950"


def test_extending_a_file_that_does_not_exist_is_an_error(project: Path) -> None:
    assert complaint(project, 'extend = "gone.toml"\n') == "FILE: extend: 'gone.toml' does not exist"


def test_an_error_in_an_extended_file_names_that_file(project: Path) -> None:
    base = configure(project, "socks = 1\n", "base.toml")
    configure(project, 'extend = "base.toml"\n')
    with pytest.raises(ConfigError) as caught:
        load_settings(project)
    assert str(caught.value).startswith(f"{base}: unknown setting 'socks'")


# Complaints


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selct = []", "FILE: unknown setting 'selct'; did you mean 'select'?"),
        (
            "per_file_ignores = {}",
            "FILE: unknown setting 'per_file_ignores'; did you mean 'per-file-ignores'?",
        ),
        ("Target = 1", "FILE: unknown setting 'Target'; did you mean 'target'?"),
        ("extends = 'a'", "FILE: unknown setting 'extends'; did you mean 'extend'?"),
        ("qqq = 1", "FILE: unknown setting 'qqq'"),
        ("root = 'a'", "FILE: unknown setting 'root'"),
        ("requires-npu = true", "FILE: unknown setting 'requires-npu'"),
        ("target = 'npuu'", "FILE: target: unknown value 'npuu'; did you mean 'npu'?"),
        ("target = 'tpx0'", "FILE: target: unknown value 'tpx0'; expected one of auto, cuda, npu"),
        ("soc = '910b'", "FILE: soc: unknown value '910b'; did you mean '910B'?"),
        ("soc = 950", "FILE: soc: expected a string, got an integer"),
        ("style = 'shims'", "FILE: style: unknown value 'shims'; did you mean 'shim'?"),
        ("min-confidence = 'hi'", "FILE: min-confidence: unknown value 'hi'; did you mean 'high'?"),
        ("output-format = 'jsn'", "FILE: output-format: unknown value 'jsn'; did you mean 'json'?"),
        ("select = 'AMP2'", "FILE: select: expected a list of strings, got a string"),
        ("select = ['AMP2', 3]", "FILE: select: expected a list of strings, got a list with an integer"),
        ("preview = 1", "FILE: preview: expected true or false, got an integer"),
        ("preview = 'yes'", "FILE: preview: expected true or false, got a string"),
        ("cache-dir = true", "FILE: cache-dir: expected a string, got a boolean"),
        ("extend = ['a']", "FILE: extend: expected a string, got a list"),
        ("severity = []", "FILE: severity: expected a table, got a list"),
        ("severity = 'error'", "FILE: severity: expected a table, got a string"),
        (
            "severity = {AMP1 = 'fatal'}",
            "FILE: severity.AMP1: unknown value 'fatal'; expected one of error, warning, info",
        ),
        ("per-file-ignores = ['a']", "FILE: per-file-ignores: expected a table, got a list"),
        (
            "per-file-ignores = {a = 'b'}",
            "FILE: per-file-ignores.'a': expected a list of strings, got a string",
        ),
        ("aliases = {'a b' = 'c'}", "FILE: aliases: 'a b' is not a dotted name"),
        ("aliases = {a = 'b.'}", "FILE: aliases.a: 'b.' is not a dotted name"),
        ("aliases = {a = 1}", "FILE: aliases.a: expected a string, got an integer"),
        ("shim-module = 'pkg/_amp.py'", "FILE: shim-module: 'pkg/_amp.py' is not a dotted name"),
        ("rules = 1", "FILE: rules: expected a table, got an integer"),
        ("rules = {a = 1}", "FILE: rules.a: expected a table, got an integer"),
        ("torch = 2.10", 'FILE: torch: expected a string such as "2.4" or "auto", got a float'),
        ("torch = '2'", 'FILE: torch: expected a version such as "2.4" or "auto", got \'2\''),
        ("torch = '>=2.4'", 'FILE: torch: expected a version such as "2.4" or "auto", got \'>=2.4\''),
        ("torch = [2, 4]", 'FILE: torch: expected a string such as "2.4" or "auto", got a list'),
    ],
)
def test_a_wrong_setting_is_an_error_that_helps(project: Path, text: str, message: str) -> None:
    assert complaint(project, text) == message


@pytest.mark.parametrize("text", ["select = [", "a = 1\na = 2", "= 1", "x" * 10])
def test_broken_toml_is_an_error_with_its_place(project: Path, text: str) -> None:
    assert complaint(project, text).startswith("FILE: not valid TOML: ")


def test_a_file_that_is_not_utf8_is_an_error(project: Path) -> None:
    path = project / "amplint.toml"
    path.write_bytes(b'soc = "\xff"\n')
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_settings(project)


def test_absurd_nesting_is_an_error_not_a_crash(project: Path) -> None:
    assert "not valid TOML" in complaint(project, "select = " + "[" * 20_000 + "]" * 20_000)


def test_broken_toml_in_a_pyproject_that_mentions_us_is_an_error(project: Path) -> None:
    assert "not valid TOML" in complaint(project, "[tool.amplint]\nselect = [\n", "pyproject.toml")


def test_a_tool_table_that_is_no_table_is_an_error(project: Path) -> None:
    assert complaint(project, "[tool]\namplint = 1\n", "pyproject.toml") == (
        "FILE: tool.amplint: expected a table, got an integer"
    )


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_an_error(project: Path) -> None:
    configure(project, "").chmod(0)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        load_settings(project)


# Overrides


def test_overrides_win_and_say_where_they_come_from(project: Path) -> None:
    configure(project, 'soc = "950"\nselect = ["AMP1"]\n')
    settings = load_settings(project, overrides={"soc": "910A", "select": ["AMP2"]})
    assert (settings.soc, settings.select) == ("910A", ("AMP2",))
    assert settings.source_of("soc") == "command line"


def test_an_override_of_none_is_not_given(project: Path) -> None:
    configure(project, 'soc = "950"\npreview = true\n')
    settings = load_settings(project, overrides={"soc": None, "preview": None, "select": None})
    assert (settings.soc, settings.preview, settings.select) == ("950", True, None)


def test_an_override_of_false_is_given(project: Path) -> None:
    configure(project, "preview = true\n")
    assert not load_settings(project, overrides={"preview": False}).preview


def test_overrides_are_spelled_with_dashes_or_underscores(project: Path) -> None:
    for key in ("min-confidence", "min_confidence"):
        assert load_settings(project, overrides={key: "low"}).min_confidence == "low"


def test_override_lists_may_be_tuples_or_comma_separated_text(project: Path) -> None:
    for value in (("AMP1", "AMP2"), "AMP1,AMP2", "AMP1, AMP2,"):
        assert load_settings(project, overrides={"select": value}).select == ("AMP1", "AMP2")


def test_override_tables_may_be_pairs(project: Path) -> None:
    configure(project, '[severity]\nAMP1 = "info"\n')
    settings = load_settings(project, overrides={"severity": (("AMP2", "error"),)})
    assert settings.severity == (("AMP1", "info"), ("AMP2", "error"))


def test_extend_overrides_add_to_the_file(project: Path) -> None:
    configure(project, 'extend-select = ["AMP8"]\n')
    assert load_settings(project, overrides={"extend_select": "AMP4"}).extend_select == ("AMP8", "AMP4")


def test_an_overridden_cache_dir_is_relative_to_the_working_directory(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "src")
    assert load_settings(project, overrides={"cache_dir": Path("c")}).cache_dir == project / "src" / "c"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"selct": "x"}, "command line: unknown setting 'selct'; did you mean 'select'?"),
        ({"target": "gpu"}, "command line: target: unknown value 'gpu'"),
        ({"torch": "two"}, "command line: torch: expected a version"),
        ({"extend": "a.toml"}, "command line: unknown setting 'extend'"),
    ],
)
def test_a_wrong_override_is_an_error(project: Path, overrides: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(project, overrides=overrides)
    assert str(caught.value).startswith(message)


def test_torch_auto_on_the_command_line_reads_the_dependencies_again(project: Path) -> None:
    configure(project, 'torch = "2.2"\n')
    configure(project, "torch>=2.5\n", "requirements.txt")
    assert load_settings(project).torch == (2, 2)
    assert load_settings(project, overrides={"torch": "auto"}).torch == (2, 5)


# Target and style


@pytest.mark.parametrize(
    ("target", "requires_npu", "effective"),
    [
        ("auto", False, "cuda"),
        ("auto", True, "npu"),
        ("cuda", True, "cuda"),
        ("npu", False, "npu"),
    ],
)
def test_the_target_is_npu_when_the_project_depends_on_torch_npu(
    target: str, requires_npu: bool, effective: str
) -> None:
    assert Settings(target=target, requires_npu=requires_npu).effective_target == effective


@pytest.mark.parametrize(
    ("style", "torch", "soc", "effective"),
    [
        ("auto", (2, 7), "910B", "torch"),
        ("auto", (2, 10), "910B", "torch"),
        ("auto", (3, 0), "950", "torch"),
        ("auto", (2, 6), "910B", "shim"),
        ("auto", (2, 7), "910A", "shim"),
        ("torch", (2, 1), "910A", "torch"),
        ("shim", (2, 9), "910B", "shim"),
    ],
)
def test_the_style_is_torch_from_2_7_on_except_on_910a(
    style: str, torch: tuple[int, int], soc: str, effective: str
) -> None:
    assert Settings(style=style, torch=torch, soc=soc).effective_style == effective


# Dependencies


@pytest.mark.parametrize(
    ("requirement", "torch"),
    [
        ("torch>=2.1", (2, 1)),
        ("torch >= 2.1.2", (2, 1)),
        ("torch==2.4.0", (2, 4)),
        ("torch==2.4.*", (2, 4)),
        ("torch===2.4.0+cu121", (2, 4)),
        ("torch~=2.3", (2, 3)),
        ("torch>2.2", (2, 2)),
        ("torch>=2", (2, 0)),
        ("torch>=1.13", (1, 13)),
        ("torch>=2.10", (2, 10)),
        ("torch<3,>=2.2,!=2.3.0", (2, 2)),
        ("torch (>=2.1)", (2, 1)),
        ("torch[opt-einsum]>=2.5 ; python_version >= '3.9'", (2, 5)),
        ("Torch>=2.1", (2, 1)),
        ("torch>=2.6.0rc1", (2, 6)),
        ("torch @ https://example.org/whl/torch-2.3.1%2Bcu118-cp310-linux_x86_64.whl", (2, 3)),
        ("torch<2.6", (2, 5)),
        ("torch<=2.5.1", (2, 5)),
        ("torch<2.6.1", (2, 6)),
        ("torch<3", (2, 7)),
        ("torch", (2, 7)),
        ("torch!=2.3", (2, 7)),
        ("torch @ git+https://example.org/pytorch.git", (2, 7)),
        ("torchvision==0.15", (2, 7)),
        ("torch-geometric>=2.0", (2, 7)),
        ("pytorch-lightning>=2.0", (2, 7)),
        ("numpy>=1.20 ; extra == 'torch>=2.1'", (2, 7)),
        ("# torch>=2.1", (2, 7)),
        ("", (2, 7)),
    ],
)
@pytest.mark.parametrize("kind", ["pyproject", "setup.cfg", "requirements"])
def test_the_oldest_torch_is_read_from_the_dependencies(
    project: Path, kind: str, requirement: str, torch: tuple[int, int]
) -> None:
    if kind == "pyproject":
        path = configure(
            project, f'[project]\nname = "x"\ndependencies = ["numpy", "{requirement}"]\n', "pyproject.toml"
        )
    elif kind == "setup.cfg":
        path = configure(
            project, f"[options]\ninstall_requires =\n    numpy\n    {requirement}\n", "setup.cfg"
        )
    else:
        path = configure(project, f"numpy\n{requirement}\n", "requirements.txt")
    settings = load_settings(project)
    assert settings.torch == torch
    assert settings.source_of("torch") == ("default" if torch == (2, 7) else str(path))
    assert not settings.requires_npu


def test_requirement_files_may_have_comments_options_hashes_and_continued_lines(project: Path) -> None:
    configure(
        project,
        "-r other.txt\n--index-url https://example.org/99.0\n"
        "torch==2.4.0 \\\n    --hash=sha256:99aa \\\n    --hash=sha256:88bb  # not 2.9\n",
        "requirements-train.txt",
    )
    assert load_settings(project).torch == (2, 4)


def test_requirement_files_in_any_encoding_are_read(project: Path) -> None:
    (project / "requirements.txt").write_bytes("torch==2.4.0\r\n".encode("utf-16"))
    assert load_settings(project).torch == (2, 4)
    (project / "requirements.txt").write_bytes(b"# caf\xe9\ntorch==2.3.0\n")
    assert load_settings(project).torch == (2, 3)


def test_of_several_requirement_files_the_oldest_torch_of_the_first_that_says_counts(project: Path) -> None:
    configure(project, "numpy\n", "requirements.txt")
    configure(project, "torch==2.5\ntorch==2.4; python_version < '3.9'\n", "requirements/train.txt")
    settings = load_settings(project)
    assert settings.torch == (2, 4)
    assert settings.source_of("torch") == str(project / "requirements" / "train.txt")


def test_dependencies_are_believed_before_extras_and_these_before_pins(project: Path) -> None:
    configure(project, "torch==2.6.0\n", "requirements.txt")
    extras = '[project.optional-dependencies]\ntrain = ["torch>=2.3"]\n'
    configure(project, f'[project]\nname = "x"\n{extras}', "pyproject.toml")
    assert load_settings(project).torch == (2, 3)
    configure(project, f'[project]\nname = "x"\ndependencies = ["torch>=2.1"]\n{extras}', "pyproject.toml")
    assert load_settings(project).torch == (2, 1)


def test_setup_cfg_extras_and_dependency_groups_count(project: Path) -> None:
    configure(project, "[metadata]\nname = x\n[options.extras_require]\ngpu = torch>=2.2\n", "setup.cfg")
    assert load_settings(project).torch == (2, 2)
    configure(
        project,
        '[build-system]\n[dependency-groups]\ndev = ["torch>=2.1", {include-group = "x"}]\n',
        "pyproject.toml",
    )
    assert load_settings(project).torch == (2, 1)


@pytest.mark.parametrize(
    ("version", "torch"),
    [
        ('"^2.1"', (2, 1)),
        ('"~2.2"', (2, 2)),
        ('{version = ">=2.3,<3", optional = true}', (2, 3)),
        ('"2.4.1"', (2, 4)),
        ('"*"', (2, 7)),
        ('{git = "https://example.org/torch.git", tag = "v2.1"}', (2, 7)),
    ],
)
def test_poetry_dependencies_count(project: Path, version: str, torch: tuple[int, int]) -> None:
    configure(project, f'[tool.poetry.dependencies]\npython = "^3.10"\ntorch = {version}\n', "pyproject.toml")
    assert load_settings(project).torch == torch


@pytest.mark.parametrize(
    "spelling", ["torch_npu", "torch-npu==2.1.0.post3", "Torch.NPU>=2.1", "torch_npu @ https://a/b"]
)
def test_torch_npu_among_the_dependencies_makes_npu_the_target(project: Path, spelling: str) -> None:
    path = configure(project, f"numpy\n{spelling}\n", "requirements-npu.txt")
    settings = load_settings(project)
    assert settings.requires_npu
    assert settings.effective_target == "npu"
    assert settings.source_of("requires_npu") == str(path)
    assert settings.torch == (2, 7)


def test_torch_npu_is_found_although_torch_is_configured(project: Path) -> None:
    configure(project, 'torch = "2.1"\n')
    configure(project, "torch_npu\n", "requirements.txt")
    assert load_settings(project).effective_target == "npu"


def test_a_configured_target_is_kept(project: Path) -> None:
    configure(project, 'target = "cuda"\n')
    configure(project, "torch_npu\n", "requirements.txt")
    assert load_settings(project).effective_target == "cuda"


@pytest.mark.parametrize(
    "text", ["# torch_npu\n", "torch_npu_tools\n", "my-torch-npu\n", "-r torch_npu.txt\n"]
)
def test_what_is_not_torch_npu_changes_nothing(project: Path, text: str) -> None:
    configure(project, text, "requirements.txt")
    assert load_settings(project).effective_target == "cuda"


def test_a_subproject_of_a_monorepo_has_its_own_dependencies(project: Path) -> None:
    configure(project, "torch==2.1\ntorch_npu\n", "requirements.txt")
    configure(project / "src", '[project]\nname = "x"\ndependencies = ["torch>=2.5"]\n', "pyproject.toml")
    settings = load_settings(project / "src" / "pkg")
    assert settings.torch == (2, 5)
    assert not settings.requires_npu
    assert load_settings(project).torch == (2, 1)


def test_a_pyproject_that_only_configures_tools_does_not_end_the_project(project: Path) -> None:
    configure(project, "torch==2.1\n", "requirements.txt")
    configure(project / "src", "[tool.ruff]\nline-length = 99\n", "pyproject.toml")
    assert load_settings(project / "src").torch == (2, 1)


def test_nothing_above_the_repository_counts(project: Path) -> None:
    configure(project.parent, "torch==2.1\ntorch_npu\n", "requirements.txt")
    assert load_settings(project / "src").torch == (2, 7)


def test_dependencies_are_the_linted_projects_not_the_config_files(project: Path, tmp_path: Path) -> None:
    other = configure(tmp_path / "etc", "", "house.toml")
    configure(tmp_path / "etc", "torch==2.1\n", "requirements.txt")
    configure(project, "torch==2.5\n", "requirements.txt")
    assert load_settings(project, config_file=other).torch == (2, 5)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.cfg", "[options\ninstall_requires"),
        ("setup.cfg", "[options]\ninstall_requires = %(x)s torch\n"),
        ("setup.cfg", "\x00\xff"),
        ("pyproject.toml", '[project]\ndependencies = ["torch>=2.1"'),
        ("pyproject.toml", "[project]\ndependencies = 3\noptional-dependencies = 4\n"),
        ("pyproject.toml", "project = 3\ntool = 4\ndependency-groups = 5\n"),
        ("pyproject.toml", "[project]\ndependencies = [3, ['torch>=2.1']]\n"),
        ("pyproject.toml", "[tool.poetry]\ndependencies = 3\ngroup = {a = 1, b = {dependencies = 2}}\n"),
        ("requirements.txt", "\x00 torch\n===\n;;;\n[torch]>=2.1\n"),
    ],
)
def test_broken_dependency_files_are_not_our_business(project: Path, name: str, text: str) -> None:
    configure(project, text, name)
    assert load_settings(project) == Settings()


def test_nothing_of_the_project_is_executed(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trap = "import sys\nprint('executed')\nsys.exit(3)\n"
    for name in ("setup.py", "conftest.py", "tomllib.py", "tomli.py", "configparser.py", "amplint.py"):
        configure(project, trap, name)
    configure(project, 'soc = "950"\n')
    configure(project, "[options]\ninstall_requires = torch>=2.1\n", "setup.cfg")
    before = set(sys.modules)
    assert load_settings(project).torch == (2, 1)
    assert not {name for name in set(sys.modules) - before if name in ("setup", "conftest")}
    assert capfd.readouterr().out == ""


def test_the_default_excludes_are_replaced_by_exclude_only(project: Path) -> None:
    configure(project, 'extend-exclude = ["gen"]\n')
    assert load_settings(project).exclude == DEFAULT_EXCLUDE
    configure(project, 'exclude = ["gen"]\n')
    assert load_settings(project).exclude == ("gen",)
