from __future__ import annotations

import builtins
import codecs
import errno
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from amplint.finding import Position
from amplint.source import (
    FileChanged,
    Source,
    SourceError,
    read_source,
    source_from_bytes,
    source_from_text,
    write_atomic,
)

needs_posix = pytest.mark.skipif(os.name != "posix", reason="POSIX files")
needs_user = pytest.mark.skipif(
    os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything"
)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_bytes(b"x = 1\n")
    return path


def read(path: Path) -> Source:
    return read_source(path, path.name)


def failure(data: bytes) -> SourceError:
    with pytest.raises(SourceError) as caught:
        source_from_bytes(data, "bad.py")
    assert caught.value.filename == "bad.py"
    assert "\n" not in caught.value.message
    return caught.value


# Decoding


def test_plain_text_is_utf8() -> None:
    source = source_from_bytes("é = '≤'\n".encode(), "a.py")
    assert (source.text, source.encoding, source.bom, source.path) == ("é = '≤'\n", "utf-8", b"", None)


def test_an_empty_file_has_one_empty_row() -> None:
    source = source_from_bytes(b"", "a.py")
    assert source.text == ""
    assert source.line_starts == (0,)
    assert source.line_text(1) == ""
    assert source.position(0) == Position(1, 1)
    assert source.newline == "\n"


def test_a_bom_is_removed_from_the_text_and_comes_back_with_the_bytes() -> None:
    data = codecs.BOM_UTF8 + b"x = 1\n"
    source = source_from_bytes(data, "a.py")
    assert source.text == "x = 1\n"
    assert source.bom == codecs.BOM_UTF8
    assert source.encode(source.text) == data
    assert source.position(0) == Position(1, 1)


def test_a_bom_without_anything_behind_it_is_an_empty_text() -> None:
    source = source_from_bytes(codecs.BOM_UTF8, "a.py")
    assert source.text == ""
    assert source.encode("") == codecs.BOM_UTF8


def test_only_the_first_of_two_boms_is_removed() -> None:
    data = codecs.BOM_UTF8 * 2 + b"x"
    source = source_from_bytes(data, "a.py")
    assert source.text == "\ufeffx"
    assert source.encode(source.text) == data


@pytest.mark.parametrize("first", ["", "#!/usr/bin/env python\n", "\n", "  # hello\n", "\f\n"])
@pytest.mark.parametrize(
    "cookie", ["# -*- coding: latin-1 -*-", "# vim: set fileencoding=latin-1 :", "#coding=latin-1"]
)
def test_a_coding_cookie_in_the_first_two_rows_counts(first: str, cookie: str) -> None:
    data = f"{first}{cookie}\nx = 'é'\n".encode("latin-1")
    source = source_from_bytes(data, "a.py")
    assert source.encoding == "iso8859-1"
    assert source.text.endswith("x = 'é'\n")
    assert source.encode(source.text) == data


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_a_cookie_counts_whatever_newline_ends_its_row(newline: str) -> None:
    data = f"#!python{newline}# coding: cp1252{newline}x = '€'{newline}".encode("cp1252")
    source = source_from_bytes(data, "a.py")
    assert "'€'" in source.text
    assert source.encode(source.text) == data


def test_a_cookie_in_the_third_row_does_not_count() -> None:
    assert source_from_bytes(b"#\n#\n# coding: latin-1\n", "a.py").encoding == "utf-8"


def test_a_cookie_behind_code_does_not_count() -> None:
    assert source_from_bytes(b"x = 1  # coding: latin-1\n", "a.py").encoding == "utf-8"
    assert source_from_bytes(b"x = 1\n# coding: latin-1\n", "a.py").encoding == "utf-8"


def test_a_cookie_inside_a_string_does_not_count() -> None:
    assert source_from_bytes(b'"""\n# coding: klingon\n"""\n', "a.py").encoding == "utf-8"


@pytest.mark.parametrize("name", ["utf8", "UTF-8", "utf_8", "utf-8-unix", "utf-8-sig", "utf-8-dos"])
def test_spellings_of_utf8_never_add_a_bom(name: str) -> None:
    data = f"# coding: {name}\n".encode()
    source = source_from_bytes(data, "a.py")
    assert source.encoding == "utf-8"
    assert source.encode(source.text) == data


def test_latin_1_with_an_editors_suffix_is_latin_1() -> None:
    assert source_from_bytes(b"# coding: latin-1-unix\n", "a.py").encoding == "iso8859-1"


