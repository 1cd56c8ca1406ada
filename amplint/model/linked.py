"""One module together with the parts of others that it uses, under names that keep them apart (see `units`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import libcst as cst

from amplint.model import ir
from amplint.model.lower import Lowering
from amplint.model.module import ModuleModel
from amplint.model.units import UNIT, is_elsewhere

if TYPE_CHECKING:
    from amplint.source import Source

#: Other modules that one module is looked at together with, at most, and what one of them may hold.
_MOSTUNITS = 8
_LARGEST = 400_000
_FOREIGN = frozenset({*sys.stdlib_module_names, "builtins", "torch", "numpy", "torchvision", "torch_npu"})
#: What a definition elsewhere must contain to be worth looking at.
_PROTOCOL = re.compile(
    r"\.\s*scale\s*\(|unscale_|clip_grad|\.step\s*\(|\.grad\b|GradScaler|scaler\s*\(|\.backward\s*\(|zero_grad"
)


class Elsewhere(Protocol):
    """The other files of a run, as far as the flow analyses want to know of them."""

    def definition(self, filename: str, name: str) -> tuple[str, str] | None:
        """The file and the name in it that the qualified `name` of `filename` denotes, where that is known."""

    def source(self, filename: str) -> Source | None:
        """The source of a file of the run."""

    def model(self, filename: str) -> ModuleModel | None:
        """The model of a file of the run, if it can be parsed."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """One of the modules."""

    model: ModuleModel
    #: What its qualnames begin with.
    prefix: str
    offset: int


class Linked:
    """What flow analyses read of a module and of those that it uses."""

    def __init__(self, model: ModuleModel, elsewhere: Elsewhere | None = None) -> None:
        self._elsewhere = elsewhere
        self._begin(model)
        self.functions: Mapping[str, ir.Function] = model.functions
        self.classes: Mapping[str, ir.Class] = model.classes
        #: Whether the module uses no other: its functions are then as it has them itself.
        self.is_alone = elsewhere is None or all(self._linked(0, name) == name for name in model.met)
        if not self.is_alone:
            self._begin(model)  # units are numbered in the order in which what is lowered names them
            self._lower()

    def _begin(self, model: ModuleModel) -> None:
        self._units = [_Unit(model, "", 0)]
        self._by_file: dict[str, _Unit | None] = {model.filename: self._units[0]}
        self._names: dict[tuple[int, str], str] = {}

    def place(self, site: int) -> tuple[ModuleModel, cst.CSTNode]:
        """The module and the node that a site denotes."""
        unit = self._units[site // UNIT]
        return unit.model, unit.model.tree.nodes[site % UNIT]

    @property
    def others(self) -> Iterator[ModuleModel]:
        """The other modules."""
        return (unit.model for unit in self._units[1:])

    # -- lowering -------------------------------------------------------------------------------------------

    def _lower(self) -> None:
        functions: dict[str, ir.Function] = {}
        classes: dict[str, ir.Class] = {}
        for number, unit in enumerate(self._units):  # grows while names are linked

            def link(name: str, number: int = number) -> str:
                return self._linked(number, name)

            names = unit.model.names
            lowering = Lowering(
                unit.model.tree,
                names,
                prefix=unit.prefix,
                offset=unit.offset,
                link=link,
                variable=self._variable,
            )
            made_functions, made_classes = unit.model.lowered(lowering, unit.prefix)
            functions.update(made_functions)
            classes.update(made_classes)
        self.functions, self.classes = functions, classes

    def _linked(self, number: int, name: str) -> str:
        key = (number, name)
        found = self._names.get(key)
        if found is None:
            found = self._names[key] = self._link(self._units[number], name)
        return found

    def _link(self, unit: _Unit, name: str) -> str:
        """The name of a definition in one of the units, or `name` as it is."""
        if name.startswith("__main__."):
            return unit.prefix + name.removeprefix("__main__.") if unit.prefix else name
        first = name.lstrip(".").partition(".")[0]
        if self._elsewhere is None or not first or (first in _FOREIGN and not name.startswith(".")):
            return name
        found = self._elsewhere.definition(unit.model.filename, name)
        if found is None:
            return name
        target = self._unit_of(*found)
        if target is None:
            return name
        return (target.prefix or "__main__.") + found[1]

    def _variable(self, name: str) -> ir.Name | None:
        """The variable of one of the other units that a linked name is."""
        if not is_elsewhere(name):
            return None
        scope, _, rest = name.partition(">.")
        if not rest or "." in rest or self._units[int(scope[1:])].model.defines(rest):
            return None
        return ir.Name(rest, f"{scope}>", 0)

    def _unit_of(self, filename: str, qualname: str) -> _Unit | None:
        if filename in self._by_file:
            return self._by_file[filename]
        assert self._elsewhere is not None
        source = self._elsewhere.source(filename)
        if (
            source is None
            or len(self._units) > _MOSTUNITS
            or len(source.text) > _LARGEST
            or not _PROTOCOL.search(definition_text(source.text, qualname.partition(".")[0]))
        ):
            return None
        model = self._elsewhere.model(filename)
        number = len(self._units)
        unit = _Unit(model, f"<{number}>.", number * UNIT) if model is not None else None
        self._by_file[filename] = unit
        if unit is not None:
            self._units.append(unit)
        return unit


def definition_text(text: str, name: str) -> str:
    """The rows of a definition or assignment at the outermost level of a module, "" where there is none."""
    word = re.escape(name)
    start = re.search(
        rf"^(?:(?:async[ \t]+def|def|class)[ \t]+{word}\b|{word}[ \t]*[:=])", text, re.MULTILINE
    )
    if start is None:
        return ""
    end = re.compile(r"^[^\s#)\]}]", re.MULTILINE).search(text, text.find("\n", start.end()) + 1)
    return text[start.start() : end.start() if end is not None else len(text)]
