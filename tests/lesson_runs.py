"""A lesson run on the cluster as a person runs it, and what must hold of every run."""

import os
import sys
import urllib.request
from typing import Any

import cloudpickle
from compose_cluster import ComposeCluster
from support import eventually

from dask_cluster_lab.commands.catalogue import find_lesson
from dask_cluster_lab.commands.runner import Outcome, run_lesson
from dask_cluster_lab.commands.transcripts import compare_outcome
from dask_cluster_lab.metrics.prometheus import samples

# Functions of this file travel to the cluster by value; it cannot import them there.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def assert_passed(outcome: Outcome) -> None:
    """It ended well, was quiet on stderr, and kept to the page."""
    assert outcome.status == 0, outcome.stdout + outcome.stderr
    assert outcome.stderr == ""
    assert max(map(len, outcome.stdout.splitlines())) <= 100
    assert outcome.score is not None
    ok, failed, _ = outcome.score
    assert ok > 0
    assert failed == 0


def scheduler_state(dask_scheduler: Any) -> dict[str, Any]:
    """What a lesson must leave as it was; a restarted worker has a new address."""
    workers = dask_scheduler.workers.values()
    # Dask leaves the plugin of get_task_stream() in place, for whoever asks next.
    plugins = set(dask_scheduler.plugins) - {"task-stream"}
    return {
        "tasks": sorted(map(str, dask_scheduler.tasks)),
        "workers": len(workers),
        "hosts": sorted(worker.host for worker in workers),
        "plugins": sorted(plugins),
        "worker plugins": sorted(dask_scheduler.worker_plugins),
        "extensions": sorted(dask_scheduler.extensions),
        "resources": [worker.resources for worker in workers if worker.resources],
        "published": sorted(dask_scheduler.extensions["publish"].datasets),
    }


def worker_state(dask_worker: Any) -> dict[str, Any]:
    """Data held, plugins, files on the shared volume and in the working directory.

    And the project's own series among the worker's metrics.
    """
    from prometheus_client import REGISTRY

    return {
        "data": sorted(map(str, dask_worker.data)),
        "plugins": sorted(dask_worker.plugins),
        "files": sorted(os.listdir("/data")),
        "own files": sorted(os.listdir(".")),
        "series": sorted(
            m.name for m in REGISTRY.collect() if m.name.startswith("survey_")
        ),
    }


def is_at_rest(observers: int, dask_scheduler: Any) -> bool:
    """No task, and no client but the one that asks, the observers' and Dask's own.

    The scheduler keeps an empty client for every name that was ever published.
    """
    clients = [
        state
        for name, state in dask_scheduler.clients.items()
        if state.wants_what or not name.startswith("published-")
    ]
    return not dask_scheduler.tasks and len(clients) <= 2 + observers


def snapshot(cluster: ComposeCluster, observers: int = 0) -> dict[str, Any]:
    """The state of scheduler and workers, once the last lesson's client is gone."""
    with cluster.client() as client:
        eventually(
            lambda: client.run_on_scheduler(is_at_rest, observers),
            "all keys are released",
        )
        state: dict[str, Any] = client.run_on_scheduler(scheduler_state)
        state["on workers"] = sorted(map(str, client.run(worker_state).values()))
    if "monitoring" in cluster.profiles:
        gateway = f"http://127.0.0.1:{cluster.pushgateway_port}/metrics"
        with urllib.request.urlopen(gateway, timeout=30) as answer:
            pushed = samples(answer.read().decode()).get("push_time_seconds", [])
        state["groups pushed"] = [series.labels for series in pushed]
    return state


def passes_on_the_cluster(
    number: str, cluster: ComposeCluster, observers: int = 0, **environment: str
) -> Outcome:
    """Run the lesson: all checks ok, output as recorded, the cluster left as it was.

    ``observers`` clients of the caller may watch meanwhile.
    """
    before = snapshot(cluster, observers)
    outcome = run_lesson(find_lesson(number), {**cluster.environment, **environment})
    assert_passed(outcome)
    assert outcome.score
    assert outcome.score[2] == 0, "the cluster can show every claim"
    assert compare_outcome(outcome, "compose") == ""
    assert snapshot(cluster, observers) == before
    return outcome
