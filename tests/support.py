"""Plain helpers that several test modules share."""

import importlib.util
import socket
import sys
import time
from collections.abc import Callable
from types import ModuleType

from dask_cluster_lab.commands.catalogue import find_lesson

Handler = Callable[[socket.socket], object]
Serve = Callable[[Handler], int]
"""What the fixture ``serve`` gives: start a server, get its port."""


def silent(connection: socket.socket) -> None:
    """Say nothing until the other end hangs up."""
    while connection.recv(4096):
        pass


def eventually(
    condition: Callable[[], object], what: str, seconds: float = 120
) -> None:
    """Return as soon as ``condition()`` holds; fail with ``what`` if it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.05)


def load_lesson(number: str) -> ModuleType:
    """A lesson as a module, its story untold.

    It is one only while it is loaded: what cannot be imported is pickled by value, as
    the functions of a script are.
    """
    path = find_lesson(number).path
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module
