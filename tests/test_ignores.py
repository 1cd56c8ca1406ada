"""Comments that silence findings: where they stand, and that nothing else changes."""

from __future__ import annotations

from datetime import date

import pytest

from amplint.config import Settings
from amplint.ignores import silence
from amplint.runner import run
from amplint.source import Source, source_from_bytes

TODAY = date(2026, 6, 15)
SETTINGS = Settings(select=("AMP1", "AMP900"))


def silenced(code: str | bytes, reason: str = "why") -> str:
    """The code with comments; checks that nothing is found then, and that a second time changes nothing."""
    source = source_from_bytes(code.encode() if isinstance(code, str) else code, "train.py")
    findings = run([], SETTINGS, stdin=source).findings
    assert findings
    made = silence(source, findings, reason, TODAY)
    assert list(made.findings) == findings
    assert run([], SETTINGS, stdin=Source(**fields(made.source))).findings == []
    return made.source.data.decode()


def fields(source: Source) -> dict[str, object]:
    names = ("filename", "path", "data", "text", "encoding", "bom")
    return {name: getattr(source, name) for name in names}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("with autocast():\n    pass\n", "with autocast():  # amplint: ignore[AMP101] why\n    pass\n"),
        ("x = autocast()", "x = autocast()  # amplint: ignore[AMP101] why"),
        ("x = autocast()   \n", "x = autocast()  # amplint: ignore[AMP101] why\n"),
        ("x = autocast()  # noqa: E1\n", "x = autocast()  # noqa: E1  # amplint: ignore[AMP101] why\n"),
        (
            "x = autocast()  # type: ignore\n",
            "x = autocast()  # type: ignore  # amplint: ignore[AMP101] why\n",
        ),
        ("x = f(\n    autocast(),\n)\n", "x = f(\n    autocast(),  # amplint: ignore[AMP101] why\n)\n"),
        ("x = autocast(\n    True,\n)\n", "x = autocast(  # amplint: ignore[AMP101] why\n    True,\n)\n"),
        (
            'x = f(autocast(), """\n  a\n""")\n',
            '# amplint: ignore[AMP101] why\nx = f(autocast(), """\n  a\n""")\n',
        ),
        (
            'if a:\n\tx = f(autocast(), f"""\n{a}\n""")\n',
            'if a:\n\t# amplint: ignore[AMP101] why\n\tx = f(autocast(), f"""\n{a}\n""")\n',
        ),
        (
            'x = f("""\n""", autocast())\n',
            'x = f("""\n""", autocast())  # amplint: ignore[AMP101] why\n',
        ),
        (
            "with autocast(), \\\n        a:\n    pass\n",
            "# amplint: ignore[AMP101] why\nwith autocast(), \\\n        a:\n    pass\n",
        ),
        (
            "if a:\n    pass\nelif f(autocast(), \\\n    b):\n    pass\n",
            "if a:\n    pass\n# amplint: ignore[AMP101] why\nelif f(autocast(), \\\n    b):\n    pass\n",
        ),
        (
            "x = autocast(), autocast(), GradScaler()\n",
            "x = autocast(), autocast(), GradScaler()  # amplint: ignore[AMP101, AMP102] why\n",
        ),
        (
            "x = autocast(), GradScaler()  # amplint: ignore[AMP102] why\n",
            "x = autocast(), GradScaler()  # amplint: ignore[AMP102, AMP101] why\n",
        ),
        (
            "x = autocast(), GradScaler()  # amplint: ignore[AMP102] other\n",
            "x = autocast(), GradScaler()  # amplint: ignore[AMP102] other  # amplint: ignore[AMP101] why\n",
        ),
        ("x = autocast(); y = 1\n", "x = autocast(); y = 1  # amplint: ignore[AMP101] why\n"),
        (
            "@autocast()\ndef f():\n    pass\n",
            "@autocast()  # amplint: ignore[AMP101] why\ndef f():\n    pass\n",
        ),
    ],
)
def test_a_comment_stands_behind_the_row_or_above_the_statement(before: str, after: str) -> None:
    head = "from torch.cuda.amp import autocast, GradScaler  # noqa: AMP101, AMP102\n"
    assert silenced(head + before) == head + after


def test_newlines_tabs_and_the_byte_order_mark_stay() -> None:
    code = b'\xef\xbb\xbfimport torch\r\n\r\nif 1:\r\n\tx = f(torch.cuda.amp.autocast(), """\r\n""")\r\n'
    assert silenced(code).encode() == (
        b"\xef\xbb\xbfimport torch\r\n\r\nif 1:\r\n\t# amplint: ignore[AMP101] why\r\n"
        b'\tx = f(torch.cuda.amp.autocast(), """\r\n""")\r\n'
    )


def test_two_findings_above_and_behind_are_both_silenced() -> None:
    code = "import torch\nx = f(torch.cuda.amp.autocast(), '''\n''')\ny = torch.cuda.amp.autocast()\n"
    assert silenced(code).count("# amplint: ignore[AMP101] why") == 2


def test_a_file_that_cannot_be_parsed_gets_a_comment_at_its_top() -> None:
    code = "#!/usr/bin/env python\n# coding: utf-8\nprint 'a'\nx = (\n"
    assert silenced(code) == code.replace("print", "# amplint: file-ignore[AMP900] why\nprint", 1)


def test_a_day_in_the_reason_is_that_of_the_suppression() -> None:
    code = "import torch\nx = torch.cuda.amp.autocast()\n"
    assert "# amplint: ignore[AMP101] until=2999-01-01 why\n" in silenced(code, "until=2999-01-01 why")
