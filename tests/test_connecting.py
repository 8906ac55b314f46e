"""A lesson that is pointed at the wrong thing, as a person would see it."""

import os
import subprocess
import sys

import pytest
from compose_cluster import ROOT, ComposeCluster
from support import Serve, silent

from dask_cluster_lab.probe import parse_address, probe

Done = subprocess.CompletedProcess[str]


def connect_to(address: str, seconds: float = 60) -> Done:
    """Run 0101_connect with ``DASK_SCHEDULER_ADDRESS=address``; it must end in time."""
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "0101_connect.py")],
        env={**os.environ, "DASK_SCHEDULER_ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def assert_refused(done: Done, *words: str) -> None:
    """Status 2, one sentence on stderr, and nothing was run in its place."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def assert_fell_back(done: Done, reason: str) -> None:
    """Status 0 on the stand-in, which the first lines say, with the reason."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    label, _, _ = done.stdout.partition("\n'make up' starts the real cluster")
    assert " ".join(label.split()) == (
        f"LocalCluster, in this process, as a fallback: {reason}."
    )
    assert "8787" not in done.stdout


@pytest.mark.parametrize(
    "address",
    ["localhost", "localhost:0", "localhost:65536", "http://localhost:8786", " ", ""],
)
def test_a_malformed_address_is_an_error(address: str) -> None:
    assert_refused(connect_to(address), repr(address), "tcp://127.0.0.1:8786")


def test_a_silent_listener_is_an_error(serve: Serve) -> None:
    port = serve(silent)
    assert_refused(connect_to(f"127.0.0.1:{port}"), "is no Dask scheduler", str(port))


def test_a_web_server_is_an_error(serve: Serve) -> None:
    port = serve(lambda connection: connection.sendall(b"HTTP/1.0 400 Bad\r\n\r\n"))
    assert_refused(connect_to(f"127.0.0.1:{port}"), "is no Dask scheduler", str(port))


@pytest.mark.compose
def test_the_dashboards_port_is_an_error(shared_cluster: ComposeCluster) -> None:
    port = shared_cluster.dashboard_port
    assert_refused(connect_to(f"127.0.0.1:{port}"), "is no Dask scheduler", "8786")


def test_nothing_there_falls_back(closed_port: int) -> None:
    done = connect_to(f"127.0.0.1:{closed_port}")
    reason = f"nothing listens at tcp://127.0.0.1:{closed_port} (connection refused)"
    assert_fell_back(done, reason)


def test_a_black_hole_falls_back(black_hole: int) -> None:
    done = connect_to(f"127.0.0.1:{black_hole}")
    reason = f"tcp://127.0.0.1:{black_hole} did not answer within 1.8 s"
    assert_fell_back(done, reason)


def test_a_name_that_does_not_resolve_falls_back() -> None:
    done = connect_to("scheduler.invalid:8786")
    assert_fell_back(done, "the name 'scheduler.invalid' does not resolve")


def test_the_four_answers_differ(
    closed_port: int, black_hole: int, serve: Serve
) -> None:
    """Nothing, no name, no answer and no scheduler are four different sentences."""
    addresses = [
        f"127.0.0.1:{closed_port}",
        "scheduler.invalid:8786",
        f"127.0.0.1:{black_hole}",
        f"127.0.0.1:{serve(silent)}",
    ]
    states = [probe(parse_address(address)).state for address in addresses]
    assert states == ["refused", "unresolved", "unreachable", "silent"]
