"""How device-agnostic AMP is written under a style and a minimum torch release."""

from __future__ import annotations

from functools import cached_property

import libcst as cst

from amplint.config import Settings
from amplint.finding import Edit, ImportRemoval
from amplint.model.module import ModuleModel
from amplint.model.names import Scope
from amplint.port.edits import CannotEdit, ImportEditor
from amplint.port.symbols import Symbol

#: The first release in which `current_accelerator()` returns None without an accelerator, and never raises.
_ACCELERATOR = (2, 7)
#: The first release with `torch.autocast`.
_AUTOCAST = (1, 10)

_COMMENT = '# Device type for AMP; "cuda" without an accelerator, so that AMP stays disabled there.'


class Spelling:
    """Writes one module's ports; remembers which imports and names the module needs for them."""

    def __init__(self, model: ModuleModel, settings: Settings) -> None:
        self.model = model
        self.settings = settings
        self.imports = ImportEditor(model)
        self.is_shim = settings.effective_style == "shim"

    # -- pieces of code; each returns (text, edits that make it valid) ---------------------------------------

    def module(self, name: str, scope: Scope) -> tuple[str, tuple[Edit, ...]]:
        """A whole module (`torch`, `functools`) as written in `scope`, importing it when nothing does yet."""
        bound = self.imports.bound_module(name, scope)
        if bound is not None:
            return bound, ()
        if not self.imports.is_free(name):
            raise CannotEdit(f"{name!r} is not imported at the top of the module, or means something else")
        return name, (self.imports.add_import(f"import {name}"),)

    def torch_name(
        self, qualified: str, since: tuple[int, int], scope: Scope
    ) -> tuple[str, tuple[Edit, ...]]:
        """`torch.amp.GradScaler` and the like. Raises `CannotEdit` when the minimum torch is older."""
        if self.settings.torch < since:
            have = ".".join(map(str, self.settings.torch))
            want = ".".join(map(str, since))
            raise CannotEdit(
                f'{qualified} exists from torch {want} on, the project supports {have}; use style = "shim"'
            )
        root, edits = self.module("torch", scope)
        return root + qualified.removeprefix("torch"), edits

    def device(self, scope: Scope) -> tuple[str, tuple[Edit, ...]]:
        """The expression for the device type to use for AMP."""
        if self.is_shim:
            root, edits = self.shim(scope)
            return f"{root}.device_type()", edits
        if self.settings.torch < _AUTOCAST:
            raise CannotEdit('torch.autocast exists from torch 1.10 on; use style = "shim"')
        root, edits = self.module("torch", self.model.names.module_scope)
        if not edits and not self.imports.is_certain("torch"):
            raise CannotEdit("torch is imported under a condition, so a module-level device may lack it")
        value = self._device_value(root)
        name = self._defined(value, scope)
        if name is not None:
            return name, ()
        name = next(n for n in _device_names() if self.imports.is_free(n))
        line = self.imports.define((_COMMENT, f"{name} = {value}"))
        return name, (*edits, line)

    def _device_value(self, torch: str) -> str:
        if self.settings.torch >= _ACCELERATOR:
            # check_available=True would initialise the driver at import, before CUDA_VISIBLE_DEVICES may be set
            return f'getattr({torch}.accelerator.current_accelerator(), "type", "cuda")'
        return f'"npu" if hasattr({torch}, "npu") else "cuda"'

    def _defined(self, value: str, scope: Scope) -> str | None:
        """The module-level name that already holds exactly this value."""
        top = self.model.names.module_scope
        return next((name for name in self._constants.get(value, ()) if scope.owner(name) is top), None)

    @cached_property
    def _constants(self) -> dict[str, list[str]]:
        """Code -> the names that hold its value and nothing else, of the module level."""
        found: dict[str, list[str]] = {}
        for name, bindings in self.model.names.module_scope.bindings.items():
            only = bindings[0]
            if len(bindings) == 1 and only.kind == "assign" and only.value is not None:
                found.setdefault(self.model.tree.code(only.value), []).append(name)
        return found

    def shim(self, scope: Scope) -> tuple[str, tuple[Edit, ...]]:
        """The shim module as written in `scope`, importing it when nothing does yet."""
        package, _, last = self.settings.shim_module.rpartition(".")
        top = self.model.names.module_scope
        for name, bindings in top.bindings.items():
            origins = {self.model.names.absolute(b.origin or "") for b in bindings if b.kind == "import"}
            only_imports = all(b.kind == "import" for b in bindings)
            if only_imports and origins == {self.settings.shim_module} and scope.owner(name) is top:
                return name, ()
        names = (last, f"amp_{last.strip('_')}", f"_amplint_{last}")
        name = next(n for n in names if self.imports.is_free(n))
        text = f"from {package} import {last}" if package else f"import {last}"
        if name != last:
            text += f" as {name}"
        return name, (self.imports.add_import(text),)

    def moved_to_shim(
        self, alias: cst.ImportAlias, symbol: Symbol
    ) -> tuple[tuple[Edit, ...], ImportRemoval | None]:
        """Import a name, or the module itself, from the shim under the name that the module knows it by."""
        package, _, last = self.settings.shim_module.rpartition(".")
        if symbol.shim:
            return (), self.imports.move(alias, self.settings.shim_module, symbol.shim)
        statement = self.model.tree.parent(alias)
        if isinstance(statement, cst.Import):
            return (Edit(self.model.tree.span(alias.name), self.settings.shim_module),), None
        if not package:
            bound = alias.asname.name if alias.asname is not None else alias.name
            text = f"import {last} as {self.model.tree.code(bound)}"
            return (self.imports.add_import(text),), self.imports.remove(alias)
        return (), self.imports.move(alias, package, last)


def _device_names() -> list[str]:
    return ["AMP_DEVICE", "AMP_DEVICE_TYPE", *(f"AMP_DEVICE_{n}" for n in range(2, 100))]
