"""Exact totals of a run, kept by the scheduler, whatever becomes of the workers.

A sum over workers lacks what gone workers did. A count of executions has too much: what
a dead worker held is computed again. Only distinct units are exact, each counted once,
when the task that did it is reported as finished for the first time.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed import SchedulerPlugin
from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from dask_cluster_lab.errors import LabError
from dask_cluster_lab.metrics.labels import DIRECTIONS, OUTCOMES, STAGES
from dask_cluster_lab.metrics.work import REPORTS

if TYPE_CHECKING:
    from distributed import Client, Scheduler

LIMIT = 100_000
"""Distinct units, tasks and failed tasks that are remembered; see ``Totals.exact``."""


@dataclass
class Totals:
    """What a run did: distinct units by stage and outcome, their rows, residuals."""

    run: str
    units: dict[tuple[str, str], int] = field(default_factory=dict)
    """(stage, outcome) to distinct units; the last outcome of a unit counts."""
    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    """(stage, direction) to rows of these units."""
    executions: int = 0
    """Finished tasks that reported units, counted each time; at least ``tasks``."""
    tasks: int = 0
    """Distinct tasks that did."""
    erred: int = 0
    """Distinct tasks that failed for good, and have not succeeded since. Of tasks that
    a client which counts asked for, or that stand behind one."""
    by_worker: dict[str, int] = field(default_factory=dict)
    """Worker to the distinct tasks that it was the first to finish."""
    residuals: list[float] = field(default_factory=list)
    """Metres, one for each unit that measured it, sorted."""
    exact: bool = True
    """False once more units or tasks came than are remembered: later ones were not
    counted.

    A failed task sends no report, so its units are in no count, whether this is true or
    not. It is one of ``erred``.
    """

    def stage(self, stage: str) -> int:
        """Distinct units of a stage, whatever their outcome."""
        return sum(count for (name, _), count in self.units.items() if name == stage)

    def quantile(self, share: float) -> float:
        """Quantile of the residuals in metres; NaN if there are none."""
        return float(np.quantile(self.residuals, share)) if self.residuals else np.nan


@dataclass
class _Unit:
    outcome: str
    rows: tuple[int, int]
    residual: float | None


class RunTotals(SchedulerPlugin):
    """Counts the distinct units of a run as their tasks finish.

    Registered a second time it goes on as it was (``idempotent``), and nothing is lost.
    It holds a few hundred bytes for each unit and task, of at most ``limit`` units, as
    many tasks and as many failed ones. The counts are kept up to date with each report,
    so that a scrape, which holds up the scheduler, walks over no units.
    """

    name = "survey-totals"
    idempotent = True

    def __init__(self, run: str, limit: int = LIMIT, client: str = "") -> None:
        self.run = run
        self.limit = limit
        self.client = client  # the id of the one that counts
        self.clients = {client} - {""}  # failed tasks of others are not of this run
        self.exact = True
        self.executions = 0
        self._units: dict[tuple[str, str], _Unit] = {}
        self._by_outcome: Counter[tuple[str, str]] = Counter()
        self._rows: Counter[tuple[str, str]] = Counter()
        self._finished: set[str] = set()
        self._by_worker: Counter[str] = Counter()
        self._erred: set[str] = set()
        self._lock = threading.Lock()
        self._scheduler: Scheduler | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # It travels to the scheduler empty: a lock cannot be pickled.
        return type(self), (self.run, self.limit, self.client)

    async def start(self, scheduler: "Scheduler") -> None:
        """Called by Dask on the scheduler."""
        self._scheduler = scheduler
        REGISTRY.register(self)

    def stop(self) -> None:
        """No longer among the scheduler's metrics. Dask does not call this by
        itself."""
        REGISTRY.unregister(self)

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any
    ) -> None:
        """Called by Dask whenever a task changes its state.

        From ``processing`` only: what is scattered, gathered or copied comes to memory
        too, and no work was done.
        """
        if start != "processing" or finish not in ("memory", "erred"):
            return
        if finish == "erred":
            if self._scheduler is None or self._is_of_the_run(self._scheduler, key):
                with self._lock:
                    self._remember(str(key), self._erred)
            return
        reports = (kwargs.get("metadata") or {}).get(REPORTS)
        if reports:
            self.count(str(key), kwargs["worker"], reports)

    def _is_of_the_run(self, scheduler: "Scheduler", key: Any) -> bool:
        """Whether a client of the run wants this task, or one that depends on it.

        A failed task brings no report that could say so. Without a client all are.
        """
        if not self.clients:
            return True
        found = {scheduler.tasks[key]}
        behind = list(found)
        while behind:
            task = behind.pop()
            if any(c.client_key in self.clients for c in task.who_wants or ()):
                return True
            behind += task.dependents - found
            found |= task.dependents
        return False

    def count(self, key: str, worker: str, reports: dict[str, Sequence[Any]]) -> None:
        """Take over the reports of a finished task."""
        with self._lock:
            self.executions += 1
            self._erred.discard(key)  # it was submitted again, and succeeded
            if self._remember(key, self._finished):
                self._by_worker[worker] += 1
            for name, (outcome, rows_in, rows_out, residual) in reports.items():
                stage, _, number = name.partition("/")
                known = self._units.get((stage, number))
                if known is not None:
                    self._add(stage, known, -1)
                elif len(self._units) >= self.limit:
                    self.exact = False
                    continue
                unit = _Unit(outcome, (rows_in, rows_out), residual)
                self._units[stage, number] = unit
                self._add(stage, unit, 1)

    def _add(self, stage: str, unit: _Unit, times: int) -> None:
        """Add a unit to the counts, or take it out of them."""
        self._by_outcome[stage, unit.outcome] += times
        for direction, number in zip(DIRECTIONS, unit.rows, strict=True):
            self._rows[stage, direction] += times * number

    def _remember(self, key: str, tasks: set[str]) -> bool:
        """Whether the task is new among these and there was room for it."""
        if key in tasks:
            return False
        if len(tasks) >= self.limit:
            self.exact = False
            return False
        tasks.add(key)
        return True

    def read(self) -> Totals:
        """The totals so far."""
        with self._lock:
            residuals = [
                unit.residual
                for unit in self._units.values()
                if unit.residual is not None
            ]
            return Totals(
                run=self.run,
                units=dict(+self._by_outcome),  # without those that are 0 again
                rows=dict(self._rows),
                executions=self.executions,
                tasks=len(self._finished),
                erred=len(self._erred),
                by_worker=dict(self._by_worker),
                residuals=sorted(residuals),
                exact=self.exact,
            )

    def describe(self) -> list[Metric]:
        """The names, for a registry that looks whether they are taken."""
        return [
            CounterMetricFamily("survey_run_units", "", labels=["stage", "outcome"]),
            CounterMetricFamily("survey_run_rows", "", labels=["stage", "direction"]),
            GaugeMetricFamily("survey_run_exact", ""),
        ]

    def collect(self) -> Iterator[Metric]:
        """The totals as metrics of the scheduler; the run is in no label."""
        units = CounterMetricFamily(
            "survey_run_units",
            "Distinct units of the run, by stage and last outcome.",
            labels=["stage", "outcome"],
        )
        rows = CounterMetricFamily(
            "survey_run_rows",
            "Rows of the distinct units of the run.",
            labels=["stage", "direction"],
        )
        with self._lock:
            for stage in STAGES:
                for outcome in OUTCOMES:
                    count = self._by_outcome[stage, outcome]
                    units.add_metric([stage, outcome], count)
                for direction in DIRECTIONS:
                    rows.add_metric([stage, direction], self._rows[stage, direction])
        yield units
        yield rows
        yield GaugeMetricFamily(
            "survey_run_exact",
            "1 while every unit of the run is counted, 0 once there were too many.",
            value=float(self.exact),
        )


def read_totals(dask_scheduler: "Scheduler") -> Totals:
    """The totals of the run that is being counted; ``KeyError`` if none is."""
    return _plugin(dask_scheduler).read()


def remove_totals(dask_scheduler: "Scheduler") -> None:
    """Stop counting; a second call changes nothing."""
    if RunTotals.name in dask_scheduler.plugins:
        _plugin(dask_scheduler).stop()
        dask_scheduler.remove_plugin(RunTotals.name)


class RunReader:
    """Reads the totals of a run from its scheduler."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    def read(self) -> Totals:
        """The totals so far. A round trip and a walk over all units: not for a loop."""
        return self._client.run_on_scheduler(read_totals)


