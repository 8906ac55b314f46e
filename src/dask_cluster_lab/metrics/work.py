"""Counting one unit of work where it happens, on every worker.

``Instruments`` are the metrics. ``WorkerMetrics``, a plugin, puts them on every worker,
also on those that join later and those that start again. ``unit_of_work`` is what a
pipeline writes around the work on one unit: it counts in the worker's own metrics,
which Dask serves at ``/metrics`` and which end with the worker, and it attaches a
report to the task, which travels to the scheduler in the message that the task has
finished. Either both arrive, result and report, or neither: that is what ``totals``
builds on.
"""

import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distributed import Worker, WorkerPlugin, get_worker
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from dask_cluster_lab.metrics.labels import OUTCOMES, STAGES, register

if TYPE_CHECKING:
    from distributed import Client, Scheduler

RESIDUAL_BUCKETS = (0.01, 0.025, 0.04, 0.045, 0.05, 0.06, 0.075, 0.1)
"""Metres. The gate's threshold, 0.05, is one of them, so that the share of tiles beyond
it is counted and not interpolated; they are close together around it for the
quantiles."""
SECONDS_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
REPORTS = "survey-reports"
"""The key of a task's metadata below which the reports travel."""


class Instruments:
    """The metrics of a worker, in ``registry``: created together, removed together."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.registry = registry
        self.units = register(
            Counter,
            "survey_units",
            "Units of work that ended, by stage and outcome.",
            ["stage", "outcome"],
            registry=registry,
        )
        self.rows = register(
            Counter,
            "survey_rows",
            "Rows that went into units of work and came out of them.",
            ["stage", "direction"],
            registry=registry,
        )
        self.seconds = register(
            Histogram,
            "survey_unit_seconds",
            "Seconds that a unit of work took.",
            ["stage"],
            registry=registry,
            buckets=SECONDS_BUCKETS,
        )
        self.residual = register(
            Histogram,
            "survey_residual_metres",
            "How far a tile's soundings lie from its grid, root mean square.",
            registry=registry,
            buckets=RESIDUAL_BUCKETS,
        )

    def remove(self) -> None:
        """Take all of them out of the registry."""
        for metric in (self.units, self.rows, self.seconds, self.residual):
            self.registry.unregister(metric)


class _Installed:
    """The instruments of this process, and how many plugins want them."""

    def __init__(self) -> None:
        self.instruments: Instruments | None = None
        self.wanted = 0
        self.lock = threading.Lock()


_installed = _Installed()


def install() -> Instruments:
    """The instruments of this process; made by the first call, counted by all."""
    with _installed.lock:
        _installed.wanted += 1
        if _installed.instruments is None:
            _installed.instruments = Instruments()
        return _installed.instruments


def uninstall() -> None:
    """Undo one ``install()``; the last one removes the instruments."""
    with _installed.lock:
        _installed.wanted = max(0, _installed.wanted - 1)
        if _installed.wanted == 0 and _installed.instruments is not None:
            _installed.instruments.remove()
            _installed.instruments = None


class WorkerMetrics(WorkerPlugin):
    """Gives every worker the instruments when it starts.

    ``client.register_plugin(WorkerMetrics())`` brings them to all workers that are
    there and to all that come. Metrics cannot be pickled (a lock inside), so the plugin
    carries none: each worker makes its own. Idempotent: registered a second time,
    nothing happens and no count is lost.
    ``client.unregister_worker_plugin(WorkerMetrics.name)`` removes them. In a cluster
    of threads all workers share one process and one set.
    """

    name = "survey-metrics"
    idempotent = True

    def __init__(self, client: str = "") -> None:
        self.client = client  # the id of the one for whose run it is here, if any

    def setup(self, worker: Worker) -> None:
        """Called by Dask on each worker."""
        install()

    def teardown(self, worker: Worker) -> None:
        """Called by Dask when the plugin is unregistered, and when the worker ends."""
        uninstall()


def remove_left_over(client: "Client") -> None:
    """Remove the plugin that a killed program left, counts included, if one did."""

    def is_there(dask_scheduler: "Scheduler") -> bool:
        return WorkerMetrics.name in dask_scheduler.worker_plugins

    if client.run_on_scheduler(is_there):  # asked first: the refusal would be logged
        client.unregister_worker_plugin(WorkerMetrics.name)


def in_use(dask_scheduler: "Scheduler") -> bool:
    """Whether a client that is still there has the plugin for the time of a run."""
    kept = dask_scheduler.worker_plugins.get(WorkerMetrics.name)
    return kept is not None and pickle.loads(kept).client in dask_scheduler.clients


@contextmanager
def worker_metrics(client: "Client") -> Iterator[None]:
    """The plugin for the time of a run, every count at zero at its start.

    A second block inside of this one changes nothing, neither at its start nor at its
    end. What a run left whose client is gone is removed first, counts included.
    """
    if client.run_on_scheduler(in_use):
        yield
        return
    remove_left_over(client)
    client.register_plugin(WorkerMetrics(client.id))
    try:
        yield
    finally:
        client.unregister_worker_plugin(WorkerMetrics.name)


@dataclass
class Unit:
    """What ``unit_of_work`` is told by the code inside it."""

    rows_in: int = 0
    rows_out: int = 0
    outcome: str = "ok"
    residual: float | None = None
    """Metres, where the unit measured it."""


@contextmanager
def unit_of_work(stage: str, unit: int, rows_in: int = 0) -> Iterator[Unit]:
    """Count the work inside as one unit of ``stage``, with its rows and its outcome.

    An exception makes the outcome ``error`` and goes on. ``unit`` names the unit in the
    report, never in a label. Where no instruments are installed and no task runs, as in
    a plain script, the work is done and nothing is counted. Raises ``ValueError`` if
    ``stage`` or the outcome is not declared.
    """
    if stage not in STAGES:
        raise ValueError(f"{stage!r} is not a stage; there is {', '.join(STAGES)}.")
    work = Unit(rows_in=rows_in)
    start = time.perf_counter()
    try:
        yield work
    except BaseException:
        work.outcome = "error"
        raise
    finally:
        if work.outcome not in OUTCOMES:
            raise ValueError(
                f"{work.outcome!r} is not an outcome; there is {', '.join(OUTCOMES)}."
            )
        _count(stage, work, time.perf_counter() - start)
        _report(stage, unit, work)


def _count(stage: str, work: Unit, seconds: float) -> None:
    """Into the metrics of this process, if there are any."""
    instruments = _installed.instruments
    if instruments is None:
        return
    instruments.units.labels(stage, work.outcome).inc()
    instruments.rows.labels(stage, "in").inc(work.rows_in)
    instruments.rows.labels(stage, "out").inc(work.rows_out)
    instruments.seconds.labels(stage).observe(seconds)
    if work.residual is not None:
        instruments.residual.observe(work.residual)


def _report(stage: str, unit: int, work: Unit) -> None:
    """Into the metadata of the task that runs, if one does.

    A unit that is tried again in the same task replaces its earlier report.
    """
    try:
        worker = get_worker()
        task = worker.state.tasks[worker.get_current_task()]
    except (ValueError, KeyError):  # not in a task
        return
    reports: dict[str, Any] = task.metadata.setdefault(REPORTS, {})
    reports[f"{stage}/{unit}"] = (
        work.outcome,
        work.rows_in,
        work.rows_out,
        work.residual,
    )
