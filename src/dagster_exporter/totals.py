"""What was counted of the runs that ended."""

from bisect import bisect_left
from dataclasses import dataclass, field

from dagster_exporter.roster import Job
from dagster_exporter.runs import Run
from dagster_exporter.window import Window

BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""Seconds, from a small job's to a day's."""

RunKey = tuple[str, str]
"""The id of a run and its terminal status."""


@dataclass
class Durations:
    """A histogram: how many were at most as long as each bucket, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def copy(self) -> "Durations":
        """Another with the same counts."""
        return Durations(list(self.counts), self.total)

    def exposed(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative buckets, and the sum, as Prometheus wants them."""
        names = [str(bound) for bound in BUCKETS] + ["+Inf"]
        sums = [sum(self.counts[: last + 1]) for last in range(len(self.counts))]
        return list(zip(names, map(float, sums), strict=True)), self.total


@dataclass
class Totals:
    """What was counted so far; all of it can be kept in a file."""

    window: Window[RunKey]
    runs: dict[tuple[str, str, str], int] = field(default_factory=dict)
    durations: dict[Job, Durations] = field(default_factory=dict)
    waits: dict[Job, Durations] = field(default_factory=dict)

    def copy(self) -> "Totals":
        """The same totals, to be added to without a change to these."""
        return Totals(
            self.window.copy(),
            dict(self.runs),
            {job: one.copy() for job, one in self.durations.items()},
            {job: one.copy() for job, one in self.waits.items()},
        )

    def add(self, run: Run, newest: float = 0.0) -> None:
        """Count the run, unless it is no new one; ``newest`` is for ``Window.take``."""
        ended = end_of(run)
        if not self.window.take((run.run_id, run.status), ended, newest):
            return
        key = (*run.job, run.status)
        self.runs[key] = self.runs.get(key, 0) + 1
        if run.started is not None:  # a cancelled run may never have been started
            waited = max(0.0, run.started - run.created)
            self.waits.setdefault(run.job, Durations()).add(waited)
            ran = max(0.0, ended - run.started)
            self.durations.setdefault(run.job, Durations()).add(ran)

    def jobs(self) -> set[Job]:
        """All jobs with a series."""
        return {(job, where) for job, where, _ in self.runs}

    def forget(self, gone: set[Job]) -> None:
        """Drop the series of jobs that do not exist any more."""
        for key in [key for key in self.runs if key[:2] in gone]:
            del self.runs[key]
        for job in gone:
            self.durations.pop(job, None)
            self.waits.pop(job, None)


def end_of(run: Run) -> float:
    """When the run ended, as Unix time."""
    return run.updated if run.ended is None else run.ended
