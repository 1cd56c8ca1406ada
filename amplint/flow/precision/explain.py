"""What the dtype flow believes at one line, in words: for readers who doubt a finding, and for editors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amplint.finding import Span
from amplint.flow.precision.analysis import Precision, precision_of
from amplint.flow.precision.lattice import LOW, UNKNOWN, Dtypes
from amplint.flow.precision.operators import CUDA, NPU, Ambient, operators
from amplint.flow.precision.values import Tensor, Value, tensors_in
from amplint.model.units import is_own

if TYPE_CHECKING:
    from amplint.model.linked import Elsewhere
    from amplint.model.module import ModuleModel


@dataclass(frozen=True, slots=True)
class Typed:
    """A name or an operator on a line, with what dtype it has."""

    #: As written; for an operator its name with "()".
    code: str
    #: "float16", "float16 or float32", "" where nothing is known.
    cuda: str
    npu: str
    #: Where it got that dtype, and how.
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """What is believed at one line."""

    typed: tuple[Typed, ...] = ()
    #: What autocast does there, "" where nothing ran there.
    autocast: str = ""


def line(model: ModuleModel, row: int, elsewhere: Elsewhere | None, torch: tuple[int, int]) -> Line:
    """What is believed of the names and operators on a row of a file."""
    cuda, npu = (precision_of(model, elsewhere, backend, torch) for backend in (CUDA, NPU))
    there = dict(_on(model, npu, row))
    typed: dict[tuple[str, str], Typed] = {}
    ambient: Ambient | None = None
    for (site, code), (value, around) in _on(model, cuda, row):
        ambient = around if ambient is None or around.enabled else ambient
        other = there.get((site, code), (value, around))[0]
        found = Typed(code, said(value), said(other), _origin(model, value))
        if found.cuda or found.npu:
            typed.setdefault((code, found.cuda), found)
    return Line(tuple(typed.values()), _around(model, ambient) if ambient is not None else "")


@dataclass(frozen=True, slots=True)
class Named:
    """A name (or attribute) somewhere in a file, with what is believed of it there."""

    span: Span
    typed: Typed
    #: What autocast does there.
    autocast: str
    #: Autocast gave it a dtype of 16 bits there, on CUDA.
    is_lowered: bool = False


def named(
    model: ModuleModel, elsewhere: Elsewhere | None, torch: tuple[int, int], within: Span, npu: bool = True
) -> Iterator[Named]:
    """What is believed of the names in a part of a file, in the order of the text; without `npu` of CUDA only."""
    cuda = precision_of(model, elsewhere, CUDA, torch).notes
    other = precision_of(model, elsewhere, NPU, torch).notes if npu else cuda
    for site, (value, ambient) in sorted(cuda.names.items()):
        if not is_own(site):
            continue
        node = model.tree.nodes[site]
        span = model.tree.span(node)
        if not (within.start <= span.end and span.start <= within.end):
            continue
        there = other.names.get(site, (value, ambient))[0]
        typed = Typed(model.tree.code(node), said(value), said(there), _origin(model, value))
        by_autocast = (
            isinstance(value, Tensor)
            and bool(ambient.enabled)
            and bool(value.dtypes)
            and value.dtypes <= ambient.dtypes & LOW
            and not value.why  # no cast made it so
        )
        yield Named(span, typed, _around(model, ambient), by_autocast)


def _on(
    model: ModuleModel, precision: Precision, row: int
) -> Iterator[tuple[tuple[int, str], tuple[Value, Ambient]]]:
    """(Site, as written) -> (what it stands for, what autocast does) of everything on a row."""
    notes = precision.notes
    for site, seen in sorted(notes.names.items()):
        if is_own(site) and _row(model, site) == row:
            yield (site, model.tree.code(model.tree.nodes[site])), seen
    for site, ways in sorted(notes.by_site.items()):
        if not is_own(site) or _row(model, site) != row:
            continue
        for applied in ways:
            if applied.op in operators():
                yield (site, f"{applied.op}()"), (applied.result, applied.ambient)


def _row(model: ModuleModel, site: int) -> int:
    return model.source.position(model.tree.span(model.tree.nodes[site]).start).row


def said(value: Value) -> str:
    """The dtypes of a value in words, "" where nothing is known of them."""
    found: Dtypes = frozenset().union(*(t.dtypes for t in tensors_in(value)))
    known = sorted(found - {UNKNOWN})
    if not known:
        return ""
    return " or ".join(known) + (", perhaps another" if UNKNOWN in found else "")


def _origin(model: ModuleModel, value: Value) -> str:
    if not isinstance(value, Tensor) or value.origin is None or not value.why:
        return ""
    where = (
        f", line {model.source.shown_row(_row(model, value.origin))}"
        if is_own(value.origin)
        else ", in another file"
    )
    return value.why + where


def _around(model: ModuleModel, ambient: Ambient) -> str:
    if ambient.enabled is None:
        return "not known: whoever calls this may have entered a region"
    where = (
        f" (line {model.source.shown_row(_row(model, ambient.site))})"
        if ambient.site is not None and is_own(ambient.site)
        else ""
    )
    return f"on, {' or '.join(sorted(ambient.dtypes))}{where}" if ambient.enabled else f"off{where}"
