"""The small language that functions are lowered to; the flow analyses read this and never a CST node.

Everything here is frozen and holds only strings, numbers and tuples, so it can be serialised and digested. A
`site` is the preorder number of the node in its file's tree (`Tree.number`): the way back to a place in the text.
"""

from __future__ import annotations

from dataclasses import dataclass

# -- expressions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Name:
    """A variable. `scope` is the qualname of the scope that binds it ("" the module), None if nothing here does."""

    id: str
    scope: str | None
    site: int
    #: Qualified names that it can denote ("torch.nn"); empty when it is a plain variable.
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attr:
    """`value.attr`."""

    value: Expr
    attr: str
    site: int
    #: Qualified names that it can denote; empty when it is an attribute of a plain variable.
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Const:
    """A literal: str, bytes, int, float, complex, bool, None or Ellipsis."""

    value: str | bytes | int | float | complex | bool | None
    site: int


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument of a call; `star` is "", "*" or "**"."""

    value: Expr
    keyword: str | None = None
    star: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """`func(args)`; the qualified names of what is called are those of `func`."""

    func: Expr
    args: tuple[Arg, ...]
    site: int


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic: `op` is the Python operator."""

    op: str
    left: Expr
    right: Expr
    site: int


@dataclass(frozen=True, slots=True)
class Unary:
    """`not`, `-`, `+`, `~`."""

    op: str
    operand: Expr
    site: int


@dataclass(frozen=True, slots=True)
class Bool:
    """`left and right`, `left or right`."""

    op: str
    left: Expr
    right: Expr
    site: int


@dataclass(frozen=True, slots=True)
class Compare:
    """`left op right` (chains are lowered to `and`); op is one of == != < <= > >= is "is not" in "not in"."""

    op: str
    left: Expr
    right: Expr
    site: int


@dataclass(frozen=True, slots=True)
class IfExp:
    """`body if test else orelse`."""

    test: Expr
    body: Expr
    orelse: Expr
    site: int


@dataclass(frozen=True, slots=True)
class Subscript:
    """`value[index]`."""

    value: Expr
    index: Expr
    site: int


@dataclass(frozen=True, slots=True)
class Items:
    """A display: `kind` is tuple, list, set or dict (keys and values alternate; `**x` is a Star)."""

    kind: str
    items: tuple[Expr, ...]
    site: int


@dataclass(frozen=True, slots=True)
class Star:
    """`*value` or `**value` inside a display."""

    value: Expr
    site: int


@dataclass(frozen=True, slots=True)
class Comprehension:
    """`kind` is list, set, dict or generator; each part is (target, iterable, conditions)."""

    kind: str
    element: tuple[Expr, ...]
    parts: tuple[tuple[Expr, Expr, tuple[Expr, ...]], ...]
    site: int


@dataclass(frozen=True, slots=True)
class Walrus:
    """`(target := value)`."""

    target: Expr
    value: Expr
    site: int


@dataclass(frozen=True, slots=True)
class Lambda:
    """An anonymous function; `scope` is its scope's qualname."""

    params: tuple[str, ...]
    body: Expr
    scope: str
    site: int


@dataclass(frozen=True, slots=True)
class Other:
    """Anything else (f-strings, await, yield, slices): only what is evaluated inside it is kept."""

    kind: str
    parts: tuple[Expr, ...]
    site: int


Expr = (
    Name
    | Attr
    | Const
    | Call
    | Binary
    | Unary
    | Bool
    | Compare
    | IfExp
    | Subscript
    | Items
    | Star
    | Comprehension
    | Walrus
    | Lambda
    | Other
)

# -- statements --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assign:
    """`targets = value`; an annotated assignment carries the annotation, a bare annotation has no value."""

    targets: tuple[Expr, ...]
    value: Expr | None
    site: int
    annotation: Expr | None = None


@dataclass(frozen=True, slots=True)
class AugAssign:
    """`target op= value`; `op` without the equals sign."""

    target: Expr
    op: str
    value: Expr
    site: int


@dataclass(frozen=True, slots=True)
class Do:
    """An expression evaluated for its effect."""

    value: Expr
    site: int


@dataclass(frozen=True, slots=True)
class If:
    """A branch; an `elif` is an `If` alone in `orelse`."""

    test: Expr
    body: Block
    orelse: Block
    site: int


@dataclass(frozen=True, slots=True)
class For:
    """`for target in iterable`."""

    target: Expr
    iterable: Expr
    body: Block
    orelse: Block
    site: int


@dataclass(frozen=True, slots=True)
class While:
    """`while test`."""

    test: Expr
    body: Block
    orelse: Block
    site: int


@dataclass(frozen=True, slots=True)
class With:
    """`with a as x, b as y`: items are (context, target or None), entered in this order."""

    items: tuple[tuple[Expr, Expr | None], ...]
    body: Block
    site: int


@dataclass(frozen=True, slots=True)
class Handler:
    """`except types as name`; no types: a bare except."""

    types: tuple[Expr, ...]
    name: str | None
    body: Block
    site: int


@dataclass(frozen=True, slots=True)
class Try:
    """`try` with its arms."""

    body: Block
    handlers: tuple[Handler, ...]
    orelse: Block
    final: Block
    site: int


@dataclass(frozen=True, slots=True)
class Match:
    """`match subject`: cases are (guard or None, body); patterns are not modelled beyond "one of the cases"."""

    subject: Expr
    cases: tuple[tuple[Expr | None, Block], ...]
    exhaustive: bool
    site: int


@dataclass(frozen=True, slots=True)
class Return:
    """`return value`."""

    value: Expr | None
    site: int


@dataclass(frozen=True, slots=True)
class Raise:
    """`raise`."""

    value: Expr | None
    site: int


@dataclass(frozen=True, slots=True)
class Jump:
    """`break` or `continue`."""

    kind: str
    site: int


@dataclass(frozen=True, slots=True)
class Assert:
    """`assert test`."""

    test: Expr
    site: int


@dataclass(frozen=True, slots=True)
class Define:
    """A nested `def` or `class` statement: `qualname` finds its function or class in the module."""

    kind: str
    qualname: str
    site: int


@dataclass(frozen=True, slots=True)
class Delete:
    """`del target`."""

    target: Expr
    site: int


Stmt = (
    Assign
    | AugAssign
    | Do
    | If
    | For
    | While
    | With
    | Try
    | Match
    | Return
    | Raise
    | Jump
    | Assert
    | Define
    | Delete
)
Block = tuple[Stmt, ...]

# -- functions and classes ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter; `star` is "", "*" or "**"."""

    name: str
    default: Expr | None = None
    annotation: Expr | None = None
    star: str = ""
    keyword_only: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """A function, method or the module's own code (`qualname` "" and no parameters)."""

    qualname: str
    params: tuple[Param, ...]
    decorators: tuple[Expr, ...]
    body: Block
    site: int
    #: Qualname of the class when this is a method.
    owner: str | None = None
    is_static: bool = False


@dataclass(frozen=True, slots=True)
class Class:
    """A class: its bases by qualified name ("" for what cannot be told) and its methods by name."""

    qualname: str
    #: For each base, the names that it can denote.
    bases: tuple[tuple[str, ...], ...]
    #: Method name -> qualname of the function.
    methods: tuple[tuple[str, str], ...]
    #: Assignments in the class body.
    body: Block
    site: int
