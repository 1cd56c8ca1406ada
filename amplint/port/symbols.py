"""Every import and use of `torch.cuda.amp` in one module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import libcst as cst

from amplint import facts
from amplint.model.guards import guard
from amplint.model.module import ModuleModel
from amplint.model.names import Binding, Reference, dotted

MODULE = "torch.cuda.amp"


@dataclass(frozen=True, slots=True)
class Symbol:
    """One name of `torch.cuda.amp` and what replaces it."""

    name: str
    code: str
    #: Parameters in positional order -> default as source text ("" for none).
    params: tuple[tuple[str, str], ...]
    #: Qualified name of the device-agnostic replacement; "" where there is none.
    new: str
    #: First torch release that has `new`.
    since: tuple[int, int]
    #: Name in the runtime shim; "" where it has none.
    shim: str

    @property
    def last(self) -> str:
        """The name without its module."""
        return self.name.rpartition(".")[2]


@cache
def symbols() -> dict[str, Symbol]:
    """Qualified name -> symbol."""
    found = {}
    for row in facts.table("cuda_amp_api"):
        params = [part.partition("=") for part in row["params"].split(",") if part]
        found[row["name"]] = Symbol(
            row["name"],
            row["code"],
            tuple((name, default) for name, _, default in params),
            row["new"],
            facts.version(row["since"]),
            row["shim"],
        )
    return found


def symbol_for(name: str) -> Symbol | None:
    """The symbol that a name under `torch.cuda.amp` means; unknown ones are the module's business."""
    if name != MODULE and not name.startswith(MODULE + "."):
        return None
    known = symbols().get(name)
    if known is not None:
        return known
    code = "AMP102" if name.startswith(f"{MODULE}.grad_scaler.") else "AMP107"
    return Symbol(name, code, (), "", (0, 0), "")


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """One place where a symbol is imported or used."""

    symbol: Symbol
    #: The chain or name; for an import the alias (or the statement of a star import).
    node: cst.CSTNode
    #: What brings the name in; None for star imports and for what is unbound.
    binding: Binding | None
    is_import: bool
    #: Attributes behind the root name (`("autocast",)` for `amp.autocast`).
    attributes: tuple[str, ...] = ()


def uses(model: ModuleModel) -> Iterator[Use]:
    """Unguarded imports and uses in the order of the text, monkey-patches left out."""
    found = [*_imports(model), *_references(model)]
    found.sort(key=lambda use: model.tree.number(use.node))
    for use in found:
        if not _is_guarded(model, use):
            yield use


def _is_guarded(model: ModuleModel, use: Use) -> bool:
    if guard(model, use.node) is not None:
        return True
    if use.is_import or use.binding is None or use.binding.kind != "import":
        return False
    # a use of a name whose every import of the CUDA API is itself an arm of a dispatch
    others = use.binding.scope.bindings[use.binding.name]
    if len(others) == 1:
        return False
    mine = [b for b in others if b.kind == "import" and symbol_for(_origin(model, b)) is not None]
    return bool(mine) and all(guard(model, b.node) is not None for b in mine)


def _origin(model: ModuleModel, binding: Binding) -> str:
    return model.names.binding_names(binding)[0]


def _imports(model: ModuleModel) -> Iterator[Use]:
    for scope in model.names.scopes:
        for bindings in scope.bindings.values():
            for binding in bindings:
                if binding.kind != "import" or not isinstance(binding.node, cst.ImportAlias):
                    continue
                origin = _origin(model, binding)
                whole = dotted(binding.node.name) or ""
                if binding.origin == whole.split(".")[0] and whole.startswith(MODULE):
                    origin = model.names.canonical(whole)  # `import torch.cuda.amp` binds `torch`
                symbol = symbol_for(origin)
                if symbol is not None:
                    yield Use(symbol, binding.node, binding, True)
    for statement in model.tree.of_type(cst.ImportFrom):
        if isinstance(statement.names, cst.ImportStar) and statement.module is not None:
            symbol = symbol_for(dotted(statement.module) or "")
            if symbol is not None:
                yield Use(symbol, statement, None, True)


def _references(model: ModuleModel) -> Iterator[Use]:
    for reference in model.names.references:
        found = _used_symbol(model, reference)
        if found is not None:
            yield found


def _used_symbol(model: ModuleModel, reference: Reference) -> Use | None:
    """The innermost part of a chain that is a symbol: `GradScaler` in `torch.cuda.amp.GradScaler.step`."""
    bindings = reference.scope.lookup(reference.root.value)
    imported = any(b.kind == "import" for b in bindings)
    if not reference.attributes and not imported and (bindings or not model.names.module_scope.stars):
        return None
    nodes: list[cst.BaseExpression] = []
    current: cst.BaseExpression = reference.node
    while isinstance(current, cst.Attribute):
        nodes.append(current)
        current = current.value
    nodes.append(current)
    nodes.reverse()
    best: tuple[Symbol, cst.BaseExpression, int] | None = None
    for depth, node in enumerate(nodes):
        for name in model.names.resolve(node):
            symbol = symbol_for(name) if name else None
            if symbol is None:
                continue
            best = (symbol, node, depth)
            break
        if best is not None and best[0].name in symbols():
            break
    if best is None or _is_stored_to(model, best[1]):
        return None
    symbol, node, depth = best
    binding = bindings[0] if bindings else None
    return Use(symbol, node, binding, False, reference.attributes[:depth])


def _is_stored_to(model: ModuleModel, node: cst.BaseExpression) -> bool:
    """Whether the name is assigned to or deleted (a monkey-patch), here or further along its chain."""
    child: cst.CSTNode = node
    for outer in model.tree.ancestors(node):
        if isinstance(outer, cst.AssignTarget):
            return True
        in_chain = isinstance(outer, cst.Attribute) and outer.value is child
        if not in_chain and not isinstance(outer, (cst.Element, cst.StarredElement, cst.Tuple, cst.List)):
            stores = (cst.AnnAssign, cst.AugAssign, cst.Del, cst.For)
            return isinstance(outer, stores) and outer.target is child
        child = outer
    return False
