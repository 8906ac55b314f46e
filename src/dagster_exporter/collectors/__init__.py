"""One collector a file: asks one thing of Dagster, and makes metrics of the answer.

``poll`` gives all the collector's metrics, or raises ``Failure``; then those of the
last good poll stay. Each has its test in ``tests/exporter/test_NAME.py``.
"""

from collections.abc import Sequence
from typing import Protocol

from dagster_exporter.metrics import Family


class Collector(Protocol):
    """What the poller needs of a collector."""

    @property
    def name(self) -> str:
        """The value of the label ``collector``."""

    async def poll(self) -> Sequence[Family]:
        """Ask once; the metrics, or a ``Failure``."""
