"""Arithmetic on the task stream: what ran where, for how long, and what moved first.

``distributed.get_task_stream()`` collects a record of every task that ended while it
was open. Of a record, these functions use ``key``, ``worker`` and ``startstops``: the
stretches of time that the task spent, each with an ``action`` (``compute``,
``transfer``, ``disk-read``, ``deserialize``), ``start`` and ``stop`` in seconds since
the epoch and, for transfers, the ``source`` that sent the data.

A transfer is one message from one worker and can hold several keys; the record that
shows it is that of the task which is expected to need the data first.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Span:
    """One stretch of time that a task spent on a worker, in seconds since the epoch."""

    key: Any
    """The task's: a string, or a tuple for a chunk of a collection."""
    worker: str
    """Address of the worker that ran the task."""
    start: float
    stop: float
    source: str = ""
    """Address of the worker that sent the data; transfers only."""

    @property
    def seconds(self) -> float:
        return self.stop - self.start


def records_of(records: Iterable[Record], keys: Collection[Any]) -> list[Record]:
    """The records of these tasks: the stream holds those of other clients as well."""
    wanted = set(keys)
    return [record for record in records if record["key"] in wanted]


def all_spans(records: Iterable[Record]) -> list[tuple[str, Span]]:
    """All stretches with their action, in the order of the records."""
    return [
        (
            stretch["action"],
            Span(
                record["key"],
                record["worker"],
                stretch["start"],
                stretch["stop"],
                stretch.get("source", ""),
            ),
        )
        for record in records
        for stretch in record["startstops"]
    ]


def spans(records: Iterable[Record], action: str) -> list[Span]:
    """All stretches of one action, in the order of the records."""
    return [span for name, span in all_spans(records) if name == action]


def computes(records: Iterable[Record]) -> list[Span]:
    """When and where tasks ran: one for each time that a task ended."""
    return spans(records, "compute")


def transfers(records: Iterable[Record]) -> list[Span]:
    """What tasks waited for while it came from another worker: one for each message."""
    return spans(records, "transfer")


def prefix_of(key: Any) -> str:
    """The task prefix of a key: the function's name in most, the layer's in others."""
    from dask.utils import key_split

    return str(key_split(key))


def peak_overlap(intervals: Iterable[tuple[float, float]]) -> int:
    """The largest number of ``(start, stop)`` intervals that overlap at one moment.

    Given when each task started and stopped, this is how many ran at once. An interval
    that starts when another stops does not overlap it, so the tasks of one slot never
    count twice; one without length overlaps nothing. Any unit and any order will do,
    but one clock: times from several machines are only as good as their clocks agree.

    Raises ``ValueError`` for an interval that stops before it starts.
    """
    changes = []
    for start, stop in intervals:
        if stop < start:
            raise ValueError(f"the interval ({start}, {stop}) stops before it starts")
        changes += [(start, 1), (stop, -1)]
    running = peak = 0
    for _, change in sorted(changes):  # at the same moment, stops come before starts
        running += change
        peak = max(peak, running)
    return peak
