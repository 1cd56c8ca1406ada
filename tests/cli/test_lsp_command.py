"""`amplint lsp`: how it starts and ends."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def run(code: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, check=False, timeout=60
    )


def message(**content: object) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **content}).encode()
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


def test_without_the_extra_it_says_what_to_install():
    code = "import sys\nsys.modules['pygls'] = None\nfrom amplint.cli import main\nmain(['lsp'])"
    done = run(code)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.decode() == (
        "error: the language server needs the extra `lsp`: pip install 'amplint[lsp]', or '.[lsp]' in a checkout\n"
    )


@pytest.mark.parametrize("says_goodbye", [True, False])
def test_it_ends_with_its_client_and_says_whether_that_was_in_order(says_goodbye):
    pytest.importorskip("pygls")
    first = message(
        id=1, method="initialize", params={"capabilities": {}, "processId": None, "rootUri": None}
    )
    last = message(id=2, method="shutdown") if says_goodbye else b""
    done = run("from amplint.cli import main\nmain(['lsp'])", first + last + message(method="exit"))
    assert done.returncode == (0 if says_goodbye else 1)
    assert done.stdout.startswith(b"Content-Length: ")
