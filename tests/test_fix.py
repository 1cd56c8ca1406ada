from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from amplint.finding import Applicability, Edit, Fix, FixKind, ImportMove, ImportRemoval, Span
from amplint.fix import apply, apply_edits

TEXT = "from m import a, b, c\nx = a(1)\ny = b(2)\nz = c(3)\n"
STATEMENT = Span(0, 21)
ALIASES = (Span(14, 15), Span(17, 18), Span(20, 21))


def at(part: str, text: str = TEXT) -> Span:
    start = text.index(part)
    return Span(start, start + len(part))


def removal(*indexes: int, **changes: Any) -> ImportRemoval:
    values: dict[str, Any] = {
        "statement": STATEMENT,
        "lines": Span(0, 22),
        "aliases": ALIASES,
        "gaps": ("from m import ", ", ", ", ", ""),
        "removed": frozenset(indexes),
    }
    return ImportRemoval(**(values | changes))


def fix(*edits: Edit, imports: tuple[ImportRemoval, ...] = (), message: str = "") -> Fix:
    every = (*edits, *(edit for removal in imports for edit in removal.edits()))
    return Fix(FixKind.PORT, Applicability.SAFE, message, every, imports)


def swap(part: str, content: str, **rest: Any) -> Fix:
    return fix(Edit(at(part), content), message=part, **rest)


def applied(*fixes: Fix) -> str:
    """The text after the fixes; in whatever order they come."""
    (text,) = {apply(TEXT, order).text for order in permutations(fixes)}
    return text


# Plain edits


def test_without_fixes_the_text_stays() -> None:
    made = apply(TEXT, [])
    assert (made.text, made.fixes, made.skipped) == (TEXT, (), ())


def test_fixes_of_different_places_are_all_made_whatever_their_order() -> None:
    assert applied(swap("a(1)", "A"), swap("b(2)", "B"), swap("c(3)", "")) == (
        "from m import a, b, c\nx = A\ny = B\nz = \n"
    )


def test_nothing_outside_the_edits_changes() -> None:
    text = "\tx = 1 ;y\r\n\x0c# ünï\r z\n"
    assert apply_edits(text, [Edit(at("y", text), "Y")]) == text.replace("y", "Y")


def test_an_edit_that_several_fixes_make_is_made_once() -> None:
    insert = Edit(Span(0, 0), "import torch\n", lines=1)
    one = fix(insert, Edit(at("a(1)"), "A"), message="one")
    two = fix(insert, Edit(at("b(2)"), "B"), message="two")
    made = apply(TEXT, [one, two])
    assert made.text.count("import torch\n") == 1 and made.skipped == ()
    assert "x = A\ny = B\n" in made.text


def test_the_same_fix_twice_is_one() -> None:
    assert apply(TEXT, [swap("a(1)", "A"), swap("a(1)", "A")]).fixes == (swap("a(1)", "A"),)


def test_a_fix_that_overlaps_an_earlier_one_is_skipped_whole() -> None:
    first = swap("x = a(1)", "first")
    second = fix(Edit(at("a(1)"), "second"), Edit(at("c(3)"), "second"), message="second")
    made = apply(TEXT, [second, first])
    assert made.fixes == (first,) and made.skipped == (second,)
    assert "second" not in made.text and "first" in made.text


def test_a_skipped_fix_takes_no_import_with_it() -> None:
    first = swap("x = a(1)", "first")
    second = swap("a(1)", "second", imports=(removal(0),))
    # the import of `a` stands before everything else, so the fix that removes it comes first
    assert apply(TEXT, [first, second]).skipped == (first,)
    third = fix(Edit(at("x = a(1)\ny"), "y"), imports=(removal(1),), message="third")
    made = apply(TEXT, [second, third])
    assert made.skipped == (third,) and made.text.startswith("from m import b, c\n")


def test_edits_that_touch_do_not_overlap() -> None:
    assert applied(swap("x = ", "X"), swap("a(1)", "A")).splitlines()[1] == "XA"


