"""Sources that nobody would write, made from sources that somebody did, and what must hold for every one of them."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable
from random import Random

import libcst as cst
from pyflakes.checker import Checker
from pyflakes.messages import UndefinedLocal, UndefinedName

from amplint.runner import FixMode, run_text

#: Loose tokens: what is cut, doubled and swapped need not be what Python calls a token.
_TOKEN = re.compile(r"\w+|[ \t\f]+|\r\n?|\n|[^\w\s]")
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")

WORDS = (
    "autocast",
    "GradScaler",
    "torch",
    "cuda",
    "amp",
    "scaler",
    "device_type",
    "enabled",
    "dtype",
    "float16",
    "half",
    "*args",
    "**kwargs",
    "None",
    "True",
    "'cuda'",
    "lambda: ",
    "await ",
    "yield ",
    "not ",
    "global ",
    "del ",
    "async ",
    "return ",
    "import ",
    "from ",
    " as ",
    " if ",
    " else ",
    " for ",
    " in ",
    "=",
    ":=",
    "==",
    "**",
    "*",
    "->",
    ":",
    ";",
    ",",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "@",
    ".",
    "...",
    "\\",
    "'",
    '"',
    '"""',
    "f'{x}'",
    "b''",
    "0x",
    "1e5",
)
LINES = (
    "# amplint: ignore[AMP101] because",
    "# amplint: disable[AMP1]",
    "# amplint: enable[AMP1]",
    "# amplint: file-ignore[AMP201]",
    "# amplint: ignore[AMP101] until=2001-01-01 old",
    "# noqa: AMP102",
    "# type: ignore",
    "# -*- coding: latin-1 -*-",
    "from __future__ import annotations",
    "from torch.cuda.amp import autocast, GradScaler",
    "from torch.cuda.amp import (autocast as ac,  # why",
    "from torch.cuda.amp import *",
    "from torch.cuda import amp",
    "import torch.cuda.amp as amp",
    "import torch",
    "import torch.nn.utils as u; import torch.cuda.amp",
    "del autocast",
    "autocast = None",
    "global autocast",
    "__all__ = ['autocast']",
    "with autocast(): pass",
    "with torch.cuda.amp.autocast(True, torch.float16), torch.no_grad(): pass",
    "with torch.autocast('cuda') and torch.no_grad(): pass",
    "scaler = torch.cuda.amp.GradScaler(2.0**10, enabled=use)",
    "scaler.scale(loss).backward()",
    "torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)",
    "scaler.unscale_(opt)",
    "scaler.step(opt)",
    "scaler.update()",
    "opt.step()",
    "opt.zero_grad()",
    "x.half()",
    "@torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)",
    "@autocast()",
    "try:",
    "except ImportError:",
    "finally:",
    "else:",
    "if torch.cuda.is_available():",
    "for _ in range(2):",
    "while True:",
    "class A:",
    "def f(scaler, loss, opt, m):",
    "match x:",
    "case torch.cuda.amp.autocast:",
    "type X = int",
    "print autocast",
    "break",
    "continue",
    "return",
    "pass",
    "x = (",
    ")",
    '"""',
    "'''text",
)


def mutate(text: str, random: Random) -> str:
    """`text` after some random damage."""
    for _ in range(random.choice((1, 1, 2, 3, 5, 8))):
        text = random.choice(_MUTATIONS)(text, random)
    return text


def _tokens(change: Callable[[list[str], int, Random], None]) -> Callable[[str, Random], str]:
    def mutation(text: str, random: Random) -> str:
        tokens = _TOKEN.findall(text)
        if tokens:
            change(tokens, random.randrange(len(tokens)), random)
        return "".join(tokens)

    return mutation


def _lines(change: Callable[[list[str], int, Random], None]) -> Callable[[str, Random], str]:
    def mutation(text: str, random: Random) -> str:
        lines = _LINE.findall(text)
        if lines:
            change(lines, random.randrange(len(lines)), random)
        return "".join(lines)

    return mutation


def _end(line: str) -> str:
    """The newline of a line, or a plain one where it has none."""
    return line[len(line.rstrip("\r\n")) :] or "\n"


def _delete(parts: list[str], i: int, random: Random) -> None:
    del parts[i : i + random.choice((1, 1, 2, 4))]


def _double(parts: list[str], i: int, random: Random) -> None:
    parts[i:i] = parts[i : i + random.choice((1, 1, 3))]


def _swap(parts: list[str], i: int, random: Random) -> None:
    j = random.randrange(len(parts))
    parts[i], parts[j] = parts[j], parts[i]


def _move(parts: list[str], i: int, random: Random) -> None:
    part = parts.pop(i)
    parts.insert(random.randrange(len(parts) + 1), part)


def _replace_token(parts: list[str], i: int, random: Random) -> None:
    parts[i] = random.choice(WORDS)


def _insert_token(parts: list[str], i: int, random: Random) -> None:
    parts.insert(i, random.choice(WORDS))


def _insert_line(parts: list[str], i: int, random: Random) -> None:
    indent = re.match(r"[ \t\f]*", parts[i])
    parts.insert(i, (indent[0] if indent else "") + random.choice(LINES) + _end(parts[i]))


def _insert_block(parts: list[str], i: int, random: Random) -> None:
    """A line with what follows it, up to the next line indented less, below a new heading."""
    indent = re.match(r"[ \t\f]*", parts[i])
    blank = indent[0] if indent else ""
    end = _end(parts[i])
    heading = random.choice(
        ("if x:", "with autocast():", "try:", "for _ in y:", "def g():", "class B:", "while x:")
    )
    stop = i + random.randrange(1, 6)
    body = [f"    {line}" for line in parts[i:stop]]
    tail = [f"{blank}finally:{end}", f"{blank}    pass{end}"] if heading == "try:" else []
    parts[i:stop] = [blank + heading + end, *body, *tail]


