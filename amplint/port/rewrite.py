"""What one use of a CUDA-only AMP name becomes: edits by parameter name, never by position."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from amplint.finding import Edit, ImportRemoval, Span
from amplint.model.names import Binding, Scope, string_value
from amplint.port.edits import CannotEdit
from amplint.port.flags import looks_like_flag, looks_like_scale
from amplint.port.spelling import Spelling
from amplint.port.symbols import MODULE, Symbol, Use, symbols
from amplint.rule import Context

_AUTOCAST = f"{MODULE}.autocast"
_SCALER = f"{MODULE}.GradScaler"
_CUSTOM = (f"{MODULE}.custom_fwd", f"{MODULE}.custom_bwd")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The edits of one use."""

    edits: tuple[Edit, ...]
    #: Right only if calls that cannot be seen pass their arguments by keyword.
    unsafe: bool = False
    #: For an import: what is taken out of its statement.
    removal: ImportRemoval | None = None


class Rewriter:
    """Rewrites single uses under one style; raises `CannotEdit` with the reason where none is right."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.model = ctx.model
        self.tree = ctx.model.tree
        self.names = ctx.model.names
        self.spelling = Spelling(ctx.model, ctx.settings)

    def rewrite(self, use: Use) -> Rewrite:
        """Edits for one import or use."""
        if use.is_import:
            return self._import(use)
        self._check_patches(use.symbol)
        if use.symbol.shim and self._stays_with_shim(use):
            return Rewrite(())  # the import changes, the use stays
        self._check_binding(use)
        if use.symbol.name == MODULE:
            return self._module_use(use)
        if use.symbol.name not in symbols():
            raise CannotEdit(f"{use.symbol.name} has no device-agnostic replacement")
        assert isinstance(use.node, (cst.Name, cst.Attribute))
        if self.spelling.is_shim and use.symbol.shim:
            return self._shim_use(use, use.node)
        return self._torch_use(use, use.node)

    # -- imports ---------------------------------------------------------------------------------------------

    def _import(self, use: Use) -> Rewrite:
        """Take the name out of its import, with what takes its place."""
        binding = use.binding
        if binding is None or not isinstance(use.node, cst.ImportAlias):
            raise CannotEdit("names from a star import cannot be told apart")
        imports = self.spelling.imports
        if binding.name == "torch" and binding.origin == "torch":
            others = [b for b in binding.scope.bindings["torch"] if b is not binding and b.kind == "import"]
            if any(b.origin == "torch" and not self._is_amp_import(b.node) for b in others):
                return Rewrite((), removal=imports.remove(use.node))
            return Rewrite((imports.add_import("import torch"),), removal=imports.remove(use.node))
        if self.spelling.is_shim and (use.symbol.shim or use.symbol.name == MODULE):
            self._check_patches(use.symbol)
            edits, removal = self.spelling.moved_to_shim(use.node, use.symbol)
            return Rewrite(edits, removal=removal)
        self._check_removable(use, binding)
        return Rewrite((), removal=imports.remove(use.node))

    def _is_amp_import(self, node: cst.CSTNode) -> bool:
        return isinstance(node, cst.ImportAlias) and self.tree.code(node.name).startswith(MODULE)

    def _check_removable(self, use: Use, binding: Binding) -> None:
        """Raise `CannotEdit` when something outside the planned uses needs the imported name."""
        self._check_bound_once(binding)
        name = binding.name
        if binding.scope is self.names.module_scope:
            exported = self.names.exported
            if exported is not None and name in exported:
                raise CannotEdit(f"__all__ exports {name}")
            package = self.model.filename.replace("\\", "/").endswith("__init__.py")
            if package and exported is None and use.symbol.name != MODULE:
                raise CannotEdit(f"the package may be meant to offer {name} to its users")
            takers = self.ctx.project.takers(self.model.filename, name)
            if takers:
                raise CannotEdit(f"{takers[0]} imports {name} from here")
        if self._named_in_annotation_text(name):
            raise CannotEdit(f"an annotation given as text names {name}")

    def _check_patches(self, symbol: Symbol) -> None:
        """Raise `CannotEdit` when the module puts something else in the symbol's place, or into it."""
        for statement in self.tree.of_type(cst.AssignTarget):
            if not isinstance(statement.target, cst.Attribute):
                continue
            for name in self.names.resolve(statement.target):
                if name == MODULE or f"{name}.".startswith(f"{symbol.name}."):
                    raise CannotEdit(f"line {self._row(statement)} patches {name}")

    def _row(self, node: cst.CSTNode) -> str:
        source = self.model.source
        return source.shown_row(source.position(self.tree.span(node).start).row)

    def _check_bound_once(self, binding: Binding) -> None:
        bindings = binding.scope.bindings[binding.name]
        if any(self.names.binding_names(b) != self.names.binding_names(binding) for b in bindings):
            raise CannotEdit(f"{binding.name} is bound in several places")

    def _named_in_annotation_text(self, name: str) -> bool:
        word = re.compile(rf"\b{re.escape(name)}\b")
        for note in self.tree.of_type(cst.Annotation):
            for node in self.tree.within(note):
                if isinstance(node, cst.SimpleString) and word.search(node.value):
                    return True
        return False

    def _check_binding(self, use: Use) -> None:
        binding = use.binding
        if binding is None:
            if self.tree.code(use.node).startswith("torch."):
                return
            raise CannotEdit("it comes from a star import")
        if binding.name == "torch" and binding.kind == "import":
            return
        self._check_bound_once(binding)

    # -- the module itself -----------------------------------------------------------------------------------

    def _module_use(self, use: Use) -> Rewrite:
        """`getattr(torch.cuda.amp, "autocast") is not None` asks for a feature; else it is passed on."""
        arg = self.tree.parent(use.node)
        call = self.tree.parent(arg) if arg is not None else None
        if (
            isinstance(call, cst.Call)
            and self.names.is_name(call.func, "builtins.getattr", "builtins.hasattr")
            and call.args[0] is arg
            and len(call.args) >= 2
            and (self.names.is_name(call.func, "builtins.hasattr") or self._compared_with_none(call))
        ):
            attribute = string_value(call.args[1].value)
            symbol = symbols().get(f"{MODULE}.{attribute}")
            if symbol is not None:
                scope = self.names.scope_of(use.node)
                text, edits = self.spelling.torch_name(symbol.new, symbol.since, scope)
                owner, _, last = text.rpartition(".")
                changed = [Edit(self.tree.span(use.node), owner), *edits]
                if last != attribute:
                    changed.append(Edit(self.tree.span(call.args[1].value), f'"{last}"'))
                return Rewrite(tuple(changed))
        raise CannotEdit("the module is passed on as a value, so what is used of it cannot be seen")

    def _compared_with_none(self, call: cst.Call) -> bool:
        above = self.tree.parent(call)
        if not isinstance(above, cst.Comparison) or len(above.comparisons) != 1:
            return False
        part = above.comparisons[0]
        is_none = isinstance(part.comparator, cst.Name) and part.comparator.value == "None"
        return is_none and isinstance(part.operator, (cst.Is, cst.IsNot))

    # -- style shim ------------------------------------------------------------------------------------------

    def _stays_with_shim(self, use: Use) -> bool:
        """Whether the use is right as it stands once its import takes the name from the shim."""
        binding = use.binding
        if not self.spelling.is_shim or binding is None:
            return False
        bindings = binding.scope.bindings[binding.name]
        origins = [name for b in bindings if b.kind == "import" for name in self.names.binding_names(b)]
        if not use.attributes:
            return use.symbol.name in origins
        return MODULE in origins and use.attributes == (use.symbol.shim,)

    def _shim_use(self, use: Use, node: cst.BaseExpression) -> Rewrite:
        """The shim keeps the signatures: only what is not imported by name changes."""
        binding = use.binding
        imported = binding is not None and binding.kind == "import"
        if binding is not None and imported and self.names.binding_names(binding) == (MODULE,):
            # `amp` becomes the shim, which has no submodules
            return Rewrite((Edit(self.tree.span(node), f"{binding.name}.{use.symbol.shim}"),))
        root, edits = self.spelling.shim(self.names.scope_of(node))
        return Rewrite((Edit(self.tree.span(node), f"{root}.{use.symbol.shim}"), *edits))

    # -- style torch -----------------------------------------------------------------------------------------

    def _torch_use(self, use: Use, node: cst.BaseExpression) -> Rewrite:
        symbol, scope = use.symbol, self.names.scope_of(node)
        new, edits = self.spelling.torch_name(symbol.new, symbol.since, scope)
        renamed = Edit(self.tree.span(node), new)
        above = self.tree.parent(node)
        if not symbol.params:
            return Rewrite((renamed, *edits))
        if isinstance(above, cst.Call) and above.func is node:
            return self._call(symbol, above, scope, (renamed, *edits))
        if isinstance(above, cst.Decorator):
            return self._bare_decorator(symbol, node, new, scope, edits)
        if isinstance(above, cst.Arg):
            call = self.tree.parent(above)
            first = isinstance(call, cst.Call) and call.args[0] is above
            if isinstance(call, cst.Call) and first and self.names.is_name(call.func, "functools.partial"):
                return self._partial(symbol, call, node, new, scope, edits)
        return self._value(symbol, node, new, scope, edits)

    def _call(self, symbol: Symbol, call: cst.Call, scope: Scope, edits: tuple[Edit, ...]) -> Rewrite:
        if any(arg.star for arg in call.args):
            raise CannotEdit("arguments are passed with * or **, so their parameters cannot be told")
        self._check_arguments(symbol, call)
        device, more = self.spelling.device(scope)
        return Rewrite((*edits, *more, *self._arguments(symbol, call, device, skip=0)))

    def _check_arguments(self, symbol: Symbol, call: cst.Call) -> None:
        names = [name for name, _ in symbol.params]
        positional = [arg for arg in call.args if arg.keyword is None]
        if len(positional) > len(names):
            raise CannotEdit(f"more arguments than {symbol.last} takes")
        for arg in call.args:
            if arg.keyword is not None and arg.keyword.value not in names:
                raise CannotEdit(f"{symbol.last} has no parameter {arg.keyword.value!r}")
        if not positional:
            return
        first = positional[0].value
        if symbol.name == _AUTOCAST and string_value(first) is not None:
            raise CannotEdit("the first parameter of torch.cuda.amp.autocast is `enabled`, not a device")
        if symbol.name == _SCALER and not looks_like_scale(self.model, first):
            text = self.tree.code(first)
            if looks_like_flag(self.model, first):
                raise CannotEdit(f"`{text}` lands in init_scale; if enabled= is meant, only the author knows")
            raise CannotEdit(f"what `{text}` means cannot be told: the first parameter is init_scale")

    def _arguments(self, symbol: Symbol, call: cst.Call, device: str, skip: int) -> list[Edit]:
        """Edits inside the parentheses: the device, old defaults that differ, keywords for positionals."""
        args = call.args[skip:]
        given = {arg.keyword.value for arg in args if arg.keyword is not None}
        edits = []
        position = 0
        for arg in args:
            if arg.keyword is None:
                name = symbol.params[position][0]
                position += 1
                given.add(name)
                if symbol.name not in _CUSTOM:
                    start = self.tree.span(arg).start
                    edits.append(Edit(Span(start, start), f"{name}="))
        if symbol.name in _CUSTOM:
            return [*edits, self._append_argument(call, f"device_type={device}")]
        lead = device
        if symbol.name == _AUTOCAST and "dtype" not in given:
            lead += f", dtype={self._torch_prefix(call)}.float16"
        edits.append(self._prepend_argument(call, lead, skip))
        return _joined(edits)

    def _torch_prefix(self, node: cst.CSTNode) -> str:
        return self.spelling.module("torch", self.names.scope_of(node))[0]

    def _prepend_argument(self, call: cst.Call, text: str, skip: int) -> Edit:
        if len(call.args) > skip:
            start = self.tree.span(call.args[skip]).start
            return Edit(Span(start, start), f"{text}, ")
        return self._append_argument(call, text)

    def _append_argument(self, call: cst.Call, text: str) -> Edit:
        """Behind the last argument (before a trailing comma), or between empty parentheses."""
        if call.args:
            end = self.tree.span(call.args[-1]).end
            return Edit(Span(end, end), f", {text}")
        close = self.tree.span(call).end - 1
        return Edit(Span(close, close), text)

    def _bare_decorator(
        self, symbol: Symbol, node: cst.BaseExpression, new: str, scope: Scope, edits: tuple[Edit, ...]
    ) -> Rewrite:
        if symbol.name not in _CUSTOM:
            raise CannotEdit(f"@{symbol.last} without a call puts an object that is no function in its place")
        device, more = self.spelling.device(scope)
        return Rewrite((Edit(self.tree.span(node), f"{new}(device_type={device})"), *edits, *more))

    def _partial(
        self,
        symbol: Symbol,
        call: cst.Call,
        node: cst.BaseExpression,
        new: str,
        scope: Scope,
        edits: tuple[Edit, ...],
    ) -> Rewrite:
        if any(arg.star or arg.keyword is None for arg in call.args[1:]):
            raise CannotEdit("functools.partial binds parameters by position here")
        device, more = self.spelling.device(scope)
        renamed = Edit(self.tree.span(node), new)
        inner = self._arguments(symbol, call, device, skip=1)
        return Rewrite((renamed, *edits, *more, *inner), unsafe=not self._called_by_keyword(call))

    def _value(
        self, symbol: Symbol, node: cst.BaseExpression, new: str, scope: Scope, edits: tuple[Edit, ...]
    ) -> Rewrite:
        """Neither called nor decorating: an annotation, isinstance, a comparison, or a stored callable."""
        if self._names_a_class(node):
            return Rewrite((Edit(self.tree.span(node), new), *edits))
        above = self.tree.parent(node)
        if isinstance(above, cst.Attribute):
            return Rewrite((Edit(self.tree.span(node), new), *edits))
        if isinstance(above, cst.Arg) and isinstance(self.tree.parent(above), cst.ClassDef):
            raise CannotEdit(f"a subclass of {symbol.last} hands arguments on by the old positions")
        if isinstance(above, cst.Arg) and symbol.name not in _CUSTOM:
            raise CannotEdit("it is passed on as a value; the call that gives it arguments cannot be seen")
        if scope.kind == "class":
            raise CannotEdit("as a class attribute functools.partial would bind self (Python 3.14)")
        device, more = self.spelling.device(scope)
        partial, imported = self.spelling.module("functools", scope)
        bound = f"device_type={device}" if symbol.name in _CUSTOM else device
        if symbol.name == _AUTOCAST:
            bound += f", dtype={self._torch_prefix(node)}.float16"
        text = f"{partial}.partial({new}, {bound})"
        safe = symbol.name in _CUSTOM or self._called_by_keyword(node)
        if symbol.name == _SCALER and not safe:
            raise CannotEdit("it is stored; the call that gives it arguments cannot be seen")
        return Rewrite((Edit(self.tree.span(node), text), *edits, *more, *imported), unsafe=not safe)

    def _names_a_class(self, node: cst.BaseExpression) -> bool:
        """Whether the name stands for the type: in an annotation, isinstance/issubclass, or a comparison."""
        child: cst.CSTNode = node
        for outer in self.tree.ancestors(node):
            if isinstance(outer, cst.Annotation):
                return True
            if isinstance(outer, cst.Comparison):
                return True
            if isinstance(outer, cst.Call):
                tests = ("builtins.isinstance", "builtins.issubclass", "typing.cast")
                return self.names.is_name(outer.func, *tests) and outer.func is not child
            if isinstance(outer, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
                return False
            child = outer
        return False

    def _called_by_keyword(self, node: cst.BaseExpression) -> bool:
        """Whether the variable that holds `node` is called here, and never with a positional argument."""
        bound = self._variable_of(node)
        if bound is None or self.ctx.project.takers(self.model.filename, bound):
            return False
        calls = [
            call
            for call in self.tree.of_type(cst.Call)
            if isinstance(call.func, (cst.Name, cst.Attribute)) and self._last_name(call.func) == bound
        ]
        return bool(calls) and all(arg.keyword is not None for call in calls for arg in call.args)

    def _variable_of(self, node: cst.CSTNode) -> str | None:
        child = node
        for outer in self.tree.ancestors(node):
            if isinstance(outer, cst.Assign) and outer.value is child and len(outer.targets) == 1:
                target = outer.targets[0].target
                return self._last_name(target) if isinstance(target, (cst.Name, cst.Attribute)) else None
            if isinstance(outer, cst.IfExp) and outer.test is not child:
                child = outer
                continue
            return None
        return None

    @staticmethod
    def _last_name(node: cst.Name | cst.Attribute) -> str:
        return node.value if isinstance(node, cst.Name) else node.attr.value


def _joined(edits: list[Edit]) -> list[Edit]:
    """Insertions at one place as one edit, the device first."""
    by_place: dict[Span, list[str]] = {}
    for edit in reversed(edits):
        by_place.setdefault(edit.span, []).append(edit.content)
    return [Edit(span, "".join(parts)) for span, parts in by_place.items()]
