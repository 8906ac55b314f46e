"""The containers' health check: 200 in time, or not healthy."""

import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from support import Serve, silent

from dask_cluster_lab import health
from dask_cluster_lab.health import healthy

if TYPE_CHECKING:
    from distributed import LocalCluster

ROOM = 20.0


def dashboard_port(cluster: "LocalCluster") -> int:
    return int(cluster.dashboard_link.removesuffix("/status").rpartition(":")[2])


@pytest.fixture
def worker_port(cluster: "LocalCluster") -> int:
    """Where the first worker answers HTTP."""
    workers = cluster.scheduler_info["workers"]
    return int(next(iter(workers.values()))["services"]["dashboard"])


def test_a_scheduler_and_a_worker(cluster: "LocalCluster", worker_port: int) -> None:
    assert healthy(dashboard_port(cluster)) is True
    assert healthy(worker_port) is True


def test_nothing_listens(closed_port: int) -> None:
    assert healthy(closed_port) is False


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", True),
        (b"HTTP/1.0 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", False),
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\n", False),
        (b"SSH-2.0-OpenSSH_9.2\r\n", False),
        (b"", False),
    ],
)
def test_answers(answer: bytes, verdict: bool, serve: Serve) -> None:
    asked = []

    def handle(connection: socket.socket) -> None:
        asked.append(connection.recv(100))
        connection.sendall(answer)

    assert healthy(serve(handle)) is verdict
    assert asked == [b"GET /health HTTP/1.0\r\n\r\n"]


def test_another_path(serve: Serve) -> None:
    asked = []

    def handle(connection: socket.socket) -> None:
        asked.append(connection.recv(100))
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    assert healthy(serve(handle), "/moto-api/") is True
    assert asked == [b"GET /moto-api/ HTTP/1.0\r\n\r\n"]


def test_an_event_loop_that_is_stuck(serve: Serve) -> None:
    start = time.monotonic()
    assert healthy(serve(silent), seconds=0.2) is False
    assert 0.2 <= time.monotonic() - start < ROOM


def test_the_command_line(cluster: "LocalCluster", closed_port: int) -> None:
    for port, status in ((dashboard_port(cluster), 0), (closed_port, 1)):
        done = subprocess.run(
            [sys.executable, "-I", "-S", health.__file__, str(port)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout, done.stderr) == (status, "", "")