def _indent(parts: list[str], i: int, random: Random) -> None:
    parts[i] = random.choice((" ", "    ", "\t", "\f", " \t")) + parts[i]


def _dedent(parts: list[str], i: int, random: Random) -> None:
    parts[i] = parts[i].lstrip(" \t\f")


def _join_lines(parts: list[str], i: int, random: Random) -> None:
    parts[i] = parts[i].rstrip("\r\n") + random.choice(("; ", " ", "", ", ", " \\\n", "\\\r\n"))


def _comment(parts: list[str], i: int, random: Random) -> None:
    body = parts[i].rstrip("\r\n")
    parts[i] = (
        f"{body}  {random.choice([line for line in LINES if line.startswith('#')])}{parts[i][len(body) :]}"
    )


def _trailing_blank(parts: list[str], i: int, random: Random) -> None:
    body = parts[i].rstrip("\r\n")
    parts[i] = body + random.choice((" ", "\t", " \f", "  ")) + parts[i][len(body) :]


def _other_newline(parts: list[str], i: int, random: Random) -> None:
    parts[i] = parts[i].rstrip("\r\n") + random.choice(("\n", "\r\n", "\r"))


def _all_newlines(text: str, random: Random) -> str:
    return re.sub(r"\r\n?|\n", random.choice(("\n", "\r\n", "\r")), text)


def _odd_character(text: str, random: Random) -> str:
    place = random.randrange(len(text) + 1)
    odd = random.choice(
        ("\f", "\t", "\v", "\xa0", "\u2028", "\x85", "é", "变量", "𝒳", "\ufeff", "\x1a", "\u200b", "\r")
    )
    return text[:place] + odd + text[place:]


def _bom(text: str, random: Random) -> str:
    return "\ufeff" + text


def _cookie(text: str, random: Random) -> str:
    return (
        random.choice(
            (
                "# coding: utf-8\n",
                "#!/usr/bin/python\n# vim: set fileencoding=latin-1 :\n",
                "\f# coding=x\r\n",
            )
        )
        + text
    )


def _cut(text: str, random: Random) -> str:
    return text[: random.randrange(len(text) + 1)]


def _no_final_newline(text: str, random: Random) -> str:
    return text.rstrip() + random.choice(("", "\\", "\\\n", " ", "\f", "\r", "#", "\n\n\n"))


def _rename(text: str, random: Random) -> str:
    """One name becomes another that the text has too, everywhere or once."""
    names = sorted(set(re.findall(r"[A-Za-z_]\w*", text)))
    if len(names) < 2:
        return text
    old, new = random.sample(names, 2)
    return re.sub(rf"\b{old}\b", new, text, count=random.choice((0, 1)))


_MUTATIONS: tuple[Callable[[str, Random], str], ...] = (
    *map(_tokens, (_delete, _double, _swap, _move, _replace_token, _insert_token)),
    *map(
        _lines, (_delete, _double, _swap, _move, _insert_line, _insert_line, _insert_block, _indent, _dedent)
    ),
    *map(_lines, (_join_lines, _comment, _trailing_blank, _other_newline)),
    *(_all_newlines, _odd_character, _bom, _cookie, _cut, _no_final_newline, _rename),
)


def failures(text: str, *, style: str, torch: tuple[int, int] = (2, 7)) -> list[str]:
    """What amplint does wrong with a text; an exception inside it is a failure too."""
    try:
        return list(_failures(text, style, torch))
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


def _failures(text: str, style: str, torch: tuple[int, int]) -> list[str]:
    settings = {"target": "npu", "style": style, "torch": torch}
    mode = FixMode(ports=True, repairs=True, unsafe=True)
    found = run_text(text, "a.py", FixMode(), ["ALL"], settings).findings
    fixed = _fix(text, mode, settings)
    wanted = any(mode.admits(finding) for finding in found)
    if wanted != (fixed != text):
        return ["there are fixes, and nothing changed" if wanted else "no fix, and yet the text changed"]
    if fixed == text:
        return []
    if _fix(fixed, mode, settings) != fixed:
        return ["a second run changes the text again"]
    return _damage(text, fixed)


def _fix(text: str, mode: FixMode, settings: dict[str, object]) -> str:
    result = run_text(text, "a.py", mode, ["ALL"], settings)
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    return mark + result.changes[0].new_text if result.changes else text


def _damage(text: str, fixed: str) -> list[str]:
    """What a fix has broken as far as Python and pyflakes can tell."""
    before = _compiled(text)
    if before is None:  # only LibCST accepts it
        cst.parse_module(fixed)
        return []
    after = _compiled(fixed)
    if after is None:
        return ["the fixed text does not compile"]
    if ast.get_docstring(before) != ast.get_docstring(after):
        return ["the fixed text has another docstring"]
    if _undefined(before):  # it fails already
        return []
    lost = {name for name in _undefined(after) if not re.search(rf"\bdel\b.*\b{name}\b", text)}
    return [f"the fixed text does not define {', '.join(sorted(lost))}"] if lost else []


def _compiled(text: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(text, "a.py", "exec", dont_inherit=True)
            return ast.parse(text)
        except (SyntaxError, ValueError):
            return None


def _undefined(tree: ast.Module) -> set[str]:
    found = Checker(tree).messages
    return {str(m.message_args[0]) for m in found if isinstance(m, (UndefinedName, UndefinedLocal))}
