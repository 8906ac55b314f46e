"""What survives a death, on a cluster of containers, without the lesson's own words.

Starts are counted from files on the shared volume, deaths from the same, restarts from
the Docker Engine; the lesson counts them from the scheduler's log.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import psutil
import pytest
from compose_cluster import ComposeCluster, docker
from distributed import Client, KilledWorker
from support import eventually, load_lesson

# Functions of this file travel to the cluster by value; it cannot import them there. In
# a task that takes a lambda around them: Dask looks at the function of a run() only.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

compose = pytest.mark.compose
FOLDER = "/data/test-0401"


@pytest.fixture(scope="module")
def lesson() -> ModuleType:
    return load_lesson("0401")


def test_ran_twice_is_exactly_twice(lesson: ModuleType) -> None:
    starts = [{"started": key} for key in ("a", "b", "c", "b", "c", "c")]
    assert lesson.ran_twice(starts) == {"b"}
    assert lesson.ran_twice([]) == set()


@pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="there is no /proc here")
def test_container_start_is_that_of_the_first_process(lesson: ModuleType) -> None:
    expected = psutil.Process(1).create_time() - psutil.boot_time()
    assert lesson.container_start() == pytest.approx(expected, abs=1.0)


def test_what_comes_home(lesson: ModuleType) -> None:
    class Made:
        def __init__(self, status: str, error: Exception | None) -> None:
            self.status, self.error = status, error

        def result(self, timeout: float) -> int:
            if self.error:
                raise self.error
            return 1

    lost = lesson.FutureCancelledError("key", "lost dependencies")
    assert lesson.what_comes_home(Made("finished", None)) == ("finished", "nothing", "")
    assert lesson.what_comes_home(Made("cancelled", lost)) == (
        "cancelled",
        "FutureCancelledError",
        "lost dependencies",
    )
    with pytest.raises(ValueError, match="a bug"):
        lesson.what_comes_home(Made("error", ValueError("a bug")))


def process() -> str:
    """This process among those of all containers."""
    return f"{socket.gethostname()}-{os.getpid()}"


def leave_mark(name: str) -> None:
    """A new file on the shared volume, named after the task and the process."""
    Path(FOLDER, f"{name}.{process()}.{uuid.uuid4().hex}").touch()


def mark_and_work(tile: int) -> int:
    leave_mark(str(tile))
    time.sleep(0.3)
    return tile * tile


def mark_and_die() -> None:
    leave_mark("poison")
    time.sleep(0.3)
    os._exit(1)


def marks() -> list[tuple[str, str]]:
    """Task and process of every mark."""
    return [(name.split(".")[0], name.split(".")[1]) for name in os.listdir(FOLDER)]


def clear(make: bool) -> None:
    import shutil

    shutil.rmtree(FOLDER, ignore_errors=True)
    if make:
        os.mkdir(FOLDER)


def on_one(client: Client, function: Any, *arguments: Any) -> Any:
    """``function`` run on one worker, whichever."""
    worker = min(client.scheduler_info(n_workers=-1)["workers"])
    return client.run(function, *arguments, workers=[worker])[worker]


def addresses(dask_scheduler: Any) -> list[str]:
    return sorted(dask_scheduler.workers)


def held(key: str, dask_scheduler: Any) -> bool:
    task = dask_scheduler.tasks.get(key)
    return task is not None and bool(task.who_has)


def workers_of(client: Client) -> list[str]:
    found: list[str] = client.run_on_scheduler(addresses)
    return found


def kill(client: Client, address: str) -> None:
    with contextlib.suppress(OSError):
        client.run(os._exit, 1, workers=[address])
    eventually(lambda: address not in workers_of(client), "its removal")


@pytest.fixture
def client(shared_cluster: ComposeCluster) -> Iterator[Client]:
    """A client of the cluster, which is whole again after the test."""
    with shared_cluster.client() as client:
        eventually(lambda: len(workers_of(client)) == 3, "three workers")
        on_one(client, clear, True)
        yield client
        eventually(lambda: len(workers_of(client)) == 3, "three workers")
        on_one(client, clear, False)


@compose
def test_neither_container_nor_nanny_restarts(
    client: Client, shared_cluster: ComposeCluster
) -> None:
    def seen_by_docker() -> list[str]:
        form = "{{.State.StartedAt}} {{.RestartCount}} {{.State.Pid}}"
        names = shared_cluster.containers("worker")
        return [docker("inspect", "-f", form, name) for name in names]

    containers, before = seen_by_docker(), workers_of(client)
    victim = before[0]
    nannies = set(client.run(os.getpid, nanny=True).items())
    kill(client, victim)
    eventually(lambda: len(workers_of(client)) == 3, "the next worker")
    (heir,) = set(workers_of(client)) - set(before)
    assert heir.rpartition(":")[0] == victim.rpartition(":")[0]
    assert heir != victim
    assert seen_by_docker() == containers
    after = set(client.run(os.getpid, nanny=True).items())
    assert dict(after)[heir] == dict(nannies)[victim]


@compose
def test_each_result_once_although_tasks_ran_twice(client: Client) -> None:
    victim = workers_of(client)[0]
    dying = client.run(process, workers=[victim])[victim]
    futures = client.map(lambda tile: mark_and_work(tile), range(48), pure=False)

    def begun_there() -> set[str]:
        return {task for task, where in on_one(client, marks) if where == dying}

    eventually(lambda: len(begun_there()) > 2, "the second round on it", 30)
    kill(client, victim)
    assert client.gather(futures) == [tile * tile for tile in range(48)]
    begun = begun_there()
    starts = Counter(task for task, _ in on_one(client, marks))
    assert set(starts) == {str(tile) for tile in range(48)}
    assert 2 < len(begun) < 48
    assert {task for task, count in starts.items() if count == 2} == begun
    assert sum(starts.values()) == 48 + len(begun)


@compose
def test_scattered_data_is_lost_unless_replicated(client: Client) -> None:
    victim = workers_of(client)[0]
    single, double = (
        client.scatter([list(range(4))], workers=[victim], hash=False)[0]
        for _ in range(2)
    )
    derived = client.submit(sum, single, pure=False)
    assert derived.result(timeout=30) == 6
    client.amm.stop()
    try:
        client.replicate([double], n=2)
        assert len(client.who_has(double)[double.key]) == 2
        kill(client, victim)
        for future in (single, derived, client.submit(sum, single, pure=False)):
            with pytest.raises(CancelledError):
                future.result(timeout=30)
        assert double.result(timeout=30) == [0, 1, 2, 3]
        assert client.submit(sum, double, pure=False).result(timeout=30) == 6
    finally:
        client.amm.start()


@compose
def test_copies_are_trimmed_by_default(client: Client) -> None:
    assert client.amm.running()
    data = client.scatter([[1, 2]], hash=False, broadcast=True)[0]
    eventually(lambda: len(client.who_has(data)[data.key]) == 1, "one copy is left", 30)
    assert data.result(timeout=30) == [1, 2]


@compose
def test_poison_is_stopped_after_four_deaths(client: Client) -> None:
    neighbours = client.map(sum, [[n, n] for n in range(9)], pure=False)
    client.gather(neighbours)
    poison = client.submit(lambda: mark_and_die(), retries=10, pure=False)
    with pytest.raises(KilledWorker) as caught:
        poison.result(timeout=120)
    assert caught.value.allowed_failures == 3
    eventually(lambda: len(workers_of(client)) == 3, "three workers")
    assert [task for task, _ in on_one(client, marks)] == ["poison"] * 4
    assert client.gather(neighbours) == [2 * n for n in range(9)]


OTHER = """
import sys
from distributed import Client, wait
client = Client(sys.argv[1], timeout=20)
futures = [client.submit(sum, [1, 2, 3], key=key) for key in sys.argv[2:]]
wait(futures)
client.publish_dataset(futures[1], name=sys.argv[3])
print("ready", flush=True)
sys.stdin.read()
"""


@compose
def test_killed_client_leaves_only_what_it_published(
    client: Client, shared_cluster: ComposeCluster
) -> None:
    mine, shared = f"mine-{uuid.uuid4().hex}", f"shared-{uuid.uuid4().hex}"
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, shared_cluster.address, mine, shared],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout
        assert program.stdout.readline() == "ready\n"
        assert client.run_on_scheduler(held, mine)
        assert client.run_on_scheduler(held, shared)
        program.send_signal(signal.SIGKILL)
    assert program.returncode == -signal.SIGKILL
    eventually(lambda: not client.run_on_scheduler(held, mine), "its keys vanish", 30)
    assert client.run_on_scheduler(held, shared)
    assert client.get_dataset(shared).result(timeout=30) == 6
    assert client.run_on_scheduler(held, shared), "a future that came and went"
    client.unpublish_dataset(shared)
    eventually(lambda: not client.run_on_scheduler(held, shared), "it is freed", 30)
