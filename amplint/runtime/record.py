"""The record of a run: one JSON object per line, complete up to the last line whenever the process ends."""

import contextlib
import json
import math
import os
import sys
from typing import Any, Dict, Optional

#: Version of the record's shape; the first line of every run says it.
SCHEMA = 1


class Record:
    """Appends to `rankN.jsonl` in a folder. Failing to write ends the record, never the run."""

    def __init__(self, folder: Optional[str], rank: int) -> None:
        self.folder = folder
        self.path: Optional[str] = None
        #: Why nothing is written any more.
        self.problem: Optional[str] = None
        self._file: Optional[int] = None
        self._process = os.getpid()
        if folder is None:
            return
        path = os.path.join(os.path.abspath(folder), f"rank{rank}.jsonl")
        try:
            os.makedirs(folder, exist_ok=True)
            self._file = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666
            )
            self.path = path
            self._end_broken_line(path)
        except OSError as error:
            self._give_up(error)
            return
        import torch

        first = {
            "event": "run",
            "schema": SCHEMA,
            "rank": rank,
            "world_size": int(os.environ.get("WORLD_SIZE", "1") or 1),
            "argv": sys.argv,
            "folder": os.getcwd(),
            "torch": torch.__version__,
            "python": sys.version.split()[0],
        }
        self.write(first)

    def write(self, line: Dict[str, Any]) -> None:
        """Append one object. What is no number in JSON (NaN, Inf) becomes a string."""
        if self._file is None or os.getpid() != self._process:
            return
        data = (json.dumps(_plain(line), ensure_ascii=True) + "\n").encode("ascii")
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            try:
                os.close(self._file)
            except OSError as error:
                self._give_up(error)
            self._file = None

    def _end_broken_line(self, path: str) -> None:
        """A run that was killed, or met a full disk, may have left half a line at the end."""
        with open(path, "rb") as earlier:
            if earlier.seek(0, os.SEEK_END) and (earlier.seek(-1, os.SEEK_END), earlier.read(1))[1] != b"\n":
                assert self._file is not None
                os.write(self._file, b"\n")

    def _give_up(self, error: OSError) -> None:
        self.problem = f"the record in {self.folder} cannot be written: {error.strerror or error}"
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None
        with contextlib.suppress(OSError, ValueError):
            print(f"amplint: {self.problem}; the run goes on without it", file=sys.stderr, flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
