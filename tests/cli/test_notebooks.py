"""Notebooks on the command line: found, reported by cell in every format, fixed cell by cell."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

IMPORT = "%matplotlib inline\nimport torch\nfrom torch.cuda.amp import autocast"
USE = "%%time\nfor x in loader:\n    with autocast():\n        !nvidia-smi\n        model(x)"
FIXED_IMPORT = [
    "%matplotlib inline\n",
    "import torch\n",
    "\n",
    '# Device type for AMP; "cuda" without an accelerator, so that AMP stays disabled there.\n',
    'AMP_DEVICE = getattr(torch.accelerator.current_accelerator(), "type", "cuda")',
]
FIXED_USE = "    with torch.autocast(AMP_DEVICE, dtype=torch.float16):\n"
OPTIONS = ("--isolated", "--no-cache", "--torch", "2.8")


def notebook(*cells: str, **more: Any) -> dict[str, Any]:
    """A notebook with outputs; a cell that begins with # is one of text."""
    made: list[dict[str, Any]] = []
    for count, source in enumerate(cells, 1):
        rows = source.splitlines(keepends=True)
        if source.startswith("# "):
            made.append({"cell_type": "markdown", "metadata": {"tags": ["é"]}, "source": rows})
            continue
        output = {"output_type": "stream", "name": "stdout", "text": [f"autocast() {count}\n"]}
        made.append(
            {
                "cell_type": "code",
                "execution_count": count,
                "metadata": {"collapsed": True},
                "outputs": [output],
                "source": rows,
            }
        )
    return {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 4, **more}


def write(path: Path, *cells: str, **more: Any) -> Path:
    path.write_text(json.dumps(notebook(*cells, **more), indent=1, ensure_ascii=False) + "\n", "utf-8")
    return path


@pytest.fixture
def nb(tmp_path, monkeypatch) -> Path:
    """A notebook with an import in cell 2, a use in cell 4 and a shell script between."""
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "nb.ipynb", "# Title", IMPORT, "%%bash\nls", USE)


