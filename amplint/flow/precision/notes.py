"""What was seen while a file was interpreted: which operators ran on what, and what each name stood for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from amplint.flow.precision.operators import Ambient
from amplint.flow.precision.values import TOP, Tensor, Value, join

#: Different ways in which one operator ran that are kept.
_MOST_WAYS = 12


@dataclass(frozen=True, slots=True)
class Applied:
    """One operator or call as it ran in one context.

    `op` is an operator of `facts/tensor_ops.tsv`, a cast ("to"), "backward", "setitem", or the qualified name of what
    a library does. The operands of methods begin with what the method is called on.
    """

    op: str
    site: int
    args: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...]
    result: Value
    ambient: Ambient
    #: The function that it stands in.
    function: str
    #: Where it stands in another file: the call of this file that led there.
    entry: int | None = None
    no_grad: bool = False
    #: Written as an operator between operands, or in place.
    form: str = ""

    def keyword(self, name: str) -> Value | None:
        """A keyword argument."""
        return next((value for key, value in self.keywords if key == name), None)

    def argument(self, position: int, name: str) -> Value | None:
        """An argument by position or keyword."""
        return self.args[position] if position < len(self.args) else self.keyword(name)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The operands that are tensors, not looking into lists."""
        return tuple(value for value in self.args if isinstance(value, Tensor))


@dataclass(slots=True)
class Notes:
    """Everything that was seen."""

    by_site: dict[int, list[Applied]] = field(default_factory=dict)
    #: Site of a name or attribute -> what it stood for, and what autocast did there.
    names: dict[int, tuple[Value, Ambient]] = field(default_factory=dict)
    #: The functions that these names stand in.
    homes: dict[int, str] = field(default_factory=dict)
    #: Functions that were not looked into at one call or another, since nothing could be seen there, or too much.
    passed_over: set[str] = field(default_factory=set)
    #: Functions that were entered, and how often.
    entered: dict[str, int] = field(default_factory=dict)
    #: Tests that decide whether something becomes low precision, as written, in the order in which they were met.
    switches: list[str] = field(default_factory=list)
    #: Parts of the analysis that took too long and were left.
    gave_up: int = 0

    def note(self, applied: Applied) -> None:
        """Keep what ran, unless the same did before."""
        known = self.by_site.setdefault(applied.site, [])
        if len(known) < _MOST_WAYS and applied not in known:
            known.append(applied)

    def add(self, other: Notes) -> None:
        """Keep what ran under an assumption, before what ran without."""
        for site, ways in other.by_site.items():
            known = self.by_site.get(site, [])
            new = [applied for applied in ways if applied not in known]
            self.by_site[site] = [*new, *known][:_MOST_WAYS]
        self.gave_up += other.gave_up

    def saw(self, site: int, value: Value, ambient: Ambient, function: str) -> None:
        """Keep what a name stood for."""
        self.homes[site] = function
        known = self.names.get(site)
        self.names[site] = (value if known is None else join(known[0], value), ambient)

    def settle(self) -> None:
        """What names stand for in functions that were passed over may be something else as well."""
        for site, (value, ambient) in self.names.items():
            if self.homes[site] in self.passed_over:
                self.names[site] = (join(value, TOP), ambient)

    @property
    def applied(self) -> Iterator[Applied]:
        """Everything that ran, in the order of the text."""
        for site in sorted(self.by_site):
            yield from self.by_site[site]

    def of(self, *ops: str) -> Iterator[Applied]:
        """What ran of some operators, in the order of the text."""
        return (applied for applied in self.applied if applied.op in ops)

    def made(self, value: Value) -> tuple[Applied, ...]:
        """The ways in which a tensor was made."""
        if not isinstance(value, Tensor) or value.site is None:
            return ()
        return tuple(a for a in self.by_site.get(value.site, ()) if a.op == value.op)
