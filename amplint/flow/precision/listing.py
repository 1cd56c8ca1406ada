"""The operators that run in each autocast region of a file, with the dtypes that two backends give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amplint.flow.precision.analysis import Precision, precision_of
from amplint.flow.precision.lattice import Dtypes
from amplint.flow.precision.notes import Applied
from amplint.flow.precision.operators import CUDA, NPU, operators
from amplint.flow.precision.values import Top, Value, tensors_in

if TYPE_CHECKING:
    from amplint.model.linked import Elsewhere
    from amplint.model.module import ModuleModel

#: What else than the operators of the table is listed.
_OTHERS = frozenset(("model", "to"))
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file; rows and columns count from 1."""

    file: str
    row: int
    column: int
    #: What is written there, on one line.
    code: str
    #: In a notebook, the cell that the row is one of.
    cell: int | None = None

    @property
    def order(self) -> tuple[int, int, int]:
        """By what places of one file are sorted."""
        return self.cell or 0, self.row, self.column

    @property
    def line(self) -> str:
        """The row for its reader: `12`, or `cell 3:4`."""
        return f"{self.row}" if self.cell is None else f"cell {self.cell}:{self.row}"


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator that runs in a region, over all ways in which it does."""

    place: Place
    #: As it is called: an operator, "module LayerNorm", ...
    operator: str
    #: The dtypes of each operand that is a tensor, on CUDA.
    operands: tuple[Dtypes, ...]
    #: The same on NPU; as many.
    npu_operands: tuple[Dtypes, ...]
    cuda: Dtypes
    npu: Dtypes
    #: The operands are the same on both backends, and the result is not.
    by_itself: bool = False

    @property
    def differs(self) -> bool:
        """Whether the backends give different dtypes."""
        return self.cuda != self.npu


@dataclass(frozen=True, slots=True)
class RegionListing:
    """An autocast region and what runs in it: what differs first, then in the order of the text."""

    place: Place
    #: The dtypes that it may have.
    dtypes: Dtypes
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class _Seen:
    operands: tuple[Dtypes, ...]
    result: Dtypes


_Key = tuple[int, int, str]


def operators_in_regions(
    model: ModuleModel, elsewhere: Elsewhere | None = None, torch: tuple[int, int] = (2, 13)
) -> tuple[RegionListing, ...]:
    """Every region of a file in which something runs, by row."""
    on_cuda = precision_of(model, elsewhere, CUDA, torch)
    on_npu = precision_of(model, elsewhere, NPU, torch)
    cuda, npu = _collected(on_cuda), _collected(on_npu)
    dtypes: dict[int, Dtypes] = {}
    for applied in (*on_cuda.notes.applied, *on_npu.notes.applied):
        if applied.ambient.enabled and applied.ambient.site is not None:
            site = applied.ambient.site
            dtypes[site] = dtypes.get(site, frozenset()) | applied.ambient.dtypes
    found: dict[int, list[Operation]] = {}
    for key in sorted(cuda.keys() & npu.keys()):
        region, site, operator = key
        here, there = cuda[key], npu[key]
        by_itself = here.operands == there.operands and here.result != there.result
        operands = there.operands if len(there.operands) == len(here.operands) else here.operands
        found.setdefault(region, []).append(
            Operation(
                _place(on_npu, site), operator, here.operands, operands, here.result, there.result, by_itself
            )
        )
    listings = (
        RegionListing(_place(on_npu, region), dtypes[region], tuple(sorted(rows, key=_order)))
        for region, rows in found.items()
    )
    return tuple(
        sorted(
            listings,
            key=lambda each: (each.place.file != model.filename, each.place.order),
        )
    )


def _order(operation: Operation) -> tuple[bool, bool, str, tuple[int, int, int]]:
    place = operation.place
    return not operation.differs, not operation.by_itself, place.file, place.order


def _collected(precision: Precision) -> Mapping[_Key, _Seen]:
    """(Region, place, operator) -> the dtypes over all ways in which it ran."""
    found: dict[_Key, _Seen] = {}
    for applied in precision.notes.applied:
        if not applied.ambient.enabled or applied.ambient.site is None or not _is_listed(applied):
            continue
        operands = tuple(_dtypes(v) for v in applied.args if tensors_in(v) or isinstance(v, Top))
        result = _dtypes(applied.result)
        key = (applied.ambient.site, applied.site, _named(applied))
        known = found.get(key)
        if known is not None:
            result |= known.result
            if len(known.operands) == len(operands):
                operands = tuple(a | b for a, b in zip(known.operands, operands, strict=True))
        found[key] = _Seen(operands, result)
    return found


def _is_listed(applied: Applied) -> bool:
    row = operators().get(applied.op)
    is_known = row is not None or applied.op in _OTHERS or applied.op.startswith("torch.nn.")
    return is_known and bool(tensors_in(applied.result))


def _named(applied: Applied) -> str:
    return applied.form if applied.form.startswith("module ") else applied.op


def _dtypes(value: Value) -> Dtypes:
    return frozenset(dtype for tensor in tensors_in(value) for dtype in tensor.dtypes)


def _place(precision: Precision, site: int) -> Place:
    model, node = precision.files.place(site)
    place = model.source.place(model.source.position(model.tree.span(node).start))
    code = " ".join(model.tree.code(node).split())
    return Place(
        model.filename,
        place.row,
        place.column,
        code if len(code) <= _LONGEST else f"{code[: _LONGEST - 3]}...",
        place.cell,
    )
