"""`ModuleModel`: everything that analyses may ask about one parsed file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import libcst as cst

from amplint.model import ir
from amplint.model.lower import Lowering
from amplint.model.names import Names, Scope
from amplint.model.values import Values
from amplint.source import Source
from amplint.syntax.tree import Tree

if TYPE_CHECKING:
    from amplint.syntax.pieces import Piece


class ModuleModel:
    """One parsed file and what it means. Parts are computed when first asked for."""

    def __init__(
        self,
        source: Source,
        module: cst.Module,
        module_name: str = "",
        aliases: Mapping[str, str] | None = None,
        pieces: Sequence[tuple[int, Piece]] = (),
    ) -> None:
        self.source = source
        self.tree = Tree(module, source.text, pieces)
        self.names = Names(self.tree, module_name, aliases)
        self.values = Values(self.tree, self.names)
        self._lowering = Lowering(self.tree, self.names)
        self._functions: dict[str, ir.Function] = {}

    @property
    def filename(self) -> str:
        """The file's name as users see it."""
        return self.source.filename

    @cached_property
    def _definitions(self) -> dict[str, tuple[cst.CSTNode, Scope]]:
        """Qualname -> (def or class node, the scope it opens); of several with one name the last counts."""
        return {
            scope.qualname: (scope.node, scope)
            for scope in self.names.scopes
            if isinstance(scope.node, (cst.FunctionDef, cst.ClassDef))
        }

    def defines(self, qualname: str) -> bool:
        """Whether there is a function or class of that qualname."""
        return qualname in self._definitions

    @cached_property
    def function_names(self) -> tuple[str, ...]:
        """Qualnames of all functions and methods in the order of the text, the module's own code ("") first."""
        return ("", *(q for q, (node, _) in self._definitions.items() if isinstance(node, cst.FunctionDef)))

    def function(self, qualname: str) -> ir.Function | None:
        """The function of that qualname lowered to IR ("" is the module's own code), or None."""
        found = self._functions.get(qualname)
        if found is not None:
            return found
        found = self.lowered_function(self._lowering, qualname)
        if found is not None:
            self._functions[qualname] = found
        return found

    @property
    def functions(self) -> dict[str, ir.Function]:
        """Qualname -> function, in the order of the text, the module's own code ("") first."""
        return {name: found for name in self.function_names if (found := self.function(name)) is not None}

    @property
    def met(self) -> Iterable[str]:
        """The qualified names that anything in its functions and classes resolves to."""
        assert self.functions and self.classes is not None  # both are lowered when they are asked for
        return self._lowering.met

    def lowered(self, lowering: Lowering, prefix: str) -> tuple[dict[str, ir.Function], dict[str, ir.Class]]:
        """All functions and classes by another lowering, under qualnames that begin with `prefix`."""
        functions = {prefix.removesuffix("."): lowering.module()}
        for qualname in self._definitions:
            function = self.lowered_function(lowering, qualname)
            if function is not None:
                functions[prefix + qualname] = function
        return functions, self.lowered_classes(lowering, prefix)

    def lowered_function(self, lowering: Lowering, qualname: str) -> ir.Function | None:
        """One function by another lowering; "" is the module's own code."""
        if qualname == "":
            return lowering.module()
        node, scope = self._definitions.get(qualname, (None, None))
        if not isinstance(node, cst.FunctionDef) or scope is None or scope.parent is None:
            return None
        owner = scope.parent.qualname if scope.parent.kind == "class" else None
        return lowering.function(node, qualname, owner)

    @cached_property
    def classes(self) -> dict[str, ir.Class]:
        """Qualname -> class, in the order of the text."""
        return self.lowered_classes(self._lowering, "")

    def lowered_classes(self, lowering: Lowering, prefix: str) -> dict[str, ir.Class]:
        """All classes by another lowering, under qualnames that begin with `prefix`."""
        found: dict[str, ir.Class] = {}
        for qualname, (node, scope) in self._definitions.items():
            if isinstance(node, cst.ClassDef):
                methods = [
                    (name, inner)
                    for name, bindings in scope.bindings.items()
                    if bindings[-1].kind == "def" and (inner := f"{qualname}.{name}") in self._definitions
                ]
                found[prefix + qualname] = lowering.klass(node, qualname, methods)
        return found
