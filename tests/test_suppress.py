from __future__ import annotations

import datetime
import tokenize

import pytest

from amplint.finding import Span
from amplint.source import Source, source_from_bytes, source_from_text
from amplint.suppress import Directive, Suppressions, parse_suppressions

TODAY = datetime.date(2026, 6, 15)


def parse(text: str) -> Suppressions:
    return parse_suppressions(source_from_text(text, "train.py"))


def only(text: str) -> Directive:
    (directive,) = parse(text).directives
    return directive


def silenced_rows(
    text: str, code: str = "AMP201", name: str = "clip-before-unscale", today: datetime.date = TODAY
) -> list[int]:
    suppressions = parse(text)
    rows = range(1, len(source_from_text(text, "train.py").line_starts) + 1)
    return [row for row in rows if suppressions.match(code, name, row, today) is not None]


def is_silenced(comment: str, code: str = "AMP201", name: str = "clip-before-unscale") -> bool:
    return silenced_rows(f"clip(x)  {comment}\n", code, name) == [1]


# ignore, behind a statement


@pytest.mark.parametrize(
    "comment",
    [
        "# amplint: ignore[AMP201]",
        "# amplint: ignore[AMP201] gradients are in fp32 here",
        "#amplint:ignore[AMP201]",
        "#  amplint:  ignore [ AMP201 ]",
        "# amplint: ignore[AMP305, AMP201]",
        "# amplint: ignore[AMP305 AMP201,]",
        "# amplint: ignore[clip-before-unscale]",
        "# amplint: ignore[amp201]",
        "# amplint: ignore[AMP2]",
        "# amplint: ignore[AMP20]",
        "# amplint: ignore[AMP]",
        "# amplint: ignore[ALL]",
        "# amplint: ignore",
        "# amplint: ignore because of #123",
        "# type: ignore  # amplint: ignore[AMP201]",
        "# amplint: ignore[AMP201]  # type: ignore[attr-defined]",
        "# the wrapper unscales # amplint: ignore[AMP201]",
        "# amplint: ignore[AMP305] # amplint: ignore[AMP201]",
    ],
)
def test_an_ignore_behind_a_statement_silences_the_rule(comment: str) -> None:
    assert is_silenced(comment)


@pytest.mark.parametrize(
    "comment",
    [
        "# amplint: ignore[AMP202]",
        "# amplint: ignore[AMP2011]",
        "# amplint: ignore[AMP3]",
        "# amplint: ignore[A]",
        "# amplint: ignore[A2]",
        "# amplint: ignore[201]",
        "# amplint: ignore[clip-before]",
        "# amplint: ignore[clip]",
        "# amplint: ignore[]",
        "# amplint: ignore[ , ]",
        "# amplint: ignore[AMP201",
        "# amplint: ignored[AMP201]",
        "# amplint: ignore-next[AMP201]",
        "# amplint: Ignore[AMP201]",
        "# amplint: disabled",
        "# amplint:",
        "# amplint ignore[AMP201]",
        "# see amplint: ignore[AMP201]",
        "# amplinter: ignore[AMP201]",
        "# ruff: noqa",
        "# flake8: noqa",
        "# type: ignore",
        "# pylint: disable=all",
    ],
)
def test_what_is_no_ignore_of_the_rule_silences_nothing(comment: str) -> None:
    assert not is_silenced(comment)


def test_an_ignore_covers_its_own_row_only() -> None:
    assert silenced_rows("a()\nb()  # amplint: ignore[AMP201]\nc()\n") == [2]


def test_an_ignore_inside_a_call_covers_every_row_of_the_call() -> None:
    text = "a()\nclip(\n    x,  # amplint: ignore[AMP201]\n    1.0,\n)\nb()\n"
    assert silenced_rows(text) == [2, 3, 4, 5]


def test_an_ignore_behind_the_last_row_of_a_call_covers_every_row() -> None:
    assert silenced_rows("clip(\n    x,\n)  # amplint: ignore[AMP201]\nb()\n") == [1, 2, 3]


def test_an_ignore_alone_on_a_row_inside_a_call_covers_the_call() -> None:
    assert silenced_rows("clip(\n    # amplint: ignore[AMP201]\n    x,\n)\nb()\n") == [1, 2, 3, 4]