def test_a_notebook_is_found_beside_scripts_and_checkpoints_are_not(amplint, nb, tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    write(tmp_path / ".ipynb_checkpoints" / "nb-checkpoint.ipynb", IMPORT)
    assert amplint("check", "--isolated", "--show-files").stdout == "a.py\nnb.ipynb\n"


def test_text_has_the_cell_and_shows_its_rows_as_they_are(amplint, nb):
    result = amplint("check", *OPTIONS, "nb.ipynb")
    assert result.exit_code == 1
    assert "nb.ipynb:cell 2:3:28: AMP101 cuda-amp-autocast" in result.stdout
    assert "      1 | %matplotlib inline\n      2 | import torch\n    > 3 | from torch" in result.stdout
    assert "and at 1 more place: cell 4:3:10" in result.stdout
    assert "#%%%" not in result.stdout and "get_ipython" not in result.stdout
    assert "... and 2 other edits in this file" in result.stdout


def test_concise_has_the_cell(amplint, nb):
    lines = amplint("check", *OPTIONS, "-q", "--output-format", "concise", "nb.ipynb").stdout.splitlines()
    assert [line.split(" AMP101")[0] for line in lines] == ["nb.ipynb:cell 2:3:28:", "nb.ipynb:cell 4:3:10:"]


def test_json_has_the_cell_of_findings_steps_and_edits(amplint, nb, tmp_path):
    (found, _) = json.loads(amplint("check", *OPTIONS, "--output-format", "json", "nb.ipynb").stdout)
    assert (found["cell"], found["location"], found["end_location"]) == (
        2,
        {"row": 3, "column": 28},
        {"row": 3, "column": 36},
    )
    assert [(edit["cell"], edit["location"]["row"]) for edit in found["fix"]["edits"]][-1] == (4, 3)
    step = "scaler.scale(loss).backward()\nclip(model)\nscaler.step(optimizer)\nscaler.update()"
    helper = "import torch\nscaler = torch.amp.GradScaler()\ndef clip(m):\n    torch.nn.utils.clip_grad_norm_(m, 1)"
    write(tmp_path / "b.ipynb", helper, step)
    given = amplint("check", *OPTIONS, "--select", "AMP201", "--output-format", "jsonl", "b.ipynb").stdout
    trace = json.loads(given)["trace"]
    assert [(note["cell"], note["location"]["row"]) for note in trace][:2] == [(2, 1), (1, 4)]


def test_the_edits_in_json_make_the_fixed_notebook(amplint, nb):
    (found, *_) = json.loads(amplint("check", *OPTIONS, "--output-format", "json", "nb.ipynb").stdout)
    sources = ["".join(cell["source"]) for cell in json.loads(nb.read_text())["cells"]]
    for edit in reversed(found["fix"]["edits"]):
        rows = [*sources[edit["cell"] - 1].splitlines(keepends=True), ""]
        place, end = (
            sum(map(len, rows[: at["row"] - 1])) + at["column"] - 1
            for at in (edit["location"], edit["end_location"])
        )
        text = sources[edit["cell"] - 1]
        sources[edit["cell"] - 1] = text[:place] + edit["content"] + text[end:]
    amplint("fix", *OPTIONS, "nb.ipynb")
    fixed = ["".join(cell["source"]) for cell in json.loads(nb.read_text())["cells"]]
    assert [source.rstrip("\n") for source in sources] == fixed


def row_of(path: Path, text: str) -> int:
    return next(row for row, line in enumerate(path.read_text().splitlines(), 1) if text in line)


def test_github_and_gitlab_have_the_row_of_the_file_and_the_cell_in_words(amplint, nb):
    row = row_of(nb, "from torch.cuda")
    line = amplint("check", *OPTIONS, "--output-format", "github", "nb.ipynb").stdout.splitlines()[0]
    assert f"file=nb.ipynb,line={row},endLine={row},title" in line
    assert "::nb.ipynb:cell 2:3:28: AMP101" in line
    first, _ = json.loads(amplint("check", *OPTIONS, "--output-format", "gitlab", "nb.ipynb").stdout)
    assert first["location"] == {"path": "nb.ipynb", "lines": {"begin": row, "end": row}}
    assert first["description"].endswith("(cell 2, line 3)")


def test_sarif_has_the_row_of_the_file_and_the_cell_among_the_properties(amplint, nb):
    row = row_of(nb, "with autocast")
    log = json.loads(amplint("check", *OPTIONS, "--output-format", "sarif", "nb.ipynb").stdout)
    result = log["runs"][0]["results"][1]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": row, "endLine": row}
    assert {"cell": 4, "line": 3, "column": 10}.items() <= result["properties"].items()
    assert "fixes" not in result


def test_junit_and_markdown_have_the_cell(amplint, nb, monkeypatch):
    root = ElementTree.fromstring(amplint("check", *OPTIONS, "--output-format", "junit", "nb.ipynb").stdout)
    assert "nb.ipynb:cell 2:3:28: " in root.find(".//failure").get("message")
    for name, value in {"SERVER_URL": "https://example.com", "REPOSITORY": "a/b", "SHA": "c0ffee"}.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
    table = amplint("check", *OPTIONS, "--output-format", "markdown", "nb.ipynb").stdout
    row = row_of(nb, "from torch.cuda")
    assert f"[nb.ipynb:cell 2:3](https://example.com/a/b/blob/c0ffee/nb.ipynb?plain=1#L{row})" in table


# -- fixing ------------------------------------------------------------------------------------------------------


def test_a_fix_changes_the_touched_rows_and_nothing_else(amplint, nb):
    before = nb.read_text()
    result = amplint("fix", *OPTIONS, "nb.ipynb")
    assert result.exit_code == 0, result.output
    expected = json.loads(before)
    expected["cells"][1]["source"] = FIXED_IMPORT
    expected["cells"][3]["source"][2] = FIXED_USE
    assert nb.read_text() == json.dumps(expected, indent=1, ensure_ascii=False) + "\n"
    after = nb.read_bytes()
    assert amplint("fix", *OPTIONS, "nb.ipynb").exit_code == 0
    assert nb.read_bytes() == after


def test_the_shim_is_imported_where_torch_was(amplint, nb, tmp_path):
    (tmp_path / "amplint.toml").write_text('style = "shim"\nshim-module = "amplint_rt"\n')
    assert amplint("fix", "--no-cache", "nb.ipynb").exit_code == 0
    cells = json.loads(nb.read_text())["cells"]
    assert cells[1]["source"][-1] == "from amplint_rt import autocast"
    assert cells[3]["source"] == USE.splitlines(keepends=True)


def test_a_diff_is_one_of_the_file_that_git_takes(amplint, nb, tmp_path):
    before = nb.read_bytes()
    result = amplint("fix", *OPTIONS, "--diff", "nb.ipynb")
    assert nb.read_bytes() == before
    amplint("fix", *OPTIONS, "nb.ipynb")
    after = nb.read_bytes()
    nb.write_bytes(before)
    subprocess.run(["git", "apply"], input=result.stdout_bytes, check=True, cwd=tmp_path)
    assert nb.read_bytes() == after


def test_a_notebook_on_stdin_comes_back_as_one(amplint, nb):
    given = nb.read_bytes()
    result = amplint("fix", *OPTIONS, "--stdin-filename", "other.ipynb", "-", stdin=given)
    assert "other.ipynb" not in result.stdout
    amplint("fix", *OPTIONS, "nb.ipynb")
    assert result.stdout_bytes == nb.read_bytes()
    clean = json.dumps(notebook("x = 1")).encode()
    assert amplint("fix", *OPTIONS, "--stdin-filename", "a.ipynb", "-", stdin=clean).stdout_bytes == clean


def test_nothing_is_written_where_nothing_is_fixed(amplint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "a.ipynb", "import torch", "x = torch.ones(1)")
    odd = path.read_bytes().replace(b'"cells"', b'"cells"  ')
    path.write_bytes(odd)
    assert amplint("fix", *OPTIONS, "a.ipynb").exit_code == 0
    assert path.read_bytes() == odd


def test_a_fix_that_does_not_fit_into_the_cells_says_so(amplint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "a.ipynb", "    from torch.cuda.amp import autocast", "with autocast():\n    f()")
    before = path.read_bytes()
    result = amplint("fix", *OPTIONS, "a.ipynb")
    assert result.exit_code == 1
    assert "no fix: " in result.stdout
    assert path.read_bytes() == before


# -- errors ------------------------------------------------------------------------------------------------------


def test_a_broken_cell_is_a_finding_and_the_others_are_checked(amplint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "a.ipynb", IMPORT, "x = (", "print 'two'", "with autocast():\n    f()")
    result = amplint("check", *OPTIONS, "-q", "--output-format", "concise", "a.ipynb")
    codes = [line.split()[:3] for line in result.stdout.splitlines()]
    assert codes == [
        ["a.ipynb:cell", "1:3:28:", "AMP101"],
        ["a.ipynb:cell", "2:1:5:", "AMP900"],
        ["a.ipynb:cell", "3:1:1:", "AMP900"],
        ["a.ipynb:cell", "4:1:6:", "AMP101"],
    ]
    assert amplint("fix", *OPTIONS, "a.ipynb").exit_code == 1
    cells = json.loads(path.read_text())["cells"]
    assert (cells[1]["source"], cells[2]["source"]) == (["x = ("], ["print 'two'"])
    assert cells[0]["source"] == FIXED_IMPORT


@pytest.mark.parametrize("content", [b"", b"{", b'{"cells": ["\xff', b"[1]", b"[" * 100_000])
def test_what_is_no_notebook_is_a_syntax_error_and_does_not_stop_the_others(amplint, nb, tmp_path, content):
    (tmp_path / "bad.ipynb").write_bytes(content)
    result = amplint("check", *OPTIONS, "-q", "--output-format", "concise")
    assert result.exit_code == 1
    assert "bad.ipynb:1:" in result.stdout and "AMP900 cannot be parsed: not a notebook" in result.stdout
    assert "nb.ipynb:cell 2:3:28" in result.stdout
    assert amplint("fix", *OPTIONS, "bad.ipynb").exit_code == 1
    assert (tmp_path / "bad.ipynb").read_bytes() == content


# -- what silences, and what is known already --------------------------------------------------------------------


def test_comments_in_cells_silence(amplint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = (
        f"{IMPORT}  # amplint: ignore[AMP101] why",
        "# amplint: ignore[AMP101] x\nwith autocast():\n    f()",
    )
    path = write(tmp_path / "a.ipynb", cells[0], cells[1].replace("# amplint", "#amplint", 1))
    assert amplint("check", *OPTIONS, "a.ipynb").exit_code == 0
    write(path, IMPORT, "with autocast():\n    f()", "#amplint: file-ignore[AMP101] the whole notebook")
    assert amplint("check", *OPTIONS, "a.ipynb").exit_code == 0
    write(
        path,
        "#amplint: disable[AMP101] x\nx = 1",
        IMPORT,
        "#amplint: enable[AMP101]",
        "with autocast():\n    f()",
    )
    result = amplint("check", *OPTIONS, "-q", "--output-format", "concise", "a.ipynb")
    assert [line.split(" AMP")[0] for line in result.stdout.splitlines()] == ["a.ipynb:cell 4:1:6:"]


def test_comments_are_added_to_cells(amplint, nb):
    result = amplint("check", *OPTIONS, "--add-ignore", "old", "nb.ipynb")
    assert result.exit_code == 0, result.output
    cells = json.loads(nb.read_text())["cells"]
    assert cells[1]["source"][2] == "from torch.cuda.amp import autocast  # amplint: ignore[AMP101] old"
    assert cells[3]["source"][2] == "    with autocast():  # amplint: ignore[AMP101] old\n"
    assert cells[3]["source"][0] == "%%time\n"


def test_the_baseline_holds_when_cells_move(amplint, nb):
    assert amplint("check", *OPTIONS, "--write-baseline", "known.json", "nb.ipynb").exit_code == 0
    write(nb, "# New", "x = 1", IMPORT, USE)
    assert amplint("check", *OPTIONS, "--baseline", "known.json", "nb.ipynb").exit_code == 0


def test_fingerprints_hold_when_cells_move(amplint, nb):
    def fingerprints() -> list[str]:
        found = json.loads(amplint("check", *OPTIONS, "--output-format", "json", "nb.ipynb").stdout)
        return [each["fingerprint"] for each in found]

    before = fingerprints()
    write(nb, "# New", "x = 1", f"{IMPORT}\ny = 2", "z = 1", USE)
    assert fingerprints() == before


def test_the_cache_gives_the_same(amplint, nb):
    arguments = ("check", "--isolated", "--cache-dir", "cache", "--output-format", "json", "nb.ipynb")
    first = amplint(*arguments)
    assert json.loads(first.stdout)[1]["cell"] == 4
    assert amplint(*arguments).stdout == first.stdout
    fixed = amplint("fix", *arguments[1:4], "--torch", "2.8", "nb.ipynb")
    assert fixed.exit_code == 0


def test_diff_base_goes_by_the_rows_of_the_file_and_not_by_outputs(amplint, nb, tmp_path):
    def git(*arguments: str) -> None:
        names = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "x")
    changed = json.loads(nb.read_text())
    changed["cells"][1]["outputs"] = []
    changed["cells"][3]["source"][2] = "    with autocast(enabled=True):\n"
    nb.write_text(json.dumps(changed, indent=1, ensure_ascii=False) + "\n")
    result = amplint("check", *OPTIONS, "-q", "--diff-base", "HEAD", "--output-format", "concise", "nb.ipynb")
    assert [line.split(" AMP")[0] for line in result.stdout.splitlines()] == ["nb.ipynb:cell 4:3:10:"]


# -- other commands ----------------------------------------------------------------------------------------------


def test_explain_flow_takes_a_cell(amplint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loop = "for x in y:\n    scaler.scale(model(x)).backward()\n    !ls\n    scaler.step(optimizer)\n    scaler.update()"
    write(tmp_path / "a.ipynb", "import torch\nscaler = torch.amp.GradScaler()", "# text", loop)
    for place in ("a.ipynb:3:4", "a.ipynb:cell 3:4"):
        result = amplint("check", "--isolated", "--explain-flow", place)
        assert "a.ipynb:cell 3:4: scaler.step(optimizer)" in result.stdout
        assert "backward on line 2 of cell 3" in result.stdout
    assert "NOTEBOOK:CELL:LINE" in amplint("check", "--isolated", "--explain-flow", "a.ipynb:4").stderr
    missing = amplint("check", "--isolated", "--explain-flow", "a.ipynb:2:1")
    assert (missing.exit_code, "no line 1 of Python in a cell 2" in missing.stderr) == (2, True)


def test_ops_name_the_cell(amplint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path / "a.ipynb",
        "import torch",
        "x = 1\nwith torch.autocast('cuda'):\n    y = torch.ones(2, 2) @ torch.ones(2, 2)",
    )
    result = amplint("ops", "--isolated", "a.ipynb")
    assert result.stdout.startswith("a.ipynb:cell 2:2: torch.autocast('cuda')")
    assert "cell 2:3" in result.stdout
    region = json.loads(amplint("ops", "--isolated", "--output-format", "json", "a.ipynb").stdout)["regions"][
        0
    ]
    assert (region["cell"], region["line"], region["operators"][0]["cell"]) == (2, 2, 2)


def test_a_notebook_uses_the_modules_beside_it(amplint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper.py").write_text(
        "import torch\n\n\ndef clip(model):\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    )
    loop = "scaler.scale(loss).backward()\nclip(model)\nscaler.step(optimizer)\nscaler.update()"
    write(
        tmp_path / "a.ipynb", "import torch\nfrom helper import clip", "scaler = torch.amp.GradScaler()", loop
    )
    found = json.loads(
        amplint("check", *OPTIONS, "--select", "AMP201", "--output-format", "json", ".").stdout
    )
    assert [(each["filename"], each["cell"]) for each in found[0]["trace"]][:2] == [
        ("a.ipynb", 3),
        ("helper.py", None),
    ]


def test_percent_scripts_need_nothing_special(amplint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = "# %%\nimport torch\nfrom torch.cuda.amp import autocast\n\n# %% [markdown]\n# Text\n\n# %%\nwith autocast():\n    f()\n"
    (tmp_path / "a.py").write_text(script)
    result = amplint("check", *OPTIONS, "-q", "--output-format", "concise", "a.py")
    assert [line.split(" AMP")[0] for line in result.stdout.splitlines()] == ["a.py:3:28:", "a.py:9:6:"]
    assert amplint("fix", *OPTIONS, "a.py").exit_code == 0
    text = (tmp_path / "a.py").read_text()
    assert text.startswith("# %%\nimport torch\n") and text.count("# %%") == 3
    assert text.endswith(
        "# %% [markdown]\n# Text\n\n# %%\nwith torch.autocast(AMP_DEVICE, dtype=torch.float16):\n    f()\n"
    )


def test_the_hooks_are_given_notebooks():
    hooks = (Path(__file__).parents[2] / ".pre-commit-hooks.yaml").read_text()
    assert hooks.count("types_or: [python, pyi, jupyter]") == hooks.count("- id:") == 3
