"""What stands around a call: the tests that guard it, and what happens where they come out otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from amplint.flow import conditions as c
from amplint.flow import protocol as p
from amplint.flow.objects import Objects
from amplint.flow.pruning import nodes

_PROTOCOL = ("step", "unscale_", "update")


class Surroundings:
    """Guards of the sites of one file, by its programs before anything is dropped from them."""

    def __init__(self, objects: Objects, programs: Mapping[str, p.Program]) -> None:
        self._objects = objects
        #: Site -> the tests around it that can come out differently from one round of a loop to the next.
        self._varying: dict[int, frozenset[c.Formula]] = {}
        #: Sites in an arm whose other arm calls a scaler.
        self._alternative: set[int] = set()
        for program in programs.values():
            self._visit(program, (), frozenset(), False)

    def varying(self, site: int) -> frozenset[c.Formula]:
        """The tests around `site`, within its function, that a loop may decide differently each time."""
        return self._varying.get(site, frozenset())

    def is_alternative(self, site: int) -> bool:
        """Whether `site` runs where a test came out so that a scaler is not called in its place."""
        return site in self._alternative

    def _visit(
        self,
        program: p.Program,
        guards: tuple[c.Formula, ...],
        assigned: frozenset[c.Path],
        alternative: bool,
    ) -> None:
        for node in program:
            if isinstance(node, p.Branch):
                arms = (node.then, node.orelse)
                for arm, other in (arms, arms[::-1]):
                    beside = alternative or any(map(self._is_protocol, nodes(other)))
                    self._visit(arm, (*guards, node.test), assigned, beside)
            elif isinstance(node, p.Loop):
                inside = assigned | set(_assigned((*node.start, *node.body)))
                tests = (node.test,) if node.test is not None else ()
                self._visit((*node.start, *node.body), (*guards, *tests), inside, alternative)
                self._visit(node.orelse, guards, assigned, alternative)
            elif isinstance(node, p.Attempt):
                for part in (node.body, *node.handlers, node.orelse, node.final):
                    self._visit(part, guards, assigned, alternative)
            elif isinstance(node, p.Choice):
                for part in node.arms:
                    self._visit(part, guards, assigned, alternative)
            else:
                varying = frozenset(test for test in guards if self._varies(test, assigned))
                self._varying.setdefault(node.site, varying)
                if alternative:
                    self._alternative.add(node.site)

    def _is_protocol(self, node: p.Node) -> bool:
        if not isinstance(node, p.Invoke) or node.receiver is None or node.method not in _PROTOCOL:
            return False
        return self._objects.is_scaler(node.receiver)

    def _varies(self, test: c.Formula, assigned: frozenset[c.Path]) -> bool:
        """Whether the test may come out differently next time; one about a scaler is the flow's to decide."""
        if isinstance(test, bool):
            return False
        paths = list(c.formula_paths(test))
        if paths and all(self._objects.is_scaler(path) for path in paths):
            return False
        if not c.is_modelled(test) or any(
            list(c.called_on(t)) for a in c.atoms(test) for t in (a.left, a.right)
        ):
            return True
        return any(path[: len(q)] == q or q[: len(path)] == path for path in paths for q in assigned)


def _assigned(program: p.Program) -> Iterator[c.Path]:
    for node in nodes(program):
        if isinstance(node, p.Assign):
            yield node.path
