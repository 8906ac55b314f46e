"""0402: attempts and errors, counted on the cluster by a client of the test's own."""

import os
import sys
from collections import defaultdict
from types import ModuleType
from typing import Any

import cloudpickle
import pytest
from compose_cluster import ComposeCluster
from distributed import Client
from lesson_runs import passes_on_the_cluster
from support import load_lesson

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def runs_by_prefix(since: float, dask_scheduler: Any) -> dict[str, list[int]]:
    """For each function: how often each of its tasks was sent to a worker, sorted."""
    runs: dict[Any, int] = defaultdict(int)
    for key, _, finish, *_, when in dask_scheduler.transition_log:
        if when >= since:
            runs[key] += finish == "processing"
    found: dict[str, list[int]] = defaultdict(list)
    for key, count in runs.items():
        found[str(key).partition("-")[0]].append(count)
    return {name: sorted(counts) for name, counts in found.items()}


def clock(dask_scheduler: Any) -> float:
    """The scheduler's time."""
    from distributed.metrics import time

    return time()


@pytest.fixture(scope="module")
def lesson() -> ModuleType:
    return load_lesson("0402")


def test_survive_fails_until_the_attempt_that_is_needed(lesson: ModuleType) -> None:
    for attempt in range(1, lesson.NEEDED):
        with pytest.raises(ConnectionError, match=f"attempt {attempt} of"):
            lesson.survive(attempt)
    assert lesson.survive(lesson.NEEDED) == lesson.NEEDED == lesson.RETRIES + 1


def test_depths(lesson: ModuleType) -> None:
    assert lesson.depth_of(7) == 17.0
    assert lesson.in_fathoms(1.8288) == 1.0
    with pytest.raises(lesson.ShoalError, match="tile -2") as caught:
        lesson.depth_of(-2)
    assert (caught.value.tile, caught.value.pid) == (-2, os.getpid())


@pytest.mark.compose
def test_the_lesson_ran_as_often_as_it_says(shared_cluster: ComposeCluster) -> None:
    with shared_cluster.client() as client:
        since = client.run_on_scheduler(clock)
        passes_on_the_cluster("0402", shared_cluster, observers=1)
        runs = client.run_on_scheduler(runs_by_prefix, since)
        files = client.run(os.listdir, "/data")
        left = client.run(lambda dask_worker: hasattr(dask_worker, "attempts"))
        modules = client.run(lambda: "echo_driver" in sys.modules)
    assert runs["count_in_global"] == [3]
    assert runs["count_on_worker"] == [3, 3]
    assert runs["count_in_file"] == [3]
    # One pinned to nowhere, two of the first section, the bug with its three retries
    # and one more by hand, and six of the batch.
    assert runs["depth_of"] == [0, 1, 1, 1, 1, 1, 1, 1, 1, 5]
    assert runs["in_fathoms"] == [0, 1, 1, 1, 1, 1]
    assert set(map(len, files.values())) == {0}
    assert set(left.values()) == {False}
    assert set(modules.values()) == {False}


@pytest.mark.compose
def test_retries_counted_in_the_workers_logs(
    lesson: ModuleType, shared_cluster: ComposeCluster
) -> None:
    """A task that fails writes a line on the worker each time; no counter of ours."""
    with shared_cluster.client() as client:
        bug = client.submit(lesson.depth_of, -1, retries=3, pure=False)
        alone = client.submit(lesson.depth_of, -1, pure=False)
        errors = [repr(future.exception(timeout=60)) for future in (bug, alone)]
        assert errors == ["ShoalError('tile -1 is a shoal')"] * 2
        assert logged(client, bug.key) == 4
        assert logged(client, alone.key) == 1


@pytest.mark.compose
def test_a_global_is_new_in_every_attempt(
    lesson: ModuleType, shared_cluster: ComposeCluster
) -> None:
    with shared_cluster.client() as client:
        future = client.submit(lesson.count_in_global, retries=5, pure=False)
        with pytest.raises(ConnectionError, match="attempt 1 of 3"):
            future.result(timeout=60)
        assert logged(client, future.key) == 6


def logged(client: Client, key: Any) -> int:
    """How many lines of the workers' logs name this task."""
    logs = client.get_worker_logs().values()
    return sum(str(key) in text for log in logs for _, text in log)
