"""For all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Let Ctrl-C reach the programs that tests start, also where a shell made it ignored (`pytest &`)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