@pytest.mark.parametrize("name", ["klingon", "rot13", "hex", "base64", "utf-16", "utf-32"])
def test_a_cookie_that_names_no_text_encoding_is_an_error_at_the_cookie(name: str) -> None:
    error = failure(f"#!python\n# coding: {name}\n".encode())
    assert name in error.message
    assert error.position == Position(2, 11)


def test_a_cookie_that_contradicts_the_bom_is_an_error() -> None:
    error = failure(codecs.BOM_UTF8 + b"# coding: latin-1\n")
    assert "BOM" in error.message
    assert error.position.row == 1


def test_bytes_that_are_not_utf8_are_an_error_where_they_stand() -> None:
    error = failure("x = 1\ny = 'é ".encode() + b"\xff'\n")
    assert error.message.startswith("not a Python text file (not utf-8")
    assert error.position == Position(2, 8)


def test_bytes_that_are_not_in_the_declared_encoding_are_an_error() -> None:
    assert "ascii" in failure(b"# coding: ascii\nx = '\xe9'\n").message


def test_utf8_encoded_surrogates_are_an_error() -> None:
    failure(b"x = '\xed\xa0\x80'\n")


def test_nul_bytes_are_an_error_with_their_place() -> None:
    error = failure(b"x = 1\ny = \0\n")
    assert error.message == "not a Python text file (contains NUL bytes)"
    assert error.position == Position(2, 5)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_utf16_and_utf32_are_not_python(encoding: str) -> None:
    assert failure("x = 1\n".encode(encoding)).message.startswith("not a Python text file")


def test_a_binary_named_py_is_an_error() -> None:
    failure(b"\x7fELF\x02\x01\x01" + b"\0" * 9)
    failure(bytes(range(128, 256)))


# Text given as text


def test_text_keeps_its_newlines_and_is_utf8_whatever_its_cookie_says() -> None:
    source = source_from_text("# coding: latin-1\r\nx = '≤'\r", "a.py")
    assert source.text == "# coding: latin-1\r\nx = '≤'\r"
    assert source.encoding == "utf-8"
    assert source.data == source.text.encode()


def test_text_with_a_bom_loses_it_and_gets_it_back() -> None:
    source = source_from_text("\ufeffx = 1", "a.py")
    assert source.text == "x = 1"
    assert source.encode("y") == codecs.BOM_UTF8 + b"y"


def test_text_with_lone_surrogates_is_kept_but_cannot_be_encoded() -> None:
    source = source_from_text("x = '\ud800'\n", "a.py")
    assert source.position(6).column == 7
    with pytest.raises(SourceError, match="cannot be encoded as utf-8"):
        source.encode(source.text)


def test_text_with_nul_characters_is_an_error_with_their_place() -> None:
    with pytest.raises(SourceError) as caught:
        source_from_text("é\né\0", "a.py")
    assert caught.value.position == Position(2, 2)


# Encoding


def test_a_text_that_the_encoding_lacks_is_an_error_that_names_the_character() -> None:
    source = source_from_bytes(b"# coding: latin-1\n", "a.py")
    with pytest.raises(SourceError, match=r"iso8859-1.*u2264"):
        source.encode("x = '≤'\n")


def test_a_file_that_its_encoding_does_not_reproduce_is_not_rewritten() -> None:
    data = b"# coding: utf-7\nx = '+AGE-'\n"  # an a, which would come back as a plain one
    source = source_from_bytes(data, "a.py")
    assert "'a'" in source.text
    with pytest.raises(SourceError, match="round-trip"):
        source.encode(source.text + "y = 1\n")


def test_a_multibyte_encoding_that_reproduces_the_file_is_rewritten() -> None:
    data = "# coding: shift_jis\nx = '学習'\n".encode("shift_jis")
    source = source_from_bytes(data, "a.py")
    assert source.encode(source.text + "y = '率'\n") == data + "y = '率'\n".encode("shift_jis")


# Rows and columns


def test_rows_end_at_the_three_newlines_only() -> None:
    source = source_from_text("a\fb\x0bc\x85d\u2028e\u2029f\x1cg\nh\r\ni\rj", "a.py")
    assert [source.line_text(row) for row in range(1, 5)] == [
        "a\fb\x0bc\x85d\u2028e\u2029f\x1cg",
        "h",
        "i",
        "j",
    ]
    assert len(source.line_starts) == 4


def test_a_final_newline_is_followed_by_an_empty_row() -> None:
    source = source_from_text("a\r\n", "a.py")
    assert source.line_starts == (0, 3)
    assert source.line_text(2) == ""
    assert source.position(3) == Position(2, 1)


