"""Branch conditions as formulas, so that two tests of one thing can be told to agree.

A test is normalised to and/or/not over atoms. An atom is a small relation between terms; a term is a path (a
variable and the attributes that follow it), a literal, or an operation on terms. Two texts of one test give
equal atoms; some atoms imply others (`x is None` and the truth of `x`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from amplint.flow.hashing import Hashed, hashed_once

#: Names from the outside in: the variable (with its scope), then attributes, "[0]", "[]" (any element).
Path = tuple[str, ...]

# -- terms --------------------------------------------------------------------------------------------------


@hashed_once
@dataclass(frozen=True, slots=True)
class Ref(Hashed):
    """The value of a path."""

    path: Path


@dataclass(frozen=True, slots=True)
class Lit:
    """A literal."""

    value: str | bytes | int | float | complex | bool | None


@hashed_once
@dataclass(frozen=True, slots=True)
class Op(Hashed):
    """An operation on terms: an arithmetic operator, "call", "[]", "attr"..."""

    name: str
    args: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that is not modelled; it equals nothing, not even itself."""


Term = Ref | Lit | Op | Unknown

_ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "%", "**"})

# -- formulas -----------------------------------------------------------------------------------------------


@hashed_once
@dataclass(frozen=True, slots=True)
class Atom(Hashed):
    """`kind` is truth, none (is None), eq, gt (left > right), in, is or enabled (of the scaler `left`)."""

    kind: str
    left: Term
    right: Term = Lit(None)


@hashed_once
@dataclass(frozen=True, slots=True)
class Not(Hashed):
    """Negation."""

    part: Formula


@hashed_once
@dataclass(frozen=True, slots=True)
class And(Hashed):
    """Conjunction."""

    parts: tuple[Formula, ...]


@hashed_once
@dataclass(frozen=True, slots=True)
class Or(Hashed):
    """Disjunction."""

    parts: tuple[Formula, ...]


Formula = bool | Atom | Not | And | Or


def negate(formula: Formula) -> Formula:
    """The opposite of `formula`."""
    if isinstance(formula, bool):
        return not formula
    if isinstance(formula, Not):
        return formula.part
    return Not(formula)


def both(*parts: Formula) -> Formula:
    """All of `parts`."""
    kept = [part for part in dict.fromkeys(parts) if part is not True]
    if any(part is False for part in kept):
        return False
    return And(tuple(kept)) if len(kept) > 1 else (kept[0] if kept else True)


def either(*parts: Formula) -> Formula:
    """At least one of `parts`."""
    return negate(both(*(negate(part) for part in parts)))


def truth(term: Term) -> Formula:
    """`bool(term)`."""
    if isinstance(term, Lit):
        return bool(term.value)
    if isinstance(term, Op) and term.name in _ARITHMETIC:
        return negate(equal(term, Lit(0)))
    return Atom("truth", term)


def is_none(term: Term) -> Formula:
    """`term is None`."""
    if isinstance(term, Lit):
        return term.value is None
    return Atom("none", term)


def equal(left: Term, right: Term) -> Formula:
    """`left == right`."""
    if isinstance(left, Lit) and isinstance(right, Lit):
        return left.value == right.value
    if isinstance(left, Lit):
        left, right = right, left
    if right == Lit(None):
        return is_none(left)
    if isinstance(right, Lit) and isinstance(right.value, bool):
        return truth(left) if right.value else negate(truth(left))
    return Atom("eq", left, right)


def greater(left: Term, right: Term) -> Formula:
    """`left > right`."""
    if isinstance(left, Lit) and isinstance(right, Lit):
        try:
            return bool(left.value > right.value)  # type: ignore[operator]  # what cannot be compared raises
        except TypeError:
            return False
    return Atom("gt", left, right)


