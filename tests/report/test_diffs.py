from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from amplint.finding import Applicability, Edit, Fix, FixKind, Span
from amplint.report.diff import colored_file_diff, excerpt, file_diff
from amplint.report.frame import Look
from amplint.runner import FileChange
from amplint.source import Source, source_from_bytes, source_from_text

PLAIN = Look()


def changed(data: bytes, new_text: str, filename: str = "train.py") -> FileChange:
    return FileChange(source_from_bytes(data, filename), new_text, ())


def port(*edits: Edit) -> Fix:
    return Fix(FixKind.PORT, Applicability.SAFE, "use torch.autocast", edits)


def test_a_file_diff_is_a_unified_diff() -> None:
    assert file_diff(changed(b"a\nb\nc\n", "a\nB\nc\n")) == (
        b"--- a/train.py\n+++ b/train.py\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"
    )


def test_a_missing_final_newline_is_told() -> None:
    diff = file_diff(changed(b"a\nb", "a\nc"))
    assert diff.endswith(b"-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n")


def test_a_file_without_changes_has_no_diff() -> None:
    assert file_diff(changed(b"a\n", "a\n")) == b""


APPLICABLE = {
    "plain": (b"import a\nx = 1\n", "import b\nx = 1\n"),
    "crlf": (b"a\r\nb\r\nc\r\n", "a\r\nB\r\nc\r\n"),
    "mixed": (b"a\r\nb\nc\rd\n", "a\r\nb\nC\rd\n"),
    "bom": (b"\xef\xbb\xbfa\nb\n", "A\nb\n"),
    "latin-1": (b"# coding: latin-1\n# \xe9\nx\n", "# coding: latin-1\n# \xe9\ny\n"),
    "no-final-newline": (b"a\nb", "a\nB"),
    "insertion-at-the-end": (b"a\nb\n", "a\nb\nc\n"),
    "from-empty": (b"", "a\n"),
    "form-feed": (b"a\x0cb\nc\n", "a\x0cb\nd\n"),
}


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("case", APPLICABLE)
@pytest.mark.parametrize("name", ["train.py", "pkg/my train.py", "pkg/\u8bad\u7ec3.py"])
def test_git_applies_a_file_diff_byte_for_byte(case: str, name: str, tmp_path: Path) -> None:
    data, new_text = APPLICABLE[case]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    change = changed(data, new_text, name)
    command = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "-"]
    subprocess.run(command, input=file_diff(change), cwd=tmp_path, check=True)
    assert path.read_bytes() == change.source.encode(new_text)


def test_absolute_names_are_not_prefixed_and_odd_ones_quoted() -> None:
    assert file_diff(changed(b"a\n", "b\n", "/tmp/x.py")).startswith(b"--- /tmp/x.py\n+++ /tmp/x.py\n")
    assert file_diff(changed(b"a\n", "b\n", "x\ny.py")).startswith(b'--- "a/x\\ny.py"\n')
    assert file_diff(changed(b"a\n", "b\n", "x\udcff.py")).startswith(b"--- a/x\xff.py\n")


def test_a_file_diff_of_fifty_thousand_rows_takes_seconds_at_most() -> None:
    rows = [f"x{number % 700} = f({number % 13})\n" for number in range(50_000)]
    old = "".join(rows)
    rows[10], rows[25_000], rows[49_990] = "a\n", "b\n", "c\n"
    begin = time.perf_counter()
    diff = file_diff(changed(old.encode(), "".join(rows)))
    assert diff.count(b"\n@@ ") == 3
    assert time.perf_counter() - begin < 10


def test_a_diff_for_a_terminal_is_colored_and_harmless() -> None:
    shown = colored_file_diff(changed(b"a\n", "b\x1b[2J\n"), Look(color=True))
    assert "\x1b[31m-a\x1b[0m\n" in shown and "\x1b[32m+b\\x1b[2J\x1b[0m\n" in shown
    assert "\x1b" not in colored_file_diff(changed(b"a\n", "b\n"), PLAIN)


def excerpt_of(source: Source, finding: object, *edits: Edit) -> list[str]:
    return excerpt(source, finding, port(*edits), PLAIN)  # type: ignore[arg-type]


SCRIPT = "import torch\nfrom torch.cuda.amp import autocast\n\nwith autocast():\n    f()\n"