def test_a_carriage_return_before_crlf_is_a_row_of_its_own() -> None:
    source = source_from_text("a\r\r\nb", "a.py")
    assert source.line_starts == (0, 2, 4)
    assert source.line_text(2) == ""


def test_trailing_blanks_belong_to_the_row() -> None:
    assert source_from_text("a \t\f\n", "a.py").line_text(1) == "a \t\f"


@pytest.mark.parametrize("text", ["", "a", "a\n", "é\r\n\r\n𝔘x\rb\n\n", "\n", "\r", "\r\n", "\f\na\f"])
def test_position_and_offset_are_inverse(text: str) -> None:
    source = source_from_text(text, "a.py")
    positions = [source.position(offset) for offset in range(len(text) + 1)]
    assert positions == sorted(set(positions))
    assert [source.offset(position) for position in positions] == list(range(len(text) + 1))


def test_columns_count_code_points_not_bytes_or_utf16_units() -> None:
    assert source_from_text("𝔘é = 1", "a.py").position(3) == Position(1, 4)


@pytest.mark.parametrize("offset", [-1, 4])
def test_an_offset_outside_the_text_has_no_position(offset: int) -> None:
    with pytest.raises(IndexError):
        source_from_text("abc", "a.py").position(offset)


@pytest.mark.parametrize("position", [(0, 1), (3, 1), (1, 0), (1, 3), (2, 3)])
def test_a_position_outside_the_text_has_no_offset(position: tuple[int, int]) -> None:
    with pytest.raises(IndexError):
        source_from_text("a\nb", "a.py").offset(Position(*position))


@pytest.mark.parametrize("row", [0, -1, 3])
def test_a_row_outside_the_text_has_no_text(row: int) -> None:
    with pytest.raises(IndexError):
        source_from_text("a\nb", "a.py").line_text(row)


@pytest.mark.parametrize(
    ("text", "newline"),
    [
        ("", "\n"),
        ("a", "\n"),
        ("a\r\nb\r\nc\n", "\r\n"),
        ("a\r\nb\nc\n", "\n"),
        ("a\rb\rc\n", "\r"),
        ("a\r\nb\n", "\n"),
        ("\f\u2028", "\n"),
    ],
)
def test_the_newline_of_a_file_is_the_one_most_rows_end_in(text: str, newline: str) -> None:
    assert source_from_text(text, "a.py").newline == newline


def test_a_source_survives_pickling_and_compares_by_content() -> None:
    source = source_from_text("a\nb", "a.py")
    fresh = source_from_text("a\nb", "a.py")
    assert source.line_starts == (0, 2)
    assert pickle.loads(pickle.dumps(source)) == source == fresh
    assert hash(source) == hash(fresh)


def test_the_content_of_a_file_is_not_in_its_repr() -> None:
    assert "secret" not in repr(source_from_text("secret = 1", "a.py"))


def test_a_source_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        source_from_text("", "a.py").text = "x"  # type: ignore[misc]


def test_errors_survive_pickling_between_processes() -> None:
    error = pickle.loads(pickle.dumps(FileChanged("a.py", "gone", Position(2, 3))))
    assert isinstance(error, FileChanged)
    assert (error.filename, error.message, error.position) == ("a.py", "gone", Position(2, 3))
    assert str(error) == "a.py: gone"


# Reading


def test_a_file_is_read_with_its_newlines_untouched(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"a\r\nb\rc\n")
    source = read_source(path, "shown.py")
    assert (source.filename, source.path, source.text) == ("shown.py", path, "a\r\nb\rc\n")