def compare(op: str, left: Term, right: Term) -> Formula:
    """`left op right` for any comparison operator."""
    if op in ("is not", "!=", "not in"):
        return negate(compare({"is not": "is", "!=": "==", "not in": "in"}[op], left, right))
    if op == "==" or (op == "is" and isinstance(right, Lit)):
        return equal(left, right)
    if op in (">", "<="):
        found = greater(left, right)
        return found if op == ">" else negate(found)
    if op in ("<", ">="):
        found = greater(right, left)
        return found if op == "<" else negate(found)
    if op == "in" and isinstance(right, Op) and right.name in ("tuple", "list", "set"):
        return either(*(equal(left, item) for item in right.args))
    return Atom(op, left, right)


# -- walking and rewriting ----------------------------------------------------------------------------------


def term_paths(term: Term) -> Iterator[Path]:
    """Every path that `term` reads."""
    if isinstance(term, Ref):
        yield term.path
    elif isinstance(term, Op):
        for part in term.args:
            yield from term_paths(part)


def atoms(formula: Formula) -> Iterator[Atom]:
    """The atoms of `formula`, from left to right."""
    if isinstance(formula, Atom):
        yield formula
    elif isinstance(formula, Not):
        yield from atoms(formula.part)
    elif isinstance(formula, (And, Or)):
        for part in formula.parts:
            yield from atoms(part)


def atom_paths(atom: Atom) -> Iterator[Path]:
    """Every path that `atom` reads."""
    yield from term_paths(atom.left)
    yield from term_paths(atom.right)


def formula_paths(formula: Formula) -> Iterator[Path]:
    """Every path that `formula` reads."""
    for atom in atoms(formula):
        yield from atom_paths(atom)


def called_on(term: Term) -> Iterator[Path]:
    """The objects whose methods `term` calls."""
    if isinstance(term, Op):
        if term.name == "call" and isinstance(term.args[0], Ref):
            yield term.args[0].path[:-1]
        for part in term.args:
            yield from called_on(part)


def size(term: Term) -> int:
    """The number of paths, literals and operations in `term`."""
    return 1 + sum(map(size, term.args)) if isinstance(term, Op) else 1


def has_unknown(term: Term) -> bool:
    """Whether some part of `term` is not modelled."""
    return isinstance(term, Unknown) or (isinstance(term, Op) and any(map(has_unknown, term.args)))


def is_modelled(formula: Formula) -> bool:
    """Whether all of `formula` is known text over paths and literals."""
    return not any(has_unknown(atom.left) or has_unknown(atom.right) for atom in atoms(formula))


def rewrite_term(term: Term, change: Callable[[Path], Term]) -> Term:
    """`term` with each path replaced by what `change` gives for it."""
    if isinstance(term, Ref):
        return change(term.path)
    if isinstance(term, Op):
        return Op(term.name, tuple(rewrite_term(part, change) for part in term.args))
    return term


def rewrite(formula: Formula, change: Callable[[Atom], Formula]) -> Formula:
    """`formula` with each atom replaced by what `change` gives for it."""
    if isinstance(formula, Atom):
        return change(formula)
    if isinstance(formula, Not):
        return negate(rewrite(formula.part, change))
    if isinstance(formula, And):
        return both(*(rewrite(part, change) for part in formula.parts))
    if isinstance(formula, Or):
        return either(*(rewrite(part, change) for part in formula.parts))
    return formula


def rebuild(atom: Atom, left: Term, right: Term) -> Formula:
    """The atom of the same kind over other terms, simplified where they are literals."""
    if atom.kind == "truth":
        return truth(left)
    if atom.kind == "none":
        return is_none(left)
    if atom.kind == "eq":
        return equal(left, right)
    if atom.kind == "gt":
        return greater(left, right)
    if atom.kind == "enabled":
        return Atom("enabled", left)
    return compare(atom.kind, left, right)


# -- what follows from what ---------------------------------------------------------------------------------

Assumptions = Mapping[Atom, bool]


def evaluate(formula: Formula, known: Assumptions) -> bool | None:
    """The value of `formula` under `known`, or None when it can be either."""
    if isinstance(formula, bool):
        return formula
    if isinstance(formula, Atom):
        return _evaluate_atom(formula, known)
    if isinstance(formula, Not):
        found = evaluate(formula.part, known)
        return None if found is None else not found
    values = [evaluate(part, known) for part in formula.parts]
    decisive = isinstance(formula, Or)
    if any(value is decisive for value in values):
        return decisive
    return None if None in values else not decisive


