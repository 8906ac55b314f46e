"""Which jobs there are: the last good knowledge of it, shared by the collectors.

A location that does not load is missing from Dagster's own list of jobs, as a removed
job is. The difference matters: counters of a removed job may go, those of a location
that somebody will repair must stay.
"""

from collections.abc import Iterable, Mapping

Job = tuple[str, str]
"""The name of a job and its location."""

UNKNOWN_LOCATION = "__unknown__"
"""The location of runs that do not tell theirs; the Go exporter's word for it."""

GONE_AFTER = 3
"""Good answers in a row without the job. A run may be counted while an older answer
about the jobs is on its way, so one is not enough."""


class Roster:
    """The jobs of each location, as far as they could be seen."""

    def __init__(self) -> None:
        self.answers = 0
        self._jobs: dict[str, frozenset[str]] = {}
        self._broken: frozenset[str] = frozenset()

    def learn(
        self, loaded: Mapping[str, frozenset[str]], broken: frozenset[str]
    ) -> None:
        """A new answer: jobs by location, and the locations that do not load."""
        kept = {name: self._jobs[name] for name in broken if name in self._jobs}
        self._jobs = {**kept, **loaded}
        self._broken = broken
        self.answers += 1

    def jobs(self) -> set[Job]:
        """All jobs, those of broken locations as they were last seen."""
        return {(job, where) for where, jobs in self._jobs.items() for job in jobs}

    def lacks(self, job: Job) -> bool:
        """Whether the job is gone: its location loads without it, or is gone too."""
        name, where = job
        if not self.answers or where == UNKNOWN_LOCATION or where in self._broken:
            return False
        return name not in self._jobs.get(where, frozenset())


class Pruning:
    """Decides which jobs' series go; one for each collector that keeps some."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._answers = 0
        self._missing: dict[Job, int] = {}

    def gone(self, jobs: Iterable[Job]) -> set[Job]:
        """Those of ``jobs`` that several good answers in a row lacked."""
        if self._roster.answers == self._answers:
            return set()
        self._answers = self._roster.answers
        self._missing = {
            job: self._missing.get(job, 0) + 1
            for job in jobs
            if self._roster.lacks(job)
        }
        return {job for job, times in self._missing.items() if times >= GONE_AFTER}