def test_of_two_different_rewrites_of_one_place_only_one_is_made() -> None:
    made = apply(TEXT, [fix(Edit(at("a(1)"), "A"), message="1"), fix(Edit(at("a(1)"), "B"), message="2")])
    assert [f.message for f in made.fixes] == ["1"] and "x = A\n" in made.text


def test_an_insertion_inside_of_what_another_fix_replaces_is_not_made() -> None:
    inside = at("(1)").start
    made = apply(TEXT, [swap("a(1)", "A"), fix(Edit(Span(inside, inside), "!"), message="in")])
    assert len(made.skipped) == 1 and "!" not in made.text


# Insertions at one place


def test_whole_lines_at_one_place_stand_in_their_order() -> None:
    place = at("x =").start
    needs = fix(Edit(Span(place, place), "D = torch.device()\n", lines=2), message="a")
    imports = fix(Edit(Span(place, place), "import torch\n", lines=1), message="b")
    assert applied(needs, imports).splitlines()[1:4] == ["import torch", "D = torch.device()", "x = a(1)"]


def test_different_texts_inserted_at_one_place_exclude_each_other() -> None:
    one, two = (fix(Edit(Span(22, 22), text), message=text) for text in ("one ", "two "))
    made = apply(TEXT, [two, one])
    assert made.fixes == (one,) and made.skipped == (two,)


def test_an_insertion_may_stand_right_before_and_right_behind_a_replacement() -> None:
    span = at("a(1)")
    before = fix(Edit(Span(span.start, span.start), "<"), message="before")
    behind = fix(Edit(Span(span.end, span.end), ">"), message="behind")
    made = apply(TEXT, [swap("a(1)", "A"), before, behind])
    assert made.skipped == () and "x = <A>\n" in made.text


# Removals of imports


@pytest.mark.parametrize(
    ("indexes", "statement"),
    [
        ((0,), "from m import b, c\n"),
        ((1,), "from m import a, c\n"),
        ((2,), "from m import a, b\n"),
        ((0, 1), "from m import c\n"),
        ((0, 2), "from m import b\n"),
        ((1, 2), "from m import a\n"),
        ((0, 1, 2), ""),
    ],
)
def test_names_that_several_fixes_take_out_of_one_import_go_together(
    indexes: tuple[int, ...], statement: str
) -> None:
    fixes = [fix(imports=(removal(index),), message=str(index)) for index in indexes]
    assert applied(*fixes) == statement + TEXT[22:]


def test_a_name_that_two_fixes_take_out_is_taken_out_once() -> None:
    one = swap("a(1)", "A", imports=(removal(0),))
    two = swap("b(2)", "B", imports=(removal(0),))
    assert applied(one, two).startswith("from m import b, c\nx = A\ny = B\n")


def test_an_import_with_nothing_left_leaves_its_placeholder() -> None:
    gone = [fix(imports=(removal(i, placeholder="pass\n"),), message=str(i)) for i in range(3)]
    assert applied(*gone) == "pass\n" + TEXT[22:]
    assert applied(*gone[:2]).startswith("from m import c\n")


def test_names_that_move_to_another_module_move_together() -> None:
    def move(index: int) -> ImportRemoval:
        name = "abc"[index]
        moving = ImportMove(Span(5, 6), "shim", ((index, name, False),), "", "\n")
        return removal(index, move=moving)

    fixes = [fix(imports=(move(i),), message=str(i)) for i in range(3)]
    assert applied(*fixes[:2]) == "from shim import a, b\nfrom m import c\n" + TEXT[22:]
    assert applied(*fixes) == "from shim import a, b, c\n" + TEXT[22:]


def test_a_removal_does_not_hide_an_overlap_with_the_import_statement() -> None:
    whole = fix(Edit(STATEMENT, "import m"), message="whole")
    part = fix(imports=(removal(1),), message="part")
    made = apply(TEXT, [whole, part])
    assert len(made.fixes) == len(made.skipped) == 1


def test_plain_edits_are_those_that_are_no_removals() -> None:
    made = swap("a(1)", "A", imports=(removal(0),))
    assert made.plain_edits == (Edit(at("a(1)"), "A"),)
    assert len(made.edits) == 2