def _evaluate_atom(atom: Atom, known: Assumptions) -> bool | None:
    found = known.get(atom)
    if found is not None:
        return found
    for other, value in known.items():
        if other.left == atom.left or other.right == atom.left or other.left == atom.right:
            implied = _implied(atom, other, value)
            if implied is not None:
                return implied
    return None


def _implied(atom: Atom, other: Atom, value: bool) -> bool | None:
    """What `other` being `value` says about `atom`."""
    if atom.kind == "gt" and other.kind == "gt":
        return _ordered(atom, other, value)
    if other.left != atom.left:
        return None
    if other.kind == "eq" and value and isinstance(other.right, Lit):
        return evaluate(rebuild(atom, other.right, atom.right), {})
    if other.kind == "none" and value:
        return False if atom.kind in ("truth", "eq", "gt", "enabled") else None
    if other.kind == "truth":
        return _from_truth(atom, value)
    if other.kind == "gt" and value and isinstance(other.right, Lit):
        return _from_greater(atom, other.right)
    if other.kind == "enabled" and value:
        return {"truth": True, "none": False}.get(atom.kind)
    return None


def _from_truth(atom: Atom, value: bool) -> bool | None:
    if value and atom.kind == "none":
        return False
    if atom.kind == "eq" and isinstance(atom.right, Lit):
        return False if bool(atom.right.value) is not value else None
    if not value and atom.kind == "gt" and isinstance(atom.right, Lit):
        return False if isinstance(atom.right.value, (int, float)) and atom.right.value >= 0 else None
    return False if not value and atom.kind == "enabled" else None


def _from_greater(atom: Atom, bound: Lit) -> bool | None:
    if atom.kind == "none":
        return False
    if not isinstance(bound.value, (int, float)):
        return None
    if atom.kind == "truth" and bound.value >= 0:
        return True
    if atom.kind == "eq" and isinstance(atom.right, Lit) and isinstance(atom.right.value, (int, float)):
        return False if atom.right.value <= bound.value else None
    return None


def _ordered(atom: Atom, other: Atom, value: bool) -> bool | None:
    """Two comparisons of one term with literals, or of the same two terms the other way round."""
    if atom.left == other.right and atom.right == other.left:
        return False if value else None
    if atom.left != other.left or not (isinstance(atom.right, Lit) and isinstance(other.right, Lit)):
        return None
    mine, theirs = atom.right.value, other.right.value
    if not (isinstance(mine, (int, float)) and isinstance(theirs, (int, float))):
        return None
    if value:
        return True if mine <= theirs else None
    return False if mine >= theirs else None


def assume(formula: Formula, value: bool, known: dict[Atom, bool]) -> list[dict[Atom, bool]]:
    """The ways in which `formula` can be `value`: `known` extended, disjoint from each other."""
    settled = evaluate(formula, known)
    if settled is not None:
        return [known] if settled is value else []
    if isinstance(formula, Not):
        return assume(formula.part, not value, known)
    if isinstance(formula, (And, Or)):
        return _assume_parts(formula, value, known)
    assert isinstance(formula, Atom)
    if has_unknown(formula.left) or has_unknown(formula.right):
        return [known]
    return [{**known, formula: value}]


def _assume_parts(formula: And | Or, value: bool, known: dict[Atom, bool]) -> list[dict[Atom, bool]]:
    every = isinstance(formula, And) is value
    if every:
        found = [known]
        for part in formula.parts:
            found = [after for before in found for after in assume(part, value, before)]
        return found
    result: list[dict[Atom, bool]] = []
    rest = [known]
    for part in formula.parts:
        result.extend(after for before in rest for after in assume(part, value, before))
        rest = [after for before in rest for after in assume(part, not value, before)]
    return result
