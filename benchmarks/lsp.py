"""How long the language server takes after a keystroke, and whether anything blocks it meanwhile.

    python benchmarks/lsp.py [--keystrokes 200] [--lines 1000 5000] [--file PATH ...] [--json FILE]

A file of so many lines is made of the training scripts in `samples/` (their functions and classes, renamed so that
all are different), or PATH is taken. Statements are typed into functions of it, a character at a time, each in a place
of its own and deleted again, as people do. Reported is, over all keystrokes, the time from the moment when the change
is sent to the moment when the diagnostics of exactly that version have been read; the debounce is set to 0. The next
keystroke comes 100 ms after these, so that every one of them counts. Keystrokes that leave the file unparsable are
counted with the others and apart.

- settled: these may be a first look at the function at hand. This is the time from the last keystroke of a statement
  until the whole file has been checked, by when an action for it can be asked for.

- burst: the same keystrokes 30 ms apart whatever has been answered: time from the last one to its diagnostics, and how
  many versions were skipped.
- blocked: while all of this goes on, a request that the server answers by itself is sent every 50 ms; the longest wait
  for an answer is how long something blocked it.
- CPU: user and system time of the server and its worker for each keystroke. On a shared machine these say more than
  the times on the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from amplint.syntax.syntax_error import parsed_only

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = (
    "classification/trainer.py",
    "classification/train.py",
    "transformer/train_lm.py",
    "gan/train_gan.py",
)
#: What is typed; each line is a statement that a function of a training script may hold.
TYPED = (
    "scaled = loss * 0.5",
    "logits = model(batch.to(device)).float()",
    "total = total + loss.detach()",
    'print(f"step {step}: {loss.item():.3f}")',
    "with torch.no_grad(): ema.update(model)",
    "if step % 100 == 0: evaluate(model)",
    "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "# nothing happens here yet",
)


class Client:
    """A client that speaks the protocol over pipes, with a thread that notes when each message came."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", "from amplint.cli import main; main()", "lsp"]
        path = os.pathsep.join([str(ROOT), str(ROOT / "rules"), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
        )
        self._lock = threading.Lock()
        self._numbers = 0
        self.sent: dict[int, float] = {}
        self.waits: list[float] = []
        self.answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self.published: queue.Queue[tuple[int, float, int]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, method: str, params: Any, *, ask: bool = False, probe: bool = False) -> int:
        """Send a notification, or a request whose number is given back; a probe is one whose wait is noted."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        with self._lock:
            if ask:
                self._numbers += 1
                message["id"] = self._numbers
                if probe:
                    self.sent[self._numbers] = time.perf_counter()
            body = json.dumps(message).encode()
            assert self.process.stdin is not None
            self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            self.process.stdin.flush()
            return self._numbers

    def ask(self, method: str, params: Any) -> Any:
        """Send a request and wait for its answer."""
        number = self.send(method, params, ask=True)
        while (answer := self.answers.get(timeout=120))["id"] != number:
            pass
        return answer.get("result")

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while header := stream.readline():
            length = int(header.split(b":")[1])
            while stream.readline().strip():
                pass
            message = json.loads(stream.read(length))
            now = time.perf_counter()
            if message.get("method") == "textDocument/publishDiagnostics":
                params = message["params"]
                self.published.put((params.get("version") or 0, now, len(params["diagnostics"])))
            elif "id" in message and "method" not in message:
                if message["id"] in self.sent:
                    self.waits.append(now - self.sent.pop(message["id"]))
                else:
                    self.answers.put(message)

    def diagnostics(self, version: int) -> tuple[float, int]:
        """When the diagnostics of a version had been read, and how many these were."""
        while True:
            found, when, count = self.published.get(timeout=120)
            if found >= version:
                return when, count

    def cpu(self) -> float:
        """CPU seconds of the server and its workers so far."""
        total = 0.0
        for process in [self.process.pid, *children(self.process.pid)]:
            try:
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def memory(self) -> float:
        """Resident megabytes of the server and its workers."""
        total = 0
        for process in [self.process.pid, *children(self.process.pid)]:
            status = Path(f"/proc/{process}/status").read_text()
            found = re.search(r"VmRSS:\s+(\d+)", status)
            total += int(found[1]) if found else 0
        return total / 1024


def children(process: int) -> list[int]:
    """Processes that a process started, and those that these started."""
    listed = Path(f"/proc/{process}/task/{process}/children")
    own = [int(number) for number in listed.read_text().split()] if listed.exists() else []
    return [*own, *(inner for child in own for inner in children(child))]


def training_code(lines: int) -> str:
    """A module of about so many lines: the definitions of the samples, again and again under other names."""
    imports: dict[str, None] = {}
    bodies = []
    for name in SAMPLES:
        head, body = [], []
        for line in (ROOT / "samples" / name).read_text().splitlines():
            (head if re.match(r"(?:import|from) ", line) and not body else body).append(line)
        imports.update(dict.fromkeys(line for line in head if "__future__" not in line))
        bodies.append("\n".join(body).partition('if __name__ == "__main__"')[0].rstrip())
    parts = ["from __future__ import annotations", *imports]
    number = 0
    while sum(part.count("\n") + 1 for part in parts) < lines:
        body = re.sub(r'\A\s*""".*?"""', "", bodies[number % len(bodies)], flags=re.DOTALL).strip("\n")
        for defined in re.findall(r"^(?:def|class) (\w+)|^([A-Z_]+) = ", body, flags=re.MULTILINE):
            own = defined[0] or defined[1]
            body = re.sub(rf"\b{own}\b", f"{own}_{number}", body)
        parts.append("\n\n" + body)
        number += 1
    return "\n".join(parts) + "\n"


def places(text: str) -> list[tuple[int, str]]:
    """Rows (from 0) of statements inside of functions, with their indentation."""
    found = []
    depth = 0
    for row, line in enumerate(text.split("\n")):
        is_plain = depth == 0 and re.match(r"(    +)(?:\w[\w.]* = |return |self\.|loss|optimizer)", line)
        depth += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        if is_plain:
            found.append((row, is_plain[1]))
    return found


def keystrokes(text: str, count: int, seed: int) -> list[dict[str, Any]]:
    """At least so many changes as a client sends them: a new row, its characters, and the row taken away again."""
    chance = random.Random(seed)
    where = places(text)
    made: list[dict[str, Any]] = []

    def change(row: int, start: int, end_row: int, end: int, content: str) -> None:
        span = {"start": {"line": row, "character": start}, "end": {"line": end_row, "character": end}}
        made.append({"range": span, "text": content})

    while len(made) < count:
        row, indent = chance.choice(where)
        change(row, 0, row, 0, indent + "\n")
        column = len(indent)
        for character in chance.choice(TYPED):
            change(row, column, row, column, character)
            column += 1
        change(row, 0, row + 1, 0, "")
    return made


def percentile(values: list[float], share: float) -> float:
    """The value below which so large a share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(text: str, count: int, seed: int) -> dict[str, Any]:
    """All figures for one file."""
    client = Client()
    try:
        return _measure(client, text, count, seed)
    finally:
        client.process.kill()


def _measure(client: Client, text: str, count: int, seed: int) -> dict[str, Any]:
    uri = "untitled:train.py"
    client.ask(
        "initialize",
        {"processId": None, "rootUri": None, "capabilities": {}, "initializationOptions": {"debounce": 0}},
    )
    client.send("initialized", {})
    began = time.perf_counter()
    document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
    client.send("textDocument/didOpen", {"textDocument": document})
    opened = client.diagnostics(1)
    stop = threading.Event()

    def probe() -> None:
        while not stop.wait(0.05):
            client.send(
                "workspace/executeCommand",
                {"command": "amplint.showSettings", "arguments": ["untitled:x"]},
                ask=True,
                probe=True,
            )

    changes = keystrokes(text, count, seed)
    version = 1
    client.waits.clear()
    prober = threading.Thread(target=probe)
    prober.start()
    before = client.cpu()
    latencies: list[float] = []
    broken: list[bool] = []
    settled: list[float] = []
    for change in changes:
        version += 1
        sent = time.perf_counter()
        client.send(
            "textDocument/didChange",
            {"textDocument": {"uri": uri, "version": version}, "contentChanges": [change]},
        )
        when, _ = client.diagnostics(version)
        latencies.append(when - sent)
        text = applied(text, change)
        broken.append(not parses(text))
        if not change["text"]:  # the statement was taken away
            client.ask(
                "textDocument/codeAction",
                {"textDocument": {"uri": uri}, "range": change["range"], "context": {"diagnostics": []}},
            )
            settled.append(time.perf_counter() - sent)
        time.sleep(0.1)
    count = len(changes)
    cpu = (client.cpu() - before) / count
    stop.set()
    prober.join()
    waits = sorted(client.waits)
    burst = []
    for number in range(5):
        for change in keystrokes(text, 40, number):
            version += 1
            sent = time.perf_counter()
            client.send(
                "textDocument/didChange",
                {"textDocument": {"uri": uri, "version": version}, "contentChanges": [change]},
            )
            text = applied(text, change)
            time.sleep(0.03)
        burst.append(client.diagnostics(version)[0] - sent)
    whole = [latency for latency, is_broken in zip(latencies, broken, strict=True) if not is_broken]
    return {
        "lines": text.count("\n"),
        "open_ms": round(1000 * (opened[0] - began)),
        "findings": opened[1],
        "keystrokes": count,
        "p50_ms": round(1000 * statistics.median(latencies), 1),
        "p95_ms": round(1000 * percentile(latencies, 0.95), 1),
        "max_ms": round(1000 * max(latencies), 1),
        "unparsable_share": round(sum(broken) / count, 2),
        "parsable_p50_ms": round(1000 * statistics.median(whole), 1),
        "parsable_p95_ms": round(1000 * percentile(whole, 0.95), 1),
        "settled_p50_ms": round(1000 * statistics.median(settled), 1),
        "settled_max_ms": round(1000 * max(settled), 1),
        "burst_p50_ms": round(1000 * statistics.median(burst), 1),
        "blocked_p99_ms": round(1000 * percentile(waits, 0.99), 1),
        "blocked_max_ms": round(1000 * waits[-1], 1),
        "cpu_ms_per_keystroke": round(1000 * cpu, 1),
        "memory_mb": round(client.memory()),
    }


def applied(text: str, change: dict[str, Any]) -> str:
    """The text after a change."""
    lines = text.split("\n")
    start, end = change["range"]["start"], change["range"]["end"]
    head = [*lines[: start["line"]], lines[start["line"]][: start["character"]]]
    tail = [lines[end["line"]][end["character"] :], *lines[end["line"] + 1 :]]
    return "\n".join(head) + change["text"] + "\n".join(tail)


def parses(text: str) -> bool:
    """Whether Python takes the text."""
    return parsed_only(text)[0] is None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keystrokes", type=int, default=200)
    parser.add_argument("--lines", type=int, nargs="*", default=[1000, 5000])
    parser.add_argument("--file", type=Path, nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    texts = {f"made, {lines} lines": training_code(lines) for lines in options.lines}
    texts.update({str(path): path.read_text() for path in options.file})
    results = {}
    for name, text in texts.items():
        load = os.getloadavg()[0]
        results[name] = {**measure(text, options.keystrokes, options.seed), "load_before": round(load, 1)}
        print(name)
        for key, value in results[name].items():
            print(f"  {key:22} {value}")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