def test_an_ignore_covers_rows_joined_by_a_backslash_or_a_long_string() -> None:
    assert silenced_rows("x = 1 + \\\n    2  # amplint: ignore\ny\n") == [1, 2]
    assert silenced_rows('x = """\n\n"""  # amplint: ignore\ny\n') == [1, 2, 3]


def test_an_ignore_behind_a_with_covers_the_header_and_not_the_body() -> None:
    text = "with (\n    a,\n    b,\n):  # amplint: ignore\n    c()\nd()\n"
    assert silenced_rows(text) == [1, 2, 3, 4]


def test_an_ignore_behind_a_def_does_not_reach_its_decorators() -> None:
    assert silenced_rows("@autocast()\ndef f():  # amplint: ignore\n    pass\n") == [2]


# ignore, above a statement


def test_an_ignore_on_a_row_of_its_own_covers_the_next_statement() -> None:
    assert silenced_rows("a()\n# amplint: ignore[AMP201]\nb()\nc()\n") == [3]


def test_an_ignore_above_a_call_over_several_rows_covers_all_of_them() -> None:
    assert silenced_rows("# amplint: ignore[AMP201]\nclip(\n    x,\n)\nb()\n") == [2, 3, 4]


def test_blank_rows_and_other_comments_may_stand_between() -> None:
    assert silenced_rows("# amplint: ignore[AMP201]\n\n# see the paper\n\nb()\nc()\n") == [5]


def test_several_ignores_above_one_statement_all_count() -> None:
    text = "# amplint: ignore[AMP201]\n# amplint: ignore[AMP305]\nb()\nc()\n"
    assert silenced_rows(text) == [3]
    assert silenced_rows(text, "AMP305", "x") == [3]


def test_an_ignore_above_a_decorated_function_covers_decorators_and_header_only() -> None:
    text = "# amplint: ignore\n@a\n@b(\n    1,\n)\ndef f(\n    x,\n):\n    pass\n"
    assert silenced_rows(text) == [2, 3, 4, 5, 6, 7, 8]


def test_an_ignore_between_decorators_covers_from_there_on() -> None:
    assert silenced_rows("@a\n# amplint: ignore\n@b\nclass C:\n    x = 1\n") == [3, 4]


def test_an_ignore_above_a_with_does_not_cover_its_body() -> None:
    assert silenced_rows("# amplint: ignore\nwith autocast():\n    a()\n") == [2]


def test_an_ignore_at_the_end_of_a_block_covers_what_comes_next() -> None:
    assert silenced_rows("if a:\n    b()\n    # amplint: ignore\nc()\n") == [4]


def test_an_ignore_at_the_end_of_a_file_covers_nothing_but_is_recorded() -> None:
    assert silenced_rows("a()\n# amplint: ignore") == []
    assert only("a()\n# amplint: ignore").rows is None


# disable and enable


def test_a_disable_reaches_to_the_end_of_the_file() -> None:
    assert silenced_rows("a()\n# amplint: disable[AMP201]\nb()\nc()") == [2, 3, 4]


def test_a_disable_ends_at_the_enable() -> None:
    text = "# amplint: disable[AMP201]\na()\n# amplint: enable[AMP201]\nb()\n"
    assert silenced_rows(text) == [1, 2]


def test_an_enable_of_one_rule_leaves_the_others_disabled() -> None:
    text = "# amplint: disable[AMP2]\na()\n# amplint: enable[clip-before-unscale]\nb()\n"
    assert silenced_rows(text) == [1, 2]
    assert silenced_rows(text, "AMP202", "other") == [1, 2, 3, 4, 5]


def test_an_enable_without_brackets_ends_every_disable() -> None:
    text = "# amplint: disable[AMP201]\n# amplint: disable[AMP3]\na()\n# amplint: enable\nb()\n"
    assert silenced_rows(text) == [1, 2, 3]
    assert silenced_rows(text, "AMP301", "x") == [2, 3]


def test_an_enable_of_another_rule_ends_nothing() -> None:
    assert silenced_rows("# amplint: disable[AMP201]\n# amplint: enable[AMP3]\na()") == [1, 2, 3]


def test_an_enable_without_a_disable_silences_nothing() -> None:
    assert silenced_rows("# amplint: enable[AMP201]\na()\n") == []


