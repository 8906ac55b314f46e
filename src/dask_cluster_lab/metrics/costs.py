"""What the metrics cost, with them and without them in turns, for ``make bench``."""

import statistics
import time
from typing import TYPE_CHECKING

from dask_cluster_lab.metrics.totals import run_totals
from dask_cluster_lab.metrics.work import WorkerMetrics, unit_of_work

if TYPE_CHECKING:
    from distributed import Client

TASK_SECONDS = 0.01
TASKS = 500
ROUNDS = 5


def count_down(steps: int) -> None:
    """Work that takes the processor's time."""
    while steps:
        steps -= 1


def unit(number: int) -> int:
    """A trivial task that is one unit of work."""
    with unit_of_work("ingest", number):
        return number


def with_and_without(rounds: int) -> tuple[float, float]:
    """Median seconds of ten milliseconds of work, with metrics and without.

    To be run as a task, so that the report has a task to travel with.
    """
    steps = 10_000
    start = time.perf_counter()
    count_down(steps)
    steps = max(1, round(steps * TASK_SECONDS / (time.perf_counter() - start)))
    counted, plain = [], []
    for number in range(rounds):
        start = time.perf_counter()
        with unit_of_work("grid", number, rows_in=1) as work:
            count_down(steps)
            work.rows_out = 1
        counted.append(time.perf_counter() - start)
        start = time.perf_counter()
        count_down(steps)
        plain.append(time.perf_counter() - start)
    return statistics.median(counted), statistics.median(plain)


def task_ratio(client: "Client") -> float:
    """Time of a task of 10 ms with metrics, over its time without."""
    client.register_plugin(WorkerMetrics())
    try:
        counted, plain = client.submit(with_and_without, 201, pure=False).result()
    finally:
        client.unregister_worker_plugin(WorkerMetrics.name)
    return float(counted / plain)


def scheduler_ratio(client: "Client") -> float:
    """The scheduler's processor time for trivial tasks, counted over not counted."""

    def spent() -> float:
        before = client.run_on_scheduler(time.process_time)
        client.gather(client.map(unit, range(TASKS), pure=False))
        return float(client.run_on_scheduler(time.process_time) - before)

    client.register_plugin(WorkerMetrics())
    try:
        spent()  # a warm-up
        counted, plain = [], []
        for number in range(ROUNDS):
            with run_totals(client, f"bench-{number}"):
                counted.append(spent())
            plain.append(spent())
    finally:
        client.unregister_worker_plugin(WorkerMetrics.name)
    return statistics.median(counted) / statistics.median(plain)
