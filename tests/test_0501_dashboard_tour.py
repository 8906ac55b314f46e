"""0501: what it reads from the scheduler, counted a second way on the workers."""

import socket
import sys
from typing import Any

import cloudpickle
import pytest
from compose_cluster import ComposeCluster
from distributed import Future
from distributed.dashboard.scheduler import applications
from support import Serve, eventually, load_lesson

cloudpickle.register_pickle_by_value(sys.modules[__name__])

MB = 1_000_000

lesson = load_lesson("0501")


def test_its_pages_are_pages_of_the_dashboard() -> None:
    assert len(lesson.PAGES) == 7
    assert {f"/{page}" for page in lesson.PAGES} <= set(applications)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nhello", "200"),
        (b"HTTP/1.0 404 Not Found\r\n\r\n", "404"),
        (b"HTTP/1.0 500 Oh\r\n\r\n", "500"),
        (b"", "RemoteDisconnected"),
    ],
)
def test_http_status(answer: bytes, expected: str, serve: Serve) -> None:
    def say(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(answer)

    assert lesson.http_status(f"http://127.0.0.1:{serve(say)}/") == expected


def test_http_status_where_nobody_listens(closed_port: int) -> None:
    assert lesson.http_status(f"http://127.0.0.1:{closed_port}/") == "URLError"


def fetched(dask_worker: Any) -> set[str]:
    """Who sent this worker a megabyte or more, from its own log."""
    return {m["who"] for m in dask_worker.transfer_incoming_log if m["total"] > MB}


def bytes_held(dask_worker: Any) -> int:
    return sum(len(value) for value in dask_worker.data.values())


@pytest.mark.compose
def test_numbers_are_those_of_the_workers(shared_cluster: ComposeCluster) -> None:
    with shared_cluster.client() as client:
        first, second, *_ = sorted(client.nthreads())
        blocks = [
            client.submit(bytes, 2 * MB, workers=[first], pure=False) for _ in range(3)
        ]
        eventually(lambda: all(b.done() for b in blocks), "the blocks")
        held = sum(client.run(bytes_held).values())
        assert held == 6 * MB
        memory: dict[str, int] = {}

        def told() -> bool:
            memory.update(client.run_on_scheduler(lesson.memory_by_category))
            return memory["managed"] >= held

        eventually(told, "heartbeats tell of the blocks")
        assert memory["managed"] < held + 1000, "bytes() have a few bytes of their own"
        assert memory["spilled"] == 0
        states = client.run_on_scheduler(lesson.states_by_prefix)
        assert states["bytes"] == {"memory": 3}

        fetches: list[Future[int]] = []

        def measured() -> bool:
            """Fetch once more: a measurement can be lost between two heartbeats."""
            block = client.submit(bytes, 2 * MB, workers=[first], pure=False)
            fetches.append(client.submit(len, block, workers=[second], pure=False))
            assert fetches[-1].result() == 2 * MB
            pairs = client.run_on_scheduler(lesson.bandwidth_by_pair)
            return bool(pairs.get((second, first)))

        eventually(measured, "a bandwidth of this pair")
        assert first in client.run(fetched, workers=[second])[second]
