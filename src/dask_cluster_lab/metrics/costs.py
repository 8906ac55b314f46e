"""What the metrics cost, with them and without them in turns, for ``make bench``."""

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dask_cluster_lab.metrics.totals import run_totals
from dask_cluster_lab.metrics.work import WorkerMetrics, unit_of_work

if TYPE_CHECKING:
    from distributed import Client

TASK_SECONDS = 0.01
UNITS = 201
TASKS = 250
ROUNDS = 40


def count_down(steps: int) -> None:
    """Work that takes the processor's time."""
    while steps:
        steps -= 1


def bare(number: int) -> int:
    """A trivial task."""
    return number


def counted(number: int) -> int:
    """The same as one unit of work."""
    with unit_of_work("ingest", number):
        return number


def work_and_unit(rounds: int) -> tuple[float, float]:
    """Median seconds of ten milliseconds of work, and of a unit of work around nothing.

    To be run as a task, so that the report has a task to travel with. In turns, so that
    the unit finds the processor's caches as work leaves them. Their difference would be
    lost in the noise of the work.
    """
    steps = 10_000
    start = time.perf_counter()
    count_down(steps)
    steps = max(1, round(steps * TASK_SECONDS / (time.perf_counter() - start)))
    work, around_nothing = [], []
    for number in range(rounds):
        start = time.perf_counter()
        count_down(steps)
        work.append(time.perf_counter() - start)
        start = time.perf_counter()
        with unit_of_work("grid", number, rows_in=1) as unit:
            unit.rows_out = 1
        around_nothing.append(time.perf_counter() - start)
    return statistics.median(work), statistics.median(around_nothing)


def task_ratio(client: "Client") -> float:
    """Time of 10 ms of work and one unit, over that of the work, inside of a task.

    What it takes to serialize the report and to send it is not in it: the worker does
    that beside the tasks. What it costs the scheduler is in ``scheduler_ratio``.
    """
    client.register_plugin(WorkerMetrics())
    try:
        work, unit = client.submit(work_and_unit, UNITS, pure=False).result()
    finally:
        client.unregister_worker_plugin(WorkerMetrics.name)
    return float((work + unit) / work)


def scheduler_ratio(client: "Client") -> float:
    """The scheduler's processor time for trivial tasks, counted over bare ones.

    The median over pairs of batches, since the pace of the machine changes.
    """

    def spent(task: Callable[[int], int]) -> float:
        before = client.run_on_scheduler(time.process_time)
        client.gather(client.map(task, range(TASKS), pure=False))
        return float(client.run_on_scheduler(time.process_time) - before)

    def spent_counting() -> float:
        with run_totals(client, "bench"):
            return spent(counted)

    client.register_plugin(WorkerMetrics())
    try:
        spent(bare)  # the warm-up
        spent_counting()
        ratios = []
        for number in range(ROUNDS):
            if number % 2:
                counting, plain = spent_counting(), spent(bare)
            else:
                plain, counting = spent(bare), spent_counting()
            ratios.append(counting / plain)
    finally:
        client.unregister_worker_plugin(WorkerMetrics.name)
    return statistics.median(ratios)