def test_an_excerpt_shows_the_changed_rows_with_one_of_context(finding, edit) -> None:
    source = source_from_text(SCRIPT, "train.py")
    change = edit(source, "autocast():", 'torch.autocast("cuda"):')
    assert excerpt_of(source, finding(source, "autocast():"), change) == [
        "3",
        "4 - with autocast():",
        '  + with torch.autocast("cuda"):',
        "5       f()",
    ]


def test_an_excerpt_shows_the_edits_near_the_finding_and_counts_the_others(finding, edit) -> None:
    source = source_from_text(SCRIPT.replace("\n\n", "\n" * 9), "train.py")
    use = edit(source, "autocast():", "amp():")
    import_ = edit(source, "from torch.cuda.amp import autocast\n", "")
    assert excerpt_of(source, finding(source, "autocast():"), import_, use) == [
        "10",
        "11 - with autocast():",
        "   + with amp():",
        "12       f()",
        "... and 1 other edit in this file",
    ]
    assert excerpt_of(source, finding(source, "from"), use, import_) == [
        "1   import torch",
        "2 - from torch.cuda.amp import autocast",
        "3",
        "... and 1 other edit in this file",
    ]


def test_neighbouring_edits_are_shown_together(finding, edit) -> None:
    source = source_from_text(SCRIPT, "train.py")
    edits = (
        edit(source, "from torch.cuda.amp import autocast\n", ""),
        edit(source, "autocast():", "amp():"),
    )
    assert excerpt_of(source, finding(source, "autocast():"), *edits) == [
        "1   import torch",
        "2 - from torch.cuda.amp import autocast",
        "3",
        "4 - with autocast():",
        "  + with amp():",
        "5       f()",
    ]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_inserted_rows_are_the_only_ones_that_change(newline: str, finding) -> None:
    source = source_from_text(newline.join(["a()", "clip()", "step()", ""]), "train.py")
    offset = source.text.index("clip")
    insertion = Edit(Span(offset, offset), f"unscale(){newline}")
    assert excerpt_of(source, finding(source, "clip()"), insertion) == [
        "1   a()",
        "  + unscale()",
        "2   clip()",
    ]


def test_an_edit_at_the_end_of_a_file_without_newline_is_shown(finding) -> None:
    source = source_from_text("a()\nstep()", "train.py")
    end = len(source.text)
    lines = excerpt_of(source, finding(source, "step()"), Edit(Span(end, end), "\nupdate()"))
    assert lines == ["2   step()", "  + update()"]


def test_an_edit_after_the_last_newline_is_shown(finding) -> None:
    source = source_from_text("step()\n", "train.py")
    lines = excerpt_of(source, finding(source, "step()"), Edit(Span(7, 7), "update()\n"))
    assert lines == ["1   step()", "  + update()"]


def test_an_edit_of_an_empty_file_is_shown(finding) -> None:
    source = source_from_text("", "train.py")
    assert excerpt_of(source, finding(source, ""), Edit(Span(0, 0), "import torch\n"))[-1] == (
        "  + import torch"
    )


def test_rows_joined_by_an_edit_are_both_shown(finding, edit) -> None:
    source = source_from_text("f(\n  a\n)\nb\n", "train.py")
    assert excerpt_of(source, finding(source, "a"), edit(source, "(\n  a\n)", "(a)")) == [
        "1 - f(",
        "2 -   a",
        "3 - )",
        "  + f(a)",
        "4   b",
    ]


def test_a_long_excerpt_ends_early(finding) -> None:
    text = "".join(f"    row{number}()\n" for number in range(60))
    source = source_from_text(text, "train.py")
    lines = excerpt_of(source, finding(source, "row0"), Edit(Span(0, len(text)), "pass\n"))
    assert len(lines) == 17 and lines[-1] == "... and 45 more lines"


def test_a_fix_that_changes_nothing_has_no_excerpt(finding) -> None:
    source = source_from_text("a\n", "train.py")
    assert excerpt_of(source, finding(source, "a")) == []
    assert excerpt_of(source, finding(source, "a"), Edit(Span(0, 1), "a")) == []


def test_the_changed_part_of_a_long_row_is_in_sight(finding, edit) -> None:
    source = source_from_text("x = [" + "1, " * 500 + "clip]\n", "train.py")
    removed, added = excerpt_of(source, finding(source, "clip"), edit(source, "clip", "unscale"))
    assert removed.endswith("clip]") and added.endswith("unscale]") and len(removed) < 140
