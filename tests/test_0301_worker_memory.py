"""Lesson 0301: its functions, and what a run leaves in the records of the scheduler."""

import asyncio
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cloudpickle
import dask
import pytest
from compose_cluster import ComposeCluster, docker
from distributed.spill import SpillBuffer
from lesson_runs import passes_on_the_cluster
from support import load_lesson

cloudpickle.register_pickle_by_value(sys.modules[__name__])

TILE_BYTES = 16 * 2**20


@pytest.fixture(scope="module")
def lesson() -> ModuleType:
    return load_lesson("0301")


def test_a_tile_has_the_size_that_the_lesson_counts_with(lesson: ModuleType) -> None:
    tile = lesson.make_tile(3)
    assert tile.nbytes == TILE_BYTES == lesson.TILE * lesson.MIB
    assert lesson.mean_depth(tile) == 3


def test_thresholds_are_those_of_this_process(lesson: ModuleType) -> None:
    with dask.config.set({"distributed.worker.memory.spill": 0.65}):
        assert lesson.thresholds()["spill"] == 0.65
    assert list(lesson.thresholds()) == ["target", "spill", "pause", "terminate"]


def test_what_is_held_can_be_let_go_twice(lesson: ModuleType) -> None:
    worker = SimpleNamespace()
    asyncio.run(lesson.hold(1.5, worker))
    assert [held.nbytes for held in vars(worker).values()] == [1.5 * 2**20]
    lesson.let_go(worker)
    lesson.let_go(worker)
    assert vars(worker) == {}


def test_kept_counts_only_the_keys_that_are_asked_for(
    lesson: ModuleType, tmp_path: Path
) -> None:
    data = SpillBuffer(str(tmp_path), target=100)
    data["a"], data["b"], data["c"] = b"x" * 60, b"x" * 60, b"x" * 20
    worker = SimpleNamespace(data=data)
    assert lesson.kept(["a", "b", "z"], worker) == (1, 1)
    assert lesson.kept(["b"], worker) == (1, 0)
    never_spills = SimpleNamespace(data={"a": 1, "b": 2})
    assert lesson.kept(["a", "b", "z"], never_spills) == (2, 0)


def test_a_task_that_the_worker_does_not_have_is_unknown(lesson: ModuleType) -> None:
    tasks = {"a": SimpleNamespace(state="ready")}
    worker = SimpleNamespace(state=SimpleNamespace(tasks=tasks))
    assert lesson.states_on_worker(["b", "a"], worker) == ["unknown", "ready"]


def records(addresses: list[str], dask_scheduler: Any) -> dict[str, Any]:
    """What the scheduler has counted and logged so far, and how workers are now.

    Logged is what it heard of those with these ``addresses``, gone or not.
    """
    written = {"count": 0.0, "bytes": 0.0}
    for label, amount in dask_scheduler.cumulative_worker_metrics.items():
        if label[-2] == "disk-write" and label[-1] in written:
            written[label[-1]] += amount
    workers = dask_scheduler.workers.values()
    return {
        "written": written,
        "events": {
            address: [
                (event["prev-status"], event["status"])
                for _, event in dask_scheduler.get_events(address)
                if event["action"] == "worker-status-change"
            ]
            for address in addresses
        },
        "status": {worker.status.name for worker in workers},
        "managed": sum(worker.nbytes for worker in workers),
    }


def pid(dask_worker: Any) -> int:
    return os.getpid()


@pytest.mark.compose
def test_spill_pause_and_end_as_the_scheduler_recorded_them(
    shared_cluster: ComposeCluster,
) -> None:
    with shared_cluster.client() as client:
        pids = client.run(pid)
        before = client.run_on_scheduler(records, list(pids))
        killed_before = client.get_events("worker-restart-memory")
        passes_on_the_cluster("0301", shared_cluster, observers=1)
        after = client.run_on_scheduler(records, list(pids))
        now = client.run(pid)
        killed = client.get_events("worker-restart-memory")
    # 65 tiles, of which `target` (60 % of 1.5 GiB) leaves room for 57; then two more
    # that the process's own size pushed out.
    written = {
        unit: after["written"][unit] - before["written"][unit]
        for unit in ("count", "bytes")
    }
    assert written["count"] >= 8 + 2
    assert written["bytes"] >= (8 + 2) * TILE_BYTES
    changes = {
        address: events[len(before["events"][address]) :]
        for address, events in after["events"].items()
    }
    first = min(pids)
    assert changes[first][:2] == [("running", "paused"), ("paused", "running")]
    # Then a nanny killed its worker, and nobody killed the others.
    ((_, event),) = killed[len(killed_before) :]
    assert {who for who, what in changes.items() if what} <= {first, event["worker"]}
    assert event["pid"] == pids.pop(event["worker"])
    assert 0.95 * 1.5 * 2**30 < event["rss"] < 2 * 2**30
    assert event["worker"] not in now
    assert pids.items() <= now.items()
    assert after["status"] == {"running"}
    assert after["managed"] == before["managed"] == 0


@pytest.mark.compose
def test_a_container_may_have_more_memory_than_its_worker(
    shared_cluster: ComposeCluster,
) -> None:
    """Else the kernel would kill the worker before Dask could spill or pause it."""
    with shared_cluster.client() as client:
        limits = {
            info["memory_limit"]
            for info in client.scheduler_info(-1)["workers"].values()
        }
    assert limits == {1.5 * 2**30}
    for name in shared_cluster.containers("worker"):
        granted = int(docker("inspect", "-f", "{{.HostConfig.Memory}}", name))
        assert granted == 2 * 2**30 > max(limits)
