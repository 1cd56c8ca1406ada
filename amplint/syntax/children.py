"""Which attributes of a LibCST node hold its meaningful children, in lexical order.

A literal, because reading it off LibCST at import costs 50 ms; `tests/test_syntax.py` compares it with the
installed LibCST. Whitespace and punctuation are left out: they are six nodes out of ten and mean nothing here.
"""

from __future__ import annotations

#: LibCST class name -> attribute names.
CHILDREN: dict[str, tuple[str, ...]] = {
    "AnnAssign": (
        "target",
        "annotation",
        "value",
    ),
    "Annotation": ("annotation",),
    "Arg": (
        "keyword",
        "value",
    ),
    "AsName": ("name",),
    "Assert": (
        "test",
        "msg",
    ),
    "Assign": (
        "targets",
        "value",
    ),
    "AssignTarget": ("target",),
    "Attribute": (
        "value",
        "attr",
    ),
    "AugAssign": (
        "target",
        "operator",
        "value",
    ),
    "Await": ("expression",),
    "BinaryOperation": (
        "left",
        "operator",
        "right",
    ),
    "BooleanOperation": (
        "left",
        "operator",
        "right",
    ),
    "Call": (
        "func",
        "args",
    ),
    "ClassDef": (
        "decorators",
        "name",
        "type_parameters",
        "bases",
        "keywords",
        "body",
    ),
    "CompFor": (
        "target",
        "iter",
        "ifs",
        "inner_for_in",
    ),
    "CompIf": ("test",),
    "Comparison": (
        "left",
        "comparisons",
    ),
    "ComparisonTarget": (
        "operator",
        "comparator",
    ),
    "ConcatenatedString": (
        "left",
        "right",
    ),
    "Decorator": ("decorator",),
    "Del": ("target",),
    "Dict": ("elements",),
    "DictComp": (
        "key",
        "value",
        "for_in",
    ),
    "DictElement": (
        "key",
        "value",
    ),
    "Element": ("value",),
    "Else": ("body",),
    "ExceptHandler": (
        "type",
        "name",
        "body",
    ),
    "ExceptStarHandler": (
        "type",
        "name",
        "body",
    ),
    "Expr": ("value",),
    "Finally": ("body",),
    "For": (
        "target",
        "iter",
        "body",
        "orelse",
    ),
    "FormattedString": ("parts",),
    "FormattedStringExpression": (
        "expression",
        "format_spec",
    ),
    "From": ("item",),
    "FunctionDef": (
        "decorators",
        "name",
        "type_parameters",
        "params",
        "returns",
        "body",
    ),
    "GeneratorExp": (
        "elt",
        "for_in",
    ),
    "Global": ("names",),
    "If": (
        "test",
        "body",
        "orelse",
    ),
    "IfExp": (
        "body",
        "test",
        "orelse",
    ),
    "Import": ("names",),
    "ImportAlias": (
        "name",
        "asname",
    ),
    "ImportFrom": (
        "module",
        "names",
    ),
    "IndentedBlock": ("body",),
    "Index": ("value",),
    "Lambda": (
        "params",
        "body",
    ),
    "LazyImport": ("names",),
    "LazyImportFrom": (
        "module",
        "names",
    ),
    "List": ("elements",),
    "ListComp": (
        "elt",
        "for_in",
    ),
    "Match": (
        "subject",
        "cases",
    ),
    "MatchAs": (
        "pattern",
        "name",
    ),
    "MatchCase": (
        "pattern",
        "guard",
        "body",
    ),
    "MatchClass": (
        "cls",
        "patterns",
        "kwds",
    ),
    "MatchKeywordElement": (
        "key",
        "pattern",
    ),
    "MatchList": ("patterns",),
    "MatchMapping": (
        "elements",
        "rest",
    ),
    "MatchMappingElement": (
        "key",
        "pattern",
    ),
    "MatchOr": ("patterns",),
    "MatchOrElement": ("pattern",),
    "MatchSequenceElement": ("value",),
    "MatchSingleton": ("value",),
    "MatchStar": ("name",),
    "MatchTuple": ("patterns",),
    "MatchValue": ("value",),
    "Module": ("body",),
    "NameItem": ("name",),
    "NamedExpr": (
        "target",
        "value",
    ),
    "Nonlocal": ("names",),
    "Param": (
        "name",
        "annotation",
        "default",
    ),
    "ParamSpec": ("name",),
    "Parameters": (
        "posonly_params",
        "params",
        "star_arg",
        "kwonly_params",
        "star_kwarg",
    ),
    "Raise": (
        "exc",
        "cause",
    ),
    "Return": ("value",),
    "Set": ("elements",),
    "SetComp": (
        "elt",
        "for_in",
    ),
    "SimpleStatementLine": ("body",),
    "SimpleStatementSuite": ("body",),
    "Slice": (
        "lower",
        "upper",
        "step",
    ),
    "StarredDictComp": (
        "value",
        "for_in",
    ),
    "StarredDictElement": ("value",),
    "StarredElement": ("value",),
    "Subscript": (
        "value",
        "slice",
    ),
    "SubscriptElement": ("slice",),
    "TemplatedString": ("parts",),
    "TemplatedStringExpression": (
        "expression",
        "format_spec",
    ),
    "Try": (
        "body",
        "handlers",
        "orelse",
        "finalbody",
    ),
    "TryStar": (
        "body",
        "handlers",
        "orelse",
        "finalbody",
    ),
    "Tuple": ("elements",),
    "TypeAlias": (
        "name",
        "type_parameters",
        "value",
    ),
    "TypeParam": (
        "param",
        "default",
    ),
    "TypeParameters": ("params",),
    "TypeVar": (
        "name",
        "bound",
    ),
    "TypeVarTuple": ("name",),
    "UnaryOperation": (
        "operator",
        "expression",
    ),
    "While": (
        "test",
        "body",
        "orelse",
    ),
    "With": (
        "items",
        "body",
    ),
    "WithItem": (
        "item",
        "asname",
    ),
    "Yield": ("value",),
}
