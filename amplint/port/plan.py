"""One fix per symbol and module: every use rewritten and its imports removed, or nothing and the reason.

A fix that rewrites some uses of a class and leaves others would break `isinstance` between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from amplint.finding import Applicability, Edit, Fix, FixKind, ImportRemoval, Span
from amplint.model.names import Binding
from amplint.port.edits import CannotEdit, in_order
from amplint.port.rewrite import Rewriter
from amplint.port.symbols import MODULE, Symbol, Use, symbols, uses
from amplint.rule import Context

_NOTHING = "nothing is left to rewrite"


@dataclass(slots=True)
class _Planned:
    """What becomes of one use."""

    use: Use
    edits: tuple[Edit, ...] = ()
    #: Why this use stays as it is.
    reason: str | None = None
    #: For an import: what is taken out of its statement.
    removal: ImportRemoval | None = None
    #: The code calls something that cannot be seen, so the rewrite is a judgement.
    unsafe: bool = False


@dataclass(slots=True)
class PortPlan:
    """All uses of `torch.cuda.amp` in one module and what each becomes."""

    ctx: Context
    planned: list[_Planned] = field(default_factory=list)
    #: Symbol -> the fix of all that can be changed of it.
    _fixes: dict[str, Fix | str] = field(default_factory=dict)
    #: Use -> why this import stays although the symbol has a fix.
    _kept: dict[int, str] = field(default_factory=dict)
    #: Imports (by the id of their node) that stay although the uses are rewritten, with why.
    _staying: dict[int, str] = field(default_factory=dict)

    @property
    def uses(self) -> list[Use]:
        """Every unguarded use, in the order of the text."""
        return [planned.use for planned in self.planned]

    def fix(self, use: Use) -> Fix | str:
        """The fix that ports the symbol of `use` in this module, or why there is none."""
        name = use.symbol.name
        if name not in self._fixes:
            self._fixes[name] = self._symbol_fix(use.symbol)
        found = self._kept.get(id(use)) or self._fixes[name]
        if found == _NOTHING or any(p.use is use and not p.edits and not use.is_import for p in self.planned):
            return self._through_module(use) or found
        return found

    # -- fixes -----------------------------------------------------------------------------------------------

    def _symbol_fix(self, symbol: Symbol) -> Fix | str:
        if symbol.name not in symbols():
            return self._module_fix(symbol)
        stuck = self._stuck(symbol)
        if stuck is not None:
            return stuck
        active = self._active(symbol)
        edits = [edit for p in active if not p.use.is_import for edit in p.edits]
        removals: list[ImportRemoval] = []
        left = None
        for p in active:
            if p.use.is_import:
                made = self._import_fix(p, {symbol.name})
                if isinstance(made, str):
                    left = self._kept[id(p.use)] = made
                else:
                    edits.extend(made[0])
                    removals.extend(made[1])
        removals = _united(removals)
        edits.extend(edit for removal in removals for edit in removal.edits())
        if not edits:
            return left or _NOTHING
        unsafe = any(p.unsafe for p in active)
        applicability = Applicability.UNSAFE if unsafe else Applicability.SAFE
        message = f"replace {symbol.name} by {self._target(symbol)}"
        return Fix(FixKind.PORT, applicability, message, in_order(edits), tuple(removals))

    def _active(self, symbol: Symbol) -> list[_Planned]:
        """The imports and uses of a symbol that may be changed."""
        return [p for p in self.planned if p.use.symbol.name == symbol.name and self._is_active(p.use)]

    def _stuck(self, symbol: Symbol) -> str | None:
        """Why a use of the symbol, and with it the whole symbol, stays as it is."""
        for p in self._active(symbol):
            if p.reason is not None and not p.use.is_import:
                return self._because(p)
        return None

    def _through_module(self, use: Use) -> Fix | str | None:
        """The fix of a use that stays as it is (`amp.autocast`) when the import of the module changes.

        None when it does not reach the API through a module.
        """
        for owner in self.planned:
            is_module = owner.use.is_import and owner.use.symbol.name not in symbols()
            if is_module and any(other.use is use for other in self._through(owner.use.binding)):
                return self.fix(owner.use)
        return None

    def _module_fix(self, symbol: Symbol) -> Fix | str:
        """The fix for the module itself, or for a part of it that has no replacement."""
        mine = self._active(symbol)
        stuck = next((p for p in mine if not p.use.is_import), None)
        if stuck is not None and (stuck.reason is not None or symbol.name != MODULE):
            return stuck.reason or f"{symbol.name} has no device-agnostic replacement"
        edits = [edit for p in mine if not p.use.is_import for edit in p.edits]
        removals: list[ImportRemoval] = []
        for p in mine:
            if not p.use.is_import:
                continue
            through = self._through(p.use.binding)
            for other in through:
                if other.reason is not None:
                    return self._because(other)
                symbol_stuck = self._stuck(other.use.symbol)
                if symbol_stuck is not None:
                    return symbol_stuck
            made_import = self._import_fix(p, {other.use.symbol.name for other in through} | {symbol.name})
            if isinstance(made_import, str):
                return made_import
            edits.extend(edit for other in through for edit in other.edits)
            edits.extend(made_import[0])
            removals.extend(made_import[1])
        removals = _united(removals)
        edits.extend(edit for removal in removals for edit in removal.edits())
        if not edits:
            return _NOTHING
        unsafe = any(p.unsafe for p in self.planned)
        applicability = Applicability.UNSAFE if unsafe else Applicability.SAFE
        message = f"replace {symbol.name} by {self._target(symbol)}"
        return Fix(FixKind.PORT, applicability, message, in_order(edits), tuple(removals))

    def _target(self, symbol: Symbol) -> str:
        rewriter = Rewriter(self.ctx)
        if rewriter.spelling.is_shim and (symbol.shim or symbol.name == MODULE):
            return f"{self.ctx.settings.shim_module}.{symbol.shim}".rstrip(".")
        return symbol.new or "the device-agnostic API"

    def _because(self, planned: _Planned) -> str:
        return f"line {self._row(planned.use.node)}: {planned.reason}"

    def _is_active(self, use: Use) -> bool:
        return self.ctx.is_active(use.symbol.code, use.node)

    # -- imports ---------------------------------------------------------------------------------------------

    def _import_fix(
        self, planned: _Planned, fixed: set[str]
    ) -> tuple[tuple[Edit, ...], tuple[ImportRemoval, ...]] | str:
        """Remove one import whose users are all fixed along with `fixed` symbols, or say why it stays."""
        use = planned.use
        if planned.reason is not None:
            return planned.reason
        if use.binding is None or not isinstance(use.node, cst.ImportAlias):
            return "names from a star import cannot be told apart"
        for other in self._through(use.binding):
            if other.use.symbol.name not in fixed or not self._is_active(other.use):
                return f"line {self._row(other.use.node)} still uses {use.binding.name}"
            if other.reason is not None:
                return self._because(other)
        if planned.removal is not None and planned.removal.move is not None and use.symbol.shim:
            return planned.edits, (planned.removal,)  # the name stays, so what else uses it may
        loose = self._unplanned(use.binding)
        if loose is not None:
            return f"line {self._row(loose)} still uses {use.binding.name}"
        return planned.edits, (planned.removal,) if planned.removal is not None else ()

    def _through(self, binding: Binding | None) -> list[_Planned]:
        """The uses that reach the API through this import."""
        if binding is None:
            return []
        return [
            p
            for p in self.planned
            if not p.use.is_import
            and p.use.binding is not None
            and (p.use.binding.name, p.use.binding.scope) == (binding.name, binding.scope)
        ]

    def _unplanned(self, binding: Binding) -> cst.CSTNode | None:
        """A use of the imported name that no plan covers (it is guarded, or stored to)."""
        if binding.name == "torch":
            return None  # `torch` itself stays bound
        tree = self.ctx.model.tree
        covered = {id(p.use.node) for p in self._through(binding)}
        for reference in self.ctx.model.names.references:
            if reference.root.value != binding.name:
                continue
            if reference.scope.owner(binding.name) is not binding.scope:
                continue
            if not any(id(node) in covered for node in tree.within(reference.node)):
                return reference.node
        return None

    def _row(self, node: cst.CSTNode) -> str:
        source = self.ctx.model.source
        return source.shown_row(source.position(self.ctx.model.tree.span(node).start).row)


def used(ctx: Context) -> tuple[Use, ...]:
    """The uses that a plan is about, found once; they are known before there is a plan for them."""
    found = ctx.memo.get("port-uses")
    if not isinstance(found, tuple):
        found = ctx.memo["port-uses"] = tuple(uses(ctx.model))
    return found


def plan(ctx: Context) -> PortPlan:
    """The plan of one module, made once."""
    made = ctx.memo.get("port-plan")
    if not isinstance(made, PortPlan):
        made = ctx.memo["port-plan"] = _made(ctx)
    return made


def _made(ctx: Context) -> PortPlan:
    rewriter = Rewriter(ctx)
    result = PortPlan(ctx)
    for use in used(ctx):
        planned = _Planned(use)
        try:
            made = rewriter.rewrite(use)
            planned.edits, planned.removal, planned.unsafe = made.edits, made.removal, made.unsafe
        except CannotEdit as error:
            planned.reason = str(error)
        result.planned.append(planned)
    return result


def _united(removals: list[ImportRemoval]) -> list[ImportRemoval]:
    """One removal per statement."""
    found: dict[Span, ImportRemoval] = {}
    for removal in removals:
        earlier = found.get(removal.statement)
        found[removal.statement] = removal if earlier is None else earlier.merged(removal)
    return list(found.values())
