"""Runs that ended: counted once each, whatever happens to Dagster, to us or to them.

The work of a poll follows the runs that ended since the last one, not the history: see
``window``. A run counts by its id and its terminal status, when it ended.
"""

import time
from typing import TYPE_CHECKING

from dagster_exporter import metrics
from dagster_exporter.answers import Asks
from dagster_exporter.metrics import Family
from dagster_exporter.roster import Job, Pruning, Roster
from dagster_exporter.runs import Run, pages
from dagster_exporter.totals import Totals, end_of

if TYPE_CHECKING:
    from dagster_exporter.state_file import StateFile

OUTCOMES = ("SUCCESS", "FAILURE")
"""How a run ends by itself. Only these make it a job's last run, as for the Go
exporter: who cancels a run after a failure has not mended anything."""

STATUSES = (*OUTCOMES, "CANCELED")


class CompletedRuns:
    """Counts runs by job and outcome, and remembers each job's last one."""

    name = "completed_runs"

    def __init__(
        self,
        client: Asks,
        roster: Roster,
        page_size: int,
        totals: Totals,
        state_file: "StateFile | None" = None,
    ) -> None:
        self._client = client
        self._roster = roster
        self._page_size = page_size
        self._pruning = Pruning(roster)
        self._last: dict[Job, Run] = {}
        self._first = True
        self._state_file = state_file
        self.totals = totals

    async def poll(self) -> list[Family]:
        """One request for each page of runs that ended since the last poll."""
        if self._first:
            await self._remember_newest()
        # A poll counts as a whole: what breaks off is forgotten, and asked for again.
        totals = self.totals.copy()
        asked_at, newest = time.time(), totals.window.watermark
        asked = pages(
            self._client,
            "completed_runs",
            self._page_size,
            statuses=list(STATUSES),
            updatedAfter=totals.window.cutoff,
        )
        async for _, page in asked:
            for run in page:
                # Not later than this poll: runs may end on pages that have been read.
                newest = max(newest, min(run.updated, asked_at))
                totals.add(run, newest)
                self._remember(run)
        totals.window.advance(newest)
        self.totals = totals
        self._prune()
        if self._state_file:
            self._state_file.save(self.totals)
        return self._families()

    async def _remember_newest(self) -> None:
        """One page from before the start, so that jobs have a last run; not counted."""
        asked = pages(
            self._client,
            "completed_runs",
            self._page_size,
            statuses=list(OUTCOMES),
            updatedAfter=None,
        )
        async for _, page in asked:
            for run in page:
                self._remember(run)
            break
        self._first = False

    def _remember(self, run: Run) -> None:
        if run.status.upper() not in OUTCOMES:
            return
        known = self._last.get(run.job)
        if known is None or end_of(run) >= end_of(known):
            self._last[run.job] = run

    def _prune(self) -> None:
        gone = self._pruning.gone(self.totals.jobs() | self._last.keys())
        self.totals.forget(gone)
        for job in gone:
            self._last.pop(job, None)

    def _families(self) -> list[Family]:
        runs = {
            (*job, status.lower()): 0
            for job in self._roster.jobs()
            for status in STATUSES
        } | self.totals.runs
        last = self._last.items()
        return [
            metrics.COMPLETED_RUNS.family(runs.items()),
            metrics.LAST_RUN.family(((*job, run.status), 1) for job, run in last),
            metrics.LAST_RUN_DURATION.family(
                ((*job, run.status), end_of(run) - run.created) for job, run in last
            ),
            metrics.LAST_RUN_END.family((job, end_of(run)) for job, run in last),
            metrics.RUN_DURATION.family(
                (job, one.exposed()) for job, one in self.totals.durations.items()
            ),
            metrics.RUN_WAIT.family(
                (job, one.exposed()) for job, one in self.totals.waits.items()
            ),
            metrics.SEEN_RUNS.family([((), len(self.totals.window.seen))]),
            metrics.STATE_ERRORS.family(
                [((), self._state_file.errors if self._state_file else 0)]
            ),
        ]
