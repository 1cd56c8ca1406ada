"""Names of modules and parameters: `layers.0.weight`, whoever holds the model."""

import gc
import weakref
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

import torch

#: What wrappers put before the names of the model that they wrap.
_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


class Names:
    """Finds the models of a process and what their parts are called."""

    def __init__(self, models: Tuple[torch.nn.Module, ...] = ()) -> None:
        self._given = [weakref.ref(model) for model in models]
        self._roots: List["weakref.ref[torch.nn.Module]"] = list(self._given)
        self._parameters: Dict[int, Tuple[str, str, str]] = {}
        self._unknown: Set[int] = set()
        if models:
            self._read()

    def roots(self) -> List[torch.nn.Module]:
        """Models that are no part of another one."""
        return [model for ref in self._roots if (model := ref()) is not None]

    def modules(self) -> Iterator[Tuple[str, torch.nn.Module]]:
        """All modules with their names, each once, in the order in which models define them."""
        roots = self.roots()
        seen: Set[int] = set()
        for root in roots:
            for name, module in root.named_modules():
                if id(module) not in seen:
                    seen.add(id(module))
                    yield _joined(root, name, len(roots) > 1), module

    def look(self) -> None:
        """Find models again, unless they were given. Costs as much as a garbage collection."""
        if self._given:
            return
        found = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
        inner = {id(child) for each in found for child in each.__dict__.get("_modules", {}).values()}
        self._roots = [weakref.ref(each) for each in found if id(each) not in inner and _trains(each)]
        self._read()

    def knows(self, parameter: torch.Tensor) -> bool:
        """Whether the parameter has a name, or was looked for in vain."""
        return id(parameter) in self._parameters or id(parameter) in self._unknown

    def give_up_on(self, parameters: List[torch.Tensor]) -> None:
        """Do not look for these again."""
        self._unknown.update(id(each) for each in parameters if id(each) not in self._parameters)

    def parameter(self, parameter: torch.Tensor) -> Tuple[Optional[str], Optional[str], Optional[str]]:
        """Name of a parameter, of its module, and that module's class; None for what no model holds."""
        return self._parameters.get(id(parameter), (None, None, None))

    def order(self) -> Dict[int, int]:
        """Position of every parameter (by id) in the order of definition."""
        return {key: index for index, key in enumerate(self._parameters)}

    def _read(self) -> None:
        self._parameters = {}
        for name, module in self.modules():
            for own, parameter in module._parameters.items():
                if parameter is not None:
                    full = f"{name}.{own}" if name else own
                    self._parameters.setdefault(
                        id(parameter), (full, name or "(model)", type(module).__name__)
                    )


def _trains(module: Any) -> bool:
    try:
        return any(parameter.requires_grad for parameter in module.parameters())
    except Exception:  # a model that is not built yet, a lazy one, a proxy
        return False


def _joined(root: torch.nn.Module, name: str, several: bool) -> str:
    shown = name + "."
    changed = True
    while changed:
        changed = False
        for prefix in _WRAPPERS:
            if shown.startswith(prefix):
                shown, changed = shown[len(prefix) :], True
    for prefix in _WRAPPERS[1:]:
        shown = shown.replace("." + prefix, ".")
    shown = shown.rstrip(".")
    if not several:
        return shown
    inner: Any = root
    while True:
        wrapped = inner._modules.get("module") or inner._modules.get("_orig_mod")
        if wrapped is None or len(inner._modules) != 1:
            break
        inner = wrapped
    kind = type(inner).__name__
    return f"{kind}.{shown}" if shown else kind
