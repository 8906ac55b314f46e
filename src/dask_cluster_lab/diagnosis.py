"""Why was this run slow? A verdict from the records of the task stream.

``diagnose()`` needs the records of one run (``distributed.get_task_stream()``) and the
threads of each worker. The first of these that applies is the verdict:

========================  ============================================================
too short to judge        the run took less than a second
spilling                  workers wrote results to disk or read them back
moving data               tasks waited for data from other workers
tasks too small           slots stood still, and tasks take less than 10 ms
one long task             the longest task takes as long as the floor, or longer
uneven load               one worker had far more to do than the average
idle slots                none of these, and yet slots stood still
more slots would help     slots were busy
========================  ============================================================

The *floor* is the compute time of all tasks over the slots: what the run would take if
no slot ever stood still. A task that is longer than the floor sets the duration by
itself, and no hardware helps.

``disk-read`` and ``disk-write`` in the records are the times that it took to get data
from a worker's memory or into it, where that took more than 5 ms. On a worker that
spills it is the disk. A busy machine shows a few without any disk, which is why they
count only from a tenth of the time on.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from dask_cluster_lab.task_stream import Record, Span, all_spans, computes, prefix_of

Verdict = Literal[
    "too short to judge",
    "spilling",
    "moving data",
    "tasks too small",
    "one long task",
    "uneven load",
    "idle slots",
    "more slots would help",
]

SHORTEST_RUN = 1.0
"""Seconds. Below it, start-up and the clock decide."""
SPILLING_SHARE = 0.1
MOVING_SHARE = 0.3
SMALL_TASK = 0.01
"""Seconds; ten times what the scheduler spends on a task (Dask's best practices)."""
UNEVEN = 1.5
BUSY = 0.7
STRAGGLER = 3.0

ADVICE: Mapping[Verdict, str] = {
    "too short to judge": "run a longer job before you tune anything",
    "spilling": "use smaller chunks, more memory or fewer results at once",
    "moving data": "rechunk less, put tasks where their data is",
    "tasks too small": "use larger chunks, or put several calls into one task",
    "one long task": "split it or submit it first; more slots do not help",
    "uneven load": "look for pins, or for data that sits on one worker",
    "idle slots": "look for steps that wait for each other, or for the client",
    "more slots would help": "add workers",
}


@dataclass(frozen=True)
class Prefix:
    """All tasks of one prefix, which is the function's name in most keys."""

    name: str
    tasks: int
    seconds: float
    longest: float


@dataclass(frozen=True)
class Diagnosis:
    """What a run's records say. All times in seconds, all shares from 0 to 1."""

    tasks: int
    slots: int
    duration: float
    """From the first start to the last stop of any stretch."""
    by_action: Mapping[str, float]
    """Compute, transfer, disk-read, disk-write, deserialize: seconds, added up."""
    by_prefix: tuple[Prefix, ...]
    """Most time first."""
    by_worker: Mapping[str, float]
    """Compute seconds of every worker, those that had nothing to do included."""
    stragglers: tuple[Span, ...]
    """Tasks of more than three times the median of all, longest first."""
    longest: float
    verdict: Verdict

    @property
    def compute(self) -> float:
        return self.by_action.get("compute", 0.0)

    @property
    def floor(self) -> float:
        """The duration if no slot ever stood still."""
        return self.compute / self.slots

    @property
    def efficiency(self) -> float:
        """Compute time over what the slots could have computed in that duration."""
        return self.floor / self.duration if self.duration else 0.0

    @property
    def spread(self) -> float:
        """The busiest worker's compute time over the mean of all workers."""
        mean = statistics.fmean(self.by_worker.values())
        return max(self.by_worker.values()) / mean if mean else 1.0

    @property
    def advice(self) -> str:
        return ADVICE[self.verdict]


def diagnose(records: Iterable[Record], threads: Mapping[str, int]) -> Diagnosis:
    """Judge one run by its ``records``; ``threads`` of every worker, by address.

    Raises ``ValueError`` without workers, or without a task that computed: a run whose
    results were all there already has nothing to judge.
    """
    records = list(records)
    slots = sum(threads.values())
    ran = computes(records)
    if slots < 1 or not ran:
        raise ValueError(f"{len(ran)} tasks on {slots} slots: there is no run to judge")
    everything = all_spans(records)
    by_action: dict[str, float] = defaultdict(float)
    for action, span in everything:
        by_action[action] += span.seconds
    by_worker = dict.fromkeys(threads, 0.0)
    groups: dict[str, list[float]] = defaultdict(list)
    for span in ran:
        by_worker[span.worker] = by_worker.get(span.worker, 0.0) + span.seconds
        groups[prefix_of(span.key)].append(span.seconds)
    prefixes = [
        Prefix(name, len(times), sum(times), max(times))
        for name, times in groups.items()
    ]
    median = statistics.median(span.seconds for span in ran)
    stragglers = [span for span in ran if span.seconds > STRAGGLER * median]
    start = min(span.start for _, span in everything)
    stop = max(span.stop for _, span in everything)
    facts = Diagnosis(
        tasks=len(ran),
        slots=slots,
        duration=stop - start,
        by_action=dict(by_action),
        by_prefix=tuple(sorted(prefixes, key=lambda p: -p.seconds)),
        by_worker=by_worker,
        stragglers=tuple(sorted(stragglers, key=lambda span: -span.seconds)),
        longest=max(span.seconds for span in ran),
        verdict="too short to judge",
    )
    return replace(facts, verdict=_verdict(facts))


def _verdict(run: Diagnosis) -> Verdict:
    busy = sum(run.by_action.values())
    disk = run.by_action.get("disk-read", 0) + run.by_action.get("disk-write", 0)
    moving = run.by_action.get("transfer", 0) + run.by_action.get("deserialize", 0)
    idle = run.efficiency < BUSY
    if run.duration < SHORTEST_RUN:
        return "too short to judge"
    if disk > SPILLING_SHARE * busy:
        return "spilling"
    if moving > MOVING_SHARE * busy:
        return "moving data"
    if idle and run.compute / run.tasks < SMALL_TASK:
        return "tasks too small"
    if run.longest >= run.floor:
        return "one long task"
    if idle and run.spread > UNEVEN:
        return "uneven load"
    return "idle slots" if idle else "more slots would help"
