"""From where a function of a file is reached: the functions that nothing in the file calls."""

from __future__ import annotations

from collections.abc import Mapping

from amplint.flow import protocol as p
from amplint.flow.pruning import Pruner, nodes


class Entries:
    """Where execution comes into a file that ends up in one of its functions."""

    def __init__(self, pruner: Pruner, programs: Mapping[str, p.Program]) -> None:
        self._pruner = pruner
        self._programs = programs

    def of(self, name: str) -> dict[str, int | None]:
        """The entries that reach `name`, each with the call in it that leads there (None: it is `name`).

        An entry is a function that no other one calls, that is handed on as a value, or, where functions only
        call each other, each of them.
        """
        callers = self._pruner.callers
        family = {name: None}
        stack = [name]
        while stack:
            for caller in callers.get(stack.pop(), ()):
                if caller not in family:
                    family[caller] = None
                    stack.append(caller)
        first = [f for f in family if f in self._pruner.handed_on or not set(callers.get(f, ())) - {f}]
        called = self._called_from(first)
        return {f: self._call(f, family) for f in family if f in first or f not in called}

    def _called_from(self, names: list[str]) -> set[str]:
        """`names` and all that they call, directly or not."""
        below: dict[str, list[str]] = {}
        for callee, callers in self._pruner.callers.items():
            for caller in callers:
                below.setdefault(caller, []).append(callee)
        found = set(names)
        stack = list(names)
        while stack:
            for callee in below.get(stack.pop(), ()):
                if callee not in found:
                    found.add(callee)
                    stack.append(callee)
        return found

    def _call(self, name: str, wanted: Mapping[str, None]) -> int | None:
        """The first call in `name` that leads to one of `wanted`."""
        for node in nodes(self._programs[name]):
            if isinstance(node, p.Invoke) and any(f in wanted for f in self._pruner.callees(node)):
                return node.site
        return None
