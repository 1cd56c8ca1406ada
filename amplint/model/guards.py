"""Which code runs only under a version check, as a fallback, or as one arm of a device dispatch.

CUDA-only code there is right as it stands: another arm serves the other devices, or newer releases of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from amplint.model.device_tests import cuda_test
from amplint.model.module import ModuleModel
from amplint.syntax.tree import Tree

_VERSION = re.compile(
    r"__version__|parse_version|version\.parse|digit_version|is_torch_(?:greater|less|min|max|version)"
    r"|torch_?version|torch_(?:major|minor|ge|gt|lt|le)\b|torch_[12]_\d",
    re.IGNORECASE,
)
#: The device-agnostic API, or a device that is neither the CPU nor CUDA.
_SERVES = re.compile(
    r"torch\.amp\b|torch\.autocast\b|\b[gs]et_autocast_dtype\b|\bis_autocast_enabled\(\s*[\w\"']|\baccelerator\b"
    r"|(?:\b|_)(?:torch_)?(?:npu|xpu|hpu|mlu|musa|gcu|mps|xla|ascend)(?:\b|_)",
    re.IGNORECASE,
)
#: Any of those devices, whatever API they are used through.
_OTHERS = re.compile(
    r"\baccelerator\b|(?:\b|_)(?:torch_)?(?:npu|xpu|hpu|mlu|musa|gcu|ascend)(?:\b|_)", re.IGNORECASE
)
_FALLBACK_ERRORS = (
    "ImportError",
    "ModuleNotFoundError",
    "AttributeError",
    "TypeError",
    "Exception",
    "BaseException",
)


def guard(model: ModuleModel, node: cst.CSTNode) -> str | None:
    """Why CUDA-only code at `node` is guarded, or None."""
    tree = model.tree
    child: cst.CSTNode = node
    for outer in tree.ancestors(node):
        found: str | None = None
        if isinstance(outer, (cst.If, cst.IfExp)) and not tree.inside(node, outer.test):
            found = _branch(tree, outer, child)
        elif isinstance(outer, cst.Try):
            found = _try_arm(tree, outer, child)
        elif isinstance(outer, cst.Dict):
            found = _table(tree, outer, child)
        elif isinstance(outer, (cst.IndentedBlock, cst.Module)):
            found = _after_exit(model, outer, child)
        if found is not None:
            return found
        child = outer
    return None


def _branch(tree: Tree, outer: cst.If | cst.IfExp, child: cst.CSTNode) -> str | None:
    test = tree.code(outer.test)
    others = [tree.code(arm) for arm in _other_arms(tree, outer, child)]
    serves = any(_SERVES.search(text) for text in others)
    if _is_version_check(test):
        if serves:
            return "an arm of a version check whose other arm is device-agnostic"
        if _is_older(outer, child):
            return "the arm of a version check for an older torch"
        return None
    positive = child is outer.body
    if serves or (not positive and _SERVES.search(test) is not None):
        return "one arm of a device dispatch"
    return None


def _is_version_check(test: str) -> bool:
    return _VERSION.search(test) is not None or re.search(r"hasattr\(\s*torch\b", test) is not None


def _is_older(outer: cst.If | cst.IfExp, child: cst.CSTNode) -> bool:
    """Whether `child` is the arm for releases below a version."""
    test: cst.BaseExpression = outer.test
    positive = child is outer.body
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test, positive = test.expression, not positive
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        operator = test.comparisons[0].operator
        if isinstance(operator, (cst.LessThan, cst.LessThanEqual)):
            return positive
        if isinstance(operator, (cst.GreaterThan, cst.GreaterThanEqual, cst.Equal)):
            return not positive
        return False
    # is_torch_min_version("2.4"), hasattr(torch.amp, "custom_fwd")
    return not positive


def _other_arms(tree: Tree, outer: cst.If | cst.IfExp, child: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The arms of the whole chain around `outer` that `child` is not in, with their tests."""
    if child is outer.body:
        if outer.orelse is not None:
            yield outer.orelse
    else:
        yield outer.body
    current: cst.CSTNode = outer
    above = tree.parent(current)
    while isinstance(outer, cst.If) and isinstance(above, cst.If) and current is above.orelse:
        yield above.test
        yield above.body
        current, above = above, tree.parent(above)