def other_run(run: str, dask_scheduler: "Scheduler") -> str:
    """The run that this scheduler counts; empty if it is ``run`` or none."""
    if RunTotals.name not in dask_scheduler.plugins:
        return ""
    counted = _plugin(dask_scheduler).run
    return "" if counted == run else counted


def _plugin(scheduler: "Scheduler") -> RunTotals:
    plugin = scheduler.plugins[RunTotals.name]
    assert isinstance(plugin, RunTotals)
    return plugin


def joined(run: str, client: str, dask_scheduler: "Scheduler") -> bool:
    """Join the count of this run, if it is counted for a client that is still there.

    The failed tasks of the one that joins are then of the run as well.
    """
    if RunTotals.name not in dask_scheduler.plugins:
        return False
    plugin = _plugin(dask_scheduler)
    if plugin.run != run or plugin.client not in dask_scheduler.clients:
        return False
    plugin.clients.add(client)
    return True


@contextmanager
def run_totals(client: "Client", run: str, limit: int = LIMIT) -> Iterator[RunReader]:
    """Count the distinct units that the cluster does inside this block.

    A second block for the same run inside of this one joins it, and does not end it.
    What a client left of this run that is gone is removed first. Raises ``LabError`` if
    the scheduler counts another run: it counts one at a time.
    """
    other = client.run_on_scheduler(other_run, run)
    if other:
        raise LabError(
            f"the scheduler counts the run {other!r}; wait for its end, or use "
            "'make restart'."
        )
    if client.run_on_scheduler(joined, run, client.id):
        yield RunReader(client)
        return
    client.run_on_scheduler(remove_totals)
    client.register_plugin(RunTotals(run, limit, client.id))
    try:
        yield RunReader(client)
    finally:
        client.run_on_scheduler(remove_totals)
