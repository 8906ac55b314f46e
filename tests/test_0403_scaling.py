"""0403: what retires stays away, what is killed comes back, seen from outside Dask."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from compose_cluster import ComposeCluster, docker, read_until, running_lesson
from lesson_runs import passes_on_the_cluster
from support import eventually, load_lesson

from dask_cluster_lab.commands.catalogue import find_lesson

LESSON = find_lesson("0403")


@pytest.fixture(scope="module")
def lesson() -> ModuleType:
    return load_lesson("0403")


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (1, [1]),
        (2, [2, 1]),
        (3, [3, 2, 1]),
        (4, [4, 3, 1]),
        (5, [5, 3, 2]),
        (8, [8, 5, 3]),
        (9, [9, 6, 3]),
    ],
)
def test_rungs(lesson: ModuleType, workers: int, expected: list[int]) -> None:
    assert lesson.rungs(workers) == expected


@pytest.mark.parametrize(
    ("overhead", "seconds"), [(-0.1, 0.1), (0.05, 0.1), (0.3, 0.3), (9.0, 0.5)]
)
def test_tasks_are_longer_on_a_busy_machine(
    overhead: float, seconds: float, lesson: ModuleType
) -> None:
    assert lesson.long_enough(overhead) == pytest.approx(seconds)


def test_departures_are_compared_by_what_became_of_the_data(lesson: ModuleType) -> None:
    kept = lesson.Departure(5, 4, 0, True, "kept", since=1.0, back_after=2.0)
    assert kept == lesson.Departure(5, 4, 0, True, "kept")
    assert str(kept) == (
        "4 of 4 results kept, 0 computed again, the scattered tile: kept"
    )
    for differs in (
        (4, 4, 0, True, "kept"),  # not all of it was there
        (5, 3, 1, True, "kept"),
        (5, 4, 0, False, "kept"),
        (5, 4, 0, True, "FutureCancelledError"),
    ):
        assert kept != lesson.Departure(*differs)


@pytest.fixture(scope="module")
def own(docker_engine: None) -> Iterator[ComposeCluster]:
    """A cluster whose workers these tests retire."""
    cluster = ComposeCluster("scaling")
    cluster.make("up")
    yield cluster
    cluster.make("down")


def inspect(name: str) -> dict[str, Any]:
    """What the engine says of one container."""
    facts: dict[str, Any] = json.loads(docker("inspect", name))[0]
    return facts


Event = tuple[str, str, str]


@contextlib.contextmanager
def container_events(cluster: ComposeCluster) -> Iterator[list[Event]]:
    """(name, what happened, exit status) of its containers' ends and starts.

    The list is filled while they happen: the engine remembers the last 256 events only,
    and every health check makes three.
    """
    command = [
        "docker",
        "events",
        f"--filter=label=com.docker.compose.project={cluster.project}",
        "--filter=event=die",
        "--filter=event=start",
        "--filter=event=restart",
        "--format={{json .}}",
    ]
    found: list[Event] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:

        def follow() -> None:
            for line in process.stdout or ():
                event = json.loads(line)
                who = event["Actor"]["Attributes"]
                found.append((who["name"], event["Action"], who.get("exitCode", "")))

        follower = threading.Thread(target=follow)
        follower.start()
        try:
            yield found
        finally:
            process.terminate()
            follower.join(30)


def runs_of_containers(cluster: ComposeCluster) -> dict[str, tuple[str, int]]:
    """When each worker's container was started, and how often it was restarted."""
    facts = {name: inspect(name) for name in cluster.containers("worker")}
    return {n: (f["State"]["StartedAt"], f["RestartCount"]) for n, f in facts.items()}


def worker_count(cluster: ComposeCluster) -> int:
    with cluster.client() as client:
        return len(client.nthreads())


@pytest.mark.compose
def test_retired_keeps_keys_and_stays_down(own: ComposeCluster) -> None:
    with own.client() as client:
        hosts = client.run(socket.gethostname)
        worker = max(hosts)
        (name,) = [
            name
            for name in own.containers("worker")
            if inspect(name)["Config"]["Hostname"] == hosts[worker]
        ]
        squares = client.map(pow, range(6), [2] * 6, workers=[worker], pure=False)
        seven = client.scatter(7, workers=[worker], hash=False)
        eventually(lambda: all(f.done() for f in squares), "all are done")
        keys = [future.key for future in (*squares, seven)]
        assert {tuple(client.who_has()[key]) for key in keys} == {(worker,)}
        client.retire_workers([worker])
        assert worker not in client.nthreads()
        places = client.who_has()
        assert all(places[key] and worker not in places[key] for key in keys)
        assert client.gather(squares) == [n**2 for n in range(6)]
        assert seven.result(timeout=60) == 7
        eventually(lambda: not inspect(name)["State"]["Running"], "its container ends")
        deadline = time.monotonic() + 5  # what restarts by itself does so within one
        while time.monotonic() < deadline:
            facts = inspect(name)
            assert facts["State"]["Status"] == "exited"
            assert (facts["State"]["ExitCode"], facts["RestartCount"]) == (0, 0)
            assert len(client.nthreads()) == 2
            time.sleep(0.5)
        docker("start", name)
        eventually(lambda: len(client.nthreads()) == 3, "it is back", 120)
        assert client.gather([*squares, seven]) == [0, 1, 4, 9, 16, 25, 7]


@pytest.mark.compose
def test_the_lesson_ends_one_container_and_starts_it(own: ComposeCluster) -> None:
    """The engine's own log: one end with status 0, one start of the same, no more."""
    before = set(own.containers("worker"))
    with container_events(own) as events:
        outcome = passes_on_the_cluster("0403", own)
        eventually(lambda: len(events) >= 2, "the end and the start")
    (ended, *end), (started, *start) = events
    assert (end, start) == (["die", "0"], ["start", ""])
    assert ended == started
    assert ended in before
    assert f"$ docker start {ended}" in outcome.stdout
    assert set(own.containers("worker")) == before
    with own.client() as client:
        assert len(client.nthreads()) == 3
        log = [event for _, event in client.get_events("all")]
    retired = [e for e in log if e.get("action") == "retire-workers"]
    assert len(retired[-1]["retired"]) == 1
    assert len(retired[-1]["could-not-retire"]) == 0


@pytest.mark.compose
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_still_brings_the_worker_back(
    own: ComposeCluster, number: signal.Signals
) -> None:
    before = own.containers("worker")
    with (
        container_events(own) as events,
        running_lesson(LESSON.path, own.environment) as process,
    ):
        read_until(process, "every key moved")  # it has left by now
        process.send_signal(number)
        process.communicate(timeout=120)
        assert process.returncode in (130, 128 + signal.SIGTERM)
        eventually(lambda: len(events) >= 3, "the end, the start and the restart")
    assert own.containers("worker") == before
    assert [action for _, action, _ in events] == ["die", "start", "restart"]
    eventually(lambda: worker_count(own) == 3, "three workers", 120)


@pytest.mark.compose
def test_without_docker_at_hand(own: ComposeCluster, tmp_path: Path) -> None:
    """Nothing leaves that could not be brought back."""
    before = runs_of_containers(own)
    done = subprocess.run(
        [sys.executable, str(LESSON.path)],
        env={**own.environment, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "needs the Compose cluster and its docker command" in done.stdout
    assert "5 n/a" in done.stdout
    assert runs_of_containers(own) == before
