"""Where a file mentions low precision so that something may become it, read off the standard library's tree.

A dtype that is only compared with, a key of a dictionary, an annotation or a line of documentation makes nothing low.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

#: Names and short strings by which something is made low precision.
WORDS = frozenset(
    (
        *("bfloat16", "float16", "HalfTensor", "BFloat16Tensor", "torch.cuda.HalfTensor"),
        *("autocast", "custom_fwd", "16-mixed", "bf16-mixed", "16-true", "bf16-true"),
    )
)
#: What occurs in every text that mentions one of them.
_OCCURS = re.compile("|".join(map(re.escape, sorted(("half", *WORDS)))))
#: What has dtypes of the same names, and no tensors of torch.
_OTHERS = frozenset(("tf", "jnp", "jax", "ml_dtypes", "mx", "mlx", "onnx", "trt", "ov", "ort"))


def made_low(tree: ast.Module, text: str) -> frozenset[str]:
    """The words by which a file may make something low precision; none: nothing in it can."""
    return frozenset(_words(tree)) if _OCCURS.search(text) else frozenset()


def _words(tree: ast.Module) -> Iterator[str]:
    todo: list[ast.AST | None] = [tree]
    while todo:
        node = todo.pop()
        kind = type(node)
        if kind is ast.Name:
            if node.id in WORDS:  # type: ignore[union-attr]  # told by `kind`, faster than isinstance
                yield node.id  # type: ignore[union-attr]
        elif kind is ast.Attribute:
            yield from _of_attribute(node)  # type: ignore[arg-type]
            todo.append(node.value)  # type: ignore[union-attr]
        elif kind is ast.Constant:
            if node.value in WORDS:  # type: ignore[union-attr]
                yield node.value  # type: ignore[union-attr]
        elif kind is ast.Call:
            yield from _of_call(node)  # type: ignore[arg-type]
            todo.extend(_looked_at_call(node))  # type: ignore[arg-type]
        elif kind is ast.Compare:
            todo.extend(e for e in (node.left, *node.comparators) if not _is_only_named(e))  # type: ignore[union-attr]
        elif kind is ast.Dict:
            todo.extend(node.values)  # type: ignore[union-attr]
        elif kind is ast.Expr:
            if type(node.value) is not ast.Constant:  # type: ignore[union-attr]
                todo.append(node.value)  # type: ignore[union-attr]
        elif kind is ast.AnnAssign:
            todo.extend((node.target, node.value))  # type: ignore[union-attr]
        elif kind is ast.arg:
            pass
        elif kind is ast.ImportFrom:
            # under another name the word occurs nowhere else, and `half` means many things elsewhere
            yield from (a.name for a in node.names if a.name == "half" or (a.asname and a.name in WORDS))  # type: ignore[union-attr]
        elif node is not None:
            for name in node._fields:
                if name == "returns":
                    continue
                value = getattr(node, name, None)
                if isinstance(value, ast.AST):
                    todo.append(value)
                elif type(value) is list:
                    todo.extend(item for item in value if isinstance(item, ast.AST))


def _of_attribute(node: ast.Attribute) -> Iterator[str]:
    owner = node.value.id if type(node.value) is ast.Name else ""
    if owner in _OTHERS:
        return
    if node.attr in WORDS or (node.attr == "half" and owner not in ("self", "args", "cfg", "opt")):
        yield node.attr


def _of_call(node: ast.Call) -> Iterator[str]:
    if type(node.func) is ast.Attribute and node.func.attr == "half":
        yield "half"
    if type(node.func) is ast.Name and node.func.id == "getattr" and len(node.args) > 1:
        name = node.args[1]
        if type(name) is ast.Constant and name.value == "half":
            yield "half"


def _looked_at_call(node: ast.Call) -> list[ast.AST]:
    """What is inside a call and not a type that something is asked to be of."""
    is_test = type(node.func) is ast.Name and node.func.id in ("isinstance", "issubclass")
    return [node.func, *(node.args[:1] if is_test else node.args), *(k.value for k in node.keywords)]


def _is_only_named(node: ast.expr) -> bool:
    """Whether an operand of a comparison is a dtype or several, as in `x.dtype in (torch.float16, torch.half)`."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return all(_is_only_named(e) for e in node.elts)
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, (ast.Constant, ast.Name))
