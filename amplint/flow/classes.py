"""The classes of one file: who inherits from whom, and which function a method call reaches."""

from __future__ import annotations

from collections.abc import Mapping

from amplint.model import ir

#: What the names of the file's own definitions begin with; those of modules that it uses begin with "<".
_OWN = "__main__."
#: Bases whose methods never touch a scaler of the subclass.
_INERT = (
    "builtins.",
    "abc.",
    "typing.",
    "enum.",
    "torch.nn.Module",
    "torch.nn.modules.module.Module",
    "torch.utils.data.",
    "torch.optim.",
    "torch.autograd.",
    "unittest.",
)
LIGHTNING = (
    "pytorch_lightning.LightningModule",
    "pytorch_lightning.core.LightningModule",
    "lightning.LightningModule",
    "lightning.pytorch.LightningModule",
    "lightning.pytorch.core.LightningModule",
)


class Classes:
    """Inheritance and method resolution within one file."""

    def __init__(self, classes: Mapping[str, ir.Class]) -> None:
        self.by_name: dict[str, ir.Class] = dict(classes)
        self._methods = {name: dict(found.methods) for name, found in self.by_name.items()}
        self._bases = {name: self._local_bases(found) for name, found in self.by_name.items()}

    def add(self, classes: Mapping[str, ir.Class]) -> None:
        """Classes of another file that is looked at together with this one from now on."""
        new = {name: found for name, found in classes.items() if name not in self.by_name}
        self.by_name.update(new)
        self._methods.update({name: dict(found.methods) for name, found in new.items()})
        self._bases.update({name: self._local_bases(found) for name, found in new.items()})

    def local(self, names: tuple[str, ...]) -> str | None:
        """The qualname in this file of something that can only be defined here."""
        for name in names[:1] if len(names) == 1 else ():
            if name.startswith(_OWN):
                return name.removeprefix(_OWN)
            if name.startswith("<"):
                return name
        return None

    def full_name(self, qualname: str) -> str:
        """The qualified name by which the file's own code means one of its definitions."""
        return qualname if qualname.startswith("<") else _OWN + qualname

    def klass(self, names: tuple[str, ...]) -> str | None:
        """The class of this file that `names` denote."""
        found = self.local(names)
        return found if found in self.by_name else None

    def _local_bases(self, found: ir.Class) -> tuple[str, ...]:
        return tuple(base for names in found.bases if (base := self.local(names)) in self.by_name and base)

    def order(self, name: str) -> tuple[str, ...]:
        """`name` and its bases of this file, nearest first."""
        found: dict[str, None] = {}
        stack = [name]
        while stack:
            current = stack.pop()
            if current not in found:
                found[current] = None
                stack.extend(reversed(self._bases.get(current, ())))
        return tuple(found)

    def top(self, name: str) -> str:
        """The outermost base of this file: all classes of one family share their attributes' paths."""
        seen = {name}
        while bases := self._bases.get(name):
            if bases[0] in seen:
                break
            name = bases[0]
            seen.add(name)
        return name

    def foreign(self, name: str) -> tuple[tuple[str, ...], ...]:
        """The names of every base, near or far, that this file does not define."""
        return tuple(
            self._others(base, klass)
            for klass in self.order(name)
            for base in self.by_name[klass].bases
            if self.klass(base) is None
        )

    def _others(self, base: tuple[str, ...], klass: str) -> tuple[str, ...]:
        """`base` without the class itself: `class Dataset(Dataset)` derives from the one that was imported."""
        return tuple(name for name in base if self.local((name,)) != klass)

    def is_open(self, name: str) -> bool:
        """Whether methods that this file does not show may do anything to the attributes."""
        return any(not base or not base[0].startswith(_INERT) for base in self.foreign(name))

    def is_optimizer(self, name: str) -> bool:
        """Whether this is an optimizer of torch."""
        return any(base.startswith("torch.optim.") for bases in self.foreign(name) for base in bases)

    def is_lightning(self, name: str) -> bool:
        """Whether this is a LightningModule."""
        return any(candidate in LIGHTNING for base in self.foreign(name) for candidate in base)

    def method(self, name: str, method: str) -> str | None:
        """The function that `method` of an instance of `name` reaches in this file."""
        for klass in self.order(name):
            found = self._methods[klass].get(method)
            if found is not None:
                return found
        return None

    def above(self, name: str, method: str) -> str | None:
        """The function that `super().method` reaches from a method of `name`."""
        for klass in self.order(name)[1:]:
            found = self._methods[klass].get(method)
            if found is not None:
                return found
        return None

    def heirs(self, name: str) -> tuple[str, ...]:
        """The subclasses of `name` in this file."""
        return tuple(klass for klass in self.by_name if klass != name and name in self.order(klass))

    def replaced(self, heir: str, name: str) -> tuple[str, ...]:
        """The functions that `heir` and the classes between it and `name` have in place of `name`'s or beside them."""
        order = self.order(heir)
        return tuple(
            function for klass in order[: order.index(name)] for function in self._methods[klass].values()
        )