def test_a_range_can_begin_again() -> None:
    text = "# amplint: disable\na\n# amplint: enable\nb\n# amplint: disable\nc\n# amplint: enable\nd"
    assert silenced_rows(text) == [1, 2, 5, 6]


def test_a_range_does_not_care_about_indentation() -> None:
    text = "def f():\n    # amplint: disable\n    a()\nb()\n# amplint: enable\nc()\n"
    assert silenced_rows(text) == [2, 3, 4]


def test_a_disable_behind_a_call_covers_the_call_from_its_first_row() -> None:
    assert silenced_rows("a()\nclip(\n    x,\n)  # amplint: disable\nb()") == [2, 3, 4, 5]


def test_a_malformed_enable_ends_nothing() -> None:
    assert silenced_rows("# amplint: disable\na()\n# amplint: enable[AMP201\nb()") == [1, 2, 3, 4]


# file-ignore


@pytest.mark.parametrize(
    "text", ["# amplint: file-ignore[AMP201]\na()\n", "a()\nb()  # amplint: file-ignore"]
)
def test_a_file_ignore_covers_the_whole_file_wherever_it_stands(text: str) -> None:
    assert silenced_rows(text) == list(range(1, text.count("\n") + 2))


def test_a_file_ignore_of_another_rule_covers_nothing() -> None:
    assert silenced_rows("# amplint: file-ignore[AMP101]\na()\n") == []


# until


@pytest.mark.parametrize(
    ("until", "silenced"), [("2026-06-14", False), ("2026-06-15", True), ("2026-06-16", True)]
)
@pytest.mark.parametrize("kind", ["ignore", "disable", "file-ignore"])
def test_a_directive_works_up_to_and_including_its_last_day(kind: str, until: str, silenced: bool) -> None:
    text = f"clip(x)  # amplint: {kind}[AMP201] until={until} port pending"
    assert (silenced_rows(text) == [1]) is silenced
    assert only(text).expired(TODAY) is not silenced


def test_until_may_stand_without_brackets_and_behind_the_reason() -> None:
    for comment in ("ignore until=2026-01-31 why not", "ignore[AMP201] why until=2026-01-31 not"):
        directive = only(f"a  # amplint: {comment}")
        assert directive.until == datetime.date(2026, 1, 31)
        assert directive.reason == "why not"


@pytest.mark.parametrize("until", ["", "tomorrow", "2026-13-01", "2026-02-30", "20260131", "2099-1-1"])
def test_an_until_that_is_no_date_silences_nothing_and_says_why(until: str) -> None:
    text = f"clip(x)  # amplint: ignore[AMP201] until={until}"
    assert silenced_rows(text) == []
    assert "is not a date" in (only(text).problem or "")


@pytest.mark.parametrize(
    "until", ["until: 2026-01-01", "until 2026-01-01", "UNTIL=2026-1-1", "until : 2026-01-01"]
)
def test_a_last_day_in_another_spelling_is_no_reason(until: str) -> None:
    text = f"clip(x)  # amplint: ignore[AMP201] {until}"
    assert silenced_rows(text) == []
    assert "write it as until=2027-01-31" in (only(text).problem or "")
    assert only("f()  # amplint: ignore[AMP201] until the 2026-01-31 release").problem is None


def test_an_expired_directive_gives_way_to_one_that_is_not() -> None:
    text = "# amplint: file-ignore until=2020-01-01\nclip(x)  # amplint: ignore[AMP201]\n"
    found = parse(text).match("AMP201", "clip-before-unscale", 2, TODAY)
    assert found is not None
    assert found.kind == "ignore"


def test_an_expired_disable_does_not_hide_a_later_one() -> None:
    text = "# amplint: disable until=2020-01-01\na()\n# amplint: disable\nb()"
    assert silenced_rows(text) == [3, 4]


