"""Arithmetic on when tasks ran: pure functions on records, with no cluster in sight."""

from collections.abc import Iterable


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