def _try_arm(tree: Tree, outer: cst.Try, child: cst.CSTNode) -> str | None:
    if isinstance(child, cst.ExceptHandler):
        kinds = tree.code(child.type) if child.type is not None else "Exception"
        if any(kind in kinds for kind in _FALLBACK_ERRORS) and _tries_api(tree, outer):
            return "the fallback of a try"
        return None
    if child is outer.body and any(_SERVES.search(tree.code(handler.body)) for handler in outer.handlers):
        return "a try whose fallback serves other devices"
    return None


def _tries_api(tree: Tree, outer: cst.Try) -> bool:
    """Whether the try's body imports or names an API, rather than computing something that may fail."""
    body = tree.within(outer.body)
    imports = any(isinstance(inner, (cst.Import, cst.ImportFrom)) for inner in body)
    return imports or _SERVES.search(tree.code(outer.body)) is not None


def _table(tree: Tree, outer: cst.Dict, child: cst.CSTNode) -> str | None:
    for element in outer.elements:
        if element is not child and isinstance(element, cst.DictElement):
            key = tree.code(element.key)
            if isinstance(element.key, (cst.SimpleString, cst.Name, cst.Attribute)) and _SERVES.search(key):
                return "one entry of a table of devices"
    return None


def _after_exit(model: ModuleModel, block: cst.IndentedBlock | cst.Module, child: cst.CSTNode) -> str | None:
    """`if is_npu(): return ..` (or a version check that returns) earlier in the same block."""
    tree = model.tree
    for statement in block.body:
        if statement is child:
            return None
        if _refuses_others(model, statement):
            return "what is left after tensors that are not on CUDA were refused"
        if not isinstance(statement, cst.If) or statement.orelse is not None or not _leaves(statement.body):
            continue
        test, body = tree.code(statement.test), tree.code(statement.body)
        if _SERVES.search(body) or (_SERVES.search(test) and not _is_version_check(test)):
            return "what is left after another arm has returned"
    return None


def _refuses_others(model: ModuleModel, statement: cst.CSTNode) -> bool:
    """`if not x.is_cuda: raise ..` and `assert x.is_cuda`, as the wrappers of CUDA kernels begin.

    A program that refuses to start without CUDA (`torch.cuda.is_available()`) is none: it is to be ported.
    """
    if isinstance(statement, cst.If):
        if statement.orelse is not None or not isinstance(_last(statement.body), cst.Raise):
            return False
        test, positive = statement.test, False
    elif isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Assert):
        test, positive = statement.body[0].test, True
    else:
        return False
    if "is_cuda" not in model.tree.code(test):
        return False
    found = cuda_test(model, test)
    return found is not None and found.positive is positive


def _leaves(suite: cst.BaseSuite) -> bool:
    return isinstance(_last(suite), (cst.Return, cst.Raise, cst.Continue, cst.Break))


def _last(suite: cst.BaseSuite) -> cst.CSTNode | None:
    """The last statement of a block, the simple one where several share a line."""
    if not suite.body:
        return None
    last = suite.body[-1]
    return last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last


def names_others(text: str) -> bool:
    """Whether a piece of code names an accelerator other than CUDA, or any accelerator there is."""
    return _OTHERS.search(text) is not None


def transfer_to_npu(model: ModuleModel) -> bool:
    """Whether this file imports torch_npu's `transfer_to_npu`, which replaces torch.cuda's API at import."""
    if "transfer_to_npu" not in model.source.text:
        return False
    for binding in (b for found in model.names.module_scope.bindings.values() for b in found):
        if binding.kind == "import" and "transfer_to_npu" in (binding.origin or ""):
            return True
    statements: tuple[cst.Import | cst.ImportFrom, ...] = (
        *model.tree.of_type(cst.Import),
        *model.tree.of_type(cst.ImportFrom),
    )
    return any(
        "transfer_to_npu" in model.tree.code(alias.name)
        for statement in statements
        if not isinstance(statement.names, cst.ImportStar)
        for alias in statement.names
    )
