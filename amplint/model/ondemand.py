"""One module, and of the others that it uses what is asked for: a function is lowered when it is first looked at.

The parts of other modules go by names and sites that keep them apart (see `units`). Names in them stay as that module
writes them; `resolve` says what a name means there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import libcst as cst

from amplint.model import ir
from amplint.model.linked import Elsewhere, definition_text
from amplint.model.lower import Lowering
from amplint.model.module import ModuleModel
from amplint.model.units import UNIT, is_elsewhere

#: Other modules that are looked at together with one, at most, and what one of them may hold.
_MOST = 8
_LARGEST = 400_000
_FOREIGN = frozenset({*sys.stdlib_module_names, "builtins", "torch", "numpy", "torchvision", "torch_npu"})
#: Rows of a definition that may leave the work to others.
_SHORT = 12
#: What a definition elsewhere must contain to be worth looking at.
_MATTERS = re.compile(
    r"\btorch\.|\bnn\.|\bF\.|\.(?:sum|mean|log|exp|pow|softmax|half|float|to|type_as|sigmoid)\s*\("
)


@dataclass(slots=True)
class _Unit:
    """One of the modules."""

    model: ModuleModel
    #: What its qualnames begin with.
    prefix: str
    lowering: Lowering
    names: frozenset[str]
    lowered: dict[str, ir.Function] = field(default_factory=dict)


class _Functions(Mapping[str, ir.Function]):
    """The functions of all units, lowered when they are asked for; iterates over those of the module itself."""

    def __init__(self, units: list[_Unit]) -> None:
        self._units = units

    def __getitem__(self, qualname: str) -> ir.Function:
        unit, name = self._find(qualname)
        if name not in unit.names:
            raise KeyError(qualname)
        if unit is self._units[0]:
            found = unit.model.function(name)
            if found is None:
                raise KeyError(qualname)
            return found
        function = unit.lowered.get(name)
        if function is None:
            function = unit.model.lowered_function(unit.lowering, name)
            if function is None:
                raise KeyError(qualname)
            unit.lowered[name] = function
        return function

    def __contains__(self, qualname: object) -> bool:
        if not isinstance(qualname, str):
            return False
        unit, name = self._find(qualname)
        return name in unit.names

    def __iter__(self) -> Iterator[str]:
        return iter(self._units[0].model.function_names)

    def __len__(self) -> int:
        return len(self._units[0].model.function_names)

    def _find(self, qualname: str) -> tuple[_Unit, str]:
        if not is_elsewhere(qualname):
            return self._units[0], qualname
        number, _, name = qualname.removeprefix("<").partition(">")
        return self._units[int(number)], name.removeprefix(".")


class OnDemand:
    """What the dtype flow reads of a module and of those that it uses."""

    def __init__(self, model: ModuleModel, elsewhere: Elsewhere | None = None) -> None:
        self._elsewhere = elsewhere
        names = frozenset(model.function_names)
        self._units = [_Unit(model, "", Lowering(model.tree, model.names), names)]
        self._by_file: dict[str, int | None] = {model.filename: 0}
        self._resolved: dict[tuple[int, str], str | None] = {}
        self.functions: Mapping[str, ir.Function] = _Functions(self._units)
        #: Classes of all units that were looked at so far.
        self.classes: dict[str, ir.Class] = dict(model.classes)

    def place(self, site: int) -> tuple[ModuleModel, cst.CSTNode]:
        """The module and the node that a site denotes."""
        unit = self._units[site // UNIT]
        return unit.model, unit.model.tree.nodes[site % UNIT]

    def resolve(self, name: str, function: str) -> str | None:
        """The qualname of what a qualified name denotes in a function; None where that is not at hand."""
        number = int(function.removeprefix("<").partition(">")[0]) if is_elsewhere(function) else 0
        key = (number, name)
        if key not in self._resolved:
            self._resolved[key] = self._resolve(number, name)
        return self._resolved[key]

    def _resolve(self, number: int, name: str) -> str | None:
        first = name.lstrip(".").partition(".")[0]
        if self._elsewhere is None or not first or (first in _FOREIGN and not name.startswith(".")):
            return None
        found = self._elsewhere.definition(self._units[number].model.filename, name)
        if found is None:
            return None
        unit = self._unit_of(*found)
        if unit is None:
            return None
        qualname = f"{self._units[unit].prefix}{found[1]}"
        return qualname if qualname in self.functions or qualname in self.classes else None

    def _unit_of(self, filename: str, qualname: str) -> int | None:
        if filename in self._by_file:
            return self._by_file[filename]
        assert self._elsewhere is not None
        source = self._elsewhere.source(filename)
        if (
            source is None
            or len(self._units) > _MOST
            or len(source.text) > _LARGEST
            or not _may_matter(source.text, qualname.partition(".")[0])
        ):
            return None
        model = self._elsewhere.model(filename)
        number = self._by_file[filename] = len(self._units) if model is not None else None
        if model is None or number is None:
            return None
        prefix = f"<{number}>."

        def link(name: str) -> str:
            return prefix + name.removeprefix("__main__.") if name.startswith("__main__.") else name

        lowering = Lowering(model.tree, model.names, prefix=prefix, offset=number * UNIT, link=link)
        self._units.append(_Unit(model, prefix, lowering, frozenset(model.function_names)))
        self.classes.update(model.lowered_classes(lowering, prefix))
        return number


def _may_matter(text: str, name: str) -> bool:
    """Whether a definition computes with tensors, or is so short that what it calls may."""
    definition = definition_text(text, name)
    is_short = "\n" in definition and definition.count("\n") < _SHORT
    return bool(_MATTERS.search(definition)) or (is_short and "torch" in text)