# The comments of other linters


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "#noqa",
        "# NOQA",
        "# NoQA",
        "# noqa: AMP201",
        "# noqa:AMP201",
        "# noqa : AMP201",
        "# noqa: E501,AMP201",
        "# noqa: E501, AMP201",
        "# noqa: E501 AMP201",
        "# noqa: amp201",
        "# noqa: AMP2",
        "# noqa: AMP201 the wrapper unscales",
        "# noqa the wrapper unscales",
        "# type: ignore # noqa: AMP201",
        "# noqa: AMP201 # type: ignore",
    ],
)
def test_a_noqa_that_means_the_rule_silences_it(comment: str) -> None:
    assert is_silenced(comment)


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa: E501",
        "# noqa: E501,F401",
        "# noqa: AMP202",
        "# noqa: A201",
        "# noqa:",
        "# noqa: because",
        "# noqa: clip-before-unscale",
        "# noqa-like",
        "# noqable",
        "# see noqa",
        "# ruff: noqa: AMP201",
        "# flake8: noqa: AMP201",
    ],
)
def test_a_noqa_that_means_other_rules_silences_nothing(comment: str) -> None:
    assert not is_silenced(comment)


def test_a_noqa_covers_the_statement_it_stands_behind() -> None:
    assert silenced_rows("a()\nclip(\n    x,\n)  # noqa: AMP201\nb()\n") == [2, 3, 4]


def test_a_noqa_on_a_row_of_its_own_does_not_reach_the_next_statement() -> None:
    assert silenced_rows("# noqa\na()\n# noqa: AMP201\nb()\n") == []


def test_a_noqa_with_foreign_codes_is_recorded_with_them() -> None:
    assert only("a()  # noqa: E501, F401 long").codes == ("E501", "F401")


# What is recorded


def test_a_directive_is_recorded_with_all_its_parts() -> None:
    text = "a()\nb()  # amplint: ignore[AMP201, clip-before-unscale] until=2026-12-31 - see #12: later\n"
    directive = only(text)
    assert directive.kind == "ignore"
    assert directive.codes == ("AMP201", "clip-before-unscale")
    assert directive.reason == "see #12: later"
    assert directive.until == datetime.date(2026, 12, 31)
    assert directive.row == 2
    assert text[directive.span.start : directive.span.end] == text[text.index("#") :].rstrip()
    assert directive.comment == directive.span
    assert directive.rows == (2, 2)
    assert directive.problem is None


def test_no_brackets_mean_all_rules_and_empty_brackets_none() -> None:
    assert only("a  # amplint: ignore").codes is None
    assert only("a  # amplint: ignore[]").codes == ()


def test_the_span_of_a_directive_leaves_out_what_else_is_in_the_comment() -> None:
    text = "é = 1  # type: ignore  # amplint: ignore[AMP201] why  # noqa: E501  # fmt: skip\n"
    first, second = parse(text).directives
    assert text[first.span.start : first.span.end] == "# amplint: ignore[AMP201] why"
    assert text[second.span.start : second.span.end] == "# noqa: E501"
    assert first.comment == second.comment == Span(text.index("#"), len(text) - 1)


def test_spans_are_offsets_into_the_text_without_the_bom() -> None:
    source = source_from_bytes(b"\xef\xbb\xbfx\r\n\xc3\xa9  # noqa\r\n", "a.py")
    (directive,) = parse_suppressions(source).directives
    assert source.text[directive.span.start : directive.span.end] == "# noqa"
    assert directive.row == 2


def test_directives_are_in_the_order_of_the_file() -> None:
    text = "# amplint: ignore\n@a\n# amplint: disable\n@b  # noqa\ndef f(): ...\n# amplint: file-ignore\n"
    assert [directive.row for directive in parse(text).directives] == [1, 3, 4, 6]


def test_the_first_directive_that_silences_gets_the_credit() -> None:
    text = "# amplint: disable[AMP2]\n# amplint: ignore\na()  # amplint: ignore\n# amplint: file-ignore\n"
    found = parse(text)
    first = found.match("AMP201", "x", 3, TODAY)
    second = found.match("AMP301", "x", 3, TODAY)
    third = found.match("AMP301", "x", 1, TODAY)
    assert [match.row for match in (first, second, third) if match is not None] == [1, 2, 4]


@pytest.mark.parametrize("comment", ["ignor[AMP201]", "skip", "noqa: AMP201", "[AMP201]", ""])
def test_an_unknown_directive_is_recorded_with_what_was_expected(comment: str) -> None:
    directive = only(f"a()  # amplint: {comment}\n")
    assert directive.kind == "unknown"
    assert "expected one of ignore, disable" in (directive.problem or "")


