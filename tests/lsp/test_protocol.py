"""What a client may send that makes no sense: every request is answered all the same, and the server goes on."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

pytest.importorskip("pygls", reason="needs the extra `lsp`")

from .conftest import COMMAND, ROOT


class Raw:
    """A client that sends what it likes."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(ROOT), str(ROOT / "rules")])
        self.process = subprocess.Popen(
            COMMAND,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def send(self, method, params=None, number=None):
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            message["id"] = number
        body = json.dumps(message).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def ask(self, method, params=None, number="one"):
        """Send a request; gives its answer."""
        self.send(method, params, number)
        while True:
            length = int(self.process.stdout.readline().split(b":")[1])
            while self.process.stdout.readline().strip():
                pass
            message = json.loads(self.process.stdout.read(length))
            if message.get("id") == number and "method" not in message:
                return message


@pytest.fixture
def raw():
    client = Raw()
    yield client
    client.process.kill()
    client.process.wait()


def begin(raw):
    raw.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
    raw.send("initialized", {})


DOCUMENT = {"uri": "untitled:a.py", "languageId": "python", "version": 1, "text": "import torch\n"}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("textDocument/hover", {"textDocument": 5, "position": "here"}),
        ("textDocument/hover", {"textDocument": {"uri": DOCUMENT["uri"]}, "position": {"line": "x"}}),
        ("textDocument/hover", None),
        ("textDocument/codeAction", {"range": []}),
        ("textDocument/diagnostic", []),
        ("workspace/diagnostic", "all"),
        ("workspace/executeCommand", {"command": 7}),
        ("workspace/executeCommand", {"command": "amplint.fixAll", "arguments": {}}),
        ("workspace/executeCommand", {"command": "amplint.noSuchThing", "arguments": []}),
        ("no/suchMethod", {}),
    ],
)
def test_a_request_that_makes_no_sense_is_answered_by_an_error(raw, method, params):
    begin(raw)
    raw.send("textDocument/didOpen", {"textDocument": DOCUMENT})
    assert raw.ask(method, params)["error"]["code"] < 0
    hover = {"textDocument": {"uri": DOCUMENT["uri"]}, "position": {"line": 0, "character": 8}}
    assert "error" not in raw.ask("textDocument/hover", hover, 7)


def test_before_the_beginning_and_after_the_end_requests_are_refused(raw):
    assert raw.ask("workspace/diagnostic", {"previousResultIds": []})["error"]["code"] == -32002
    raw.send("textDocument/didOpen", {"textDocument": DOCUMENT})
    begin(raw)
    assert raw.ask("shutdown", number=2)["result"] is None
    assert raw.ask("workspace/diagnostic", {"previousResultIds": []}, 3)["error"]["code"] == -32600
    raw.send("exit")
    assert raw.process.wait(timeout=30) == 0


def test_notifications_that_make_no_sense_are_passed_over(raw):
    begin(raw)
    change = {
        "range": {"start": {"line": 90, "character": 1}, "end": {"line": 99, "character": 1}},
        "text": "x",
    }
    document = {"uri": "untitled:unknown.py", "version": 4}
    raw.send("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})
    raw.send("textDocument/didClose", {"textDocument": document})
    raw.send("textDocument/didOpen", {"textDocument": 3})
    raw.send("$/cancelRequest", {"id": 12345})
    raw.send("no/suchNotification", {})
    raw.send("textDocument/didOpen", {"textDocument": DOCUMENT})
    found = raw.ask("textDocument/diagnostic", {"textDocument": {"uri": DOCUMENT["uri"]}})
    assert found["result"]["items"] == []


def test_a_second_beginning_is_refused(raw):
    begin(raw)
    raw.send("textDocument/didOpen", {"textDocument": DOCUMENT})
    again = raw.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}}, "two")
    assert again["error"]["code"] == -32600
    hover = {"textDocument": {"uri": DOCUMENT["uri"]}, "position": {"line": 0, "character": 8}}
    assert "error" not in raw.ask("textDocument/hover", hover, 7)


def test_a_method_that_nobody_knows_is_told_from_one_with_wrong_parameters(raw):
    begin(raw)
    assert raw.ask("no/suchMethod", {})["error"]["code"] == -32601
    assert raw.ask("textDocument/hover", {"textDocument": 5})["error"]["code"] == -32602
    body = b'{"jsonrpc": "2.0", "id": 9, "method": "no/suchMethod"}'
    raw.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert raw.ask("no/other", {}, 10)["error"]["code"] == -32601


def test_a_client_that_watches_nothing_has_a_new_configuration_after_saving(raw, tmp_path):
    configuration = tmp_path / "amplint.toml"
    configuration.write_text("soc = \n")
    uri = (tmp_path / "a.py").as_uri()
    text = "import torch\n\nscaler = torch.cuda.amp.GradScaler()\n"
    raw.ask("initialize", {"processId": None, "rootUri": tmp_path.as_uri(), "capabilities": {}})
    raw.send("initialized", {})
    raw.send("textDocument/didOpen", {"textDocument": {**DOCUMENT, "uri": uri, "text": text}})

    def codes():
        found = raw.ask("textDocument/diagnostic", {"textDocument": {"uri": uri}})
        return [each["code"] for each in found["result"]["items"]]

    assert codes() == []
    configuration.write_text('soc = "910B"\n')
    raw.send("textDocument/didSave", {"textDocument": {"uri": uri}})
    assert codes() == ["AMP102"]
    configuration.write_text('ignore = ["AMP102"]\n')
    raw.send("textDocument/didSave", {"textDocument": {"uri": uri}})
    assert codes() == []
