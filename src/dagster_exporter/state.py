"""What the last polls left behind; the only thing that ``/metrics`` reads.

The poller's event loop is the only writer. A record is never changed but replaced by
another, in one assignment, so that a reader in another thread needs no lock.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from prometheus_client import ProcessCollector

from dagster_exporter import __version__, metrics
from dagster_exporter.metrics import Family, render


@dataclass(frozen=True)
class Record:
    """One collector: the text of its last good poll, and how its polls went."""

    body: bytes = b""
    duration: float | None = None
    good: bool | None = None
    good_at: float | None = None
    """Unix time of the last good poll's end; ``None`` before the first."""
    good_since_start: float | None = None
    """The same on the clock that no one sets (``time.monotonic``)."""
    failures: dict[str, int] = field(default_factory=dict)
    overruns: int = 0


class State:
    """The records of all collectors, and what is rendered from them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._started = time.monotonic()
        self._records = {name: Record() for name in names}
        self._process = ProcessCollector(registry=None)

    def record(self, name: str) -> Record:
        """What is known about one collector."""
        return self._records[name]

    def good(self, name: str, families: Iterable[Family], duration: float) -> None:
        """A poll ended well: what it found replaces what was known."""
        self._records[name] = replace(
            self._records[name],
            body=render(families),
            duration=duration,
            good=True,
            good_at=time.time(),
            good_since_start=time.monotonic(),
        )

    def failed(self, name: str, reason: str, duration: float) -> None:
        """A poll failed: what was known stays, and is not called new."""
        record = self._records[name]
        failures = record.failures | {reason: record.failures.get(reason, 0) + 1}
        self._records[name] = replace(
            record, duration=duration, good=False, failures=failures
        )

    def overrun(self, name: str) -> None:
        """A poll took longer than the interval."""
        record = self._records[name]
        self._records[name] = replace(record, overruns=record.overruns + 1)

    def waiting_for(self) -> list[str]:
        """Collectors without a good poll so far; none left means ready."""
        return [name for name, one in self._records.items() if one.good_at is None]

    def age(self, name: str) -> float:
        """Seconds since the collector's last good poll, or since the start."""
        return time.monotonic() - (
            self._records[name].good_since_start or self._started
        )

    def text(self) -> bytes:
        """Everything, in Prometheus's text format."""
        bodies = [record.body for record in self._records.values()]
        return b"".join((*bodies, render(self._about_itself())))

    def _about_itself(self) -> Iterable[Family]:
        each = list(self._records.items())
        yield metrics.POLL_DURATION.family(
            ((name,), one.duration) for name, one in each if one.duration is not None
        )
        yield metrics.POLL_SUCCESS.family(
            ((name,), float(one.good)) for name, one in each if one.good is not None
        )
        yield metrics.POLL_ERRORS.family(
            ((name,), sum(one.failures.values())) for name, one in each
        )
        yield metrics.POLL_FAILURES.family(
            ((name, reason), count)
            for name, one in each
            for reason, count in one.failures.items()
        )
        yield metrics.LAST_GOOD.family(
            ((name,), one.good_at) for name, one in each if one.good_at is not None
        )
        yield metrics.SINCE_GOOD.family(((name,), self.age(name)) for name, _ in each)
        yield metrics.OVERRUNS.family(((name,), one.overruns) for name, one in each)
        yield from self._process.collect()
        yield metrics.BUILD_INFO.family([((__version__, "unknown"), 1)])
