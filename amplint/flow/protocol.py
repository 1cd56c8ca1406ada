"""The protocol program: what remains of a function once only the scaler protocol and its guards are kept.

It is the function's summary: frozen, made of strings, numbers and tuples, and independent of who calls it.
"""

from __future__ import annotations

from dataclasses import dataclass

from amplint.flow.conditions import Formula, Path, Term
from amplint.flow.hashing import Hashed, hashed_once

# -- values that a variable may be known to hold ------------------------------------------------------------


@hashed_once
@dataclass(frozen=True, slots=True)
class Alias(Hashed):
    """The same value as `term`."""

    term: Term


@hashed_once
@dataclass(frozen=True, slots=True)
class Flag(Hashed):
    """True exactly where `formula` holds (as far as branches can see)."""

    formula: Formula


@hashed_once
@dataclass(frozen=True, slots=True)
class Made(Hashed):
    """A scaler where `present` holds, else None; it scales where `enabled` holds."""

    present: Formula
    enabled: Formula


@hashed_once
@dataclass(frozen=True, slots=True)
class Scaled(Hashed):
    """A loss that `scalers` have multiplied by their scale, or made from `losses`, which may be scaled."""

    scalers: tuple[Path, ...]
    losses: tuple[Path, ...] = ()


Value = Alias | Flag | Made | Scaled

# -- nodes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assign:
    """`path = value`; None is a value that nothing is known about."""

    path: Path
    value: Value | None
    site: int


@dataclass(frozen=True, slots=True)
class Backward:
    """Gradients of a loss: scaled by `scalers`, or by what the variables in `losses` are scaled by."""

    scalers: tuple[Path, ...]
    losses: tuple[Path, ...]
    site: int
    #: Where nothing has scaled the loss, its gradients are plain: it is no call that could scale them itself.
    is_plain: bool = True


@dataclass(frozen=True, slots=True)
class ManualBackward:
    """`self.manual_backward(loss)`: the framework's own scaler scales."""

    owner: Path
    site: int


@dataclass(frozen=True, slots=True)
class Clip:
    """Gradients are bounded; `params` are the modules whose parameters they belong to (None: not known)."""

    params: tuple[Path, ...] | None
    how: str
    site: int


@dataclass(frozen=True, slots=True)
class Touch:
    """Gradients are read or changed in a way for which their scale matters; `params` as in `Clip`."""

    params: tuple[Path, ...] | None
    how: str
    site: int
    #: They are changed, not just looked at.
    changes: bool


@dataclass(frozen=True, slots=True)
class Leak:
    """The value of a loss that may be scaled goes elsewhere than into a backward."""

    losses: tuple[Path, ...]
    #: Scalers that scale it right here.
    scalers: tuple[Path, ...]
    how: str
    site: int


@dataclass(frozen=True, slots=True)
class Descale:
    """Gradients are divided by the loss scale by hand."""

    site: int


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a call as far as it matters here."""

    keyword: str | None
    star: str
    value: Value | None
    #: Paths that the callee gets hold of.
    handed: tuple[Path, ...]
    #: Functions of this file that the callee may call.
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Invoke:
    """A call. `receiver` is what the method is called on; `target` the path called, for plain calls."""

    receiver: Path | None
    method: str
    arguments: tuple[Argument, ...]
    site: int
    #: The function of this file that is called, where that is plain.
    function: str | None = None
    #: `super().method()` of this class.
    above: str | None = None
    #: It stands under a test for finite numbers.
    is_checked: bool = False


@dataclass(frozen=True, slots=True)
class Branch:
    """`then` where `test` holds, else `orelse`."""

    test: Formula
    then: Program
    orelse: Program
    site: int


@dataclass(frozen=True, slots=True)
class Loop:
    """`body` any number of times; `test` guards each round, `start` runs at its beginning."""

    test: Formula | None
    start: Program
    body: Program
    orelse: Program
    site: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """`try`: each handler may be entered from anywhere in `body`."""

    body: Program
    handlers: tuple[Program, ...]
    orelse: Program
    final: Program
    site: int


@dataclass(frozen=True, slots=True)
class Choice:
    """One of `arms` (a match statement)."""

    arms: tuple[Program, ...]
    site: int


@dataclass(frozen=True, slots=True)
class Exit:
    """`kind` is return, raise, break or continue."""

    kind: str
    site: int
    #: It ends a step that only adds to the gradients.
    accumulates: bool = False


Event = Backward | ManualBackward | Clip | Touch | Leak | Descale
Node = Assign | Event | Invoke | Branch | Loop | Attempt | Choice | Exit
Program = tuple[Node, ...]