def test_a_missing_file_is_an_error_without_the_path_in_its_message(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        read_source(tmp_path / "gone.py", "gone.py")
    assert caught.value.message == "does not exist"


def test_a_folder_is_not_a_regular_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a regular file"):
        read(tmp_path)


@needs_posix
def test_a_fifo_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(SourceError, match="not a regular file"):
        read(tmp_path / "pipe.py")


@needs_posix
def test_a_link_to_itself_is_an_error(tmp_path: Path) -> None:
    loop = tmp_path / "loop.py"
    loop.symlink_to(loop)
    with pytest.raises(SourceError, match="cannot be read"):
        read(loop)


@needs_user
def test_an_unreadable_file_is_an_error(script: Path) -> None:
    script.chmod(0)
    with pytest.raises(SourceError, match="cannot be read: Permission denied"):
        read(script)


def test_a_path_with_a_nul_is_an_error() -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        read_source(Path("a\0.py"), "a.py")


def test_a_read_that_fails_half_way_is_an_error(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error", str(self))

    monkeypatch.setattr(Path, "read_bytes", broken)
    with pytest.raises(SourceError) as caught:
        read(script)
    assert caught.value.message == "cannot be read: Input/output error"


# Writing


def listing(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_write_replaces_the_content_and_leaves_nothing_else_behind(script: Path) -> None:
    write_atomic(read(script), "x = 2\n")
    assert script.read_bytes() == b"x = 2\n"
    assert listing(script.parent) == ["train.py"]


def test_a_write_keeps_bom_encoding_and_newlines(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(codecs.BOM_UTF8 + b"a = '\xc3\xa9'\r\nb\rc\n\fd")
    source = read(path)
    write_atomic(source, source.text.replace("b", "bb"))
    assert path.read_bytes() == codecs.BOM_UTF8 + b"a = '\xc3\xa9'\r\nbb\rc\n\fd"


def test_a_write_keeps_a_latin_1_file_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"# coding: latin-1\nx = '\xe9'\n")
    source = read(path)
    write_atomic(source, source.text + "y = 'è'\n")
    assert path.read_bytes() == b"# coding: latin-1\nx = '\xe9'\ny = '\xe8'\n"


def test_a_text_that_cannot_be_encoded_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"# coding: latin-1\n")
    with pytest.raises(SourceError):
        write_atomic(read(path), "x = '≤'\n")
    assert path.read_bytes() == b"# coding: latin-1\n"
    assert listing(tmp_path) == ["a.py"]


def test_writing_the_same_text_does_not_touch_the_file(script: Path) -> None:
    before = script.stat()
    write_atomic(read(script), "x = 1\n")
    assert (script.stat().st_ino, script.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@needs_posix
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o664])
def test_a_write_keeps_the_mode_whatever_the_umask(script: Path, mode: int) -> None:
    script.chmod(mode)
    previous = os.umask(0o077)
    try:
        write_atomic(read(script), "x = 2\n")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(script.stat().st_mode) == mode


@needs_posix
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_a_write_keeps_the_owner_where_permitted(script: Path) -> None:
    os.chown(script, 12345, 54321)
    write_atomic(read(script), "x = 2\n")
    assert (script.stat().st_uid, script.stat().st_gid) == (12345, 54321)


@needs_posix
def test_an_owner_that_cannot_be_kept_does_not_stop_the_write(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refused)
    write_atomic(read(script), "x = 2\n")
    assert script.read_bytes() == b"x = 2\n"


@needs_posix
def test_a_write_through_a_link_changes_the_target_and_keeps_the_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "train.py"
    target.write_bytes(b"x = 1\n")
    (tmp_path / "middle.py").symlink_to(Path("real") / "train.py")
    link = tmp_path / "link.py"
    link.symlink_to("middle.py")
    write_atomic(read(link), "x = 2\n")
    assert os.readlink(link) == "middle.py"
    assert target.read_bytes() == b"x = 2\n"
    assert listing(tmp_path) == ["link.py", "middle.py", "real"]
    assert listing(tmp_path / "real") == ["train.py"]


def test_a_file_that_changed_since_it_was_read_is_not_overwritten(script: Path) -> None:
    source = read(script)
    script.write_bytes(b"x = 7\n")
    with pytest.raises(FileChanged, match="not overwritten"):
        write_atomic(source, "x = 2\n")
    assert script.read_bytes() == b"x = 7\n"
    assert listing(script.parent) == ["train.py"]


def test_a_file_that_changes_while_the_new_one_is_written_is_not_overwritten(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = read(script)

    def save_in_editor(descriptor: int) -> None:
        script.write_bytes(b"x = 7\n")

    monkeypatch.setattr(os, "fsync", save_in_editor)
    with pytest.raises(FileChanged):
        write_atomic(source, "x = 2\n")
    assert script.read_bytes() == b"x = 7\n"
    assert listing(script.parent) == ["train.py"]


def test_a_file_that_was_removed_is_not_made_again(script: Path) -> None:
    source = read(script)
    script.unlink()
    with pytest.raises(FileChanged, match="was removed"):
        write_atomic(source, "x = 2\n")
    assert listing(script.parent) == []


def test_a_file_whose_folder_was_removed_is_not_made_again(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    path = tmp_path / "pkg" / "a.py"
    path.write_bytes(b"x\n")
    source = read(path)
    path.unlink()
    path.parent.rmdir()
    with pytest.raises(FileChanged):
        write_atomic(source, "y\n")
    assert listing(tmp_path) == []


def test_a_file_that_became_a_folder_is_left_alone(script: Path) -> None:
    source = read(script)
    script.unlink()
    script.mkdir()
    with pytest.raises(FileChanged):
        write_atomic(source, "x = 2\n")
    assert script.is_dir()


def disk_full(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def interrupted(*_: object) -> int:
    raise KeyboardInterrupt


@pytest.mark.parametrize("call", ["write", "fsync", "replace", "open", "chmod"])
def test_a_full_disk_leaves_the_file_as_it_was(
    script: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    source = read(script)
    monkeypatch.setattr(os, call, disk_full)
    with pytest.raises(SourceError) as caught:
        write_atomic(source, "x = 2\n")
    monkeypatch.undo()
    assert not isinstance(caught.value, FileChanged)
    assert caught.value.message == "cannot be written: No space left on device"
    assert script.read_bytes() == b"x = 1\n"
    assert listing(script.parent) == ["train.py"]


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_an_interrupt_leaves_the_file_as_it_was_and_goes_on(
    script: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    source = read(script)
    monkeypatch.setattr(os, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(source, "x = 2\n")
    monkeypatch.undo()
    assert script.read_bytes() == b"x = 1\n"
    assert listing(script.parent) == ["train.py"]


def test_a_disk_that_takes_a_few_bytes_at_a_time_gets_all_of_them(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = read(script)
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, bytes(data[:3])))
    write_atomic(source, "x = 'a longer text'\n")
    assert script.read_bytes() == b"x = 'a longer text'\n"


def test_a_disk_that_fills_up_half_way_leaves_the_file_as_it_was(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = read(script)
    real_write = os.write
    written: list[int] = []

    def fill_up(descriptor: int, data: memoryview) -> int:
        if written:
            return disk_full()
        written.append(real_write(descriptor, bytes(data[:3])))
        return written[0]

    monkeypatch.setattr(os, "write", fill_up)
    with pytest.raises(SourceError, match="No space left"):
        write_atomic(source, "x = 'a longer text'\n")
    assert script.read_bytes() == b"x = 1\n"
    assert listing(script.parent) == ["train.py"]


@needs_user
def test_a_read_only_file_is_not_written(script: Path) -> None:
    script.chmod(0o444)
    with pytest.raises(SourceError, match="read-only"):
        write_atomic(read(script), "x = 2\n")
    assert script.read_bytes() == b"x = 1\n"


@needs_user
def test_a_read_only_folder_is_an_error_and_nothing_changes(script: Path) -> None:
    script.parent.chmod(0o555)
    try:
        with pytest.raises(SourceError, match="cannot be written"):
            write_atomic(read(script), "x = 2\n")
    finally:
        script.parent.chmod(0o755)
    assert script.read_bytes() == b"x = 1\n"


def test_a_name_as_long_as_names_can_be_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 252 + ".py")
    path.write_bytes(b"x\n")
    write_atomic(read(path), "y\n")
    assert path.read_bytes() == b"y\n"


@needs_posix
def test_a_name_with_a_newline_and_undecodable_bytes_is_written(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\n\xff.py"))
    try:
        path.write_bytes(b"x\n")
    except OSError:
        pytest.skip("the file system refuses such names")
    write_atomic(read(path), "y\n")
    assert path.read_bytes() == b"y\n"


def test_text_without_a_file_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="<stdin>"):
        write_atomic(source_from_text("x", "<stdin>"), "y")


def test_writing_does_not_go_through_the_text_layer(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = read(script)

    def translated(*_: object, **__: object) -> object:
        raise AssertionError("text mode translates newlines")

    monkeypatch.setattr(builtins, "open", translated)
    write_atomic(source, "x\r\ny\n")
    monkeypatch.undo()
    assert script.read_bytes() == b"x\r\ny\n"


@pytest.mark.parametrize("module", ["source", "discover", "config", "suppress"])
def test_importing_these_modules_loads_nothing_heavy(module: str) -> None:
    code = (
        f"import sys, amplint.{module}; "
        "print([name for name in ('libcst', 'torch', 'rich', 'click', 'pathspec', 'tomllib', 'tomli', "
        "'difflib', 'configparser', 'tempfile') if name in sys.modules])"
    )
    root = Path(__file__).parent.parent
    result = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