def test_a_missing_colon_is_recorded() -> None:
    directive = only("a()  # amplint ignore[AMP201] why\n")
    assert (directive.kind, directive.problem) == ("ignore", "a colon is missing: # amplint: ignore")
    assert parse("a()  # amplint ignores this, amplint disable it\n").directives == []


def test_a_missing_bracket_is_recorded() -> None:
    directive = only("a()  # amplint: ignore[AMP201 oh\n")
    assert (directive.kind, directive.problem) == ("ignore", "the closing bracket is missing")


@pytest.mark.parametrize(
    "text", ["ignore AMP201", "ignore: AMP201 checked by hand", "file-ignore AMP201, AMP202"]
)
def test_a_code_without_brackets_silences_nothing_rather_than_everything(text: str) -> None:
    directive = only(f"f()  # amplint: {text}\n")
    kind = text.partition(" ")[0].rstrip(":")
    assert directive.problem == f"codes go into brackets: {kind}[AMP201]"
    assert only("f()  # amplint: ignore until the AMP101 port is done\n").problem is None


# Text that only looks like directives


@pytest.mark.parametrize(
    "text",
    [
        "x = '# amplint: ignore'\n",
        '"""\n# amplint: file-ignore\n"""\na()\n',
        'x = f"# noqa {y} # amplint: file-ignore"\n',
        "x = '# noqa: AMP201'\n",
        'r"""# amplint: disable"""\n',
    ],
)
def test_strings_hold_no_directives(text: str) -> None:
    assert parse(text).directives == []


def untokenizable(*_: object) -> None:
    raise AssertionError("this file needs no tokenizer")


@pytest.mark.parametrize("text", ["", "x = 1\n", "# amplint is a linter\n", "\f\r\n", "x = (\n"])
def test_a_file_without_the_words_is_not_tokenized(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenize, "generate_tokens", untokenizable)
    suppressions = parse(text)
    assert suppressions.directives == []
    assert suppressions.match("AMP201", "x", 1, TODAY) is None


# Layouts


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_every_newline_style_gives_the_same_rows(newline: str, end: str) -> None:
    text = "a()\nclip(\n    x,  # amplint: ignore\n)\n# amplint: ignore\nb()\nc()  # noqa" + end
    text = text.replace("\n", newline)
    assert silenced_rows(text) == [2, 3, 4, 6, 7]
    for directive in parse(text).directives:
        assert text[directive.span.start : directive.span.end] in ("# amplint: ignore", "# noqa")


def test_mixed_newlines_and_form_feeds_do_not_shift_rows() -> None:
    text = "a\r\nb\r\f\nc = '\x85\u2028'\n\f\nd  # amplint: ignore\ne\r"
    assert silenced_rows(text) == [6]


def test_tabs_and_deep_blocks_do_not_matter() -> None:
    assert silenced_rows("if a:\n\tif b:\n\t\tc()  # amplint: ignore\n\t# amplint: ignore\n\td()\n") == [3, 5]


@pytest.mark.parametrize(
    "rest",
    [
        "x = (\n",
        "'''\n",
        "if a:\n        b\n    c\n",
        "print 'python 2'\n",
        "def f(:\n",
        ")\n",
        "x = 0777\n",
        "$\n",
    ],
)
def test_a_syntax_error_keeps_what_was_found_before(rest: str) -> None:
    assert silenced_rows(f"a()  # amplint: ignore\nb()\n{rest}") == [1]


def test_a_call_that_is_never_closed_is_covered_as_far_as_it_was_read() -> None:
    assert 1 in silenced_rows("clip(  # amplint: ignore\n    x,\n")


def test_lone_surrogates_in_the_text_do_not_raise() -> None:
    source = Source("a.py", None, b"", "x = '\ud800'\ny  # noqa\n")
    assert len(parse_suppressions(source).directives) <= 1


def test_a_comment_of_many_blanks_and_hashes_is_read() -> None:
    text = "a()  # amplint: ignore[AMP201] " + " " * 20_000 + "#" * 20_000 + " end\n"
    assert silenced_rows(text) == [1]


def test_a_directive_in_a_file_of_one_row_without_newline_works() -> None:
    assert silenced_rows("clip(x)  # amplint: ignore") == [1]


def test_rows_outside_the_file_are_not_silenced() -> None:
    suppressions = parse("a()  # amplint: file-ignore\n")
    assert suppressions.match("AMP201", "x", 99, TODAY) is None
