"""Plain helpers that several test modules share."""

import socket
import time
from collections.abc import Callable

Handler = Callable[[socket.socket], object]
Serve = Callable[[Handler], int]
"""What the fixture ``serve`` gives: start a server, get its port."""


def silent(connection: socket.socket) -> None:
    """Say nothing until the other end hangs up."""
    while connection.recv(4096):
        pass


def poll(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Return as soon as ``condition()`` holds; fail if it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.01)
